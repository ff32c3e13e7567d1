//! The service mounted in a wiremock server.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ::wiremock::{Respond, ResponseTemplate};

use super::service::audience::{Audience, Settings};
use super::service::contact::StoredContact;
use super::service::dialect::Dialect;
use super::service::message::Request;
use super::service::segment::SegmentKind;
use crate::Timestamp;

/// The whole service as a [`wiremock::Respond`](Respond): mount it in a wiremock server, under mocks of your own.
///
/// It holds what [`MockServer`](super::MockServer) holds and answers as that does, without what needs a
/// server of its own: no faults of the connection, no control plane, and no webhook deliveries.
/// Clones share one audience, so a test keeps one to look into while the server has another.
///
/// # Example: a call that fails once, in front of a service that works
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
    now: Now,
    full_key: Arc<str>,
    sending_key: Arc<str>,
}

type Now = Arc<dyn Fn() -> Timestamp + Send + Sync>;

impl MockService {
    /// A service as [`builder`](Self::builder) makes it when nothing else is asked for.
    #[must_use]
    pub fn new() -> Self {
        Self::builder().build()
    }

    /// A service with keys, ceiling, dialect or clock of your own.
    ///
    /// # Example: a ceiling of two contacts, in a time that stands still
    ///
    /// ```
    /// use audience::{Timestamp, mock::MockService};
    ///
    /// let service = MockService::builder()
    ///     .contact_ceiling(2)
    ///     .clock(|| Timestamp::from_unix(1_700_000_000))
    ///     .build();
    ///
    /// assert_eq!(service.contacts(), 0);
    /// ```
    pub fn builder() -> MockServiceBuilder {
        MockServiceBuilder {
            settings: Settings::default(),
            now: Arc::new(Timestamp::now),
        }
    }

    /// The full-access key that is taken.
    #[must_use]
    pub fn full_key(&self) -> &str {
        &self.full_key
    }

    /// The sending-access key that is taken: good for `POST /emails` alone (section 5).
    #[must_use]
    pub fn sending_key(&self) -> &str {
        &self.sending_key
    }

    /// Makes a topic with this default answer, or gives it another default (section 2.6).
    pub fn topic(&self, name: impl AsRef<str>, default: bool) {
        self.audience().put_topic(name.as_ref(), default);
    }

    /// Makes a segment, or replaces the one with this id (section 2.7).
    ///
    /// # Panics
    ///
    /// If the rule is none; the message says what is wrong with it.
    #[track_caller]
    pub fn segment(&self, id: impl AsRef<str>, kind: SegmentKind) {
        let id = id.as_ref();
        let made = self.audience().put_segment(id, kind);
        if let Err(error) = made {
            panic!("the rule of segment `{id}` cannot be read: {error}");
        }
    }

    /// A mailbox provider's spam report: opts the contact out for good, and suppresses the address,
    /// contact or not (section 3.2).
    pub fn report_spam(&self, address: impl AsRef<str>) {
        let now = self.now();
        let mut audience = self.audience();
        audience.report_spam(address.as_ref(), now);
        // Nobody delivers events here.
        drop(audience.take_events());
    }

    /// Notes that the contact's mail was `delivered`, `bounced`, `complained`, `opened` or `clicked` at a
    /// moment, for rules to find (section 2.8).
    ///
    /// # Panics
    ///
    /// If `what` is none of the five.
    #[track_caller]
    pub fn engage(
        &self,
        address: impl AsRef<str>,
        what: impl AsRef<str>,
        at: impl Into<Timestamp>,
    ) {
        let at = at.into().as_unix();
        let noted = self
            .audience()
            .record_engagement(address.as_ref(), what.as_ref(), at);
        if let Err(error) = noted {
            panic!("no such engagement: {error}");
        }
    }

    /// The contact with this address, if there is one.
    #[must_use]
    pub fn contact(&self, address: impl AsRef<str>) -> Option<StoredContact> {
        self.audience().contact(address.as_ref())
    }

    /// How many contacts are stored.
    #[must_use]
    pub fn contacts(&self) -> usize {
        self.audience().contact_count()
    }

    /// Changes how many contacts may be stored; `None` is as many as there come (section 8).
    pub fn set_ceiling(&self, contacts: Option<u64>) {
        self.audience().set_ceiling(contacts);
    }

    fn now(&self) -> i64 {
        (self.now)().as_unix()
    }

