//! The service as a responder for the `wiremock` package.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ::wiremock::{Respond, ResponseTemplate};
use bytes::Bytes;
use http::{Request, Uri};

use super::MockServer;
use super::builder::MockServerBuilder;
use super::clock::MockClock;
use super::http::with_content_type;
use super::service::mail::{SentMail, report_spam};
use super::service::seed::{SeedContact, StoredContact, put_contact};
use super::service::{Audience, ContactFilter, Refusal};

/// The service as a [`wiremock::Respond`](Respond): mount it in a wiremock server, after your own mocks.
///
/// It responds like a [`MockServer`](super::MockServer), but has no faults, no control plane and no webhook deliveries.
/// Clones share one audience: mount one clone and keep another to inspect the audience.
///
/// # Example: one failed response before the service responds
///
/// ```
/// use audience::{Client, contacts::NewContact, mock::MockService};
/// use wiremock::{Mock, MockServer, ResponseTemplate, matchers::any};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let server = MockServer::start().await;
/// let service = MockService::new();
/// Mock::given(any())
///     .respond_with(ResponseTemplate::new(503))
///     .up_to_n_times(1)
///     .mount(&server)
///     .await;
/// Mock::given(any()).respond_with(service.clone()).mount(&server).await;
///
/// let contacts = Client::new(server.uri(), service.full_key())?.contacts();
/// let created = contacts.create(NewContact::new("Ada@example.com").first_name("Ada")).await?;
///
/// assert_eq!(created.attempts(), 2);
/// let ada = service.contact("ada@example.com").expect("the second attempt created her");
/// assert_eq!(ada.first_name.as_deref(), Some("Ada"));
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct MockService {
    audience: Arc<Mutex<Audience>>,
    clock: MockClock,
    full_key: Arc<str>,
    sending_key: Arc<str>,
}

impl MockService {
    /// Creates a service with the default configuration.
    ///
    /// # Example: a service in another server
    ///
    /// ```
    /// use audience::{Client, mock::MockService};
    /// use wiremock::{Mock, MockServer, matchers::any};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), audience::Error> {
    /// let (server, service) = (MockServer::start().await, MockService::new());
    /// Mock::given(any()).respond_with(service.clone()).mount(&server).await;
    ///
    /// let client = Client::new(server.uri(), service.full_key())?;
    ///
    /// assert!(client.contacts().list().await?.data.is_empty());
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn new() -> Self {
        Self::from_builder(MockServer::builder())
    }

    /// Creates a service with the configuration of a server. Settings of connections and deliveries have no effect.
    ///
    /// # Panics
    ///
    /// Panics if a seed cannot be read or is invalid, or if a segment is invalid. The message has the reason.
    ///
    /// # Example: a ceiling of two contacts, and a stopped clock
    ///
    /// ```
    /// use audience::mock::{MockServer, MockService};
    ///
    /// let builder = MockServer::builder().contact_ceiling(2).clock(1_700_000_000);
    /// let service = MockService::from_builder(builder);
    ///
    /// assert!(service.contacts().is_empty());
    /// ```
    #[must_use]
    #[track_caller]
    pub fn from_builder(mut builder: MockServerBuilder) -> Self {
        let (initial, clock) = match builder.initial_state() {
            Ok(initial) => initial,
            Err(error) => panic!("could not create the mock service: {error}"),
        };
        Self {
            audience: Arc::new(Mutex::new(initial.audience)),
            clock,
            full_key: builder.settings.full_key().into(),
            sending_key: builder.settings.sending_key().into(),
        }
    }

    /// Returns the full-access key. See [`MockServer::full_key`].
    ///
    /// # Example: the key of the builder
    ///
    /// ```
    /// # use audience::mock::{MockServer, MockService};
    /// let service = MockService::from_builder(MockServer::builder().full_key("a-key-for-tests"));
    ///
    /// assert_eq!(service.full_key(), "a-key-for-tests");
    /// ```
    #[must_use]
    pub fn full_key(&self) -> &str {
        &self.full_key
    }

