use std::fmt;
use std::str::FromStr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use super::error::TimestampError;
use super::text;
use crate::system_time;

/// A moment in whole Unix seconds, as the service writes it (interface sections 2.1 and 6.2).
///
/// Any `i64` is a valid `Timestamp`. A value that the service sends is kept unchanged, even if no
/// calendar or operating system can represent it. In JSON it is the number of seconds; its text, by
/// `Display` and `FromStr`, is that of RFC 3339.
///
/// The features `jiff`, `chrono` and `time` add conversions from and to the types of those crates.
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
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
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

/// Writes the moment in UTC as RFC 3339, for example `2023-11-14T22:13:20Z`.
///
/// A year before 0 or after 9999 has a sign and at least six digits, for example
/// `+012345-01-01T00:00:00Z`. RFC 3339 has no such years; ISO 8601 and JavaScript write them so.
///
/// [`as_unix`](Timestamp::as_unix) returns the number of seconds.
///
/// # Example: to text and back
///
/// ```
/// use audience::Timestamp;
///
/// let joined = Timestamp::from_unix(1_700_000_000);
///
/// assert_eq!(joined.to_string(), "2023-11-14T22:13:20Z");
/// assert_eq!("2023-11-14T22:13:20Z".parse(), Ok(joined));
/// ```
impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&text::format(self.0))
    }
}

/// Writes the number of seconds and the same moment as text.
impl fmt::Debug for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Timestamp({}, {self})", self.0)
    }
}

/// Reads what `Display` writes, and every other RFC 3339 time: with an offset such as `+01:00`, and with
/// a fraction of a second, which is rounded down. The leap second `:60` counts as `:59`.
///
/// Fails with a [`TimestampError`] if the text has another form, if there is no such date or time, or if the
/// moment is out of the range of `i64`.
impl FromStr for Timestamp {
    type Err = TimestampError;

    fn from_str(text: &str) -> Result<Self, TimestampError> {
        text::parse(text).map(Self)
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
            assert_eq!(timestamp.to_string().parse(), Ok(timestamp));
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

    #[test]
    fn the_text_is_padded_and_the_debug_form_has_the_seconds_too() {
        let moment = Timestamp::from_unix(1_700_000_000);

        assert_eq!(format!("{moment:>22}|"), "  2023-11-14T22:13:20Z|");
        assert_eq!(
            format!("{moment:?} {moment:#?}"),
            "Timestamp(1700000000, 2023-11-14T22:13:20Z) Timestamp(1700000000, 2023-11-14T22:13:20Z)"
        );
    }
}
