//! The one time that everything in a mock server lives in.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::Timestamp;

/// A handle on a [`MockServer`](super::MockServer)'s clock, so that other things can live in the same time.
///
/// Cheap to clone; every clone shows the same time. It is a [`webhooks::Clock`](crate::webhooks::Clock), so a receiver
/// under test judges the age of a delivery by the clock that the delivery was signed with.
///
/// # Example: a receiver in the mock's time
///
/// ```
/// # use audience::{mock::MockServer, webhooks::Verifier};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let server = MockServer::builder().clock(1_700_000_000).start().await;
///
/// let verifier = Verifier::builder().secret("2026", "a-secret-of-the-test").clock(server.clock()).build()?;
/// # let _ = verifier;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Clock(Arc<Shown>);

struct Shown {
    start: Start,
    time: Mutex<Time>,
}

/// How the clock was when its server was started, which is what a reset goes back to.
#[derive(Clone, Copy, Debug)]
enum Start {
    Standing(i64),
    Running,
}

#[derive(Clone, Copy, Debug)]
enum Time {
    Standing(i64),
    /// The system's clock and this many seconds.
    Running {
        ahead: i64,
    },
}

impl Clock {
    /// Stands still at `at` until it is moved.
    pub(super) fn standing(at: Timestamp) -> Self {
        Self::new(Start::Standing(at.as_unix()))
    }

    /// Shows the system's time, and whatever it was moved by.
    pub(super) fn running() -> Self {
        Self::new(Start::Running)
    }

    fn new(start: Start) -> Self {
        Self(Arc::new(Shown {
            start,
            time: Mutex::new(start.time()),
        }))
    }

    /// The current moment, in whole seconds.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        Timestamp::from_unix(self.unix())
    }

    pub(super) fn unix(&self) -> i64 {
        match self.time() {
            Time::Standing(at) => at,
            Time::Running { ahead } => Timestamp::now().as_unix().saturating_add(ahead),
        }
    }

    pub(super) fn is_standing(&self) -> bool {
        matches!(self.0.start, Start::Standing(_))
    }

    /// Makes `at` the current moment; a running clock goes on from there.
    pub(super) fn move_to(&self, at: i64) {
        self.put(match self.0.start {
            Start::Standing(_) => Time::Standing(at),
            Start::Running => Time::Running {
                ahead: at.saturating_sub(Timestamp::now().as_unix()),
            },
        });
    }

    /// Back to how it was started.
    pub(super) fn reset(&self) {
        self.put(self.0.start.time());
    }

    /// The real time until a running clock shows `at`, never less than nothing.
    pub(super) fn until(&self, at: i64) -> Duration {
        let whole = u64::try_from(at.saturating_sub(self.unix())).unwrap_or(0);
        let fraction = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |since| since.subsec_nanos());

        Duration::from_secs(whole).saturating_sub(Duration::from_nanos(fraction.into()))
    }

    fn time(&self) -> Time {
        *self.0.time.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put(&self, time: Time) {
        *self.0.time.lock().unwrap_or_else(PoisonError::into_inner) = time;
    }
}

impl Start {
    fn time(self) -> Time {
        match self {
            Self::Standing(at) => Time::Standing(at),
            Self::Running => Time::Running { ahead: 0 },
        }
    }
}

/// A moment that the operating system cannot name reads as the Unix epoch.
impl crate::webhooks::Clock for Clock {
    fn now(&self) -> SystemTime {
        Self::now(self).to_system_time().unwrap_or(UNIX_EPOCH)
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Clock").field(&self.time()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_standing_clock_moves_only_when_it_is_moved() {
        let clock = Clock::standing(Timestamp::from_unix(100));
        let other = clock.clone();

        clock.move_to(250);

        assert_eq!(other.unix(), 250);
        other.reset();
        assert_eq!(clock.unix(), 100);
    }

    #[test]
    fn a_running_clock_runs_on_from_where_it_was_moved_to() {
        let clock = Clock::running();

        clock.move_to(Timestamp::now().as_unix() + 3_600);

        let ahead = clock.unix() - Timestamp::now().as_unix();
        assert!((3_599..=3_600).contains(&ahead), "{ahead} s ahead");
        assert!(clock.until(clock.unix() + 10) <= Duration::from_secs(10));
        assert_eq!(clock.until(0), Duration::ZERO);
    }
}
