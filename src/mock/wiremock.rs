//! The service as a responder for the `wiremock` package.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ::wiremock::{Respond, ResponseTemplate};

use super::seeds::{Seeds, apply_to_audience};
use super::service::audience::Audience;
use super::service::dialect::Dialect;
use super::service::message::Request;
use super::service::seed::Seed;
use super::service::seed_contact::SeedContact;
use super::service::segment::SegmentKind;
use super::service::sent_mail::SentMail;
use super::service::settings::Settings;
use super::service::stored_contact::StoredContact;
use super::shared_methods::{audience_methods, settings_methods};
use crate::Timestamp;

/// The service as a [`wiremock::Respond`](Respond): mount it in a wiremock server, after your own mocks.
///
/// It responds like a [`MockServer`](super::MockServer). It has no connection faults, no control plane and no webhook
/// deliveries. Clones share one audience: mount one clone and keep another to inspect the audience.
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
    now: Now,
    full_key: Arc<str>,
    sending_key: Arc<str>,
}

type Now = Arc<dyn Fn() -> Timestamp + Send + Sync>;

impl MockService {
    /// Creates a service with the default configuration.
    #[must_use]
    pub fn new() -> Self {
        Self::builder().build()
    }

    /// Returns a builder for a service with another configuration.
    ///
    /// # Example: a ceiling of two contacts, and a stopped clock
    ///
    /// ```
    /// use audience::{Timestamp, mock::MockService};
    ///
    /// let service = MockService::builder()
    ///     .contact_ceiling(2)
    ///     .clock(|| Timestamp::from_unix(1_700_000_000))
    ///     .build();
    ///
    /// assert_eq!(service.contact_count(), 0);
    /// ```
    pub fn builder() -> MockServiceBuilder {
        MockServiceBuilder {
            settings: Settings::default(),
            seeds: Seeds::default(),
            now: Arc::new(Timestamp::now),
        }
    }

    audience_methods! {
        #[doc = "# use audience::mock::MockService;"]
        #[doc = "let mock = MockService::new();"]
        start,
        end
    }

    fn now(&self) -> Timestamp {
        (self.now)()
    }

    /// Runs `change`, and drops the events it causes: nothing delivers them.
    fn with_audience<T>(&self, change: impl FnOnce(&mut Audience) -> T) -> T {
        let mut audience = self.lock();
        let result = change(&mut audience);
        audience.take_events();
        result
    }

    fn apply_seed(&self, seed: Seed) -> Result<(), String> {
        let now = self.now().as_unix();
        self.with_audience(|audience| {
            audience.check_start_settings(&seed)?;
            apply_to_audience(seed, audience, now)
        })
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
        let now = self.now().as_unix();
        let mut audience = self.lock();
        let reply = audience.handle(&request, now);
        // Events are not delivered here. Dropped, so that they do not pile up in a long test.
        drop(audience.take_events());
        let response = ResponseTemplate::new(reply.status);
        if reply.body.is_empty() {
            return response;
        }
        response.set_body_raw(reply.body, "application/json")
    }
}

/// Configures and creates a [`MockService`].
#[must_use = "no service is created until `build` is called"]
pub struct MockServiceBuilder {
    settings: Settings,
    seeds: Seeds,
    now: Now,
}

impl MockServiceBuilder {
    settings_methods!();

    /// Sets the function that returns the current time. Default: the system's time.
    pub fn clock(mut self, now: impl Fn() -> Timestamp + Send + Sync + 'static) -> Self {
        self.now = Arc::new(now);
        self
    }

    /// Creates the service.
    ///
    /// # Panics
    ///
    /// Panics if a seed cannot be read or is invalid. The message has the reason.
    #[must_use]
    #[track_caller]
    pub fn build(self) -> MockService {
        let mut settings = self.settings;
        let now = (self.now)().as_unix();
        let seeded = self.seeds.read().and_then(|seeds| {
            seeds.complete(&mut settings);
            let mut audience = Audience::new(settings.clone());
            seeds.apply(&mut audience, None, now)?;
            Ok(audience)
        });
        let audience = match seeded {
            Ok(audience) => audience,
            Err(error) => panic!("{error}"),
        };
        MockService {
            full_key: settings.full_key().into(),
            sending_key: settings.sending_key().into(),
            audience: Arc::new(Mutex::new(audience)),
            now: self.now,
        }
    }
}

impl fmt::Debug for MockServiceBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MockServiceBuilder")
            .field("settings", &self.settings)
            .field("seeds", &self.seeds)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

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
    fn clones_share_one_audience() {
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
    fn a_service_starts_with_its_seeds_and_takes_more() {
        let seed = json!({"topics": {"news": true}, "contacts": [{"email": "a@x.io", "topics": {"news": false}}]});
        let service = MockService::builder()
            .clock(|| Timestamp::from_unix(7))
            .seed(seed)
            .seed_contact(SeedContact::new("b@x.io").answer("news", false))
            .build();

        service.seed_contact("c@x.io");
        service.seed(json!({"contacts": [{"email": "d@x.io"}]}));

        let contacts = service.contacts();
        let addresses: Vec<&str> = contacts.iter().map(|contact| &*contact.email).collect();
        assert_eq!(addresses, ["d@x.io", "c@x.io", "b@x.io", "a@x.io"]);
        assert!(
            contacts
                .iter()
                .all(|contact| contact.created_at.as_unix() == 7)
        );
    }

    #[test]
    #[should_panic(expected = "the seed is invalid: `clock` and `endpoints` need a `MockServer`")]
    fn a_seed_cannot_set_the_clock_of_a_service() {
        MockService::new().seed(json!({"clock": 7}));
    }

    #[test]
    #[should_panic(expected = "the seeded contact is invalid: the contact names the topic `news`")]
    fn an_invalid_seed_of_a_builder_panics_with_the_reason() {
        let _ = MockService::builder()
            .seed_contact(SeedContact::new("a@x.io").answer("news", true))
            .build();
    }

    #[test]
    fn debug_output_does_not_contain_the_keys() {
        let builder = MockService::builder().full_key("k-1").sending_key("k-2");

        assert!(!format!("{builder:?}").contains("k-"));
        assert!(!format!("{:?}", builder.build()).contains("k-"));
    }

    #[test]
    #[should_panic(expected = "the rule of segment \"seg_1\" is invalid: `match_` is missing")]
    fn an_invalid_segment_rule_panics_with_the_reason() {
        let rule = serde_json::json!({ "conditions": [] });

        MockService::new().segment("seg_1", SegmentKind::Rule(rule));
    }
}
