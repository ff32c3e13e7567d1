//! Handles every webhook event once (feature `inbox`).
//!
//! The service delivers each event at least once: up to ten attempts over about five hours, in no particular
//! order, and it waits ten seconds for each response ([interface section 6.5](crate::interface#6.5)). An [`Inbox`]
//! turns that into one run of your handler for each event. It remembers the ids in a store, so duplicates are
//! dropped even after a restart or on another machine that shares the store.
//!
//! # Three modes
//!
//! | | use | how often an event is handled |
//! |---|---|---|
//! | handle | [`Inbox::handle`] runs your handler before the response | once, or again if the process or the store fails before its success is recorded, or if it blocks its thread for longer than two thirds of the lease |
//! | accept | [`Inbox::accept`] stores the delivery and responds immediately; a [`Worker`] calls your handler | the same |
//! | in a transaction | `handle_in`, `handler_in` (for a worker) or `claim_in` of the SQLite or Postgres store; the claim and the effect commit together | exactly once, until the id is forgotten after 72 hours |
//!
//! Use `handle_in`, without an inbox, if the effect is a write to that database. Use `accept` if the work can take longer than 8 s, or if
//! events must be received while something that the work needs is down; its worker's effect happens exactly once with
//! `handler_in`. Otherwise use `handle`.
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
//!             match &event.data {
//!                 EventData::Complained(mail) => println!("stop sending to {}", mail.to),
//!                 data if data.is_incomplete() => return Err(std::io::Error::other("an event without its address")),
//!                 _ => {}
//!             }
//!             Ok(())
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
//! | another body for an event that was handled or stored, or is being handled | 409 | delivers it again, until it gives up |
//!
//! # The state of an event
//!
//! | from | by | to |
//! |---|---|---|
//! | absent | [`Inbox::handle`], [`Inbox::claim`] | in progress |
//! | absent | [`Inbox::accept`] | waiting |
//! | waiting | with `accept`: a worker; with `handle` or `claim`: the next delivery | in progress |
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
//! Stop accepting connections, then wait for [`Inbox::wait_idle`], for 20 s at most: a handler that [`Inbox::handle`]
//! started continues when its connection is closed. [`Worker::run_until`] waits for its handlers itself, for [25
//! s](Worker::shutdown_timeout); then it cuts them off and releases their claims, so that another worker has these
//! events immediately. If the end of the process cuts a handler off, a worker calls it again when the lease is over.
//! With [`Inbox::handle`], it is called again only if the service delivers the event after that.
//!
//! `audience::serve` (feature `serve`) runs a server and its workers, and ends them in this way. Without a worker of the
//! same inbox, call [`Inbox::wait_idle`] afterwards.
//!
//! A worker thread of actix-web has a runtime of its own, which ends with the server. So that a handler of
//! [`Inbox::handle`] outlives it, build the inbox in a runtime with threads of its own, such as that of `#[tokio::main]`.
//! In one of `#[actix_web::main]`, a handler that continues after its response is cut off. With [`Inbox::accept`], this
//! does not matter.
//!
//! # Stores
//!
//! | store | feature | for |
//! |---|---|---|
//! | [`MemoryStore`] | `inbox` | tests, and receivers that tolerate the loss of data |
//! | `SqliteStore` | `inbox-sqlite` | one machine; survives a crash; `claim_in` |
//! | `SqlxSqliteStore` | `inbox-sqlx-sqlite` | the same, on your pool of sqlx |
//! | `PostgresStore` | `inbox-postgres` | many receivers and workers; `claim_in` |
//! | `SqlxPostgresStore` | `inbox-sqlx-postgres` | the same, on your pool of sqlx |
//! | `RedisStore` | `inbox-redis` | many receivers and workers, if a failover may lose a claim |
//!
//! Implement [`Store`] for another database, and test it with `inbox::conformance` (feature `inbox-conformance`).
//!
//! # Personal data
//!
//! Only [`Inbox::accept`] stores bodies, with the addresses in them. A body is deleted when its event is handled
//! or discarded, and kept while the event waits or is parked. The reason for a parked event is the text of your
//! handler's error. No `Debug` text and no log contains a body.
//!
//! # Tracing
//!
//! With the feature `tracing`, an inbox emits events with the target `audience::inbox`. They contain no address and no
//! body, unless the text of your handler's error does. `id` is the id of the webhook event. It is no personal data: the
//! service chooses it, and it says nothing about the recipient. [`Inbox::metrics`] returns counters,
//! [`Inbox::backlog`] counts the pending events, and [`prometheus()`] returns both as text for Prometheus.
//!
//! `attempts` is how many attempts to handle the event were made by then.
//!
//! The opt-outs of an `UnsubscribeService` have no `id` in the log, because their ids are made from addresses.
//!
//! | message | level | fields |
//! |---|---|---|
//! | `webhook event received` | DEBUG | `endpoint`, `id`, `receipt`, `status` |
//! | `webhook event of an unknown type` | INFO | `endpoint`, `id`, `event_type` |
//! | `handler of a webhook event failed` | WARN | `endpoint`, `id`, `attempts`, `remaining`, `error` (the text of the handler's error) |
//! | `an opt-out could not be sent yet, and is retried` | WARN | `endpoint`, `attempts`, `error`: only the worker of an `UnsubscribeService` |
//! | `an opt-out could not be recorded yet, and is retried` | WARN | `endpoint`, `attempts`, `error`: the same |
//! | `transaction of a webhook event rolled back` | WARN | `endpoint`, `id`, `error` (the text of the handler's error): only `handle_in` |
//! | `handler of a webhook event cut off by the shutdown` | WARN | `endpoint`, `id`, `attempts` |
//! | `lease of a webhook event lost` | WARN | `endpoint`, `id` |
//! | `webhook event parked` | ERROR | `endpoint`, `id` |
//! | `webhook event id received with another body` | ERROR | `endpoint`, `id`, `hint` (a mock that was started again uses the ids of its events again: use a new store or another endpoint name for it) |
//! | `inbox store failed` | ERROR | `endpoint` (not for what a store does for all of them, such as `migrate`), `operation`, `error`, `cause`; of each operation, one line a minute at most. If the tables in Postgres are missing, the first line is a WARN: when a service starts, somebody may be creating them |
//! | `memory store is full` | WARN | `limit` (the setting that was reached), `largest` (its value), `refused` (events since the last such line); one line a minute at most |
//! | `memory store has room again` | INFO | `limit`, `seconds` (how long it refused events); one line after each `memory store is full` at most |
//! | `inbox store works again` | INFO | `endpoint` (not for `migrate`), `operation`, `seconds` (how long it failed) |
//! | `worker ended` | INFO | `endpoint`, and the counts of its [`WorkerReport`]: `report.handled`, `report.failed`, `report.parked`, `report.released`, `report.lost` |

#![cfg_attr(
    not(feature = "tracing"),
    expect(unused_variables, reason = "only tracing reads them")
)]

// This comes before the modules, which use it, too.
macro_rules! report {
    ($level:ident, $($field:tt)*) => {
        #[cfg(feature = "tracing")]
        tracing::$level!(target: "audience::inbox", $($field)*);
    };
}

#[cfg(feature = "inbox-conformance")]
#[cfg_attr(docsrs, doc(cfg(feature = "inbox-conformance")))]
pub mod conformance;
mod entry;
mod error;
mod exposition;
#[cfg(any(
    feature = "inbox-postgres",
    feature = "inbox-redis",
    feature = "inbox-sqlite"
))]
pub(crate) mod from_env;
#[cfg(any(
    feature = "inbox-postgres",
    feature = "inbox-sqlx-postgres",
    feature = "inbox-sqlx-sqlite"
))]
mod handle_in;
#[cfg(any(
    feature = "inbox-sqlite",
    feature = "inbox-postgres",
    feature = "inbox-sqlx-postgres"
))]
mod handler_in;
mod mail_status;
mod memory;
#[cfg(any(feature = "inbox-postgres", feature = "inbox-sqlx-postgres"))]
mod postgres;
mod receipt;
#[cfg(feature = "inbox-redis")]
mod redis_store;
#[cfg(feature = "inbox-sqlite")]
mod sqlite;
mod store;
mod worker;

