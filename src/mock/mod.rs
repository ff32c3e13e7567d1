//! The whole service as a server in your tests.
//!
//! A [`MockServer`] answers every endpoint of the interface document as the document says, on a port of its own, and
//! delivers signed webhooks. What the document leaves open it reads in one way, and under a [`Dialect`] in each other
//! way. It is strict: a request that the document does not allow is refused with a message that names what is wrong
//! with it.
//!
//! # Example: a test
//!
//! ```
//! use audience::mock::MockServer;
//! use std::io::{Read, Write};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> std::io::Result<()> {
//! let server = MockServer::start().await;
//! let mut connection = std::net::TcpStream::connect(server.url().trim_start_matches("http://"))?;
//!
//! let body = r#"{"email": "ada@example.com", "first_name": "Ada"}"#;
//! write!(
//!     connection,
//!     "POST /contacts HTTP/1.1\r\nhost: mock\r\nconnection: close\r\nauthorization: Bearer {}\r\n\
//!      content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
//!     server.full_key(),
//!     body.len(),
//! )?;
//! let mut answer = String::new();
//! connection.read_to_string(&mut answer)?;
//!
//! assert!(answer.starts_with("HTTP/1.1 201"), "{answer}");
//! assert!(server.contact("ada@example.com").is_some());
//! assert_eq!(server.requests()[0].path, "/contacts");
//! # Ok(())
//! # }
//! ```
//!
//! # Time
//!
//! There is one clock for everything: `created_at`, rules with days, deliveries and their retries. It shows the system's
//! time, or stands still at a time of the test's choosing ([`MockServerBuilder::clock`]); either way
//! [`MockServer::advance`] lets hours pass at once, and everything that falls due on the way happens, in order and at
//! its own time.
//!
//! # What goes wrong
//!
//! [`MockServer::fault`] spoils the next requests that match: a status, a delay, a connection closed before or after the
//! request was applied, half an answer, something that is not HTTP. [`Fault`] has the list.
//!
//! # Webhooks
//!
//! Events are delivered to every [`webhook_endpoint`](MockServer::webhook_endpoint): those that `POST /emails` gives
//! rise to, and those that [`MockServer::send_event`] injects. A receiver has 10 seconds of real time to answer with
//! 2xx; everything else, redirects too, is a failed attempt. After a failure the next attempt is made 35 seconds later,
//! and each gap is twice the one before: ten attempts in 4 h 58 min. Every attempt carries the same bytes and a
//! signature of its own. With a clock that stands still, an endpoint is sent one event after the other, so that the
//! order is the same on every run; otherwise as they come.
//!
//! # For other languages
//!
//! `cargo run --example mock_server -- --port 4010` is the same server as a program; `--help` lists its flags. What the
//! Rust face does can be done by HTTP as well, on the same port. These calls need no key, are not recorded and meet no
//! faults. They take and give JSON, and answer 204 without a body where no answer is shown.
//!
//! | call | body | answer |
//! |---|---|---|
//! | `GET /_mock/health` | | `{"status": "ok"}` |
//! | `POST /_mock/reset` | | |
//! | `PUT /_mock/topics/{name}` | `{"default": true}` | |
//! | `PUT /_mock/segments/{id}` | `{"contacts": ["ada@example.com"]}` or `{"rule": {…}}` | |
//! | `POST /_mock/contacts/{address}/complaint` | | |
//! | `POST /_mock/contacts/{address}/engagement` | `{"what": "opened", "at": 1700000000}`; now without `at` | |
//! | `GET /_mock/clock` | | `{"now": 1700000000}` |
//! | `POST /_mock/clock` | `{"advance": 3600}` or `{"set": 1700000000}` | `{"now": 1700003600}`, once all that fell due is done |
//! | `PUT /_mock/ceiling` | `{"contacts": 10}`, or `{"contacts": null}` for no limit | |
//! | `POST /_mock/faults` | see below | |
//! | `DELETE /_mock/faults` | | |
//! | `GET /_mock/requests` | | `{"data": [{"method", "path", "query", "headers", "body", "status"}]}` |
//! | `DELETE /_mock/requests` | | |
//! | `PUT /_mock/endpoints/{name}` | `{"url": "http://…", "secret": "…"}` | |
//! | `DELETE /_mock/endpoints/{name}` | | |
//! | `POST /_mock/events` | `{"type": "email.bounced", "data": {…}}` | `{"id": "evt_1"}`, once the first attempts are over |
//! | `POST /_mock/events/{id}/redeliver` | | |
//! | `GET /_mock/attempts` | | `{"data": [{"event_id", "endpoint", "attempt", "at", "status" or "error", "next_at"}]}` |
//!
//! A fault is one of `{"status": 503}`, `{"delay_ms": 200}`, `{"close": "before"}` or `"after"` the request is
//! applied, `"mid_body"` or `"reset"` in mid-body, `{"garbage": true}` and `{"body": …}`, with any of `"times"`, `"method"`, `"path"`,
//! `"retry_after"`, `"headers"`, `"delay_ms"` and `"body"` beside it. It means what [`Fault`] says.

mod builder;
mod clock;
mod control;
mod delivery;
mod exchange;
mod faults;
mod journal;
mod mock_server;
mod server;
mod service;
mod state;
#[cfg(feature = "wiremock")]
mod wiremock;

pub use builder::MockServerBuilder;
pub use clock::Clock;
pub use delivery::Attempt;
pub use faults::Fault;
pub use journal::RecordedRequest;
pub use mock_server::{Advance, MockServer};
pub use service::contact::StoredContact;
pub use service::dialect::{
    BatchMessage, BatchRefusal, ConsentForm, Dialect, EndOfList, ErrorShape, JoinedMember, LeftOut,
    MissingName, OtherContentType, PropertyValues, ReasonAfterSubscribe, SegmentWithRules,
    SuccessStatus, UnknownMembers,
};
pub use service::segment::SegmentKind;
#[cfg(feature = "wiremock")]
pub use wiremock::{MockService, MockServiceBuilder};
