//! The queue of attempts: which one starts when, how long a retry waits, and when the clock moves. Does no I/O.

use std::collections::BTreeMap;

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

/// The most attempts that run at once. Each opens a socket, and many processes may have only 1,024 open files.
const MAX_RUNNING: usize = 64;

/// The most attempts that run at once for one endpoint. A slow endpoint does not block the others.
const MAX_RUNNING_PER_ENDPOINT: usize = 16;

/// The attempts that are pending or running.
///
/// Attempts start in the order of due time, then event, then endpoint. The order is the same on every run.
#[derive(Debug, Default)]
pub(in crate::mock) struct AttemptQueue {
    /// One queue for each endpoint, so that a busy endpoint's queue is skipped as a whole. No queue is empty.
    pending: BTreeMap<u64, EndpointQueue>,
    running: Vec<ScheduledAttempt>,
    open: OpenAttempts,
    /// The attempt that is held back at an endpoint, until it has been made.
    held_back: BTreeMap<u64, HeldBack>,
    next_serial: u64,
}

/// The pending attempts for one endpoint, by due time, event and serial number.
type EndpointQueue = BTreeMap<(i64, u64, u64), ScheduledAttempt>;

/// The place of a pending attempt in the order of all: due time, event, endpoint and serial number.
type OrderKey = (i64, u64, u64, u64);

impl AttemptQueue {
    /// Adds an attempt. Returns its serial number.
    pub(in crate::mock) fn add(
        &mut self,
        due: i64,
        event: u64,
        endpoint: u64,
        kind: AttemptKind,
    ) -> u64 {
        let serial = self.next_serial;
        self.next_serial += 1;
        self.insert(ScheduledAttempt {
            due,
            event,
            endpoint,
            kind,
            serial,
        });
        serial
    }

    /// Puts back an attempt that has just started. It is due when it is [released](Self::release), or at `due`.
    pub(in crate::mock) fn hold_back(&mut self, attempt: &ScheduledAttempt, due: i64) {
        self.finish(attempt);
        let ScheduledAttempt {
            event, endpoint, ..
        } = *attempt;
        let serial = self.add(due, event, endpoint, AttemptKind::HeldBack);
        let held_back = HeldBack {
            due,
            event,
            serial,
            is_released: false,
        };
        self.held_back.insert(endpoint, held_back);
    }

    /// Returns whether an attempt for an endpoint is held back, or was and is still open.
    pub(in crate::mock) fn holds_back(&self, endpoint: u64) -> bool {
        self.held_back.contains_key(&endpoint)
    }

    /// Makes the attempt that is held back at an endpoint due at `now`, if its event is earlier than `event`.
    pub(in crate::mock) fn release(&mut self, endpoint: u64, event: u64, now: i64) {
        let held = self.held_back.get(&endpoint).copied();
        let Some(held) = held.filter(|held| held.event < event) else {
            return;
        };
        // It is not pending if it is running already.
        let Some(mut attempt) = self.take_pending((held.due, held.event, endpoint, held.serial))
        else {
            return;
        };
        self.open.remove(&attempt);
        attempt.due = attempt.due.min(now);
        let released = HeldBack {
            due: attempt.due,
            is_released: true,
            ..held
        };
        self.held_back.insert(endpoint, released);
        self.insert(attempt);
    }

    /// Returns whether an attempt is open and due at `now` that was held back and then released.
    pub(in crate::mock) fn has_released(&self, now: i64) -> bool {
        let mut held_back = self.held_back.values();
        held_back.any(|held| held.is_released && held.due <= now)
    }

    /// Moves the first attempt that is due at `now` from pending to running, and returns it.
    ///
    /// Skips endpoints that are busy. With `one_at_a_time`, one running attempt makes an endpoint busy.
    fn start_due(&mut self, now: i64, one_at_a_time: bool) -> Option<ScheduledAttempt> {
        let key = self
            .first_pending(one_at_a_time)
            .filter(|(due, ..)| *due <= now)?;
        let attempt = self.take_pending(key)?;
        self.running.push(attempt.clone());
        Some(attempt)
    }