pub use error::{InboxError, StoreError, StoreErrorKind};
pub use exposition::prometheus;
#[cfg(any(
    feature = "inbox-postgres",
    feature = "inbox-redis",
    feature = "inbox-sqlite"
))]
#[cfg_attr(
    docsrs,
    doc(cfg(any(
        feature = "inbox-postgres",
        feature = "inbox-redis",
        feature = "inbox-sqlite"
    )))
)]
pub use from_env::store_from_env;
#[cfg(any(
    feature = "inbox-sqlite",
    feature = "inbox-postgres",
    feature = "inbox-sqlx-postgres"
))]
#[cfg_attr(
    docsrs,
    doc(cfg(any(
        feature = "inbox-sqlite",
        feature = "inbox-postgres",
        feature = "inbox-sqlx-postgres"
    )))
)]
pub use handler_in::EventHandler;
pub use mail_status::{MailState, MailStatus};
pub use memory::{MemoryStore, MemoryStoreBuilder};
#[cfg(feature = "inbox-sqlx-postgres")]
#[cfg_attr(docsrs, doc(cfg(feature = "inbox-sqlx-postgres")))]
pub use postgres::SqlxPostgresStore;
#[cfg(feature = "inbox-postgres")]
#[cfg_attr(docsrs, doc(cfg(feature = "inbox-postgres")))]
pub use postgres::{PostgresStore, PostgresStoreBuilder, deadpool_postgres};
pub use receipt::Receipt;
#[cfg(feature = "inbox-redis")]
#[cfg_attr(docsrs, doc(cfg(feature = "inbox-redis")))]
pub use redis_store::{RedisStore, RedisStoreBuilder, redis};
#[cfg(feature = "inbox-sqlx-sqlite")]
#[cfg_attr(docsrs, doc(cfg(feature = "inbox-sqlx-sqlite")))]
pub use sqlite::SqlxSqliteStore;
#[cfg(feature = "inbox-sqlite")]
#[cfg_attr(docsrs, doc(cfg(feature = "inbox-sqlite")))]
pub use sqlite::{SqliteStore, SqliteStoreBuilder, Synchronous, TransactionError, rusqlite};
#[cfg(any(feature = "inbox-sqlx-postgres", feature = "inbox-sqlx-sqlite"))]
#[cfg_attr(
    docsrs,
    doc(cfg(any(feature = "inbox-sqlx-postgres", feature = "inbox-sqlx-sqlite")))
)]
pub use sqlx;
pub use store::{
    AcceptState, Backlog, ClaimState, EventKey, Fingerprint, HeldClaim, NewClaim, NewDelivery,
    ParkedEvent, Release, Store, Take, TakenEvent, Token, Turnover,
};
pub use worker::{Worker, WorkerReport};

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt;
use std::future::{pending, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::Poll;
use std::time::{Duration, SystemTime};

use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::Notify;
use tokio::time::Instant;

use self::error::Failure;
#[cfg(any(feature = "inbox-postgres", feature = "inbox-sqlx-postgres"))]
use self::postgres::lacks_tables;
use self::store::DynStore;
use crate::ConfigError;
use crate::sync::{Running, lock};
use crate::webhooks::{Event, EventData, EventId, VerifiedEvent};

/// How many parked events one call returns.
const PAGE: usize = 100;
/// Kubernetes waits one second for the response to a probe.
const PROBE_LIMIT: Duration = Duration::from_millis(800);
/// When a probe is given up whose response is late.
const PROBE_END: Duration = Duration::from_secs(10);
/// The id that a probe claims. The service sends no such id.
const PROBE: &str = "audience.probe";
/// How long the same failure of the store is not logged again, and how long it is not logged again that the store is
/// full.
const REPORT_INTERVAL: Duration = Duration::from_secs(60);

/// Handles every event of an endpoint once. Cheap to clone; clones share their store and their metrics.
///
/// # Example: a handler
///
/// ```
/// use audience::inbox::{Inbox, MemoryStore, Receipt};
/// use audience::webhooks::{EventData, VerifiedEvent};
///
/// async fn receive(inbox: &Inbox, delivery: VerifiedEvent) -> Receipt {
///     inbox
///         .handle(delivery, |event, _attempt| async move {
///             match &event.data {
///                 EventData::Complained(mail) => println!("stop sending to {}", mail.to),
///                 data if data.is_incomplete() => return Err(std::io::Error::other("an event without its address")),
///                 _ => {}
///             }
///             Ok(())
///         })
///         .await
/// }
///
/// let inbox = Inbox::builder(MemoryStore::new()).endpoint("main").build()?;
/// # let _ = (inbox, receive);
/// # Ok::<(), audience::ConfigError>(())
/// ```
#[derive(Clone)]
pub struct Inbox(Arc<Shared>);

impl Inbox {
    /// Starts building an inbox that remembers its events in this store.
    ///
    /// # Example: an inbox for the tests of a program
    ///
    /// ```
    /// use audience::inbox::{Inbox, MemoryStore};
    ///
    /// let inbox = Inbox::builder(MemoryStore::new()).build()?;
    ///
    /// assert_eq!(inbox.endpoint(), "main");
    /// # Ok::<(), audience::ConfigError>(())
    /// ```
    pub fn builder(store: impl Store) -> InboxBuilder {
        InboxBuilder {
            store: Arc::new(store),
            settings: Settings::default(),
        }
    }

    /// Claims an event, runs the handler, and returns the response.
    ///
    /// A handler that waits runs in a task of its own, so it is not cut off if the sender disconnects. Its lease is
    /// extended while it waits, but not while it blocks its thread: run long blocking work in
    /// `tokio::task::spawn_blocking`, or the response is late and the event may be handled a second time.
    ///
    /// No handler is cut off because it takes long. Give each wait in it a limit, for example `tokio::time::timeout` around
    /// the whole handler: one that never ends keeps its event in progress until the service gives it up, and nothing
    /// reports it.
    ///
    /// If the handler has not ended [`respond_within`](InboxBuilder::respond_within) after the delivery arrived, the
    /// receipt is [`StillRunning`](Receipt::StillRunning) and the handler continues. Call this in the request
    /// handler: the time that a delivery waits in a queue of yours counts.
    ///
    /// Each event is handled at least once, and duplicates are dropped. The handler runs a second time if the process
    /// or the store failed between the handler's effect and its completion, if the handler blocked its thread for
    /// longer than two thirds of the lease, or if the event arrives again after the retention. For exactly once, make
    /// the claim part of your transaction: pass `handler_in` of the SQLite or Postgres store as the handler.
    ///
    /// An error or a panic of the handler is a failed attempt: the receipt is [`Failed`](Receipt::Failed), and
    /// the service retries. After the tenth attempt it gives up, and the event is lost; [`accept`](Self::accept)
    /// keeps it.
    ///
    /// # Panics
    ///
    /// Panics outside a tokio runtime.
    ///
    /// # Example: only an event that was handled is acknowledged
    ///
    /// ```
    /// # use audience::inbox::{Inbox, MemoryStore, Receipt};
    /// # use audience::webhooks::{EventType, Signer, Verifier};
    /// # tokio::runtime::Runtime::new()?.block_on(async {
    /// # let body = br#"{"id": "evt_1", "type": "email.sent", "created_at": 1700000000, "data": {}}"#;
    /// # let headers = Signer::new("6Jm0nFq2pXvZk4Tt")?.sign(&EventType::Sent, std::time::SystemTime::now(), body);
    /// # let delivery = Verifier::new("6Jm0nFq2pXvZk4Tt")?.verify_event(&headers, body.to_vec())?;
    /// let inbox = Inbox::builder(MemoryStore::new()).build()?;
    ///
    /// let first = inbox.handle(delivery.clone(), |_, _| async { Err("the database is down") }).await;
    /// let second = inbox.handle(delivery.clone(), |_, _| async { Ok::<_, String>(()) }).await;
    /// let third = inbox.handle(delivery, |_, _| async { Ok::<_, String>(()) }).await;
    ///
    /// assert_eq!([first, second, third], [Receipt::Failed, Receipt::Handled, Receipt::Duplicate]);
    /// # Ok::<(), Box<dyn std::error::Error>>(()) })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Example: a handler that uses a connection pool
    ///
    /// The handler may outlive the request, so it owns a clone of the pool.
    ///
    /// ```
    /// # use audience::inbox::{Inbox, Receipt};
    /// # use audience::webhooks::VerifiedEvent;
    /// # #[derive(Clone)] struct Pool;
    /// # impl Pool { async fn execute(&self, _sql: &str, _id: &str) -> std::io::Result<()> { Ok(()) } }
    /// async fn receive(inbox: &Inbox, db: &Pool, delivery: VerifiedEvent) -> Receipt {
    ///     let db = db.clone();
    ///     let handler = |event: audience::webhooks::Event, _attempt| async move {
    ///         db.execute("INSERT INTO events VALUES ($1)", event.id.as_str()).await
    ///     };
    ///     inbox.handle(delivery, handler).await
    /// }
    /// # let _ = receive;
    /// ```
    pub async fn handle<F, Fut, E>(&self, delivery: VerifiedEvent, handler: F) -> Receipt
    where
        F: FnOnce(Event, Attempt) -> Fut + Send + 'static,
        Fut: Future<Output = Result<(), E>> + Send + 'static,
        E: Into<Box<dyn Error + Send + Sync>> + Send,
    {
        let shared = &self.0;
        let id = delivery.id.clone();
        let respond_by = shared.respond_by(&delivery);
        let runtime = shared.longer_runtime();
        // The handler is counted before its task is spawned: `wait_idle` must not miss it between the spawn and its
        // first poll.
        let running = shared.running.start();
        let task_shared = Arc::clone(shared);
        let mut handled = Box::pin(async move {
            let _running = running;
            task_shared.purge_if_due();
            task_shared.claim_and_run(delivery, handler).await
        });
        // A panic of the handler is caught where it runs, so one that is seen here came from the store.
        let panicked = || {
            let error = StoreError::unavailable("the store panicked");
            shared.receipt_of_store_error("handle", &error)
        };
        // A call that is ready immediately, as with the store in memory, needs no task.
        let first = poll_fn(|context| {
            // Timers and sockets belong to the runtime that they are created in.
            let _entered = runtime.map(Handle::enter);
            let poll = AssertUnwindSafe(|| handled.as_mut().poll(context));
            Poll::Ready(catch_unwind(poll))
        });
        let receipt = match first.await {
            Ok(Poll::Ready(receipt)) => receipt,
            Err(_) => panicked(),
            // It continues as a task: the framework drops this future when the sender disconnects, and that must not
            // cut off a handler in the middle of its effect.
            Ok(Poll::Pending) => {
                #[cfg(feature = "tracing")]
                use tracing::instrument::{Instrument, WithSubscriber};
                #[cfg(feature = "tracing")]
                let handled = handled.in_current_span().with_current_subscriber();
                let task = match runtime {
                    Some(runtime) => runtime.spawn(handled),
                    None => tokio::spawn(handled),
                };
                match tokio::time::timeout_at(respond_by, task).await {
                    Ok(Ok(receipt)) => receipt,
                    Ok(Err(error)) if error.is_panic() => panicked(),
                    // The runtime is shutting down.
                    Ok(Err(_)) => Receipt::Unavailable,
                    // The task continues: dropping its handle does not end it.
                    Err(_) => Receipt::StillRunning,
                }
            }
        };
        report_receipt(&shared.settings.endpoint, &id, receipt);
        receipt
    }

    /// Stores a delivery for a [worker](Self::worker), and returns the response.
    ///
    /// The body is stored as it was signed. Once it is stored, the service need not deliver the event again,
    /// even if this process crashes. The body is deleted when the event is done.
    ///
    /// # Panics
    ///
    /// Panics outside a tokio runtime.
    ///
    /// # Example: accept now, handle later
    ///
    /// ```
    /// # use audience::inbox::{Inbox, MemoryStore, Receipt};
    /// # use audience::webhooks::{EventType, Signer, Verifier};
    /// # tokio::runtime::Runtime::new()?.block_on(async {
    /// # let body = br#"{"id": "evt_1", "type": "email.sent", "created_at": 1700000000, "data": {}}"#;
    /// # let headers = Signer::new("6Jm0nFq2pXvZk4Tt")?.sign(&EventType::Sent, std::time::SystemTime::now(), body);
    /// # let delivery = Verifier::new("6Jm0nFq2pXvZk4Tt")?.verify_event(&headers, body.to_vec())?;
    /// let inbox = Inbox::builder(MemoryStore::new()).build()?;
    ///
    /// assert_eq!(inbox.accept(delivery.clone()).await, Receipt::Accepted);
    /// assert_eq!(inbox.accept(delivery).await, Receipt::Duplicate);
    /// # Ok::<(), Box<dyn std::error::Error>>(()) })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn accept(&self, delivery: VerifiedEvent) -> Receipt {
        let shared = &self.0;
        let respond_by = shared.respond_by(&delivery);
        let accepted = shared.store.accept(NewDelivery {
            key: shared.key(&delivery.id),
            body: delivery.body(),
            fingerprint: Fingerprint::of(delivery.body()),
        });
        shared.purge_if_due();
        let receipt = match tokio::time::timeout_at(respond_by, accepted).await {
            Ok(Ok(state)) => shared.counted(&delivery.id, Receipt::of_accept(state)),
            Ok(Err(error)) => shared.receipt_of_store_error("accept", &error),
            Err(_) => {
                // The event may be stored all the same: then the next delivery of it is a duplicate.
                let error = StoreError::unavailable("it did not respond in time");
                shared.receipt_of_store_error("accept", &error)
            }
        };
        // A worker of this process takes the event now instead of at its next poll.
        if receipt == Receipt::Accepted {
            shared.count_if_unknown(&delivery);
            shared.accepted.notify_one();
        }
        report_receipt(&shared.settings.endpoint, &delivery.id, receipt);
        receipt
    }

    /// Starts building a worker that calls this handler for each accepted event.
    ///
    /// If the handler returns `Ok`, the event is done and its body is deleted. For a handler that is one transaction
    /// with its claim, see `handler_in` of the SQLite and Postgres stores.
    ///
    /// The lease of an event is extended while its handler waits, but not while it blocks its thread: run long
    /// blocking work in `tokio::task::spawn_blocking`, or the event may be handled a second time.
    ///
    /// Give each wait in the handler a limit, for example `tokio::time::timeout` around the whole handler. An event whose
    /// handler never ends is neither retried nor parked, and as many such handlers as [`Worker::concurrency`] allows stop
    /// the worker.
    ///
    /// # Example: receive in one place, handle in another
    ///
    /// ```
    /// # use audience::inbox::{Inbox, MemoryStore, Receipt};
    /// # use audience::webhooks::{EventType, Signer, Verifier};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let body = br#"{"id": "evt_1", "type": "email.sent", "created_at": 1700000000, "data": {}}"#;
    /// # let headers = Signer::new("6Jm0nFq2pXvZk4Tt")?.sign(&EventType::Sent, std::time::SystemTime::now(), body);
    /// # let delivery = Verifier::new("6Jm0nFq2pXvZk4Tt")?.verify_event(&headers, body.to_vec())?;
    /// let inbox = Inbox::builder(MemoryStore::new()).build()?;
    /// assert_eq!(inbox.accept(delivery).await, Receipt::Accepted); // in the web server
    ///
    /// let worker = inbox.worker(|event, _attempt| async move {
    ///     println!("{} at {}", event.event_type(), event.created_at);
    ///     Ok::<_, std::io::Error>(())
    /// });
    ///
    /// assert_eq!(worker.run_until_idle().await?.handled, 1); // in the worker
    /// # Ok(()) }
    /// ```
    ///
    /// # Example: a handler that uses a connection pool
    ///
    /// The handler is called for many events, so it clones what each call uses. A pool or a client is cheap to clone;
    /// put anything else into an `Arc`.
    ///
    /// ```
    /// # use audience::inbox::{Inbox, MemoryStore};
    /// # use audience::webhooks::{EventType, Signer, Verifier};
    /// # #[derive(Clone)] struct Pool;
    /// # impl Pool { async fn execute(&self, _sql: &str, _id: &str) -> std::io::Result<()> { Ok(()) } }
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let body = br#"{"id": "evt_1", "type": "email.sent", "created_at": 1700000000, "data": {}}"#;
    /// # let headers = Signer::new("6Jm0nFq2pXvZk4Tt")?.sign(&EventType::Sent, std::time::SystemTime::now(), body);
    /// # let delivery = Verifier::new("6Jm0nFq2pXvZk4Tt")?.verify_event(&headers, body.to_vec())?;
    /// # let inbox = Inbox::builder(MemoryStore::new()).build()?;
    /// # inbox.accept(delivery).await;
    /// # let db = Pool;
    /// let worker = inbox.worker(move |event, _attempt| {
    ///     let db = db.clone();
    ///     async move { db.execute("INSERT INTO events VALUES ($1)", event.id.as_str()).await }
    /// });
    ///
    /// assert_eq!(worker.run_until_idle().await?.handled, 1);
    /// # Ok(()) }
    /// ```
    pub fn worker<F, Fut, E>(&self, handler: F) -> Worker<F>
    where
        F: Fn(Event, Attempt) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(), E>> + Send + 'static,
        E: Into<Box<dyn Error + Send + Sync>> + Send,
    {
        Worker::new(Arc::clone(&self.0), handler)
    }

    /// Claims an event for code of your own.
    ///
    /// Claim only after the delivery was verified. [`handle`](Self::handle) claims and completes by itself, and
    /// extends the lease while the handler runs.
    ///
    /// # Errors
    ///
    /// - [`InboxError::Store`] if the store failed. Respond with 503.
    /// - [`InboxError::Conflict`] if the event was handled or stored, or is being handled, with another body. This is
    ///   noticed if you claim with a [`VerifiedEvent`].
    ///
    /// # Panics
    ///
    /// Panics outside a tokio runtime.
    ///
    /// # Example: claim, handle, complete
    ///
    /// ```
    /// use audience::inbox::{Claim, Inbox, InboxError};
    /// use audience::webhooks::Event;
    /// use http::StatusCode;
    ///
    /// async fn receive(inbox: &Inbox, event: Event) -> Result<StatusCode, InboxError> {
    ///     match inbox.claim(&event.id).await? {
    ///         Claim::Fresh(lease) => {
    ///             println!("handling {}", event.id);
    ///             lease.complete().await?;
    ///             Ok(StatusCode::OK)
    ///         }
    ///         Claim::InProgress { .. } => Ok(StatusCode::SERVICE_UNAVAILABLE),
    ///         Claim::Done => Ok(StatusCode::OK),
    ///     }
    /// }
    /// ```
    pub async fn claim<'a>(&self, event: impl Into<ClaimTarget<'a>>) -> Result<Claim, InboxError> {
        let ClaimTarget { id, fingerprint } = event.into();
        let shared = &self.0;
        shared.purge_if_due();
        let held = HeldClaim {
            key: shared.key(id),
            token: Token::random(),
        };
        match shared.claim(held, fingerprint).await? {
            Ok(attempt) => Ok(Claim::Fresh(Lease {
                shared: Arc::clone(shared),
                id: id.clone(),
                token: held.token,
                attempt,
                is_counted: AtomicBool::new(false),
            })),
            Err(Receipt::InProgress { retry_after }) => {
                let now = SystemTime::now();
                let until = now.checked_add(retry_after).unwrap_or(now);
                Ok(Claim::InProgress { until })
            }
            Err(Receipt::Conflict) => Err(InboxError::Conflict),
            // A parked event is done for a caller, too: only `replay` brings it back.
            Err(_) => Ok(Claim::Done),
        }
    }

    /// Returns the parked events, at most 100, ordered by the bytes of their ids.
    ///
    /// [`parked_after`](Self::parked_after) returns the next ones.
    ///
    /// # Errors
    ///
    /// Returns [`InboxError::Store`] if the store failed.
    ///
    /// # Example: list the events that need a person
    ///
    /// ```
    /// # use audience::inbox::{Inbox, MemoryStore};
    /// # use audience::webhooks::{EventType, Signer, Verifier};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let body = br#"{"id": "evt_1", "type": "email.sent", "created_at": 1700000000, "data": {}}"#;
    /// # let headers = Signer::new("6Jm0nFq2pXvZk4Tt")?.sign(&EventType::Sent, std::time::SystemTime::now(), body);
    /// # let delivery = Verifier::new("6Jm0nFq2pXvZk4Tt")?.verify_event(&headers, body.to_vec())?;
    /// # let inbox = Inbox::builder(MemoryStore::new()).build()?;
    /// # inbox.accept(delivery.clone()).await;
    /// # inbox.worker(|_, _| async { Err("no such table") }).max_attempts(1).run_until_idle().await?;
    /// let parked = inbox.parked().await?;
    ///
    /// for event in &parked {
    ///     println!("{} failed {} times: {}", event.id, event.attempts, event.reason);
    /// }
    /// assert_eq!(parked[0].reason, "no such table");
    /// # Ok(()) }
    /// ```
    pub async fn parked(&self) -> Result<Vec<ParkedEvent>, InboxError> {
        self.parked_page(None).await
    }

    /// Returns the parked events that come after this id, at most 100.
    ///
    /// # Errors
    ///
    /// Returns [`InboxError::Store`] if the store failed.
    ///
    /// # Example: read page after page
    ///
    /// ```
    /// # use audience::inbox::{Inbox, MemoryStore};
    /// # use audience::webhooks::{EventType, Signer, Verifier};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let body = br#"{"id": "evt_1", "type": "email.sent", "created_at": 1700000000, "data": {}}"#;
    /// # let headers = Signer::new("6Jm0nFq2pXvZk4Tt")?.sign(&EventType::Sent, std::time::SystemTime::now(), body);
    /// # let delivery = Verifier::new("6Jm0nFq2pXvZk4Tt")?.verify_event(&headers, body.to_vec())?;
    /// # let inbox = Inbox::builder(MemoryStore::new()).build()?;
    /// # inbox.accept(delivery.clone()).await;
    /// # inbox.worker(|_, _| async { Err("no such table") }).max_attempts(1).run_until_idle().await?;
    /// let mut count = 0;
    /// let mut page = inbox.parked().await?;
    /// while let Some(last) = page.last() {
    ///     count += page.len();
    ///     page = inbox.parked_after(&last.id).await?;
    /// }
    ///
    /// assert_eq!(count, 1);
    /// # Ok(()) }
    /// ```
    pub async fn parked_after(&self, id: &EventId) -> Result<Vec<ParkedEvent>, InboxError> {
        self.parked_page(Some(id)).await
    }

    /// Hands a parked event to the workers again, as attempt 1. Returns whether it was parked.
    ///
    /// # Errors
    ///
    /// Returns [`InboxError::Store`] if the store failed.
    ///
    /// # Example: retry an event after its cause is fixed
    ///
    /// ```
    /// # use audience::inbox::{Inbox, MemoryStore};
    /// # use audience::webhooks::{EventType, Signer, Verifier};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let body = br#"{"id": "evt_1", "type": "email.sent", "created_at": 1700000000, "data": {}}"#;
    /// # let headers = Signer::new("6Jm0nFq2pXvZk4Tt")?.sign(&EventType::Sent, std::time::SystemTime::now(), body);
    /// # let delivery = Verifier::new("6Jm0nFq2pXvZk4Tt")?.verify_event(&headers, body.to_vec())?;
    /// # let inbox = Inbox::builder(MemoryStore::new()).build()?;
    /// # inbox.accept(delivery.clone()).await;
    /// # inbox.worker(|_, _| async { Err("no such table") }).max_attempts(1).run_until_idle().await?;
    /// let parked = inbox.parked().await?;
    /// assert!(inbox.replay(&parked[0].id).await?);
    ///
    /// let worker = inbox.worker(|_, _| async { Ok::<_, std::io::Error>(()) });
    /// assert_eq!(worker.run_until_idle().await?.handled, 1);
    /// # Ok(()) }
    /// ```
    pub async fn replay(&self, id: &EventId) -> Result<bool, InboxError> {
        let shared = &self.0;
        let replayed = shared.store.replay(shared.key(id)).await;
        let replayed = replayed.inspect_err(|error| shared.store_failed("replay", error))?;
        if replayed {
            shared.accepted.notify_one();
        }
        Ok(replayed)
    }

    /// Hands all parked events to the workers again, as [`replay`](Self::replay) does with one. Returns how many.
    ///
    /// # Errors
    ///
    /// Returns [`InboxError::Store`] if the store failed. Some events may have been replayed; another call replays the
    /// rest.
    ///
    /// # Example: after a failure that concerned every event
    ///
    /// ```
    /// # use audience::inbox::{Inbox, MemoryStore};
    /// # use audience::webhooks::{EventType, Signer, Verifier};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let body = br#"{"id": "evt_1", "type": "email.sent", "created_at": 1700000000, "data": {}}"#;
    /// # let headers = Signer::new("6Jm0nFq2pXvZk4Tt")?.sign(&EventType::Sent, std::time::SystemTime::now(), body);
    /// # let delivery = Verifier::new("6Jm0nFq2pXvZk4Tt")?.verify_event(&headers, body.to_vec())?;
    /// # let inbox = Inbox::builder(MemoryStore::new()).build()?;
    /// # inbox.accept(delivery.clone()).await;
    /// # inbox.worker(|_, _| async { Err("no such table") }).max_attempts(1).run_until_idle().await?;
    /// assert_eq!(inbox.replay_all().await?, 1);
    ///
    /// let worker = inbox.worker(|_, _| async { Ok::<_, std::io::Error>(()) });
    /// assert_eq!(worker.run_until_idle().await?.handled, 1);
    /// # Ok(()) }
    /// ```
    pub async fn replay_all(&self) -> Result<u64, InboxError> {
        let mut replayed = 0;
        let mut page = self.parked().await?;
        while let Some(last) = page.last() {
            for event in &page {
                replayed += u64::from(self.replay(&event.id).await?);
            }
            page = self.parked_after(&last.id).await?;
        }
        Ok(replayed)
    }

    /// Gives up a parked event: it is done, and its body is deleted. Returns whether it was parked.
    ///
    /// # Errors
    ///
    /// Returns [`InboxError::Store`] if the store failed.
    ///
    /// # Example: an event that no retry can save
    ///
    /// ```
    /// # use audience::inbox::{Inbox, MemoryStore, Receipt};
    /// # use audience::webhooks::{EventType, Signer, Verifier};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let body = br#"{"id": "evt_1", "type": "email.sent", "created_at": 1700000000, "data": {}}"#;
    /// # let headers = Signer::new("6Jm0nFq2pXvZk4Tt")?.sign(&EventType::Sent, std::time::SystemTime::now(), body);
    /// # let delivery = Verifier::new("6Jm0nFq2pXvZk4Tt")?.verify_event(&headers, body.to_vec())?;
    /// # let inbox = Inbox::builder(MemoryStore::new()).build()?;
    /// # inbox.accept(delivery.clone()).await;
    /// # inbox.worker(|_, _| async { Err("no such table") }).max_attempts(1).run_until_idle().await?;
    /// for event in inbox.parked().await? {
    ///     inbox.discard(&event.id).await?;
    /// }
    ///
    /// assert!(inbox.parked().await?.is_empty());
    /// assert_eq!(inbox.accept(delivery).await, Receipt::Duplicate);
    /// # Ok(()) }
    /// ```
    pub async fn discard(&self, id: &EventId) -> Result<bool, InboxError> {
        let shared = &self.0;
        let discarded = shared
            .store
            .discard(shared.key(id), shared.settings.retention)
            .await;
        Ok(discarded.inspect_err(|error| shared.store_failed("discard", error))?)
    }

    /// Checks that a new event can be stored, for a readiness probe: the store claims one within 800 ms.
    ///
    /// It claims an event of its own, `audience.probe`, which is forgotten immediately. So a full disk, a full store, a
    /// database that allows no writes, and a role that may not insert are errors. No worker, [`backlog`](Self::backlog)
    /// or [`parked`](Self::parked) sees that event, and at most one row of it stays in the store for each endpoint. Any
    /// number of processes may probe simultaneously. Nothing is logged.
    ///
    /// The event has no body: if there is little room left, a large delivery may be refused as
    /// [`Full`](StoreErrorKind::Full) all the same.
    ///
    /// # Errors
    ///
    /// Returns [`InboxError::Store`] if the store failed or did not respond in time.
    ///
    /// # Example: the response to a probe
    ///
    /// ```
    /// use audience::inbox::{Inbox, MemoryStore};
    /// use axum::http::StatusCode;
    ///
    /// async fn ready(inbox: &Inbox) -> StatusCode {
    ///     match inbox.ready().await {
    ///         Ok(()) => StatusCode::OK,
    ///         Err(_) => StatusCode::SERVICE_UNAVAILABLE,
    ///     }
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let inbox = Inbox::builder(MemoryStore::new()).build()?;
    /// assert_eq!(ready(&inbox).await, 200);
    /// # Ok(()) }
    /// ```
    pub async fn ready(&self) -> Result<(), InboxError> {
        let shared = &self.0;
        let prober = Arc::clone(shared);
        // It continues after a late response. Otherwise, no probe would ever open a connection that takes longer.
        let probe = tokio::spawn(async move {
            let probe = tokio::time::timeout(PROBE_END, prober.probe());
            probe
                .await
                .unwrap_or_else(|late| Err(StoreError::unavailable(late)))
        });
        let written = match tokio::time::timeout(PROBE_LIMIT, probe).await {
            Ok(ended) => ended.unwrap_or_else(|panic| Err(StoreError::unavailable(panic))),
            Err(_) => {
                let late = format!("no response within {} ms", PROBE_LIMIT.as_millis());
                Err(StoreError::unavailable(late))
            }
        };
        let failed = |_: &StoreError| shared.count(|metrics| metrics.store_errors += 1);
        written.inspect_err(failed)?;
        Ok(())
    }

    /// Counts the accepted events of this endpoint that are not done, on all machines.
    ///
    /// # Errors
    ///
    /// Returns [`InboxError::Store`] if the store failed.
    ///
    /// # Example: notice that workers fall behind
    ///
    /// ```
    /// use std::time::Duration;
    /// # use audience::inbox::{Inbox, MemoryStore, Receipt};
    /// # use audience::webhooks::{EventType, Signer, Verifier};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let body = br#"{"id": "evt_1", "type": "email.sent", "created_at": 1700000000, "data": {}}"#;
    /// # let headers = Signer::new("6Jm0nFq2pXvZk4Tt")?.sign(&EventType::Sent, std::time::SystemTime::now(), body);
    /// # let delivery = Verifier::new("6Jm0nFq2pXvZk4Tt")?.verify_event(&headers, body.to_vec())?;
    /// # let inbox = Inbox::builder(MemoryStore::new()).build()?;
    ///
    /// assert_eq!(inbox.accept(delivery).await, Receipt::Accepted);
    /// let backlog = inbox.backlog().await?;
    ///
    /// assert_eq!(backlog.waiting, 1);
    /// assert!(backlog.lag < Duration::from_secs(60), "start more workers");
    /// # Ok(()) }
    /// ```
    pub async fn backlog(&self) -> Result<Backlog, InboxError> {
        let shared = &self.0;
        let backlog = shared.store.backlog(self.endpoint()).await;
        Ok(backlog.inspect_err(|error| shared.store_failed("backlog", error))?)
    }

    /// Deletes the entries of all endpoints whose retention is over, 500 at a time. Returns how many were deleted.
    ///
    /// An inbox does this by itself every minute while it receives events or its workers run. Call it in a process that
    /// ends sooner.
    ///
    /// # Errors
    ///
    /// Returns [`InboxError::Store`] if the store failed. Some entries may have been deleted.
    ///
    /// # Example: delete events after three days
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use audience::inbox::{Claim, Inbox, MemoryStore};
    /// use audience::mock::MockServer;
    /// # use audience::webhooks::EventId;
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let id = EventId::try_from("evt_1")?;
    /// let server = MockServer::start().await;
    /// let store = MemoryStore::builder().clock(server.clock()).build();
    /// let inbox = Inbox::builder(store).build()?;
    /// if let Claim::Fresh(lease) = inbox.claim(&id).await? {
    ///     lease.complete().await?;
    /// }
    ///
    /// assert_eq!(inbox.purge().await?, 0);
    /// server.advance(Duration::from_secs(73 * 3_600)).await;
    /// assert_eq!(inbox.purge().await?, 1);
    /// # Ok(()) }
    /// ```
    pub async fn purge(&self) -> Result<u64, InboxError> {
        Ok(self.0.purge().await?)
    }

    /// Returns the counters of this inbox since it was built, in this process.
    ///
    /// # Example: count duplicates
    ///
    /// ```
    /// # use audience::inbox::{Inbox, MemoryStore};
    /// # use audience::webhooks::{EventType, Signer, Verifier};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let body = br#"{"id": "evt_1", "type": "email.sent", "created_at": 1700000000, "data": {}}"#;
    /// # let headers = Signer::new("6Jm0nFq2pXvZk4Tt")?.sign(&EventType::Sent, std::time::SystemTime::now(), body);
    /// # let delivery = Verifier::new("6Jm0nFq2pXvZk4Tt")?.verify_event(&headers, body.to_vec())?;
    /// # let inbox = Inbox::builder(MemoryStore::new()).build()?;
    /// for _ in 0..3 {
    ///     let receipt = inbox.handle(delivery.clone(), |_, _| async { Ok::<_, std::io::Error>(()) }).await;
    ///     assert!(receipt.is_success());
    /// }
    ///
    /// let metrics = inbox.metrics();
    /// assert_eq!((metrics.handled, metrics.duplicates), (1, 2));
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn metrics(&self) -> InboxMetrics {
        *self.0.lock_metrics()
    }

    /// Returns the name of the endpoint.
    #[must_use]
    pub fn endpoint(&self) -> &str {
        &self.0.settings.endpoint
    }

    /// Waits until all handlers that [`handle`](Self::handle) started have finished.
    ///
    /// Such a handler continues when its connection is closed. Before a program exits, stop accepting connections,
    /// then call this, within a limit: a handler that hangs would keep the program running until it is killed. A
    /// [`Worker`] of this inbox waits for them, and for its own, itself.
    ///
    /// # Example: exit without cutting a handler off
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// # use audience::inbox::{Inbox, MemoryStore};
    /// # use audience::webhooks::{EventType, Signer, Verifier};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let body = br#"{"id": "evt_1", "type": "email.sent", "created_at": 1700000000, "data": {}}"#;
    /// # let headers = Signer::new("6Jm0nFq2pXvZk4Tt")?.sign(&EventType::Sent, std::time::SystemTime::now(), body);
    /// # let delivery = Verifier::new("6Jm0nFq2pXvZk4Tt")?.verify_event(&headers, body.to_vec())?;
    /// # let inbox = Inbox::builder(MemoryStore::new()).build()?;
    /// let response = inbox.handle(delivery, |_, _| async { Ok::<_, std::io::Error>(()) });
    /// // The connection is closed before the response.
    /// let _ = tokio::time::timeout(Duration::ZERO, response).await;
    ///
    /// tokio::time::timeout(Duration::from_secs(20), inbox.wait_idle()).await?;
    ///
    /// assert_eq!(inbox.metrics().handled, 1);
    /// # Ok(()) }
    /// ```
    pub async fn wait_idle(&self) {
        self.0.running.wait_idle().await;
    }

    async fn parked_page(&self, after: Option<&EventId>) -> Result<Vec<ParkedEvent>, InboxError> {
        let shared = &self.0;
        let parked = shared.store.parked(self.endpoint(), after, PAGE).await;
        Ok(parked.inspect_err(|error| shared.store_failed("parked", error))?)
    }
}