    /// Returns the sending-access key. See [`MockServer::sending_key`].
    ///
    /// # Example: two keys with different rights
    ///
    /// ```
    /// # use audience::mock::MockService;
    /// let service = MockService::new();
    ///
    /// assert_ne!(service.sending_key(), service.full_key());
    /// ```
    #[must_use]
    pub fn sending_key(&self) -> &str {
        &self.sending_key
    }

    /// Adds a topic, or changes its default answer. See [`MockServer::topic`].
    ///
    /// # Example: a topic that changes its default
    ///
    /// ```
    /// # use audience::mock::MockService;
    /// # let service = MockService::new();
    /// service.topic("news", false);
    /// service.seed_contact("ada@example.com");
    ///
    /// service.topic("news", true);
    ///
    /// assert!(service.contacts()[0].topics["news"]);
    /// ```
    pub fn topic(&self, name: impl AsRef<str>, default: bool) {
        self.lock().put_topic(name.as_ref(), default);
    }

    /// Stores a contact in any state, and returns it. See [`MockServer::seed_contact`].
    ///
    /// # Panics
    ///
    /// Panics if the document does not allow the contact. The message has the reason.
    ///
    /// # Example: a contact to start with
    ///
    /// ```
    /// # use audience::mock::{MockService, SeedContact};
    /// # let service = MockService::new();
    /// let ada = service.seed_contact(SeedContact::new("ada@example.com").property("plan", "pro"));
    ///
    /// assert_eq!(ada.properties["plan"], "pro");
    /// ```
    #[track_caller]
    pub fn seed_contact(&self, contact: impl Into<SeedContact>) -> StoredContact {
        let stored = put_contact(&mut self.lock(), contact.into(), self.clock.unix());
        stored.unwrap_or_else(|problem| panic!("the seeded contact is invalid: {problem}"))
    }

    /// Records a spam report. See [`MockServer::report_spam`].
    ///
    /// # Example: the opt-out that follows
    ///
    /// ```
    /// # use audience::mock::MockService;
    /// # let service = MockService::new();
    /// service.seed_contact("ada@example.com");
    ///
    /// service.report_spam("ada@example.com");
    ///
    /// assert_eq!(service.contacts()[0].unsubscribe_reason, "complaint");
    /// ```
    pub fn report_spam(&self, address: impl AsRef<str>) {
        let mut audience = self.lock();
        report_spam(&mut audience, address.as_ref(), self.clock.unix());
        audience.take_events();
    }

    /// Returns a contact, or `None` if no contact has this address. See [`MockServer::contact`].
    ///
    /// # Example: an address in any spelling
    ///
    /// ```
    /// # use audience::mock::MockService;
    /// # let service = MockService::new();
    /// service.seed_contact("ada@example.com");
    ///
    /// assert!(service.contact("ADA@example.com").is_some());
    /// assert!(service.contact("bob@example.com").is_none());
    /// ```
    #[must_use]
    pub fn contact(&self, address: impl AsRef<str>) -> Option<StoredContact> {
        self.lock().contact(address.as_ref())
    }

    /// Returns all contacts, newest first. See [`MockServer::contacts`].
    ///
    /// # Example: the order of the list
    ///
    /// ```
    /// # use audience::mock::MockService;
    /// # let service = MockService::new();
    /// service.seed_contact("ada@example.com");
    /// service.seed_contact("bob@example.com");
    ///
    /// let addresses: Vec<_> = service.contacts().into_iter().map(|contact| contact.email).collect();
    /// assert_eq!(addresses, ["bob@example.com", "ada@example.com"]);
    /// ```
    #[must_use]
    pub fn contacts(&self) -> Vec<StoredContact> {
        self.lock()
            .matching_contacts(
                &ContactFilter::default(),
                None,
                usize::MAX,
                self.clock.unix(),
            )
            .unwrap_or_default()
    }