    /// Returns the earliest due time among the endpoints that are not busy.
    pub(in crate::mock) fn next_due(&self, one_at_a_time: bool) -> Option<i64> {
        self.first_pending(one_at_a_time).map(|(due, ..)| due)
    }

    /// Removes a running attempt. Returns `false` if it was no longer running.
    pub(in crate::mock) fn finish(&mut self, attempt: &ScheduledAttempt) -> bool {
        let before = self.running.len();
        self.running.retain(|other| other.serial != attempt.serial);
        let was_running = self.running.len() < before;
        if was_running {
            if attempt.kind == AttemptKind::HeldBack {
                self.held_back.remove(&attempt.endpoint);
            }
            self.open.remove(attempt);
        }
        was_running
    }

    /// Removes all pending attempts for an endpoint. Returns the event of each.
    pub(in crate::mock) fn remove_endpoint(&mut self, endpoint: u64) -> Vec<u64> {
        let removed = self.pending.remove(&endpoint).unwrap_or_default();
        self.held_back.remove(&endpoint);
        removed
            .into_values()
            .map(|attempt| {
                self.open.remove(&attempt);
                attempt.event
            })
            .collect()
    }

    /// Returns whether any attempt is running.
    fn has_running(&self) -> bool {
        !self.running.is_empty()
    }

    /// Returns whether an attempt of this event and kind is running, or pending and due at `now`.
    ///
    /// A pending attempt is not due if the clock was set back. It may never be made then.
    pub(in crate::mock) fn is_open(&self, event: u64, kind: AttemptKind, now: i64) -> bool {
        let mut running = self.running.iter();
        self.open.has_due_by(now, event, kind)
            || running.any(|attempt| attempt.event == event && attempt.kind == kind)
    }

    /// Returns whether an attempt that is due by `time` is pending or running.
    fn has_open_due_by(&self, time: i64) -> bool {
        let mut first_due = self
            .pending
            .values()
            .filter_map(|queue| queue.keys().next());

        first_due.any(|(due, ..)| *due <= time)
            || self.running.iter().any(|attempt| attempt.due <= time)
    }

    fn first_pending(&self, one_at_a_time: bool) -> Option<OrderKey> {
        self.pending
            .iter()
            .filter(|(endpoint, _)| !self.is_busy(**endpoint, one_at_a_time))
            .filter_map(|(endpoint, queue)| {
                let (due, event, serial) = queue.keys().next()?;
                Some((*due, *event, *endpoint, *serial))
            })
            .min()
    }

    fn take_pending(
        &mut self,
        (due, event, endpoint, serial): OrderKey,
    ) -> Option<ScheduledAttempt> {
        let queue = self.pending.get_mut(&endpoint)?;
        let attempt = queue.remove(&(due, event, serial));
        if queue.is_empty() {
            self.pending.remove(&endpoint);
        }
        attempt
    }

    fn insert(&mut self, attempt: ScheduledAttempt) {
        self.open.add(&attempt);
        let queue = self.pending.entry(attempt.endpoint).or_default();
        queue.insert((attempt.due, attempt.event, attempt.serial), attempt);
    }

    /// Returns whether an endpoint has to wait until a running attempt ends.
    fn is_busy(&self, endpoint: u64, one_at_a_time: bool) -> bool {
        let limit = if one_at_a_time {
            1
        } else {
            MAX_RUNNING_PER_ENDPOINT
        };
        let running = self
            .running
            .iter()
            .filter(|attempt| attempt.endpoint == endpoint)
            .count();

        self.running.len() >= MAX_RUNNING || running >= limit
    }
}

