//! Webhooks: verify the service's deliveries, read their events, and sign your own for tests.
//!
//! The service posts an event for each recipient of each message, and for each inbound message
//! ([interface section 6](crate::interface#6)). A delivery has three headers: `webhook-signature`, `webhook-timestamp`
//! and `webhook-event`. A [`Verifier`] holds the endpoint's signing secret. It turns headers and body into an
//! [`Event`], or into a [`VerifyError`] with the status to respond with.
//!
//! # Example: an endpoint
//!
//! The verifier rejects forged deliveries, and an `Inbox` (feature `inbox`) handles each event once:
//!
//! ```
//! use audience::inbox::{Inbox, MemoryStore};
//! use audience::webhooks::{EventData, Verifier};
//! use http::{HeaderMap, StatusCode};
//!
//! async fn hook(verifier: &Verifier, inbox: &Inbox, headers: &HeaderMap, body: Vec<u8>) -> StatusCode {
//!     let delivery = match verifier.verify_event(headers, body) {
//!         Ok(delivery) => delivery,
//!         Err(error) => {
//!             eprintln!("rejected a delivery: {error}");
//!             return error.status(); // with an empty body
//!         }
//!     };
//!     let receipt = inbox
//!         .handle(delivery, |event, _attempt| async move {
//!             match event.data {
//!                 EventData::Complained(mail) => println!("drop {}", mail.to),
//!                 EventData::Received(inbound) => println!("reply to {}", inbound.from),
//!                 data if data.is_incomplete() => return Err(std::io::Error::other("an event without its address")),
//!                 _ => {}
//!             }
//!             Ok(())
//!         })
//!         .await;
//!     receipt.status()
//! }
//!
//! # tokio::runtime::Runtime::new()?.block_on(async {
//! let verifier = Verifier::new("6Jm0nFq2pXvZk4Tt")?;
//! // In production, use the store in SQLite, Postgres or Redis.
//! let inbox = Inbox::builder(MemoryStore::new()).build()?;
//! # use audience::webhooks::{EventType, Signer};
//! # let body = br#"{"id": "evt_1", "type": "email.sent", "created_at": 1,
//! #     "data": {"email_id": "em_1", "to": "ada@example.com"}}"#;
//! # let headers = Signer::new("6Jm0nFq2pXvZk4Tt")?
//! #     .sign(&EventType::Sent, std::time::SystemTime::now(), body);
//! # assert_eq!(hook(&verifier, &inbox, &headers, body.to_vec()).await, 200);
//! # assert_eq!(hook(&verifier, &inbox, &headers, body.to_vec()).await, 200);
//! # assert_eq!(hook(&verifier, &inbox, &HeaderMap::new(), body.to_vec()).await, 400);
//! # assert_eq!((inbox.metrics().handled, inbox.metrics().duplicates), (1, 1));
//! # Ok::<(), audience::ConfigError>(()) })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Four ways to receive
//!
//! | with | use | feature |
//! |---|---|---|
//! | any server | [`Verifier::verify_event`] with the headers and the raw body; without an `Inbox`, [`Verifier::verify`] | `webhooks` |
//! | axum | the extractor [`VerifiedEvent`], which is in `webhooks::axum`, too | `axum` |
//! | actix-web | the extractor [`VerifiedEvent`], which is in `webhooks::actix`, too | `actix` |
//! | hyper, AWS Lambda, poem, salvo, layers of axum | `tower::VerifyLayer` | `tower` |
//!
//! The last three accept only POST and respond with 405 to every other method. If you call the verifier yourself,
//! route only POST requests to it: the signature does not cover the method.
//!
//! # Slow and hostile senders
//!
//! The extractors and the layer read the body themselves. The [`VerifierBuilder`] limits the length of a body
//! (`body_limit`), its time (`body_timeout`), and the memory of all unverified bodies together (`body_memory`). All
//! senders share these limits, so also limit the requests and connections of each peer at the proxy in front.
//!
//! # Four rules for a receiver
//!
//! - **Verify the raw body.** The signature covers the timestamp's text, a period, and the bytes of
//!   the body as sent. Parsing and serializing JSON changes those bytes, and decoding and
//!   encoding text may change them. Remove such middleware, or run it after the verification.
//! - **Respond with a 2xx only after the event was handled or stored**, within ten seconds. A success ends the
//!   retries, so an event that is only in memory is lost if the process dies. If the work takes longer, store the
//!   event first: `Inbox::accept` stores it, and a `Worker` handles it.
//! - **Expect to receive an event more than once.** Delivery is at-least-once. The service retries
//!   if the response is late or not a success: ten attempts over about five hours. If you can never
//!   process an event, store it elsewhere and respond with success.
//! - **Deduplicate on [`Event::id`] only.** The id is the same in every delivery of an event. The
//!   timestamp differs, because each attempt is signed again. A hash of the body is
//!   unsuitable, too: two opens in the same second may differ only in their ids. Remember ids for at least six
//!   hours, and longer if you replay old deliveries. An `Inbox` remembers them for 72 hours.
//!
//! # Handling an event once
//!
//! Pass the delivery to an `Inbox` (feature `inbox`): its `handle` runs your code once for each event, its `accept`
//! stores the event for a worker. Both return the response.
//!
//! Without an `Inbox`, do not store the id alone before the work. If the process dies in between, the retry looks like
//! a duplicate and the event is lost. Instead:
//!
//! 1. In one step, insert the verified body into a table in which the event's `id` is unique.
//! 2. Respond with 200 when the insert is committed, or if the id is already there.
//! 3. In a job, read the table, do the work, and mark the row as done afterwards.
//!
//! # What is signed
//!
//! The body's `type` decides the variant of [`EventData`]. The `webhook-event` header also states the
//! type, but is not signed, so it is ignored; [`VerifiedDelivery::event_header_agrees`] compares
//! the two. A delivery whose timestamp differs by more than 300 seconds from this machine's clock
//! is rejected, so that a recorded delivery cannot be replayed later. Synchronize the clock, for example with NTP.
//!
//! # Rotating a secret
//!
//! 1. Add the new secret beside the old one, and deploy: with [`VerifierBuilder::secret`].
//! 2. Change the secret in the dashboard.
//! 3. Wait until no delivery is signed with the old secret any more: until [`Verifier::metrics`] of each process counts
//!    the same for a whole day, because retries of an event take hours. A restart sets the counters to 0.
//! 4. Remove the old secret.
//!
//! # If genuine deliveries are rejected
//!
//! [`Verifier::diagnose`] finds the common causes: JSON that was parsed and serialized again, a body
//! still in base64, a lost newline, a secret in another form or of another endpoint, a timestamp in
//! milliseconds, or a delivery of the Standard Webhooks scheme, which uses the same header names. If an
//! extractor rejected the delivery, use `Rejection::diagnose`.
//!
//! # Tracing
//!
//! With the feature `tracing`, each delivery emits a log event with the target `audience::webhooks`. No log event has
//! an address, a secret, a signature or any part of a body except a known event type and the id of such an event. All
//! four ways to receive emit the same log events about a verification. Only the extractors and the layer emit the
//! causes `method`, `body`, `body_timeout`, `body_memory`, `body_consumed` and `no_verifier`.
//!
//! | delivery | message | level | fields |
//! |---|---|---|---|
//! | accepted | `webhook delivery authenticated` | DEBUG | `secret`, `skew` |
//! | rejected | `webhook delivery rejected` | as below | `cause`, `status`, `error` |
//! | genuine, but late or early | `webhook delivery rejected` | WARN | `cause`, `status`, `error`, `skew` |
//! | accepted, of a known type, but its data is [`EventData::Unknown`] | `webhook event without the members that identify it` | WARN | `type`, `id` |
//!
//! `secret` is the name of the secret that matched. `skew` is how many seconds the timestamp is behind
//! the verifier's clock, negative if it is ahead. `status` is the status to respond with, and `error` is
//! the text of the [`VerifyError`] or of the rejection.
//!
//! | level | `cause` |
//! |---|---|
//! | DEBUG: any stranger can cause it | `missing_header`, `duplicate_header`, `malformed_signature`, `malformed_timestamp`, `method` (not a POST), `body` (not read completely), `body_timeout` |
//! | WARN: a genuine delivery may have been rejected | `body_too_large`, `signature_mismatch`, `too_late`, `too_early`, `invalid_envelope`, `body_memory` |
//! | ERROR: nothing is accepted until it is fixed | `clock_unusable`, `body_consumed`, `no_verifier` |
//!
//! A delivery whose body is not an event (`invalid_envelope`) is first reported as authenticated, then as rejected.
//!
//! # WebAssembly
//!
//! With `default-features = false, features = ["webhooks"]`, the verifier runs on `wasm32-unknown-unknown` with a
//! JavaScript host. The clock is `Date.now()` there.

