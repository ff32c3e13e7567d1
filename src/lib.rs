//! A client for the contacts API of a mail-sending service, a verifier and an inbox for its webhooks, and a mock of the
//! whole service for your tests. The page [`interface`] describes the service. [First steps] ends with its words, such as
//! contact, topic, answer, broadcast, segment and opt-out.
//!
//! # Contacts
//!
//! Create one [`Client`] when your program starts. It holds the service's base URL and an API key, and clones share its
//! connections. [`Contacts`](contacts::Contacts) has a method for each call, and `.await` sends the call.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), audience::Error> {
//! # let server = audience::mock::MockServer::start().await;
//! # let (base_url, key) = (server.url(), server.full_key());
//! use audience::Client;
//! use audience::contacts::NewContact;
//!
//! let contacts = Client::new(base_url, key)?.contacts(); // or Client::from_env()?
//!
//! contacts.create(NewContact::new("ada@example.com").first_name("Ada")).await?;
//! match contacts.find("ada@example.com").await? {
//!     Some(ada) => println!("Ada opted out: {}", ada.unsubscribed),
//!     None => println!("Ada is not a contact"),
//! }
//! # Ok(()) }
//! ```
//!
//! - [`contacts`]: create, retrieve, update, list, subscribe and unsubscribe contacts, and stream all pages of a list.
//! - [`emails`]: send mail. The interface does not show the fields of a mail, so they are our reading.
//! - [`rule`]: filter a list by properties and engagement.
//! - [`Error`]: find out what went wrong, and whether a change may have been made anyway.
//! - [`RetryPolicy`]: set how often and how long requests are retried.
//! - [`Client::request`]: send requests to endpoints for which this crate has no method.
//! - [`blocking`]: wait for a client's calls without an async runtime.
//!
//! # Import and export
//!
//! With the feature `import`, [`contacts.import(rows)`][`import`] sends any number of contacts, several batches in
//! parallel, and resumes from its journal after a crash. [`contacts.list().export(file, format)`][`export`] writes a
//! list to CSV or JSON lines.
//!
//! # Webhooks
//!
//! A [`Verifier`](webhooks::Verifier) checks the headers and the raw body of a delivery. It returns an
//! [`Event`](webhooks::Event), or an error that says why the delivery is rejected. The module [`webhooks`] has
//! extractors for axum and actix-web, a layer for tower, and the rules for a receiver.
//!
//! The service may deliver an event several times and to several machines. Events arrive in any order. With the feature
//! `inbox`, an [`Inbox`] drops the duplicates. It stores the ids of events in SQLite, Postgres or Redis, or in memory
//! for tests. If your handler fails, it runs again at the next delivery, and the service gives up after ten. A worker
//! retries, and then parks the event. [Receiving webhooks] lists the rare cases in which a handler runs again after a
//! success, and [Webhooks in production] shows how to exclude most of them.
//!
//! With the feature `serve`, [`serve`] runs the web server of such a receiver with its workers, until SIGTERM.
//!
//! # Unsubscribe links
//!
//! With the feature `unsubscribe`, [`UnsubscribeLinks`] makes the links and the one-click headers of your mail, and an
//! [`UnsubscribeService`] responds to them with a preference page. It stores each opt-out before it acknowledges it,
//! and sends it until the service has it. It also asks new subscribers to confirm their address, and sends the mails of
//! an issue, each once.
//!
//! # A mock of the service
//!
//! With the feature `mock`, a [`MockServer`] runs the service inside a test. It applies the service's rules, injects
//! faults, has a clock that you control, and delivers webhooks with retries. The feature `mock-server` adds the program
//! `audience-mock`, which runs the same server. Both have a web page.
//!
//! # Guides
//!
//! - [First steps]: create, retrieve and list contacts, and read an error.
//! - [Double opt-in]: sign people up, and send them no broadcast before they confirm.
//! - [Unsubscribe links]: one click and a preference page, and no opt-out is lost.
//! - [A newsletter in one program]: signup, preference page, one click and webhooks together.
//! - [Importing a list]: import a CSV file from another service and keep every opt-out in it.
//! - [Keeping a list in step]: send the changes of a table every night, opt-outs first.
//! - [For your support team]: why somebody gets no mail, a changed address, and erasing a contact.
//! - [Errors and retries]: what to do after a failed call, in a web handler and in a job.
//! - [Receiving webhooks]: verify each delivery and drop duplicates.
//! - [Webhooks in production]: choose a store, connect to Postgres, handle an event exactly once, shut down.
//! - [Scaling the inbox]: what 10, 100 and 1,000 million events a day need, and when to split them.
//! - [Examine your receiver]: find the mistakes of a webhook receiver in any language.
//! - [Testing your application]: start the mock server in a test, cause failures, move the clock.
//! - [The mock in other languages]: test an application in Python, JavaScript or a shell.
//! - [Verifying webhooks in other languages]: the rules, and a verifier in Python.
//! - [The mock over HTTP]: the program `audience-mock`, its seed files and its HTTP calls.
//!
//! # Features
//!
//! | feature | default | what it adds |
//! |---|---|---|
//! | `client` | yes | [`Client`], [`contacts`], [`rule`], [`emails`], [`exit_code`] |
//! | `rustls` | yes | TLS for the client with rustls and the system's root certificates |
//! | `webhooks` | yes | [`webhooks`]; needs no HTTP client and no async runtime |
//! | `rustls-no-provider` | | `rustls` without cryptography, which your program installs: [see below](#a-faster-build) |
//! | `native-tls` | | TLS with the system's own library (OpenSSL on Linux); `rustls` is used if it is on, too |
//! | `blocking` | | [`blocking`]: `.wait()` on every call and stream of a client, on imports and on exports, for programs without an async runtime |
//! | `import` | | [`import`] and [`export`]: any number of contacts, with a journal to resume from |
//! | `cli` | | `audience`: a program for contacts, lists and webhooks, [from a shell][Importing a list], and with `inbox-sqlite`, `inbox-postgres` or `inbox-redis` for parked events |
//! | `axum`, `actix` | | webhook extractors for axum 0.8 and actix-web 4 |
//! | `tower` | | a layer that verifies webhooks for hyper, AWS Lambda and any other tower server |
//! | `inbox` | | [`Inbox`]: drops duplicate webhook events, with a store in memory; and `shutdown_signal`, as with `import` |
//! | `inbox-sqlite` | | stores events in a SQLite file, and compiles SQLite into your program; works with any rusqlite from 0.32 to 0.43, so a program can also use sqlx 0.8 or 0.9, sea-orm 1 or 2, diesel 2, tokio-rusqlite 0.6 or 0.7, or your own rusqlite |
//! | `inbox-postgres` | | stores events in Postgres 13 or newer, with tokio-postgres and deadpool |
//! | `inbox-postgres-rustls` | | connects to Postgres with TLS, as `sslmode` in the address says, with AWS-LC unless your program installs other cryptography |
//! | `inbox-sqlx` | | stores events in Postgres or SQLite on your pool of sqlx 0.8 or 0.9; for one of them, turn on `inbox-sqlx-postgres` or `inbox-sqlx-sqlite` |
//! | `inbox-redis` | | stores events in Redis 5 or newer or in Valkey, on one server or a cluster |
//! | `inbox-redis-rustls` | | connects to Redis with TLS, if the address begins with `rediss://`, with AWS-LC unless your program installs other cryptography |
//! | `serve` | | [`serve`]: a web server for an axum router or another tower service, with its workers, until SIGTERM |
//! | `inbox-conformance` | | test cases for a store of your own |
//! | `unsubscribe` | | [`unsubscribe`]: unsubscribe links, one click (RFC 8058), a preference page and the double opt-in, as a tower service |
//! | `mock` | | [`MockServer`]: the service as a server in your tests |
//! | `examine` | | `mock::examine`: checks a webhook receiver |
//! | `mock-server` | | `audience-mock`: the mock as a program |
//! | `wiremock` | | a responder for the crate `wiremock`; it gives the same responses as the mock |
//! | `tracing` | | a span for each call and each attempt, with the OpenTelemetry names for HTTP clients; log events of the client, the verifier, the inbox, [`serve`], a sync's state and the unsubscribe service |
//!
//! Features are additive, but for `rustls-no-provider` without `rustls`: see below. To verify webhooks only, use `default-features = false, features = ["webhooks"]`.
//!
//! # A faster build
//!
//! We measured a first build with the default features: it took 107 s of processor time, and 75 s with ring in place of
//! AWS-LC, the default cryptography of rustls. To use ring, or any other cryptography for rustls, turn `rustls` off:
//!
//! ```toml
//! audience = { version = "0.1", default-features = false, features = ["rustls-no-provider", "webhooks"] }
//! rustls = { version = "0.23", default-features = false, features = ["ring", "std", "tls12"] }
//! ```
//!
//! When your program starts, call `rustls::crypto::ring::default_provider().install_default()` once, before it builds a
//! client. If it does not, [`ClientBuilder::build`] returns an error that says so. If `rustls` is on as well, perhaps because
//! another crate needs it, AWS-LC is compiled, too, and the client uses it unless something else is installed.
//! `inbox-postgres-rustls` and `inbox-redis-rustls` also compile it, for their own connections.
//!
//! # Crates in the public API
//!
//! Public signatures name types of these crates, and of no others. Five crates are re-exported:
//! `audience::client::reqwest`, and `rusqlite`, `deadpool_postgres`, `sqlx` and `redis` in `audience::inbox`. If you
//! need another one, add it to your `Cargo.toml` in the release that the table names. If we move to a breaking release
//! of one of them, that is a breaking release of `audience` as well: a new minor version before 1.0, a new major
//! version after it. A test compares this table with the public signatures.
//!
//! | crate | release | used by |
//! |---|---|---|
//! | `http`, `bytes`, `serde`, `serde_json` | 1 | models, raw requests, webhooks |
//! | `futures-core` | 0.3 | streams of contacts and of import rows |
//! | `reqwest` | 0.13 | `ClientBuilder::http_client` |
//! | `axum-core` | 0.5 | the feature `axum` |
//! | `actix-web`, `actix-http` | 4, 3 | the feature `actix` |
//! | `http-body`, `tower-layer`, `tower-service` | 1, 0.3, 0.3 | the features `tower`, `unsubscribe` and `serve` |
//! | `hyper`, `tokio` | 1, 1 | the feature `serve` |
//! | `rusqlite` | 0.32 to 0.43 | the feature `inbox-sqlite` |
//! | `deadpool-postgres`, `tokio-postgres` | 0.14, 0.7 | the feature `inbox-postgres` |
//! | `sqlx-core`, `sqlx-postgres`, `sqlx-sqlite` | 0.8.6 to 0.9 | the feature `inbox-sqlx`; all are parts of `sqlx` |
//! | `redis` | 1 | the feature `inbox-redis` |
//! | `wiremock` | 0.6 | the feature `wiremock` |
//!
//! # The interface
//!
//! One document describes the service. We call it the interface document. The page [`interface`] retells it in our own
//! words, with the same section numbers. It also lists the questions that the document leaves open, and how the client
//! and the mock handle each of them.
//!
// rustdoc uses the first definition of a label, and checks these paths. Without the features, the links lead to
// docs.rs.
#![cfg_attr(
    all(
        feature = "blocking",
        feature = "import",
        feature = "inbox",
        feature = "mock",
        feature = "serve",
        feature = "unsubscribe"
    ),
    doc = "[`blocking`]: crate::blocking\n[`export`]: crate::export\n[`import`]: crate::import",
    doc = "[`Inbox`]: crate::inbox::Inbox\n[`MockServer`]: crate::mock::MockServer",
    doc = "[`serve`]: crate::serve",
    doc = "[`unsubscribe`]: crate::unsubscribe\n[`UnsubscribeLinks`]: crate::unsubscribe::UnsubscribeLinks",
    doc = "[`UnsubscribeService`]: crate::unsubscribe::UnsubscribeService"
)]
//! [`blocking`]: https://docs.rs/audience/latest/audience/blocking/index.html
//! [`export`]: https://docs.rs/audience/latest/audience/export/index.html
//! [`import`]: https://docs.rs/audience/latest/audience/import/index.html
//! [`Inbox`]: https://docs.rs/audience/latest/audience/inbox/struct.Inbox.html
//! [`serve`]: https://docs.rs/audience/latest/audience/fn.serve.html
//! [`MockServer`]: https://docs.rs/audience/latest/audience/mock/struct.MockServer.html
//! [`unsubscribe`]: https://docs.rs/audience/latest/audience/unsubscribe/index.html
//! [`UnsubscribeLinks`]: https://docs.rs/audience/latest/audience/unsubscribe/struct.UnsubscribeLinks.html
//! [`UnsubscribeService`]: https://docs.rs/audience/latest/audience/unsubscribe/struct.UnsubscribeService.html
//! [First steps]: https://docs.rs/audience/latest/audience/guides/first_steps/index.html
//! [Double opt-in]: https://docs.rs/audience/latest/audience/guides/double_opt_in/index.html
//! [Unsubscribe links]: https://docs.rs/audience/latest/audience/guides/unsubscribe/index.html
//! [A newsletter in one program]: https://docs.rs/audience/latest/audience/guides/newsletter/index.html
//! [Keeping a list in step]: https://docs.rs/audience/latest/audience/guides/keeping_in_step/index.html
//! [Importing a list]: https://docs.rs/audience/latest/audience/guides/moving_a_list/index.html
//! [Receiving webhooks]: https://docs.rs/audience/latest/audience/guides/receiving_webhooks/index.html
//! [Testing your application]: https://docs.rs/audience/latest/audience/guides/testing/index.html
//! [Webhooks in production]: https://docs.rs/audience/latest/audience/guides/webhooks_in_production/index.html
//! [Scaling the inbox]: https://docs.rs/audience/latest/audience/guides/scaling/index.html
//! [For your support team]: https://docs.rs/audience/latest/audience/guides/support/index.html
//! [Examine your receiver]: https://docs.rs/audience/latest/audience/guides/examine/index.html
//! [Errors and retries]: https://docs.rs/audience/latest/audience/guides/errors/index.html
//! [The mock in other languages]: https://docs.rs/audience/latest/audience/guides/other_languages/index.html
//! [Verifying webhooks in other languages]: https://docs.rs/audience/latest/audience/guides/verifying_webhooks/index.html
//! [The mock over HTTP]: https://docs.rs/audience/latest/audience/guides/mock_over_http/index.html