/// The number of attempts of each event, kind and due time that are pending or running. No count is 0.
#[derive(Debug, Default)]
struct OpenAttempts(BTreeMap<(u64, AttemptKind, i64), usize>);

impl OpenAttempts {
    /// Counts an attempt that is pending now.
    pub(super) fn add(&mut self, attempt: &ScheduledAttempt) {
        *self.0.entry(key(attempt)).or_default() += 1;
    }

    /// Stops counting an attempt.
    pub(super) fn remove(&mut self, attempt: &ScheduledAttempt) {
        let key = key(attempt);
        if let Some(count) = self.0.get_mut(&key) {
            *count -= 1;
            if *count == 0 {
                self.0.remove(&key);
            }
        }
    }

    /// Returns whether an attempt of this event and kind is open that is due by `time`.
    fn has_due_by(&self, time: i64, event: u64, kind: AttemptKind) -> bool {
        let due = (event, kind, i64::MIN)..=(event, kind, time);
        self.0.range(due).next().is_some()
    }
}

fn key(attempt: &ScheduledAttempt) -> (u64, AttemptKind, i64) {
    (attempt.event, attempt.kind, attempt.due)
}

/// An attempt to deliver one event to one endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::mock) struct ScheduledAttempt {
    /// When the attempt is due, in Unix seconds.
    pub(in crate::mock) due: i64,
    /// The number of the event. Events are numbered in the order they are published.
    pub(in crate::mock) event: u64,
    /// The number of the endpoint. Endpoints are numbered in the order they are added.
    pub(in crate::mock) endpoint: u64,
    pub(in crate::mock) kind: AttemptKind,
    /// Unique for each attempt.
    serial: u64,
}

/// The reason for an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::mock) enum AttemptKind {
    /// One of the ten automatic attempts, counted from 1.
    Automatic(u32),
    /// A redelivery on request. It is not retried.
    Redelivery,
    /// The first automatic attempt, made late because of a fault.
    HeldBack,
    /// A repeat after success, because of a fault. It is not retried.
    Duplicate,
}

/// An attempt that is held back, pending or running.
#[derive(Clone, Copy, Debug)]
pub(super) struct HeldBack {
    pub(super) due: i64,
    pub(super) event: u64,
    serial: u64,
    /// Whether it is due because a later event was attempted.
    is_released: bool,
}

/// Attempts for each event and endpoint: "ten attempts over about five hours".
const MAX_ATTEMPTS: u32 = 10;

/// Seconds from the first attempt to the second. Each later gap is twice as long: 17,885 s in all, or 4 h 58 min.
const FIRST_GAP: i64 = 35;

/// Returns the seconds from a failed attempt to the next one, or `None` after the last.
///
/// Attempts are counted from 1.
pub(in crate::mock) fn gap_after(attempt: u32) -> Option<i64> {
    (1..MAX_ATTEMPTS)
        .contains(&attempt)
        .then(|| FIRST_GAP << (attempt - 1))
}

#[cfg(test)]
mod tests {
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

    fn start_all(queue: &mut AttemptQueue, now: i64, one_at_a_time: bool) -> Vec<ScheduledAttempt> {
        std::iter::from_fn(|| queue.start_due(now, one_at_a_time)).collect()
    }

    #[test]
    fn a_busy_endpoint_blocks_only_itself_and_only_one_at_a_time() {
        let mut queue = AttemptQueue::default();
        queue.add(5, 1, 1, AttemptKind::Redelivery);
        queue.add(5, 2, 1, AttemptKind::Redelivery);
        queue.add(5, 3, 2, AttemptKind::Redelivery);

        let started: Vec<_> = start_all(&mut queue, 5, true)
            .iter()
            .map(|attempt| attempt.event)
            .collect();

        assert_eq!(started, [1, 3]);
        assert_eq!(
            queue.start_due(5, false).map(|attempt| attempt.event),
            Some(2)
        );
    }

