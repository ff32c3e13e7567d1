use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::iter::Map;
use std::ops::Index;
use std::{fmt, slice};

use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Number, Value};

/// The properties of a contact, sorted by name: text and numbers that the sender stores with it
/// ([interface section 2.1](crate::interface#2.1)).
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
// A sorted vector, with each name once. A contact has few properties, and one node of a tree is as large as eleven of
// them.
#[derive(Clone, Default, PartialEq)]
pub struct Properties(Vec<(String, PropertyValue)>);

impl Properties {
    /// Creates an empty map. An upsert that sends it clears the properties of an existing contact
    /// ([section 2.4](crate::interface#2.4)).
    ///
    /// # Example: remove all properties of a contact
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), audience::Error> {
    /// # let server = audience::mock::MockServer::start().await;
    /// # let contacts = server.client().contacts();
    /// # contacts.create(audience::contacts::NewContact::new("ada@example.com").property("plan", "pro")).await?;
    /// use audience::contacts::{NewContact, Properties};
    ///
    /// let ada = NewContact::new("ada@example.com").properties(Properties::new());
    /// let updated = contacts.create(ada).await?.contact;
    ///
    /// assert!(updated.properties.is_empty());
    /// # Ok(()) }
    /// ```
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
        let (name, value) = (name.into(), value.into());
        match self.place_of(&name) {
            Ok(place) => Some(std::mem::replace(&mut self.0[place].1, value)),
            Err(place) => {
                self.0.insert(place, (name, value));
                None
            }
        }
    }

    /// Removes a property and returns its value, if there was one.
    ///
    /// # Example: remove one property of a contact
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), audience::Error> {
    /// # let server = audience::mock::MockServer::start().await;
    /// # let contacts = server.client().contacts();
    /// # let ada = audience::contacts::NewContact::new("ada@example.com").property("plan", "pro").property("seats", 3);
    /// # contacts.create(ada).await?;
    /// use audience::contacts::NewContact;
    ///
    /// let mut properties = contacts.retrieve("ada@example.com").await?.properties;
    /// let removed = properties.remove("seats");
    /// assert_eq!(removed.unwrap(), 3);
    ///
    /// // An upsert replaces all stored properties.
    /// let ada = NewContact::new("ada@example.com").properties(properties);
    /// let updated = contacts.create(ada).await?.contact;
    /// assert_eq!(updated.properties.get("seats"), None);
    /// # Ok(()) }
    /// ```
    pub fn remove(&mut self, name: &str) -> Option<PropertyValue> {
        let place = self.place_of(name).ok()?;
        Some(self.0.remove(place).1)
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
        let place = self.place_of(name).ok()?;
        Some(&self.0[place].1)
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

    /// Returns an iterator over names and values, sorted by name.
    ///
    /// # Example: print all properties
    ///
    /// ```
    /// use audience::contacts::Properties;
    ///
    /// let properties = Properties::from([("plan", "pro"), ("city", "London")]);
    ///
    /// let lines: Vec<String> = properties.iter().map(|(name, value)| format!("{name}={value}")).collect();
    /// assert_eq!(lines, ["city=London", "plan=pro"]);
    /// ```
    #[must_use]
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &PropertyValue)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value))
    }

    /// Returns the place of a property, or else the place where it belongs.
    fn place_of(&self, name: &str) -> Result<usize, usize> {
        self.0.binary_search_by(|(own, _)| own.as_str().cmp(name))
    }

    /// Sorts the properties. If several have the same name, keeps the last.
    fn sort(&mut self) {
        // Nearly always, they are sorted already.
        if self.0.is_sorted_by(|(name, _), (next, _)| name < next) {
            return;
        }
        self.0.sort_by(|(name, _), (next, _)| name.cmp(next));
        self.0.dedup_by(|(next, newer), (name, value)| {
            let is_same = next == name;
            if is_same {
                std::mem::swap(value, newer);
            }
            is_same
        });
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
        let pairs = pairs.into_iter();
        self.0
            .extend(pairs.map(|(name, value)| (name.into(), value.into())));
        // Once for all of them: inserting each into its place would take forever if a response has a million.
        self.sort();
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
    type IntoIter = Map<slice::Iter<'a, (String, PropertyValue)>, AsPair>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.iter().map(|(name, value)| (name, value))
    }
}

