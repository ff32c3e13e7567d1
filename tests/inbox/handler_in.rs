//! A worker whose handler is a transaction of the store, with each store that has one.

use std::error::Error;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use audience::inbox::sqlx::{self, PgPool, SqlitePool};
use audience::inbox::{
    Attempt, EventHandler, EventKey, Inbox, NewClaim, PostgresStore, Receipt, SqliteStore,
    SqlxPostgresStore, SqlxSqliteStore, Store, Token, WorkerReport,
};
use audience::webhooks::Event;
use tokio::sync::Notify;

use super::deliveries::{delivery, id};
use support::postgres::{self, Database};
use support::{DatabaseFile, PATIENCE, steady_time};

const TABLE: &str = "CREATE TABLE effects (event text)";
const INSERT: &str = "INSERT INTO effects VALUES ($1)";
const COUNT: &str = "SELECT count(*) FROM effects";
const AGE_IN_POSTGRES: &str = "UPDATE audience_inbox SET forget_at = forget_at - interval '5 days' WHERE endpoint = 'main-effects'";
const AGE_IN_SQLITE: &str = "UPDATE audience_inbox_done SET forget_at = forget_at - 5 * 86400000";

/// What a handler does after it has written the effect of an event.
#[derive(Clone, Copy, PartialEq)]
enum Then {
    Succeed,
    Fail,
    Panic,
    Hang,
}

type BoxError = Box<dyn Error + Send + Sync>;
type HandlerFuture = Pin<Box<dyn Future<Output = Result<(), BoxError>> + Send>>;

/// A store with a table of effects in its database.
trait Effects: Store + Clone {
    fn applies(&self, inbox: &Inbox, then: Then) -> impl Handler;

    async fn effects(&self) -> i64;

    /// Lets five days pass for the effects that the store remembers.
    async fn age_effects(&self);
}

/// A handler that a worker takes.
trait Handler: Fn(Event, Attempt) -> HandlerFuture + Clone + Send + Sync + 'static {}

impl<F: Fn(Event, Attempt) -> HandlerFuture + Clone + Send + Sync + 'static> Handler for F {}

fn boxed<H, F>(handler: H) -> impl Handler
where
    H: EventHandler<Future = F> + Clone + Send + Sync + 'static,
    F: Future<Output = Result<(), BoxError>> + Send + 'static,
{
    move |event, attempt| Box::pin(handler(event, attempt)) as HandlerFuture
}

/// Ends a handler of the kind that waits.
async fn end(then: Then) -> Result<(), BoxError> {
    match then {
        Then::Succeed => Ok(()),
        Then::Fail => Err("no such customer".into()),
        Then::Panic => panic!("a bug"),
        Then::Hang => {
            // From here on, the clock jumps whenever nothing else is to be done.
            tokio::time::pause();
            std::future::pending().await
        }
    }
}

impl Effects for PostgresStore {
    fn applies(&self, inbox: &Inbox, then: Then) -> impl Handler {
        // It owns what it uses, and borrows it while it waits.
        let insert = INSERT.to_owned();
        boxed(self.handler_in(inbox, async move |transaction, event| {
            transaction.execute(&insert, &[&event.id.as_str()]).await?;
            end(then).await
        }))
    }

    async fn effects(&self) -> i64 {
        let client = self.pool().get().await.unwrap();
        client.query_one(COUNT, &[]).await.unwrap().get(0)
    }

    async fn age_effects(&self) {
        let client = self.pool().get().await.unwrap();
        assert_ne!(client.execute(AGE_IN_POSTGRES, &[]).await.unwrap(), 0);
    }
}

impl Effects for SqlxPostgresStore {
    fn applies(&self, inbox: &Inbox, then: Then) -> impl Handler {
        let insert = INSERT;
        boxed(self.handler_in(inbox, async move |transaction, event| {
            let insert = sqlx::query(insert).bind(event.id.to_string());
            insert.execute(&mut **transaction).await?;
            end(then).await
        }))
    }

    async fn effects(&self) -> i64 {
        let count = sqlx::query_scalar(COUNT);
        count.fetch_one(self.pool()).await.unwrap()
    }

    async fn age_effects(&self) {
        let aged = sqlx::query(AGE_IN_POSTGRES).execute(self.pool());
        assert_ne!(aged.await.unwrap().rows_affected(), 0);
    }
}