impl fmt::Debug for Inbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inbox")
            .field("settings", &self.0.settings)
            .field("metrics", &self.metrics())
            .finish_non_exhaustive()
    }
}

/// Builds an [`Inbox`].
///
/// # Example: a longer lease for an endpoint with slow handlers
///
/// ```
/// use std::time::Duration;
///
/// use audience::inbox::{Inbox, MemoryStore};
///
/// let inbox = Inbox::builder(MemoryStore::new())
///     .endpoint("billing")
///     .lease(Duration::from_secs(300))
///     .build()?;
///
/// assert_eq!(inbox.endpoint(), "billing");
/// # Ok::<(), audience::ConfigError>(())
/// ```
#[must_use = "a builder does nothing until its inbox is built"]
pub struct InboxBuilder {
    store: Arc<dyn DynStore>,
    settings: Settings,
}

impl InboxBuilder {
    /// Sets the name of the endpoint that receives the events. Default: `main`.
    ///
    /// If two endpoints receive the same events, each of them handles each event once. All receivers of one endpoint
    /// use the same name.
    ///
    /// # Example: two endpoints in one store
    ///
    /// ```
    /// # use audience::inbox::{Inbox, MemoryStore, Receipt};
    /// # use audience::webhooks::{EventType, Signer, Verifier};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let body = br#"{"id": "evt_1", "type": "email.sent", "created_at": 1700000000, "data": {}}"#;
    /// # let headers = Signer::new("6Jm0nFq2pXvZk4Tt")?.sign(&EventType::Sent, std::time::SystemTime::now(), body);
    /// # let delivery = Verifier::new("6Jm0nFq2pXvZk4Tt")?.verify_event(&headers, body.to_vec())?;
    /// let store = MemoryStore::new();
    /// let billing = Inbox::builder(store.clone()).endpoint("billing").build()?;
    /// let support = Inbox::builder(store).endpoint("support").build()?;
    ///
    /// assert_eq!(billing.accept(delivery.clone()).await, Receipt::Accepted);
    /// assert_eq!(support.accept(delivery).await, Receipt::Accepted);
    /// # Ok(()) }
    /// ```
    pub fn endpoint(mut self, name: impl Into<String>) -> Self {
        self.settings.endpoint = name.into();
        self
    }

