use std::fmt;
use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::sync::oneshot;

use super::builder::MockServerBuilder;
use super::clock::Clock;
use super::delivery::Attempt;
use super::delivery::event::NewEvent;
use super::delivery::post::Target;
use super::faults::Fault;
use super::journal::RecordedRequest;
use super::service::contact::StoredContact;
use super::service::segment::SegmentKind;
use super::state::{Passage, Shared};
use crate::Timestamp;

/// A server that answers as the service does, until it is dropped.
///
/// Every method can be called from any thread, inside or outside of a runtime.
pub struct MockServer {
    pub(super) url: String,
    pub(super) full_key: String,
    pub(super) sending_key: String,
    /// Where the key is expected, if not as a bearer token.
    #[cfg_attr(
        not(feature = "client"),
        expect(dead_code, reason = "only a client asks")
    )]
    pub(super) auth_header: Option<String>,
    pub(super) shared: Arc<Shared>,
    /// Dropped with the server, which is the signal to stop.
    pub(super) _stop: oneshot::Sender<()>,
}

impl MockServer {
    /// Starts a server on a free port of the loopback address, its clock running.
    ///
    /// # Panics
    ///
    /// Where the system grants no port or no thread.
    #[must_use = "the server stops when it is dropped"]
    pub async fn start() -> Self {
        Self::builder().start().await
    }

    /// A server with a clock, a ceiling, keys or a port of the test's choosing.
    pub fn builder() -> MockServerBuilder {
        MockServerBuilder::new()
    }

    /// The base address, such as `http://127.0.0.1:4010`, without a slash at the end.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The key that may do everything.
    #[must_use]
    pub fn full_key(&self) -> &str {
        &self.full_key
    }

    /// The key that may send mail only.
    #[must_use]
    pub fn sending_key(&self) -> &str {
        &self.sending_key
    }

    /// A client of this server with the full-access key, which it presents as the server expects it.
    ///
    /// Each call builds a new one, with connections of its own.
    ///
    /// # Panics
    ///
    /// Where no client can be built, for one because the key cannot stand in a header.
    #[cfg(feature = "client")]
    #[cfg_attr(docsrs, doc(cfg(feature = "client")))]
    #[must_use]
    #[track_caller]
    pub fn client(&self) -> crate::Client {
        // The host is one that the test chose, loopback or not.
        let mut builder = crate::Client::builder(&self.url, &self.full_key).allow_http();
        if let Some(name) = &self.auth_header {
            builder = builder.auth(crate::Auth::header(name));
        }
        match builder.build() {
            Ok(client) => client,
            Err(error) => panic!("no client of the mock server can be built: {error}"),
        }
    }

    /// Adds a topic, or changes the answer of those who never gave one.
    pub fn topic(&self, name: impl AsRef<str>, default: bool) {
        self.shared
            .lock()
            .audience
            .put_topic(name.as_ref(), default);
    }

    /// Adds a segment, or replaces the one of this id.
    ///
    /// # Panics
    ///
    /// Where a rule is none (interface section 2.8); the message says why.
    #[track_caller]
    pub fn segment(&self, id: impl AsRef<str>, kind: SegmentKind) {
        let id = id.as_ref();
        // The lock is given back before anything can panic.
        let made = self.shared.lock().audience.put_segment(id, kind);
        if let Err(problem) = made {
            panic!("the segment {id:?} cannot be made: {problem}");
        }
    }

    /// A mailbox provider's spam report: the state that no caller can bring about or undo (interface section 3.1).
    ///
    /// The address is suppressed also where it is no contact.
    ///
    /// Sends an `email.complained` about the latest mail to the address to every endpoint. The first attempts are started
    /// but not awaited.
    pub fn report_spam(&self, address: impl AsRef<str>) {
        self.shared.report_spam(address.as_ref());
    }

    /// Notes that the contact did `what` at `when`, for rules on engagement (interface section 2.8).
    ///
    /// # Panics
    ///
    /// Where `what` is none of `delivered`, `bounced`, `complained`, `opened`, `clicked`.
    #[track_caller]
    pub fn engage(
        &self,
        address: impl AsRef<str>,
        what: impl AsRef<str>,
        when: impl Into<Timestamp>,
    ) {
        let (address, what) = (address.as_ref(), what.as_ref());
        let engaged =
            self.shared
                .lock()
                .audience
                .record_engagement(address, what, when.into().as_unix());
        if let Err(problem) = engaged {
            panic!("the engagement cannot be noted: {problem}");
        }
    }

    /// Changes how many contacts can be stored; `None` for no limit.
    pub fn set_ceiling(&self, contacts: Option<u64>) {
        self.shared.lock().audience.set_ceiling(contacts);
    }

