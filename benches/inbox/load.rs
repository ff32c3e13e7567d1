//! How many calls run simultaneously, and until when.

use std::time::{Duration, Instant};

/// How long one rate is measured at the most.
const LIMIT: Duration = Duration::from_secs(2);

#[derive(Clone, Copy)]
pub(crate) struct Load {
    pub(crate) workers: u32,
    pub(crate) events: u32,
}

impl Load {
    pub(crate) fn ends_at() -> Instant {
        Instant::now() + LIMIT
    }

    /// Runs the work of each worker, and returns how many events a second they did. Each is told how many
    /// events are its own, and when to stop; it returns how many it did.
    pub(crate) async fn rate<F>(self, work: impl Fn(u32, Instant) -> F) -> f64
    where
        F: Future<Output = u32> + Send + 'static,
    {
        let (start, end) = (Instant::now(), Self::ends_at());
        let each = self.events.div_ceil(self.workers);
        let workers: Vec<_> = (0..self.workers)
            .map(|_| tokio::spawn(work(each, end)))
            .collect();
        let mut done = 0;
        for worker in workers {
            done += worker.await.unwrap();
        }
        f64::from(done) / start.elapsed().as_secs_f64()
    }
}

/// Does something up to `count` times until `end`. Returns how often.
pub(crate) async fn repeat<F: Future>(count: u32, end: Instant, work: impl Fn() -> F) -> u32 {
    for done in 0..count {
        if Instant::now() >= end {
            return done;
        }
        work().await;
    }
    count
}
