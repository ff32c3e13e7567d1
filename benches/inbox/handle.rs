//! What `Inbox::handle` adds to a verified delivery, on the store in memory.

use std::convert::Infallible;
use std::future::poll_fn;
use std::hint::black_box;
use std::pin::pin;
use std::task::Poll;
use std::time::{Duration, Instant};

use audience::inbox::{
    Attempt, EventKey, Fingerprint, HeldClaim, Inbox, MemoryStore, NewClaim, Receipt, Store, Token,
};
use audience::webhooks::{Event, EventId, VerifiedEvent};
use tokio::runtime::{Builder, Runtime};

use crate::claims::{ENDPOINT, LEASE, RETENTION};
use crate::deliveries::{body, id, id_text, verified};

/// So few that many runs are not interrupted by another process.
const DELIVERIES: u32 = 1_000;
const RUNS: usize = 201;

/// Prints what it adds on a runtime of one thread and on one of several, and where that goes.
pub(crate) fn measure() {
    println!("## What `Inbox::handle` adds to a delivery on the memory store\n");
    println!(
        "The time of `handle` with a handler that does nothing, less that of the same handler called directly. \
         {RUNS} runs of {DELIVERIES} deliveries. On a busy machine, the fastest run says what the code costs.\n"
    );
    println!(
        "| runtime | adds ns, fastest run | adds ns, median | directly ns, fastest run |\n|---|--:|--:|--:|"
    );
    let one_thread = Builder::new_current_thread().enable_all().build().unwrap();
    let threads = Builder::new_multi_thread().enable_all().build().unwrap();
    let runtimes = [("one thread", &one_thread), ("several threads", &threads)];
    for (name, runtime) in runtimes {
        let [by_inbox, directly] = times(runtime);
        let fastest = by_inbox.fastest - directly.fastest;
        let median = by_inbox.median - directly.median;
        let direct = directly.fastest;
        println!("| {name} | **{fastest:.0}** | {median:.0} | {direct:.0} |");
    }
    println!("\nSingle steps alone, the fastest run:\n");
    println!("| step | one thread ns | several threads ns |\n|---|--:|--:|");
    let [alone, shared] = [&one_thread, &threads].map(measure_steps);
    for ((name, alone), (_, shared)) in alone.into_iter().zip(shared) {
        println!("| {name} | {alone:.0} | {shared:.0} |");
    }
    println!();
}

/// Returns the times of `handle` and of the handler alone.
fn times(runtime: &Runtime) -> [Times; 2] {
    let (mut by_inbox, mut directly) = (Vec::new(), Vec::new());
    for _ in 0..RUNS {
        by_inbox.push(run_in_task(runtime, handle_all(verified(DELIVERIES))));
        directly.push(run_in_task(runtime, call_all(verified(DELIVERIES))));
    }
    [by_inbox, directly].map(Times::of)
}

async fn handle_all(deliveries: Vec<VerifiedEvent>) -> Duration {
    let store = MemoryStore::builder().capacity(deliveries.len()).build();
    let inbox = Inbox::builder(store).build().unwrap();
    let start = Instant::now();
    for delivery in deliveries {
        assert_eq!(inbox.handle(delivery, handler).await, Receipt::Handled);
    }
    start.elapsed()
}

async fn call_all(deliveries: Vec<VerifiedEvent>) -> Duration {
    let start = Instant::now();
    for delivery in deliveries {
        let attempt = Attempt::new(1, 10);
        assert_eq!(handler(delivery.into_event(), attempt).await, Ok(()));
    }
    start.elapsed()
}

async fn handler(event: Event, attempt: Attempt) -> Result<(), Infallible> {
    black_box((event, attempt));
    std::future::ready(Ok(())).await
}

/// Runs a future in a task of a runtime, as a server does.
fn run_in_task<T: Send + 'static>(
    runtime: &Runtime,
    future: impl Future<Output = T> + Send + 'static,
) -> T {
    runtime.block_on(async { tokio::spawn(future).await.unwrap() })
}

/// Nanoseconds for one delivery.
struct Times {
    fastest: f64,
    median: f64,
}

impl Times {
    fn of(mut runs: Vec<Duration>) -> Self {
        runs.sort_unstable();
        let at = |index: usize| runs[index].as_secs_f64() * 1e9 / f64::from(DELIVERIES);
        Self {
            fastest: at(0),
            median: at(runs.len() / 2),
        }
    }
}

/// Returns what each step takes on a runtime, in nanoseconds.
fn measure_steps(runtime: &Runtime) -> [(&'static str, f64); 6] {
    let steps = |run: fn(&Runtime) -> Duration| {
        let runs = (0..RUNS).map(|_| run(runtime));
        Times::of(runs.collect()).fastest
    };
    [
        ("fingerprint of 400 bytes", steps(|_| fingerprints())),
        ("token", steps(|_| tokens())),
        ("claim", steps(|runtime| run_in_task(runtime, claims()).0)),
        (
            "complete",
            steps(|runtime| run_in_task(runtime, claims()).1),
        ),
        (
            "spawn and join",
            steps(|runtime| run_in_task(runtime, spawns())),
        ),
        (
            "timer armed and dropped",
            steps(|runtime| run_in_task(runtime, timers())),
        ),
    ]
}

fn fingerprints() -> Duration {
    let body = body(&id_text());
    let start = Instant::now();
    for _ in 0..DELIVERIES {
        black_box(Fingerprint::of(black_box(body.as_bytes())));
    }
    start.elapsed()
}

fn tokens() -> Duration {
    let start = Instant::now();
    for _ in 0..DELIVERIES {
        black_box(Token::random());
    }
    start.elapsed()
}

/// Returns how long all claims took, and all completions.
async fn claims() -> (Duration, Duration) {
    let store = MemoryStore::new();
    let ids: Vec<_> = (0..DELIVERIES).map(|_| id()).collect();
    let token = Token::random();
    let start = Instant::now();
    for id in &ids {
        let claim = NewClaim::new(key(id), token, LEASE, RETENTION)
            .fingerprint(Fingerprint::from_bytes(*token.as_bytes()));
        black_box(store.claim(claim).await.unwrap());
    }
    let claimed = start.elapsed();
    for id in &ids {
        let held = HeldClaim::new(key(id), token);
        assert!(store.complete(held, RETENTION).await.unwrap());
    }
    (claimed, start.elapsed() - claimed)
}

fn key(id: &EventId) -> EventKey<'_> {
    EventKey::new(ENDPOINT, id)
}

async fn spawns() -> Duration {
    let start = Instant::now();
    for _ in 0..DELIVERIES {
        tokio::spawn(async { black_box(1) }).await.unwrap();
    }
    start.elapsed()
}

async fn timers() -> Duration {
    let deadline = tokio::time::Instant::now() + LEASE;
    let start = Instant::now();
    for _ in 0..DELIVERIES {
        let mut timer = pin!(tokio::time::sleep_until(deadline));
        poll_fn(|context| {
            assert!(timer.as_mut().poll(context).is_pending());
            Poll::Ready(())
        })
        .await;
    }
    start.elapsed()
}
