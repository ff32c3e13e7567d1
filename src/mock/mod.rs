//! The service as a server for your tests.
//!
//! A [`MockServer`] listens on its own port, has every endpoint of the interface document, and delivers signed
//! webhooks. It is also the fake for your unit tests, so you need no trait over the client. Each test starts one, in less
//! than a millisecond, and passes its client or its URL to the code under test:
//!
//! ```
//! # #[cfg(feature = "client")]
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), audience::Error> {
//! use audience::contacts::NewContact;
//! use audience::mock::MockServer;
//!
//! let server = MockServer::start().await;
//! let contacts = server.client().contacts();
//!
//! contacts.create(NewContact::new("Ada@example.com").first_name("Ada")).await?;
//!
//! let stored = server.contact("ada@example.com").expect("the contact was created");
//! assert_eq!(stored.first_name.as_deref(), Some("Ada"));
//! assert_eq!(server.requests()[0].path, "/contacts");
//! # Ok(())
//! # }
//! # #[cfg(not(feature = "client"))] fn main() {}
//! ```
//!
//! | a test needs | use |
//! |---|---|
//! | contacts, topics and segments to start with | [`MockServer::seed_contact`], or a [seed](#seeds) |
//! | other keys, a contact ceiling, a fixed port | [`MockServer::builder`] |
//! | a client with other timeouts or retries | [`MockServer::client_builder`] |
//! | requests that fail, or responses that are late or broken | [`MockServer::fault`]; [Testing your application] has a line for each failure |
//! | the requests, the contacts and the mail that the code under test left behind | [`MockServer::requests`], [`MockServer::contact`], [`MockServer::sent_mail`] |
//! | five hours of retries in a second | [`MockServer::advance`]: see [Time](#time) |
//! | events for a webhook receiver | [`MockServer::send_event`]: see [Webhooks](#webhooks) |
//! | mail that bounces or is opened | an [address](#mail), or [`MockServer::mail_outcome`] |
//! | the form of a page of yours, filled in and sent as by a browser | [`HtmlForm`] |
//! | the mistakes of a webhook receiver | [`examine`](examine()) |
//! | a service that reads the interface document in another way | [`Dialect::all`] |
//! | the service inside a `wiremock` server | [`MockService`] |
//! | the same server for Python, JavaScript or a shell | [the program `audience-mock`](#for-other-languages) |
//!
//! The mock is strict: it refuses a request that the document does not allow, and the error message says why. If the
//! document leaves a choice, the mock makes one; a [`Dialect`] selects another. Without the feature `client`, send
//! requests to [`MockServer::url`] with the key [`MockServer::full_key`].
//!
//! # Time
//!
//! One clock drives everything: `created_at`, rules with days, deliveries and their retries. By default it shows the
//! system's time. [`MockServerBuilder::clock`] stops it at a time of your choice. Either way, [`MockServer::advance`]
//! moves it ahead by hours: everything that becomes due happens in order, each at its due time.
//!
//! # Seeds
//!
//! A test can start with contacts in any state of [interface section 3.1](crate::interface#3.1), without the requests
//! that lead there. [`MockServer::seed_contact`] stores one [`SeedContact`]. A seed can contain contacts, topics,
//! segments, webhook endpoints, the clock, the ceiling, the keys and the dialect. Pass it to
//! [`MockServerBuilder::seed_file`] as a file, or to [`MockServer::seed`] as JSON:
//!
//! ```
//! # use audience::mock::MockServer;
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() {
//! let server = MockServer::builder()
//!     .seed(serde_json::json!({
//!         "topics": {"news": true},
//!         "contacts": [{"email": "ada@example.com", "answers": {"news": false}}],
//!     }))
//!     .start()
//!     .await;
//!
//! assert_eq!(server.contact_count(), 1);
//! # }
//! ```
//!
//! A seed applies as a whole or, if a part is invalid, not at all. [`MockServer::reset`] restores the builder's seeds.
//! The guide `docs/mock-over-http.md` describes every member.
//!
//! # Webhooks
//!
//! Every [`webhook_endpoint`](MockServer::webhook_endpoint) receives all events: the events of `POST /emails`,
//! [`MockServer::send_event`], [`MockServer::mail_outcome`] and [`MockServer::receive_mail`]. A receiver has 10 seconds
//! of real time to send a complete 2xx response. Anything else, including a redirect, is a failed attempt. The next
//! attempt follows after 35 seconds, and each gap is twice the previous one: ten attempts in 4 h 58 min. All attempts
//! carry the same bytes; each is signed anew.
//!
//! [`MockServer::delivery_fault`] adds a [`DeliveryFault`] for the next deliveries: a duplicate, or a delivery that is
//! late, out of order or forged. [`MockServerBuilder::signing_clock`] signs with the system's clock, for a receiver in
//! another process.
//!
//! With a stopped clock, an endpoint receives one event at a time, in the same order on every run. With a running
//! clock, it receives up to 16 simultaneously, and all endpoints together up to 64.
//!
//! # Mail
//!
//! `POST /emails` takes `from`, `to` (an address or several), `subject` and anything else.
//! [`MockServer::sent_mail`] returns the mail that was sent. For each recipient, the mock publishes events about the
//! mail. The part before the `@` decides which events; a `+` and what follows it are ignored, and the domain does not
//! matter:
//!
//! | address | events |
//! |---|---|
//! | `bounce@…` | `email.sent`, `email.bounced` with the type `Permanent` |
//! | `soft-bounce@…` | `email.sent`, `email.bounced` with the type `Transient` |
//! | `delay@…` | `email.sent`, `email.delivery_delayed`, and 5 minutes later by the mock's clock `email.delivered` |
//! | `fail@…` | `email.sent`, `email.failed` |
//! | `complain@…` | `email.sent`, `email.delivered`, `email.complained`; the address is suppressed afterwards |
//! | `open@…` | `email.sent`, `email.delivered`, `email.opened` |
//! | `click@…` | `email.sent`, `email.delivered`, `email.opened`, `email.clicked` |
//! | `pending@…` | `email.sent`, and nothing more until you apply an outcome |
//! | a suppressed address | `email.refused` |
//! | any other | `email.sent`, `email.delivered` |
//!
//! Everything except the delivery of a delayed mail happens immediately. [`MockServer::mail_outcome`] applies another
//! [`MailOutcome`] to a sent mail. [`MockServer::receive_mail`] receives a mail.
//!
//! # For other languages
//!
//! `audience-mock` runs the same server as a program, with a web page, subcommands and HTTP calls that do what the
//! methods of [`MockServer`] do. `cargo install audience --no-default-features --features mock-server` installs it. The
//! guide `docs/mock-over-http.md` lists its commands and calls.
//!
//! # Limits
//!
//! | limit | what happens beyond it |
//! |---|---|
//! | 1,000 connections | the one that has been idle for longest is closed; if none is idle, the new one waits |
//! | 60 s for the headers of a request, or for the next request of a connection | the connection is closed |
//! | 65,534 bytes for the path and the query of a request | 414 |
//! | 128 KiB for the request line and the headers of a request, or 100 headers | 431 |
//! | 60 s for a body | 408 |
//! | 16 MiB for a body | 413 |
//! | 64 MiB for all bodies that are being read | 503 with `Retry-After: 1` |
//! | 60 s in which a client reads nothing of a response | the connection is reset |
//! | 64 readers of `GET /_mock/stream` | 503 |
//! | 1,000 requests, or 64 MiB of them | the oldest are forgotten, but never the newest one |
//! | 1,000 events whose delivery has ended, or 64 MiB of their bodies | the oldest are forgotten, but never the newest one |
//! | 10,000 events that wait for an attempt, or 64 MiB of them | the oldest gets no further attempt |
//! | 64 MiB for the events that one mail causes when it is sent | 422 |
//! | 10,000 sent mails, or 64 MiB of them | the oldest are forgotten, but never the newest one. A delayed mail that is forgotten is not delivered |
//! | 10,000 delivery attempts | the attempt log forgets the oldest ones |
//! | 64 KiB of a response body, from the mock or from a receiver | the journal and the attempt log leave out the rest |
//! | 64 MiB of the requests and responses of delivery attempts | the attempt log forgets them, the oldest first |
//!
//! A request that cannot be parsed gets a 400, a 414 or a 431. It is neither recorded nor logged.
//!
//! [Testing your application]: https://docs.rs/audience/latest/audience/guides/testing/index.html

// The parts of this file, in order: the methods of `MockServer`, by task; `ClockMove`; `Shared`, which the threads of a
// server share; `State`, which is behind its lock; and `Changes`, which tells the web page that the state has changed.

mod builder;
#[cfg(feature = "mock-server")]
mod cli;
mod clock;
mod control;
mod delivery;
#[cfg(feature = "examine")]
mod examine;
mod faults;
mod html_form;
mod http;
mod journal;
mod page;
mod server;
mod service;
mod text;
#[cfg(any(test, fuzzing))]
mod unconnected;
#[cfg(feature = "wiremock")]
mod wiremock;

pub use builder::MockServerBuilder;
#[cfg(feature = "mock-server")]
#[doc(hidden)]
pub use cli::main as run_program;
pub use clock::MockClock;
pub use delivery::{DeliveryAttempt, DeliveryFault, SigningClock};
#[cfg(feature = "examine")]
pub use examine::{Check, CheckReport, Examination, ExamineReceiver, Finding, Verdict, examine};
pub use faults::Fault;
pub use html_form::HtmlForm;
pub use journal::{HandledRequest, RecordedRequest};
pub use service::contact::{EngagementKind, Reason};
pub use service::dialect::Dialect;
pub use service::mail::{InboundMailSeed, MailOutcome, SentMail};
pub use service::rule::SegmentKind;
pub use service::seed::{SeedContact, StoredContact};
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub use unconnected::UnconnectedMock;
#[cfg(feature = "wiremock")]
pub use wiremock::MockService;

/// The choices of a [`Dialect`]: one type for each of its fields.
///
/// # Example: a service that responds to a consent call without a contact
///
/// ```
/// use audience::mock::dialect::ConsentForm;
/// use audience::mock::{Dialect, MockServer};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let dialect = Dialect { consent_form: ConsentForm::NoContent, ..Dialect::default() };
/// let server = MockServer::builder().dialect(dialect).start().await;
/// # drop(server);
/// # }
/// ```
pub mod dialect {
    pub use super::service::dialect::{
        BatchMessage, BatchRefusal, ConsentForm, ContactDeletion, EndOfList, ErrorShape,
        InvalidStatus, JoinedMember, MergeBody, MergeResponse, MissingName, OmittedMembers,
        OtherContentType, PathAddress, PropertyValues, RateLimit, ReasonAfterSubscribe,
        RefusalOrder, SegmentWithRules, SuccessStatus, UnauthorizedSlug, UnknownAddress,
        UnknownMembers,
    };
}

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use ::http::{Request, Response};
use bytes::Bytes;
use hyper::body::{Body, Frame};
use serde_json::Value;
use tokio::runtime::Handle;
use tokio::sync::{Notify, oneshot, watch};
use tokio::task::JoinSet;

use self::delivery::{AttemptKind, Deliveries, Endpoints, StartedAttempt, Step, Target};
use self::faults::Active;
use self::journal::Journal;
use self::service::mail::{apply_outcome, report_spam};
use self::service::seed::{self, Seed, SeedEndpoint, put_contact};
use self::service::{Audience, ContactFilter, NewEvent, mail};
use crate::Timestamp;
use crate::sync::Condition;
#[cfg(feature = "client")]
use crate::{Auth, Client, ClientBuilder};

/// A server that behaves like the service, also as the fake for unit tests. It stops when it is dropped.
///
/// Every method can be called from any thread, inside or outside of a runtime.
#[must_use = "the server stops when it is dropped"]
pub struct MockServer {
    url: String,
    full_key: String,
    sending_key: String,
    /// The header that holds the bare key. `None` means a bearer token.
    #[cfg_attr(
        not(feature = "client"),
        expect(dead_code, reason = "only `client_builder` reads it")
    )]
    auth_header: Option<String>,
    shared: Arc<Shared>,
    /// Dropping it tells the server's thread to stop.
    _stop: oneshot::Sender<()>,
}

