use std::error::Error as StdError;
use std::fmt;
use std::ops::{Add, Sub};
use std::str::FromStr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use chrono::{DateTime, Datelike, SecondsFormat};
use serde::{Deserialize, Serialize};

/// A moment in whole Unix seconds, as the service writes it (interface sections [2.1](crate::interface#2.1) and
/// [6.2](crate::interface#6.2)).
///
/// Any `i64` is a valid `Timestamp`. A value that the service sends is kept unchanged, even if no
/// calendar or operating system can represent it. Only a contact that was created after the year 5138 is malformed: its
/// time is in milliseconds. In JSON, a `Timestamp` is the number of seconds. As text, it has the form of
/// RFC 3339: `Display` writes it, and `FromStr` reads it.
///
/// # Other crates
///
/// - jiff: `jiff::Timestamp::from_second(timestamp.as_unix())`, and `Timestamp::from_unix(moment.as_second())`.
/// - chrono: `chrono::DateTime::from_timestamp(timestamp.as_unix(), 0)`, and
///   `Timestamp::from_unix(moment.timestamp())`.
/// - time: `time::OffsetDateTime::from_unix_timestamp(timestamp.as_unix())`, and
///   `Timestamp::from_unix(moment.unix_timestamp())`.
///
/// # Example: convert from and to `SystemTime`
///
/// ```
/// use std::time::{Duration, SystemTime};
/// use audience::Timestamp;
///
/// let joined = Timestamp::from_unix(1_700_000_000);
/// let moment = SystemTime::try_from(joined)?;
///
/// assert_eq!(moment, SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000));
/// assert_eq!(Timestamp::from(moment), joined);
/// # Ok::<(), audience::TimestampError>(())
/// ```
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Timestamp(i64);

impl Timestamp {
    /// Creates the moment `seconds` after 1970-01-01T00:00:00Z, or before it if negative.
    ///
    /// # Example: a constant moment
    ///
    /// ```
    /// use audience::Timestamp;
    ///
    /// const LAUNCH: Timestamp = Timestamp::from_unix(1_700_000_000);
    ///
    /// assert_eq!(LAUNCH.to_string(), "2023-11-14T22:13:20Z");
    /// ```
    #[must_use]
    pub const fn from_unix(seconds: i64) -> Self {
        Self(seconds)
    }

    /// Returns the current time of the system clock, rounded down to the second.
    ///
    /// # Example: the moment a week ago
    ///
    /// ```
    /// use std::time::Duration;
    /// use audience::Timestamp;
    ///
    /// let a_week_ago = Timestamp::now() - Duration::from_secs(7 * 86_400);
    ///
    /// assert!(a_week_ago < Timestamp::now());
    /// ```
    #[must_use]
    pub fn now() -> Self {
        system_time().into()
    }

    /// Returns the seconds since 1970-01-01T00:00:00Z, negative for a moment before it.
    ///
    /// # Example: a column of Unix seconds
    ///
    /// ```
    /// use audience::Timestamp;
    ///
    /// let joined: Timestamp = "2023-11-14T23:13:20+01:00".parse()?;
    ///
    /// assert_eq!(joined.as_unix(), 1_700_000_000);
    /// # Ok::<(), audience::TimestampError>(())
    /// ```
    #[must_use]
    pub const fn as_unix(self) -> i64 {
        self.0
    }

    /// Returns the time from an earlier moment to this one. Zero if the other moment is later than this one.
    ///
    /// # Example: the age of a contact
    ///
    /// ```
    /// use std::time::Duration;
    /// use audience::Timestamp;
    ///
    /// let created_at = Timestamp::from_unix(1_700_000_000);
    ///
    /// let is_new = Timestamp::now().duration_since(created_at) < Duration::from_secs(7 * 86_400);
    /// # assert!(!is_new);
    /// ```
    #[must_use]
    pub const fn duration_since(self, earlier: Self) -> Duration {
        let (later, earlier) = (self.as_unix(), earlier.as_unix());
        if later < earlier {
            return Duration::ZERO;
        }
        Duration::from_secs(later.abs_diff(earlier))
    }
}

/// Writes the moment in UTC as RFC 3339, for example `2023-11-14T22:13:20Z`.
///
/// RFC 3339 has only the years 0 to 9999. A moment in any other year is written as its number of seconds.
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
        match DateTime::from_timestamp(self.0, 0) {
            Some(moment) if (0..=9_999).contains(&moment.year()) => {
                f.pad(&moment.to_rfc3339_opts(SecondsFormat::Secs, true))
            }
            _ => f.pad(&self.0.to_string()),
        }
    }
}

/// Writes the number of seconds and the same moment as text.
impl fmt::Debug for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Timestamp({}, {self})", self.0)
    }
}

/// Reads any RFC 3339 time: with an offset such as `+01:00`, and with a fraction of a second, which is rounded
/// down. The leap second `:60` counts as `:59`.
///
/// Fails with a [`TimestampError`] if the text has another form, or if there is no such date or time.
impl FromStr for Timestamp {
    type Err = TimestampError;

