//! The text of a moment: RFC 3339, with the expanded years of ISO 8601 where four digits do not suffice.

use super::calendar::Date;
use super::error::TimestampError;

const DAY: i64 = 86_400;

/// Writes the moment this many seconds after 1970-01-01T00:00:00Z.
pub(super) fn format(seconds: i64) -> String {
    let Date { year, month, day } = Date::from_days(seconds.div_euclid(DAY));
    let of_day = seconds.rem_euclid(DAY);
    let (hour, minute, second) = (of_day / 3_600, of_day / 60 % 60, of_day % 60);
    let year = match year {
        0..=9_999 => format!("{year:04}"),
        _ => format!("{year:+07}"),
    };
    format!("{year}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

/// Reads a moment, rounded down to the second.
///
/// # Errors
///
/// If the text has another form, names a date or time that does not exist, or is too far from 1970.
pub(super) fn parse(text: &str) -> Result<i64, TimestampError> {
    read(&mut Digits(text.as_bytes())).map_or(Err(TimestampError::MALFORMED), Fields::unix_seconds)
}

/// The numbers of a text. Their ranges are not checked.
struct Fields {
    date: Date,
    hour: i64,
    minute: i64,
    second: i64,
    /// The hours and minutes of the offset, both positive, and its sign.
    offset: (i64, i64, i64),
}

impl Fields {
    fn unix_seconds(self) -> Result<i64, TimestampError> {
        let (offset_hours, offset_minutes, sign) = self.offset;
        let is_time = self.hour <= 23 && self.minute <= 59 && self.second <= 60;
        let is_offset = offset_hours <= 23 && offset_minutes <= 59;
        if !(self.date.exists() && is_time && is_offset) {
            return Err(TimestampError::NO_SUCH_TIME);
        }
        // Unix time has no leap seconds: 23:59:60 is the same as 23:59:59.
        let of_day = self.hour * 3_600 + self.minute * 60 + self.second.min(59);
        let offset = sign * (offset_hours * 3_600 + offset_minutes * 60);
        let seconds =
            i128::from(self.date.to_days()) * i128::from(DAY) + i128::from(of_day - offset);
        i64::try_from(seconds).map_err(|_| TimestampError::TOO_FAR)
    }
}

/// Reads the whole text. Returns `None` if it has another form.
fn read(text: &mut Digits<'_>) -> Option<Fields> {
    let year = text.year()?;
    text.any_of(b"-")?;
    let month = text.number(2..=2)?;
    text.any_of(b"-")?;
    let day = text.number(2..=2)?;
    text.any_of(b"Tt ")?;
    let hour = text.number(2..=2)?;
    text.any_of(b":")?;
    let minute = text.number(2..=2)?;
    text.any_of(b":")?;
    let second = text.number(2..=2)?;
    if text.any_of(b".").is_some() {
        text.skip_digits()?;
    }
    let offset = text.offset()?;
    let fields = Fields {
        date: Date { year, month, day },
        hour,
        minute,
        second,
        offset,
    };
    text.0.is_empty().then_some(fields)
}

/// The rest of a text. Each method takes what it reads from the front.
struct Digits<'a>(&'a [u8]);

impl Digits<'_> {
    /// Takes one byte if it is one of these.
    fn any_of(&mut self, bytes: &[u8]) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        bytes.contains(first).then(|| {
            self.0 = rest;
            *first
        })
    }

    /// Takes all digits at the front as a number, if there are that many.
    fn number(&mut self, digits: std::ops::RangeInclusive<usize>) -> Option<i64> {
        let is_digit = |byte: &&u8| byte.is_ascii_digit();
        let length = self.0.iter().take_while(is_digit).count();
        let (number, rest) = self.0.split_at(length);
        self.0 = rest;
        let append = |number, digit: &u8| number * 10 + i64::from(digit - b'0');
        digits
            .contains(&length)
            .then(|| number.iter().fold(0, append))
    }

    /// Takes at least one digit.
    fn skip_digits(&mut self) -> Option<()> {
        let length = self
            .0
            .iter()
            .take_while(|byte| byte.is_ascii_digit())
            .count();
        self.0 = &self.0[length..];
        (length > 0).then_some(())
    }

    /// Takes a year: four digits, or a sign and 4 to 12 digits. There is no year -0.
    fn year(&mut self) -> Option<i64> {
        match self.any_of(b"+-") {
            None => self.number(4..=4),
            Some(b'-') => self
                .number(4..=12)
                .filter(|year| *year != 0)
                .map(|year| -year),
            Some(_) => self.number(4..=12),
        }
    }

    /// Takes the offset from UTC: its hours, its minutes and its sign.
    fn offset(&mut self) -> Option<(i64, i64, i64)> {
        let sign = match self.any_of(b"Zz+-")? {
            b'+' => 1,
            b'-' => -1,
            _ => return Some((0, 0, 1)),
        };
        let hours = self.number(2..=2)?;
        self.any_of(b":")?;
        Some((hours, self.number(2..=2)?, sign))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
            assert_eq!(format(seconds), text);
            assert_eq!(parse(text), Ok(seconds));
        }
    }

    #[test]
    fn a_year_of_more_than_four_digits_or_before_0_has_a_sign_and_at_least_six_digits() {
        for (seconds, text) in [
            (253_402_300_800, "+010000-01-01T00:00:00Z"),
            (-62_167_219_201, "-000001-12-31T23:59:59Z"),
            (i64::MAX, "+292277026596-12-04T15:30:07Z"),
            (i64::MIN, "-292277022657-01-27T08:29:52Z"),
        ] {
            assert_eq!(format(seconds), text);
            assert_eq!(parse(text), Ok(seconds));
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
            "+2023-11-14T22:13:20Z",
            "+000000002023-11-14T22:13:20Z",
            "2023-11-15T22:12:20+23:59",
        ] {
            assert_eq!(parse(text), Ok(1_700_000_000), "{text}");
        }
        assert_eq!(parse("2016-12-31T23:59:60Z"), parse("2016-12-31T23:59:59Z"));
        assert_eq!(parse("1969-12-31T23:59:59.9Z"), Ok(-1));
    }

    #[test]
    fn a_text_of_another_form_is_refused() {
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
            "2023-11-14T22:13:20\u{2212}01:00",
            "2023-1-14T22:13:20Z",
            "23-11-14T22:13:20Z",
            "12023-11-14T22:13:20Z",
            "-000000-11-14T22:13:20Z",
            "+1000000000000-01-01T00:00:00Z",
            "٢٠٢٣-11-14T22:13:20Z",
        ] {
            assert_eq!(parse(text), Err(TimestampError::MALFORMED), "{text}");
        }
    }

    #[test]
    fn a_date_or_time_that_does_not_exist_is_refused() {
        for text in [
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
            assert_eq!(parse(text), Err(TimestampError::NO_SUCH_TIME), "{text}");
        }
    }

    #[test]
    fn a_moment_out_of_the_range_of_an_i64_is_refused() {
        for text in [
            "+292277026596-12-04T15:30:08Z",
            "-292277022657-01-27T08:29:51Z",
            "+999999999999-12-31T23:59:59Z",
            "-999999999999-01-01T00:00:00Z",
        ] {
            assert_eq!(parse(text), Err(TimestampError::TOO_FAR), "{text}");
        }
        assert_eq!(parse("+292277026596-12-04T16:30:07+01:00"), Ok(i64::MAX));
    }
}
