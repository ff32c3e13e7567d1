//! Every webhook event handled once (feature `inbox`).
//!
//! The service delivers each event at least once: up to ten attempts over about five hours, in no particular
//! order, and it waits ten seconds for each response (interface section 6.5). An [`Inbox`] turns that into one
//! run of your handler for each event. It remembers the ids in a store, so repeats are dropped after a restart
//! and on every machine that shares the store.
//!
//! # Three modes
//!
//! | | use | how often an event is handled |
//! |---|---|---|
//! | handle | [`Inbox::handle`] runs your handler before the response | once, or again if the process or the store fails after the handler's effect and before its completion |
//! | accept | [`Inbox::accept`] stores the delivery and responds immediately; a [`Worker`] calls your handler | the same |
//! | in your transaction | `claim_in` of the SQLite or Postgres store; the claim and the effect commit together | exactly once |
//!
//! Use `claim_in` if the effect is a write to that database. Use `accept` if the work takes longer than the service
//! waits, or if events must be received while something that the work needs is down. Otherwise use `handle`.
//!
//! # Example: an endpoint with axum
//!
//! ```
//! use audience::inbox::{Inbox, MemoryStore, Receipt};
//! use audience::webhooks::{EventData, VerifiedEvent, Verifier};
//! use axum::extract::{FromRef, State};
//! use axum::{Router, routing::post};
//!
//! #[derive(Clone, FromRef)]
//! struct App {
//!     verifier: Verifier,
//!     inbox: Inbox,
//! }
//!
//! async fn hook(State(app): State<App>, delivery: VerifiedEvent) -> Receipt {
//!     app.inbox
//!         .handle(delivery, |event, _attempt| async move {
//!             if let EventData::Bounced(mail) = &event.data {
//!                 println!("stop sending to {}", mail.to);
//!             }
//!             Ok::<_, std::io::Error>(())
//!         })
//!         .await
//! }
//!
//! let app = App {
//!     verifier: Verifier::new("6Jm0nFq2pXvZk4Tt")?,
//!     inbox: Inbox::builder(MemoryStore::new()).build()?,
//! };
//! let router: Router = Router::new().route("/hook", post(hook)).with_state(app);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A [`Receipt`] is also a response of actix-web and of `webhooks::tower::VerifyLayer::handler`. With any other
//! server, verify with [`Verifier::verify_event`](crate::webhooks::Verifier::verify_event), and respond with
//! [`Receipt::status`].
//!
//! # Responses
//!
//! | what happened | response | what the service does |
//! |---|---|---|
//! | handled, stored, or a duplicate | 200 | stops |
//! | another attempt is handling it | 503 and `Retry-After` | delivers it again |
//! | the handler runs for longer than 8 s | 503 and `Retry-After`; the handler continues | delivers it again, and gets a 200 |
//! | the handler failed or panicked | 500 | delivers it again |
//! | the store is down or full | 503 and `Retry-After` | delivers it again |
//! | a duplicate id with another body | 409 | delivers it again, until it gives up |
//!
//! # The state of an event
//!
//! | from | by | to |
//! |---|---|---|
//! | absent | [`Inbox::handle`], [`Inbox::claim`] | in progress |
//! | absent | [`Inbox::accept`] | waiting |
//! | waiting | a worker if it was accepted, else the next delivery | in progress |
//! | in progress | success | done |
//! | in progress | an error, or the end of the lease | waiting |
//! | in progress | an error of a worker's last attempt | parked |
//! | parked | [`Inbox::replay`] | waiting |
//! | parked | [`Inbox::discard`] | done |
//! | done | the end of its [retention](InboxBuilder::retention) | absent |
//!
//! Only workers park events. An event whose handler fails in all ten attempts of the service is lost with
//! [`Inbox::handle`], and kept with [`Inbox::accept`].
//!
//! A claim lasts for a [lease](InboxBuilder::lease), which is extended while the handler runs. If the process
//! dies, the event can be claimed again when the lease is over. Each claim has a [`Token`], and only the holder
//! of the newest token can complete it; all others get [`InboxError::LeaseLost`].
//!
//! The task that runs the handler also extends its lease, so a handler that blocks its thread prevents that. Do such
//! work in `tokio::task::spawn_blocking`.
//!
//! # Shutting down
//!
//! Stop accepting connections, then wait for [`Inbox::wait_idle`]: a handler that [`Inbox::handle`] started continues
//! when its connection is closed. [`Worker::run_until`] waits for its handlers itself. Handlers that are cut off by
//! the end of the runtime or of the process are called again when their lease is over.
//!
//! # Stores
//!
//! | store | feature | for |
//! |---|---|---|
//! | [`MemoryStore`] | `inbox` | tests, and receivers that tolerate the loss of data |
//! | `SqliteStore` | `inbox-sqlite` | one machine; survives a crash; `claim_in` |
//! | `PostgresStore` | `inbox-postgres` | many receivers and workers; `claim_in` |
//! | `RedisStore` | `inbox-redis` | many receivers and workers, if a failover may lose a claim |
//!
//! Implement [`Store`] for another database, and test it with `inbox::conformance` (feature `inbox-conformance`).
//!
//! # Personal data
//!
//! Only [`Inbox::accept`] stores bodies, with the addresses in them. A body is deleted when its event was handled
//! or discarded, and kept while the event waits or is parked. The reason for a parked event is the text of your
//! handler's error. No `Debug` text and no log contains a body.
//!
//! # Tracing
//!
//! With the feature `tracing`, an inbox emits events with the target `audience::inbox`. They contain no event id,
//! address or body. [`Inbox::metrics`] returns counters, and [`Inbox::backlog`] counts the pending events.
//!
//! | message | level | fields |
//! |---|---|---|
//! | `webhook event received` | DEBUG | `endpoint`, `receipt`, `status` |
//! | `handler of a webhook event failed` | WARN | `endpoint`, `attempt`, `remaining`, `error` (the text of the handler's error) |
//! | `lease of a webhook event lost` | WARN | `endpoint` |
//! | `webhook event parked` | ERROR | `endpoint` |
//! | `webhook event id received with another body` | ERROR | `endpoint` |
//! | `inbox store failed` | ERROR | `operation`, `error`, `cause` |