impl Effects for SqliteStore {
    fn applies(&self, inbox: &Inbox, then: Then) -> impl Handler {
        let has_ended = Arc::new(AtomicBool::new(false));
        let ended = Arc::clone(&has_ended);
        let handler = self.handler_in(inbox, move |transaction, event| {
            transaction.execute(INSERT, [event.id.as_str()])?;
            match then {
                Then::Succeed => Ok::<_, BoxError>(()),
                Then::Fail => Err("no such customer".into()),
                Then::Panic => panic!("a bug"),
                Then::Hang => {
                    while !has_ended.load(Ordering::SeqCst) {
                        std::thread::sleep(Duration::from_millis(5));
                    }
                    Ok(())
                }
            }
        });
        boxed(move |event, attempt| {
            if then == Then::Hang {
                // The closure runs in another thread, where it cannot.
                tokio::time::pause();
            }
            let (handled, ended) = (handler(event, attempt), Arc::clone(&ended));
            async move {
                let handled = handled.await;
                ended.store(true, Ordering::SeqCst);
                handled
            }
        })
    }

    async fn effects(&self) -> i64 {
        let count = self.transaction(|t| t.query_row(COUNT, (), |row| row.get(0)));
        count.await.unwrap()
    }

    async fn age_effects(&self) {
        let aged = self.transaction(|t| t.execute(AGE_IN_SQLITE, ()));
        assert_ne!(aged.await.unwrap(), 0);
    }
}

impl Effects for SqlxSqliteStore {
    fn applies(&self, inbox: &Inbox, then: Then) -> impl Handler {
        boxed(self.handler_in(inbox, async move |transaction, event| {
            let insert = sqlx::query(INSERT).bind(event.id.to_string());
            insert.execute(&mut **transaction).await?;
            end(then).await
        }))
    }

    async fn effects(&self) -> i64 {
        let count = sqlx::query_scalar(COUNT);
        count.fetch_one(self.pool()).await.unwrap()
    }

    async fn age_effects(&self) {
        let aged = sqlx::query(AGE_IN_SQLITE).execute(self.pool());
        assert_ne!(aged.await.unwrap().rows_affected(), 0);
    }
}

async fn in_postgres() -> Option<(PostgresStore, Database)> {
    let database = postgres::database().await?;
    let store = postgres::connect(&database.url).await.unwrap();
    store.migrate().await.unwrap();
    let client = postgres::client(&database.url).await;
    client.batch_execute(TABLE).await.unwrap();
    Some((store, database))
}

async fn in_postgres_with_sqlx() -> Option<(SqlxPostgresStore, Database)> {
    let (_, database) = in_postgres().await?;
    let pool = PgPool::connect(&database.url).await.unwrap();
    let store = SqlxPostgresStore::new(pool).timeout(PATIENCE);
    Some((store, database))
}

async fn in_sqlite() -> Option<(SqliteStore, ())> {
    let store = SqliteStore::in_memory().unwrap();
    let create = store.transaction(|transaction| transaction.execute_batch(TABLE));
    create.await.unwrap();
    Some((store, ()))
}

async fn in_sqlite_with_sqlx() -> Option<(SqlxSqliteStore, DatabaseFile)> {
    let file = DatabaseFile::new();
    let url = format!("sqlite:{}?mode=rwc", file.0.display());
    let pool = SqlitePool::connect(&url).await.unwrap();
    sqlx::query(TABLE).execute(&pool).await.unwrap();
    Some((SqlxSqliteStore::open(pool).await.unwrap(), file))
}

/// Makes a test with each store of a function that takes one.
macro_rules! with_every_store {
    ($($test:ident)+) => {
        with_every_store! { in_postgres: $($test)+ }
        with_every_store! { in_postgres_with_sqlx: $($test)+ }
        with_every_store! { in_sqlite: $($test)+ }
        with_every_store! { in_sqlite_with_sqlx: $($test)+ }
    };
    ($store:ident: $($test:ident)+) => {
        mod $store {
            $(
                #[tokio::test]
                async fn $test() {
                    if let Some((store, _database)) = super::$store().await {
                        super::$test(store).await;
                    }
                }
            )+
        }
    };
}

with_every_store! {
    the_effect_happens_once_if_the_worker_dies_after_the_commit
    the_effect_is_remembered_for_the_retention_of_the_inbox
    an_error_or_a_panic_undoes_the_effect_and_is_the_reason_for_the_failed_attempt
    each_endpoint_has_the_effect_once
    a_transaction_that_hangs_fails_its_attempt
    an_event_that_another_claim_of_its_effect_holds_is_retried
    it_is_a_handler_for_deliveries_too
    a_delivery_after_the_death_of_the_worker_has_no_second_effect
    an_event_that_fails_immediately_is_accepted_for_a_worker_and_has_its_effect_once
}

