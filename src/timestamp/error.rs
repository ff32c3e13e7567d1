use std::error::Error as StdError;
use std::fmt;

/// Why a text is not a [`Timestamp`](crate::Timestamp), or why another type cannot represent one.
///
/// # Example: a date that does not exist
///
/// ```
/// use audience::Timestamp;
///
/// let error = "2023-02-29T00:00:00Z".parse::<Timestamp>().unwrap_err();
///
/// assert_eq!(error.to_string(), "this date or time of day does not exist");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimestampError(Cause);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cause {
    Malformed,
    NoSuchTime,
    TooFar,
    #[cfg(any(feature = "chrono", feature = "jiff", feature = "time"))]
    Unrepresentable(&'static str),
}

impl TimestampError {
    /// The text has another form than RFC 3339.
    pub(super) const MALFORMED: Self = Self(Cause::Malformed);
    /// The text has the form of RFC 3339, but for example a 13th month.
    pub(super) const NO_SUCH_TIME: Self = Self(Cause::NoSuchTime);
    /// The moment is further from 1970 than an `i64` of seconds.
    pub(super) const TOO_FAR: Self = Self(Cause::TooFar);

    /// Creates the error for a moment that a type of this library cannot represent.
    #[cfg(any(feature = "chrono", feature = "jiff", feature = "time"))]
    pub(super) const fn unrepresentable(library: &'static str) -> Self {
        Self(Cause::Unrepresentable(library))
    }
}

impl fmt::Display for TimestampError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Cause::Malformed => {
                f.write_str("this is not an RFC 3339 time such as `2023-11-14T22:13:20Z`")
            }
            Cause::NoSuchTime => f.write_str("this date or time of day does not exist"),
            Cause::TooFar => f.write_str("this moment is too far from 1970"),
            #[cfg(any(feature = "chrono", feature = "jiff", feature = "time"))]
            Cause::Unrepresentable(library) => {
                write!(
                    f,
                    "`{library}` cannot represent this moment: it is too far from 1970"
                )
            }
        }
    }
}

impl StdError for TimestampError {}
