//! Remembers the place in the queue of each endpoint at which the oldest due event was found.
//!
//! Rows that died stay in the index for as long as an old snapshot is open anywhere in the database. To look for the
//! oldest due event, Postgres then walks over all of them. So if that took long, the search begins where the last one
//! ended, and only now and then at the beginning, for an event that became due before that: one whose transaction took
//! long, or that was due at a time to which the clock of the database was set back.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

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

#[derive(Clone, Default)]
pub(super) struct QueueHeads(Arc<Mutex<HashMap<Box<str>, Head>>>);

/// The place of the oldest due event, remembered only if the last full search took long.
struct Head {
    /// Seconds since 1970 by the clock of the database.
    from: f64,
    full_search: Instant,
    full_search_took: Duration,
}

/// From which time on due events are looked for, in seconds since 1970.
#[derive(Clone, Copy)]
pub(super) struct Search {
    pub(super) from: f64,
}

impl Search {
    pub(super) const FULL: Self = Self {
        from: f64::NEG_INFINITY,
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
            Some(head) => Search { from: head.from },
            None => Search::FULL,
        }
    }

    /// Returns whether a full search should follow one that found too little.
    pub(super) fn is_worth_full_search(&self, endpoint: &str) -> bool {
        let heads = self.lock();
        let head = heads.get(endpoint);
        head.is_none_or(|head| head.full_search.elapsed() >= head.full_search_took * RARITY)
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
                    full_search: end,
                    full_search_took: end - start,
                };
                heads.insert(endpoint.into(), head);
            }
            (None, _) => {}
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Box<str>, Head>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
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
    async fn once_a_full_search_is_quick_again_every_search_is_full() {
        let heads = QueueHeads::default();
        learn(&heads, Search::FULL, SLOW);

        learn(&heads, Search::FULL, QUICK);

        assert!(heads.search("main").is_full());
    }
}
