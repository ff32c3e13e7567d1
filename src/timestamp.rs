use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use crate::system_time;

/// A moment in whole Unix seconds, as the service writes it (interface sections 2.1 and 6.2).
///
/// Any `i64` is a valid `Timestamp`. A value that the service sends is kept unchanged, even if no
/// calendar or operating system can represent it.
///
/// # Example: convert from and to `SystemTime`
///
/// ```
/// use std::time::{Duration, SystemTime};
/// use audience::Timestamp;
///
/// let joined = Timestamp::from_unix(1_700_000_000);
/// let moment = joined.to_system_time().expect("the platform can represent it");
///
/// assert_eq!(moment, SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000));
/// assert_eq!(Timestamp::from(moment), joined);
/// ```
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Timestamp(i64);

impl Timestamp {
    /// Creates the moment `seconds` after 1970-01-01T00:00:00Z, or before it if negative.
    #[must_use]
    pub const fn from_unix(seconds: i64) -> Self {
        Self(seconds)
    }

    /// Returns the current time of the system clock, rounded down to the second.
    #[must_use]
    pub fn now() -> Self {
        system_time::now().into()
    }

    /// Returns the seconds since 1970-01-01T00:00:00Z, negative for a moment before it.
    #[must_use]
    pub const fn as_unix(self) -> i64 {
        self.0
    }

    /// Converts to the standard library's type. Returns `None` if the platform cannot represent this
    /// moment.
    #[must_use]
    pub fn to_system_time(self) -> Option<SystemTime> {
        let distance = Duration::from_secs(self.0.unsigned_abs());
        if self.0 < 0 {
            UNIX_EPOCH.checked_sub(distance)
        } else {
            UNIX_EPOCH.checked_add(distance)
        }
    }
}

/// Writes the number of seconds, as in JSON.
impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl From<i64> for Timestamp {
    fn from(seconds: i64) -> Self {
        Self(seconds)
    }
}

/// Rounds down to the second. A moment out of the range of `i64` becomes the nearest one in range.
impl From<SystemTime> for Timestamp {
    fn from(moment: SystemTime) -> Self {
        let seconds = match moment.duration_since(UNIX_EPOCH) {
            Ok(after) => i64::try_from(after.as_secs()).unwrap_or(i64::MAX),
            Err(error) => {
                let before = error.duration();
                let whole = i64::try_from(before.as_secs()).unwrap_or(i64::MAX);
                if before.subsec_nanos() == 0 {
                    -whole
                } else {
                    (-whole).saturating_sub(1)
                }
            }
        };
        Self(seconds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_integer_converts_without_panicking() {
        for seconds in [i64::MIN, -1, 0, 1, 1_700_000_000, i64::MAX] {
            let timestamp = Timestamp::from_unix(seconds);

            let _ = timestamp.to_system_time();
            let json = serde_json::to_string(&timestamp).unwrap();

            assert_eq!(json, seconds.to_string());
            assert_eq!(serde_json::from_str::<Timestamp>(&json).unwrap(), timestamp);
        }
    }

    #[test]
    fn a_moment_before_the_epoch_rounds_down() {
        let moment = UNIX_EPOCH - Duration::from_millis(1_500);

        assert_eq!(Timestamp::from(moment).as_unix(), -2);
    }
}