/// Start a server, and connect to it.
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
    ///
    /// # Example: the settings of the code under test
    ///
    /// ```
    /// # use audience::{Client, mock::MockServer};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), audience::Error> {
    /// # let server = MockServer::start().await;
    /// let client = Client::new(server.url(), server.full_key())?;
    ///
    /// assert!(client.contacts().retrieve("ada@example.com").await.unwrap_err().is_not_found());
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Returns the full-access key, which may call every endpoint.
    ///
    /// # Example: the key that the code under test must send
    ///
    /// ```
    /// # use audience::mock::MockServer;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), audience::Error> {
    /// # let server = MockServer::start().await;
    /// server.client().contacts().list().await?;
    ///
    /// let expected = format!("Bearer {}", server.full_key());
    /// assert_eq!(server.requests()[0].header("authorization"), Some(&*expected));
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn full_key(&self) -> &str {
        &self.full_key
    }

    /// Returns the sending-access key, which may only send mail ([interface section 5](crate::interface#5)).
    ///
    /// # Example: code that was configured with the wrong key
    ///
    /// ```
    /// # use audience::{Client, mock::MockServer};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), audience::Error> {
    /// # let server = MockServer::start().await;
    /// let client = Client::new(server.url(), server.sending_key())?;
    ///
    /// assert!(client.contacts().list().await.unwrap_err().is_key_not_permitted());
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn sending_key(&self) -> &str {
        &self.sending_key
    }
}

/// Call the server with the client of this crate. Nothing else in the mock uses the client.
#[cfg(feature = "client")]
impl MockServer {
    /// Creates a client for this server, with the full-access key.
    ///
    /// Each call creates a new client with its own connections. [`client_builder`](Self::client_builder) creates one
    /// with other settings.
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
    /// server.fault(Fault::delay(Duration::from_secs(600)));
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

/// Prepare the audience, and look at it.
impl MockServer {
    /// Adds a topic, or changes the default answer of an existing topic
    /// ([interface section 2.6](crate::interface#2.6)).
    ///
    /// The default applies to every contact who has not answered the topic.
    ///
    /// # Example: a topic that every contact gets until they opt out
    ///
    /// ```
    /// # use audience::mock::MockServer;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let server = MockServer::start().await;
    /// server.topic("news", true);
    ///
    /// let ada = server.seed_contact("ada@example.com");
    ///
    /// assert!(ada.topics["news"]);
    /// assert!(ada.answers.is_empty());
    /// # }
    /// ```
    pub fn topic(&self, name: impl AsRef<str>, default: bool) {
        self.shared
            .with_audience(|audience| audience.put_topic(name.as_ref(), default));
    }

