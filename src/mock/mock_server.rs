//! The server as a test sees it: all methods of [`MockServer`].

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::sync::oneshot;

use super::builder::MockServerBuilder;
use super::clock::MockClock;
use super::delivery::{DeliveryAttempt, DeliveryFault, NewEvent, SigningClock, Target};
use super::faults::Fault;
use super::recorded_request::RecordedRequest;
use super::service::engagement::EngagementKind;
use super::service::inbound_mail::InboundMailSeed;
use super::service::mail_outcome::MailOutcome;
use super::service::seed::Seed;
use super::service::seed_contact::SeedContact;
use super::service::seed_contact::StoredContact;
use super::service::segment::SegmentKind;
use super::service::sent_mail::SentMail;
use super::shared::{ClockMove, Shared};
use crate::Timestamp;
#[cfg(feature = "client")]
use crate::{Auth, Client, ClientBuilder};

/// A server that behaves like the service. It stops when it is dropped.
///
/// Every method can be called from any thread, inside or outside of a runtime.
pub struct MockServer {
    pub(super) url: String,
    pub(super) full_key: String,
    pub(super) sending_key: String,
    /// The header that holds the bare key. `None` means a bearer token.
    #[cfg_attr(
        not(feature = "client"),
        expect(dead_code, reason = "only `client_builder` reads it")
    )]
    pub(super) auth_header: Option<String>,
    pub(super) shared: Arc<Shared>,
    /// Dropping it tells the server's thread to stop.
    pub(super) _stop: oneshot::Sender<()>,
}

impl MockServer {
    /// Starts a server with the default configuration: a free port on 127.0.0.1 and a running clock.
    ///
    /// # Panics
    ///
    /// Panics if the system has no free port or cannot create a thread.
    ///
    /// # Example: a server for one test
    ///
    /// ```
    /// # use audience::mock::MockServer;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let server = MockServer::start().await;
    ///
    /// assert!(server.url().starts_with("http://127.0.0.1:"));
    /// # }
    /// ```
    #[must_use = "the server stops when it is dropped"]
    pub async fn start() -> Self {
        Self::builder().start().await
    }

    /// Returns a builder for a server with another configuration.
    ///
    /// # Example: a stopped clock
    ///
    /// ```
    /// # use audience::mock::MockServer;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let server = MockServer::builder().clock(1_700_000_000).start().await;
    ///
    /// assert_eq!(server.now().as_unix(), 1_700_000_000);
    /// # }
    /// ```
    pub fn builder() -> MockServerBuilder {
        MockServerBuilder::new()
    }

    /// Returns the base URL, such as `http://127.0.0.1:4010`, without a trailing slash.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Returns the full-access key, which may call every endpoint.
    #[must_use]
    pub fn full_key(&self) -> &str {
        &self.full_key
    }

    /// Returns the sending-access key, which may only send mail (interface section 5).
    #[must_use]
    pub fn sending_key(&self) -> &str {
        &self.sending_key
    }

    /// Adds a topic, or changes the default answer of an existing topic (interface section 2.6).
    ///
    /// The default answer is that of a contact who has not given one.
    ///
    /// # Example: a topic that everyone gets unless they opt out
    ///
    /// ```
    /// # use audience::mock::MockServer;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let server = MockServer::start().await;
    /// server.topic("news", true);
    /// # }
    /// ```
    pub fn topic(&self, name: impl AsRef<str>, default: bool) {
        self.shared
            .with_audience(|audience| audience.put_topic(name.as_ref(), default));
    }

    /// Adds a segment, or replaces the segment with this id (interface section 2.7).
    ///
    /// # Panics
    ///
    /// Panics if the rule is invalid (interface section 2.8). The message has the reason.
    ///
    /// # Example: a stored list and a stored rule
    ///
    /// ```
    /// use audience::mock::SegmentKind;
    ///
    /// # use audience::mock::MockServer;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let server = MockServer::start().await;
    /// server.segment("seg_1", SegmentKind::Contacts(vec!["ada@example.com".into()]));
    /// server.segment("seg_2", SegmentKind::Rule(serde_json::json!({
    ///     "match_": "all",
    ///     "conditions": [{"field": "property", "key": "plan", "op": "is", "value": "pro"}],
    /// })));
    /// # }
    /// ```
    #[track_caller]
    pub fn segment(&self, id: impl AsRef<str>, kind: SegmentKind) {
        let id = id.as_ref();
        if let Err(problem) = self
            .shared
            .with_audience(|audience| audience.put_segment(id, kind))
        {
            panic!("the rule of segment {id:?} is invalid: {problem}");
        }
    }

