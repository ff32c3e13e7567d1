//! When which delivery is attempted: a pure decision over a clock that is handed in.

use std::collections::BTreeMap;

/// How often an event is attempted at one endpoint: "ten attempts over about five hours" (interface section 6.5).
pub(in crate::mock) const ATTEMPTS: u32 = 10;

/// Seconds between the first attempt and the second; each gap after it is twice as long. In all 17,885 s: 4 h 58 min.
const FIRST_GAP: i64 = 35;

/// Attempts under way at once. Each has a socket of its own, and a process is often granted no more than 1,024.
const AT_ONCE: usize = 64;

/// Of these, at one endpoint, so that a slow one holds up no other.
const AT_ONCE_EACH: usize = 16;

/// Seconds from a failed attempt to the one after it, or `None` where it was the last.
pub(in crate::mock) fn gap(attempt: u32) -> Option<i64> {
    (1..ATTEMPTS)
        .contains(&attempt)
        .then(|| FIRST_GAP << (attempt - 1))
}

/// One attempt that is to be made, or is being made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::mock) struct Delivery {
    pub(in crate::mock) due: i64,
    /// Numbers of the event and the endpoint, each in the order they came into being.
    pub(in crate::mock) event: u64,
    pub(in crate::mock) endpoint: u64,
    pub(in crate::mock) round: Round,
    serial: u64,
}

/// Why an attempt is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::mock) enum Round {
    /// This attempt of the ten.
    Scheduled(u32),
    /// Somebody asked for the event once more. A failure has no consequence.
    Once,
}

/// What is to be done next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::mock) enum Step {
    /// Make this attempt, and call [`Schedule::finish`] when it is over.
    Start(Delivery),
    /// Move the clock, and ask again.
    Move(i64),
    /// Nothing until something changes, or the clock shows this time.
    Wait(Option<i64>),
}

/// Attempts to come, attempts under way, and where the clock is on its way to.
///
/// Attempts fall due in the order of time, then event, then endpoint: the same on every run.
#[derive(Debug, Default)]
pub(in crate::mock) struct Schedule {
    /// By endpoint, so that what waits for a busy one need not be looked through. No queue is empty.
    pending: BTreeMap<u64, Queue>,
    under_way: Vec<Delivery>,
    /// How many of each event and round are pending or under way. No count is 0.
    open: BTreeMap<(u64, Round), usize>,
    /// Where the clock is to end up; nobody moves it but [`step`](Self::step) as long as this is set.
    target: Option<i64>,
    serial: u64,
}

/// What is to go to one endpoint, by due time, event and serial number.
type Queue = BTreeMap<(i64, u64, u64), Delivery>;

impl Schedule {
    pub(in crate::mock) fn add(&mut self, due: i64, event: u64, endpoint: u64, round: Round) {
        let delivery = Delivery {
            due,
            event,
            endpoint,
            round,
            serial: self.serial,
        };
        self.pending
            .entry(endpoint)
            .or_default()
            .insert((due, event, self.serial), delivery);
        *self.open.entry((event, round)).or_default() += 1;
        self.serial += 1;
    }

    /// Lets the clock go on by `seconds` from where it is, or is already going to. Returns where to.
    pub(in crate::mock) fn advance(&mut self, now: i64, seconds: i64) -> i64 {
        let target = self.destination(now).saturating_add(seconds);
        self.target = Some(target);
        target
    }

    /// Lets the clock go to `target`, wherever it was going to.
    pub(in crate::mock) fn head_for(&mut self, target: i64) {
        self.target = Some(target);
    }

    /// Where the clock is, or is going to.
    pub(in crate::mock) fn destination(&self, now: i64) -> i64 {
        // A running clock passes its target while an attempt is under way.
        self.target.map_or(now, |target| target.max(now))
    }

    /// Drops an advance that is under way.
    pub(in crate::mock) fn halt(&mut self) {
        self.target = None;
    }

    /// What to do at `now`. With `in_turn`, an endpoint is sent one thing after the other; without, a few at once.
    pub(in crate::mock) fn step(&mut self, now: i64, in_turn: bool) -> Step {
        let next = self.next(in_turn);
        if let Some(delivery) = next
            .filter(|(due, ..)| *due <= now)
            .and_then(|key| self.take(key))
        {
            self.under_way.push(delivery.clone());
            return Step::Start(delivery);
        }

        let next = next.map(|(due, ..)| due);
        let Some(target) = self.target else {
            return Step::Wait(next);
        };
        // What is under way may yet fail and fall due again before the target.
        if !self.under_way.is_empty() {
            return Step::Wait(next);
        }
        match next.filter(|due| *due <= target) {
            Some(due) => Step::Move(due),
            None => {
                self.target = None;
                if target > now {
                    Step::Move(target)
                } else {
                    Step::Wait(next)
                }
            }
        }
    }

