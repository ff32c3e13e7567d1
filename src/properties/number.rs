//! Tells the numbers that an integer or a float represents exactly from all others.

use super::float;
use super::value::PropertyValue;

/// Reads a number that an integer or a float represents without rounding. `None` if there is none.
pub(super) fn number(text: &str) -> Option<PropertyValue> {
    let is_whole = text
        .bytes()
        .all(|byte| byte.is_ascii_digit() || byte == b'-');
    if is_whole && text != "-0" {
        let signed = text.parse().map(PropertyValue::Integer);
        return signed
            .or_else(|_| text.parse().map(PropertyValue::Unsigned))
            .ok();
    }
    let float: f64 = text.parse().ok()?;
    (float.is_finite() && is_same_number(text, float)).then_some(PropertyValue::Float(float))
}

/// Returns whether a float, written as JSON, is the same number as this text.
fn is_same_number(text: &str, number: f64) -> bool {
    // Up to 15 digits and an exponent below 100 always survive a float.
    let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((text, ""));
    let is_short = mantissa.len() <= 15 && exponent.len() <= 2;
    is_short
        || scientific(text).is_some_and(|text| Some(text) == scientific(&float::to_json(number)))
}

/// Returns the digits of a number without zeros at either end, and the power of ten they are multiplied by.
fn scientific(text: &str) -> Option<(String, i64)> {
    let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = [whole.trim_start_matches('-'), fraction].concat();
    let significant = digits.trim_end_matches('0');
    let zeros = i64::try_from(digits.len() - significant.len()).ok()?;
    let fraction = i64::try_from(fraction.len()).ok()?;
    let exponent = exponent.parse::<i64>().ok()?.checked_sub(fraction)?;
    match significant.trim_start_matches('0') {
        "" => Some((String::new(), 0)),
        significant => Some((significant.to_owned(), exponent.checked_add(zeros)?)),
    }
}

/// Returns the numbers in a JSON text, at any depth.
pub(super) fn numbers(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        loop {
            let start = rest.find(|c: char| c == '"' || c == '-' || c.is_ascii_digit())?;
            let found = &rest[start..];
            if found.starts_with('"') {
                rest = &found[string_length(found)..];
                continue;
            }
            let is_end =
                |c: char| !(c.is_ascii_digit() || matches!(c, '+' | '-' | '.' | 'e' | 'E'));
            let end = found.find(is_end).unwrap_or(found.len());
            rest = &found[end..];
            return Some(&found[..end]);
        }
    })
}

/// Returns the length of the JSON string that a text begins with, quotes included.
fn string_length(text: &str) -> usize {
    let mut is_escaped = false;
    let end = text.bytes().skip(1).position(|byte| {
        let is_end = byte == b'"' && !is_escaped;
        is_escaped = byte == b'\\' && !is_escaped;
        is_end
    });
    end.map_or(text.len(), |end| end + 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> PropertyValue {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn a_number_is_an_integer_a_float_or_its_exact_text_and_never_rounded() {
        for (text, value) in [
            ("0", PropertyValue::Integer(0)),
            ("-9223372036854775808", PropertyValue::Integer(i64::MIN)),
            ("9223372036854775808", PropertyValue::Unsigned(1 << 63)),
            ("18446744073709551615", PropertyValue::Unsigned(u64::MAX)),
            ("-0", PropertyValue::Float(-0.0)),
            ("1.50", PropertyValue::Float(1.5)),
            ("1E3", PropertyValue::Float(1000.0)),
            ("1.25e-99", PropertyValue::Float(1.25e-99)),
            ("-7", PropertyValue::Integer(-7)),
            ("0.00000e9", PropertyValue::Float(0.0)),
            ("-1.7976931348623157e+308", PropertyValue::Float(f64::MIN)),
            ("5e-324", PropertyValue::Float(5e-324)),
            ("0.30000000000000004", PropertyValue::Float(0.1 + 0.2)),
            (
                "1336817268049317.2",
                PropertyValue::Float(1_336_817_268_049_317.2),
            ),
            (
                "123456789012345680000.0",
                PropertyValue::Float(123_456_789_012_345_680_000.0),
            ),
        ] {
            assert_eq!(read(text), value, "{text}");
        }
        for text in [
            "18446744073709551616",
            "-9223372036854775809",
            "100000000000000000000",
            "1e400",
            "-1e400",
            "1e-400",
            "1e99999999999999999999",
            "0.1000000000000000055511151231257827",
            "3.14159265358979323846",
            "1.7976931348623157e309",
            // As near to the same float as 1336817268049317.2, which is what a float is written as.
            "1336817268049317.3",
        ] {
            let value = read(text);

            assert!(
                matches!(value, PropertyValue::Exact(_)),
                "{text}: {value:?}"
            );
            assert_eq!(value.to_string(), text);
            assert_eq!(serde_json::to_string(&value).unwrap(), text);
        }
    }
}
