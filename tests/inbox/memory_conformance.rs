use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use audience::inbox::conformance::{CaseResult, ClockJump, Suite};
use audience::inbox::{MemoryStore, MemoryStoreBuilder};

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

    fn jump(&self, by: ClockJump) {
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

    pub(super) fn suite(&self, store: impl audience::inbox::Store + Clone) -> Suite {
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