/// Returns references to both members of a pair.
type AsPair = for<'a> fn(&'a (String, PropertyValue)) -> (&'a String, &'a PropertyValue);

impl IntoIterator for Properties {
    type Item = (String, PropertyValue);
    type IntoIter = std::vec::IntoIter<(String, PropertyValue)>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl fmt::Debug for Properties {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self).finish()
    }
}

impl Serialize for Properties {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self)
    }
}

/// Reads a JSON object. If a name is in it twice, the last value counts.
impl<'de> Deserialize<'de> for Properties {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(PropertiesVisitor)
    }
}

struct PropertiesVisitor;

impl<'de> Visitor<'de> for PropertiesVisitor {
    type Value = Properties;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Properties, A::Error> {
        let mut properties = Properties::new();
        while let Some(member) = members.next_entry()? {
            properties.0.push(member);
        }
        properties.sort();
        Ok(properties)
    }
}

/// The value of a property: text or a number ([interface section 2.1](crate::interface#2.1)). Any other JSON that the
/// service sends is kept.
///
/// Whole numbers of up to 64 bits are exact, and `3` and `3.0` differ as in JSON. Any other number is
/// rounded to the nearest `f64`. A number too large for an `f64`, such as `1e400`, cannot be read.
///
/// It converts from text, from integers of up to 64 bits, from `f32` and `f64`, and from `serde_json`'s
/// `Value` and `Number`.
///
/// A number must be finite. JSON cannot represent infinity and NaN, so a call with such a number fails
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
    /// A number with a fraction or an exponent, or a whole number beyond 64 bits.
    Float(f64),
    /// JSON that [section 2.1](crate::interface#2.1) does not mention.
    Other(Value),
}

impl PropertyValue {
    /// Returns the text, if the value is text.
    ///
    /// # Example: a property that may be a number
    ///
    /// ```
    /// use audience::contacts::PropertyValue;
    ///
    /// assert_eq!(PropertyValue::from("pro").as_str(), Some("pro"));
    /// assert_eq!(PropertyValue::from(3).as_str(), None);
    /// ```
    #[must_use]
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Self::String(text) => Some(text),
            _ => None,
        }
    }

    /// Returns the number, if the value is a whole number in the range of `i64`.
    ///
    /// # Example: whole numbers only
    ///
    /// ```
    /// use audience::contacts::PropertyValue;
    ///
    /// assert_eq!(PropertyValue::from(-3).as_i64(), Some(-3));
    /// assert_eq!(PropertyValue::from(2.5).as_i64(), None);
    /// ```
    #[must_use]
    pub fn as_i64(&self) -> Option<i64> {
        match self {
            Self::Integer(number) => Some(*number),
            Self::Unsigned(number) => i64::try_from(*number).ok(),
            _ => None,
        }
    }

    /// Returns the number, if the value is a whole number in the range of `u64`.
    ///
    /// # Example: a count is never negative
    ///
    /// ```
    /// use audience::contacts::PropertyValue;
    ///
    /// assert_eq!(PropertyValue::from(u64::MAX).as_u64(), Some(u64::MAX));
    /// assert_eq!(PropertyValue::from(-3).as_u64(), None);
    /// ```
    #[must_use]
    pub fn as_u64(&self) -> Option<u64> {
        match self {
            Self::Integer(number) => u64::try_from(*number).ok(),
            Self::Unsigned(number) => Some(*number),
            _ => None,
        }
    }

    /// Returns the number, whole or not, rounded to the nearest `f64`.
    ///
    /// # Example: add up numbers of both kinds
    ///
    /// ```
    /// use audience::contacts::{Properties, PropertyValue};
    ///
    /// let mut prices = Properties::new();
    /// prices.insert("base", 10);
    /// prices.insert("tax", 1.5);
    ///
    /// let total: f64 = prices.iter().filter_map(|(_, price)| price.as_f64()).sum();
    /// assert_eq!(total, 11.5);
    /// ```
    #[must_use]
    pub fn as_f64(&self) -> Option<f64> {
        match self {
            #[expect(clippy::cast_precision_loss, reason = "the doc says so")]
            Self::Integer(number) => Some(*number as f64),
            #[expect(clippy::cast_precision_loss, reason = "the doc says so")]
            Self::Unsigned(number) => Some(*number as f64),
            Self::Float(number) => Some(*number),
            Self::Other(value) => value.as_f64(),
            Self::String(_) => None,
        }
    }

    /// Returns whether a service may show the value like this. Many write a whole number without its fraction.
    pub(crate) fn is_shown_as(&self, shown: &Self) -> bool {
        let is_float = matches!(self, Self::Float(_)) || matches!(shown, Self::Float(_));
        self == shown || is_float && self.as_f64().is_some() && self.as_f64() == shown.as_f64()
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
            // `Display` of `f64` omits the fraction of `3.0`.
            Self::Float(number) => match Number::from_f64(*number) {
                Some(number) => number.fmt(f),
                None => number.fmt(f),
            },
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
            Self::Float(number) => serializer.serialize_f64(*number),
            Self::Other(value) => value.serialize(serializer),
        }
    }
}