    /// Adds a segment, or replaces the segment with this id ([interface section 2.7](crate::interface#2.7)).
    ///
    /// # Panics
    ///
    /// Panics if an address or the rule is invalid ([interface section 2.8](crate::interface#2.8)). The message has the
    /// reason.
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
            panic!("the segment {id:?} is invalid: {problem}");
        }
    }

    /// Stores a contact in any state, or replaces the one with its address, and returns it.
    ///
    /// Its creation time decides its place in the list ([interface section 4.4](crate::interface#4.4)). A contact that
    /// is replaced keeps its id; everything else is replaced, including its engagement and its suppression. Seeding
    /// causes no event, and it may exceed the ceiling, which limits only requests.
    ///
    /// # Panics
    ///
    /// Panics if the address is invalid, a property has a value that the [`Dialect`] does not allow, a topic or an
    /// engagement is unknown, or the consent is in a state that does not exist
    /// ([interface section 3.1](crate::interface#3.1)). The message has the reason.
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
            .with_audience(|audience| put_contact(audience, contact, now))
        {
            Ok(stored) => stored,
            Err(problem) => panic!("the seeded contact is invalid: {problem}"),
        }
    }

    /// Removes the contact with this address, as if the service had deleted it. Returns whether there was one.
    ///
    /// No event is sent. The address stays suppressed if it was, and keeps its engagement. It can become a contact
    /// again, with another id and without answers.
    ///
    /// # Example: a person who no longer exists
    ///
    /// ```
    /// # use audience::mock::MockServer;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// # let server = MockServer::start().await;
    /// server.seed_contact("ada@example.com");
    ///
    /// assert!(server.remove_contact("ada@example.com"));
    ///
    /// let error = server.client().contacts().retrieve("ada@example.com").await.unwrap_err();
    /// assert!(error.is_not_found());
    /// assert!(!server.remove_contact("ada@example.com"));
    /// # }
    /// ```
    pub fn remove_contact(&self, address: impl AsRef<str>) -> bool {
        self.shared
            .with_audience(|audience| audience.contacts.remove(address.as_ref()))
    }

    /// Applies a [seed](crate::mock#seeds): topics, segments, contacts and more, as JSON.
    ///
    /// Everything that the seed does not name stays as it is. Each contact is stored like
    /// [`seed_contact`](Self::seed_contact) stores it. A `clock` moves the clock immediately; this method does not wait
    /// until the move is complete.
    ///
    /// # Panics
    ///
    /// Panics if the seed is invalid. Then nothing is changed, and the message has the reason.
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

    /// Changes how many contacts can be stored ([interface section 8](crate::interface#8)). `None` means no limit.
    ///
    /// Contacts above a lowered ceiling stay.
    ///
    /// # Example: a plan that is full
    ///
    /// ```
    /// # use audience::{contacts::NewContact, mock::MockServer};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// # let server = MockServer::start().await;
    /// server.set_ceiling(Some(0));
    ///
    /// let error = server.client().contacts().create(NewContact::new("ada@example.com")).await.unwrap_err();
    ///
    /// assert!(error.is_quota_exceeded());
    /// # }
    /// ```
    pub fn set_ceiling(&self, contacts: Option<u64>) {
        self.shared
            .with_audience(|audience| audience.contacts.ceiling = contacts);
    }

    /// Records a spam report from a mailbox provider (sections [3.1](crate::interface#3.1) and
    /// [3.2](crate::interface#3.2)).
    ///
    /// The report opts the contact out for the reason `complaint`, which no request can undo. It counts as engagement,
    /// and it suppresses the address, even if the address is not a contact. Every endpoint gets an `email.complained`
    /// event about the latest mail to the address; this method does not wait for the delivery.
    ///
    /// # Example: a contact who can no longer be subscribed
    ///
    /// ```
    /// # use audience::mock::MockServer;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// # let server = MockServer::start().await;
    /// server.seed_contact("ada@example.com");
    /// server.report_spam("ada@example.com");
    ///
    /// let error = server.client().contacts().subscribe("ada@example.com").await.unwrap_err();
    ///
    /// assert!(error.is_complaint_locked());
    /// # }
    /// ```
    pub fn report_spam(&self, address: impl AsRef<str>) {
        let now = self.now().as_unix();
        self.shared
            .with_audience(|audience| report_spam(audience, address.as_ref(), now));
    }

    /// Records engagement with mail to an address, for the engagement rules
    /// ([interface section 2.8](crate::interface#2.8)).
    ///
    /// It records only the engagement, also for [`EngagementKind::Complained`]: the contact is not opted out, and its
    /// address is not suppressed. For a spam report, call [`report_spam`](Self::report_spam).
    ///
    /// # Example: an opened mail
    ///
    /// ```
    /// # use audience::mock::{EngagementKind, MockServer};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// # let server = MockServer::start().await;
    /// server.seed_contact("ada@example.com");
    /// server.record_engagement("ada@example.com", EngagementKind::Opened, 1_700_000_000);
    ///
    /// let ada = server.contact("ada@example.com").expect("it was seeded");
    /// assert_eq!(ada.engagement[&EngagementKind::Opened].as_unix(), 1_700_000_000);
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

    /// Returns a contact as the service has stored it, or `None` if no contact has this address.
    ///
    /// # Example: the effect of an opt-out
    ///
    /// ```
    /// # use audience::mock::MockServer;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), audience::Error> {
    /// # let server = MockServer::start().await;
    /// server.seed_contact("ada@example.com");
    ///
    /// server.client().contacts().unsubscribe("ada@example.com").await?;
    ///
    /// assert!(server.contact("ada@example.com").is_some_and(|ada| ada.unsubscribed));
    /// assert!(server.contact("bob@example.com").is_none());
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn contact(&self, address: impl AsRef<str>) -> Option<StoredContact> {
        self.shared.lock().audience.contact(address.as_ref())
    }

    /// Returns all contacts as the service has stored them, newest first, as in the list
    /// ([interface section 4.4](crate::interface#4.4)).
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
        let now = self.shared.clock.unix();
        self.shared
            .lock()
            .audience
            .matching_contacts(&ContactFilter::default(), None, usize::MAX, now)
            .unwrap_or_default()
    }

    /// Returns the number of stored contacts.
    ///
    /// # Example: an upsert that creates no second contact
    ///
    /// ```
    /// # use audience::{contacts::NewContact, mock::MockServer};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), audience::Error> {
    /// # let server = MockServer::start().await;
    /// # let contacts = server.client().contacts();
    /// contacts.create(NewContact::new("ada@example.com")).await?;
    /// contacts.create(NewContact::new("ADA@example.com")).await?;
    ///
    /// assert_eq!(server.contact_count(), 1);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn contact_count(&self) -> usize {
        self.shared.lock().audience.contacts.len()
    }
}

