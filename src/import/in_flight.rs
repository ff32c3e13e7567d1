//! How many batches may run at once, decided from how the requests end. Pure.

/// The number of batches to start with.
const START: usize = 2;

/// The number of batches that may run at once: one more after each clean round, half after congestion.
///
/// A round is as many batches as may run at once. Several requests that fail together are one congestion:
/// only a batch that was started after the last halving can cause the next one.
#[derive(Clone, Debug)]
pub(super) struct InFlightLimit {
    limit: usize,
    ceiling: usize,
    /// The number of the round, which changes with the limit.
    round: u64,
    /// The round that began with the last halving.
    halved: u64,
    /// The batches of this round that ended without congestion.
    clean: usize,
}

/// The round in which a batch was started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Round(u64);

impl InFlightLimit {
    /// Creates a limit that starts at 2 and never exceeds `ceiling`, which counts as 1 if it is 0.
    pub(super) fn new(ceiling: usize) -> Self {
        let ceiling = ceiling.max(1);
        Self {
            limit: START.min(ceiling),
            ceiling,
            round: 0,
            halved: 0,
            clean: 0,
        }
    }

    /// Returns how many batches may run at once now.
    pub(super) fn current(&self) -> usize {
        self.limit
    }

    /// Returns the current round. Each batch keeps the one in which it started.
    pub(super) fn round(&self) -> Round {
        Round(self.round)
    }

    /// Records that a batch ended, and that none of its requests met congestion.
    pub(super) fn record_clean(&mut self, started: Round) {
        if started.0 < self.round {
            return;
        }
        self.clean += 1;
        if self.clean >= self.limit && self.limit < self.ceiling {
            self.change(self.limit + 1);
        }
    }

    /// Records that a request of a batch met congestion: a 429, a 503 or a timeout.
    pub(super) fn record_congestion(&mut self, started: Round) {
        if started.0 >= self.halved {
            self.change((self.limit / 2).max(1));
            self.halved = self.round;
        }
    }

    fn change(&mut self, limit: usize) {
        self.limit = limit;
        self.round += 1;
        self.clean = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ends as many batches cleanly as may run at once.
    fn clean_round(limit: &mut InFlightLimit) {
        let round = limit.round();
        for _ in 0..limit.current() {
            limit.record_clean(round);
        }
    }

    #[test]
    fn the_limit_starts_at_2_and_grows_by_one_after_each_clean_round_up_to_the_ceiling() {
        let mut limit = InFlightLimit::new(5);
        let mut seen = Vec::new();

        for _ in 0..6 {
            seen.push(limit.current());
            clean_round(&mut limit);
        }

        assert_eq!(seen, [2, 3, 4, 5, 5, 5]);
    }

    #[test]
    fn congestion_halves_the_limit_but_never_below_1() {
        let mut limit = InFlightLimit::new(16);
        for _ in 0..6 {
            clean_round(&mut limit);
        }
        let mut seen = vec![limit.current()];

        for _ in 0..4 {
            limit.record_congestion(limit.round());
            seen.push(limit.current());
        }

        assert_eq!(seen, [8, 4, 2, 1, 1]);
    }

    #[test]
    fn requests_that_fail_together_halve_the_limit_once() {
        let mut limit = InFlightLimit::new(16);
        for _ in 0..6 {
            clean_round(&mut limit);
        }
        let round = limit.round();

        for _ in 0..8 {
            limit.record_congestion(round);
        }

        assert_eq!(limit.current(), 4);
    }

    #[test]
    fn a_batch_from_before_the_limit_grew_still_halves_it() {
        let mut limit = InFlightLimit::new(16);
        let early = limit.round();
        for _ in 0..2 {
            clean_round(&mut limit);
        }
        assert_eq!(limit.current(), 4);

        limit.record_congestion(early);
        limit.record_congestion(early);

        assert_eq!(limit.current(), 2);
    }

    #[test]
    fn a_batch_from_before_a_halving_does_not_count_as_clean() {
        let mut limit = InFlightLimit::new(16);
        let before = limit.round();
        limit.record_congestion(before);

        limit.record_clean(before);
        assert_eq!(limit.current(), 1);

        limit.record_clean(limit.round());
        assert_eq!(limit.current(), 2);
    }

    #[test]
    fn a_ceiling_below_2_allows_one_batch() {
        for ceiling in [0, 1] {
            let mut limit = InFlightLimit::new(ceiling);
            clean_round(&mut limit);

            assert_eq!(limit.current(), 1);
        }
    }
}
