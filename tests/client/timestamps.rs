//! `Timestamp` against jiff, chrono and time, which know the calendar too.

use audience::{Timestamp, TimestampError};
use chrono::{DateTime, FixedOffset, Utc};
use proptest::prelude::*;
use time::OffsetDateTime;

/// The first and the last second of the years 0 to 9999, which RFC 3339 can write.
const RFC_3339: std::ops::RangeInclusive<i64> = -62_167_219_200..=253_402_300_799;

fn from_nanos(nanos: i128) -> jiff::Timestamp {
    jiff::Timestamp::from_nanosecond(nanos).expect("the moment is within the years of jiff")
}

proptest! {
    #[test]
    fn any_moment_is_written_as_jiff_and_chrono_write_it(seconds in RFC_3339) {
        // jiff's timestamps end a day before the year 10000.
        let seconds = seconds.min(jiff::Timestamp::MAX.as_second());
        let timestamp = Timestamp::from_unix(seconds);

        let text = timestamp.to_string();

        prop_assert_eq!(&text, &jiff::Timestamp::try_from(timestamp).unwrap().to_string());
        let moment = DateTime::<Utc>::try_from(timestamp).unwrap();
        prop_assert_eq!(&text, &format!("{moment:?}"));
        prop_assert_eq!(OffsetDateTime::try_from(timestamp).unwrap().unix_timestamp(), seconds);
        prop_assert_eq!(text.parse(), Ok(timestamp));
    }

    #[test]
    fn any_moment_in_the_range_of_jiff_has_the_text_that_jiff_reads(
        seconds in jiff::Timestamp::MIN.as_second()..=jiff::Timestamp::MAX.as_second(),
    ) {
        let timestamp = Timestamp::from_unix(seconds);

        let text = timestamp.to_string();

        prop_assert_eq!(text.parse::<jiff::Timestamp>().unwrap().as_second(), seconds);
        prop_assert_eq!(jiff::Timestamp::from_second(seconds).unwrap().to_string(), text);
    }

    #[test]
    fn any_moment_in_the_range_of_chrono_has_the_date_of_chrono(
        seconds in DateTime::<Utc>::MIN_UTC.timestamp()..=DateTime::<Utc>::MAX_UTC.timestamp(),
    ) {
        let timestamp = Timestamp::from_unix(seconds);

        let moment = DateTime::<Utc>::try_from(timestamp).unwrap();

        prop_assert_eq!(timestamp.to_string().parse::<DateTime<Utc>>().unwrap(), moment);
        prop_assert_eq!(Timestamp::from(moment), timestamp);
    }

    #[test]
    fn any_i64_survives_its_own_text(seconds: i64) {
        let timestamp = Timestamp::from_unix(seconds);

        prop_assert_eq!(timestamp.to_string().parse(), Ok(timestamp));
        let _ = jiff::Timestamp::try_from(timestamp);
        let _ = DateTime::<Utc>::try_from(timestamp);
        let _ = OffsetDateTime::try_from(timestamp);
    }

    #[test]
    fn any_part_of_a_second_is_rounded_down(
        seconds in RFC_3339.start() + 86_400..=RFC_3339.end() - 86_400,
        part in 0..1_000_000_000_u32,
    ) {
        let nanos = i128::from(seconds) * 1_000_000_000 + i128::from(part);
        let timestamp = Timestamp::from_unix(seconds);

        prop_assert_eq!(Timestamp::from(from_nanos(nanos)), timestamp);
        prop_assert_eq!(Timestamp::from(DateTime::from_timestamp(seconds, part).unwrap()), timestamp);
        let moment = OffsetDateTime::from_unix_timestamp_nanos(nanos).unwrap();
        prop_assert_eq!(Timestamp::from(moment), timestamp);
        prop_assert_eq!(from_nanos(nanos).to_string().parse(), Ok(timestamp));
    }

    #[test]
    fn any_offset_is_read_as_jiff_reads_it(seconds in 0..4_000_000_000_i64, offset in -86_399..=86_399_i32) {
        // RFC 3339 has no seconds in an offset.
        let offset = FixedOffset::east_opt(offset / 60 * 60).unwrap();
        let moment = DateTime::from_timestamp(seconds, 0).unwrap().with_timezone(&offset);

        let text = format!("{moment:?}");

        prop_assert_eq!(text.parse(), Ok(Timestamp::from_unix(seconds)), "{}", text);
        prop_assert_eq!(Timestamp::from(moment), Timestamp::from_unix(seconds));
    }

    #[test]
    fn any_text_that_is_read_is_one_that_jiff_reads_too(
        text in "[+-]?[0-9]{4,6}-[0-3][0-9]-[0-3][0-9][Tt ][0-2][0-9]:[0-6][0-9]:[0-6][0-9](\\.[0-9]{1,3})?([Zz]|[+-][0-2][0-9]:[0-6][0-9])",
    ) {
        if let (Ok(timestamp), Ok(moment)) = (text.parse::<Timestamp>(), text.parse::<jiff::Timestamp>()) {
            prop_assert_eq!(timestamp, Timestamp::from(moment), "{}", text);
        }
    }

    #[test]
    fn no_text_panics(text: String) {
        let _ = text.parse::<Timestamp>();
    }
}

#[test]
fn a_moment_that_another_crate_cannot_represent_is_an_error_that_names_it() {
    let errors = |seconds| {
        let timestamp = Timestamp::from_unix(seconds);
        [
            jiff::Timestamp::try_from(timestamp).unwrap_err(),
            DateTime::<Utc>::try_from(timestamp).unwrap_err(),
            OffsetDateTime::try_from(timestamp).unwrap_err(),
        ]
    };

    for seconds in [i64::MIN, i64::MAX] {
        let texts = errors(seconds).map(|error: TimestampError| error.to_string());
        for (text, name) in texts.iter().zip([
            "jiff::Timestamp",
            "chrono::DateTime",
            "time::OffsetDateTime",
        ]) {
            let expected =
                format!("`{name}` cannot represent this moment: it is too far from 1970");
            assert_eq!(*text, expected);
        }
    }
}

#[test]
fn a_moment_before_1970_is_the_same_in_every_crate() {
    let half_a_second_before = from_nanos(-500_000_000);

    assert_eq!(Timestamp::from(half_a_second_before).as_unix(), -1);
    assert_eq!(Timestamp::from(from_nanos(-1_000_000_000)).as_unix(), -1);
    assert_eq!(Timestamp::from(from_nanos(-1_000_000_001)).as_unix(), -2);
    assert_eq!(
        Timestamp::from(DateTime::<Utc>::MIN_UTC).as_unix(),
        DateTime::<Utc>::MIN_UTC.timestamp()
    );
}

#[test]
fn a_timestamp_in_json_is_an_integer() {
    let timestamp = Timestamp::from_unix(-5);

    assert_eq!(serde_json::to_string(&timestamp).unwrap(), "-5");
    assert!(serde_json::from_str::<Timestamp>("\"1969-12-31T23:59:55Z\"").is_err());
}