    /// Returns the mail that was sent. See [`MockServer::sent_mail`].
    ///
    /// # Example: mail through a wiremock server
    ///
    /// ```
    /// # use audience::{Client, mock::MockService};
    /// # use wiremock::{Mock, MockServer, matchers::any};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), audience::Error> {
    /// # let (server, service) = (MockServer::start().await, MockService::new());
    /// # Mock::given(any()).respond_with(service.clone()).mount(&server).await;
    /// # let client = Client::new(server.uri(), service.full_key())?;
    /// let mail = serde_json::json!({"from": "me@example.com", "to": "ada@example.com", "subject": "Welcome"});
    /// client.request(http::Method::POST, ["emails"]).json(&mail)?.await?;
    ///
    /// assert_eq!(service.sent_mail()[0].subject, "Welcome");
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn sent_mail(&self) -> Vec<SentMail> {
        self.lock().mails.sent_mail()
    }

    /// Ignores a poisoned lock: no request leaves the audience half changed.
    fn lock(&self) -> MutexGuard<'_, Audience> {
        self.audience.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for MockService {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for MockService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MockService")
            .field("audience", &*self.lock())
            .finish_non_exhaustive()
    }
}

impl Respond for MockService {
    fn respond(&self, request: &::wiremock::Request) -> ResponseTemplate {
        let body = Bytes::copy_from_slice(&request.body);
        let mut http_request = Request::new(body);
        *http_request.method_mut() = request.method.clone();
        *http_request.headers_mut() = request.headers.clone();
        let mut audience = self.lock();
        let handled = match sent_uri(request) {
            Some(uri) => {
                *http_request.uri_mut() = uri;
                audience.handle(&http_request, self.clock.unix())
            }
            None => Err(Refusal::uri_too_long()),
        };
        // Events are not delivered here. Dropped, so that they do not pile up in a long test.
        audience.take_events();
        let response = handled.unwrap_or_else(|refusal| audience.error_response(&refusal));
        let response = with_content_type(response);
        let mut template = ResponseTemplate::new(response.status());
        for (name, value) in response.headers() {
            template = template.insert_header(name, value);
        }
        template.set_body_bytes(response.into_body())
    }
}

/// Returns the path and the query of a request, or `None` if they are too long: wiremock encodes characters that the
/// request did not encode.
fn sent_uri(request: &::wiremock::Request) -> Option<Uri> {
    let path = request.url.path();
    let target = match request.url.query() {
        Some(query) => format!("{path}?{query}"),
        None => path.to_owned(),
    };
    target.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Timestamp;

    fn request(method: &str, target: &str, key: &str, body: &str) -> ::wiremock::Request {
        let mut headers = http::HeaderMap::new();
        headers.insert("Authorization", format!("Bearer {key}").parse().unwrap());
        ::wiremock::Request {
            url: format!("http://localhost{target}").parse().unwrap(),
            method: method.parse().unwrap(),
            headers,
            body: body.as_bytes().to_vec(),
        }
    }

    #[test]
    fn clones_share_one_audience() {
        let builder = MockServer::builder().full_key("k").clock(7);
        let service = MockService::from_builder(builder);
        service.topic("news", true);

        let mounted = service.clone();
        for (target, body) in [
            ("/contacts", r#"{"email": "a/b@x.io"}"#),
            ("/contacts/a%2Fb%40x.io/unsubscribe", r#"{"topic": "news"}"#),
        ] {
            mounted.respond(&request("POST", target, "k", body));
        }

        let contact = service.contact("a/b@x.io").unwrap();
        assert_eq!(contact.created_at, Timestamp::from_unix(7));
        assert_eq!(contact.topics.get("news"), Some(&false));
    }

    #[test]
    #[should_panic(expected = "the seeded contact is invalid: the contact names the topic `news`")]
    fn an_invalid_seed_of_a_builder_panics_with_the_reason() {
        let contact = SeedContact::new("a@x.io").answer("news", true);

        let _ = MockService::from_builder(MockServer::builder().seed_contact(contact));
    }

    #[test]
    fn debug_output_does_not_contain_the_keys() {
        let builder = MockServer::builder().full_key("k-1").sending_key("k-2");

        assert!(!format!("{builder:?}").contains("k-"));
        assert!(!format!("{:?}", MockService::from_builder(builder)).contains("k-"));
    }
}
