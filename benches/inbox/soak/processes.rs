//! The mock and the receiver, each in a process of its own.

use std::io::{BufRead, BufReader, Lines, Write};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use audience::inbox::deadpool_postgres::tokio_postgres::Client;
use audience::inbox::{Inbox, PostgresStore, Receipt};
use audience::mock::{DeliveryFault, Fault, MockServer};
use audience::webhooks::{Event, VerifiedEvent, Verifier};
use axum::Router;
use axum::extract::{FromRef, State};
use axum::routing::post;
use clap::ValueEnum;
use tokio::net::TcpListener;

use super::{FAULTY, Role};
use crate::deliveries::SECRET;
use crate::postgres_server;

pub(super) const KEY: &str = "soak-key";

/// How often the mock gets new faults, for the requests since the last time.
const BETWEEN_FAULTS: Duration = Duration::from_millis(20);

/// A running process, which ends with this one.
pub(super) struct Process {
    child: Child,
    lines: std::cell::RefCell<Lines<BufReader<ChildStdout>>>,
    /// Its URL for the others.
    pub(super) address: String,
}

impl Process {
    /// Starts a process, and waits until it listens.
    pub(super) fn start(role: Role, address: &str) -> Self {
        let role = role.to_possible_value().expect("no role is skipped");
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--bench", "--role", role.get_name(), "--address", address])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let address = lines.next().expect("it prints its URL").unwrap();
        Self {
            child,
            lines: lines.into(),
            address,
        }
    }

    pub(super) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Lets the mock deliver without faults from now on, and returns what it has done.
    pub(super) fn stop_faults(&self) -> MockCounts {
        writeln!(self.child.stdin.as_ref().unwrap(), "stop").unwrap();
        let line = self
            .lines
            .borrow_mut()
            .next()
            .expect("it prints its counts");
        let counts = line.unwrap();
        let mut numbers = counts.split(' ').map(|number| number.parse().unwrap());
        let mut next = || numbers.next().expect("there are four counts");
        MockCounts {
            requests: next(),
            faults: next(),
            delivery_faults: next(),
            events: next(),
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // The end of its input ends it.
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

pub(super) struct MockCounts {
    requests: i64,
    faults: i64,
    delivery_faults: i64,
    pub(super) events: i64,
}

impl MockCounts {
    pub(super) fn report(&self) -> String {
        format!(
            "The mock got {} requests and broke {} of them. It broke {} deliveries.",
            self.requests, self.faults, self.delivery_faults
        )
    }
}

/// Runs the mock until its input ends. It delivers to this URL.
pub(super) async fn mock(hook: &str) {
    let (requests, mails) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let (all, sent) = (Arc::clone(&requests), Arc::clone(&mails));
    let server = MockServer::builder()
        .full_key(KEY)
        .topic("news", false)
        .webhook_endpoint(hook, SECRET)
        .on_request(move |request| {
            all.fetch_add(1, Ordering::Relaxed);
            if request.path == "/emails" {
                sent.fetch_add(1, Ordering::Relaxed);
            }
        })
        .start()
        .await;
    println!("{}", server.url());

    let is_stopped = Arc::new(AtomicBool::new(false));
    std::thread::spawn({
        let is_stopped = Arc::clone(&is_stopped);
        move || {
            for _ in std::io::stdin().lines().map_while(Result::ok) {
                is_stopped.store(true, Ordering::Relaxed);
            }
            std::process::exit(0);
        }
    });
    let (mut faults, mut delivery_faults) = (0, 0);
    let (mut old_requests, mut old_deliveries) = (0, 0);
    while !is_stopped.load(Ordering::Relaxed) {
        tokio::time::sleep(BETWEEN_FAULTS).await;
        let requests = requests.load(Ordering::Relaxed);
        for _ in faulty(old_requests..requests) {
            server.fault(any_fault().times(1));
            faults += 1;
        }
        let deliveries = 2 * mails.load(Ordering::Relaxed);
        for _ in faulty(old_deliveries..deliveries) {
            server.delivery_fault(any_delivery_fault().times(1));
            delivery_faults += 1;
        }
        (old_requests, old_deliveries) = (requests, deliveries);
    }
    server.clear_faults();
    server.clear_delivery_faults();
    // Its id says how many events there were. What is held back for it is delivered, too.
    let last = server.send_event(serde_json::json!({"type": "email.opened"}));
    let last = last.await;
    let events = last.strip_prefix("evt_").expect("ids are numbered");
    println!("{old_requests} {faults} {delivery_faults} {events}");
    std::future::pending::<()>().await;
}

fn faulty(new: std::ops::Range<u64>) -> impl Iterator<Item = u64> {
    new.filter(|_| fastrand::f64() < FAULTY)
}

fn any_fault() -> Fault {
    match fastrand::u32(..100) {
        0..15 => Fault::status(500),
        15..30 => Fault::status(503),
        30..40 => Fault::status(429),
        40 => Fault::status(429).retry_after(1),
        41..50 => Fault::delay(Duration::from_millis(200)),
        50..60 => Fault::close_before(),
        60..70 => Fault::close_after(),
        70..80 => Fault::close_mid_body(),
        80..90 => Fault::close_reset(),
        _ => Fault::garbage(),
    }
}

fn any_delivery_fault() -> DeliveryFault {
    match fastrand::u32(..6) {
        0 => DeliveryFault::duplicate(),
        1 => DeliveryFault::reorder(),
        2 => DeliveryFault::stale(),
        3 => DeliveryFault::tampered(),
        4 => DeliveryFault::other_secret(),
        _ => DeliveryFault::missing_header("webhook-signature"),
    }
}

#[derive(Clone, FromRef)]
struct App {
    verifier: Verifier,
    inbox: Inbox,
}

/// Runs the receiver until its input ends. It accepts each event, and a worker notes the event in the database.
pub(super) async fn receiver(database: &str) {
    let store = PostgresStore::connect(database).await.unwrap();
    store.migrate().await.unwrap();
    let client = postgres_server::connect(database).await.unwrap();
    let create = "CREATE TABLE handled (event text NOT NULL)";
    client.batch_execute(create).await.unwrap();
    let inbox = Inbox::builder(store).build().unwrap();
    let worker = inbox.worker({
        let client = Arc::new(client);
        move |event, _| {
            let client = Arc::clone(&client);
            async move { handle(&client, &event).await }
        }
    });
    let backoff = (Duration::from_millis(100), Duration::from_secs(5));
    tokio::spawn(
        worker
            .backoff(backoff.0, backoff.1)
            .max_attempts(20)
            .run_until(std::future::pending()),
    );
    let verifier = Verifier::new(SECRET).unwrap();
    let router = Router::new()
        .route("/hook", post(hook))
        .with_state(App { verifier, inbox });
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    println!("http://{}/hook", listener.local_addr().unwrap());
    std::thread::spawn(|| {
        let _ = std::io::stdin().lines().count();
        std::process::exit(0);
    });
    axum::serve(listener, router).await.unwrap();
}

async fn hook(State(inbox): State<Inbox>, delivery: VerifiedEvent) -> Receipt {
    inbox.accept(delivery).await
}

async fn handle(
    client: &Client,
    event: &Event,
) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    if fastrand::f64() < FAULTY {
        return Err("one of the faults of the soak".into());
    }
    let insert = "INSERT INTO handled (event) VALUES ($1)";
    client.execute(insert, &[&event.id.as_str()]).await?;
    Ok(())
}