fn inbox(store: &impl Effects, endpoint: &str) -> Inbox {
    let inbox = Inbox::builder(store.clone()).endpoint(endpoint);
    inbox.lease(Duration::from_secs(1)).build().unwrap()
}

/// Runs a worker that makes one attempt. Returns whether it handled an event, and the reason for the one that it parked.
async fn attempt(inbox: &Inbox, handler: impl Handler) -> (bool, Option<String>) {
    let worker = inbox.worker(handler).max_attempts(1);
    let report = worker.run_until_idle().await.unwrap();
    let parked = inbox.parked().await.unwrap();
    (
        report.handled == 1,
        parked.into_iter().next().map(|event| event.reason),
    )
}

/// Runs a worker that dies when the effect of an event is committed.
async fn die_after_the_commit(inbox: &Inbox, applies: impl Handler) {
    let committed = Arc::new(Notify::new());
    let dying = {
        let committed = Arc::clone(&committed);
        move |event, attempt| {
            let (applied, committed) = (applies(event, attempt), Arc::clone(&committed));
            async move {
                applied.await.unwrap();
                committed.notify_one();
                std::future::pending::<Result<(), BoxError>>().await
            }
        }
    };
    tokio::select! {
        _ = inbox.worker(dying).run_until(std::future::pending()) => {}
        () = committed.notified() => {}
    }
}

async fn a_delivery_after_the_death_of_the_worker_has_no_second_effect(store: impl Effects) {
    steady_time::begin();
    let inbox = inbox(&store, "main");
    assert!(inbox.accept(delivery("evt_1")).await.is_success());
    let applies = store.applies(&inbox, Then::Succeed);
    die_after_the_commit(&inbox, applies.clone()).await;

    let receipt = loop {
        let receipt = inbox.handle(delivery("evt_1"), applies.clone()).await;
        if receipt.is_success() {
            break receipt;
        }
        // The lease of the dead worker.
        tokio::time::sleep(Duration::from_millis(100)).await;
    };

    assert_eq!((receipt, store.effects().await), (Receipt::Handled, 1));
}

async fn the_effect_happens_once_if_the_worker_dies_after_the_commit(store: impl Effects) {
    let inbox = inbox(&store, "main");
    assert!(inbox.accept(delivery("evt_1")).await.is_success());
    let applies = store.applies(&inbox, Then::Succeed);

    die_after_the_commit(&inbox, applies.clone()).await;
    let after_the_death = store.effects().await;
    let report = run_after_the_lease(&inbox, applies).await;

    assert_eq!((report.handled, report.failed, report.parked), (1, 0, 0));
    assert_eq!((after_the_death, store.effects().await), (1, 1));
}

