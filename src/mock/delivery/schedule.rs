//! Decides when to start an attempt and when to move the clock. Pure: the current time is an argument.

use super::attempt_queue::AttemptQueue;
use super::scheduled_attempt::ScheduledAttempt;

/// The next action of the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::mock) enum Step {
    /// Start this attempt, and call [`AttemptQueue::finish`] when it ends.
    Start(ScheduledAttempt),
    /// Set the clock to this time, and ask again.
    MoveClock(i64),
    /// Wait until something changes, or until the clock shows this time.
    Wait(Option<i64>),
}

/// The open attempts, and the time the clock is moving to.
#[derive(Debug, Default)]
pub(in crate::mock) struct Schedule {
    pub(in crate::mock) attempts: AttemptQueue,
    /// The time the clock is moving to. While it is set, only [`step`](Self::step) moves the clock.
    clock_target: Option<i64>,
}

impl Schedule {
    /// Moves the clock forward by `seconds`, counted from its destination. Returns the new destination.
    pub(in crate::mock) fn advance_clock(&mut self, now: i64, seconds: i64) -> i64 {
        let target = self.clock_destination(now).saturating_add(seconds);
        self.clock_target = Some(target);
        target
    }

    /// Moves the clock to `target` instead of any earlier destination.
    pub(in crate::mock) fn move_clock_to(&mut self, target: i64) {
        self.clock_target = Some(target);
    }

    /// Returns the time the clock is moving to, or `now` if it is not moving.
    pub(in crate::mock) fn clock_destination(&self, now: i64) -> i64 {
        // A running clock can pass its target while an attempt is running.
        self.clock_target.map_or(now, |target| target.max(now))
    }

    /// Stops the move of the clock.
    pub(in crate::mock) fn cancel_clock_move(&mut self) {
        self.clock_target = None;
    }

    /// Returns what to do at `now`. With `one_at_a_time`, each endpoint has at most one running attempt.
    ///
    /// `next_event` is when the next event will be published. The clock does not move past it.
    pub(in crate::mock) fn step(
        &mut self,
        now: i64,
        one_at_a_time: bool,
        next_event: Option<i64>,
    ) -> Step {
        if let Some(attempt) = self.attempts.start_due(now, one_at_a_time) {
            return Step::Start(attempt);
        }

        let next_attempt = self.attempts.next_due(one_at_a_time);
        let next_due = next_attempt.into_iter().chain(next_event).min();
        let Some(target) = self.clock_target else {
            return Step::Wait(next_due);
        };
        // A running attempt may fail, and its retry may be due before the target.
        if self.attempts.has_running() {
            return Step::Wait(next_due);
        }
        match next_due.filter(|due| *due <= target) {
            Some(due) => Step::MoveClock(due),
            None => {
                self.clock_target = None;
                if target > now {
                    Step::MoveClock(target)
                } else {
                    Step::Wait(next_due)
                }
            }
        }
    }

    /// Returns whether the clock has reached `time` and no attempt that was due by then is open.
    ///
    /// A clock that is not moving counts as having reached any time.
    pub(in crate::mock) fn has_reached(&self, time: i64, now: i64) -> bool {
        let arrived = now >= time || self.clock_target.is_none();
        arrived && !self.attempts.has_open_due_by(time)
    }
}

#[cfg(test)]
mod tests {
    use super::super::backoff::gap_after;
    use super::super::scheduled_attempt::AttemptKind;
    use super::*;

    /// Moves the clock to its target. Every attempt fails. Returns when each attempt was made, and the final time.
    fn run(schedule: &mut Schedule, mut now: i64) -> (Vec<(i64, u64, u64)>, i64) {
        let mut made = Vec::new();
        loop {
            match schedule.step(now, true, None) {
                Step::Start(attempt) => {
                    made.push((now, attempt.event, attempt.endpoint));
                    schedule.attempts.finish(&attempt);
                    if let AttemptKind::Automatic(number) = attempt.kind
                        && let Some(gap) = gap_after(number)
                    {
                        let kind = AttemptKind::Automatic(number + 1);
                        schedule
                            .attempts
                            .add(now + gap, attempt.event, attempt.endpoint, kind);
                    }
                }
                Step::MoveClock(to) => now = to,
                Step::Wait(_) => return (made, now),
            }
        }
    }

    #[test]
    fn every_attempt_on_the_way_is_made_at_its_due_time() {
        let mut schedule = Schedule::default();
        schedule
            .attempts
            .add(1_000, 1, 1, AttemptKind::Automatic(1));

        schedule.advance_clock(1_000, 500);
        let (made, now) = run(&mut schedule, 1_000);

        assert_eq!(
            made,
            [(1_000, 1, 1), (1_035, 1, 1), (1_105, 1, 1), (1_245, 1, 1)]
        );
        assert_eq!(now, 1_500);
    }

    #[test]
    fn attempts_due_at_the_same_time_run_by_event_then_endpoint() {
        let mut schedule = Schedule::default();
        for (event, endpoint) in [(2, 1), (1, 2), (2, 2), (1, 1)] {
            schedule
                .attempts
                .add(1_000, event, endpoint, AttemptKind::Redelivery);
        }

        let (made, _) = run(&mut schedule, 1_000);

        assert_eq!(
            made,
            [(1_000, 1, 1), (1_000, 1, 2), (1_000, 2, 1), (1_000, 2, 2)]
        );
    }

    #[test]
    fn the_clock_waits_for_running_attempts() {
        let mut schedule = Schedule::default();
        schedule.attempts.add(1_000, 1, 1, AttemptKind::Redelivery);
        let Step::Start(attempt) = schedule.step(1_000, true, None) else {
            panic!("the attempt is due");
        };

        schedule.advance_clock(1_000, 60);

        assert_eq!(schedule.step(1_000, true, None), Step::Wait(None));
        assert!(!schedule.has_reached(1_060, 1_000));
        assert!(schedule.attempts.finish(&attempt));
        assert_eq!(schedule.step(1_000, true, None), Step::MoveClock(1_060));
        assert!(schedule.has_reached(1_060, 1_060));
    }

    #[test]
    fn a_second_advance_starts_where_the_first_ends() {
        let mut schedule = Schedule::default();
        schedule.attempts.add(1_010, 1, 1, AttemptKind::Redelivery);

        assert_eq!(schedule.advance_clock(1_000, 60), 1_060);
        assert_eq!(schedule.advance_clock(1_000, 40), 1_100);
        let (made, now) = run(&mut schedule, 1_000);

        assert_eq!((made.len(), now), (1, 1_100));
    }

    #[test]
    fn the_clock_stops_where_the_next_event_is_published() {
        let mut schedule = Schedule::default();
        schedule.attempts.add(1_090, 1, 1, AttemptKind::Redelivery);
        schedule.advance_clock(1_000, 60);

        assert_eq!(
            schedule.step(1_000, true, Some(1_020)),
            Step::MoveClock(1_020)
        );
        assert_eq!(
            schedule.step(1_020, true, Some(1_070)),
            Step::MoveClock(1_060)
        );
        assert_eq!(
            schedule.step(1_060, true, Some(1_070)),
            Step::Wait(Some(1_070))
        );
        assert_eq!(schedule.step(1_060, true, None), Step::Wait(Some(1_090)));
    }

    #[test]
    fn an_advance_beyond_the_last_representable_time_stops_there() {
        let mut schedule = Schedule::default();

        assert_eq!(schedule.advance_clock(i64::MAX - 1, 60), i64::MAX);
    }
}