    /// Stores a contact in any state, or replaces the one with its address, and returns it.
    ///
    /// Its place in the list follows from its creation time (interface section 4.4). A contact that is replaced
    /// keeps its id; everything else is replaced, its engagement and its place on the suppression list too. Seeding
    /// causes no event, and it may exceed the ceiling, which limits the writes of callers.
    ///
    /// # Panics
    ///
    /// Panics if the address is invalid, a property has a value that the [`Dialect`](crate::mock::Dialect) does not
    /// allow, a topic or an engagement is unknown, or the consent is in a state that does not exist (interface
    /// section 3.1). The message has the reason.
    ///
    /// # Example: a contact who reported spam
    ///
    /// ```
    /// use audience::mock::{Reason, SeedContact};
    ///
    /// # use audience::mock::MockServer;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let server = MockServer::start().await;
    /// let ada = server.seed_contact(SeedContact::new("Ada@example.com").unsubscribed(Reason::Complaint));
    ///
    /// assert_eq!(ada.email, "ada@example.com");
    /// assert!(ada.suppressed);
    /// # }
    /// ```
    #[track_caller]
    pub fn seed_contact(&self, contact: impl Into<SeedContact>) -> StoredContact {
        let (contact, now) = (contact.into(), self.now().as_unix());
        match self
            .shared
            .with_audience(|audience| audience.put_contact(contact, now))
        {
            Ok(stored) => stored,
            Err(problem) => panic!("the seeded contact is invalid: {problem}"),
        }
    }