    /// The attempt is over. Returns whether it was still wanted.
    pub(in crate::mock) fn finish(&mut self, delivery: &Delivery) -> bool {
        let before = self.under_way.len();
        self.under_way
            .retain(|other| other.serial != delivery.serial);
        let wanted = self.under_way.len() < before;
        if wanted {
            self.close(delivery.event, delivery.round);
        }
        wanted
    }

    /// Forgets everything that was to go to `endpoint`; says for which events.
    pub(in crate::mock) fn forget(&mut self, endpoint: u64) -> Vec<u64> {
        let forgotten = self.pending.remove(&endpoint).unwrap_or_default();
        forgotten
            .into_values()
            .map(|delivery| {
                self.close(delivery.event, delivery.round);
                delivery.event
            })
            .collect()
    }

    /// Whether everything that was due by `until` has been attempted, and no advance is still on its way there.
    pub(in crate::mock) fn is_settled(&self, until: i64, now: i64) -> bool {
        let mut firsts = self
            .pending
            .values()
            .filter_map(|queue| queue.keys().next());
        let quiet = firsts.all(|(due, ..)| *due > until)
            && self.under_way.iter().all(|delivery| delivery.due > until);

        quiet && (now >= until || self.target.is_none())
    }

    /// Whether an attempt of this event and this round is still to be made or under way.
    pub(in crate::mock) fn is_open(&self, event: u64, round: Round) -> bool {
        self.open.contains_key(&(event, round))
    }

    /// Due time, event, endpoint and serial number of the first attempt whose endpoint can take it.
    fn next(&self, in_turn: bool) -> Option<(i64, u64, u64, u64)> {
        self.pending
            .iter()
            .filter(|(endpoint, _)| !self.is_busy(**endpoint, in_turn))
            .filter_map(|(endpoint, queue)| {
                let (due, event, serial) = queue.keys().next()?;
                Some((*due, *event, *endpoint, *serial))
            })
            .min()
    }

    fn take(&mut self, (due, event, endpoint, serial): (i64, u64, u64, u64)) -> Option<Delivery> {
        let queue = self.pending.get_mut(&endpoint)?;
        let delivery = queue.remove(&(due, event, serial));
        if queue.is_empty() {
            self.pending.remove(&endpoint);
        }
        delivery
    }

    fn close(&mut self, event: u64, round: Round) {
        if let Some(count) = self.open.get_mut(&(event, round)) {
            *count -= 1;
            if *count == 0 {
                self.open.remove(&(event, round));
            }
        }
    }