/// Reads any JSON value.
impl<'de> Deserialize<'de> for PropertyValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ValueVisitor)
    }
}

struct ValueVisitor;

impl<'de> Visitor<'de> for ValueVisitor {
    type Value = PropertyValue;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON value")
    }

    fn visit_str<E>(self, text: &str) -> Result<PropertyValue, E> {
        Ok(text.into())
    }

    fn visit_string<E>(self, text: String) -> Result<PropertyValue, E> {
        Ok(text.into())
    }

    fn visit_i64<E>(self, number: i64) -> Result<PropertyValue, E> {
        Ok(number.into())
    }

    fn visit_u64<E>(self, number: u64) -> Result<PropertyValue, E> {
        Ok(number.into())
    }

    fn visit_f64<E>(self, number: f64) -> Result<PropertyValue, E> {
        Ok(number.into())
    }

    fn visit_bool<E>(self, value: bool) -> Result<PropertyValue, E> {
        Ok(PropertyValue::Other(value.into()))
    }

    fn visit_unit<E>(self) -> Result<PropertyValue, E> {
        Ok(PropertyValue::Other(Value::Null))
    }

    fn visit_none<E>(self) -> Result<PropertyValue, E> {
        Ok(PropertyValue::Other(Value::Null))
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<PropertyValue, D::Error> {
        deserializer.deserialize_any(self)
    }

    // The service documents only text and numbers, but a property of any other type must not make a contact unreadable.
    fn visit_seq<A: SeqAccess<'de>>(self, items: A) -> Result<PropertyValue, A::Error> {
        Value::deserialize(SeqAccessDeserializer::new(items)).map(PropertyValue::from)
    }

    // With the feature `arbitrary_precision` of `serde_json`, a number arrives as a map too.
    fn visit_map<A: MapAccess<'de>>(self, members: A) -> Result<PropertyValue, A::Error> {
        Value::deserialize(MapAccessDeserializer::new(members)).map(PropertyValue::from)
    }
}

