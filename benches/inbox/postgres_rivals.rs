//! The store in Postgres beside what a program would have written by hand with the same guarantees, in rounds that
//! take turns, so that a busy machine slows both.

use std::fmt::Write;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use audience::inbox::deadpool_postgres::tokio_postgres::types::ToSql;
use audience::inbox::deadpool_postgres::tokio_postgres::{Client, NoTls};
use audience::inbox::deadpool_postgres::{Manager, Pool};
use audience::inbox::{Inbox, PostgresStore, Store, Take, TakenEvent, Token};
use tokio::sync::Notify;

use crate::claims::{self, ENDPOINT, LEASE};
use crate::deliveries::id_text;
use crate::load::{Load, repeat};
use crate::postgres_server::{self, Postgres};

const ROUNDS: usize = 5;
const CONNECTIONS: usize = 16;
const WAITING_CALLS: [u32; 5] = [1, 4, 16, 64, 256];
const CONCURRENCIES: [u32; 3] = [8, 32, 128];
/// How many events wait for a worker when it starts.
const WAITING_EVENTS: u32 = 30_000;
/// How long each rate is measured beside an old snapshot, and how often.
const PERIOD: Duration = Duration::from_secs(10);
const PERIODS: u32 = 6;

pub(crate) async fn measure(folder: &Path) {
    let server = match Postgres::start(folder).await {
        Ok(server) => server,
        Err(reason) => return println!("Postgres is skipped: {reason}\n"),
    };
    let url = server.database().await;
    let store = PostgresStore::connect(&url).await.unwrap();
    store.migrate().await.unwrap();
    let by_hand = ByHand::new(&url).await;
    println!("## Postgres beside statements by hand\n");
    println!(
        "Medians of {ROUNDS} rounds that take turns. By hand: an `INSERT … ON CONFLICT` and an `UPDATE` with token, lease, \
         attempts, fingerprint and retention, on a pool of {CONNECTIONS} connections too.\n"
    );
    println!("| waiting calls | claimed and completed/s | by hand/s | ratio |\n|--:|--:|--:|--:|");
    for workers in WAITING_CALLS {
        let load = Load {
            workers,
            events: u32::MAX,
        };
        let rounds = in_turns(
            async || claims::rate(&store, load).await,
            async || by_hand.claim_rate(load).await,
        );
        print_row(workers, rounds.await);
    }
    println!(
        "\nA worker with a handler that does nothing, beside as many tasks that each begin a transaction, select one row \
         `FOR UPDATE SKIP LOCKED`, delete it and commit.\n"
    );
    println!("| concurrency | drained/s | by hand/s | ratio |\n|--:|--:|--:|--:|");
    for workers in CONCURRENCIES {
        let rounds = in_turns(
            async || drain_rate(&store, &by_hand, workers).await,
            async || by_hand.drain_rate(workers).await,
        );
        print_row(workers, rounds.await);
    }
    println!();
    measure_beside_old_snapshot(&store, &by_hand).await;
}

fn print_row(workers: u32, [ours, theirs]: [f64; 2]) {
    let ratio = ours / theirs;
    println!("| {workers} | {ours:.0} | {theirs:.0} | **{ratio:.2}** |");
}

/// Measures both, one after the other, several times. Returns the medians.
async fn in_turns(ours: impl AsyncFn() -> f64, theirs: impl AsyncFn() -> f64) -> [f64; 2] {
    let mut rates = [Vec::new(), Vec::new()];
    for _ in 0..ROUNDS {
        rates[0].push(ours().await);
        rates[1].push(theirs().await);
    }
    rates.map(|mut rates| {
        rates.sort_unstable_by(f64::total_cmp);
        rates[rates.len() / 2]
    })
}