    /// Sets how long a claim lasts if it is not extended, 1 second to 1 hour. Default: 60 s.
    ///
    /// It is extended while its handler runs. If the process dies, the event may be claimed again after this
    /// time.
    ///
    /// # Example: how long a dead process keeps an event
    ///
    /// ```
    /// use std::time::{Duration, SystemTime};
    ///
    /// use audience::inbox::{Claim, Inbox, MemoryStore};
    /// # use audience::webhooks::EventId;
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let id = EventId::try_from("evt_1")?;
    /// let five_minutes = Duration::from_secs(300);
    /// let inbox = Inbox::builder(MemoryStore::new()).lease(five_minutes).build()?;
    /// drop(inbox.claim(&id).await?); // the process dies
    ///
    /// let Claim::InProgress { until } = inbox.claim(&id).await? else { panic!("it is claimed") };
    /// assert!(until <= SystemTime::now() + five_minutes);
    /// # Ok(()) }
    /// ```
    pub fn lease(mut self, lease: Duration) -> Self {
        self.settings.lease = lease;
        self
    }

    /// Sets how long a done event is remembered, at least 6 hours. Default: 72 h.
    ///
    /// The service retries for about five hours ([interface section 6.5](crate::interface#6.5)). Deliveries that you
    /// replay from the dashboard after this time are handled again.
    ///
    /// # Example: a week, and too short a time
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use audience::inbox::{Inbox, MemoryStore};
    ///
    /// let inbox = |hours: u64| Inbox::builder(MemoryStore::new()).retention(Duration::from_secs(hours * 3_600)).build();
    ///
    /// assert!(inbox(7 * 24).is_ok());
    /// assert!(inbox(5).is_err()); // the service may deliver the event again after that
    /// ```
    pub fn retention(mut self, retention: Duration) -> Self {
        self.settings.retention = retention;
        self
    }