/// Look at requests, and make them fail.
impl MockServer {
    /// Returns the newest 1,000 requests, in the order they were handled, without those to `/_mock/…`.
    ///
    /// Fewer are kept if they take up more than 64 MiB of memory. Requests that cannot be parsed as HTTP are not
    /// recorded.
    ///
    /// # Example: the requests of the code under test
    ///
    /// ```
    /// # use audience::mock::MockServer;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), audience::Error> {
    /// # let server = MockServer::start().await;
    /// server.client().contacts().list().limit(2).await?;
    ///
    /// let requests = server.requests();
    ///
    /// assert_eq!(requests.len(), 1);
    /// assert_eq!(requests[0].path, "/contacts");
    /// assert_eq!(requests[0].query.as_deref(), Some("limit=2"));
    /// assert_eq!(requests[0].status, Some(200));
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn requests(&self) -> Vec<RecordedRequest> {
        let state = self.shared.lock();
        let entries = state.journal.entries();
        entries.map(|(_, request)| request.clone()).collect()
    }

    /// Forgets the recorded requests.
    ///
    /// # Example: only the requests after the preparation
    ///
    /// ```
    /// # use audience::{contacts::NewContact, mock::MockServer};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), audience::Error> {
    /// # let server = MockServer::start().await;
    /// # let contacts = server.client().contacts();
    /// contacts.create(NewContact::new("ada@example.com")).await?;
    /// server.clear_requests();
    ///
    /// contacts.retrieve("ada@example.com").await?;
    ///
    /// assert_eq!(server.requests().len(), 1);
    /// # Ok(())
    /// # }
    /// ```
    pub fn clear_requests(&self) {
        self.shared.lock().journal.clear();
    }

    /// Adds a fault for the next requests that match: an error status, a delay, a closed connection, a truncated
    /// response, or bytes that are not HTTP.
    ///
    /// # Panics
    ///
    /// Panics if no request can match the fault: its [`times`](Fault::times) or its [`every`](Fault::every) is 0, its
    /// [`method`](Fault::method) is not an HTTP method, or its [`path`](Fault::path) has a query, starts with neither
    /// `/` nor `*`, or is below `/_mock/`. Also panics if the fault was read from JSON and has no kind, two kinds, or a
    /// status that is not between 200 and 999.
    ///
    /// # Example: one failed response, which the client retries
    ///
    /// ```
    /// # use audience::{contacts::NewContact, mock::{Fault, MockServer}};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), audience::Error> {
    /// # let server = MockServer::start().await;
    /// server.fault(Fault::status(503).path("/contacts").times(1));
    ///
    /// let created = server.client().contacts().create(NewContact::new("ada@example.com")).await?;
    ///
    /// assert_eq!(created.attempts(), 2);
    /// # Ok(())
    /// # }
    /// ```
    #[track_caller]
    pub fn fault(&self, fault: Fault) {
        if let Err(problem) = fault.check() {
            panic!("{problem}");
        }
        self.shared.lock().faults.add(fault);
    }

    /// Removes all faults.
    ///
    /// # Example: the end of an outage
    ///
    /// ```
    /// # use audience::mock::{Fault, MockServer};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// # let server = MockServer::start().await;
    /// # let contacts = server.client_builder().retry(audience::RetryPolicy::none()).build().unwrap().contacts();
    /// server.fault(Fault::close_before());
    /// assert!(contacts.list().await.is_err());
    ///
    /// server.clear_faults();
    /// assert!(contacts.list().await.is_ok());
    /// # }
    /// ```
    pub fn clear_faults(&self) {
        self.shared.lock().faults.clear();
    }
}

/// Look at sent mail, and decide what happens to it.
impl MockServer {
    /// Returns the newest 10,000 mails that `POST /emails` accepted, in the order they were sent. Mail to a suppressed
    /// address is accepted, too, and refused afterwards by the event `email.refused`.
    ///
    /// Fewer are kept if they take up more than 64 MiB of memory.
    ///
    /// # Example: the mail that the code under test sent
    ///
    /// ```
    /// # use audience::mock::MockServer;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), audience::Error> {
    /// # let server = MockServer::start().await;
    /// let mail = serde_json::json!({"from": "me@example.com", "to": "ada@example.com", "subject": "Welcome"});
    /// server.client().request(http::Method::POST, ["emails"]).json(&mail)?.await?;
    ///
    /// let sent = server.sent_mail();
    ///
    /// assert_eq!(sent[0].subject, "Welcome");
    /// assert_eq!(sent[0].to, ["ada@example.com"]);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn sent_mail(&self) -> Vec<SentMail> {
        self.shared.lock().audience.mails.sent_mail()
    }

    /// Applies an outcome to a sent mail: delivers the event about it to every endpoint, waits for the first attempt at
    /// each, and returns the event's id.
    ///
    /// The event has the id, the sender and the subject of the mail. It counts as engagement, and a complaint has the
    /// effects of a spam report (sections [2.8](crate::interface#2.8) and [3.2](crate::interface#3.2)).
    ///
    /// # Panics
    ///
    /// Panics
    /// - if the mail is unknown;
    /// - if the mail has several recipients and the outcome names none;
    /// - if the outcome names an address that is not a recipient;
    /// - if the outcome is not possible, such as an open of a mail that bounced.
    ///
    /// The message has the reason, and the outcomes that are possible.
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
    /// let event_id = server.mail_outcome(&sent.id, MailOutcome::bounced().bounce_type("Transient")).await;
    ///
    /// // `evt_1` said that the mail was sent, and `evt_2` that it was delivered.
    /// assert_eq!(event_id, "evt_3");
    /// # Ok(())
    /// # }
    /// ```
    pub async fn mail_outcome(&self, email_id: impl AsRef<str>, outcome: MailOutcome) -> String {
        let id = email_id.as_ref();
        let published = self
            .shared
            .publish(|audience, now| apply_outcome(audience, id, &outcome, now))
            .await;
        published.unwrap_or_else(|refusal| panic!("{}", refusal.message))
    }

    /// Receives a mail: delivers an `email.received` event to every endpoint, waits for the first attempt at each, and
    /// returns the event's id ([interface section 6.4](crate::interface#6.4)).
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
    /// # let receiver = MockServer::start().await;
    /// # let server = MockServer::start().await;
    /// # server.webhook_endpoint(format!("{}/hook", receiver.url()), "a-secret-of-the-test");
    /// server.receive_mail(InboundMailSeed::new("ada@example.com").subject("A question")).await;
    ///
    /// let delivery = &receiver.requests()[0];
    /// assert_eq!(delivery.header("webhook-event"), Some("email.received"));
    /// # }
    /// ```
    pub async fn receive_mail(&self, mail: InboundMailSeed) -> String {
        let published = self
            .shared
            .publish(|audience, now| mail::receive(audience, mail, now))
            .await;
        published.unwrap_or_else(|refusal| panic!("{}", refusal.message))
    }
}

/// Deliver events to webhook endpoints.
impl MockServer {
    /// Adds a webhook endpoint: the URL that events are delivered to, and the secret they are signed with.
    ///
    /// If the URL already is an endpoint, its secret is replaced.
    ///
    /// # Panics
    ///
    /// Panics if `url` is not a valid `http://…` URL, or if [`Signer::new`](crate::webhooks::Signer::new) refuses the
    /// secret.
    ///
    /// # Example: deliver to the receiver under test
    ///
    /// ```
    /// # use audience::mock::MockServer;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// # let receiver = MockServer::start().await;
    /// # let server = MockServer::start().await;
    /// let url = format!("{}/hook", receiver.url());
    /// server.webhook_endpoint(&url, "a-secret-of-the-test");
    ///
    /// server.send_event(serde_json::json!({"type": "email.opened"})).await;
    ///
    /// assert_eq!(server.attempts()[0].endpoint, url);
    /// assert!(receiver.requests()[0].header("webhook-signature").is_some());
    /// # }
    /// ```
    #[track_caller]
    pub fn webhook_endpoint(&self, url: impl AsRef<str>, secret: impl AsRef<str>) {
        let url = url.as_ref();
        match Target::new(url, secret.as_ref()) {
            Ok(target) => self.shared.lock().deliveries.endpoints.put(url, target),
            Err(problem) => panic!("{problem}"),
        }
    }

