use serde_json::Number;

use crate::Error;
use crate::properties::PropertyValue;

/// A test of the value of a property.
///
/// The methods of [`PropertyCondition`](super::PropertyCondition) create it. The variants are public so
/// that a program can match on a rule read from JSON.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum PropertyTest {
    /// `is`: the value equals this one.
    Is(PropertyValue),
    /// `is_not`: the value does not equal this one.
    IsNot(PropertyValue),
    /// `contains`: the value contains this text.
    Contains(String),
    /// `is_set`: the property has a value.
    IsSet,
    /// `is_not_set`: the property has no value.
    IsNotSet,
    /// `greater_than`: the value is a number above this one.
    GreaterThan(NumberOperand),
    /// `less_than`: the value is a number below this one.
    LessThan(NumberOperand),
}

impl PropertyTest {
    /// Returns whether JSON can represent the operand.
    pub(super) fn is_valid_json(&self) -> bool {
        match self {
            Self::Is(value) | Self::IsNot(value) => value.is_valid_json(),
            Self::GreaterThan(number) | Self::LessThan(number) => number.0.is_valid_json(),
            Self::Contains(_) | Self::IsSet | Self::IsNotSet => true,
        }
    }
}

/// The number that `greater_than` and `less_than` compare a property with: an integer or a float,
/// never text.
///
/// It converts from Rust's number types, so `greater_than(2)` needs no conversion. A [`PropertyValue`] may
/// be text, so `try_from` converts it.
///
/// # Example: read the operand of a condition
///
/// ```
/// use audience::rule::NumberOperand;
///
/// assert_eq!(NumberOperand::from(2).as_f64(), 2.0);
/// assert_eq!(NumberOperand::from(0.5).as_f64(), 0.5);
/// ```
///
/// # Example: a number read at run time
///
/// ```
/// use audience::contacts::PropertyValue;
/// use audience::rule::{Condition, NumberOperand};
///
/// let given = PropertyValue::from(2.5);
/// let condition = Condition::property("rate").greater_than(NumberOperand::try_from(given)?);
///
/// assert!(NumberOperand::try_from(PropertyValue::from("many")).is_err());
/// # Ok::<(), audience::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct NumberOperand(pub(super) PropertyValue);

impl NumberOperand {
    /// Returns the number, rounded to the nearest `f64`.
    #[must_use]
    pub fn as_f64(&self) -> f64 {
        self.0.as_f64().unwrap_or(f64::NAN)
    }
}

macro_rules! from_numbers {
    ($($number:ty),*) => {$(
        impl From<$number> for NumberOperand {
            fn from(number: $number) -> Self {
                Self(number.into())
            }
        }
    )*};
}

from_numbers!(
    i8, i16, i32, i64, isize, u8, u16, u32, u64, usize, f32, f64, Number
);

/// Converts a number.
///
/// # Errors
///
/// [`ErrorKind::Input`](crate::ErrorKind::Input) if the value is not a number, or is out of the range of
/// `f64`.
impl TryFrom<PropertyValue> for NumberOperand {
    type Error = Error;

    fn try_from(value: PropertyValue) -> Result<Self, Error> {
        match value.as_f64() {
            Some(_) => Ok(Self(value)),
            None => Err(Error::input(
                "a property is compared with a value that is not a number; use a number, or `is` to compare text",
            )),
        }
    }
}
