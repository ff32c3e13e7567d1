use time::OffsetDateTime;

use super::error::TimestampError;
use super::timestamp::Timestamp;

/// Rounds down to the second.
///
/// # Example: from and to time
///
/// ```
/// use audience::Timestamp;
/// use time::OffsetDateTime;
///
/// let moment = OffsetDateTime::from_unix_timestamp_nanos(1_700_000_000_500_000_000)?;
/// let timestamp = Timestamp::from(moment);
///
/// assert_eq!(timestamp.as_unix(), 1_700_000_000);
/// assert_eq!(OffsetDateTime::try_from(timestamp)?.year(), 2023);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[cfg_attr(docsrs, doc(cfg(feature = "time")))]
impl From<OffsetDateTime> for Timestamp {
    fn from(moment: OffsetDateTime) -> Self {
        Self::from_unix(moment.unix_timestamp())
    }
}

/// Fails with a [`TimestampError`] beyond the years -9999 to 9999, unless the feature `large-dates` of time is on.
#[cfg_attr(docsrs, doc(cfg(feature = "time")))]
impl TryFrom<Timestamp> for OffsetDateTime {
    type Error = TimestampError;

    fn try_from(timestamp: Timestamp) -> Result<Self, TimestampError> {
        let moment = Self::from_unix_timestamp(timestamp.as_unix());
        moment.map_err(|_| TimestampError::unrepresentable("time::OffsetDateTime"))
    }
}