    /// Sends an event to every endpoint, waits for the first attempt at each, and returns the event's id.
    ///
    /// The event is an object with a `type`, which can be any text, and optionally `data`, `id` and `created_at`. If
    /// the interface document has the type, members missing from `data` are filled in. Other members are sent
    /// unchanged. An event about a contact's mail counts as engagement at its `created_at`
    /// ([interface section 2.8](crate::interface#2.8)), and an event `email.complained` is also a
    /// [spam report](Self::report_spam): the contact is opted out, and its address suppressed.
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
    /// # Example: a duplicate that the receiver has to recognize
    ///
    /// ```
    /// # use audience::mock::MockServer;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// # let receiver = MockServer::start().await;
    /// # let server = MockServer::start().await;
    /// # server.webhook_endpoint(format!("{}/hook", receiver.url()), "a-secret-of-the-test");
    /// let id = server.send_event(serde_json::json!({"type": "email.opened"})).await;
    ///
    /// server.redeliver(&id).await;
    ///
    /// let deliveries = receiver.requests();
    /// assert_eq!(deliveries.len(), 2);
    /// assert_eq!(deliveries[0].body, deliveries[1].body);
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
    /// Panics if no delivery can match the fault: its [`times`](DeliveryFault::times) is 0, the server has no such
    /// [`endpoint`](DeliveryFault::endpoint), or the service has no such [`event_type`](DeliveryFault::event_type).
    /// Also panics if the fault was read from JSON and has a `header` without the kind `missing_header`.
    ///
    /// # Example: a delivery that the receiver has to reject
    ///
    /// ```
    /// # use audience::mock::{DeliveryFault, MockServer};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// # let receiver = MockServer::start().await;
    /// # let server = MockServer::start().await;
    /// # server.webhook_endpoint(format!("{}/hook", receiver.url()), "a-secret-of-the-test");
    /// server.delivery_fault(DeliveryFault::stale());
    ///
    /// server.send_event(serde_json::json!({"type": "email.opened"})).await;
    ///
    /// let attempt = &server.attempts()[0];
    /// assert_eq!(attempt.fault, Some("stale"));
    /// assert!(!attempt.is_success(), "the receiver accepted an old delivery");
    /// # }
    /// ```
    #[track_caller]
    pub fn delivery_fault(&self, fault: DeliveryFault) {
        let added = self.shared.lock().deliveries.add_fault(fault);
        if let Err(problem) = added {
            panic!("{problem}");
        }
    }

    /// Removes all delivery faults. An event that is held back is still delivered late.
    ///
    /// # Example: genuine deliveries again
    ///
    /// ```
    /// # use audience::mock::{DeliveryFault, MockServer};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// # let receiver = MockServer::start().await;
    /// # let server = MockServer::start().await;
    /// # server.webhook_endpoint(format!("{}/hook", receiver.url()), "a-secret-of-the-test");
    /// server.delivery_fault(DeliveryFault::other_secret().times(1_000));
    /// server.clear_delivery_faults();
    ///
    /// server.send_event(serde_json::json!({"type": "email.opened"})).await;
    ///
    /// assert_eq!(server.attempts()[0].signature_problem, None);
    /// # }
    /// ```
    pub fn clear_delivery_faults(&self) {
        self.shared.lock().deliveries.faults.clear();
    }
}

/// Move the clock, or start over.
impl MockServer {
    /// Returns the server's current time.
    ///
    /// # Example: an age by the server's clock
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use audience::mock::MockServer;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let server = MockServer::builder().clock(1_700_000_000).start().await;
    /// let ada = server.seed_contact("ada@example.com");
    ///
    /// server.advance(Duration::from_secs(3_600)).await;
    ///
    /// assert_eq!(server.now().as_unix() - ada.created_at.as_unix(), 3_600);
    /// # }
    /// ```
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.shared.clock.now()
    }

    /// Returns a handle to the server's clock, for a receiver that checks the age of deliveries.
    ///
    /// # Example: a verifier in the server's time
    ///
    /// ```
    /// # use audience::{mock::MockServer, webhooks::{Signer, Verifier}};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let receiver = MockServer::start().await;
    /// # let hook = format!("{}/hook", receiver.url());
    /// let server = MockServer::builder()
    ///     .clock(1_700_000_000)
    ///     .webhook_endpoint(hook, "a-secret-of-the-test")
    ///     .start()
    ///     .await;
    /// let verifier = Verifier::builder().secret("2026", "a-secret-of-the-test").clock(server.clock()).build()?;
    ///
    /// server.send_event(serde_json::json!({"type": "email.opened"})).await;
    ///
    /// let delivery = &receiver.requests()[0];
    /// let (signature, timestamp) = (delivery.header("webhook-signature"), delivery.header("webhook-timestamp"));
    /// let event = verifier.verify_parts(signature, timestamp, &delivery.body)?;
    /// assert_eq!(event.id.as_str(), "evt_1");
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn clock(&self) -> MockClock {
        self.shared.clock.clone()
    }

    /// Moves the clock forward by whole seconds. A fraction of a second is dropped.
    ///
    /// Deliveries that become due on the way are attempted in order, each while the clock shows its due time. The move
    /// begins immediately. Await the result to wait until the move is complete. If nothing is due on the way, the move
    /// is complete when this method returns.
    ///
    /// # Example: two minutes later
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
    /// Moving it forward is like [`advance`](Self::advance). Moving it backward attempts no delivery and cancels
    /// earlier moves. An attempt that was due but had not started is made when the clock reaches its due time again;
    /// until then, no method waits for it.
    ///
    /// # Example: contacts that were created long ago
    ///
    /// ```
    /// # use audience::{contacts::NewContact, mock::MockServer};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), audience::Error> {
    /// let server = MockServer::builder().clock(1_700_000_000).start().await;
    /// server.set_clock(1_600_000_000).await;
    ///
    /// server.client().contacts().create(NewContact::new("ada@example.com")).await?;
    ///
    /// assert_eq!(server.contacts()[0].created_at.as_unix(), 1_600_000_000);
    /// # Ok(())
    /// # }
    /// ```
    pub fn set_clock(&self, to: impl Into<Timestamp>) -> ClockMove {
        ClockMove::new(&self.shared, self.shared.set_clock(to.into().as_unix()))
    }

    /// Restores the state that the server was started with.
    ///
    /// The builder's configuration is kept, and its seeds are restored. Everything else is removed: contacts, sent
    /// mail, faults, requests, attempts, and pending and running deliveries. The clock returns to its start. Only the
    /// numbers of events, mails, attempts and faults continue: the ids of events and mails are never used twice, so that a
    /// receiver that still runs does not mistake a new one for one it has seen. The ids of contacts begin again: no event
    /// contains one.
    ///
    /// # Example: one server for several cases
    ///
    /// ```
    /// # use audience::mock::MockServer;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let server = MockServer::builder().seed_contact("ada@example.com").start().await;
    ///
    /// for address in ["bob@example.com", "eve@example.com"] {
    ///     server.reset();
    ///     server.seed_contact(address);
    ///
    ///     assert_eq!(server.contact_count(), 2);
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