    /// Applies a [seed](crate::mock#seeds): topics, segments, contacts and more, as JSON.
    ///
    /// What the seed does not name stays as it is. Contacts are stored as by [`seed_contact`](Self::seed_contact). A
    /// `clock` begins to move the clock at once, without being awaited.
    ///
    /// # Panics
    ///
    /// Panics if the seed is invalid, and changes nothing then. The message has the reason.
    ///
    /// # Example: a topic and a contact
    ///
    /// ```
    /// # use audience::mock::MockServer;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let server = MockServer::start().await;
    /// server.seed(serde_json::json!({
    ///     "topics": {"news": true},
    ///     "contacts": [{"email": "ada@example.com", "answers": {"news": false}}],
    /// }));
    ///
    /// assert_eq!(server.contact_count(), 1);
    /// # }
    /// ```
    #[expect(
        clippy::needless_pass_by_value,
        reason = "callers write the JSON in place"
    )]
    #[track_caller]
    pub fn seed(&self, seed: Value) {
        let seeded = Seed::from_value(&seed).and_then(|seed| self.shared.seed(seed).map(drop));
        if let Err(problem) = seeded {
            panic!("the seed is invalid: {problem}");
        }
    }

    /// Records a spam report from a mailbox provider (interface sections 3.1 and 3.2).
    ///
    /// It unsubscribes the contact for the reason `complaint`, which no request can undo, counts as engagement, and
    /// suppresses the address. The address is suppressed even if it is not a contact.
    /// Every endpoint gets an `email.complained` event about the latest mail to the address; this method does not wait
    /// for the delivery.
    ///
    /// # Example: a refused mail
    ///
    /// ```
    /// # use audience::mock::MockServer;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let server = MockServer::start().await;
    /// server.report_spam("ada@example.com");
    /// // From now on `POST /emails` to this address causes an `email.refused` event.
    /// # }
    /// ```
    pub fn report_spam(&self, address: impl AsRef<str>) {
        let now = self.now().as_unix();
        self.shared
            .with_audience(|audience| audience.report_spam(address.as_ref(), now));
    }

    /// Records what happened to mail at an address, for the engagement rules (interface section 2.8).
    ///
    /// # Example: an opened mail
    ///
    /// ```
    /// # use audience::mock::{EngagementKind, MockServer};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let server = MockServer::start().await;
    /// server.record_engagement("ada@example.com", EngagementKind::Opened, 1_700_000_000);
    /// # }
    /// ```
    pub fn record_engagement(
        &self,
        address: impl AsRef<str>,
        what: EngagementKind,
        at: impl Into<Timestamp>,
    ) {
        let (address, at) = (address.as_ref(), at.into().as_unix());
        self.shared
            .with_audience(|audience| audience.record_engagement(address, what, at));
    }

    /// Returns the newest 10,000 mails that `POST /emails` accepted, in the order they were sent.
    ///
    /// Fewer are kept if they take up more than 64 MiB of memory.
    ///
    /// # Example: the mail that a program under test sends
    ///
    /// ```
    /// # use audience::mock::MockServer;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let server = MockServer::start().await;
    /// // … the program under test sends mail, then:
    /// let subjects: Vec<String> = server.sent_mail().into_iter().map(|mail| mail.subject).collect();
    /// # assert!(subjects.is_empty());
    /// # }
    /// ```
    #[must_use]
    pub fn sent_mail(&self) -> Vec<SentMail> {
        self.shared.with_audience(|audience| audience.sent_mail())
    }

    /// Returns a contact as the service has stored it, or `None` if no contact has this address.
    ///
    /// # Example: an address that is not a contact
    ///
    /// ```
    /// # use audience::mock::MockServer;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let server = MockServer::start().await;
    /// assert!(server.contact("ada@example.com").is_none());
    /// # }
    /// ```
    #[must_use]
    pub fn contact(&self, address: impl AsRef<str>) -> Option<StoredContact> {
        self.shared
            .with_audience(|audience| audience.contact(address.as_ref()))
    }

    /// Returns all contacts as the service has stored them, newest first, as in the list (interface section 4.4).
    ///
    /// # Example: the addresses in the order of the list
    ///
    /// ```
    /// # use audience::mock::MockServer;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let server = MockServer::start().await;
    /// server.seed_contact("ada@example.com");
    /// server.seed_contact("bob@example.com");
    ///
    /// let addresses: Vec<String> = server.contacts().into_iter().map(|contact| contact.email).collect();
    ///
    /// assert_eq!(addresses, ["bob@example.com", "ada@example.com"]);
    /// # }
    /// ```
    #[must_use]
    pub fn contacts(&self) -> Vec<StoredContact> {
        self.shared
            .with_audience(|audience| audience.contacts(None, usize::MAX))
            .unwrap_or_default()
    }

    /// Returns the number of stored contacts.
    #[must_use]
    pub fn contact_count(&self) -> usize {
        self.shared
            .with_audience(|audience| audience.contact_count())
    }

    /// Changes how many contacts can be stored (interface section 8). `None` means no limit.
    ///
    /// Contacts above a lowered ceiling stay.
    pub fn set_ceiling(&self, contacts: Option<u64>) {
        self.shared
            .with_audience(|audience| audience.set_ceiling(contacts));
    }

    /// Returns the newest 1,000 requests, in the order they were handled, without those to `/_mock/…`.
    ///
    /// Fewer are kept if they take up more than 64 MiB of memory. Requests that cannot be parsed as HTTP are not
    /// recorded.
    ///
    /// # Example: the requests of a program under test
    ///
    /// ```
    /// # use audience::mock::MockServer;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> std::io::Result<()> {
    /// # use std::io::{Read, Write};
    /// # let server = MockServer::start().await;
    /// # let mut connection = std::net::TcpStream::connect(server.url().trim_start_matches("http://"))?;
    /// # write!(connection, "GET /contacts?limit=2 HTTP/1.1\r\nhost: mock\r\nconnection: close\r\n\r\n")?;
    /// # connection.read_to_end(&mut Vec::new())?;
    /// let requests = server.requests();
    ///
    /// assert_eq!(requests.len(), 1);
    /// assert_eq!(requests[0].path, "/contacts");
    /// assert_eq!(requests[0].query.as_deref(), Some("limit=2"));
    /// assert_eq!(requests[0].status, Some(401));
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn requests(&self) -> Vec<RecordedRequest> {
        self.shared.lock().journal.entries()
    }

    /// Forgets the recorded requests.
    pub fn clear_requests(&self) {
        self.shared.lock().journal.clear();
    }

    /// Adds a fault.
    ///
    /// # Panics
    ///
    /// Panics if the fault was read from JSON and is not one that the constructors of [`Fault`] make.
    ///
    /// # Example: a slow response, then an outage
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use audience::mock::{Fault, MockServer};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// # let server = MockServer::start().await;
    /// server.fault(Fault::delay(Duration::from_secs(2)).times(1));
    /// server.fault(Fault::status(503).retry_after(1).path("/contacts*"));
    /// # }
    /// ```
    #[track_caller]
    pub fn fault(&self, fault: Fault) {
        fault.check().unwrap_or_else(|problem| panic!("{problem}"));
        self.shared.lock().faults.add(fault);
    }

    /// Removes all faults.
    pub fn clear_faults(&self) {
        self.shared.lock().faults.clear();
    }

    /// Applies an outcome to a sent mail: delivers the event about it to every endpoint, waits for the first attempt at
    /// each, and returns the event's id.
    ///
    /// The event has the id, the sender and the subject of the mail. It counts as engagement, and a complaint has the
    /// effects of a spam report (interface sections 2.8 and 3.2).
    ///
    /// # Panics
    ///
    /// Panics if the mail is unknown, if it has several recipients and the outcome names none, if the address is not a
    /// recipient, or if the outcome is not possible, such as an open of a mail that bounced. The message has the
    /// reason, and the outcomes that are possible.
    ///
    /// # Example: a mail bounces after it was delivered
    ///
    /// ```
    /// # use audience::mock::{MailOutcome, MockServer};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), audience::Error> {
    /// let server = MockServer::start().await;
    /// let mail = serde_json::json!({"from": "me@example.com", "to": "ada@example.com", "subject": "Hi"});
    /// server.client().request(http::Method::POST, ["emails"]).json(&mail)?.await?;
    ///
    /// let sent = server.sent_mail().remove(0);
    /// server.mail_outcome(&sent.id, MailOutcome::bounced().bounce_type("Transient")).await;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn mail_outcome(&self, email_id: impl AsRef<str>, outcome: MailOutcome) -> String {
        let id = email_id.as_ref();
        let published = self
            .shared
            .publish(|audience, now| audience.mail_outcome(id, &outcome, now))
            .await;
        published.unwrap_or_else(|refusal| panic!("{}", refusal.message))
    }

    /// Receives a mail: delivers an `email.received` event to every endpoint, waits for the first attempt at each, and
    /// returns the event's id (interface section 6.4).
    ///
    /// # Panics
    ///
    /// Panics if the mail replies to one that was not sent.
    ///
    /// # Example: a mail from a customer
    ///
    /// ```
    /// # use audience::mock::{InboundMailSeed, MockServer};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// # let server = MockServer::start().await;
    /// server.receive_mail(InboundMailSeed::new("ada@example.com").subject("A question")).await;
    /// # }
    /// ```
    pub async fn receive_mail(&self, mail: InboundMailSeed) -> String {
        let published = self
            .shared
            .publish(|audience, now| audience.receive_mail(mail, now))
            .await;
        published.unwrap_or_else(|refusal| panic!("{}", refusal.message))
    }

    /// Adds a webhook endpoint: the URL that events are delivered to, and the secret they are signed with.
    ///
    /// If the URL already is an endpoint, its secret is replaced.
    ///
    /// # Panics
    ///
    /// Panics if `url` is not a valid `http://…` URL, or if [`Signer::new`](crate::webhooks::Signer::new) refuses the
    /// secret.
    ///
    /// # Example: deliver to a program under test
    ///
    /// ```
    /// # use audience::mock::MockServer;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// # let server = MockServer::start().await;
    /// server.webhook_endpoint("http://127.0.0.1:8080/hook", "a-secret-of-the-test");
    /// # }
    /// ```
    #[track_caller]
    pub fn webhook_endpoint(&self, url: impl AsRef<str>, secret: impl AsRef<str>) {
        let url = url.as_ref();
        match Target::new(url, secret.as_ref()) {
            Ok(target) => self.shared.lock().deliveries.put_endpoint(url, target),
            Err(problem) => panic!("{problem}"),
        }
    }

    /// Sends an event to every endpoint, waits for the first attempt at each, and returns the event's id.
    ///
    /// The event is an object with a `type`, which can be any text, and optionally `data`, `id` and `created_at`. If
    /// the interface document has the type, members missing from `data` are filled in. Other members are sent
    /// unchanged. An event about a contact's mail counts as engagement at its `created_at` (interface section 2.8).
    ///
    /// # Panics
    ///
    /// Panics if `event` is not an object of this form.
    ///
    /// # Example: a bounced mail
    ///
    /// ```
    /// # use audience::mock::MockServer;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// # let server = MockServer::start().await;
    /// let event = serde_json::json!({"type": "email.bounced", "data": {"to": "ada@example.com"}});
    ///
    /// let id = server.send_event(event).await;
    ///
    /// assert_eq!(id, "evt_1");
    /// # }
    /// ```
    pub async fn send_event(&self, event: Value) -> String {
        match NewEvent::parse(event) {
            Ok(event) => self.shared.send_event(event).await,
            Err(problem) => panic!("{problem}"),
        }
    }

    /// Sends an event to every endpoint again, even if it was delivered, and waits for the attempts.
    ///
    /// A redelivery that fails is not retried.
    ///
    /// # Panics
    ///
    /// Panics if no event has this id. The newest 1,000 events are kept, or fewer if they take up more
    /// than 64 MiB.
    ///
    /// # Example: a repeated delivery
    ///
    /// ```
    /// # use audience::mock::MockServer;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// # let server = MockServer::start().await;
    /// let id = server.send_event(serde_json::json!({"type": "email.opened"})).await;
    ///
    /// server.redeliver(&id).await;
    /// # }
    /// ```
    pub async fn redeliver(&self, event_id: impl AsRef<str>) {
        let id = event_id.as_ref();
        assert!(self.shared.redeliver(id).await, "there is no event {id:?}");
    }

    /// Returns the newest 10,000 finished delivery attempts, in the order they were started.
    ///
    /// # Example: a failed attempt
    ///
    /// ```
    /// # use audience::mock::MockServer;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// # let server = MockServer::start().await;
    /// # let failing_url = format!("{}/nothing-here", server.url());
    /// server.webhook_endpoint(&failing_url, "a-secret-of-the-test");
    /// server.send_event(serde_json::json!({"type": "email.opened"})).await;
    ///
    /// let attempts = server.attempts();
    ///
    /// assert!(!attempts[0].is_success());
    /// assert!(attempts[0].next_at.is_some());
    /// # }
    /// ```
    #[must_use]
    pub fn attempts(&self) -> Vec<DeliveryAttempt> {
        self.shared.lock().deliveries.attempts()
    }

    /// Adds a fault for the next webhook deliveries that match.
    ///
    /// # Panics
    ///
    /// Panics if the fault was read from JSON and has a `header` without the kind `missing_header`.
    ///
    /// # Example: the next event is delivered twice
    ///
    /// ```
    /// # use audience::mock::{DeliveryFault, MockServer};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// # let server = MockServer::start().await;
    /// server.delivery_fault(DeliveryFault::duplicate());
    /// # }
    /// ```
    #[track_caller]
    pub fn delivery_fault(&self, fault: DeliveryFault) {
        fault.check().unwrap_or_else(|problem| panic!("{problem}"));
        self.shared.lock().deliveries.add_fault(fault);
    }

    /// Removes all delivery faults. An event that is held back is still delivered late.
    pub fn clear_delivery_faults(&self) {
        self.shared.lock().deliveries.clear_faults();
    }

    /// Sets the clock that deliveries are signed by from now on.
    ///
    /// # Example: five hours of retries for a receiver in another process
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use audience::mock::{MockServer, SigningClock};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// # let server = MockServer::start().await;
    /// server.set_signing_clock(SigningClock::Wall);
    ///
    /// server.advance(Duration::from_secs(5 * 3_600)).await;
    /// # }
    /// ```
    pub fn set_signing_clock(&self, clock: SigningClock) {
        self.shared.lock().deliveries.set_signing_clock(clock);
    }

    /// Returns the server's current time.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.shared.clock.now()
    }

    /// Returns a handle to the server's clock, for a receiver that checks the age of deliveries.
    #[must_use]
    pub fn clock(&self) -> MockClock {
        self.shared.clock.clone()
    }

    /// Moves the clock forward by whole seconds. A fraction of a second is dropped.
    ///
    /// Deliveries that become due on the way are attempted in order, each while the clock shows its due time. This
    /// begins at once, without being awaited. Await the result to wait until the move is complete. If nothing is due on
    /// the way, the move is complete when this method returns.
    ///
    /// # Example: two minutes pass at once
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use audience::mock::MockServer;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let server = MockServer::builder().clock(1_700_000_000).start().await;
    ///
    /// server.advance(Duration::from_secs(120)).await;
    ///
    /// assert_eq!(server.now().as_unix(), 1_700_000_120);
    /// # }
    /// ```
    #[expect(
        clippy::must_use_candidate,
        reason = "the clock moves whether or not the result is awaited"
    )]
    pub fn advance(&self, by: Duration) -> ClockMove {
        ClockMove::new(&self.shared, self.shared.advance_clock(by))
    }

    /// Sets the clock.
    ///
    /// Moving it forward is like [`advance`](Self::advance). Moving it backward attempts nothing on the way and cancels
    /// earlier moves. Attempts that were due and have not been started are made when the clock gets there again; nothing
    /// waits for them until then.
    ///
    /// # Example: a date in the past
    ///
    /// ```
    /// # use audience::mock::MockServer;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// # let server = MockServer::start().await;
    /// server.set_clock(1_600_000_000).await;
    /// # }
    /// ```
    pub fn set_clock(&self, to: impl Into<Timestamp>) -> ClockMove {
        ClockMove::new(&self.shared, self.shared.set_clock(to.into().as_unix()))
    }

    /// Goes back to the state the server was started with.
    ///
    /// The builder's configuration is kept, and its seeds are restored. Everything else is removed: contacts, sent mail,
    /// faults, requests, attempts, and pending and running deliveries. The clock goes back to its start. Only the numbers of events continue: an id is
    /// never used twice, so that a receiver does not mistake a new event for one it has seen.
    ///
    /// # Example: one server for several cases
    ///
    /// ```
    /// # use audience::mock::MockServer;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// # let server = MockServer::start().await;
    /// for ceiling in [0, 10] {
    ///     server.reset();
    ///     server.set_ceiling(Some(ceiling));
    /// }
    /// # }
    /// ```
    pub fn reset(&self) {
        self.shared.reset();
    }
}

