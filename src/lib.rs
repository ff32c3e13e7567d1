//! Contacts, consent and webhooks of a mail-sending service.
#![cfg_attr(docsrs, feature(doc_cfg))]

#[cfg(feature = "blocking")]
#[cfg_attr(docsrs, doc(cfg(feature = "blocking")))]
pub mod blocking;
#[cfg(feature = "client")]
pub mod client;
#[cfg(feature = "client")]
mod code;
#[cfg(feature = "client")]
pub mod contacts;
#[cfg(feature = "client")]
mod error;
#[cfg(feature = "client")]
pub mod raw;
#[cfg(feature = "client")]
pub mod rule;
#[cfg(any(feature = "client", feature = "webhooks"))]
mod secret;
#[cfg(any(feature = "client", feature = "webhooks"))]
mod timestamp;
#[cfg(feature = "client")]
mod wire;

#[cfg(feature = "webhooks")]
pub mod webhooks;

#[cfg(feature = "mock")]
pub mod mock;

#[cfg(feature = "client")]
pub use client::{Auth, Client, ClientBuilder, RetryPolicy};
#[cfg(feature = "client")]
pub use code::ErrorCode;
#[cfg(feature = "client")]
pub use error::{ApiError, Error, ErrorKind, Outcome};
#[cfg(feature = "client")]
pub use http::{Method, StatusCode};
#[cfg(any(feature = "client", feature = "webhooks"))]
pub use timestamp::Timestamp;
