use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use audience::inbox::conformance::{CaseResult, ClockJump, Suite};
use audience::inbox::{
    EventKey, Fingerprint, HeldClaim, MemoryStore, MemoryStoreBuilder, NewDelivery, Store, Take,
    Token,
};
use audience::webhooks::EventId;
use support::trace_log::Log;

use super::faulty_store::FaultyStore;

/// A clock that a test moves.
#[derive(Clone)]
pub(super) struct TestClock(Arc<Mutex<SystemTime>>);

impl TestClock {
    pub(super) fn new() -> Self {
        Self(Arc::new(Mutex::new(SystemTime::now())))
    }

    pub(super) fn now(&self) -> SystemTime {
        *self.0.lock().unwrap()
    }

    pub(super) fn advance(&self, by: Duration) {
        *self.0.lock().unwrap() += by;
    }

    pub(super) fn jump(&self, by: ClockJump) {
        match by {
            ClockJump::Forward(by) => *self.0.lock().unwrap() += by,
            ClockJump::Back(by) => *self.0.lock().unwrap() -= by,
        }
    }

    pub(super) fn builder(&self) -> MemoryStoreBuilder {
        let clock = self.clone();
        MemoryStore::builder().clock(move || clock.now())
    }

    pub(super) fn store(&self) -> MemoryStore {
        self.builder().build()
    }

    pub(super) fn suite(&self, store: impl Store + Clone) -> Suite {
        let clock = self.clone();
        Suite::new(store.clone())
            .also_through(store)
            .waiting_with(move |duration| {
                clock.advance(duration);
                tokio::task::yield_now()
            })
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_store_in_memory_passes_all_cases_in_real_time() {
    let store = MemoryStore::new();

    let report = Suite::new(store.clone()).also_through(store).run().await;

    report.assert_passed();
    assert!(report.cases().len() > 100);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_store_in_memory_passes_all_cases_in_a_time_of_its_own() {
    let clock = TestClock::new();
    let is_down = Arc::new(AtomicBool::new(false));
    let (stopped, started) = (Arc::clone(&is_down), Arc::clone(&is_down));
    let jumping = clock.clone();
    let store = FaultyStore::down_while(clock.store(), is_down);

    let suite = clock
        .suite(store)
        .filling(clock.builder().capacity(5).build(), 5)
        .clock_jump(move |by| {
            jumping.jump(by);
            async {}
        })
        .outage(
            move || {
                stopped.store(true, Ordering::SeqCst);
                async {}
            },
            move || {
                started.store(false, Ordering::SeqCst);
                async {}
            },
        );
    let report = suite.run().await;

    report.assert_passed();
    let all_ran = report
        .cases()
        .iter()
        .all(|case| case.result == CaseResult::Passed);
    assert!(all_ran, "{report}");
}

#[tokio::test(start_paused = true)]
async fn a_store_that_gives_up_calls_or_makes_them_again_passes_the_cases_with_an_outage() {
    let is_down = Arc::new(AtomicBool::new(false));
    let (stopped, started) = (Arc::clone(&is_down), Arc::clone(&is_down));
    let store = FaultyStore::hasty(MemoryStore::new(), is_down);

    let suite = Suite::new(store).only("lose").outage(
        move || {
            stopped.store(true, Ordering::SeqCst);
            async {}
        },
        move || {
            started.store(false, Ordering::SeqCst);
            async {}
        },
    );
    let report = suite.run().await;

    report.assert_passed();
}

async fn accept(store: &MemoryStore, name: &str, body: &[u8]) -> bool {
    let id = EventId::try_from(name).unwrap();
    let key = EventKey::new("main", &id);
    let delivery = NewDelivery::new(key, body, Fingerprint::of(body));
    store.accept(delivery).await.is_ok()
}

/// Completes all events that wait. They are forgotten immediately.
async fn complete_all(store: &MemoryStore) {
    let token = Token::random();
    let take = Take::new("main", token, Duration::from_secs(60), 10);
    for event in store.take(take).await.unwrap() {
        let held = HeldClaim::new(EventKey::new("main", &event.id), token);
        assert!(store.complete(held, Duration::ZERO).await.unwrap());
    }
}

/// What the stores of this test logged, as level, limit, refused events and seconds.
fn lines(log: &Log) -> Vec<String> {
    let events = log.events().into_iter();
    let of_store = events.filter(|line| line.fields["message"].contains("memory store"));
    let text = of_store.map(|line| {
        let of = |field: &str| line.fields.get(field).cloned().unwrap_or_default();
        format!(
            "{} {} {} {}",
            line.level,
            of("limit"),
            of("refused"),
            of("seconds")
        )
    });
    text.collect()
}

#[tokio::test]
async fn a_full_store_says_so_once_a_minute_and_when_it_has_room_again() {
    let log = Log::start();
    let clock = TestClock::new();
    let store = clock.builder().capacity(2).body_memory(10).build();

    // The bodies: for 90 s, an event each second.
    assert!(accept(&store, "one", &[0; 8]).await);
    for _ in 0..90 {
        assert!(!accept(&store, "two", &[0; 8]).await);
        clock.advance(Duration::from_secs(1));
    }
    assert_eq!(lines(&log), ["WARN body_memory 1 ", "WARN body_memory 60 "]);

    // The number of events. A duplicate is not refused, and is no sign of room. Neither is a body that is short enough.
    assert!(accept(&store, "two", &[0; 2]).await);
    assert!(!accept(&store, "three", b"").await);
    assert!(accept(&store, "one", &[0; 8]).await);
    assert!(!accept(&store, "three", b"").await);
    assert_eq!(lines(&log)[2..], ["WARN capacity 1 "]);
    complete_all(&store).await;
    clock.advance(Duration::from_secs(5));
    assert!(accept(&store, "three", b"").await);
    assert_eq!(
        lines(&log)[3..],
        ["INFO capacity  5", "INFO body_memory  95"]
    );
}

#[tokio::test]
async fn a_store_that_is_full_each_second_says_so_no_more_often() {
    let log = Log::start();
    let clock = TestClock::new();
    let store = clock.builder().capacity(2).build();

    for n in 0..90 {
        assert!(accept(&store, &format!("evt_{n}"), b"").await);
        assert!(accept(&store, &format!("other_{n}"), b"").await);
        assert!(!accept(&store, &format!("refused_{n}"), b"").await);
        complete_all(&store).await;
        clock.advance(Duration::from_secs(1));
    }

    let expected = [
        "WARN capacity 1 ",
        "INFO capacity  1",
        "WARN capacity 60 ",
        "INFO capacity  1",
    ];
    assert_eq!(lines(&log), expected);
}
