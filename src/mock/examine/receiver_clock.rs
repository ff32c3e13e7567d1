//! The clock of a receiver, by the `Date` header of its responses.

use std::time::{SystemTime, UNIX_EPOCH};

/// Reads `Sun, 06 Nov 1994 08:49:37 GMT` as Unix seconds. Returns `None` if the text is no HTTP date.
pub(super) fn parse_date(text: &str) -> Option<u64> {
    let moment = httpdate::parse_http_date(text).ok()?;
    let since = moment.duration_since(UNIX_EPOCH).ok()?;
    Some(since.as_secs())
}

/// Returns how far the clock of a receiver is from this machine's, in seconds, given a `Date` that it sent between two
/// times. Zero if the difference can be rounding: a `Date` has whole seconds, and servers renew it once a second.
pub(super) fn clock_skew(date: u64, before: SystemTime, after: SystemTime) -> i64 {
    let seconds = |time: SystemTime| {
        let since = time.duration_since(UNIX_EPOCH);
        since.map_or(0, |since| {
            i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
        })
    };
    let date = i64::try_from(date).unwrap_or(i64::MAX);
    let (earliest, latest) = (seconds(before), seconds(after));
    if date > latest {
        date - latest
    } else if date.saturating_add(2) < earliest {
        date.saturating_add(2) - earliest
    } else {
        0
    }
}

/// Writes a difference as the end of "The receiver's clock is …".
pub(super) fn describe_skew(skew: i64) -> String {
    let side = if skew < 0 { "behind" } else { "ahead of" };
    format!("{} s {side} this machine's", skew.unsigned_abs())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn at(seconds: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(seconds)
    }

    #[test]
    fn a_clock_differs_only_by_more_than_rounding_explains() {
        for (date, skew) in [
            (100, 0),
            (99, 0),
            (98, 0),
            (97, -1),
            (101, 0),
            (102, 1),
            (400, 299),
        ] {
            assert_eq!(clock_skew(date, at(100), at(101)), skew, "{date}");
        }
        assert!(clock_skew(u64::MAX, at(0), at(1)) > 0);
        assert!(clock_skew(0, at(1_700_000_000), at(1_700_000_000)) < 0);
    }

    #[test]
    fn the_date_of_http_is_read_and_other_texts_are_not() {
        assert_eq!(
            parse_date("Sun, 06 Nov 1994 08:49:37 GMT"),
            Some(784_111_777)
        );

        for text in [
            "",
            "1994-11-06T08:49:37Z",
            "Sun, 06 Nov 1994 08:49:37 CET",
            "Sun, 06 Foo 1994 08:49:37 GMT",
            "Sun, 99 Nov 1994 08:49:37 GMT",
            "Sun, 06 Nov 1994 08:49:37 GMT GMT",
            "Sun, 06 Nov 1900 08:49:37 GMT",
        ] {
            assert_eq!(parse_date(text), None, "{text}");
        }
    }
}