impl From<Number> for PropertyValue {
    fn from(number: Number) -> Self {
        if let Some(number) = number.as_i64() {
            Self::Integer(number)
        // Not through `f64`, which would round numbers above 2^53.
        } else if let Some(number) = number.as_u64() {
            Self::Unsigned(number)
        } else {
            let float = number.as_f64().map(Self::Float);
            float.unwrap_or(Self::Other(Value::Number(number)))
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

impl PartialEq<String> for PropertyValue {
    fn eq(&self, text: &String) -> bool {
        self.as_str() == Some(text.as_str())
    }
}

/// Compares with [`as_f64`](PropertyValue::as_f64), so the whole number 3 equals `3.0`.
impl PartialEq<f64> for PropertyValue {
    fn eq(&self, number: &f64) -> bool {
        self.as_f64() == Some(*number)
    }
}

// `i32` is the type of a literal.
macro_rules! equal_integers {
    ($($integer:ty),*) => {$(
        impl PartialEq<$integer> for PropertyValue {
            fn eq(&self, number: &$integer) -> bool {
                let signed = self.as_i64().map(i128::from);
                let whole = signed.or_else(|| self.as_u64().map(i128::from));
                whole == Some(i128::from(*number))
            }
        }
    )*};
}

equal_integers!(i32, i64, u32, u64);

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> PropertyValue {
        serde_json::from_str(text).unwrap()
    }

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

        let sorted = Properties::from(BTreeMap::from([("plan", plan.as_str())]));

        assert_eq!(from_map, from_pairs);
        assert_eq!(from_map, sorted);
        for (name, value) in &from_map {
            assert_eq!(
                (name.as_str(), value),
                ("plan", &PropertyValue::from("pro"))
            );
        }
    }

    #[test]
    fn a_whole_number_is_read_as_either_type_if_it_fits() {
        let (signed, unsigned) = (PropertyValue::Integer(3), PropertyValue::Unsigned(3));

        for number in [signed, unsigned] {
            assert_eq!((number.as_i64(), number.as_u64()), (Some(3), Some(3)));
        }
        assert_eq!(PropertyValue::Unsigned(u64::MAX).as_i64(), None);
        assert_eq!(PropertyValue::Integer(-3).as_u64(), None);
    }

    #[test]
    fn a_value_compares_with_texts_and_numbers() {
        let (plan, text) = (PropertyValue::from("pro"), "pro".to_owned());
        assert!(plan == "pro" && plan == text && plan != 3 && plan != 0.5);

        let seats = PropertyValue::from(3);
        assert!(seats == 3 && seats == 3_i64 && seats == 3_u32 && seats == 3_u64 && seats == 3.0);
        assert!(seats != -3 && seats != 3.5 && seats != "3" && seats != text);

        let large = PropertyValue::from(u64::MAX);
        assert!(large == u64::MAX && large != -1);
        let [half, three] = [0.5, 3.0].map(PropertyValue::from);
        assert!(half == 0.5 && three == 3.0 && three != 3);
    }

    #[test]
    fn what_is_not_json_is_refused_with_what_was_expected() {
        use serde::de::value::{BytesDeserializer, Error};

        let properties = serde_json::from_str::<Properties>("3").unwrap_err();
        let value = PropertyValue::deserialize(BytesDeserializer::<Error>::new(b"x")).unwrap_err();

        assert!(
            properties.to_string().contains("expected a map"),
            "{properties}"
        );
        assert!(
            value.to_string().contains("expected any JSON value"),
            "{value}"
        );
    }

    #[test]
    fn properties_in_reverse_order_are_found() {
        let properties = Properties::from([("c", 3), ("b", 2), ("a", 1)]);

        let values =
            ["a", "b", "c"].map(|name| properties.get(name).and_then(PropertyValue::as_i64));

        assert_eq!(values, [Some(1), Some(2), Some(3)]);
    }

    #[test]
    fn properties_are_sorted_and_the_last_value_of_a_name_counts() {
        let text = r#"{"b":1,"a":2,"c":3,"a":4,"b":5}"#;
        let sorted = r#"{"a":4,"b":5,"c":3}"#;
        let pairs = [("b", 1), ("a", 2), ("c", 3), ("a", 4), ("b", 5)];
        let read: Properties = serde_json::from_str(text).unwrap();
        let mut extended = Properties::from([("b", 0), ("d", 0)]);
        extended.extend(pairs);
        let mut inserted = Properties::new();
        for (name, value) in pairs {
            inserted.insert(name, value);
        }

        assert_eq!(extended.remove("d").unwrap(), 0);
        assert_eq!(extended.remove("d"), None);
        for properties in [read, extended, inserted, Properties::from_iter(pairs)] {
            assert_eq!(serde_json::to_string(&properties).unwrap(), sorted);
            assert_eq!((properties.len(), &properties["b"]), (3, &5_u64.into()));
            assert!(!properties.is_empty());
        }
        assert!(Properties::new().is_empty());
        // In order already.
        let twice = Properties::from([("a", 1), ("b", 2), ("b", 3)]);
        assert_eq!((twice.len(), &twice["b"]), (2, &3_u64.into()));
    }

    #[test]
    fn a_million_properties_in_the_wrong_order_are_read_in_an_instant() {
        let members: Vec<_> = (0..1_000_000).rev().map(|n| format!("\"{n}\":1")).collect();
        let text = format!("{{{}}}", members.join(","));

        let properties: Properties = serde_json::from_str(&text).unwrap();

        assert_eq!(properties.len(), 1_000_000);
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

    #[test]
    fn a_value_equals_only_text_and_numbers_of_its_own() {
        let (seven, pro) = (PropertyValue::from(7), PropertyValue::from("pro"));

        assert!(seven == 7 && pro == "pro" && pro == *"pro");
        assert!(seven != 8 && seven != "7" && seven != *"7");
        assert!(pro != 7 && pro != "free" && pro != *"free");
    }

    #[test]
    fn a_number_is_an_integer_of_64_bits_or_the_nearest_float() {
        for (text, value) in [
            ("0", PropertyValue::Integer(0)),
            ("-7", PropertyValue::Integer(-7)),
            ("-9223372036854775808", PropertyValue::Integer(i64::MIN)),
            ("9223372036854775808", PropertyValue::Unsigned(1 << 63)),
            ("18446744073709551615", PropertyValue::Unsigned(u64::MAX)),
            ("-0", PropertyValue::Float(-0.0)),
            ("1.50", PropertyValue::Float(1.5)),
            ("1E3", PropertyValue::Float(1000.0)),
            ("1.25e-99", PropertyValue::Float(1.25e-99)),
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
            (
                "18446744073709551616",
                PropertyValue::Float(18_446_744_073_709_551_616.0),
            ),
            (
                "-9223372036854775809",
                PropertyValue::Float(-9_223_372_036_854_775_808.0),
            ),
            ("1e-400", PropertyValue::Float(0.0)),
        ] {
            assert_eq!(read(text), value, "{text}");
        }
    }

    #[test]
    fn what_rust_cannot_represent_is_refused() {
        let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
        for text in [
            "1e400",
            "-1e400",
            r#""\ud800""#,
            r#"{"a":[1,1e400]}"#,
            &deep,
        ] {
            assert!(serde_json::from_str::<PropertyValue>(text).is_err());
        }
    }

    #[test]
    fn a_value_is_read_from_any_source_of_json() {
        let text = r#"[1,"x",18446744073709551615,0.5,true,null,[1],{"a":1}]"#;
        let value: Value = serde_json::from_str(text).unwrap();
        let from_text: Vec<PropertyValue> = serde_json::from_str(text).unwrap();

        let from_value: Vec<PropertyValue> = serde_json::from_value(value.clone()).unwrap();
        let from_ref = Vec::<PropertyValue>::deserialize(&value).unwrap();
        let from_reader: Vec<PropertyValue> = serde_json::from_reader(text.as_bytes()).unwrap();
        let converted: Vec<_> = value
            .as_array()
            .unwrap()
            .iter()
            .cloned()
            .map(PropertyValue::from)
            .collect();

        for read in [from_value, from_ref, from_reader, converted] {
            assert_eq!(read, from_text);
        }
        assert_eq!(serde_json::to_string(&from_text).unwrap(), text);
    }

    /// serde's buffer for untagged enums gives the type of a value and not its text, as other formats do.
    #[test]
    fn a_value_is_read_from_a_format_without_text() {
        #[derive(Deserialize, Debug)]
        #[serde(untagged)]
        enum Buffered {
            Values(Vec<PropertyValue>),
        }
        let text = r#"[1,"x",18446744073709551615,0.5,true,null,[1,2.5],{"a":1,"b":null},{}]"#;

        let Buffered::Values(values) = serde_json::from_str(text).unwrap();

        assert_eq!(
            values,
            serde_json::from_str::<Vec<PropertyValue>>(text).unwrap()
        );
    }

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
