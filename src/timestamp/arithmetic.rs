use std::ops::{Add, Sub};
use std::time::Duration;

use super::timestamp::Timestamp;

impl Timestamp {
    /// Returns the time from an earlier moment to this one. Zero if the other moment is the later one.
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
        let part = i64::from(earlier.subsec_nanos() > 0);
        let whole = self.as_unix().saturating_sub_unsigned(earlier.as_secs());
        Self::from_unix(whole.saturating_sub(part))
    }
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
}
