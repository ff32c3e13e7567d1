//! Webhooks: verify, parse, sign.

mod authenticated;
mod authentication_results;
mod builder;
mod clock;
mod diagnose;
mod envelope;
mod error;
mod event;
mod event_type;
mod inbound;
mod mail;
mod secret_error;
mod signature;
#[cfg(any(feature = "actix", feature = "axum"))]
mod signed_event;
mod signer;
mod verifier;

#[cfg(feature = "actix")]
#[cfg_attr(docsrs, doc(cfg(feature = "actix")))]
pub mod actix;
#[cfg(feature = "axum")]
#[cfg_attr(docsrs, doc(cfg(feature = "axum")))]
pub mod axum;

pub use authenticated::Authenticated;
pub use authentication_results::{AuthenticationResult, AuthenticationResults};
pub use builder::VerifierBuilder;
pub use clock::{Clock, SystemClock};
pub use diagnose::{BodyChange, Diagnosis, SecretForm};
pub use envelope::EnvelopeProblem;
pub use error::{Fault, VerifyError};
pub use event::{Event, EventData, EventId, InvalidEventId};
pub use event_type::EventType;
pub use inbound::InboundMail;
pub use mail::{BounceType, MailEvent};
pub use secret_error::SecretError;
pub use signature::{EVENT_HEADER, SIGNATURE_HEADER, SignatureHint, TIMESTAMP_HEADER};
pub use signer::Signer;
pub use verifier::Verifier;
