//! Every interleaving of the threads and tasks that share the types of `src/sync.rs`.
//!
//! The file is included with the types of shuttle in place of those of std and tokio, so these tests run the code of the
//! crate. Shuttle runs a test once for each schedule: at each step, another thread may continue. A schedule in which
//! nobody can continue fails the test.
#![cfg(test)]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use shuttle::future::block_on;
use shuttle::thread;
use tokio::time::Instant;

use sync::{Condition, Hold, Running, Share};

/// The types that the crate takes from std and tokio.
mod primitives {
    pub(crate) use shuttle::sync::atomic::{AtomicUsize, Ordering};
    pub(crate) use shuttle::sync::{Mutex, MutexGuard};
    pub(crate) use std::sync::PoisonError;

    pub(crate) use super::notify::Notify;
}

/// What the crate uses of tokio's `Notify`, with the same promise: `notify_waiters` ends every `notified()` that was
/// created before.
mod notify {
    use std::pin::Pin;
    use std::task::{Context, Poll, Waker};

    use shuttle::sync::Mutex;

    /// How often it has notified, and who waits.
    #[derive(Debug, Default)]
    pub(crate) struct Notify(Mutex<(usize, Vec<Waker>)>);

    impl Notify {
        pub(crate) fn notify_waiters(&self) {
            let mut state = self.0.lock().unwrap();
            state.0 += 1;
            for waker in state.1.drain(..) {
                waker.wake();
            }
        }

        pub(crate) fn notified(&self) -> Notified<'_> {
            let before = self.0.lock().unwrap().0;
            Notified {
                notify: self,
                before,
            }
        }
    }

    pub(crate) struct Notified<'a> {
        notify: &'a Notify,
        before: usize,
    }

    impl Future for Notified<'_> {
        type Output = ();

        fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
            let mut state = self.notify.0.lock().unwrap();
            if state.0 > self.before {
                return Poll::Ready(());
            }
            state.1.push(context.waker().clone());
            Poll::Pending
        }
    }
}

#[path = "../src/sync.rs"]
mod sync;

/// Runs a test once for each schedule. Panics if there are fewer than `least`, because then the threads do not meet.
fn explore(least: usize, test: impl Fn() + Send + Sync + 'static) {
    let schedules = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&schedules);
    shuttle::check_dfs(
        move || {
            counted.fetch_add(1, Ordering::Relaxed);
            test();
        },
        None,
    );
    let schedules = schedules.load(Ordering::Relaxed);
    println!("{schedules} schedules");
    assert!(schedules >= least, "only {schedules} schedules");
}

/// Runs a test with too many schedules to try all of them: some at random, and some with few changes of the thread at
/// any place, which find most mistakes.
fn explore_some(test: fn()) {
    let schedules = match std::env::var_os("AUDIENCE_LONG_TESTS") {
        Some(_) => 1_000_000,
        None => 5_000,
    };
    shuttle::check_random(test, schedules);
    shuttle::check_pct(test, schedules, 3);
}

#[test]
fn whoever_waits_until_nothing_runs_waits_for_all_and_is_always_woken() {
    explore(100, || {
        let running = Arc::new(Running::default());
        let ended = Arc::new(AtomicUsize::new(0));
        for _ in 0..2 {
            let (guard, ended) = (running.start(), Arc::clone(&ended));
            thread::spawn(move || {
                ended.fetch_add(1, Ordering::Relaxed);
                drop(guard);
            });
        }

        block_on(running.wait_idle());

        assert_eq!(ended.load(Ordering::Relaxed), 2);
    });
}

#[test]
fn two_that_wait_are_both_woken() {
    explore_some(|| {
        let running = Arc::new(Running::default());
        let guard = running.start();
        let other = Arc::clone(&running);
        let waiting = thread::spawn(move || block_on(other.wait_idle()));
        thread::spawn(move || drop(guard));

        block_on(running.wait_idle());
        waiting.join().unwrap();
    });
}

/// Counts to `threads`, each of which adds one, and waits for the sum.
fn wait_for_sum(threads: usize) {
    let state = Arc::new((primitives::Mutex::new(0), Condition::default()));
    for _ in 0..threads {
        let state = Arc::clone(&state);
        thread::spawn(move || {
            *state.0.lock().unwrap() += 1;
            state.1.notify();
        });
    }

    block_on(state.1.wait_until(|| *state.0.lock().unwrap() == threads));
}

#[test]
fn a_change_behind_a_lock_never_leaves_a_task_waiting() {
    explore(100, || wait_for_sum(1));
    explore_some(|| wait_for_sum(3));
}

/// Shows that the exploration finds a lost wake-up: the code above, with the check before `notified`.
#[test]
#[should_panic(expected = "deadlock")]
fn a_check_before_the_registration_would_leave_a_task_waiting() {
    explore(1, || {
        let state = Arc::new((primitives::Mutex::new(false), primitives::Notify::default()));
        let other = Arc::clone(&state);
        thread::spawn(move || {
            *other.0.lock().unwrap() = true;
            other.1.notify_waiters();
        });

        if !*state.0.lock().unwrap() {
            block_on(state.1.notified());
        }
    });
}

#[test]
fn shares_never_exceed_the_limit_together_and_leave_nothing_behind() {
    const LIMIT: usize = 3;
    explore(100, || {
        let held = Arc::new(primitives::AtomicUsize::new(0));
        let sum = Arc::new(AtomicUsize::new(0));
        let threads = [[1, 2], [2, 3]].map(|amounts| {
            let (held, sum) = (Arc::clone(&held), Arc::clone(&sum));
            thread::spawn(move || {
                let mut share = Share::new(&held);
                let mut amount = 0;
                for wanted in amounts {
                    if share.grow_to(wanted, LIMIT) {
                        sum.fetch_add(wanted - amount, Ordering::Relaxed);
                        amount = wanted;
                    }
                    assert!(sum.load(Ordering::Relaxed) <= LIMIT);
                }
                sum.fetch_sub(amount, Ordering::Relaxed);
            })
        });
        for thread in threads {
            thread.join().unwrap();
        }

        let mut share = Share::new(&held);
        assert!(share.grow_to(LIMIT, LIMIT));
        assert!(!share.grow_to(LIMIT + 1, LIMIT));
    });
}

/// Holds back requests for each of these times, each by a thread of its own.
fn hold_for(waits: &[u64]) {
    let seconds = Duration::from_secs;
    let (hold, now) = (Arc::new(Hold::default()), Instant::now());
    let threads: Vec<_> = waits
        .iter()
        .map(|&wait| {
            let hold = Arc::clone(&hold);
            thread::spawn(move || {
                hold.extend(now, seconds(wait));
                assert!(hold.left(now) >= seconds(wait));
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }

    let longest = waits.iter().max().copied();
    assert_eq!(hold.left(now), seconds(longest.unwrap()));
}

#[test]
fn a_hold_is_never_shortened_by_another_call() {
    explore(100, || hold_for(&[9, 2]));
    explore_some(|| hold_for(&[2, 9, 5, 7]));
}