#[cfg(feature = "actix")]
#[cfg_attr(docsrs, doc(cfg(feature = "actix")))]
pub mod actix;
#[cfg(feature = "axum")]
#[cfg_attr(docsrs, doc(cfg(feature = "axum")))]
pub mod axum;
mod diagnose;
mod error;
mod event;
mod inbound;
mod mail;
#[cfg(any(feature = "actix", feature = "axum", feature = "tower"))]
mod receive;
mod signature;
mod signer;
#[cfg(feature = "tower")]
#[cfg_attr(docsrs, doc(cfg(feature = "tower")))]
pub mod tower;
mod trace;
mod verifier;

pub use diagnose::{BodyChange, Diagnosis, SecretForm};
pub use error::{FaultSide, SignatureHint, VerifyError};
pub use event::{EnvelopeProblem, Event, EventData, EventId, EventType, InvalidEventId};
pub use inbound::{AuthenticationResults, CheckResult, InboundMail};
pub use mail::{BounceType, MailEvent};
#[cfg(feature = "unsubscribe")]
pub(crate) use receive::DataFrames;
#[cfg(any(feature = "actix", feature = "axum", feature = "tower"))]
#[cfg_attr(
    docsrs,
    doc(cfg(any(feature = "actix", feature = "axum", feature = "tower")))
)]
pub use receive::{RejectedDelivery, Rejection};
pub use signature::{EVENT_HEADER, SIGNATURE_HEADER, TIMESTAMP_HEADER};
pub use signer::Signer;
#[cfg(any(feature = "inbox-sqlite", feature = "unsubscribe"))]
pub(crate) use verifier::SystemClock;
#[cfg(feature = "cli")]
pub(crate) use verifier::secrets_from_env;
pub use verifier::{
    Clock, VerifiedDelivery, VerifiedEvent, Verifier, VerifierBuilder, VerifierMetrics,
};
