//! The service as a server for your tests.
//!
//! A [`MockServer`] listens on its own port, has every endpoint of the interface document, and delivers signed
//! webhooks. It is strict: it refuses a request that the document does not allow, and the error message says why. If
//! the document leaves a choice, the mock makes one; a [`Dialect`] selects another.
//!
//! # Example: a test
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
//! `server.client_builder()` returns a builder for a client with other timeouts or retries.
//!
//! Without the feature `client`, send requests to [`MockServer::url`] with the key
//! [`MockServer::full_key`].
//!
//! # Time
//!
//! One clock sets the time of everything: `created_at`, rules with days, deliveries and their retries. By default it
//! shows the system's time. [`MockServerBuilder::clock`] stops it at a time of your choice. Either way,
//! [`MockServer::advance`] lets hours pass at once: everything due on the way happens in order, each at its due time.
//!
//! # Seeds
//!
//! A test can start with contacts in any state of interface section 3.1, without the requests that lead there.
//! [`MockServer::seed_contact`] stores one [`SeedContact`]. A seed has everything at once: contacts, topics, segments,
//! webhook endpoints, the clock, the ceiling, the keys and the dialect. Give it to [`MockServerBuilder::seed_file`] as a
//! file, or to [`MockServer::seed`] as JSON:
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
//! A seed applies as a whole or, if a part is invalid, not at all. [`MockServer::reset`] goes back to the seeds of the
//! builder. The guide `docs/other-languages.md` describes every member.
//!
//! # Faults
//!
//! [`MockServer::fault`] adds a fault for the next requests that match: an error status, a delay, a connection closed
//! before or after the request is applied, a truncated response, or bytes that are not HTTP. [`Fault::after`] lets a number
//! of requests through first. See [`Fault`].
//!
//! # Limits
//!
//! A client has 60 s for the headers of a request, and an idle connection is closed after 60 s. A body that takes
//! longer than 60 s gets a 408, a body over 16 MiB a 413, and headers over 128 KiB a 431. All bodies that are being
//! read at once can take up 64 MiB; a body that exceeds that gets a 503 with `Retry-After: 1`. A connection whose client
//! reads nothing of a response for 60 s is reset. 64 readers of `GET /_mock/stream` can be connected at once; another
//! one gets a 503. The server serves 1,000 connections simultaneously; further ones wait.
//!
//! The server keeps the newest 1,000 requests and the newest 1,000 events whose delivery has ended. It keeps fewer if
//! the requests or the bodies of the events take up more than 64 MiB, but always the newest one.
//!
//! # Webhooks
//!
//! Every [`webhook_endpoint`](MockServer::webhook_endpoint) receives the events that `POST /emails` causes and those
//! that [`MockServer::send_event`] sends. A receiver has 10 seconds of real time to send a complete 2xx response.
//! Anything else, including a redirect, is a failed attempt. The next attempt follows after 35 seconds, and each gap is
//! twice the previous one: ten attempts in 4 h 58 min. All attempts carry the same bytes; each is signed anew.
//!
//! [`MockServer::delivery_fault`] adds a fault for the next deliveries: one is repeated, late, out of order, or not
//! genuine. See [`DeliveryFault`]. [`MockServerBuilder::signing_clock`] signs with the system's clock, for a receiver in
//! another process.
//!
//! With a stopped clock, an endpoint receives one event at a time, in the same order on every run. With a running
//! clock, it receives up to 16 at once, and all endpoints together up to 64.
//!
//! [`examine`](examine()), with the feature of that name, does the opposite: it sends a receiver deliveries that it has to accept and others that it
//! has to refuse, and says what is wrong with it.
//!
//! # Mail
//!
//! `POST /emails` takes `from`, `to` (an address or several), `subject` and anything else.
//! [`MockServer::sent_mail`] returns what was sent. For each recipient, the mock publishes what happens to the mail. The
//! local part of the address, up to a `+`, decides what that is, in any domain:
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
//! | `pending@…` | `email.sent`; the rest is up to [`MockServer::mail_outcome`] |
//! | a suppressed address | `email.refused` |
//! | any other | `email.sent`, `email.delivered` |
//!
//! All of these but the delivery of a delayed mail happen at once. [`MockServer::mail_outcome`] applies another outcome
//! to a sent mail; see [`MailOutcome`]. [`MockServer::receive_mail`] receives a mail.
//!
//! # For other languages
//!
//! `audience-mock` runs the same server as a program, with a web page, subcommands and HTTP calls that do what the methods
//! of [`MockServer`] do. `cargo install audience --features mock-server` installs it. The guide
//! `docs/other-languages.md` lists its commands and calls.

mod builder;
mod changes;
mod clock;
mod control;
mod delivery;
mod description;
#[cfg(feature = "examine")]
mod examine;
mod faults;
mod http;
mod journal;
mod mock_server;
mod page;
mod recorded_request;
mod request_handler;
mod response;
mod seeds;
mod server;
mod service;
mod shared;
mod state;
#[cfg(feature = "wiremock")]
mod wiremock;

pub use builder::MockServerBuilder;
pub use clock::MockClock;
pub use delivery::{DeliveryAttempt, DeliveryFault, SigningClock};
#[cfg(feature = "examine")]
pub use examine::{
    Check, CheckReport, Examination, ExamineReceiver, Finding, UnknownCheck, Verdict, examine,
};
pub use faults::Fault;
pub use mock_server::MockServer;
pub use recorded_request::{HandledRequest, RecordedRequest};
pub use service::contact::Reason;
pub use service::dialect::UnknownChoice;
pub use service::dialect::{
    BatchMessage, BatchRefusal, ConsentForm, Dialect, EndOfList, ErrorShape, JoinedMember,
    MissingName, OmittedMembers, OtherContentType, PropertyValues, ReasonAfterSubscribe,
    SegmentWithRules, SuccessStatus, UnknownMembers,
};
pub use service::engagement::EngagementKind;
pub use service::inbound_mail::InboundMailSeed;
pub use service::mail_outcome::MailOutcome;
pub use service::seed_contact::SeedContact;
pub use service::seed_contact::StoredContact;
pub use service::segment::SegmentKind;
pub use service::sent_mail::SentMail;
pub use shared::ClockMove;
#[cfg(feature = "wiremock")]
pub use wiremock::MockService;
