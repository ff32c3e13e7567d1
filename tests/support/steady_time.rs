//! tokio's time for a test whose machine may stand still for half a minute. The time stands still meanwhile, too, so that
//! this ends no time limit of the code under test. Otherwise, it passes like the system's.

use std::cell::RefCell;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::Notify;
use tokio::task::AbortHandle;

/// How often the time moves.
const STEP: Duration = Duration::from_millis(10);
/// How far it moves at most.
const LONGEST_STEP: Duration = Duration::from_millis(50);

thread_local! {
    /// The task that moves the time of this thread's runtime.
    static MOVING: RefCell<Option<AbortHandle>> = const { RefCell::new(None) };
}

/// Begins the steady time, which lasts until the runtime ends. Does nothing if it has begun, or in a runtime with several
/// threads: tokio cannot pause the time there.
pub fn begin() {
    begin_at(1);
}

/// As [`begin`], at a twentieth of the speed: for a test that also waits for other processes, such as a database, which may
/// be slow or stand still alone. `tokio::time::advance` and [`advance_soon`] still move the time. The limit of
/// [`in_time`](crate::in_time) passes like the system's time.
pub fn begin_slow() {
    begin_at(20);
}

fn begin_at(slowness: u32) {
    let is_running = |moving: &AbortHandle| !moving.is_finished();
    let has_begun = MOVING.with_borrow(|moving| moving.as_ref().is_some_and(is_running));
    if has_begun || Handle::current().runtime_flavor() != RuntimeFlavor::CurrentThread {
        return;
    }
    tokio::time::pause();
    let step = Arc::new(Notify::new());
    let steps = Arc::downgrade(&step);
    // While a blocking task runs, a paused time does not jump to the next timer.
    drop(tokio::task::spawn_blocking(move || notify(&steps)));
    let moving = tokio::spawn(move_time(step, slowness));
    MOVING.set(Some(moving.abort_handle()));
}

/// Ends the steady time, for a test that pauses the time itself.
pub fn end() {
    if let Some(moving) = MOVING.take().filter(|moving| !moving.is_finished()) {
        moving.abort();
        tokio::time::resume();
    }
}

/// Moves the time a moment later, when the caller waits for something else.
pub fn advance_soon(duration: Duration) {
    tokio::spawn(async move {
        tokio::time::sleep(Duration::from_millis(5)).await;
        tokio::time::advance(duration).await;
    });
}

/// Notifies the task that moves the time, until it has ended.
fn notify(steps: &Weak<Notify>) {
    while let Some(step) = steps.upgrade() {
        step.notify_one();
        drop(step);
        std::thread::sleep(STEP);
    }
}

async fn move_time(step: Arc<Notify>, slowness: u32) {
    let mut last = Instant::now();
    loop {
        step.notified().await;
        let passed = last.elapsed();
        last += passed;
        tokio::time::advance(passed.min(LONGEST_STEP) / slowness).await;
    }
}
