//! Remembers the place in the queue of each endpoint at which the oldest due event was found.
//!
//! Rows that died stay in the index for as long as an old snapshot is open anywhere in the database. To look for the
//! oldest due event, Postgres then walks over all of them. So if that took long, the search begins where the last one
//! ended, and only now and then at the beginning, for an event that became due before that: one whose transaction took
//! long, or that was due at a time to which the clock of the database was set back.
//!
//! A full search that fails counts like one that took as long. It may have taken more time than a call has, and if the
//! next one were full again, no event would ever be taken.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::time::Instant;

use crate::sync::lock;

/// A search that finds the first event sooner did not walk over many dead rows.
const QUICK_SEARCH: f64 = 0.002;
/// How many more seconds a search may take for each event that the same statement completes.
const COMPLETION: f64 = 0.000_05;
/// A full search may take one part in this many of the time.
const RARITY: u32 = 20;
const SHORTEST_PAUSE: Duration = Duration::from_secs(3);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// Seconds that begin anew before the oldest known event, for the rounding of its time.
const MARGIN: f64 = 0.001;
/// How many seconds ago a search begins after a full one failed, if no event was found yet.
const GUESS: f64 = 600.0;

#[derive(Clone, Default)]
pub(super) struct QueueHeads(Arc<Mutex<HashMap<Box<str>, Head>>>);

/// The place of the oldest due event, remembered only if the last full search took long or failed.
struct Head {
    /// Seconds since 1970 by the clock of the database.
    from: f64,
    /// Whether no full search has succeeded yet, so that events may wait before this place.
    is_guess: bool,
    full_search: Instant,
    full_search_took: Duration,
}

/// From which time on due events are looked for, in seconds since 1970.
#[derive(Clone, Copy)]
pub(super) struct Search {
    pub(super) from: f64,
    /// Whether events may wait before this time. If such a search finds nothing, nobody knows whether one is due.
    pub(super) is_guess: bool,
}

impl Search {
    pub(super) const FULL: Self = Self {
        from: f64::NEG_INFINITY,
        is_guess: false,
    };

    pub(super) fn is_full(self) -> bool {
        self.from == f64::NEG_INFINITY
    }
}

impl QueueHeads {
    pub(super) fn search(&self, endpoint: &str) -> Search {
        let heads = self.lock();
        let head = heads.get(endpoint);
        let pause =
            |head: &Head| (head.full_search_took * RARITY).clamp(SHORTEST_PAUSE, LONGEST_PAUSE);
        match head.filter(|head| head.full_search.elapsed() < pause(head)) {
            Some(head) => Search {
                from: head.from,
                is_guess: head.is_guess,
            },
            None => Search::FULL,
        }
    }

    /// Returns whether a full search should follow one that found too little.
    pub(super) fn is_worth_full_search(&self, endpoint: &str) -> bool {
        let heads = self.lock();
        // If there is a guess, the last full search failed, and the next one may lose what was found.
        heads.get(endpoint).is_none_or(|head| {
            !head.is_guess && head.full_search.elapsed() >= head.full_search_took * RARITY
        })
    }

    /// Notes that a search begins. It counts as failed if the returned value is dropped: its call may time out.
    pub(super) fn begin<'a>(&'a self, endpoint: &'a str, search: Search) -> RunningSearch<'a> {
        RunningSearch {
            heads: self,
            endpoint,
            search,
            start: Instant::now(),
        }
    }

    fn learn_of_failure(&self, endpoint: &str, start: Instant) {
        let end = Instant::now();
        let mut heads = self.lock();
        if let Some(head) = heads.get_mut(endpoint) {
            head.full_search = end;
            // A search that failed immediately does not show that a whole one is quick.
            head.full_search_took = head.full_search_took.max(end - start);
            return;
        }
        // By the clock of this machine. If the clock of the database is far behind, nothing is found from there on, and
        // the search begins at the beginning again.
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let head = Head {
            from: now.unwrap_or_default().as_secs_f64() - GUESS,
            is_guess: true,
            full_search: end,
            full_search_took: end - start,
        };
        heads.insert(endpoint.into(), head);
    }

    /// Learns from a search. `oldest` is when the oldest event became due, and after how many seconds it was found.
    pub(super) fn learn(
        &self,
        endpoint: &str,
        search: Search,
        oldest: Option<(f64, f64)>,
        completed: usize,
        start: Instant,
        end: Instant,
    ) {
        let mut heads = self.lock();
        #[expect(clippy::cast_precision_loss, reason = "a small number")]
        let quick = QUICK_SEARCH + COMPLETION * completed as f64;
        match (heads.get_mut(endpoint), oldest) {
            (Some(_), Some((_, searched))) if search.is_full() && searched < quick => {
                heads.remove(endpoint);
            }
            (Some(head), _) => {
                if search.is_full() {
                    head.is_guess = false;
                    head.full_search = end;
                    head.full_search_took = end - start;
                }
                if let Some((due, _)) = oldest {
                    head.from = due - MARGIN;
                }
            }
            (None, Some((due, searched))) if search.is_full() && searched >= quick => {
                let head = Head {
                    from: due - MARGIN,
                    is_guess: false,
                    full_search: end,
                    full_search_took: end - start,
                };
                heads.insert(endpoint.into(), head);
            }
            (None, _) => {}
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Box<str>, Head>> {
        lock(&self.0)
    }
}

pub(super) struct RunningSearch<'a> {
    heads: &'a QueueHeads,
    endpoint: &'a str,
    search: Search,
    start: Instant,
}

impl RunningSearch<'_> {
    /// Notes that the search ended. See [`QueueHeads::learn`].
    pub(super) fn end(self, oldest: Option<(f64, f64)>, completed: usize) {
        let (endpoint, start) = (self.endpoint, self.start);
        self.heads.learn(
            endpoint,
            self.search,
            oldest,
            completed,
            start,
            Instant::now(),
        );
        // It did not fail.
        std::mem::forget(self);
    }
}

