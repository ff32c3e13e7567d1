//! The clock of a mock server.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::Timestamp;

/// A handle to the clock of a [`MockServer`](super::MockServer).
///
/// Clones are cheap and show the same time. It implements [`webhooks::Clock`](crate::webhooks::Clock): pass it to the
/// [`Verifier`](crate::webhooks::Verifier) of a receiver under test, so that the receiver checks the age of a delivery
/// against the clock that signed it.
///
/// # Example: a receiver that uses the mock's clock
///
/// ```
/// # use std::time::Duration;
/// # use audience::{mock::MockServer, webhooks::Verifier};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let server = MockServer::builder().clock(1_700_000_000).start().await;
/// let clock = server.clock();
///
/// let verifier = Verifier::builder().secret("2026", "a-secret-of-the-test").clock(clock.clone()).build()?;
/// server.advance(Duration::from_secs(60)).await;
///
/// assert_eq!(clock.now().as_unix(), 1_700_000_060);
/// # let _ = verifier;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct MockClock(Arc<Inner>);

struct Inner {
    /// The reading the clock started with. A reset restores it.
    initial: Reading,
    current: Mutex<Reading>,
}

#[derive(Clone, Copy, Debug)]
enum Reading {
    /// Always this time.
    Stopped(i64),
    /// The system's time plus this many seconds.
    Running { offset: i64 },
}

impl MockClock {
    /// Creates a clock that shows `at` until it is moved.
    pub(super) fn stopped(at: Timestamp) -> Self {
        Self::new(Reading::Stopped(at.as_unix()))
    }

    /// Creates a clock that shows the system's time until it is moved, and then continues from there.
    pub(super) fn running() -> Self {
        Self::new(Reading::Running { offset: 0 })
    }

    fn new(initial: Reading) -> Self {
        Self(Arc::new(Inner {
            initial,
            current: Mutex::new(initial),
        }))
    }

    /// Returns the current time, in whole seconds.
    ///
    /// # Example: code that takes a clock
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use audience::{Timestamp, mock::{MockClock, MockServer}};
    /// fn is_over(clock: &MockClock, deadline: Timestamp) -> bool {
    ///     clock.now() > deadline
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let server = MockServer::builder().clock(1_700_000_000).start().await;
    /// let deadline = Timestamp::from_unix(1_700_000_060);
    /// assert!(!is_over(&server.clock(), deadline));
    ///
    /// server.advance(Duration::from_secs(61)).await;
    /// assert!(is_over(&server.clock(), deadline));
    /// # }
    /// ```
    #[must_use]
    pub fn now(&self) -> Timestamp {
        Timestamp::from_unix(self.unix())
    }

    pub(super) fn unix(&self) -> i64 {
        match self.reading() {
            Reading::Stopped(at) => at,
            Reading::Running { offset } => Timestamp::now().as_unix().saturating_add(offset),
        }
    }

    pub(super) fn is_stopped(&self) -> bool {
        matches!(self.0.initial, Reading::Stopped(_))
    }

    /// Sets the current time. A running clock continues from there.
    pub(super) fn move_to(&self, at: i64) {
        self.set_reading(match self.0.initial {
            Reading::Stopped(_) => Reading::Stopped(at),
            Reading::Running { .. } => Reading::Running {
                offset: at.saturating_sub(Timestamp::now().as_unix()),
            },
        });
    }

    /// Restores the reading the clock started with.
    pub(super) fn reset(&self) {
        self.set_reading(self.0.initial);
    }

    /// Returns the real time until a running clock shows `at`. Zero if it already does.
    pub(super) fn time_until(&self, at: i64) -> Duration {
        let whole = u64::try_from(at.saturating_sub(self.unix())).unwrap_or(0);
        // A part of the current second has already passed, and `unix` does not show it.
        let fraction = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |since| since.subsec_nanos());

        Duration::from_secs(whole).saturating_sub(Duration::from_nanos(fraction.into()))
    }

    fn reading(&self) -> Reading {
        *self
            .0
            .current
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn set_reading(&self, reading: Reading) {
        *self
            .0
            .current
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = reading;
    }
}

/// Returns the Unix epoch for a time that [`SystemTime`] cannot represent.
impl crate::webhooks::Clock for MockClock {
    fn now(&self) -> SystemTime {
        Self::now(self).try_into().unwrap_or(UNIX_EPOCH)
    }
}

impl fmt::Debug for MockClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("MockClock").field(&self.reading()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stopped_clock_changes_only_when_it_is_moved() {
        let clock = MockClock::stopped(Timestamp::from_unix(100));
        let clone = clock.clone();

        clock.move_to(250);

        assert_eq!(clone.unix(), 250);
        clone.reset();
        assert_eq!(clock.unix(), 100);
    }

    #[test]
    fn a_running_clock_runs_on_from_where_it_was_moved_to() {
        let clock = MockClock::running();

        let before = Timestamp::now().as_unix();
        clock.move_to(before + 3_600);

        let moved = clock.unix() - 3_600;
        // A busy machine may need seconds to read one clock after the other.
        let after = Timestamp::now().as_unix();
        assert!(
            (before - 1..=after).contains(&moved),
            "{before} {moved} {after}"
        );
        let left = clock.time_until(clock.unix() + 100);
        assert!((Duration::from_secs(60)..=Duration::from_secs(100)).contains(&left));
        assert_eq!(clock.time_until(0), Duration::ZERO);
    }
}
