//! Delivers, kills and restarts, and counts in the end.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use audience::mock::{DeliveryFault, MockServer, SigningClock};
use futures_util::{FutureExt, StreamExt, stream};
use serde_json::json;
use tokio::sync::oneshot;

use super::effects::{COMPLETION, Database};
use super::proxy::Proxy;
use super::receiver::{Mode, Receiver};
use super::tally::{Crashes, Tally};
use super::{LEASE, SECRET};
use support::PATIENCE;
use support::postgres::Server;

pub(super) struct Sweep {
    pub(super) mode: Mode,
    /// The URL of a Postgres database, or the path of a SQLite file.
    pub(super) store: String,
    pub(super) receivers: usize,
    pub(super) events: usize,
}

impl Sweep {
    pub(super) fn new(mode: Mode, store: String, receivers: usize, events: usize) -> Self {
        Self {
            mode,
            store,
            receivers,
            events,
        }
    }
}

/// Runs a sweep. `postgres` is restarted twice meanwhile.
pub(super) async fn sweep(sweep: Sweep, postgres: Option<&Server>) -> Tally {
    let sweep = Arc::new(sweep);
    let database = Database::open(&sweep.store);
    prepare(&database).await;
    let proxy = Proxy::start(sweep.receivers).await;
    let mock = MockServer::builder()
        .webhook_endpoint(proxy.url(), SECRET)
        .signing_clock(SigningClock::Wall)
        .start()
        .await;
    let is_over = Arc::new(AtomicBool::new(false));
    let (started, have_started) = oneshot::channel();
    let killer = tokio::task::spawn_blocking({
        let (sweep, proxy, is_over) = (Arc::clone(&sweep), proxy.clone(), Arc::clone(&is_over));
        move || kill_and_restart(&sweep, &proxy, started, &is_over)
    });
    have_started.await.unwrap();
    let is_done = Arc::new(AtomicBool::new(false));
    let watch = std::thread::spawn({
        let is_done = Arc::clone(&is_done);
        move || watch_for_stalls(&is_done)
    });

    let (ids, outages) = tokio::join!(
        deliver(&mock, sweep.events),
        restart(postgres, sweep.events)
    );
    is_over.store(true, Ordering::Relaxed);
    let (receivers, killed) = killer.await.unwrap();
    retry_until_handled(&mock, &database, &ids).await;
    wait_until_drained(&database, &ids).await;
    if sweep.mode == Mode::NaiveSet {
        // On a slow machine, a kill may come when hardly a delivery follows.
        stream::iter(kept(&ids))
            .for_each_concurrent(32, |id| mock.redeliver(id))
            .await;
    }

    drop(receivers);
    is_done.store(true, Ordering::Relaxed);
    let crashes = Crashes {
        killed,
        outages,
        stalls: watch.join().unwrap(),
    };
    Tally::new(&ids, &database.all().await, &crashes, proxy.connections())
}

/// How long events are delivered: long enough for many kills.
fn duration(events: usize) -> Duration {
    let events = u32::try_from(events).unwrap();
    (Duration::from_secs(1) * events / 200).max(Duration::from_secs(5))
}

async fn prepare(database: &Database) {
    if let Database::Postgres { url, .. } = database {
        let store = support::postgres::connect(url).await.unwrap();
        store.migrate().await.unwrap();
    }
    database.create_table().await;
}

/// Sends events with duplicates, reordering, replays of earlier events, and retries. Returns their ids.
async fn deliver(mock: &MockServer, events: usize) -> Vec<String> {
    let tenth = events as u64 / 10;
    mock.delivery_fault(DeliveryFault::duplicate().times(tenth));
    mock.delivery_fault(DeliveryFault::reorder().times(tenth));
    let pause = duration(events) / u32::try_from(events).unwrap();
    let ids = Mutex::new(Vec::with_capacity(events));
    stream::iter(0..events)
        .then(|number| tokio::time::sleep(pause).map(move |()| number))
        .for_each_concurrent(32, |number| {
            let ids = &ids;
            async move {
                let id = mock.send_event(json!({"type": "email.bounced"})).await;
                ids.lock().unwrap().push(id);
                if number % 4 == 0 {
                    let replayed = earlier(&ids.lock().unwrap());
                    mock.redeliver(&replayed).await;
                }
                if number % 50 == 49 {
                    mock.advance(Duration::from_secs(36)).await;
                }
            }
        })
        .await;
    ids.into_inner().unwrap()
}