    /// Sets the response deadline, counted from the arrival of a delivery: less than 10 s. Default: 8 s.
    ///
    /// # Example: a handler that takes too long
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// # use audience::inbox::{Inbox, MemoryStore, Receipt};
    /// # use audience::webhooks::{EventType, Signer, Verifier};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let body = br#"{"id": "evt_1", "type": "email.sent", "created_at": 1700000000, "data": {}}"#;
    /// # let headers = Signer::new("6Jm0nFq2pXvZk4Tt")?.sign(&EventType::Sent, std::time::SystemTime::now(), body);
    /// # let delivery = Verifier::new("6Jm0nFq2pXvZk4Tt")?.verify_event(&headers, body.to_vec())?;
    /// let inbox = Inbox::builder(MemoryStore::new()).respond_within(Duration::from_millis(1)).build()?;
    ///
    /// let receipt = inbox.handle(delivery, |_, _| std::future::pending::<Result<(), std::io::Error>>()).await;
    ///
    /// assert_eq!(receipt, Receipt::StillRunning);
    /// assert_eq!(receipt.status(), 503);
    /// # Ok(()) }
    /// ```
    pub fn respond_within(mut self, limit: Duration) -> Self {
        self.settings.respond_within = limit;
        self
    }

    /// Builds the inbox.
    ///
    /// # Errors
    ///
    /// Returns a [`ConfigError`] if a setting is out of its range.
    ///
    /// # Example: a setting that is refused
    ///
    /// ```
    /// use audience::inbox::{Inbox, MemoryStore};
    ///
    /// let error = Inbox::builder(MemoryStore::new()).endpoint("").build().unwrap_err();
    ///
    /// assert_eq!(error.to_string(), "an endpoint must be 1 to 255 bytes of text without control characters");
    /// ```
    pub fn build(self) -> Result<Inbox, ConfigError> {
        self.settings.check()?;
        Ok(Inbox(Arc::new(Shared::new(self.store, self.settings))))
    }
}

// For events that this program itself makes.

/// An inbox that forgets an id when its event is done, so that the id can be stored again. An id can be held, so that
/// it is not stored meanwhile.
#[cfg(feature = "unsubscribe")]
impl Inbox {
    /// `failure` is the log message for a failed attempt. Another attempt always follows.
    pub(crate) fn of_own_events(
        store: impl Store,
        endpoint: &str,
        lease: Duration,
        failure: &'static str,
    ) -> Self {
        let settings = Settings {
            endpoint: endpoint.to_owned(),
            lease,
            retention: Duration::ZERO,
            own_failure: Some(failure),
            ..Settings::default()
        };
        Self(Arc::new(Shared::new(Arc::new(store), settings)))
    }

    /// Returns an inbox of this kind in the same store.
    pub(crate) fn with_endpoint(&self, endpoint: &str, failure: &'static str) -> Self {
        let settings = Settings {
            endpoint: endpoint.to_owned(),
            own_failure: Some(failure),
            ..self.0.settings.clone()
        };
        Self(Arc::new(Shared::new(Arc::clone(&self.0.store), settings)))
    }

    /// Stores an event for a worker, and returns when it is stored or waits already. The body is an envelope. Returns
    /// `false` if the id is held.
    pub(crate) async fn store_own(&self, id: &EventId, body: &[u8]) -> Result<bool, StoreError> {
        let shared = &self.0;
        match self.accept_own(id, body).await? {
            AcceptState::Accepted => {
                shared.count(|metrics| metrics.accepted += 1);
                shared.accepted.notify_one();
                Ok(true)
            }
            AcceptState::Duplicate => {
                shared.count(|metrics| metrics.duplicates += 1);
                Ok(true)
            }
            AcceptState::InProgress { .. } | AcceptState::Conflict => Ok(false),
        }
    }

    /// Stores an event and claims it with this token. A worker handles it after
    /// [`release_hold`](Self::release_hold), or after a lease, and never after [`end_hold`](Self::end_hold).
    ///
    /// Returns `false` if a worker was faster. It makes the first attempt, so its handler knows that this failed.
    pub(crate) async fn store_held(
        &self,
        id: &EventId,
        body: &[u8],
        token: Token,
    ) -> Result<bool, StoreError> {
        self.accept_own(id, body).await?;
        let lease = self.0.settings.lease;
        let state = self.claim_own(id, token, lease, own_fingerprint(id));
        let is_claimed = matches!(state.await?, ClaimState::Fresh { .. });
        // If the worker has ended the event, the claim is one of an event that is not stored.
        let is_held = is_claimed && self.accept_own(id, body).await? == AcceptState::Duplicate;
        if !is_held {
            self.end_hold(id, token).await;
        }
        Ok(is_held)
    }

    async fn accept_own(&self, id: &EventId, body: &[u8]) -> Result<AcceptState, StoreError> {
        let shared = &self.0;
        shared.purge_if_due();
        let accepted = shared.store.accept(NewDelivery {
            key: shared.key(id),
            body,
            fingerprint: own_fingerprint(id),
        });
        self.in_time("accept", accepted).await
    }

    /// Holds an id until [`end_hold`](Self::end_hold), or for a lease. Returns `None` if its event waits or is being
    /// handled, or if it is held.
    pub(crate) async fn hold_own(&self, id: &EventId) -> Result<Option<Token>, StoreError> {
        let token = Token::random();
        let state = self.claim_held(id, token, self.0.settings.lease).await?;
        Ok(matches!(state, ClaimState::Fresh { .. }).then_some(token))
    }

    /// Returns what an id is, for somebody who might hold it.
    pub(crate) async fn state_of(&self, id: &EventId) -> Result<ClaimState, StoreError> {
        let shared = &self.0;
        let state = shared.store.state(shared.key(id), Some(held_fingerprint()));
        self.in_time("state", state).await
    }

    /// Holds an id for this long, if nothing else does, and returns what it was.
    pub(crate) async fn claim_held(
        &self,
        id: &EventId,
        token: Token,
        lease: Duration,
    ) -> Result<ClaimState, StoreError> {
        self.claim_own(id, token, lease, held_fingerprint()).await
    }

    /// Keeps a text under this id until it is [deleted](Self::delete_kept), as a parked event without a body. Returns
    /// `false` if the id is held, or has a text already.
    pub(crate) async fn keep(&self, id: &EventId, text: &str) -> Result<bool, StoreError> {
        let key = self.0.key(id);
        let token = Token::random();
        let state = self.claim_held(id, token, self.0.settings.lease).await?;
        if !matches!(state, ClaimState::Fresh { .. }) {
            return Ok(false);
        }
        let parked = self.0.store.park(HeldClaim { key, token }, text);
        match self.in_time("park", parked).await? {
            true => Ok(true),
            false => Err(StoreError::unavailable("the claim has ended")),
        }
    }

    /// Deletes the text that is kept under this id, if there is one.
    pub(crate) async fn delete_kept(&self, id: &EventId) -> Result<(), StoreError> {
        let discarded = self.0.store.discard(self.0.key(id), Duration::ZERO);
        self.in_time("discard", discarded).await.map(drop)
    }

    /// Returns the first texts that are kept under ids after this one, in the order of the bytes of the ids.
    pub(crate) async fn kept_after(
        &self,
        id: Option<&EventId>,
        limit: usize,
    ) -> Result<Vec<(EventId, String)>, StoreError> {
        let parked = self.0.store.parked(self.endpoint(), id, limit);
        let parked = self.in_time("parked", parked).await?.into_iter();
        Ok(parked.map(|kept| (kept.id, kept.reason)).collect())
    }

    /// Returns whether the event with this id waits or is being handled.
    pub(crate) async fn has_own(&self, id: &EventId) -> Result<bool, StoreError> {
        Ok(matches!(
            self.state_of(id).await?,
            ClaimState::Conflict | ClaimState::Parked
        ))
    }

    async fn claim_own(
        &self,
        id: &EventId,
        token: Token,
        lease: Duration,
        fingerprint: Fingerprint,
    ) -> Result<ClaimState, StoreError> {
        let shared = &self.0;
        let claim = NewClaim {
            key: shared.key(id),
            token,
            lease,
            retention: Duration::ZERO,
            fingerprint: Some(fingerprint),
        };
        self.in_time("claim", shared.store.claim(claim)).await
    }

    /// Returns whether to log a failure of the application's own code now: once a minute, as those of the store.
    #[cfg(feature = "tracing")]
    pub(crate) fn logs_failure(&self, operation: &'static str) -> bool {
        self.0.failures.due(operation).is_some()
    }

    /// Awaits a call of the store, but not for longer than the service waits for a response.
    async fn in_time<T>(
        &self,
        operation: &'static str,
        call: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let result = tokio::time::timeout(self.0.settings.respond_within, call).await;
        let late = |_| Err(StoreError::unavailable("it did not respond in time"));
        let result = result.unwrap_or_else(late);
        result.inspect_err(|error| self.0.store_failed(operation, error))
    }

    /// Counts a task that a [`Worker`] waits for when it shuts down, until the returned value is dropped.
    pub(crate) fn start_task(&self) -> impl Send + use<> {
        self.0.running.start()
    }

    /// Lets a hold last this long from now. Returns whether the id was held until now.
    pub(crate) async fn extend_hold(
        &self,
        id: &EventId,
        token: Token,
        lease: Duration,
    ) -> Result<bool, StoreError> {
        let key = self.0.key(id);
        let extended = self.0.store.extend(HeldClaim { key, token }, lease);
        self.in_time("extend", extended).await
    }

