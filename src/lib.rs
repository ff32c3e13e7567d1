//! Contacts, consent and webhooks of a mail-sending service.
#![cfg_attr(docsrs, feature(doc_cfg))]

#[cfg(any(feature = "client", feature = "webhooks"))]
mod secret;
#[cfg(any(feature = "client", feature = "webhooks"))]
mod timestamp;

#[cfg(feature = "webhooks")]
pub mod webhooks;

#[cfg(feature = "mock")]
pub mod mock;

#[cfg(any(feature = "client", feature = "webhooks"))]
pub use timestamp::Timestamp;