/// Events are taken and completed 100 at a time, while another session keeps a snapshot open.
async fn measure_beside_old_snapshot(store: &PostgresStore, by_hand: &ByHand) {
    let seconds = PERIOD.as_secs();
    println!("Drained a second while an old snapshot is open, in periods of {seconds} s:\n");
    let mut names = "| snapshot |".to_owned();
    let mut line = "|---|".to_owned();
    for period in 1..=PERIODS {
        write!(names, " period {period} |").unwrap();
        line += "--:|";
    }
    println!("{names}\n{line}");
    for is_open in [false, true] {
        let old = by_hand.client().await;
        if is_open {
            let begin = "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM pg_class";
            old.batch_execute(begin).await.unwrap();
        }
        let mut row = format!("| {} |", if is_open { "open" } else { "none" });
        for _ in 0..PERIODS {
            let (start, mut handled, mut busy) = (Instant::now(), 0, Duration::ZERO);
            while start.elapsed() < PERIOD {
                by_hand.accept(2_000).await;
                let start = Instant::now();
                handled += drain(store, 2_000, 32).await;
                busy += start.elapsed();
            }
            write!(row, " {:.0} |", f64::from(handled) / busy.as_secs_f64()).unwrap();
        }
        println!("{row}");
        drop(old);
        by_hand.vacuum().await;
    }
    println!();
}

async fn drain_rate(store: &PostgresStore, by_hand: &ByHand, concurrency: u32) -> f64 {
    // What an earlier round left.
    while !take(store).await.is_empty() {}
    by_hand.accept(WAITING_EVENTS).await;
    by_hand.vacuum().await;
    let start = Instant::now();
    let handled = drain(store, WAITING_EVENTS, concurrency).await;
    f64::from(handled) / start.elapsed().as_secs_f64()
}

async fn take(store: &PostgresStore) -> Vec<TakenEvent> {
    let take = Take::new(ENDPOINT, Token::random(), LEASE, 1_000);
    store.take(take).await.unwrap()
}

/// Drains until `waiting` events were handled, or for as long as a rate is measured.
async fn drain(store: &PostgresStore, waiting: u32, concurrency: u32) -> u32 {
    let inbox = Inbox::builder(store.clone()).endpoint(ENDPOINT);
    let (handled, all) = (Arc::new(AtomicU32::new(0)), Arc::new(Notify::new()));
    let is_over = {
        let all = Arc::clone(&all);
        async move {
            tokio::select! {
                () = all.notified() => {}
                () = tokio::time::sleep_until(Load::ends_at().into()) => {}
            }
        }
    };
    let worker = inbox.build().unwrap().worker(move |_, _| {
        if handled.fetch_add(1, Ordering::Relaxed) + 1 == waiting {
            all.notify_one();
        }
        async { Ok::<_, std::io::Error>(()) }
    });
    let worker = worker.concurrency(concurrency as usize);
    // In a task, as in a server.
    let report = tokio::spawn(worker.run_until(is_over)).await.unwrap();
    let report = report.unwrap();
    u32::try_from(report.handled).unwrap()
}

/// Tables and statements like those that a program would have.
struct ByHand {
    url: String,
    pool: Pool,
}

const TABLES: &str = "
    CREATE TABLE by_hand_events (
        endpoint text COLLATE \"C\", event_id text COLLATE \"C\", token bytea, lease_until timestamptz, attempts integer,
        fingerprint bytea, is_done boolean NOT NULL DEFAULT false, forget_at timestamptz, PRIMARY KEY (endpoint, event_id));
    CREATE INDEX ON by_hand_events (forget_at);
    CREATE TABLE by_hand_jobs (id bigserial PRIMARY KEY, body bytea NOT NULL)";

const CLAIM: &str = "
    INSERT INTO by_hand_events AS entry (endpoint, event_id, token, lease_until, attempts, fingerprint, forget_at)
    VALUES ($1, $2, $3, now() + make_interval(secs => $4), 1, $5, now() + make_interval(secs => $4 + $6))
    ON CONFLICT (endpoint, event_id) DO UPDATE SET
        token = excluded.token, lease_until = excluded.lease_until, attempts = entry.attempts + 1,
        forget_at = excluded.forget_at
    WHERE NOT entry.is_done AND entry.lease_until <= now() AND entry.fingerprint = excluded.fingerprint
    RETURNING attempts";

const COMPLETE: &str = "
    UPDATE by_hand_events SET is_done = true WHERE endpoint = $1 AND event_id = $2 AND token = $3";

const BODY: &str = r#"'{"id":"' || id || '","type":"email.bounced","created_at":1753182000,"data":{"email_id":"em_01JZ8K3V5Q",'
    || '"from":"Example <news@example.org>","to":"kim@example.com","subject":"Your invoice for July","tags":["invoices"],'
    || '"bounce_type":"Permanent","detail":"smtp; 550 5.1.1 <kim@example.com>: recipient address rejected: user unknown"}}'"#;