    /// Whether an endpoint has to wait for an attempt to end. A finish is what it waits for, not a time.
    fn is_busy(&self, endpoint: u64, in_turn: bool) -> bool {
        let there = self
            .under_way
            .iter()
            .filter(|delivery| delivery.endpoint == endpoint)
            .count();

        self.under_way.len() >= AT_ONCE || there >= if in_turn { 1 } else { AT_ONCE_EACH }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs the clock to the target, every attempt failing; says when each was made.
    fn run(schedule: &mut Schedule, mut now: i64) -> (Vec<(i64, u64, u64)>, i64) {
        let mut made = Vec::new();
        loop {
            match schedule.step(now, true) {
                Step::Start(delivery) => {
                    made.push((now, delivery.event, delivery.endpoint));
                    schedule.finish(&delivery);
                    if let Round::Scheduled(attempt) = delivery.round
                        && let Some(gap) = gap(attempt)
                    {
                        let round = Round::Scheduled(attempt + 1);
                        schedule.add(now + gap, delivery.event, delivery.endpoint, round);
                    }
                }
                Step::Move(to) => now = to,
                Step::Wait(_) => return (made, now),
            }
        }
    }

    #[test]
    fn ten_attempts_take_about_five_hours() {
        let gaps: Vec<_> = (1..).map_while(gap).collect();

        assert_eq!(gaps, [35, 70, 140, 280, 560, 1_120, 2_240, 4_480, 8_960]);
        assert_eq!(gaps.iter().sum::<i64>(), 4 * 3_600 + 58 * 60 + 5);
    }

    #[test]
    fn everything_due_on_the_way_is_attempted_at_its_own_time() {
        let mut schedule = Schedule::default();
        schedule.add(1_000, 1, 1, Round::Scheduled(1));

        schedule.advance(1_000, 500);
        let (made, now) = run(&mut schedule, 1_000);

        assert_eq!(
            made,
            [(1_000, 1, 1), (1_035, 1, 1), (1_105, 1, 1), (1_245, 1, 1)]
        );
        assert_eq!(now, 1_500);
    }

    #[test]
    fn what_falls_due_together_goes_by_event_then_endpoint() {
        let mut schedule = Schedule::default();
        for (event, endpoint) in [(2, 1), (1, 2), (2, 2), (1, 1)] {
            schedule.add(1_000, event, endpoint, Round::Once);
        }

        let (made, _) = run(&mut schedule, 1_000);

        assert_eq!(
            made,
            [(1_000, 1, 1), (1_000, 1, 2), (1_000, 2, 1), (1_000, 2, 2)]
        );
    }

    #[test]
    fn the_clock_waits_for_what_is_under_way() {
        let mut schedule = Schedule::default();
        schedule.add(1_000, 1, 1, Round::Once);
        let Step::Start(delivery) = schedule.step(1_000, true) else {
            panic!("due at once");
        };

        schedule.advance(1_000, 60);

        assert_eq!(schedule.step(1_000, true), Step::Wait(None));
        assert!(!schedule.is_settled(1_060, 1_000));
        assert!(schedule.finish(&delivery));
        assert_eq!(schedule.step(1_000, true), Step::Move(1_060));
        assert!(schedule.is_settled(1_060, 1_060));
    }

    #[test]
    fn a_busy_endpoint_holds_up_itself_alone_and_only_in_turn() {
        let mut schedule = Schedule::default();
        schedule.add(5, 1, 1, Round::Once);
        schedule.add(5, 2, 1, Round::Once);
        schedule.add(5, 3, 2, Round::Once);

        let started: Vec<_> = std::iter::from_fn(|| match schedule.step(5, true) {
            Step::Start(delivery) => Some(delivery.event),
            _ => None,
        })
        .collect();

        assert_eq!(started, [1, 3]);
        assert!(matches!(
            schedule.step(5, false),
            Step::Start(Delivery { event: 2, .. })
        ));
    }

    #[test]
    fn only_so_many_attempts_are_under_way_at_once() {
        let mut schedule = Schedule::default();
        for event in 1..=100 {
            for endpoint in 1..=8 {
                schedule.add(5, event, endpoint, Round::Scheduled(1));
            }
        }
        let mut start = || match schedule.step(9, false) {
            Step::Start(delivery) => Ok(delivery),
            step => Err(step),
        };

        let started: Vec<_> = std::iter::from_fn(|| start().ok()).collect();

        assert_eq!(started.len(), AT_ONCE);
        // What is overdue is not a time to wait for.
        assert_eq!(start(), Err(Step::Wait(None)));
        assert!(schedule.finish(&started[0]));
        assert!(matches!(schedule.step(9, false), Step::Start(_)));
        assert_eq!(schedule.step(9, false), Step::Wait(None));
    }

    #[test]
    fn a_slow_endpoint_does_not_take_every_place() {
        let mut schedule = Schedule::default();
        for event in 1..=100 {
            schedule.add(5, event, 1, Round::Scheduled(1));
        }
        schedule.add(5, 101, 2, Round::Scheduled(1));
        schedule.add(60, 101, 3, Round::Scheduled(1));

        let started: Vec<_> = std::iter::from_fn(|| match schedule.step(9, false) {
            Step::Start(delivery) => Some(delivery.endpoint),
            _ => None,
        })
        .collect();

        assert_eq!(started.len(), AT_ONCE_EACH + 1);
        assert_eq!(started.last(), Some(&2));
        assert_eq!(schedule.step(9, false), Step::Wait(Some(60)));
    }

    #[test]
    fn a_second_advance_starts_where_the_first_will_end() {
        let mut schedule = Schedule::default();
        schedule.add(1_010, 1, 1, Round::Once);

        assert_eq!(schedule.advance(1_000, 60), 1_060);
        assert_eq!(schedule.advance(1_000, 40), 1_100);
        let (made, now) = run(&mut schedule, 1_000);

        assert_eq!((made.len(), now), (1, 1_100));
    }

    #[test]
    fn a_forgotten_endpoint_is_sent_nothing_more() {
        let mut schedule = Schedule::default();
        schedule.add(5, 1, 1, Round::Once);
        schedule.add(5, 1, 2, Round::Once);

        assert_eq!(schedule.forget(1), [1]);

        assert_eq!(run(&mut schedule, 5).0, [(5, 1, 2)]);
    }

    #[test]
    fn an_attempt_is_open_until_the_last_endpoint_has_had_it() {
        let mut schedule = Schedule::default();
        schedule.add(5, 1, 1, Round::Once);
        schedule.add(5, 1, 2, Round::Once);
        schedule.add(5, 1, 2, Round::Scheduled(1));
        let Step::Start(first) = schedule.step(5, true) else {
            panic!("due at once");
        };

        schedule.finish(&first);
        assert!(schedule.is_open(1, Round::Once));
        // Twice over counts once.
        assert!(!schedule.finish(&first));
        assert!(schedule.is_open(1, Round::Once));

        schedule.forget(2);
        assert!(!schedule.is_open(1, Round::Once));
        assert!(!schedule.is_open(1, Round::Scheduled(1)));
    }

    #[test]
    fn the_end_of_time_is_not_overrun() {
        let mut schedule = Schedule::default();

        assert_eq!(schedule.advance(i64::MAX - 1, 60), i64::MAX);
    }
}