/// A move of the clock; see [`MockServer::advance`].
///
/// The clock moves even if this is not awaited. Await it to wait until the clock has reached its target and all
/// deliveries due on the way have been attempted. The wait also ends when the clock is set to an earlier time, and when
/// the server is reset or dropped.
pub struct ClockMove {
    shared: Arc<Shared>,
    target: ClockTarget,
}

impl ClockMove {
    fn new(shared: &Arc<Shared>, target: ClockTarget) -> Self {
        Self {
            shared: Arc::clone(shared),
            target,
        }
    }
}

impl IntoFuture for ClockMove {
    type Output = ();
    type IntoFuture = Pin<Box<dyn Future<Output = ()> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move { self.shared.wait_for_clock(self.target).await })
    }
}

impl fmt::Debug for ClockMove {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ClockMove").field(&self.target).finish()
    }
}

/// The state of a server, and the tasks that deliver events and move the clock.
#[derive(Debug)]
struct Shared {
    clock: MockClock,
    state: Mutex<State>,
    /// Tells the streams of the web page that the state has changed.
    changes: Changes,
    initial: InitialState,
    runtime: Handle,
    delivery_timeout: Duration,
    /// Wakes [`run_schedule`](Self::run_schedule) when the schedule may have changed.
    schedule_changed: Notify,
    /// Wakes the tasks that wait for the state to change.
    state_changed: Condition,
}

/// A time that the clock moves to.
#[derive(Clone, Copy, Debug)]
struct ClockTarget {
    time: i64,
    /// [`State::resets`] when the move began.
    resets: u64,
    /// [`State::canceled_clock_moves`] when the move began.
    canceled_clock_moves: u64,
}

impl ClockTarget {
    fn new(time: i64, state: &State) -> Self {
        Self {
            time,
            resets: state.resets,
            canceled_clock_moves: state.canceled_clock_moves,
        }
    }
}

impl Shared {
    fn new(
        initial: InitialState,
        clock: MockClock,
        delivery_timeout: Duration,
        runtime: Handle,
    ) -> Arc<Self> {
        Arc::new(Self {
            clock,
            state: Mutex::new(State::new(initial.clone())),
            changes: Changes::default(),
            initial,
            runtime,
            delivery_timeout,
            schedule_changed: Notify::new(),
            state_changed: Condition::default(),
        })
    }

    /// Locks the state. Hold the guard only briefly, and never across an await.
    fn lock(&self) -> StateGuard<'_> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        StateGuard::new(state, &self.changes)
    }

    /// Handles a request to the service and starts the deliveries it causes.
    fn handle(self: &Arc<Self>, request: Request<Bytes>) -> Exchange {
        let (exchange, has_events) = self.lock().handle(request, self.clock.now());
        if has_events {
            self.update_schedule();
        }
        exchange
    }

    /// Runs `change` on the audience and starts the deliveries it causes.
    fn with_audience<T>(self: &Arc<Self>, change: impl FnOnce(&mut Audience) -> T) -> T {
        let (result, has_events) = {
            let mut state = self.lock();
            let result = change(&mut state.audience);
            let last_event = state.publish_outbox(self.clock.unix());
            (result, last_event.is_some())
        };
        if has_events {
            self.update_schedule();
        }
        result
    }

    /// Sends an event and waits until it has been attempted once at every endpoint. Returns its id.
    async fn send_event(self: &Arc<Self>, event: NewEvent) -> String {
        let (number, id, resets) = {
            let mut state = self.lock();
            let (number, id) = state.publish(event, self.clock.unix());
            (number, id, state.resets)
        };
        self.update_schedule();
        self.wait_for_attempts(number, AttemptKind::Automatic(1), resets)
            .await;
        id
    }

    /// Runs `change` on the audience and waits until the last event it causes has been attempted once at every
    /// endpoint. Returns the id of that event, or an empty text if there is none.
    async fn publish<E>(
        self: &Arc<Self>,
        change: impl FnOnce(&mut Audience, i64) -> Result<(), E>,
    ) -> Result<String, E> {
        let (published, resets) = {
            let mut state = self.lock();
            let now = self.clock.unix();
            // Delayed mail that is due comes first: it may make the change impossible.
            state.publish_delayed(now);
            let changed = change(&mut state.audience, now);
            let last_event = state.publish_outbox(now);
            (changed.map(|()| last_event), state.resets)
        };
        self.update_schedule();
        let Some((number, id)) = published? else {
            return Ok(String::new());
        };
        self.wait_for_attempts(number, AttemptKind::Automatic(1), resets)
            .await;
        Ok(id)
    }

    /// Sends an event again and waits for the attempts. Returns `false` if no event has this id.
    async fn redeliver(self: &Arc<Self>, id: &str) -> bool {
        let (number, resets) = {
            let mut state = self.lock();
            let number = state.deliveries.redeliver(id, self.clock.unix());
            (number, state.resets)
        };
        let Some(number) = number else {
            return false;
        };
        self.update_schedule();
        self.wait_for_attempts(number, AttemptKind::Redelivery, resets)
            .await;
        true
    }

    /// Starts to move the clock forward. If nothing is due on the way, the move is complete on return.
    fn advance_clock(self: &Arc<Self>, by: Duration) -> ClockTarget {
        let seconds = i64::try_from(by.as_secs()).unwrap_or(i64::MAX);
        let target = {
            let mut state = self.lock();
            let now = self.clock.unix();
            let time = state.deliveries.schedule.advance_clock(now, seconds);
            ClockTarget::new(time, &state)
        };
        self.update_schedule();
        target
    }

    /// Starts to move the clock to a time, forward or backward.
    ///
    /// Backward, earlier moves are canceled, and pending attempts keep their due times.
    fn set_clock(self: &Arc<Self>, to: i64) -> ClockTarget {
        let target = self.set_clock_of(&mut self.lock(), to);
        self.update_schedule();
        target
    }

    /// Does the part of [`set_clock`](Self::set_clock) that needs the lock. Update the schedule afterwards.
    fn set_clock_of(&self, state: &mut State, to: i64) -> ClockTarget {
        let now = self.clock.unix();
        if state.deliveries.schedule.set_clock(now, to) {
            state.canceled_clock_moves += 1;
            self.clock.move_to(to.min(now));
        }
        ClockTarget::new(to, state)
    }

    /// Waits until the clock has reached its target and every attempt that was due on the way has been made.
    async fn wait_for_clock(&self, target: ClockTarget) {
        self.wait_until(target.resets, |state| {
            state.canceled_clock_moves != target.canceled_clock_moves
                || state
                    .deliveries
                    .schedule
                    .has_reached(target.time, self.clock.unix())
        })
        .await;
    }

    /// Applies a seed, then starts to move the clock to the time of the seed, if it has one.
    ///
    /// # Errors
    ///
    /// Fails if the seed is invalid. The message names the member. Nothing is changed then.
    fn seed(self: &Arc<Self>, mut seed: Seed) -> Result<Option<ClockTarget>, String> {
        let clock = seed.clock;
        let targets = targets(std::mem::take(&mut seed.endpoints))?;
        // One lock for all of it, so that no request sees a part of the seed.
        let clock_target = {
            let mut state = self.lock();
            let now = clock.unwrap_or_else(|| self.clock.unix());
            seed.settings.check(&state.audience)?;
            seed::apply(&mut state.audience, seed, now)?;
            for (name, target) in targets {
                state.deliveries.endpoints.put(&name, target);
            }
            clock.map(|time| self.set_clock_of(&mut state, time))
        };
        self.update_schedule();
        Ok(clock_target)
    }

    /// Restores the state and the clock that the server was started with.
    fn reset(&self) {
        let mut state = self.lock();
        state.reset(self.initial.clone());
        // Under the same lock, so that no request sees the restored state with the old time.
        self.clock.reset();
        drop(state);
        self.state_changed.notify();
    }

    /// Aborts running attempts and ends all waits. Nothing is started afterwards.
    fn close(&self) {
        let mut state = self.lock();
        state.is_closed = true;
        // Each task holds an `Arc` of this state, which would otherwise live until the attempt ends.
        state.attempt_tasks = JoinSet::new();
        drop(state);
        self.state_changed.notify();
    }

    /// Makes attempts when they are due. Never returns.
    async fn run_schedule(self: Arc<Self>) {
        loop {
            let next_due = self.step_schedule().filter(|_| !self.clock.is_stopped());
            let Some(due) = next_due else {
                self.schedule_changed.notified().await;
                continue;
            };
            tokio::select! {
                () = self.schedule_changed.notified() => {}
                () = tokio::time::sleep(self.clock.time_until(due)) => {}
            }
        }
    }

    /// Acts on a change of the schedule. Call it without the lock.
    fn update_schedule(self: &Arc<Self>) {
        self.step_schedule();
        self.schedule_changed.notify_one();
    }

    /// Starts the attempts that are due and moves the clock as far as possible. Returns when the next attempt is due.
    fn step_schedule(self: &Arc<Self>) -> Option<i64> {
        let next_due = self.run_steps(&mut self.lock());
        self.state_changed.notify();
        next_due
    }

    fn run_steps(self: &Arc<Self>, state: &mut State) -> Option<i64> {
        while !state.is_closed {
            let now = self.clock.unix();
            state.publish_delayed(now);
            let next_event = state.audience.mails.next_due();
            // With a stopped clock, one attempt at a time makes the order the same on every run.
            let one_at_a_time = self.clock.is_stopped();
            match state.deliveries.step(now, one_at_a_time, next_event) {
                Step::Start(started) => self.start_attempt(state, started),
                Step::MoveClock(to) => self.clock.move_to(to),
                Step::Wait(next_due) => return next_due,
            }
        }
        None
    }

    fn start_attempt(self: &Arc<Self>, state: &mut State, started: StartedAttempt) {
        // Removes finished tasks, which the set would keep otherwise.
        while state.attempt_tasks.try_join_next().is_some() {}
        let task = Arc::clone(self).make_attempt(started, state.resets);
        state.attempt_tasks.spawn_on(task, &self.runtime);
    }

    async fn make_attempt(self: Arc<Self>, mut started: StartedAttempt, resets: u64) {
        started.post(self.delivery_timeout).await;
        {
            let mut state = self.lock();
            // A reset has removed the event of an attempt that started before it.
            if state.resets == resets {
                let now = self.clock.unix();
                state.deliveries.finish(started, now);
            }
        }
        self.update_schedule();
    }

    async fn wait_for_attempts(&self, event: u64, kind: AttemptKind, resets: u64) {
        self.wait_until(resets, |state| {
            let now = self.clock.unix();
            !state.deliveries.schedule.is_attempting(event, kind, now)
        })
        .await;
    }

    /// Waits until `is_done` returns `true`, the server is reset, or the server shuts down.
    async fn wait_until(&self, resets: u64, is_done: impl Fn(&State) -> bool) {
        self.state_changed
            .wait_until(|| {
                let state = self.lock();
                state.is_closed || state.resets != resets || is_done(&state)
            })
            .await;
    }
}