    fn from_str(text: &str) -> Result<Self, TimestampError> {
        let moment =
            DateTime::parse_from_rfc3339(text).map_err(|_| TimestampError::NOT_RFC_3339)?;
        Ok(Self(moment.timestamp()))
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
        match moment.duration_since(UNIX_EPOCH) {
            Ok(after) => Self(0) + after,
            Err(error) => Self(0) - error.duration(),
        }
    }
}

/// Fails with a [`TimestampError`] if the platform cannot represent the moment.
impl TryFrom<Timestamp> for SystemTime {
    type Error = TimestampError;

    fn try_from(timestamp: Timestamp) -> Result<Self, TimestampError> {
        let distance = Duration::from_secs(timestamp.0.unsigned_abs());
        let moment = if timestamp.0 < 0 {
            UNIX_EPOCH.checked_sub(distance)
        } else {
            UNIX_EPOCH.checked_add(distance)
        };
        moment.ok_or(TimestampError::OUT_OF_RANGE)
    }
}

/// Returns the moment this much later, rounded down to the second. A moment out of the range of `i64`
/// becomes the last one in range.
///
/// # Example: a day later
///
/// ```
/// use std::time::Duration;
/// use audience::Timestamp;
///
/// let tomorrow = Timestamp::now() + Duration::from_secs(86_400);
/// # assert!(tomorrow > Timestamp::now());
/// ```
impl Add<Duration> for Timestamp {
    type Output = Self;

    fn add(self, later: Duration) -> Self {
        Self::from_unix(self.as_unix().saturating_add_unsigned(later.as_secs()))
    }
}

/// Returns the moment this much earlier, rounded down to the second. A moment out of the range of `i64`
/// becomes the first one in range.
impl Sub<Duration> for Timestamp {
    type Output = Self;

    fn sub(self, earlier: Duration) -> Self {
        // Rounding down: any part of a second leads into the second before.
        let part = i64::from(earlier.subsec_nanos() > 0);
        let whole = self.as_unix().saturating_sub_unsigned(earlier.as_secs());
        Self::from_unix(whole.saturating_sub(part))
    }
}