#![cfg_attr(docsrs, feature(doc_cfg))]

#[cfg(any(feature = "client", feature = "webhooks"))]
mod address;
#[cfg(feature = "client")]
mod any_error;
#[cfg(feature = "blocking")]
pub mod blocking;
#[cfg(any(feature = "client", feature = "inbox", feature = "mock"))]
mod causes;
#[cfg(feature = "cli")]
mod cli;
#[cfg(feature = "client")]
pub mod client;
#[cfg(feature = "client")]
pub mod contacts;
#[cfg(feature = "client")]
pub mod emails;
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
    feature = "inbox-sqlx",
    feature = "examine",
    feature = "serve",
    feature = "unsubscribe"
))]
pub mod guides;
#[cfg(feature = "import")]
#[cfg_attr(docsrs, doc(cfg(feature = "import")))]
pub mod import;
#[cfg(feature = "inbox")]
#[cfg_attr(docsrs, doc(cfg(feature = "inbox")))]
pub mod inbox;
// The documentation of every feature cites it.
#[cfg(doc)]
#[doc = include_str!("../docs/interface.md")]
pub mod interface {}
#[cfg(feature = "mock")]
pub mod mock;
#[cfg(feature = "client")]
mod properties;
#[cfg(feature = "client")]
pub mod rule;
#[cfg(any(feature = "client", feature = "webhooks"))]
mod secret;
#[cfg(feature = "serve")]
mod server;
#[cfg(any(
    feature = "cli",
    feature = "import",
    feature = "inbox",
    feature = "mock-server"
))]
mod signals;
#[cfg(any(feature = "client", feature = "webhooks"))]
mod string_enum;
#[cfg(any(
    feature = "client",
    feature = "inbox",
    feature = "mock",
    feature = "actix",
    feature = "axum",
    feature = "tower"
))]
mod sync;
#[cfg(any(feature = "cli", feature = "mock-server"))]
mod terminal;
#[cfg(any(feature = "client", feature = "webhooks"))]
mod timestamp;
#[cfg(feature = "unsubscribe")]
#[cfg_attr(docsrs, doc(cfg(feature = "unsubscribe")))]
pub mod unsubscribe;
#[cfg(feature = "webhooks")]
pub mod webhooks;

