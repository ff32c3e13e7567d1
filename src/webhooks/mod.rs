//! Webhooks: verify the service's deliveries, read their events, and sign your own for tests.
//!
//! The service posts an event for each recipient of each message, and for each inbound message
//! (interface section 6). A delivery has three headers: `webhook-signature`, `webhook-timestamp` and
//! `webhook-event`. A [`Verifier`] holds the endpoint's signing secret. It turns headers and body
//! into an [`Event`], or into a [`VerifyError`] with the status to respond with.
//!
//! # Example: a handler
//!
//! ```
//! use std::collections::HashSet;
//! use audience::webhooks::{Event, EventData, Verifier};
//! use http::{HeaderMap, StatusCode};
//!
//! fn hook(
//!     verifier: &Verifier,
//!     seen: &mut HashSet<String>,
//!     headers: &HeaderMap,
//!     body: &[u8],
//! ) -> StatusCode {
//!     let event = match verifier.verify(headers, body) {
//!         Ok(event) => event,
//!         Err(error) => {
//!             eprintln!("refused a delivery: {error}");
//!             return error.status(); // with an empty body
//!         }
//!     };
//!     if seen.insert(event.id.as_str().to_owned()) {
//!         enqueue(event);
//!     }
//!     StatusCode::NO_CONTENT
//! }
//!
//! fn enqueue(event: Event) {
//!     // A task or a queue takes the event. This is what it may do with it:
//!     match event.data {
//!         EventData::Bounced(mail) | EventData::Complained(mail) => println!("drop {}", mail.to),
//!         EventData::Received(inbound) => println!("reply to {}", inbound.from),
//!         _ => {}
//!     }
//! }
//! # use audience::webhooks::{EventType, Signer};
//! # let body = br#"{"id": "evt_1", "type": "email.sent", "created_at": 1, "data": {}}"#;
//! # let headers = Signer::new("6Jm0nFq2pXvZk4Tt")?
//! #     .sign(&EventType::Sent, std::time::SystemTime::now(), body);
//! # let verifier = Verifier::new("6Jm0nFq2pXvZk4Tt")?;
//! # let mut seen = HashSet::new();
//! # assert_eq!(hook(&verifier, &mut seen, &headers, body), 204);
//! # assert_eq!(hook(&verifier, &mut seen, &HeaderMap::new(), body), 400);
//! # assert!(seen.contains("evt_1"));
//! # Ok::<(), audience::ConfigError>(())
//! ```
//!
//! # Four ways to receive
//!
//! | with | use | feature |
//! |---|---|---|
//! | any server | [`Verifier::verify`] with the headers and the raw body | `webhooks` |
//! | axum | the extractor [`VerifiedEvent`] | `axum` |
//! | actix-web | the extractor [`VerifiedEvent`] | `actix` |
//! | hyper, AWS Lambda, poem, salvo, layers of axum | `tower::VerifyLayer` | `tower` |
//!
//! The last three read the body themselves, with limits for its length, its time and the memory of all
//! unverified bodies together. The limits count all senders together. So that one stranger cannot use
//! them up, limit the requests and connections of each peer at the proxy in front.
//!
//! # Four rules for a receiver
//!
//! - **Verify the raw body.** The signature covers the timestamp's text, a period, and the bytes of
//!   the body as sent. Parsing and serializing JSON changes those bytes, and so may decoding and
//!   encoding text. Remove middleware that does so, or run it after the verification.
//! - **Respond within ten seconds** with any 2xx, before the work is done: put the event into a
//!   queue or a task first. A later response counts as a failed attempt.
//! - **Expect to receive an event more than once.** Delivery is at-least-once. The service retries
//!   if the response is late or not a success: ten attempts over about five hours. If an event can
//!   never be processed, respond with success and set it aside.
//! - **Deduplicate on [`Event::id`] only.** The id is the same in every delivery of an event. The
//!   timestamp differs, because each attempt is signed again. A hash of the body is not an id
//!   either: two opens in the same second can differ in nothing but their ids. Remember ids for a
//!   day, or longer if you store and replay deliveries. An `Inbox` (feature `inbox`) does all of this.
//!
//! Without an `Inbox`:
//!
//! 1. In one step, insert the event's `id`, and nothing else, into a table where it is unique. Respond with
//!    200 if it was there and its work is done.
//! 2. Store the event with it, and do the work elsewhere.
//! 3. Respond immediately. A response other than 2xx asks for another attempt.
//!
//! # What is signed
//!
//! The body's `type` decides the variant of [`EventData`]. The `webhook-event` header repeats the
//! type but is not signed, so it is ignored; [`VerifiedDelivery::event_header_agrees`] compares
//! the two. A delivery whose timestamp differs by more than 300 seconds from this machine's clock
//! is refused, so that a recorded delivery cannot be replayed later. Keep the clock right.
//!
//! # Rotating a secret
//!
//! 1. Add the new secret beside the old one, and deploy: with [`VerifierBuilder::secret`].
//! 2. Change the secret in the dashboard.
//! 3. Wait until [`VerifiedDelivery::secret_name`] no longer returns the old secret's name.
//! 4. Remove the old secret.
//!
//! # If genuine deliveries are refused
//!
//! [`Verifier::diagnose`] finds the common causes: JSON that was parsed and serialized again, a body
//! still in base64, a lost newline, a secret in another form or of another endpoint, a timestamp in
//! milliseconds, a delivery of the Standard Webhooks scheme, which uses the same header names. With
//! an extractor, the rejection has a `diagnose` of its own.
//!
//! # Tracing
//!
//! With the feature `tracing`, each delivery is an event with the target `audience::webhooks`. No event
//! has an address, an event id, a secret, a signature or anything of a body. All four ways emit the same
//! events.
//!
//! | delivery | message | level | fields |
//! |---|---|---|---|
//! | accepted | `webhook delivery authenticated` | DEBUG | `secret`, `skew` |
//! | refused | `webhook delivery refused` | as below | `cause`, `status`, `error` |
//! | genuine, but late or early | `webhook delivery refused` | WARN | `cause`, `status`, `error`, `skew` |
//!
//! `secret` is the name of the secret that matched. `skew` is how many seconds the timestamp is behind
//! the verifier's clock, negative if it is ahead. `status` is the status to respond with, and `error` is
//! the text of the [`VerifyError`] or of the rejection.
//!
//! | level | `cause` |
//! |---|---|
//! | DEBUG: any stranger can cause it | `missing_header`, `duplicate_header`, `malformed_signature`, `malformed_timestamp`, `body_too_large`, `body` (not read completely), `body_timeout` |
//! | WARN: a genuine delivery may have been refused | `signature_mismatch`, `too_late`, `too_early`, `invalid_envelope`, `body_memory` |
//! | ERROR: nothing is accepted until it is fixed | `clock_unusable`, `body_consumed`, `no_verifier` |
//!
//! A delivery whose body is not an event (`invalid_envelope`) is first authenticated, and then refused.
//!
//! # WebAssembly
//!
//! The verifier runs on `wasm32-unknown-unknown` with a JavaScript host. The clock is `Date.now()`
//! there.