/// Runs workers until the lease of a dead one has ended and the event was taken.
async fn run_after_the_lease(inbox: &Inbox, applies: impl Handler) -> WorkerReport {
    loop {
        let worker = inbox.worker(applies.clone());
        let report = worker.run_until_idle().await.unwrap();
        if report.handled + report.parked > 0 {
            return report;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

async fn the_effect_is_remembered_for_the_retention_of_the_inbox(store: impl Effects) {
    let day = Duration::from_secs(86_400);
    for (retention, effects) in [(14 * day, 1), (3 * day, 2)] {
        let inbox = Inbox::builder(store.clone()).lease(Duration::from_secs(1));
        let inbox = inbox.retention(retention).build().unwrap();
        let event = format!("evt_{effects}");
        assert!(inbox.accept(delivery(&event)).await.is_success());
        let applies = store.applies(&inbox, Then::Succeed);
        let before = store.effects().await;

        die_after_the_commit(&inbox, applies.clone()).await;
        store.age_effects().await;
        run_after_the_lease(&inbox, applies).await;

        assert_eq!(store.effects().await - before, effects, "{retention:?}");
    }
}

async fn an_error_or_a_panic_undoes_the_effect_and_is_the_reason_for_the_failed_attempt(
    store: impl Effects,
) {
    let inbox = inbox(&store, "main");
    assert!(inbox.accept(delivery("evt_1")).await.is_success());

    for (then, expected) in [
        (Then::Fail, "no such customer"),
        (Then::Panic, "the handler panicked: a bug"),
    ] {
        let (_, reason) = attempt(&inbox, store.applies(&inbox, then)).await;

        assert_eq!(reason.unwrap(), expected);
        assert_eq!(store.effects().await, 0);
        assert!(inbox.replay(&id("evt_1")).await.unwrap());
    }

    let succeeded = attempt(&inbox, store.applies(&inbox, Then::Succeed)).await;
    assert_eq!(succeeded, (true, None));
    assert_eq!(store.effects().await, 1);
}

async fn each_endpoint_has_the_effect_once(store: impl Effects) {
    let longest = "x".repeat(255);

    for endpoint in ["billing", "support", &longest] {
        let inbox = inbox(&store, endpoint);
        assert!(inbox.accept(delivery("evt_1")).await.is_success());
        let applied = attempt(&inbox, store.applies(&inbox, Then::Succeed)).await;
        assert_eq!(applied, (true, None));
    }

    assert_eq!(store.effects().await, 3);
}

async fn a_transaction_that_hangs_fails_its_attempt(store: impl Effects) {
    let inbox = inbox(&store, "main");
    assert!(inbox.accept(delivery("evt_1")).await.is_success());
    let hangs = store.applies(&inbox, Then::Hang);
    let (times, mut took) = tokio::sync::mpsc::unbounded_channel();

    let hanging = move |event, attempt| {
        let (start, times) = (tokio::time::Instant::now(), times.clone());
        let hanging = hangs(event, attempt);
        Box::pin(async move {
            let ended = hanging.await;
            times.send(start.elapsed().as_secs()).unwrap();
            tokio::time::resume();
            ended
        }) as HandlerFuture
    };
    let (_, reason) = attempt(&inbox, hanging).await;
    let seconds = took.recv().await.unwrap();

    let reason = reason.unwrap();
    assert!(reason.ends_with("did not end within 15 s"), "{reason}");
    assert!((15..20).contains(&seconds), "{seconds}");
    assert!(inbox.replay(&id("evt_1")).await.unwrap());
    let succeeded = attempt(&inbox, store.applies(&inbox, Then::Succeed)).await;
    assert_eq!(succeeded, (true, None));
    assert_eq!(store.effects().await, 1);
}

async fn an_event_that_another_claim_of_its_effect_holds_is_retried(store: impl Effects) {
    let (inbox, event) = (inbox(&store, "main"), id("evt_1"));
    assert!(inbox.accept(delivery("evt_1")).await.is_success());
    let key = EventKey::new("main-effects", &event);
    let hour = Duration::from_secs(3_600);
    let claim = NewClaim::new(key, Token::random(), hour, hour);
    store.claim(claim).await.unwrap();

    let (is_handled, reason) = attempt(&inbox, store.applies(&inbox, Then::Succeed)).await;

    assert!(!is_handled);
    assert_eq!(reason.unwrap(), "another attempt is handling the event");
    assert_eq!(store.effects().await, 0);
}

async fn it_is_a_handler_for_deliveries_too(store: impl Effects) {
    steady_time::begin();
    let inbox = inbox(&store, "main");
    let applies = store.applies(&inbox, Then::Succeed);

    let first = inbox.handle(delivery("evt_1"), applies.clone()).await;
    let second = inbox.handle(delivery("evt_1"), applies).await;

    assert_eq!([first, second], [Receipt::Handled, Receipt::Duplicate]);
    assert_eq!(store.effects().await, 1);
}

async fn an_event_that_fails_immediately_is_accepted_for_a_worker_and_has_its_effect_once(
    store: impl Effects,
) {
    steady_time::begin();
    let inbox = inbox(&store, "main");
    let receive = async |then| {
        let handler = store.applies(&inbox, then);
        match inbox.handle(delivery("evt_1"), handler).await {
            Receipt::Failed => inbox.accept(delivery("evt_1")).await,
            receipt => receipt,
        }
    };

    let failed = receive(Then::Fail).await;
    let before = store.effects().await;
    let worker = inbox.worker(store.applies(&inbox, Then::Succeed));
    let by_the_worker = worker.run_until_idle().await.unwrap().handled;
    let afterwards = receive(Then::Succeed).await;

    assert_eq!(
        [failed, afterwards],
        [Receipt::Accepted, Receipt::Duplicate]
    );
    assert_eq!((before, by_the_worker), (0, 1));
    assert_eq!(store.effects().await, 1);
    let metrics = inbox.metrics();
    assert_eq!(
        (metrics.failed, metrics.accepted, metrics.handled),
        (1, 1, 1)
    );
}