    /// Ends a hold, and forgets the event that was stored with it. Returns whether the id was held until now. If the
    /// store fails, the hold ends with its lease.
    pub(crate) async fn end_hold(&self, id: &EventId, token: Token) -> bool {
        self.complete_hold(id, token, Duration::ZERO).await
    }

    /// Ends a hold. For this long, the id is [`Done`](ClaimState::Done) and cannot be held.
    pub(crate) async fn complete_hold(
        &self,
        id: &EventId,
        token: Token,
        retention: Duration,
    ) -> bool {
        let key = self.0.key(id);
        let held = HeldClaim { key, token };
        let ended = self.0.store.complete(held, retention);
        self.is_done("complete", ended).await
    }

    /// Ends a hold, and hands the event that was stored with it to the workers. If the store fails, they get it after
    /// the lease.
    pub(crate) async fn release_hold(&self, id: &EventId, token: Token) {
        let key = self.0.key(id);
        let release = Release {
            delay: Duration::ZERO,
            retention: Duration::ZERO,
            reason: "",
        };
        let released = self.0.store.release(HeldClaim { key, token }, release);
        if self.is_done("release", released).await {
            self.0.accepted.notify_one();
        }
    }

    async fn is_done(
        &self,
        operation: &'static str,
        call: impl Future<Output = Result<bool, StoreError>>,
    ) -> bool {
        self.in_time(operation, call).await.unwrap_or(false)
    }
}

/// The fingerprint of the id: the bodies of one id have different times, and mean the same.
#[cfg(feature = "unsubscribe")]
fn own_fingerprint(id: &EventId) -> Fingerprint {
    Fingerprint::of(id.as_str().as_bytes())
}

/// A fingerprint that no event has. Without one, a claim would take an event that nobody has taken yet.
#[cfg(feature = "unsubscribe")]
fn held_fingerprint() -> Fingerprint {
    Fingerprint::of(b"held")
}

impl fmt::Debug for InboxBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InboxBuilder")
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}

// The settings, and their limits.

const DEFAULT_RETENTION: Duration = Duration::from_secs(72 * 3_600);
/// The service retries for about five hours (interface section 6.5).
const SHORTEST_RETENTION: Duration = Duration::from_secs(6 * 3_600);

#[derive(Clone, Debug)]
struct Settings {
    endpoint: String,
    lease: Duration,
    retention: Duration,
    respond_within: Duration,
    /// The log message for a failed attempt if the events are the program's own, and are retried until they succeed.
    own_failure: Option<&'static str>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            endpoint: "main".to_owned(),
            lease: Duration::from_secs(60),
            retention: DEFAULT_RETENTION,
            respond_within: Duration::from_secs(8),
            own_failure: None,
        }
    }
}

impl Settings {
    fn check(&self) -> Result<(), ConfigError> {
        let Self {
            ref endpoint,
            lease,
            retention,
            respond_within,
            own_failure: _,
        } = *self;
        if !is_endpoint(endpoint) {
            return Err(ConfigError::new(
                "an endpoint must be 1 to 255 bytes of text without control characters",
            ));
        }
        if !(Duration::from_secs(1)..=Duration::from_secs(3_600)).contains(&lease) {
            return Err(ConfigError::new(format!(
                "a lease must last 1 second to 1 hour, not {} ms: a shorter lease may end while its handler runs, \
                 and a longer one blocks the retries for too long after a crash",
                lease.as_millis()
            )));
        }
        if retention < SHORTEST_RETENTION {
            return Err(ConfigError::new(format!(
                "done events must be remembered for at least 6 hours, not {} s: the service retries an event for about \
                 five hours, and a delivery may be 5 minutes old",
                retention.as_secs()
            )));
        }
        if respond_within.is_zero() || respond_within >= Duration::from_secs(10) {
            return Err(ConfigError::new(format!(
                "the time to respond must be more than 0 and less than 10 seconds, not {} ms: the service waits 10 seconds",
                respond_within.as_millis()
            )));
        }
        Ok(())
    }
}

/// Returns whether an endpoint can have this name.
pub(crate) fn is_endpoint(name: &str) -> bool {
    !name.is_empty() && name.len() <= 255 && !name.contains(char::is_control)
}

// Claims for code that does the work itself.

/// The result of [`Inbox::claim`](Inbox::claim).
#[derive(Debug)]
#[must_use = "handle the event only if the claim is `Fresh`, and respond with 503 if it is `InProgress`"]
pub enum Claim {
    /// The caller may handle the event until the lease ends.
    Fresh(Lease),
    /// Another attempt is handling the event. Respond with 503, so that the service delivers it again.
    InProgress {
        /// When the claim ends if it is not extended, by this machine's clock.
        until: SystemTime,
    },
    /// The event was handled before, or is parked. Respond with a success.
    Done,
}

/// The right to handle an event, for a time.
///
/// Dropping a lease does not end the claim: the claim expires, as it would if the process died.
///
/// # Example: renew the lease between two steps
///
/// ```
/// use audience::inbox::{Claim, Inbox, MemoryStore};
/// use audience::webhooks::EventId;
///
/// # tokio::runtime::Runtime::new()?.block_on(async {
/// let inbox = Inbox::builder(MemoryStore::new()).build()?;
/// let id = EventId::try_from("evt_1")?;
///
/// if let Claim::Fresh(lease) = inbox.claim(&id).await? {
///     println!("first step of {}, attempt {}", lease.id(), lease.attempt());
///     lease.extend().await?;
///     println!("second step");
///     lease.complete().await?;
/// }
///
/// assert!(matches!(inbox.claim(&id).await?, Claim::Done));
/// # Ok::<(), Box<dyn std::error::Error>>(()) })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Lease {
    // It has no `Drop`, which could not wait for the store and which a crash skips anyway. So an abandoned claim always
    // ends with its lease.
    shared: Arc<Shared>,
    id: EventId,
    token: Token,
    attempt: u32,
    /// Whether the metrics have counted that it was completed or lost.
    is_counted: AtomicBool,
}

/// The event to claim. An [`EventId`] claims by the id alone; a [`VerifiedEvent`] also detects a duplicate of the id
/// with another body.
#[derive(Clone, Copy, Debug)]
pub struct ClaimTarget<'a> {
    id: &'a EventId,
    fingerprint: Option<Fingerprint>,
}

impl<'a> From<&'a EventId> for ClaimTarget<'a> {
    fn from(id: &'a EventId) -> Self {
        Self {
            id,
            fingerprint: None,
        }
    }
}

impl<'a> From<&'a VerifiedEvent> for ClaimTarget<'a> {
    fn from(delivery: &'a VerifiedEvent) -> Self {
        Self {
            id: &delivery.id,
            fingerprint: Some(Fingerprint::of(delivery.body())),
        }
    }
}

impl Lease {
    /// Returns the id of the event.
    #[must_use]
    pub fn id(&self) -> &EventId {
        &self.id
    }

    /// Returns the number of this claim of the event. The first is 1.
    ///
    /// # Example: give up after three attempts
    ///
    /// ```
    /// use audience::inbox::{Claim, Inbox, MemoryStore};
    /// # use audience::webhooks::EventId;
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let inbox = Inbox::builder(MemoryStore::new()).build()?;
    /// # let id = EventId::try_from("evt_1")?;
    /// let mut attempts = 0;
    /// while let Claim::Fresh(lease) = inbox.claim(&id).await? {
    ///     attempts = lease.attempt();
    ///     if attempts < 3 { lease.release().await? } else { lease.complete().await? }
    /// }
    ///
    /// assert_eq!(attempts, 3);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn attempt(&self) -> u32 {
        self.attempt
    }

    /// Marks the event as done. Later deliveries are duplicates.
    ///
    /// Calling it again has no effect.
    ///
    /// # Errors
    ///
    /// - [`InboxError::LeaseLost`] if the claim was released, or the lease ended and the event was claimed or
    ///   accepted since.
    /// - [`InboxError::Store`] if the store failed. Call it again; the lease may still be held.
    ///
    /// # Example: two deliveries, one effect
    ///
    /// ```
    /// # use audience::inbox::{Claim, Inbox, MemoryStore};
    /// # use audience::webhooks::EventId;
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let inbox = Inbox::builder(MemoryStore::new()).build()?;
    /// # let id = EventId::try_from("evt_1")?;
    /// let mut suppressed = Vec::new();
    ///
    /// for _delivery in 1..=2 {
    ///     if let Claim::Fresh(lease) = inbox.claim(&id).await? {
    ///         suppressed.push("ada@example.com");
    ///         lease.complete().await?;
    ///     }
    /// }
    ///
    /// assert_eq!(suppressed, ["ada@example.com"]);
    /// # Ok(()) }
    /// ```
    pub async fn complete(&self) -> Result<(), InboxError> {
        let shared = &self.shared;
        let is_held = shared
            .store
            .complete(self.held(), shared.settings.retention)
            .await;
        // A crash before this line leaves an event whose effect has happened and that is handled again.
        self.held_or_lost("complete", is_held)?;
        if self.counts_now() {
            shared.count(|metrics| metrics.handled += 1);
        }
        Ok(())
    }

    /// Ends the claim without success: the event may be claimed again immediately.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`complete`](Self::complete).
    ///
    /// # Example: hand an event back
    ///
    /// ```
    /// # use audience::inbox::{Claim, Inbox, MemoryStore};
    /// # use audience::webhooks::EventId;
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let inbox = Inbox::builder(MemoryStore::new()).build()?;
    /// # let id = EventId::try_from("evt_1")?;
    /// let Claim::Fresh(first) = inbox.claim(&id).await? else { panic!("it is new") };
    /// first.release().await?;
    ///
    /// let Claim::Fresh(second) = inbox.claim(&id).await? else { panic!("it was released") };
    /// assert_eq!(second.attempt(), 2);
    /// # Ok(()) }
    /// ```
    pub async fn release(&self) -> Result<(), InboxError> {
        let release = Release {
            delay: Duration::ZERO,
            retention: self.shared.settings.retention,
            reason: "released",
        };
        let is_held = self.shared.store.release(self.held(), release).await;
        self.held_or_lost("release", is_held)
    }

    /// Renews the lease: it ends one [lease](InboxBuilder::lease) from now.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`complete`](Self::complete).
    ///
    /// # Example: stop when another attempt has the event
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use audience::inbox::{Claim, Inbox, InboxError, MemoryStore};
    /// # use audience::webhooks::EventId;
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let id = EventId::try_from("evt_1")?;
    /// # let server = audience::mock::MockServer::start().await;
    /// # let inbox = Inbox::builder(MemoryStore::builder().clock(server.clock()).build()).build()?;
    /// let Claim::Fresh(slow) = inbox.claim(&id).await? else { panic!("it is new") };
    /// slow.extend().await?;
    ///
    /// server.advance(Duration::from_secs(61)).await;
    /// let Claim::Fresh(_fast) = inbox.claim(&id).await? else { panic!("the lease is over") };
    ///
    /// assert!(matches!(slow.extend().await, Err(InboxError::LeaseLost)));
    /// # Ok(()) }
    /// ```
    pub async fn extend(&self) -> Result<(), InboxError> {
        let lease = self.shared.settings.lease;
        let is_held = self.shared.store.extend(self.held(), lease).await;
        self.held_or_lost("extend", is_held)
    }

    fn held(&self) -> HeldClaim<'_> {
        HeldClaim {
            key: self.shared.key(&self.id),
            token: self.token,
        }
    }

    fn held_or_lost(
        &self,
        operation: &'static str,
        is_held: Result<bool, StoreError>,
    ) -> Result<(), InboxError> {
        let is_held = is_held.inspect_err(|error| self.shared.store_failed(operation, error))?;
        if is_held {
            return Ok(());
        }
        if self.counts_now() {
            self.shared.lease_lost(&self.id);
        }
        Err(InboxError::LeaseLost)
    }

    /// Returns `true` the first time.
    fn counts_now(&self) -> bool {
        !self.is_counted.swap(true, Ordering::Relaxed)
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease")
            .field("id", &self.id)
            .field("attempt", &self.attempt)
            .finish_non_exhaustive()
    }
}