#[cfg(feature = "client")]
pub use any_error::{exit_code, exit_status, explanation, find_error, visitor_status};
#[cfg(any(feature = "client", feature = "inbox", feature = "mock"))]
pub use causes::with_causes;
#[cfg(feature = "cli")]
#[doc(hidden)]
pub use cli::main as run_program;
#[cfg(feature = "client")]
pub use client::builder::{Auth, Client, ClientBuilder};
#[cfg(feature = "client")]
pub use client::retry::RetryPolicy;
#[cfg(feature = "client")]
pub use error::{ApiError, Error, ErrorCode, ErrorKind, Missing, Outcome};
#[cfg(feature = "client")]
pub use http::{Method, StatusCode};
#[cfg(any(feature = "client", feature = "webhooks"))]
pub use secret::ConfigError;
#[cfg(feature = "serve")]
#[cfg_attr(docsrs, doc(cfg(feature = "serve")))]
pub use server::{Serve, serve};
#[cfg(any(feature = "import", feature = "inbox"))]
#[cfg_attr(docsrs, doc(cfg(any(feature = "import", feature = "inbox"))))]
pub use signals::shutdown_signal;
#[cfg(any(feature = "client", feature = "webhooks"))]
pub use timestamp::{Timestamp, TimestampError};

// The fuzz targets name the crate as its users do.
#[cfg(all(test, feature = "import", feature = "mock"))]
extern crate self as audience;
/// The fuzz targets, with a test that passes them their corpus.
#[cfg(all(test, feature = "import", feature = "mock"))]
#[path = "../fuzz/src/lib.rs"]
#[expect(unreachable_pub, reason = "it is the root of a package")]
mod fuzz;

/// The types that `sync` is built on. The test of its interleavings has shuttle's types here.
mod primitives {
    #[cfg(any(
        feature = "inbox",
        feature = "actix",
        feature = "axum",
        feature = "tower"
    ))]
    pub(crate) use std::sync::atomic::{AtomicUsize, Ordering};
    #[cfg(any(feature = "client", feature = "inbox"))]
    pub(crate) use std::sync::{Mutex, MutexGuard, PoisonError};

    #[cfg(any(feature = "inbox", feature = "mock"))]
    pub(crate) use tokio::sync::Notify;
}

/// Compiles the README's programs as they are printed, and runs its test.
#[cfg(all(
    doctest,
    feature = "axum",
    feature = "inbox-sqlite",
    feature = "mock",
    feature = "serve"
))]
#[doc = include_str!("../README.md")]
struct Readme;
