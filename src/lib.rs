//! A client for the contacts API of a mail-sending service, a verifier for its webhooks, and a mock of
//! the whole service for your tests.
//!
//! # Contacts
//!
//! A [`Client`] holds the service's base URL and an API key. [`Client::contacts`] returns a handle whose
//! methods build requests; `.await` sends a request.
//!
//! ```
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
//! ```
//!
//! - [`contacts`]: create, retrieve, list, subscribe, unsubscribe, and streams over all pages.
//! - [`rule`]: conditions that filter a list.
//! - [`Error`]: what went wrong, and whether a write may have been applied anyway.
//! - [`RetryPolicy`]: which requests are retried, and when.
//! - [`Client::request`]: raw requests, for endpoints that the interface document only mentions.
//! - `blocking`: the same calls without an async runtime.
//!
//! # A whole audience
//!
//! With the feature `import`, `contacts.import(rows)` sends any number of contacts in batches, several at once, and
//! goes on after a crash by its journal. `contacts.list().export(file, format)` writes a list to a file.
//!
//! # Webhooks
//!
//! A [`Verifier`](webhooks::Verifier) checks the headers and the raw body of a delivery and returns an
//! [`Event`](webhooks::Event), or an error that says why the delivery is refused. The [`webhooks`] module
//! explains what a handler must do.
//!
//! With the feature `inbox`, an `Inbox` handles every event once, though the service delivers it several times, to several
//! machines, and in any order. It remembers events in memory, SQLite, Postgres or Redis.
//!
//! # A mock of the service
//!
//! With the feature `mock`, `MockServer` runs the service inside your tests. It enforces the service's
//! rules, injects connection faults, has a clock that you control, and delivers webhooks with retries. The feature
//! `mock-server` adds `audience-mock`, the same as a program with a page to look at.
//!
//! # Guides
//!
//! - [First steps]: a client, the first contact, and what each error means.
//! - [Double opt-in]: sign people up without a moment in which an unconfirmed person gets a broadcast.
//! - [A preference page]: topics, the global opt-out, one-click unsubscribe.
//! - [Moving a list here]: a CSV file from another service, with the consent of everybody in it.
//! - [Receiving webhooks]: each event once, on which store, behind which server.
//! - [Testing your application]: contacts in any state, faults, five hours in a second.
//! - [Examine your receiver]: deliveries, genuine and forged, for a receiver in any language.
//! - [Errors and retries]: what a failed call means, and what to do in a web handler.
//! - [Other languages]: the mock server from a shell and from Python.
//!
//! # Features
//!
//! | feature | default | what it adds |
//! |---|---|---|
//! | `client` | yes | [`Client`], [`contacts`], [`rule`] |
//! | `rustls` | yes | TLS for the client with rustls and the system's root certificates |
//! | `webhooks` | yes | [`webhooks`]; needs no HTTP client and no async runtime |
//! | `native-tls` | | TLS with the system's own library; if both are on, `rustls` is used |
//! | `blocking` | | `wait` on every call and stream, for programs without an async runtime |
//! | `import` | | `import` and `export`: a whole audience at a time |
//! | `axum`, `actix` | | webhook extractors for axum 0.8 and actix-web 4 |
//! | `tower` | | a layer that verifies webhooks, for hyper, AWS Lambda and all that speaks tower |
//! | `inbox` | | `inbox`: every webhook event handled once, with a store in memory |
//! | `inbox-sqlite`, `inbox-postgres`, `inbox-redis` | | its stores in SQLite, Postgres and Redis |
//! | `inbox-conformance` | | the cases that every store must pass, for tests of a store of your own |
//! | `mock` | | the service as a server in your tests |
//! | `examine` | | `mock::examine`: examines a receiver of webhooks |
//! | `mock-server` | | `audience-mock`: the mock as a program |
//! | `wiremock` | | the same service, mounted in a `wiremock` server |
//! | `tracing` | | spans and events with the OpenTelemetry names for HTTP clients |
//!
//! "The interface document" is the service's own document. A fact that comes from it is given with its
//! section. The README lists the questions that the document leaves open, and what this crate does about
//! each.
//!
//! [First steps]: https://docs.rs/audience/latest/audience/guides/first_steps/index.html
//! [Double opt-in]: https://docs.rs/audience/latest/audience/guides/double_opt_in/index.html
//! [A preference page]: https://docs.rs/audience/latest/audience/guides/preference_page/index.html
//! [Moving a list here]: https://docs.rs/audience/latest/audience/guides/moving_a_list/index.html
//! [Receiving webhooks]: https://docs.rs/audience/latest/audience/guides/receiving_webhooks/index.html
//! [Testing your application]: https://docs.rs/audience/latest/audience/guides/testing/index.html
//! [Examine your receiver]: https://docs.rs/audience/latest/audience/guides/examine/index.html
//! [Errors and retries]: https://docs.rs/audience/latest/audience/guides/errors/index.html
//! [Other languages]: https://docs.rs/audience/latest/audience/guides/other_languages/index.html

#![cfg_attr(docsrs, feature(doc_cfg))]

#[cfg(feature = "blocking")]
pub mod blocking;
#[cfg(feature = "client")]
pub mod client;
#[cfg(feature = "client")]
pub mod contacts;
#[cfg(feature = "client")]
mod error;
#[cfg(feature = "import")]
#[cfg_attr(docsrs, doc(cfg(feature = "import")))]
pub mod export;
// The guides name items of these features.
#[cfg(all(
    any(doc, doctest),
    feature = "import",
    feature = "axum",
    feature = "tower",
    feature = "inbox-sqlite",
    feature = "inbox-postgres",
    feature = "inbox-redis",
    feature = "examine"
))]
pub mod guides;
#[cfg(feature = "import")]
#[cfg_attr(docsrs, doc(cfg(feature = "import")))]
pub mod import;
#[cfg(feature = "inbox")]
#[cfg_attr(docsrs, doc(cfg(feature = "inbox")))]
pub mod inbox;
#[cfg(feature = "mock")]
pub mod mock;
#[cfg(feature = "client")]
mod properties;
#[cfg(feature = "client")]
pub mod raw;
#[cfg(feature = "client")]
pub mod rule;
#[cfg(any(feature = "client", feature = "webhooks"))]
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
pub use secret::ConfigError;
#[cfg(any(feature = "client", feature = "webhooks"))]
pub use timestamp::{Timestamp, TimestampError};

/// Runs the README's examples as doctests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
