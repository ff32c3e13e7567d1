//! A receiver, as a process of its own.

use std::collections::HashSet;
use std::env;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use audience::inbox::sqlx::{self, PgPool, SqlitePool};
use audience::inbox::{
    Attempt, Inbox, InboxBuilder, PostgresStore, Receipt, SqliteStore, SqlxPostgresStore,
    SqlxSqliteStore, Store,
};
use audience::webhooks::{Event, EventId, VerifiedEvent, Verifier};
use axum::Router;
use axum::extract::{FromRef, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use support::in_time;

use super::effects::{Database, POSTGRES_NOW, SQLX, record_in_sqlite};
use super::recording_store::RecordingStore;
use super::{LEASE, SECRET};

/// How a receiver makes sure that an event is handled once.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Mode {
    Handle,
    Accept,
    Transaction,
    /// The transaction of a worker.
    WorkerTransaction,
    /// A set of ids in memory, as many receivers have it.
    NaiveSet,
}

const MODES: [(&str, Mode); 5] = [
    ("handle", Mode::Handle),
    ("accept", Mode::Accept),
    ("transaction", Mode::Transaction),
    ("worker-transaction", Mode::WorkerTransaction),
    ("naive", Mode::NaiveSet),
];

/// A running receiver. It is killed when it is dropped.
pub(super) struct Receiver {
    process: Child,
    pub(super) port: u16,
    pub(super) generation: i64,
}

