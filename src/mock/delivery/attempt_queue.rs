//! The delivery attempts that are pending or running.

use std::collections::BTreeMap;

use super::open_attempts::OpenAttempts;
use super::scheduled_attempt::{AttemptKind, HeldBack, ScheduledAttempt};

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
    pub(in crate::mock) fn start_due(
        &mut self,
        now: i64,
        one_at_a_time: bool,
    ) -> Option<ScheduledAttempt> {
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
    pub(in crate::mock) fn has_running(&self) -> bool {
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
    pub(in crate::mock) fn has_open_due_by(&self, time: i64) -> bool {
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

#[cfg(test)]
mod tests {
    use super::*;

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
}