impl Drop for RunningSearch<'_> {
    fn drop(&mut self) {
        if self.search.is_full() {
            self.heads.learn_of_failure(self.endpoint, self.start);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SLOW: f64 = 0.1;
    const QUICK: f64 = 0.000_1;

    /// Notes a search that took 100 ms, and found the first event, due at second 50, after `searched` seconds.
    fn learn(heads: &QueueHeads, search: Search, searched: f64) {
        let start = Instant::now();
        let end = start + Duration::from_millis(100);
        heads.learn("main", search, Some((50.0, searched)), 0, start, end);
    }

    #[tokio::test(start_paused = true)]
    async fn after_a_slow_search_an_event_before_the_head_is_looked_for_within_the_pause() {
        let heads = QueueHeads::default();

        learn(&heads, Search::FULL, SLOW);

        let search = heads.search("main");
        assert!(search.from < 50.0 && search.from > 49.9);
        assert!(heads.search("another").is_full());
        learn(&heads, search, QUICK);
        assert!(heads.search("main").from < 50.0);
        tokio::time::advance(SHORTEST_PAUSE - Duration::from_millis(100)).await;
        assert!(!heads.search("main").is_full());
        // The search ended 100 ms after its start, so the pause ends now.
        tokio::time::advance(Duration::from_millis(200)).await;
        assert!(heads.search("main").is_full());
    }

    #[tokio::test(start_paused = true)]
    async fn a_full_search_that_takes_longer_is_repeated_later() {
        let heads = QueueHeads::default();
        let start = Instant::now();
        let end = start + Duration::from_secs(1);
        heads.learn("main", Search::FULL, Some((50.0, 1.0)), 0, start, end);

        // The pause is 20 s.
        tokio::time::advance(Duration::from_millis(20_900)).await;
        let early = heads.search("main");
        tokio::time::advance(Duration::from_millis(200)).await;

        assert!(!early.is_full());
        assert!(heads.search("main").is_full());
    }

    #[tokio::test(start_paused = true)]
    async fn an_idle_worker_looks_for_events_before_the_head_sooner_than_a_busy_one() {
        let heads = QueueHeads::default();
        learn(&heads, Search::FULL, SLOW);

        // The search took 100 ms, so another one is worth it 2 s after its end.
        tokio::time::advance(Duration::from_millis(2_050)).await;
        let early = heads.is_worth_full_search("main");
        tokio::time::advance(Duration::from_millis(100)).await;

        assert!(!early);
        assert!(heads.is_worth_full_search("main"));
        assert!(!heads.search("main").is_full());
    }

    #[tokio::test(start_paused = true)]
    async fn a_full_search_that_fails_counts_like_one_that_took_as_long_but_not_as_a_quick_one() {
        for (lasted, pause) in [(Duration::ZERO, 20), (Duration::from_secs(5), 30)] {
            let heads = QueueHeads::default();
            let start = Instant::now();
            let end = start + Duration::from_secs(1);
            heads.learn("main", Search::FULL, Some((50.0, 1.0)), 0, start, end);
            let search = heads.begin("main", Search::FULL);
            tokio::time::advance(lasted).await;
            drop(search);

            tokio::time::advance(Duration::from_secs(pause) - Duration::from_millis(1)).await;
            let early = heads.search("main");
            tokio::time::advance(Duration::from_millis(2)).await;

            assert!(early.from < 50.0 && !early.is_full() && !early.is_guess);
            assert!(heads.search("main").is_full(), "{lasted:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_guess_is_one_until_a_full_search_succeeds() {
        let heads = QueueHeads::default();
        drop(heads.begin("main", Search::FULL));

        let guess = heads.search("main");
        heads.begin("main", guess).end(Some((50.0, QUICK)), 0);
        let after_an_event = heads.search("main");
        let is_worth = heads.is_worth_full_search("main");
        heads.begin("main", Search::FULL).end(None, 0);

        assert!(guess.is_guess && after_an_event.is_guess && !is_worth);
        // Some minutes ago, even if the test takes long.
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        let since = now.as_secs_f64() - guess.from;
        assert!(since > 0.0 && since < 86_400.0, "{since}");
        assert!(after_an_event.from < 50.0 && after_an_event.from > 49.9);
        assert!(!heads.search("main").is_guess);
    }

    #[tokio::test(start_paused = true)]
    async fn once_a_full_search_is_quick_again_every_search_is_full() {
        let heads = QueueHeads::default();
        learn(&heads, Search::FULL, SLOW);

        learn(&heads, Search::FULL, QUICK);

        assert!(heads.search("main").is_full());
    }
}