// The number of an attempt, and the counters.

/// How many attempts the service makes (interface section 6.5).
const ATTEMPTS_OF_THE_SERVICE: u32 = 10;

/// The attempt at an event that a handler is running.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attempt {
    number: u32,
    limit: u32,
}

impl Attempt {
    /// Creates an attempt, for a test of your own handler.
    ///
    /// # Example: a test of a handler that does more on its last attempt
    ///
    /// ```
    /// use audience::inbox::Attempt;
    ///
    /// fn subject(attempt: Attempt) -> Option<&'static str> {
    ///     attempt.is_last().then_some("an event could not be handled")
    /// }
    ///
    /// assert_eq!(subject(Attempt::new(1, 10)), None);
    /// assert!(subject(Attempt::new(10, 10)).is_some());
    /// ```
    #[must_use]
    pub fn new(number: u32, limit: u32) -> Self {
        Self { number, limit }
    }

    /// Returns the number of the attempt. The first is 1.
    ///
    /// Attempts that ended with their process count, too.
    ///
    /// # Example: a retry that first looks for half-done work
    ///
    /// ```
    /// # use audience::inbox::{Inbox, MemoryStore, Receipt};
    /// # use audience::webhooks::{EventType, Signer, Verifier};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let body = br#"{"id": "evt_1", "type": "email.sent", "created_at": 1700000000, "data": {}}"#;
    /// # let headers = Signer::new("6Jm0nFq2pXvZk4Tt")?.sign(&EventType::Sent, std::time::SystemTime::now(), body);
    /// # let delivery = Verifier::new("6Jm0nFq2pXvZk4Tt")?.verify_event(&headers, body.to_vec())?;
    /// # let inbox = Inbox::builder(MemoryStore::new()).build()?;
    /// let receipt = inbox.handle(delivery.clone(), |_, _| async { Err("the connection broke") }).await;
    /// assert_eq!(receipt, Receipt::Failed);
    ///
    /// let receipt = inbox.handle(delivery, |_, attempt| async move {
    ///     if attempt.number() > 1 {
    ///         println!("is half of the work done?");
    ///     }
    /// #   assert_eq!(attempt.number(), 2);
    ///     Ok::<_, std::io::Error>(())
    /// }).await;
    /// assert_eq!(receipt, Receipt::Handled);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Returns how many attempts follow if this one fails.
    ///
    /// In [`handle`](Inbox::handle) this is an estimate: the service makes ten attempts
    /// ([interface section 6.5](crate::interface#6.5)), but a delivery that never reached the inbox is not counted.
    ///
    /// # Example: a warning before it is too late
    ///
    /// ```
    /// use audience::inbox::Attempt;
    ///
    /// let attempt = Attempt::new(8, 10);
    ///
    /// assert_eq!(attempt.remaining(), 2);
    /// ```
    #[must_use]
    pub fn remaining(&self) -> u32 {
        self.limit.saturating_sub(self.number)
    }

    /// Returns whether no attempt follows if this one fails.
    ///
    /// # Example: the tenth attempt of ten
    ///
    /// ```
    /// use audience::inbox::Attempt;
    ///
    /// assert!(!Attempt::new(9, 10).is_last());
    /// assert!(Attempt::new(10, 10).is_last());
    /// ```
    #[must_use]
    pub fn is_last(&self) -> bool {
        self.remaining() == 0
    }
}

/// The counters of an inbox since it was built, in this process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct InboxMetrics {
    /// Events stored for a worker.
    pub accepted: u64,
    /// Events whose handler succeeded.
    pub handled: u64,
    /// Deliveries that are duplicates.
    pub duplicates: u64,
    /// Deliveries of an event that another attempt was handling.
    pub in_progress: u64,
    /// Attempts that returned an error or panicked.
    pub failed: u64,
    /// Events parked.
    pub parked: u64,
    /// Events of a known type whose data does not tell what they are about; see
    /// [`EventData::is_incomplete`](crate::webhooks::EventData::is_incomplete). Each is counted when it is accepted, or
    /// when [`Inbox::handle`] calls the handler for its id the first time.
    pub incomplete: u64,
    /// Events of a type that this version of the crate does not know
    /// ([`EventType::Other`](crate::webhooks::EventType::Other)). Each is counted as an incomplete one is, and logged with
    /// its type at the level INFO.
    pub unknown_type: u64,
    /// Deliveries that were refused because their id was received before with another body.
    pub conflicts: u64,
    /// Handlers that ended after their lease was lost, and [`Lease`]s that turned out to be lost.
    pub leases_lost: u64,
    /// Calls of the store that failed or timed out.
    pub store_errors: u64,
    /// How long the newest taken event had been due. It is not updated while the workers are idle;
    /// [`Inbox::backlog`](Inbox::backlog) has the current lag.
    pub lag: Duration,
}

// The part of an inbox that its clones, its workers and its leases share: claiming, running, completing.

/// The parts of an inbox that its clones and its workers share.
struct Shared {
    store: Arc<dyn DynStore>,
    settings: Settings,
    metrics: Mutex<InboxMetrics>,
    running: Arc<Running>,
    purge_timer: PurgeTimer,
    failures: FailureLog,
    /// Wakes the workers of this process when an event was accepted.
    accepted: Notify,
    /// The runtime in which the inbox was built, if it has threads of its own: it runs tasks until it is shut down.
    runtime: Option<Handle>,
}

impl Shared {
    fn new(store: Arc<dyn DynStore>, settings: Settings) -> Self {
        Self {
            store,
            settings,
            metrics: Mutex::default(),
            running: Arc::default(),
            purge_timer: PurgeTimer::start(),
            failures: FailureLog::default(),
            accepted: Notify::new(),
            runtime: Handle::try_current().ok().filter(has_threads),
        }
    }

    /// Returns the runtime of the program if the current one may end before it, as that of a worker thread of actix-web
    /// does: a handler that continues after its response must not end with it.
    fn longer_runtime(&self) -> Option<&Handle> {
        let runtime = self.runtime.as_ref()?;
        if Handle::try_current().is_ok_and(|current| has_threads(&current)) {
            return None;
        }
        // It may have been the runtime of another test.
        (!is_shut_down(runtime)).then_some(runtime)
    }

    fn key<'a>(&'a self, id: &'a EventId) -> EventKey<'a> {
        EventKey {
            endpoint: &self.settings.endpoint,
            id,
        }
    }

    /// Deletes forgotten entries now and then, in a task of its own.
    fn purge_if_due(self: &Arc<Self>) {
        if self.purge_timer.is_due() {
            let shared = Arc::clone(self);
            tokio::spawn(async move {
                if let Some(error) = purge_failure(purge_all(shared.store.as_ref())).await {
                    shared.store_failed("purge", &error);
                }
            });
        }
    }

    async fn purge(&self) -> Result<u64, StoreError> {
        let purged = purge_all(self.store.as_ref()).await;
        purged.inspect_err(|error| self.store_failed("purge", error))
    }

    async fn probe(&self) -> Result<ClaimState, StoreError> {
        let id = EventId::try_from(PROBE).expect("it is a short text");
        // The claim ends and is forgotten immediately, so the next probe replaces it, and no probe waits for another.
        let ended = Duration::ZERO;
        let claim = NewClaim::new(self.key(&id), Token::random(), ended, ended);
        self.store.claim(claim).await
    }

    /// Claims an event. Returns the number of the attempt if the claim is the caller's, else the counted receipt.
    async fn claim(
        &self,
        held: HeldClaim<'_>,
        fingerprint: Option<Fingerprint>,
    ) -> Result<Result<u32, Receipt>, StoreError> {
        let claimed = self.store.claim(NewClaim {
            key: held.key,
            token: held.token,
            lease: self.settings.lease,
            retention: self.settings.retention,
            fingerprint,
        });
        let claimed = claimed.await;
        let state = claimed.inspect_err(|error| self.store_failed("claim", error))?;
        Ok(Receipt::of_claim(state).map_err(|receipt| self.counted(held.key.id, receipt)))
    }

    /// Counts the receipt of a delivery for which no handler was run.
    fn counted(&self, id: &EventId, receipt: Receipt) -> Receipt {
        match receipt {
            Receipt::Accepted => self.count(|metrics| metrics.accepted += 1),
            Receipt::Duplicate => self.count(|metrics| metrics.duplicates += 1),
            Receipt::InProgress { .. } => self.count(|metrics| metrics.in_progress += 1),
            Receipt::Conflict => {
                self.count(|metrics| metrics.conflicts += 1);
                report_conflict(&self.settings.endpoint, id);
            }
            _ => {}
        }
        receipt
    }

    fn count_if_unknown(&self, event: &Event) {
        if event.data.is_incomplete() {
            self.count(|metrics| metrics.incomplete += 1);
        } else if matches!(event.data, EventData::Unknown { .. })
            // The program's own events have types of its own.
            && self.settings.own_failure.is_none()
        {
            self.count(|metrics| metrics.unknown_type += 1);
            report!(
                info,
                endpoint = self.settings.endpoint,
                id = event.id.as_str(),
                event_type = event.event_type().as_str(),
                "webhook event of an unknown type"
            );
        }
    }

    fn lease_lost(&self, id: &EventId) {
        self.count(|metrics| metrics.leases_lost += 1);
        self.report_lost_lease(id);
    }