/// The error of a text that is not a [`Timestamp`], or of a moment that a [`SystemTime`] cannot represent.
///
/// # Example: a date that does not exist
///
/// ```
/// use audience::Timestamp;
///
/// let error = "2023-02-29T00:00:00Z".parse::<Timestamp>().unwrap_err();
///
/// assert_eq!(
///     error.to_string(),
///     "the text is not an RFC 3339 time such as `2023-11-14T22:13:20Z`, or there is no such date or time of day",
/// );
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimestampError(&'static str);

impl TimestampError {
    const NOT_RFC_3339: Self = Self(
        "the text is not an RFC 3339 time such as `2023-11-14T22:13:20Z`, or there is no such date or time of day",
    );
    const OUT_OF_RANGE: Self =
        Self("`SystemTime` cannot represent this moment on this platform: it is too far from 1970");
}

impl fmt::Display for TimestampError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl StdError for TimestampError {}

#[cfg(not(all(target_family = "wasm", target_os = "unknown")))]
pub(crate) fn system_time() -> SystemTime {
    SystemTime::now()
}

// `SystemTime::now` panics on this target.
#[cfg(all(target_family = "wasm", target_os = "unknown"))]
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "this target cannot represent a time before 1970: the cast makes it 1970"
)]
pub(crate) fn system_time() -> SystemTime {
    let milliseconds = js_sys::Date::now() as u64;
    UNIX_EPOCH + Duration::from_millis(milliseconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_unix(seconds)
    }

    #[test]
    fn the_time_between_two_moments_is_never_negative_and_always_fits() {
        assert_eq!(at(7).duration_since(at(-3)), Duration::from_secs(10));
        assert_eq!(at(-3).duration_since(at(7)), Duration::ZERO);
        assert_eq!(
            at(i64::MAX).duration_since(at(i64::MIN)),
            Duration::from_secs(u64::MAX)
        );
    }

    #[test]
    fn a_sum_and_a_difference_are_rounded_down() {
        let (one, half) = (Duration::from_secs(1), Duration::from_millis(500));

        assert_eq!((at(5) + one, at(5) + half), (at(6), at(5)));
        assert_eq!((at(5) - one, at(5) - half), (at(4), at(4)));
        assert_eq!(at(5) - (one + half), at(3));
    }

    #[test]
    fn a_moment_out_of_range_becomes_the_nearest_one_in_range() {
        assert_eq!(at(1) + Duration::MAX, at(i64::MAX));
        assert_eq!(at(-1) - Duration::MAX, at(i64::MIN));
        assert_eq!(at(i64::MIN) - Duration::from_nanos(1), at(i64::MIN));
        assert_eq!(at(i64::MIN) + Duration::from_secs(u64::MAX), at(i64::MAX));
    }

    #[test]
    fn any_integer_converts_without_panicking() {
        for seconds in [i64::MIN, -1, 0, 1, 1_700_000_000, i64::MAX] {
            let timestamp = at(seconds);

            let _ = (SystemTime::try_from(timestamp), timestamp.to_string());
            let json = serde_json::to_string(&timestamp).unwrap();

            assert_eq!(json, seconds.to_string());
            assert_eq!(serde_json::from_str::<Timestamp>(&json).unwrap(), timestamp);
        }
    }

    #[test]
    fn an_error_says_what_is_wrong_with_the_time() {
        let text = "yesterday".parse::<Timestamp>().unwrap_err().to_string();

        assert!(text.contains("is not an RFC 3339 time"), "{text}");
        if let Err(error) = SystemTime::try_from(at(i64::MIN)) {
            assert!(error.to_string().contains("too far from 1970"));
        }
    }

    #[test]
    fn a_moment_before_the_epoch_rounds_down() {
        let moment = UNIX_EPOCH - Duration::from_millis(1_500);

        assert_eq!(Timestamp::from(moment).as_unix(), -2);
    }

    #[test]
    fn the_text_is_padded_and_the_debug_form_has_the_seconds_too() {
        let moment = at(1_700_000_000);

        assert_eq!(format!("{moment:>22}|"), "  2023-11-14T22:13:20Z|");
        assert_eq!(
            format!("{moment:?} {moment:#?}"),
            "Timestamp(1700000000, 2023-11-14T22:13:20Z) Timestamp(1700000000, 2023-11-14T22:13:20Z)"
        );
    }

    #[test]
    fn a_moment_is_written_in_rfc_3339() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (-1, "1969-12-31T23:59:59Z"),
            (1_700_000_000, "2023-11-14T22:13:20Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (-2_203_891_201, "1900-02-28T23:59:59Z"),
            (-2_203_891_200, "1900-03-01T00:00:00Z"),
            (253_402_300_799, "9999-12-31T23:59:59Z"),
            (-62_167_219_200, "0000-01-01T00:00:00Z"),
        ] {
            assert_eq!(at(seconds).to_string(), text);
            assert_eq!(text.parse(), Ok(at(seconds)));
        }
    }

    #[test]
    fn a_moment_in_a_year_that_rfc_3339_does_not_have_is_written_as_its_seconds() {
        for seconds in [253_402_300_800, -62_167_219_201, i64::MAX, i64::MIN] {
            assert_eq!(at(seconds).to_string(), seconds.to_string());
        }
    }

    #[test]
    fn other_ways_to_write_a_moment_are_read_too() {
        for text in [
            "2023-11-14t22:13:20z",
            "2023-11-14 22:13:20Z",
            "2023-11-14T22:13:20.999999999999999999999Z",
            "2023-11-14T22:13:20+00:00",
            "2023-11-14T22:13:20-00:00",
            "2023-11-14T23:43:20+01:30",
            "2023-11-14T21:13:20-01:00",
            "2023-11-15T22:12:20+23:59",
        ] {
            assert_eq!(text.parse(), Ok(at(1_700_000_000)), "{text}");
        }
        assert_eq!(
            "2016-12-31T23:59:60Z".parse::<Timestamp>(),
            "2016-12-31T23:59:59Z".parse()
        );
        assert_eq!("1969-12-31T23:59:59.9Z".parse(), Ok(at(-1)));
    }

    #[test]
    fn a_text_of_another_form_and_a_date_or_time_that_does_not_exist_are_refused() {
        for text in [
            "",
            "1700000000",
            "2023-11-14",
            "2023-11-14T22:13:20",
            "2023-11-14T22:13Z",
            "2023-11-14T22:13:20.Z",
            "2023-11-14T22:13:20,5Z",
            "2023-11-14T22:13:20ZZ",
            " 2023-11-14T22:13:20Z",
            "2023-11-14T22:13:20 Z",
            "2023-11-14T22:13:20+0100",
            "2023-11-14T22:13:20+01",
            "2023-1-14T22:13:20Z",
            "23-11-14T22:13:20Z",
            "12023-11-14T22:13:20Z",
            "-000000-11-14T22:13:20Z",
            "٢٠٢٣-11-14T22:13:20Z",
            "2023-02-29T00:00:00Z",
            "2023-04-31T00:00:00Z",
            "2023-13-01T00:00:00Z",
            "2023-00-01T00:00:00Z",
            "2023-01-00T00:00:00Z",
            "2023-01-32T00:00:00Z",
            "2023-01-01T24:00:00Z",
            "2023-01-01T00:60:00Z",
            "2023-01-01T00:00:61Z",
            "2023-01-01T00:00:00+24:00",
            "2023-01-01T00:00:00+00:60",
        ] {
            let read = text.parse::<Timestamp>();

            assert_eq!(read, Err(TimestampError::NOT_RFC_3339), "{text}");
        }
    }
}
