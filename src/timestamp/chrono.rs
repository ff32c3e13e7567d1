use chrono::{DateTime, TimeZone, Utc};

use super::error::TimestampError;
use super::timestamp::Timestamp;

/// Rounds down to the second.
///
/// # Example: from and to chrono
///
/// ```
/// use audience::Timestamp;
/// use chrono::{DateTime, Utc};
///
/// let moment: DateTime<Utc> = "2023-11-14T22:13:20.5Z".parse().expect("RFC 3339");
/// let timestamp = Timestamp::from(moment);
///
/// assert_eq!(timestamp.as_unix(), 1_700_000_000);
/// assert_eq!(DateTime::<Utc>::try_from(timestamp)?.timestamp(), 1_700_000_000);
/// # Ok::<(), audience::TimestampError>(())
/// ```
#[cfg_attr(docsrs, doc(cfg(feature = "chrono")))]
impl<Z: TimeZone> From<DateTime<Z>> for Timestamp {
    fn from(moment: DateTime<Z>) -> Self {
        Self::from_unix(moment.timestamp())
    }
}

/// Fails with a [`TimestampError`] beyond the range of chrono, about 262,000 years from 1970.
#[cfg_attr(docsrs, doc(cfg(feature = "chrono")))]
impl TryFrom<Timestamp> for DateTime<Utc> {
    type Error = TimestampError;

    fn try_from(timestamp: Timestamp) -> Result<Self, TimestampError> {
        let moment = Self::from_timestamp(timestamp.as_unix(), 0);
        moment.ok_or(TimestampError::unrepresentable("chrono::DateTime"))
    }
}
