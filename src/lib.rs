//! For programs that send mail through a service with an audience of contacts: a typed client, a
//! webhook verifier, and a mock of the whole service to test against.
//!
//! # Contacts
//!
//! A [`Client`] has a base URL and a key; [`Client::contacts`] is the handle to the audience. Its
//! methods give builders, and a builder is sent by `.await`.
//!
//! ```
//! # #[cfg(feature = "mock")]
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), audience::Error> {
//! # let server = audience::mock::MockServer::start().await;
//! # let (base_url, key) = (server.url(), server.full_key());
//! use audience::Client;
//! use audience::contacts::NewContact;
//!
//! let contacts = Client::new(base_url, key)?.contacts();
//!
//! contacts.create(NewContact::new("ada@example.com").first_name("Ada")).await?;
//! let ada = contacts.retrieve("ada@example.com").await?;
//! assert!(!ada.unsubscribed);
//! # Ok(()) }
//! # #[cfg(not(feature = "mock"))] fn main() {}
//! ```
//!
//! - [`contacts`]: create, retrieve, list, subscribe, unsubscribe; streams that walk all pages.
//! - [`rule`]: conditions to filter by.
//! - [`Error`]: what went wrong, and whether a write may have been applied all the same.
//! - [`RetryPolicy`]: what is repeated, and what never is.
//! - [`Client::request`]: what the interface document only names.
//! - `blocking`: the same without a runtime.
//!
//! # Webhooks
//!
//! A [`Verifier`](webhooks::Verifier) turns headers and raw body into an [`Event`](webhooks::Event),
//! or says why not. The [`webhooks`] module has the rules that a handler keeps.
//!
//! # A mock of the service
//!
//! With the feature `mock`, `MockServer` is the service inside your tests: its rules, faults of the
//! connection, a clock that you move, and webhook deliveries with retries.
//!
//! # Features
//!
//! | feature | default | what it adds |
//! |---|---|---|
//! | `client` | yes | [`Client`], [`contacts`], [`rule`] |
//! | `rustls` | yes | TLS for the client by rustls, with the system's roots |
//! | `webhooks` | yes | [`webhooks`]: no HTTP client, no runtime |
//! | `native-tls` | | TLS by the system's own library; `rustls` wins where both are on |
//! | `blocking` | | the client for programs without a runtime |
//! | `axum`, `actix` | | extractors for axum 0.8 and actix-web 4 |
//! | `mock` | | the service as a server in your tests |
//! | `wiremock` | | the same service mounted in a `wiremock` server of yours |
//! | `tracing` | | spans and events, under the OpenTelemetry names for HTTP clients |
//!
//! "The interface document" is the service's own; sections are named where a fact comes from it.
//! What it leaves open, and what this crate does about it, is a table in the README.

#![cfg_attr(docsrs, feature(doc_cfg))]

#[cfg(feature = "blocking")]
pub mod blocking;
#[cfg(feature = "client")]
pub mod client;
#[cfg(feature = "client")]
pub mod contacts;
#[cfg(feature = "client")]
mod error;
#[cfg(any(feature = "client", feature = "webhooks"))]
mod json;
#[cfg(feature = "mock")]
pub mod mock;
#[cfg(feature = "client")]
mod properties;
#[cfg(feature = "client")]
pub mod raw;
#[cfg(feature = "client")]
pub mod rule;
#[cfg(feature = "client")]
mod secret;
#[cfg(any(feature = "client", feature = "webhooks"))]
mod string_enum;
#[cfg(any(feature = "client", feature = "webhooks"))]
mod timestamp;
#[cfg(feature = "webhooks")]
pub mod webhooks;

#[cfg(feature = "client")]
#[doc(inline)]
pub use client::{Auth, Client, ClientBuilder, RetryPolicy};
#[cfg(feature = "client")]
pub use error::{ApiError, Error, ErrorCode, ErrorKind, Outcome};
#[cfg(feature = "client")]
pub use http::{Method, StatusCode};
#[cfg(any(feature = "client", feature = "webhooks"))]
pub use timestamp::Timestamp;

/// The README's examples, run as doctests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
