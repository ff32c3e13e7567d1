use std::collections::{BTreeMap, HashMap, btree_map};
use std::fmt;
use std::ops::Index;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Number, Value};

use crate::json::Json;

/// The merge fields of a contact (interface section 2.1), by name.
///
/// # Example: written and read
///
/// ```
/// use audience::contacts::{Properties, PropertyValue};
///
/// let mut properties = Properties::from([("plan", "pro")]);
/// properties.insert("seats", 3);
///
/// assert_eq!(properties["plan"], "pro");
/// assert_eq!(properties.get("seats").and_then(PropertyValue::as_i64), Some(3));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Properties(BTreeMap<String, PropertyValue>);

impl Properties {
    /// None at all. Sent on an upsert, that clears those of an existing contact (section 2.4).
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets a property, and returns the value it had.
    pub fn insert(
        &mut self,
        name: impl Into<String>,
        value: impl Into<PropertyValue>,
    ) -> Option<PropertyValue> {
        self.0.insert(name.into(), value.into())
    }

    /// Takes a property out.
    pub fn remove(&mut self, name: &str) -> Option<PropertyValue> {
        self.0.remove(name)
    }

    /// The value of a property.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&PropertyValue> {
        self.0.get(name)
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Names and values, by name.
    #[must_use]
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &PropertyValue)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value))
    }
}

impl Index<&str> for Properties {
    type Output = PropertyValue;

    /// # Panics
    ///
    /// Where there is no property of that name; [`Properties::get`] does not.
    fn index(&self, name: &str) -> &PropertyValue {
        self.get(name).expect("no property of that name")
    }
}

impl<N: Into<String>, V: Into<PropertyValue>> FromIterator<(N, V)> for Properties {
    fn from_iter<I: IntoIterator<Item = (N, V)>>(pairs: I) -> Self {
        let mut properties = Self::new();
        properties.extend(pairs);
        properties
    }
}

impl<N: Into<String>, V: Into<PropertyValue>> Extend<(N, V)> for Properties {
    fn extend<I: IntoIterator<Item = (N, V)>>(&mut self, pairs: I) {
        self.0.extend(
            pairs
                .into_iter()
                .map(|(name, value)| (name.into(), value.into())),
        );
    }
}

impl<N: Into<String>, V: Into<PropertyValue>, const COUNT: usize> From<[(N, V); COUNT]>
    for Properties
{
    fn from(pairs: [(N, V); COUNT]) -> Self {
        Self::from_iter(pairs)
    }
}

impl<N: Into<String>, V: Into<PropertyValue>> From<Vec<(N, V)>> for Properties {
    fn from(pairs: Vec<(N, V)>) -> Self {
        Self::from_iter(pairs)
    }
}

impl<N: Into<String>, V: Into<PropertyValue>> From<BTreeMap<N, V>> for Properties {
    fn from(pairs: BTreeMap<N, V>) -> Self {
        Self::from_iter(pairs)
    }
}

impl<N: Into<String>, V: Into<PropertyValue>, S> From<HashMap<N, V, S>> for Properties {
    fn from(pairs: HashMap<N, V, S>) -> Self {
        Self::from_iter(pairs)
    }
}

impl<'a> IntoIterator for &'a Properties {
    type Item = (&'a String, &'a PropertyValue);
    type IntoIter = btree_map::Iter<'a, String, PropertyValue>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.iter()
    }
}

impl IntoIterator for Properties {
    type Item = (String, PropertyValue);
    type IntoIter = btree_map::IntoIter<String, PropertyValue>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

/// The value of a property: text or a number, as section 2.1 says; whatever else comes is kept.
///
/// Integers and fractions are told apart as they stand on the wire, so that `3` stays `3` and `3.0`
/// stays `3.0`.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum PropertyValue {
    /// Text.
    String(String),
    /// A whole number.
    Integer(i64),
    /// A number with a fraction or an exponent.
    Float(f64),
    /// What section 2.1 does not foresee, and integers beyond `i64`.
    Other(Value),
}