impl Drop for MockServer {
    fn drop(&mut self) {
        self.shared.close();
    }
}

impl fmt::Debug for MockServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MockServer")
            .field("url", &self.url)
            .finish_non_exhaustive()
    }
}

/// The client of this crate for a mock server. Nothing else in the mock uses the client.
#[cfg(feature = "client")]
impl MockServer {
    /// Creates a client for this server, with the full-access key.
    ///
    /// Each call creates a new client with its own connections. [`client_builder`](Self::client_builder) creates one with
    /// other settings.
    ///
    /// # Panics
    ///
    /// Panics if the client cannot be built, for example because the key is not a valid header value.
    ///
    /// # Example: create a contact
    ///
    /// ```
    /// # use audience::{contacts::NewContact, mock::MockServer};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), audience::Error> {
    /// # let server = MockServer::start().await;
    /// let contacts = server.client().contacts();
    ///
    /// contacts.create(NewContact::new("ada@example.com")).await?;
    ///
    /// assert_eq!(server.contact_count(), 1);
    /// # Ok(())
    /// # }
    /// ```
    #[cfg_attr(docsrs, doc(cfg(feature = "client")))]
    #[must_use]
    #[track_caller]
    pub fn client(&self) -> Client {
        match self.client_builder().build() {
            Ok(client) => client,
            Err(error) => panic!("could not build a client for the mock server: {error}"),
        }
    }

    /// Returns a builder for a client of this server: its URL, its full-access key and the header of the key are set.
    ///
    /// Change what a test needs, such as timeouts and retries.
    ///
    /// # Example: a client that gives up soon
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use audience::{RetryPolicy, mock::{Fault, MockServer}};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), audience::Error> {
    /// # let server = MockServer::start().await;
    /// let client = server
    ///     .client_builder()
    ///     .timeout(Duration::from_millis(200))
    ///     .retry(RetryPolicy::none())
    ///     .build()?;
    ///
    /// server.fault(Fault::delay(Duration::from_secs(2)));
    /// let error = client.contacts().retrieve("ada@example.com").await.unwrap_err();
    ///
    /// assert!(error.is_timeout());
    /// # Ok(())
    /// # }
    /// ```
    #[cfg_attr(docsrs, doc(cfg(feature = "client")))]
    pub fn client_builder(&self) -> ClientBuilder {
        // The test chose the host, which need not be a loopback address.
        let builder = Client::builder(&self.url, &self.full_key).allow_http();
        match &self.auth_header {
            Some(name) => builder.auth(Auth::header(name)),
            None => builder,
        }
    }
}