    /// Returns the id as the log shows it. The program makes the ids of its own events from addresses.
    #[cfg(feature = "tracing")]
    fn logged_id<'a>(&self, id: &'a EventId) -> Option<&'a str> {
        self.settings.own_failure.is_none().then(|| id.as_str())
    }

    fn report_lost_lease(&self, id: &EventId) {
        report!(
            warn,
            endpoint = self.settings.endpoint,
            id = self.logged_id(id),
            "lease of a webhook event lost"
        );
    }

    fn store_failed(&self, operation: &'static str, error: &StoreError) {
        self.count(|metrics| metrics.store_errors += 1);
        self.failures
            .report(Some(&self.settings.endpoint), operation, error);
    }

    fn store_recovered(&self, operation: &'static str, outage: Duration) {
        self.failures.clear();
        report!(
            info,
            endpoint = self.settings.endpoint,
            operation,
            seconds = outage.as_secs(),
            "inbox store works again"
        );
    }

    fn handler_failed(&self, id: &EventId, attempt: Attempt, failure: &Failure) {
        self.count(|metrics| metrics.failed += 1);
        if let Some(text) = self.settings.own_failure {
            report!(
                warn,
                endpoint = self.settings.endpoint,
                attempts = attempt.number(),
                error = failure.reason(),
                "{text}"
            );
            return;
        }
        report!(
            warn,
            endpoint = self.settings.endpoint,
            id = id.as_str(),
            attempts = attempt.number(),
            remaining = attempt.remaining(),
            error = failure.reason(),
            "handler of a webhook event failed"
        );
    }

    fn handler_cut_off(&self, id: &EventId, attempt: Attempt) {
        report!(
            warn,
            endpoint = self.settings.endpoint,
            id = self.logged_id(id),
            attempts = attempt.number(),
            "handler of a webhook event cut off by the shutdown"
        );
    }

    fn parked(&self, id: &EventId) {
        self.count(|metrics| metrics.parked += 1);
        report!(
            error,
            endpoint = self.settings.endpoint,
            id = self.logged_id(id),
            "webhook event parked"
        );
    }

    fn count(&self, change: impl FnOnce(&mut InboxMetrics)) {
        change(&mut self.lock_metrics());
    }

    fn lock_metrics(&self) -> MutexGuard<'_, InboxMetrics> {
        lock(&self.metrics)
    }

    async fn claim_and_run<F, Fut, E>(&self, delivery: VerifiedEvent, handler: F) -> Receipt
    where
        F: FnOnce(Event, Attempt) -> Fut,
        Fut: Future<Output = Result<(), E>>,
        E: Into<Box<dyn Error + Send + Sync>>,
    {
        let id = delivery.id.clone();
        let held = HeldClaim {
            key: self.key(&id),
            token: Token::random(),
        };
        // Without it, another event with the same id would be dropped as a duplicate.
        let fingerprint = Fingerprint::of(delivery.body());
        let attempt = match self.claim(held, Some(fingerprint)).await {
            Ok(Ok(attempt)) => Attempt::new(attempt, ATTEMPTS_OF_THE_SERVICE),
            Ok(Err(receipt)) => return receipt,
            Err(error) => return Receipt::of_store_error(&error),
        };

        let event = delivery.into_event();
        if attempt.number() == 1 {
            self.count_if_unknown(&event);
        }
        let handler = async move { handler(event, attempt).await };
        match self.run(held, handler).await {
            Ok(()) => self.finish_success(held).await,
            Err(failure) => self.finish_failure(held, attempt, &failure).await,
        }
    }

    async fn finish_success(&self, held: HeldClaim<'_>) -> Receipt {
        match self.complete(held).await {
            Ok(true) => {
                self.count(|metrics| metrics.handled += 1);
                Receipt::Handled
            }
            Ok(false) => {
                // Another attempt may have the event now. A success would end the retries, and lose it if that attempt
                // fails.
                self.lease_lost(held.key.id);
                Receipt::InProgress {
                    retry_after: self.settings.lease,
                }
            }
            // The effect has happened and is not recorded. The lease ends by itself, and the event is handled again.
            Err(error) => Receipt::of_store_error(&error),
        }
    }

    async fn finish_failure(
        &self,
        held: HeldClaim<'_>,
        attempt: Attempt,
        failure: &Failure,
    ) -> Receipt {
        self.handler_failed(held.key.id, attempt, failure);
        let release = Release {
            // There is no delay: the service has its own schedule, and its next delivery must not find the event in
            // progress.
            delay: Duration::ZERO,
            retention: self.settings.retention,
            reason: failure.reason(),
        };
        match self.store.release(held, release).await {
            Ok(true) => {}
            Ok(false) => self.lease_lost(held.key.id),
            // The claim ends with its lease. A retry would keep the sender waiting for nothing.
            Err(error) => self.store_failed("release", &error),
        }
        Receipt::Failed
    }

    /// Runs a handler to its end and extends its lease meanwhile. A panic is a failure.
    async fn run<E>(
        &self,
        held: HeldClaim<'_>,
        handler: impl Future<Output = Result<(), E>>,
    ) -> Result<(), Failure>
    where
        E: Into<Box<dyn Error + Send + Sync>>,
    {
        let mut handler = pin!(handler);
        let mut lease = pin!(self.keep_extended(held, Instant::now()));
        let mut is_extended = false;
        poll_fn(|context| {
            // The lease has no result. A handler that is ready immediately needs no timer for it.
            if is_extended {
                let _: Poll<()> = lease.as_mut().poll(context);
            }
            // After a panic the handler is not polled again. The text of its error is made by its code, too.
            let polled = catch_unwind(AssertUnwindSafe(|| {
                let handled = handler.as_mut().poll(context);
                handled.map_err(|error| Failure::of_error(error.into().as_ref()))
            }));
            let polled =
                polled.unwrap_or_else(|panic| Poll::Ready(Err(Failure::of_panic(panic.as_ref()))));
            if polled.is_pending() && !is_extended {
                is_extended = true;
                let _: Poll<()> = lease.as_mut().poll(context);
            }
            polled
        })
        .await
    }

    /// Extends a lease for as long as it is polled. Never ends.
    async fn keep_extended(&self, held: HeldClaim<'_>, claimed_at: Instant) {
        let lease = self.settings.lease;
        // The lease is extended after a third of its time: if that fails, there is time for other tries before it ends.
        let mut extend_at = claimed_at + lease / 3;
        loop {
            tokio::time::sleep_until(extend_at).await;
            let extended = self.store.extend(held, lease).await;
            // The pause begins with the response, so that a slow store is not asked without one.
            let now = Instant::now();
            match extended {
                Ok(true) => extend_at = now + lease / 3,
                Ok(false) => {
                    self.report_lost_lease(held.key.id);
                    // The handler is not cut off in the middle of its effect. Its token can no longer complete the
                    // event.
                    return pending().await;
                }
                Err(error) => {
                    self.store_failed("extend", &error);
                    extend_at = now + EXTEND_AGAIN.min(lease / 3);
                }
            }
        }
    }

    /// Marks an event as done. Retries while the store is down, for as long as a lease.
    ///
    /// Returns whether the claim was held.
    async fn complete(&self, held: HeldClaim<'_>) -> Result<bool, StoreError> {
        // The effect has happened. Each failure to record it makes the event run again, so retries are worth a lease.
        let mut end = None;
        let mut delay = FIRST_DELAY;
        loop {
            let error = match self.store.complete(held, self.settings.retention).await {
                Ok(is_held) => return Ok(is_held),
                Err(error) => error,
            };
            self.store_failed("complete", &error);
            let now = Instant::now();
            let end = *end.get_or_insert(now + self.settings.lease);
            if !error.is_temporary() || now + delay > end {
                return Err(error);
            }
            tokio::time::sleep(delay).await;
            delay = (delay * 2).min(LONGEST_DELAY);
        }
    }

    fn respond_by(&self, delivery: &VerifiedEvent) -> Instant {
        delivery.arrived_at().unwrap_or_else(Instant::now) + self.settings.respond_within
    }

    fn receipt_of_store_error(&self, operation: &'static str, error: &StoreError) -> Receipt {
        self.store_failed(operation, error);
        Receipt::of_store_error(error)
    }
}

fn has_threads(runtime: &Handle) -> bool {
    runtime.runtime_flavor() != RuntimeFlavor::CurrentThread
}

/// Returns whether a runtime was told to shut down. It then drops each new task immediately.
fn is_shut_down(runtime: &Handle) -> bool {
    let probe = runtime.spawn(pending::<()>());
    let is_dropped = probe.is_finished();
    probe.abort();
    is_dropped
}

// Handlers that still run, the timer of the purge, and the messages for `tracing`.

const FIRST_DELAY: Duration = Duration::from_millis(50);
const LONGEST_DELAY: Duration = Duration::from_secs(2);

/// How long after an extension that failed the next one is tried.
const EXTEND_AGAIN: Duration = Duration::from_secs(2);

/// How often each process deletes forgotten entries.
const INTERVAL: Duration = Duration::from_secs(60);
/// How many entries are deleted in one step.
const PORTION: usize = 500;

/// Deletes all forgotten entries, and returns how many there were.
async fn purge_all(store: &dyn DynStore) -> Result<u64, StoreError> {
    let mut purged = 0;
    // Entries are deleted in portions: deleting a million in one step would keep claims waiting.
    loop {
        let portion = store.purge(PORTION).await?;
        purged += portion as u64;
        if portion < PORTION {
            return Ok(purged);
        }
    }
}

/// Returns why a purge in the background failed. Its runtime may be shutting down, and may have dropped the task of the
/// connection before that of the purge: this is no failure of the store.
async fn purge_failure(purge: impl Future<Output = Result<u64, StoreError>>) -> Option<StoreError> {
    let error = purge.await.err()?;
    (!is_shut_down(&Handle::current())).then_some(error)
}

/// When the last failure of each operation of a store was logged. An outage of hours must not fill the log, so each
/// operation has one line a minute.
#[derive(Debug, Default)]
struct FailureLog(Mutex<BTreeMap<&'static str, Instant>>);

impl FailureLog {
    /// A failure that concerns all endpoints has none.
    fn report(&self, endpoint: Option<&str>, operation: &'static str, error: &StoreError) {
        let Some(is_first) = self.due(operation) else {
            return;
        };
        let cause = Error::source(error).map(crate::causes::with_causes);
        if is_first && lacks_tables(error) {
            // Nothing is wrong if the tables are created beside the server, or by another process. Otherwise it is an
            // error in a minute.
            report!(warn, endpoint, operation, %error, cause, "inbox store failed");
        } else {
            report!(error, endpoint, operation, %error, cause, "inbox store failed");
        }
    }

    /// If a failure of this operation is to be logged now, returns whether it is the first.
    fn due(&self, operation: &'static str) -> Option<bool> {
        let now = Instant::now();
        let mut logged = lock(&self.0);
        let last = logged.get(operation).copied();
        if last.is_some_and(|last| now - last < REPORT_INTERVAL) {
            return None;
        }
        logged.insert(operation, now);
        Some(last.is_none())
    }

    fn clear(&self) {
        lock(&self.0).clear();
    }
}

#[derive(Debug)]
struct PurgeTimer {
    start: Instant,
    /// When the next purge is due, in seconds after `start`.
    next: AtomicU64,
}

impl PurgeTimer {
    /// Creates a timer that is due after an interval.
    fn start() -> Self {
        Self {
            next: AtomicU64::new(INTERVAL.as_secs()),
            ..Self::due()
        }
    }

    /// Creates a timer that is due immediately.
    fn due() -> Self {
        Self {
            start: Instant::now(),
            next: AtomicU64::new(0),
        }
    }

    /// Returns `true` once per interval.
    fn is_due(&self) -> bool {
        // Of several callers for whom it is due, only the one whose exchange succeeds purges.
        let now = self.start.elapsed().as_secs();
        let next = self.next.load(Ordering::Relaxed);
        let following = now.saturating_add(INTERVAL.as_secs());
        next <= now
            && self
                .next
                .compare_exchange(next, following, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
    }
}

fn report_receipt(endpoint: &str, id: &EventId, receipt: Receipt) {
    report!(
        debug,
        endpoint,
        id = id.as_str(),
        status = receipt.status().as_u16(),
        receipt = receipt.name(),
        "webhook event received"
    );
}

#[cfg(any(
    feature = "inbox-postgres",
    feature = "inbox-sqlite",
    feature = "inbox-sqlx-postgres"
))]
fn report_rollback(endpoint: &str, id: &EventId, failure: &Failure) {
    report!(
        warn,
        endpoint,
        id = id.as_str(),
        error = failure.reason(),
        "transaction of a webhook event rolled back"
    );
}

fn report_conflict(endpoint: &str, id: &EventId) {
    report!(
        error,
        endpoint,
        id = id.as_str(),
        hint = "a genuine sender does not use an id twice; a mock that was started again does: use a new store or another endpoint name for it",
        "webhook event id received with another body"
    );
}

/// The other stores create what they need when they are opened.
#[cfg(not(any(feature = "inbox-postgres", feature = "inbox-sqlx-postgres")))]
fn lacks_tables(_: &StoreError) -> bool {
    false
}

#[cfg(test)]
mod tests;
