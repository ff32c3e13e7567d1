use std::collections::{BTreeMap, HashMap, btree_map};
use std::ops::Index;

use serde::{Deserialize, Serialize};

mod float;
mod json_text;
mod number;
mod parse;
mod value;

pub use json_text::JsonText;
pub use value::PropertyValue;

/// The merge fields of a contact (interface section 2.1), sorted by name.
///
/// # Example: set and read properties
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
    /// Creates an empty map. Sent with an upsert, it clears the properties of an existing contact
    /// (section 2.4).
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets a property and returns its old value, if it had one.
    ///
    /// # Example: text and numbers
    ///
    /// ```
    /// use audience::contacts::Properties;
    ///
    /// let mut properties = Properties::new();
    /// properties.insert("plan", "free");
    /// properties.insert("rate", 0.5);
    ///
    /// let old = properties.insert("plan", "pro");
    /// assert_eq!(old.unwrap(), "free");
    /// ```
    pub fn insert(
        &mut self,
        name: impl Into<String>,
        value: impl Into<PropertyValue>,
    ) -> Option<PropertyValue> {
        self.0.insert(name.into(), value.into())
    }

    /// Removes a property and returns its value, if there was one.
    pub fn remove(&mut self, name: &str) -> Option<PropertyValue> {
        self.0.remove(name)
    }

    /// Returns the value of a property, if it is set.
    ///
    /// # Example: a property that may be missing
    ///
    /// ```
    /// use audience::contacts::{Properties, PropertyValue};
    ///
    /// let properties = Properties::from([("plan", "pro")]);
    ///
    /// let plan = properties.get("plan").and_then(PropertyValue::as_str);
    /// assert_eq!(plan, Some("pro"));
    /// assert_eq!(properties.get("seats"), None);
    /// ```
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&PropertyValue> {
        self.0.get(name)
    }

    /// Returns the number of properties.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns whether there are no properties.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Iterates over names and values, sorted by name.
    #[must_use]
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &PropertyValue)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value))
    }
}

impl Index<&str> for Properties {
    type Output = PropertyValue;

    /// Returns the value of a property.
    ///
    /// # Panics
    ///
    /// Panics if no property has this name. Use [`Properties::get`] if it may be missing.
    fn index(&self, name: &str) -> &PropertyValue {
        self.get(name).expect("no property with that name")
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_json_value_is_kept_verbatim() {
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
    fn properties_convert_from_any_collection_of_pairs_and_iterate_by_reference() {
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
    }

    #[test]
    fn values_are_read_by_their_type() {
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
