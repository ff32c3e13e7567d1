use super::error::TimestampError;
use super::timestamp::Timestamp;

/// Rounds down to the second.
///
/// # Example: from and to jiff
///
/// ```
/// use audience::Timestamp;
///
/// let moment: jiff::Timestamp = "2023-11-14T22:13:20.5Z".parse().expect("RFC 3339");
/// let timestamp = Timestamp::from(moment);
///
/// assert_eq!(timestamp.as_unix(), 1_700_000_000);
/// assert_eq!(jiff::Timestamp::try_from(timestamp)?.as_second(), 1_700_000_000);
/// # Ok::<(), audience::TimestampError>(())
/// ```
#[cfg_attr(docsrs, doc(cfg(feature = "jiff")))]
impl From<jiff::Timestamp> for Timestamp {
    fn from(moment: jiff::Timestamp) -> Self {
        // jiff rounds toward 1970.
        let is_rounded_up = moment.subsec_nanosecond() < 0;
        Self::from_unix(moment.as_second() - i64::from(is_rounded_up))
    }
}

/// Fails with a [`TimestampError`] beyond the years -9999 to 9999.
#[cfg_attr(docsrs, doc(cfg(feature = "jiff")))]
impl TryFrom<Timestamp> for jiff::Timestamp {
    type Error = TimestampError;

    fn try_from(timestamp: Timestamp) -> Result<Self, TimestampError> {
        let moment = Self::from_second(timestamp.as_unix());
        moment.map_err(|_| TimestampError::unrepresentable("jiff::Timestamp"))
    }
}