/// Returns one of the events that the mock still has.
fn earlier(ids: &[String]) -> String {
    let kept = kept(ids);
    kept[fastrand::usize(..kept.len())].clone()
}

/// Returns the events that the mock certainly still has.
fn kept(ids: &[String]) -> &[String] {
    &ids[ids.len().saturating_sub(800)..]
}

/// Restarts Postgres after a third and after two thirds of the time. Returns when it was down, in Unix seconds.
async fn restart(postgres: Option<&Server>, events: usize) -> Vec<Range<f64>> {
    let mut outages = Vec::new();
    if let Some(postgres) = postgres {
        for _ in 0..2 {
            tokio::time::sleep(duration(events) / 3).await;
            let start = unix_time();
            postgres.kill().await;
            postgres.start().await;
            outages.push(start..unix_time());
        }
    }
    outages
}

fn unix_time() -> f64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap()
        .as_secs_f64()
}

/// Returns when this process did not run for two seconds or longer. Most likely the receivers did not run, either: they
/// extend a lease after a third of its time.
fn watch_for_stalls(is_done: &AtomicBool) -> Vec<Range<f64>> {
    let mut stalls = Vec::new();
    let mut last = unix_time();
    while !is_done.load(Ordering::Relaxed) {
        std::thread::sleep(Duration::from_millis(100));
        let now = unix_time();
        if now - last > 2.0 {
            // Both effects may come right after it.
            stalls.push(last..now + LEASE.as_secs_f64());
        }
        last = now;
    }
    stalls
}

/// Kills receivers at random moments, and at least one, and starts others in their place. Returns those that run in the
/// end, and the generations that were killed.
fn kill_and_restart(
    sweep: &Sweep,
    proxy: &Proxy,
    started: oneshot::Sender<()>,
    is_over: &AtomicBool,
) -> (Vec<Receiver>, BTreeSet<i64>) {
    let mut generation = 0;
    let mut start = |place| {
        generation += 1;
        let receiver = Receiver::start(sweep.mode, &sweep.store, generation);
        proxy.set(place, Some(receiver.port));
        receiver
    };
    let mut receivers: Vec<_> = (0..sweep.receivers).map(&mut start).collect();
    let _ = started.send(());
    let mut killed = BTreeSet::new();
    while killed.is_empty() || !is_over.load(Ordering::Relaxed) {
        std::thread::sleep(Duration::from_millis(fastrand::u64(100..500)));
        let place = fastrand::usize(..sweep.receivers);
        let old = receivers.remove(place);
        proxy.set(place, None);
        killed.insert(old.generation);
        old.kill();
        receivers.insert(place, start(place));
    }
    (receivers, killed)
}

/// Lets the service retry what failed, one attempt of each event after the other, with time for the leases of killed
/// receivers to end.
async fn retry_until_handled(mock: &MockServer, database: &Database, ids: &[String]) {
    for attempt in 0..9 {
        tokio::time::sleep(LEASE + Duration::from_millis(300)).await;
        mock.advance(Duration::from_secs(36 << attempt)).await;
        if not_handled(database, ids).await.is_empty() {
            return;
        }
    }
    // On a slow machine, all attempts of the service may fail while receivers start.
    let end = Instant::now() + PATIENCE;
    while Instant::now() < end {
        let missing = not_handled(database, ids).await;
        if missing.is_empty() {
            return;
        }
        for id in missing {
            mock.redeliver(id).await;
        }
        tokio::time::sleep(LEASE).await;
    }
}

/// Waits until the workers handled what was accepted.
async fn wait_until_drained(database: &Database, ids: &[String]) {
    let end = Instant::now() + PATIENCE;
    while !not_handled(database, ids).await.is_empty() && Instant::now() < end {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

async fn not_handled<'a>(database: &Database, ids: &'a [String]) -> Vec<&'a str> {
    let effects = database.all().await;
    let handled: BTreeSet<_> = effects
        .iter()
        .filter(|effect| effect.generation != COMPLETION)
        .map(|effect| effect.event.as_str())
        .collect();
    let ids = ids.iter().map(String::as_str);
    ids.filter(|id| !handled.contains(id)).collect()
}
