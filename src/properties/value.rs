use std::borrow::Cow;
use std::fmt;

use serde::{Serialize, Serializer};
use serde_json::Value;

use super::float;
use super::json_text::JsonText;

/// The value of a property: text or a number (interface section 2.1). Any other JSON that the service
/// sends is kept.
///
/// Integers and fractions are kept apart as in JSON: `3` stays `3`, and `3.0` stays `3.0`. No number is
/// rounded: one that neither an integer nor an `f64` represents is [`Exact`](Self::Exact).
///
/// It converts from text, from integers of up to 64 bits, from `f32` and `f64`, and from `serde_json`'s
/// `Value` and `Number`.
///
/// A number must be finite. JSON cannot represent infinity and NaN, so calls that would send them fail
/// with [`ErrorKind::Input`](crate::ErrorKind::Input).
///
/// # Example: from Rust values, and back
///
/// ```
/// use audience::contacts::PropertyValue;
///
/// assert_eq!(PropertyValue::from("pro").as_str(), Some("pro"));
/// assert_eq!(PropertyValue::from(3).as_i64(), Some(3));
/// assert_eq!(PropertyValue::from(0.5).as_f64(), Some(0.5));
/// assert_eq!(PropertyValue::from(3).as_str(), None);
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum PropertyValue {
    /// Text.
    String(String),
    /// A whole number in the range of `i64`.
    Integer(i64),
    /// A whole number above the range of `i64`. Create it with `from`, which returns
    /// [`Integer`](Self::Integer) for a smaller number.
    Unsigned(u64),
    /// A number with a fraction or an exponent.
    Float(f64),
    /// A number that none of the variants above represents without rounding, such as `1e400`, or JSON
    /// that Rust cannot represent. Its text is kept, and sent as that JSON.
    ///
    /// Only JSON text has such a number; a `serde_json::Value` has rounded it already. Converting it to
    /// a `serde_json::Value` fails if the number is out of the range of `f64`.
    Exact(JsonText),
    /// JSON that section 2.1 does not mention.
    Other(Value),
}

impl PropertyValue {
    /// Returns the text, if the value is text.
    #[must_use]
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Self::String(text) => Some(text),
            _ => None,
        }
    }

    /// Returns the number, if the value is a whole number in the range of `i64`.
    #[must_use]
    pub fn as_i64(&self) -> Option<i64> {
        match self {
            Self::Integer(number) => Some(*number),
            Self::Unsigned(number) => i64::try_from(*number).ok(),
            _ => None,
        }
    }

    /// Returns the number, if the value is a whole number in the range of `u64`.
    #[must_use]
    pub fn as_u64(&self) -> Option<u64> {
        match self {
            Self::Integer(number) => u64::try_from(*number).ok(),
            Self::Unsigned(number) => Some(*number),
            _ => None,
        }
    }

    /// Returns the number, whole or not, rounded to the nearest `f64`. `None` if it is out of the range
    /// of `f64`.
    #[must_use]
    pub fn as_f64(&self) -> Option<f64> {
        match self {
            #[expect(clippy::cast_precision_loss, reason = "the doc says so")]
            Self::Integer(number) => Some(*number as f64),
            #[expect(clippy::cast_precision_loss, reason = "the doc says so")]
            Self::Unsigned(number) => Some(*number as f64),
            Self::Float(number) => Some(*number),
            Self::Exact(text) => text.as_str().parse().ok().filter(|n: &f64| n.is_finite()),
            Self::Other(value) => value.as_f64(),
            Self::String(_) => None,
        }
    }

    /// Returns whether JSON can represent the value. It cannot represent infinity and NaN:
    /// `serde_json` would silently send `null`.
    pub(crate) fn is_valid_json(&self) -> bool {
        !matches!(self, Self::Float(number) if !number.is_finite())
    }
}