#[cfg(feature = "actix")]
#[cfg_attr(docsrs, doc(cfg(feature = "actix")))]
pub mod actix;
#[cfg(feature = "axum")]
#[cfg_attr(docsrs, doc(cfg(feature = "axum")))]
pub mod axum;
mod diagnose;
mod error;
mod event;
mod headers;
mod inbound;
mod mail;
#[cfg(any(feature = "actix", feature = "axum", feature = "tower"))]
mod read_limits;
#[cfg(any(feature = "actix", feature = "axum", feature = "tower"))]
mod receive;
mod signature;
mod signer;
#[cfg(feature = "tower")]
#[cfg_attr(docsrs, doc(cfg(feature = "tower")))]
pub mod tower;
mod trace;
mod verified;
mod verifier;

pub use diagnose::{BodyChange, Diagnosis, SecretForm};
pub use error::{FaultSide, VerifyError};
pub use event::{EnvelopeProblem, Event, EventData, EventId, EventType, InvalidEventId};
pub use headers::{EVENT_HEADER, SIGNATURE_HEADER, TIMESTAMP_HEADER};
pub use inbound::{AuthenticationResults, CheckResult, InboundMail};
pub use mail::{BounceType, MailEvent};
#[cfg(any(feature = "actix", feature = "axum", feature = "tower"))]
#[cfg_attr(
    docsrs,
    doc(cfg(any(feature = "actix", feature = "axum", feature = "tower")))
)]
pub use receive::{RefusedDelivery, Rejection};
pub use signature::SignatureHint;
pub use signer::Signer;
pub use verified::{VerifiedDelivery, VerifiedEvent};
#[cfg(feature = "inbox-sqlite")]
pub(crate) use verifier::SystemClock;
pub use verifier::{Clock, Verifier, VerifierBuilder};