impl ByHand {
    async fn new(url: &str) -> Self {
        let manager = Manager::new(url.parse().unwrap(), NoTls);
        let pool = Pool::builder(manager).max_size(CONNECTIONS);
        let this = Self {
            url: url.to_owned(),
            pool: pool.build().unwrap(),
        };
        this.client().await.batch_execute(TABLES).await.unwrap();
        this
    }

    async fn client(&self) -> Client {
        postgres_server::connect(&self.url).await.unwrap()
    }

    async fn vacuum(&self) {
        let vacuum = "VACUUM ANALYZE audience_inbox";
        self.client().await.batch_execute(vacuum).await.unwrap();
    }

    /// Stores events for a worker, faster than one by one.
    async fn accept(&self, events: u32) {
        let insert = format!(
            "INSERT INTO audience_inbox (endpoint, event_id, state, attempts, due, queued_at, fingerprint, body)
             SELECT '{ENDPOINT}', id, 'open', 0, clock_timestamp(), clock_timestamp(), substr(sha256(body), 1, 16), body
             FROM (SELECT 'evt_' || left(md5(random()::text || n), 24) AS id FROM generate_series(1, {events}) n) ids,
                LATERAL (SELECT convert_to({BODY}, 'UTF8') AS body) bodies"
        );
        self.client().await.batch_execute(&insert).await.unwrap();
    }

    async fn claim_rate(&self, load: Load) -> f64 {
        load.rate(|each, end| {
            let pool = self.pool.clone();
            async move { repeat(each, end, || claim_and_complete(&pool)).await }
        })
        .await
    }

    async fn drain_rate(&self, tasks: u32) -> f64 {
        let fill = format!(
            "TRUNCATE by_hand_jobs; INSERT INTO by_hand_jobs (body)
             SELECT convert_to({BODY}, 'UTF8') FROM generate_series(1, {WAITING_EVENTS}) id"
        );
        let client = self.client().await;
        client.batch_execute(&fill).await.unwrap();
        let vacuum = "VACUUM ANALYZE by_hand_jobs";
        client.batch_execute(vacuum).await.unwrap();
        let load = Load {
            workers: tasks,
            events: WAITING_EVENTS,
        };
        load.rate(|each, end| {
            let pool = self.pool.clone();
            async move { repeat(each, end, || handle_one(&pool)).await }
        })
        .await
    }
}

async fn claim_and_complete(pool: &Pool) {
    let id = id_text();
    let token = Token::random();
    let token = token.as_bytes().as_slice();
    {
        let client = pool.get().await.unwrap();
        let claim = client.prepare_cached(CLAIM).await.unwrap();
        let values: &[&(dyn ToSql + Sync)] = &[
            &ENDPOINT,
            &id,
            &token,
            &LEASE.as_secs_f64(),
            &token,
            &claims::RETENTION.as_secs_f64(),
        ];
        let claimed = client.query(&claim, values).await.unwrap();
        assert_eq!(claimed.len(), 1);
    }
    let client = pool.get().await.unwrap();
    let complete = client.prepare_cached(COMPLETE).await.unwrap();
    let completed = client.execute(&complete, &[&ENDPOINT, &id, &token]).await;
    assert_eq!(completed.unwrap(), 1);
}

async fn handle_one(pool: &Pool) {
    let mut client = pool.get().await.unwrap();
    let transaction = client.transaction().await.unwrap();
    let select = "SELECT id, body FROM by_hand_jobs ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED";
    let select = transaction.prepare_cached(select).await.unwrap();
    let Some(job) = transaction.query_opt(&select, &[]).await.unwrap() else {
        return;
    };
    let event = audience::webhooks::Event::from_unverified_json(job.get::<_, &[u8]>(1));
    assert!(event.is_ok());
    let delete = "DELETE FROM by_hand_jobs WHERE id = $1";
    let delete = transaction.prepare_cached(delete).await.unwrap();
    let id: i64 = job.get(0);
    transaction.execute(&delete, &[&id]).await.unwrap();
    transaction.commit().await.unwrap();
}