/// Returns whether a path belongs to the control plane instead of the service.
fn is_control_path(path: &str) -> bool {
    path.strip_prefix("/_mock")
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

fn targets(endpoints: BTreeMap<String, SeedEndpoint>) -> Result<Vec<(String, Target)>, String> {
    endpoints
        .into_iter()
        .map(|(name, endpoint)| {
            let target = Target::new(&endpoint.url, &endpoint.secret)
                .map_err(|problem| format!("`endpoints.{name}`: {problem}"))?;
            Ok((name, target))
        })
        .collect()
}

/// The state that a server starts with and that a reset restores.
#[derive(Clone, Debug)]
struct InitialState {
    audience: Audience,
    endpoints: Endpoints,
    signing_clock: SigningClock,
}

/// The state of a mock server. It is behind one lock, which is never held across an await.
#[derive(Debug)]
struct State {
    audience: Audience,
    faults: Active<Fault>,
    journal: Journal,
    deliveries: Deliveries,
    /// The tasks that make delivery attempts. Dropping the set aborts them.
    attempt_tasks: JoinSet<()>,
    /// How often the server has been reset. Attempts and waits from before a reset are abandoned.
    resets: u64,
    /// How often a move of the clock was canceled because the clock was set to an earlier time.
    canceled_clock_moves: u64,
    /// Whether the server is shutting down. No attempt is started then, and every wait has ended.
    is_closed: bool,
}

impl State {
    fn new(initial: InitialState) -> Self {
        Self {
            audience: initial.audience,
            faults: Active::default(),
            journal: Journal::default(),
            deliveries: Deliveries::new(initial.endpoints, initial.signing_clock),
            attempt_tasks: JoinSet::new(),
            resets: 0,
            canceled_clock_moves: 0,
            is_closed: false,
        }
    }

    /// Restores the initial state and aborts running attempts. The numbers of events and mails continue.
    fn reset(&mut self, initial: InitialState) {
        let earlier = std::mem::replace(&mut self.audience, initial.audience);
        self.audience.mails.continue_numbers(&earlier.mails);
        self.deliveries
            .reset(initial.endpoints, initial.signing_clock);
        self.attempt_tasks = JoinSet::new();
        self.faults.clear();
        self.journal.clear();
        self.resets += 1;
    }

    /// Handles a request to the service that arrives at `now`: takes the fault that matches it, applies the request to
    /// the audience if the fault allows it, records it in the journal, and publishes the events it causes. Returns
    /// whether there are any.
    fn handle(&mut self, request: Request<Bytes>, now: Timestamp) -> (Exchange, bool) {
        let (method, path) = (request.method().as_str(), request.uri().path());
        // Before the service sees the request: a fault also counts requests that the service refuses.
        let fault = self.faults.take(|fault| fault.matches(method, path));
        let now_unix = now.as_unix();
        let is_applied = fault.as_ref().is_none_or(Fault::applies);
        let replaced = fault.as_ref().and_then(Fault::instead_of_service);
        let mut refused_because = None;
        let handled = match replaced {
            Some(result) if !is_applied => result,
            replaced => {
                let result = self.audience.handle(&request, now_unix);
                let refusal = result.as_ref().err();
                refused_because = refusal.map(|refusal| refusal.message.clone());
                replaced.unwrap_or(result)
            }
        };
        let response = handled.unwrap_or_else(|refusal| self.audience.error_response(&refusal));
        let status = fault
            .as_ref()
            .is_none_or(Fault::sends_status)
            .then(|| response.status().as_u16());
        let of_fault = fault
            .as_ref()
            .and_then(|fault| fault.reason(refused_because.as_deref()));
        let reason = of_fault.or(refused_because);
        let (delay, response) = match fault {
            None => (Duration::ZERO, Ok(response)),
            Some(fault) => fault.apply(request.method(), response),
        };
        let response = response.map(http::with_content_type);
        let recorded = RecordedRequest::new(request, now, status, reason.clone());
        self.journal.push(recorded.with_response(response.as_ref()));
        let exchange = Exchange {
            delay,
            response,
            status,
            reason,
        };
        (exchange, self.publish_outbox(now_unix).is_some())
    }

    /// Publishes the events of the delayed mail that is due by `now`.
    fn publish_delayed(&mut self, now: i64) {
        mail::deliver_delayed(&mut self.audience, now);
        self.publish_outbox(now);
    }

    /// Publishes the events that the audience caused. Returns the number and the id of the last, or `None` if there
    /// were none.
    fn publish_outbox(&mut self, now: i64) -> Option<(u64, String)> {
        let events = self.audience.take_events().into_iter();
        // The audience has already recorded them as engagement.
        events
            .map(|event| self.deliveries.publish(event, now))
            .last()
    }

    /// Records an event that a test sends as engagement and schedules its delivery. Returns its number and its id.
    fn publish(&mut self, event: NewEvent, now: i64) -> (u64, String) {
        let at = event.created_at.unwrap_or(now);
        self.audience
            .record_event(&event.event_type, &event.data, at);
        self.deliveries.publish(event, now)
    }
}

/// The locked state. If it was borrowed mutably, dropping this counts as a change.
#[derive(Debug)]
struct StateGuard<'a> {
    state: MutexGuard<'a, State>,
    changes: &'a Changes,
    is_changed: bool,
}

