//! What the steps of `Inbox::handle` take alone.

use std::future::poll_fn;
use std::hint::black_box;
use std::pin::pin;
use std::task::Poll;
use std::time::{Duration, Instant};

use audience::inbox::{EventKey, Fingerprint, HeldClaim, MemoryStore, NewClaim, Store, Token};
use audience::webhooks::EventId;
use tokio::runtime::Runtime;

use crate::claims::{ENDPOINT, LEASE, RETENTION};
use crate::deliveries::{body, id, id_text};
use crate::handle::{DELIVERIES, RUNS, Times, run_in_task};

/// Returns what each step takes on a runtime, in nanoseconds.
pub(crate) fn measure(runtime: &Runtime) -> [(&'static str, f64); 6] {
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