impl Receiver {
    /// Starts a receiver, and waits until it listens.
    pub(super) fn start(mode: Mode, database: &str, generation: i64) -> Self {
        let (name, _) = MODES.iter().find(|(_, each)| *each == mode).unwrap();
        let mut process = Command::new(env::current_exe().unwrap())
            .args([
                "--exact",
                "sweep::receiver::process",
                "--ignored",
                "--nocapture",
            ])
            .env("AUDIENCE_SWEEP_MODE", name)
            .env("AUDIENCE_SWEEP_DATABASE", database)
            .env("AUDIENCE_SWEEP_GENERATION", generation.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let output = BufReader::new(process.stdout.take().unwrap());
        let port = output
            .lines()
            .map_while(Result::ok)
            .find_map(|line| line.strip_prefix("port ")?.parse().ok())
            .expect("a receiver prints its port");
        Self {
            process,
            port,
            generation,
        }
    }

    /// Kills the receiver with SIGKILL.
    pub(super) fn kill(mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
#[ignore = "the sweep runs it in a process of its own"]
fn process() {
    let mode = env::var("AUDIENCE_SWEEP_MODE").unwrap();
    let (_, mode) = MODES.iter().find(|(name, _)| *name == mode).unwrap();
    let database = env::var("AUDIENCE_SWEEP_DATABASE").unwrap();
    let generation = env::var("AUDIENCE_SWEEP_GENERATION")
        .unwrap()
        .parse()
        .unwrap();
    // If the test dies, its end of the pipe is closed.
    std::thread::spawn(|| {
        let _ = std::io::stdin().read_line(&mut String::new());
        std::process::exit(0);
    });
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build();
    runtime
        .unwrap()
        .block_on(serve(*mode, &database, generation));
}

#[derive(Clone)]
struct Application {
    mode: Mode,
    verifier: Verifier,
    inbox: Inbox,
    store: AnyStore,
    database: Database,
    generation: i64,
    seen: Arc<Mutex<HashSet<EventId>>>,
}

#[derive(Clone)]
enum AnyStore {
    Postgres(PostgresStore),
    SqlxPostgres(SqlxPostgresStore),
    Sqlite(SqliteStore),
    SqlxSqlite(SqlxSqliteStore),
}

impl FromRef<Application> for Verifier {
    fn from_ref(application: &Application) -> Self {
        application.verifier.clone()
    }
}

async fn serve(mode: Mode, location: &str, generation: i64) {
    let database = Database::open(location);
    let is_sqlx = location.starts_with(SQLX);
    let (store, builder) = match &database {
        Database::Postgres { url, .. } if is_sqlx => {
            let store = SqlxPostgresStore::new(PgPool::connect_lazy(url).unwrap());
            (
                AnyStore::SqlxPostgres(store.clone()),
                build(store, &database),
            )
        }
        Database::Postgres { url, .. } => {
            let store = opened(async || PostgresStore::connect(url).await).await;
            (AnyStore::Postgres(store.clone()), build(store, &database))
        }
        Database::Sqlite { path } if is_sqlx => {
            let url = format!("sqlite:{path}");
            let pool = opened(async || SqlitePool::connect(&url).await).await;
            let store = opened(async || SqlxSqliteStore::open(pool.clone()).await).await;
            let builder = build(store.clone(), &database);
            (AnyStore::SqlxSqlite(store), builder)
        }
        Database::Sqlite { path } => {
            let store = opened(async || SqliteStore::open(path)).await;
            (AnyStore::Sqlite(store.clone()), build(store, &database))
        }
    };
    let application = Application {
        mode,
        verifier: Verifier::new(SECRET).unwrap(),
        inbox: builder.lease(LEASE).build().unwrap(),
        store,
        database,
        generation,
        seen: Arc::default(),
    };
    if matches!(mode, Mode::Accept | Mode::WorkerTransaction) {
        tokio::spawn(drain(application.clone()));
    }
    let router = Router::new()
        .route("/hook", post(hook))
        .with_state(application);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let mut output = std::io::stdout().lock();
    // On a machine with one core, the line begins with the name of the test.
    writeln!(output, "\nport {port}").unwrap();
    drop(output);
    axum::serve(listener, router).await.unwrap();
}

fn build(store: impl Store, database: &Database) -> InboxBuilder {
    Inbox::builder(RecordingStore {
        inner: store,
        database: database.clone(),
    })
}

/// Opens a store as soon as the database is up, or another process leaves the file.
async fn opened<T, E>(open: impl AsyncFn() -> Result<T, E>) -> T {
    in_time(async {
        loop {
            match open().await {
                Ok(store) => break store,
                Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
            }
        }
    })
    .await
}

async fn hook(State(application): State<Application>, delivery: VerifiedEvent) -> Response {
    match application.mode {
        Mode::Handle => application.handle(delivery).await.into_response(),
        Mode::Accept | Mode::WorkerTransaction => {
            application.inbox.accept(delivery).await.into_response()
        }
        Mode::Transaction => application.in_transaction(&delivery).await.into_response(),
        Mode::NaiveSet => application.naively(&delivery).await.into_response(),
    }
}

async fn drain(application: Application) {
    let inbox = application.inbox.clone();
    let generation = application.generation;
    if application.mode == Mode::Accept {
        let handler = move |event: Event, _| {
            let application = application.clone();
            async move { application.record(&event.id).await }
        };
        return work_off(&inbox, handler).await;
    }
    match &application.store {
        AnyStore::Postgres(store) => {
            let handler = store.handler_in(&inbox, async move |transaction, event| {
                record_in_postgres(transaction, &event.id, generation).await
            });
            work_off(&inbox, handler).await;
        }
        AnyStore::Sqlite(store) => {
            let handler = store.handler_in(&inbox, move |transaction, event| {
                record_in_sqlite(transaction, event.id.as_str(), generation)
            });
            work_off(&inbox, handler).await;
        }
        AnyStore::SqlxPostgres(store) => {
            let handler = store.handler_in(&inbox, async move |transaction, event| {
                record_in_sqlx_postgres(transaction, &event.id, generation).await
            });
            work_off(&inbox, handler).await;
        }
        AnyStore::SqlxSqlite(store) => {
            let handler = store.handler_in(&inbox, async move |transaction, event| {
                record_in_sqlx_sqlite(transaction, &event.id, generation).await
            });
            work_off(&inbox, handler).await;
        }
    }
}

async fn work_off<H, F, E>(inbox: &Inbox, handler: H)
where
    H: Fn(Event, Attempt) -> F + Send + Sync + 'static,
    F: Future<Output = Result<(), E>> + Send + 'static,
    E: Into<Box<dyn std::error::Error + Send + Sync>> + Send,
{
    let worker = inbox
        .worker(handler)
        .poll_interval(Duration::from_millis(100))
        .backoff(Duration::from_millis(100), Duration::from_secs(1))
        .max_attempts(1_000);
    worker.run_until(std::future::pending()).await.unwrap();
}

async fn record_in_sqlx_postgres(
    transaction: &mut sqlx::Transaction<'_, sqlx::Postgres>,
    id: &EventId,
    generation: i64,
) -> Result<(), sqlx::Error> {
    work().await;
    let insert = "INSERT INTO effects (event, generation, at)
        VALUES ($1, $2, extract(epoch FROM clock_timestamp())::double precision)";
    sqlx::query(insert)
        .bind(id.as_str())
        .bind(generation)
        .execute(&mut **transaction)
        .await?;
    work().await;
    Ok(())
}

async fn record_in_sqlx_sqlite(
    transaction: &mut sqlx::Transaction<'_, sqlx::Sqlite>,
    id: &EventId,
    generation: i64,
) -> Result<(), sqlx::Error> {
    work().await;
    let insert = "INSERT INTO effects (event, generation, at) VALUES (?, ?, unixepoch('subsec'))";
    sqlx::query(insert)
        .bind(id.as_str())
        .bind(generation)
        .execute(&mut **transaction)
        .await?;
    work().await;
    Ok(())
}

async fn record_in_postgres(
    transaction: &tokio_postgres::Transaction<'_>,
    id: &EventId,
    generation: i64,
) -> Result<(), tokio_postgres::Error> {
    work().await;
    let insert =
        format!("INSERT INTO effects (event, generation, at) VALUES ($1, $2, {POSTGRES_NOW})");
    transaction
        .execute(&insert, &[&id.as_str(), &generation])
        .await?;
    work().await;
    Ok(())
}

impl Application {
    async fn handle(&self, delivery: VerifiedEvent) -> Receipt {
        let application = self.clone();
        let handler = |event: Event, _| async move { application.record(&event.id).await };
        self.inbox.handle(delivery, handler).await
    }

    /// Works a little, records the effect, and works a little more, so that a kill often comes between.
    async fn record(&self, id: &EventId) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        work().await;
        self.database.record(id.as_str(), self.generation).await?;
        work().await;
        Ok(())
    }

    async fn in_transaction(&self, delivery: &VerifiedEvent) -> StatusCode {
        let committed = match (&self.store, &self.database) {
            (AnyStore::Postgres(store), Database::Postgres { pool, .. }) => {
                self.in_postgres_transaction(store, pool, delivery).await
            }
            (AnyStore::SqlxPostgres(store), _) => {
                self.in_sqlx_postgres_transaction(store, delivery).await
            }
            (AnyStore::Sqlite(store), _) => self.in_sqlite_transaction(store, delivery).await,
            (AnyStore::SqlxSqlite(store), _) => {
                return self.in_sqlx_sqlite_transaction(store, delivery).await;
            }
            _ => unreachable!("the store and the effects are in one database"),
        };
        committed.map_or(StatusCode::SERVICE_UNAVAILABLE, |()| StatusCode::OK)
    }

    async fn in_postgres_transaction(
        &self,
        store: &PostgresStore,
        pool: &deadpool_postgres::Pool,
        delivery: &VerifiedEvent,
    ) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        let mut connection = pool.get().await?;
        let mut transaction = connection.transaction().await?;
        if store
            .claim_in(&mut transaction, "main", &delivery.id)
            .await?
        {
            record_in_postgres(&transaction, &delivery.id, self.generation).await?;
        }
        transaction.commit().await?;
        Ok(())
    }

    async fn in_sqlx_postgres_transaction(
        &self,
        store: &SqlxPostgresStore,
        delivery: &VerifiedEvent,
    ) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        let mut transaction = store.pool().begin().await?;
        let id = &delivery.id;
        if store.claim_in(&mut transaction, "main", id).await? {
            record_in_sqlx_postgres(&mut transaction, id, self.generation).await?;
        }
        transaction.commit().await?;
        Ok(())
    }