impl<'a> StateGuard<'a> {
    fn new(state: MutexGuard<'a, State>, changes: &'a Changes) -> Self {
        Self {
            state,
            changes,
            is_changed: false,
        }
    }
}

impl Deref for StateGuard<'_> {
    type Target = State;

    fn deref(&self) -> &State {
        &self.state
    }
}

impl DerefMut for StateGuard<'_> {
    fn deref_mut(&mut self) -> &mut State {
        self.is_changed = true;
        &mut self.state
    }
}

impl Drop for StateGuard<'_> {
    fn drop(&mut self) {
        if self.is_changed {
            self.changes.record();
        }
    }
}

/// The response to send, and the delay before it.
#[derive(Debug)]
struct Exchange {
    delay: Duration,
    response: Result<Response<Bytes>, Disconnect>,
    /// The status and the reason that the journal has.
    status: Option<u16>,
    reason: Option<String>,
}

/// Ends the connection without an ordinary response: sends `bytes` as they are, then closes or resets it.
#[derive(Clone, Debug, Default, PartialEq, Eq, thiserror::Error)]
#[error("the server ended the connection without a response")]
struct Disconnect {
    bytes: Vec<u8>,
    /// The index of the first byte after the head of the response. The end of `bytes` if the head is cut, and 0 if they
    /// are not HTTP.
    body_start: usize,
    /// Whether to send a TCP `RST` instead of closing.
    reset: bool,
}

impl Disconnect {
    /// Returns the part of a response body that is sent, or all bytes if they are not HTTP.
    fn body(&self) -> &[u8] {
        &self.bytes[self.body_start..]
    }
}

/// How many watchers there may be simultaneously. Each is an open connection.
const MAX_WATCHERS: usize = 64;

/// The time between two events. Changes in between are one event, however many requests a second arrive.
const GAP: Duration = Duration::from_millis(250);

/// The time after which a comment is sent, so that a connection whose client is gone ends.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// The event. It has no content: the reader asks for what it shows.
const CHANGED: &[u8] = b"event: changed\ndata: {}\n\n";

/// Announces the changes of a state to its watchers.
#[derive(Debug, Default)]
struct Changes {
    announcements: watch::Sender<()>,
    /// Whether no watcher has seen the latest announcement. Another one would tell them nothing new.
    is_unseen: Arc<AtomicBool>,
}

impl Changes {
    /// Returns a stream of the changes from now on, or `None` if there are too many already.
    ///
    /// Changes between two events are one change, so a slow reader costs no memory.
    fn stream(&self) -> Option<ChangeStream> {
        if self.announcements.receiver_count() >= MAX_WATCHERS {
            return None;
        }
        let watcher = Watcher {
            announcements: self.announcements.subscribe(),
            is_unseen: Arc::clone(&self.is_unseen),
            is_new: true,
        };
        // Earlier announcements were for other watchers.
        self.is_unseen.store(false, Ordering::Relaxed);
        Some(ChangeStream {
            next: Box::pin(watcher.next()),
        })
    }

    /// Announces a change. Costs next to nothing if there is no watcher, or if the watchers are slower than the
    /// changes.
    fn record(&self) {
        if self.announcements.receiver_count() > 0 && !self.is_unseen.swap(true, Ordering::Relaxed)
        {
            self.announcements.send_replace(());
        }
    }
}

/// The body of `GET /_mock/stream`: server-sent events, one for the beginning and one for each change. Ends when the
/// server stops.
struct ChangeStream {
    next: Pin<Box<dyn Future<Output = Next> + Send>>,
}

/// The next bytes to send, or `None` if the server has stopped.
type Next = Option<(Bytes, Watcher)>;

/// Waits for changes of a state.
#[derive(Debug)]
struct Watcher {
    announcements: watch::Receiver<()>,
    is_unseen: Arc<AtomicBool>,
    /// Whether nothing has been sent.
    is_new: bool,
}

impl Watcher {
    async fn next(mut self) -> Next {
        if self.is_new {
            self.is_new = false;
            return Some((Bytes::from_static(CHANGED), self));
        }
        tokio::time::sleep(GAP).await;
        let changed = tokio::time::timeout(KEEP_ALIVE, self.announcements.changed()).await;
        let bytes: &'static [u8] = match changed {
            Ok(Ok(())) => {
                self.is_unseen.store(false, Ordering::Relaxed);
                CHANGED
            }
            // The server has stopped.
            Ok(Err(_)) => return None,
            Err(_) => b":\n\n",
        };
        Some((Bytes::from_static(bytes), self))
    }
}

impl Body for ChangeStream {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let Some((bytes, watcher)) = ready!(self.next.as_mut().poll(cx)) else {
            // A future that has returned must not be polled again.
            self.next = Box::pin(std::future::ready(None));
            return Poll::Ready(None);
        };
        self.next = Box::pin(watcher.next());
        Poll::Ready(Some(Ok(Frame::data(bytes))))
    }
}

impl fmt::Debug for ChangeStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChangeStream").finish_non_exhaustive()
    }
}

/// The state of a server whose errors have a shape other than the default.
#[cfg(test)]
fn test_shared() -> Arc<Shared> {
    use self::dialect::ErrorShape;
    use self::service::Settings;

    let settings = Settings {
        dialect: Some(Dialect {
            error_shape: ErrorShape::Slug,
            ..Dialect::default()
        }),
        ..Settings::default()
    };
    let initial = InitialState {
        audience: Audience::new(settings),
        endpoints: Endpoints::default(),
        signing_clock: SigningClock::default(),
    };
    let runtime = Handle::current();
    let clock = MockClock::stopped(Timestamp::from_unix(0));
    Shared::new(initial, clock, Duration::from_secs(1), runtime)
}
