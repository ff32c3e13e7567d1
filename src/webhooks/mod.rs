//! Webhooks: tell the service's deliveries from forgeries, read them, and sign some of your own.
//!
//! The service posts an event for every message it sent, for each of its recipients, and for mail
//! that came in (interface section 6). Three headers come with it: `webhook-signature`,
//! `webhook-timestamp` and `webhook-event`. A [`Verifier`] holds the endpoint's signing secret and
//! turns headers and body into an [`Event`], or into a [`VerifyError`] that says what to answer.
//!
//! # In a handler
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
//!             eprintln!("a delivery was refused: {error}");
//!             return error.status(); // and an empty body
//!         }
//!     };
//!     if seen.insert(event.id.as_str().to_owned()) {
//!         hand_over(event);
//!     }
//!     StatusCode::NO_CONTENT
//! }
//!
//! fn hand_over(event: Event) {
//!     // To a task or a queue. Here only what it might do there:
//!     match event.data {
//!         EventData::Bounced(mail) | EventData::Complained(mail) => println!("drop {}", mail.to),
//!         EventData::Received(inbound) => println!("answer {}", inbound.from),
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
//! # Ok::<(), audience::webhooks::SecretError>(())
//! ```
//!
//! With the features `axum` and `actix` there are extractors that do the first half of this.
//!
//! # Four rules for a receiver
//!
//! - **Verify the raw body.** The signature covers the timestamp's text, a period and the body's
//!   bytes as they were sent. JSON that was parsed and written again is other bytes, and so is text
//!   that was decoded and encoded again: middleware that does so has to go, or come later.
//! - **Answer within ten seconds**, with any 2xx, before the work is done: put the event into a
//!   queue or a task and answer. A later answer is a failed attempt.
//! - **Count on seeing an event again.** Delivery is at-least-once: what was not answered in time,
//!   or with anything but success, comes again, ten attempts over about five hours. An event that
//!   cannot be processed, ever, is best answered with success and put aside.
//! - **Deduplicate on [`Event::id`] only.** It is the same in every delivery of an event. The
//!   timestamp is not: each attempt is signed anew. Nor is a hash of the body an id: two opens in
//!   one second can be alike but for theirs. Remember ids for a day, and longer if deliveries are
//!   kept and replayed.
//!
//! # What is believed
//!
//! The body's `type` decides which [`EventData`] comes out. The `webhook-event` header says the
//! same, but nobody signed it, so it is not looked at; [`AuthenticatedDelivery::event_header_agrees`]
//! compares the two. A delivery whose timestamp is more than 300 seconds away from this machine's
//! clock is refused, so that a delivery that somebody wrote down cannot be played back: keep the
//! clock right.
//!
//! # Rotating a secret
//!
//! Add the new secret beside the old one ([`VerifierBuilder::secret`]), roll that out, change the
//! secret in the dashboard, wait until [`AuthenticatedDelivery::secret_name`] no longer shows the old one,
//! and take it away.
//!
//! # When deliveries are refused that should not be
//!
//! [`Verifier::diagnose`] tries what commonly goes wrong and names it: JSON that was written again,
//! a lost newline, a secret in another form or of another endpoint, a delivery of the Standard
//! Webhooks scheme, whose headers have the same names.

mod authenticated_delivery;
mod builder;
mod clock;
mod delivery_headers;
mod diagnose;
mod envelope;
mod envelope_problem;
mod error;
mod event;
mod event_data;
mod event_id;
mod event_type;
#[cfg(any(feature = "actix", feature = "axum"))]
mod extractor;
mod inbound;
mod key_ring;
mod mail;
mod secret_error;
mod settings;
mod signature;
mod signer;
mod trace;
mod verifier;

#[cfg(feature = "actix")]
#[cfg_attr(docsrs, doc(cfg(feature = "actix")))]
pub mod actix;
#[cfg(feature = "axum")]
#[cfg_attr(docsrs, doc(cfg(feature = "axum")))]
pub mod axum;

pub use authenticated_delivery::AuthenticatedDelivery;
pub use builder::VerifierBuilder;
pub use clock::{Clock, SystemClock};
pub use delivery_headers::{EVENT_HEADER, SIGNATURE_HEADER, TIMESTAMP_HEADER};
pub use diagnose::{BodyChange, Diagnosis, SecretForm};
pub use envelope_problem::EnvelopeProblem;
pub use error::{FaultSide, VerifyError};
pub use event::Event;
pub use event_data::EventData;
pub use event_id::{EventId, InvalidEventId};
pub use event_type::EventType;
pub use inbound::{AuthenticationResults, CheckResult, InboundMail};
pub use mail::{BounceType, MailEvent};
pub use secret_error::SecretError;
pub use signature::SignatureHint;
pub use signer::Signer;
pub use verifier::Verifier;
