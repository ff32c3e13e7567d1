//! The store in a SQLite file.

mod conformance;
mod exactly_once;
mod files;
mod full;
mod killed;
mod remembering;
mod sharing;
mod sqlx_pool;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};

use audience::inbox::rusqlite::Connection;
use audience::inbox::{
    AcceptState, ClaimState, EventKey, Fingerprint, HeldClaim, NewClaim, NewDelivery, Receipt,
    SqliteStore, Store, StoreError, Token,
};
use audience::webhooks::{EventId, EventType, Signer, VerifiedEvent, Verifier};
use support::PATIENCE;
use tokio::sync::watch;

const SECRET: &str = "6Jm0nFq2pXvZk4Tt";
const HOUR: Duration = Duration::from_secs(3_600);

/// A folder of a test's own, deleted in the end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        // Never the folder of an earlier store: SQLite deletes the log beside a file when it closes the file, which may be
        // after the store is dropped.
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        // Nor the folder of another process that runs the tests.
        let process = std::process::id();
        let path = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let path = path.join(format!("sqlite-{name}-{process}-{number}"));
        std::fs::remove_dir_all(&path).ok();
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn file(&self) -> PathBuf {
        self.0.join("inbox.db")
    }

    fn open(&self) -> SqliteStore {
        let builder = SqliteStore::builder().busy_timeout(PATIENCE);
        builder.open(self.file()).unwrap()
    }

    /// A connection of a user's own, which waits for a slow machine.
    fn connect(&self) -> Connection {
        let connection = Connection::open(self.file()).unwrap();
        connection.busy_timeout(PATIENCE).unwrap();
        connection
    }

    /// Starts a thread that writes to the file without a pause until its receiver is dropped. It notes the start of each
    /// transaction.
    fn neighbor(&self) -> (watch::Receiver<()>, JoinHandle<()>) {
        let other = self.connect();
        let table = "CREATE TABLE other (number INTEGER)";
        other.execute_batch(table).unwrap();
        let (begun, writes) = watch::channel(());
        let writing = std::thread::spawn(move || {
            let mut is_over = false;
            while !is_over {
                let write = "BEGIN IMMEDIATE; INSERT INTO other VALUES (1)";
                other.execute_batch(write).unwrap();
                is_over = begun.send(()).is_err();
                std::thread::sleep(Duration::from_millis(5));
                other.execute_batch("COMMIT").unwrap();
            }
        });
        (writes, writing)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).ok();
    }
}

fn id(text: impl AsRef<str>) -> EventId {
    EventId::try_from(text.as_ref()).unwrap()
}

fn key(id: &EventId) -> EventKey<'_> {
    EventKey::new("main", id)
}

async fn claim(store: &SqliteStore, id: &EventId, token: Token) -> Result<ClaimState, StoreError> {
    let claim = NewClaim::new(key(id), token, HOUR, HOUR);
    store.claim(claim).await
}

async fn complete(store: &SqliteStore, id: &EventId, token: Token) -> bool {
    let held = HeldClaim::new(key(id), token);
    store.complete(held, 72 * HOUR).await.unwrap()
}

async fn accept(store: &SqliteStore, id: &EventId, body: &[u8]) -> Result<AcceptState, StoreError> {
    let delivery = NewDelivery::new(key(id), body, Fingerprint::of(body));
    store.accept(delivery).await
}

/// A verified delivery of a permanent bounce.
fn bounce(id: &str, to: &str) -> VerifiedEvent {
    let body = format!(
        r#"{{"id": "{id}", "type": "email.bounced", "created_at": 1700000000, "data": {{"email_id": "em_1",
        "from": "us@x.io", "to": "{to}", "subject": "Hi", "bounce_type": "Permanent", "detail": ""}}}}"#
    );
    let headers =
        Signer::new(SECRET)
            .unwrap()
            .sign(&EventType::Bounced, SystemTime::now(), body.as_bytes());
    Verifier::new(SECRET)
        .unwrap()
        .verify_event(&headers, body)
        .unwrap()
}

/// Counts the bounces of an address, exactly once each.
async fn count_bounce(store: &SqliteStore, delivery: VerifiedEvent) -> Receipt {
    store
        .handle_in("main", delivery, |transaction, event| {
            let to = &event.mail().unwrap().to;
            let count =
                "INSERT INTO bounces VALUES (?1, 1) ON CONFLICT DO UPDATE SET count = count + 1";
            transaction.execute(count, [to]).map(drop)
        })
        .await
}

const BOUNCES: &str =
    "CREATE TABLE IF NOT EXISTS bounces (address TEXT PRIMARY KEY, count INTEGER) STRICT";

fn bounces(connection: &Connection) -> i64 {
    let sum = "SELECT coalesce(sum(count), 0) FROM bounces";
    connection.query_row(sum, (), |row| row.get(0)).unwrap()
}