    /// No request leaves the audience half changed, so one that panicked elsewhere does no harm here.
    fn audience(&self) -> MutexGuard<'_, Audience> {
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
            .field("audience", &*self.audience())
            .finish_non_exhaustive()
    }
}

impl Respond for MockService {
    fn respond(&self, request: &::wiremock::Request) -> ResponseTemplate {
        let headers: Vec<(String, String)> = request
            .headers
            .iter()
            .map(|(name, value)| {
                let value = String::from_utf8_lossy(value.as_bytes());
                (name.as_str().to_owned(), value.into_owned())
            })
            .collect();
        let request = Request {
            method: request.method.as_str(),
            path: request.url.path(),
            query: request.url.query(),
            headers: &headers,
            body: &request.body,
        };
        let now = self.now();
        let mut audience = self.audience();
        let reply = audience.handle(&request, now);
        // Nobody delivers events here, and a long test should not gather them.
        drop(audience.take_events());
        let answer = ResponseTemplate::new(reply.status);
        if reply.body.is_empty() {
            return answer;
        }
        answer.set_body_raw(reply.body, "application/json")
    }
}

/// What a [`MockService`] is made with.
#[must_use = "no service is made before `build`"]
pub struct MockServiceBuilder {
    settings: Settings,
    now: Now,
}

impl MockServiceBuilder {
    /// The full-access key to take. The default is `mock-full-access-key`.
    pub fn full_key(mut self, key: impl Into<String>) -> Self {
        self.settings.full_key = key.into();
        self
    }

    /// The sending-access key to take. The default is `mock-sending-access-key`.
    pub fn sending_key(mut self, key: impl Into<String>) -> Self {
        self.settings.sending_key = key.into();
        self
    }

    /// The header that holds the bare key. The default is `Authorization: Bearer` and the key.
    pub fn auth_header(mut self, name: impl Into<String>) -> Self {
        self.settings.key_header = Some(name.into());
        self
    }

    /// How many contacts may be stored. The default is as many as there come.
    pub fn contact_ceiling(mut self, contacts: u64) -> Self {
        self.settings.ceiling = Some(contacts);
        self
    }

    /// How to answer where the interface document is silent. The default is [`Dialect::default`].
    pub fn dialect(mut self, dialect: Dialect) -> Self {
        self.settings.dialect = dialect;
        self
    }

    /// The time that the service lives in. The default is the system's.
    pub fn clock(mut self, now: impl Fn() -> Timestamp + Send + Sync + 'static) -> Self {
        self.now = Arc::new(now);
        self
    }

    /// The service.
    #[must_use]
    pub fn build(self) -> MockService {
        MockService {
            full_key: self.settings.full_key.as_str().into(),
            sending_key: self.settings.sending_key.as_str().into(),
            audience: Arc::new(Mutex::new(Audience::new(self.settings))),
            now: self.now,
        }
    }
}

impl fmt::Debug for MockServiceBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MockServiceBuilder")
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn what_one_clone_is_told_the_other_shows() {
        let service = MockService::builder()
            .full_key("k")
            .clock(|| Timestamp::from_unix(7))
            .build();
        service.topic("news", true);

        let mounted = service.clone();
        mounted.respond(&request(
            "POST",
            "/contacts",
            "k",
            r#"{"email": "a/b@x.io"}"#,
        ));
        mounted.respond(&request(
            "POST",
            "/contacts/a%2Fb%40x.io/unsubscribe",
            "k",
            r#"{"topic": "news"}"#,
        ));

        let contact = service.contact("a/b@x.io").unwrap();
        assert_eq!(contact.created_at, Timestamp::from_unix(7));
        assert_eq!(contact.topics.get("news"), Some(&false));
    }

    #[test]
    fn keys_do_not_print_themselves() {
        let builder = MockService::builder().full_key("k-1").sending_key("k-2");

        assert!(!format!("{builder:?}").contains("k-"));
        assert!(!format!("{:?}", builder.build()).contains("k-"));
    }

    #[test]
    #[should_panic(expected = "the rule of segment `seg_1` cannot be read: `match_` is missing")]
    fn a_segment_with_a_bad_rule_fails_the_test_that_makes_it() {
        let rule = serde_json::json!({ "conditions": [] });

        MockService::new().segment("seg_1", SegmentKind::Rule(rule));
    }
}