    #[test]
    fn the_number_of_running_attempts_is_limited() {
        let mut queue = AttemptQueue::default();
        for event in 1..=100 {
            for endpoint in 1..=8 {
                queue.add(5, event, endpoint, AttemptKind::Automatic(1));
            }
        }

        let started = start_all(&mut queue, 9, false);

        assert_eq!(started.len(), MAX_RUNNING);
        // An overdue attempt waits for a running one to end, not for a time.
        assert_eq!(queue.next_due(false), None);
        assert!(queue.finish(&started[0]));
        assert!(queue.start_due(9, false).is_some());
        assert_eq!(queue.start_due(9, false), None);
        assert_eq!(queue.next_due(false), None);
    }

    #[test]
    fn a_slow_endpoint_does_not_use_up_the_limit_for_all() {
        let mut queue = AttemptQueue::default();
        for event in 1..=100 {
            queue.add(5, event, 1, AttemptKind::Automatic(1));
        }
        queue.add(5, 101, 2, AttemptKind::Automatic(1));
        queue.add(60, 101, 3, AttemptKind::Automatic(1));

        let started = start_all(&mut queue, 9, false);

        assert_eq!(started.len(), MAX_RUNNING_PER_ENDPOINT + 1);
        assert_eq!(started.last().map(|attempt| attempt.endpoint), Some(2));
        assert_eq!(queue.next_due(false), Some(60));
    }

    #[test]
    fn a_removed_endpoint_has_no_pending_attempts() {
        let mut queue = AttemptQueue::default();
        queue.add(5, 1, 1, AttemptKind::Redelivery);
        queue.add(5, 1, 2, AttemptKind::Redelivery);

        assert_eq!(queue.remove_endpoint(1), [1]);

        let endpoints: Vec<_> = start_all(&mut queue, 5, true)
            .iter()
            .map(|attempt| attempt.endpoint)
            .collect();
        assert_eq!(endpoints, [2]);
    }

    #[test]
    fn a_kind_of_attempt_is_open_until_the_last_endpoint_is_finished() {
        let mut queue = AttemptQueue::default();
        queue.add(5, 1, 1, AttemptKind::Redelivery);
        queue.add(5, 1, 2, AttemptKind::Redelivery);
        queue.add(5, 1, 2, AttemptKind::Automatic(1));
        let first = queue.start_due(5, true).unwrap();

        queue.finish(&first);
        assert!(queue.is_open(1, AttemptKind::Redelivery, 5));
        // Finishing an attempt twice counts once.
        assert!(!queue.finish(&first));
        assert!(queue.is_open(1, AttemptKind::Redelivery, 5));

        queue.remove_endpoint(2);
        assert!(!queue.is_open(1, AttemptKind::Redelivery, 5));
        assert!(!queue.is_open(1, AttemptKind::Automatic(1), 5));
    }

    #[test]
    fn a_pending_attempt_is_not_open_while_the_clock_shows_an_earlier_time() {
        let mut queue = AttemptQueue::default();
        queue.add(5, 1, 1, AttemptKind::Redelivery);
        queue.add(5, 2, 1, AttemptKind::Redelivery);

        let running = queue.start_due(5, true).unwrap();

        assert!(queue.is_open(1, AttemptKind::Redelivery, 4));
        assert!(!queue.is_open(2, AttemptKind::Redelivery, 4));
        queue.finish(&running);
        assert!(!queue.is_open(1, AttemptKind::Redelivery, 4));
        assert!(queue.is_open(2, AttemptKind::Redelivery, 5));
    }

    #[test]
    fn ten_attempts_take_about_five_hours() {
        let gaps: Vec<_> = (1..).map_while(gap_after).collect();

        assert_eq!(gaps, [35, 70, 140, 280, 560, 1_120, 2_240, 4_480, 8_960]);
        assert_eq!(gaps.iter().sum::<i64>(), 4 * 3_600 + 58 * 60 + 5);
    }
}