/// Writes text without quotes, and everything else as JSON.
impl fmt::Display for PropertyValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::String(text) => f.write_str(text),
            Self::Integer(number) => number.fmt(f),
            Self::Unsigned(number) => number.fmt(f),
            Self::Exact(text) => text.fmt(f),
            Self::Float(number) => f.write_str(&float::to_json(*number)),
            Self::Other(value) => value.fmt(f),
        }
    }
}

impl Serialize for PropertyValue {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::String(text) => serializer.serialize_str(text),
            Self::Integer(number) => serializer.serialize_i64(*number),
            Self::Unsigned(number) => serializer.serialize_u64(*number),
            Self::Exact(text) => text.serialize(serializer),
            Self::Float(number) => serializer.serialize_f64(*number),
            Self::Other(value) => value.serialize(serializer),
        }
    }
}

impl From<Value> for PropertyValue {
    fn from(value: Value) -> Self {
        match value {
            Value::String(text) => Self::String(text),
            Value::Number(number) => Self::from(number),
            other => Self::Other(other),
        }
    }
}

impl From<&str> for PropertyValue {
    fn from(text: &str) -> Self {
        Self::String(text.to_owned())
    }
}

impl From<&String> for PropertyValue {
    fn from(text: &String) -> Self {
        Self::String(text.clone())
    }
}

impl From<Cow<'_, str>> for PropertyValue {
    fn from(text: Cow<'_, str>) -> Self {
        Self::String(text.into_owned())
    }
}

impl From<String> for PropertyValue {
    fn from(text: String) -> Self {
        Self::String(text)
    }
}

impl From<u64> for PropertyValue {
    fn from(number: u64) -> Self {
        i64::try_from(number).map_or(Self::Unsigned(number), Self::Integer)
    }
}

impl From<usize> for PropertyValue {
    fn from(number: usize) -> Self {
        Self::from(number as u64)
    }
}

impl From<isize> for PropertyValue {
    fn from(number: isize) -> Self {
        Self::Integer(number as i64)
    }
}

/// Converts to the shortest decimal number that is this `f32`: `0.1_f32` is sent as `0.1`, not as
/// `0.10000000149011612`.
impl From<f32> for PropertyValue {
    fn from(number: f32) -> Self {
        let shortest = number.to_string().parse();
        Self::Float(shortest.unwrap_or_else(|_| number.into()))
    }
}

impl From<f64> for PropertyValue {
    fn from(number: f64) -> Self {
        Self::Float(number)
    }
}

macro_rules! from_integers {
    ($($integer:ty),*) => {$(
        impl From<$integer> for PropertyValue {
            fn from(number: $integer) -> Self {
                Self::Integer(number.into())
            }
        }
    )*};
}

from_integers!(i8, i16, i32, i64, u8, u16, u32);

impl PartialEq<str> for PropertyValue {
    fn eq(&self, text: &str) -> bool {
        self.as_str() == Some(text)
    }
}

impl PartialEq<&str> for PropertyValue {
    fn eq(&self, text: &&str) -> bool {
        self.as_str() == Some(*text)
    }
}

impl PartialEq<i64> for PropertyValue {
    fn eq(&self, number: &i64) -> bool {
        self.as_i64() == Some(*number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_displayed_without_quotes_and_a_float_keeps_its_fraction() {
        assert_eq!(PropertyValue::from(3.0).to_string(), "3.0");
        assert_eq!(PropertyValue::from("3.0").to_string(), "3.0");
    }

    #[test]
    fn an_f32_is_the_shortest_decimal_number_that_identifies_it() {
        for (number, text) in [
            (0.1, "0.1"),
            (-2.5, "-2.5"),
            (16_777_216.0, "16777216.0"),
            (f32::MAX, "3.4028235e38"),
            (f32::MIN_POSITIVE, "1.1754944e-38"),
            (1e-45, "1e-45"),
            (-0.0, "-0.0"),
        ] {
            let value = PropertyValue::from(number);

            assert_eq!(
                serde_json::to_string(&value).unwrap().replace('+', ""),
                text
            );
        }
        for invalid in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            assert!(!PropertyValue::from(invalid).is_valid_json());
        }
    }
}