    async fn in_sqlx_sqlite_transaction(
        &self,
        store: &SqlxSqliteStore,
        delivery: &VerifiedEvent,
    ) -> StatusCode {
        let handler = async |transaction: &mut sqlx::Transaction<'_, sqlx::Sqlite>,
                             event: Event| {
            record_in_sqlx_sqlite(transaction, &event.id, self.generation).await
        };
        let receipt = store.handle_in("main", delivery.clone(), handler).await;
        receipt.status()
    }

    async fn in_sqlite_transaction(
        &self,
        store: &SqliteStore,
        delivery: &VerifiedEvent,
    ) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        let (store, id, generation) = (store.clone(), delivery.id.clone(), self.generation);
        let Database::Sqlite { path } = &self.database else {
            unreachable!("the store is a SQLite file")
        };
        let path = path.clone();
        tokio::task::spawn_blocking(move || {
            let mut connection = rusqlite::Connection::open(path)?;
            connection.busy_timeout(Duration::from_secs(5))?;
            let immediate = rusqlite::TransactionBehavior::Immediate;
            let transaction = connection.transaction_with_behavior(immediate)?;
            if store.claim_in(&transaction, "main", &id).into_inner()? {
                record_in_sqlite(&transaction, id.as_str(), generation)?;
            }
            transaction.commit()?;
            Ok(())
        })
        .await?
    }

    /// The id is remembered after the effect, so that a failed handler is called again.
    async fn naively(&self, delivery: &VerifiedEvent) -> StatusCode {
        if self.seen.lock().unwrap().contains(&delivery.id) {
            return StatusCode::OK;
        }
        if self.record(&delivery.id).await.is_err() {
            return StatusCode::SERVICE_UNAVAILABLE;
        }
        self.seen.lock().unwrap().insert(delivery.id.clone());
        StatusCode::OK
    }
}

async fn work() {
    tokio::time::sleep(Duration::from_millis(fastrand::u64(0..10))).await;
}
