//! The value of a `Date` header.

use crate::Timestamp;

const MONTHS: [&str; 12] = [
    "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
];

/// Reads `Sun, 06 Nov 1994 08:49:37 GMT` as Unix seconds. Returns `None` if the text has another form.
pub(super) fn parse(text: &str) -> Option<u64> {
    let (_, text) = text.split_once(", ")?;
    let mut parts = text.split(' ');
    let (day, month, year) = (parts.next()?, parts.next()?, parts.next()?);
    let (time, zone) = (parts.next()?, parts.next()?);
    let month = MONTHS.iter().position(|name| *name == month)? + 1;
    if zone != "GMT" || parts.next().is_some() {
        return None;
    }
    let moment: Timestamp = format!("{year}-{month:02}-{day}T{time}Z").parse().ok()?;
    u64::try_from(moment.as_unix()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_date_of_http_is_read_and_other_texts_are_not() {
        assert_eq!(parse("Sun, 06 Nov 1994 08:49:37 GMT"), Some(784_111_777));

        for text in [
            "",
            "1994-11-06T08:49:37Z",
            "Sun, 06 Nov 1994 08:49:37 CET",
            "Sun, 06 Foo 1994 08:49:37 GMT",
            "Sun, 99 Nov 1994 08:49:37 GMT",
            "Sun, 06 Nov 1994 08:49:37 GMT GMT",
            "Sun, 06 Nov 1900 08:49:37 GMT",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
