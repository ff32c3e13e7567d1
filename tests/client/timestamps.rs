//! `Timestamp` as text, in JSON and as a `SystemTime`.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use audience::Timestamp;
use proptest::prelude::*;

/// The first and the last second of the years 0 to 9999, which RFC 3339 can write.
const RFC_3339: std::ops::RangeInclusive<i64> = -62_167_219_200..=253_402_300_799;

proptest! {
    #[test]
    fn any_moment_of_rfc_3339_is_read_back_from_its_text(seconds in RFC_3339) {
        let timestamp = Timestamp::from_unix(seconds);

        let text = timestamp.to_string();

        prop_assert_eq!(text.len(), "2023-11-14T22:13:20Z".len());
        prop_assert_eq!(text.parse(), Ok(timestamp));
    }

    #[test]
    fn any_i64_is_written_and_converted_without_panicking(seconds: i64) {
        let timestamp = Timestamp::from_unix(seconds);

        let _ = timestamp.to_string();
        if let Ok(moment) = SystemTime::try_from(timestamp) {
            prop_assert_eq!(Timestamp::from(moment), timestamp);
        }
    }

    #[test]
    fn any_part_of_a_second_is_rounded_down(seconds in 0..253_402_300_799_u64, part in 0..1_000_000_000_u32) {
        let after = UNIX_EPOCH + Duration::new(seconds, part);
        // Windows has no time before 1601.
        let before = UNIX_EPOCH.checked_sub(Duration::new(seconds, part));

        let whole = i64::try_from(seconds).unwrap();
        prop_assert_eq!(Timestamp::from(after).as_unix(), whole);
        if let Some(before) = before {
            prop_assert_eq!(Timestamp::from(before).as_unix(), -whole - i64::from(part > 0));
        }
        let text = Timestamp::from(after).to_string().replace('Z', &format!(".{part:09}Z"));
        prop_assert_eq!(text.parse(), Ok(Timestamp::from(after)));
    }

    #[test]
    fn any_offset_is_subtracted(seconds in 0..4_000_000_000_i64, minutes in -1_439..=1_439_i64) {
        let local = Timestamp::from_unix(seconds + minutes * 60).to_string();
        let sign = if minutes < 0 { '-' } else { '+' };
        let (hours, minutes) = (minutes.abs() / 60, minutes.abs() % 60);

        let text = local.replace('Z', &format!("{sign}{hours:02}:{minutes:02}"));

        prop_assert_eq!(text.parse(), Ok(Timestamp::from_unix(seconds)), "{}", text);
    }

    #[test]
    fn no_text_panics(text: String) {
        let _ = text.parse::<Timestamp>();
    }
}

#[test]
fn a_timestamp_in_json_is_an_integer() {
    let timestamp = Timestamp::from_unix(-5);

    assert_eq!(serde_json::to_string(&timestamp).unwrap(), "-5");
    assert!(serde_json::from_str::<Timestamp>("\"1969-12-31T23:59:55Z\"").is_err());
}