    /// A contact as the service holds it, or `None` where there is none of this address.
    #[must_use]
    pub fn contact(&self, address: impl AsRef<str>) -> Option<StoredContact> {
        self.shared.lock().audience.contact(address.as_ref())
    }

    /// The number of contacts that are stored.
    #[must_use]
    pub fn contacts(&self) -> usize {
        self.shared.lock().audience.contact_count()
    }

    /// The newest 1,000 requests, in the order they were answered. Those to `/_mock/…` are not among them.
    #[must_use]
    pub fn requests(&self) -> Vec<RecordedRequest> {
        self.shared.lock().journal.entries()
    }

    /// Forgets the requests so far.
    pub fn clear_requests(&self) {
        self.shared.lock().journal.clear();
    }

    /// Lets something go wrong.
    pub fn fault(&self, fault: Fault) {
        self.shared.lock().faults.add(fault);
    }

    /// Lets nothing go wrong any more.
    pub fn clear_faults(&self) {
        self.shared.lock().faults.clear();
    }

    /// The server's current time.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.shared.clock.now()
    }

    /// The server's clock, for whatever is to live in the same time.
    #[must_use]
    pub fn clock(&self) -> Clock {
        self.shared.clock.clone()
    }

    /// Lets time pass: whole seconds, a fraction is cut off.
    ///
    /// Deliveries that fall due on the way are attempted in order, each with the clock at its due time. That begins at
    /// once; await the result to wait until it is over. Where nothing falls due, the clock has moved when this returns.
    ///
    /// # Example: two minutes at once
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use audience::mock::MockServer;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let server = MockServer::builder().clock(1_700_000_000).start().await;
    ///
    /// server.advance(Duration::from_secs(120));
    ///
    /// assert_eq!(server.now().as_unix(), 1_700_000_120);
    /// # }
    /// ```
    #[expect(
        clippy::must_use_candidate,
        reason = "time passes whether or not it is awaited"
    )]
    pub fn advance(&self, by: Duration) -> Advance {
        self.underway(self.shared.advance(by))
    }

    /// Sets the clock. Forward, time passes as with [`advance`](Self::advance); backward, nothing happens on the way.
    pub fn set_clock(&self, to: impl Into<Timestamp>) -> Advance {
        self.underway(self.shared.set_clock(to.into().as_unix()))
    }

    fn underway(&self, passage: Passage) -> Advance {
        Advance {
            shared: Arc::clone(&self.shared),
            passage,
        }
    }

    /// Back to how the server was started: what the builder was given stays, everything else goes, faults, requests,
    /// attempts and deliveries too, those under way included. A clock that stands still is back at its start. Only the
    /// numbers of events go on: no id is used twice, so that a receiver never takes a new event for one it has seen.
    pub fn reset(&self) {
        self.shared.reset();
    }

    /// Delivers events to this URL from now on, signed with this secret. Given again, the secret is replaced.
    ///
    /// # Panics
    ///
    /// Where `url` is not `http://…`, or the secret is one that cannot be meant (see
    /// [`Signer::new`](crate::webhooks::Signer::new)).
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
    /// The event is an object with a `type`, any, and `data`. Of a type that the document knows, members that are left
    /// out of `data` are filled in; what is given passes as it is. `id` and `created_at` may be given too. An event about
    /// a contact's mail is engagement of the contact (interface section 2.8), at its `created_at`.
    ///
    /// # Panics
    ///
    /// Where `event` is no such object.
    pub async fn send_event(&self, event: Value) -> String {
        match NewEvent::parse(event) {
            Ok(event) => self.shared.send_event(event).await,
            Err(problem) => panic!("{problem}"),
        }
    }

    /// Sends an event to every endpoint once more, whatever was answered before, and waits for the attempts.
    ///
    /// # Panics
    ///
    /// Where no event has this id; the newest 1,000 are kept.
    pub async fn redeliver(&self, event_id: impl AsRef<str>) {
        let id = event_id.as_ref();
        assert!(self.shared.redeliver(id).await, "there is no event {id:?}");
    }

    /// The attempt log: the newest 10,000 attempts that are over, in the order they were started.
    #[must_use]
    pub fn attempts(&self) -> Vec<Attempt> {
        self.shared.lock().deliveries.attempts()
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

/// Time that passes; see [`MockServer::advance`].
///
/// It passes whether or not this is awaited. Awaited, it is over: the clock is where it was to go, and all that fell due
/// on the way has been attempted.
pub struct Advance {
    shared: Arc<Shared>,
    passage: Passage,
}

impl IntoFuture for Advance {
    type Output = ();
    type IntoFuture = Pin<Box<dyn Future<Output = ()> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move { self.shared.arrived(self.passage).await })
    }
}

impl fmt::Debug for Advance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.passage.fmt(f)
    }
}