impl PropertyValue {
    /// The text, if it is one.
    #[must_use]
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Self::String(text) => Some(text),
            _ => None,
        }
    }

    /// The whole number, if it is one.
    #[must_use]
    pub fn as_i64(&self) -> Option<i64> {
        match self {
            Self::Integer(number) => Some(*number),
            _ => None,
        }
    }

    /// The number, whole or not, as near as an `f64` comes to it.
    #[must_use]
    pub fn as_f64(&self) -> Option<f64> {
        match self {
            #[expect(clippy::cast_precision_loss, reason = "said above")]
            Self::Integer(number) => Some(*number as f64),
            Self::Float(number) => Some(*number),
            Self::Other(value) => value.as_f64(),
            Self::String(_) => None,
        }
    }

    /// Whether JSON can hold it: an infinity or NaN it cannot, and would silently send `null`.
    pub(crate) fn is_writable(&self) -> bool {
        !matches!(self, Self::Float(number) if !number.is_finite())
    }
}

/// Text as it is, everything else as JSON.
impl fmt::Display for PropertyValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::String(text) => f.write_str(text),
            Self::Integer(number) => number.fmt(f),
            Self::Float(number) => write!(f, "{number:?}"),
            Self::Other(value) => value.fmt(f),
        }
    }
}

impl Serialize for PropertyValue {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::String(text) => serializer.serialize_str(text),
            Self::Integer(number) => serializer.serialize_i64(*number),
            Self::Float(number) => serializer.serialize_f64(*number),
            Self::Other(value) => value.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for PropertyValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Json::deserialize(deserializer).map(|Json(value)| Self::from(value))
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

impl From<Number> for PropertyValue {
    fn from(number: Number) -> Self {
        match (number.as_i64(), number.as_f64()) {
            (Some(whole), _) => Self::Integer(whole),
            (None, Some(float)) if number.is_f64() => Self::Float(float),
            _ => Self::Other(Value::Number(number)),
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

impl From<String> for PropertyValue {
    fn from(text: String) -> Self {
        Self::String(text)
    }
}

impl From<u64> for PropertyValue {
    fn from(number: u64) -> Self {
        Self::from(Number::from(number))
    }
}

impl From<usize> for PropertyValue {
    fn from(number: usize) -> Self {
        Self::from(Number::from(number))
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
    fn every_value_is_kept_exactly_as_it_stood() {
        let text = concat!(
            r#"{"a":"x","b":3,"c":3.0,"d":-0.1,"e":9007199254740993,"f":-9223372036854775808,"#,
            r#""g":18446744073709551615,"h":true,"i":null,"j":[1,"x"],"k":{"l":1.5},"m":"é\n"}"#,
        );

        let properties: Properties = serde_json::from_str(text).unwrap();

        assert_eq!(serde_json::to_string(&properties).unwrap(), text);
        assert_eq!(properties["b"], PropertyValue::Integer(3));
        assert_eq!(properties["c"], PropertyValue::Float(3.0));
        assert_eq!(properties["h"], PropertyValue::Other(true.into()));
    }

    #[test]
    fn properties_come_from_whatever_holds_pairs_and_are_walked_by_reference() {
        let plan = "pro".to_owned();
        let from_map = Properties::from(HashMap::from([("plan", &plan)]));
        let from_pairs = Properties::from(vec![("plan".to_owned(), plan.as_str())]);

        assert_eq!(from_map, from_pairs);
        for (name, value) in &from_map {
            assert_eq!(
                (name.as_str(), value),
                ("plan", &PropertyValue::from("pro"))
            );
        }
        assert_eq!(PropertyValue::from(3.0).to_string(), "3.0");
        assert_eq!(PropertyValue::from("3.0").to_string(), "3.0");
    }

    #[test]
    fn values_read_as_what_they_are() {
        let properties = Properties::from_iter([
            ("n", PropertyValue::from(7_u64)),
            ("f", 0.5.into()),
            ("s", "x".into()),
        ]);

        assert_eq!(properties["n"], 7);
        assert_eq!(properties["s"], "x");
        assert_eq!(properties["n"].as_f64(), Some(7.0));
        assert_eq!(properties["f"].as_i64(), None);
        assert_eq!(properties.get("missing"), None);
    }
}