mod claim;
#[cfg(feature = "inbox-conformance")]
#[cfg_attr(docsrs, doc(cfg(feature = "inbox-conformance")))]
pub mod conformance;
mod entry;
mod error;
mod handle;
#[expect(clippy::module_inception, reason = "the file is named after its type")]
mod inbox;
mod mail_status;
mod memory;
#[cfg(feature = "inbox-postgres")]
mod postgres;
mod receipt;
#[cfg(feature = "inbox-redis")]
mod redis_store;
mod shared;
#[cfg(feature = "inbox-sqlite")]
mod sqlite;
mod store;
mod worker;

pub use claim::{Claim, ClaimTarget, Lease};
pub use error::{InboxError, StoreError, StoreErrorKind};
pub use handle::Attempt;
pub use inbox::{Inbox, InboxBuilder};
pub use mail_status::{MailState, MailStatus};
pub use memory::{MemoryStore, MemoryStoreBuilder};
#[cfg(feature = "inbox-postgres")]
#[cfg_attr(docsrs, doc(cfg(feature = "inbox-postgres")))]
pub use postgres::{PostgresStore, PostgresStoreBuilder, deadpool_postgres};
pub use receipt::Receipt;
#[cfg(feature = "inbox-redis")]
#[cfg_attr(docsrs, doc(cfg(feature = "inbox-redis")))]
pub use redis_store::{RedisStore, RedisStoreBuilder, redis};
pub use shared::InboxMetrics;
#[cfg(feature = "inbox-sqlite")]
#[cfg_attr(docsrs, doc(cfg(feature = "inbox-sqlite")))]
pub use sqlite::{SqliteStore, SqliteStoreBuilder, Synchronous, TransactionError, rusqlite};
pub use store::{
    AcceptState, Backlog, ClaimState, EventKey, Fingerprint, HeldClaim, NewClaim, NewDelivery,
    ParkedEvent, Release, Store, Take, TakenEvent, Token,
};
pub use worker::{Worker, WorkerReport};
