//! Reads a property from the text of its JSON, so that no number is rounded and no value is an error.

use std::fmt;

use serde::Deserialize;
use serde::de::{self, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;
use serde_json::{Map, Number, Value};

use super::json_text::JsonText;
use super::number::{number, numbers};
use super::value::PropertyValue;
use crate::Error;
use crate::json::{AnyJson, Json};

impl PropertyValue {
    /// Reads a value from JSON.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Input`](crate::ErrorKind::Input) if the text is not valid JSON.
    ///
    /// # Example: a number with more digits than an `f64` holds
    ///
    /// ```
    /// use audience::contacts::{NewContact, PropertyValue};
    ///
    /// let balance = PropertyValue::from_json("12345678901234567890.12")?;
    ///
    /// assert_eq!(balance.to_string(), "12345678901234567890.12");
    /// let ada = NewContact::new("ada@example.com").property("balance", balance);
    /// # Ok::<(), audience::Error>(())
    /// ```
    pub fn from_json(text: &str) -> Result<Self, Error> {
        parse(text).ok_or_else(|| {
            Error::input("the text of a property is not valid JSON; put text in quotes")
        })
    }
}

impl<'de> Deserialize<'de> for PropertyValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_newtype_struct(RAW_VALUE, ValueVisitor)
    }
}

impl From<Number> for PropertyValue {
    fn from(number: Number) -> Self {
        let text = number.to_string();
        parse(&text).unwrap_or(Self::Other(Value::Number(number)))
    }
}

/// Reads a value from its JSON text. `None` if the text is not one JSON value.
fn parse(text: &str) -> Option<PropertyValue> {
    let text = serde_json::from_str::<&RawValue>(text).ok()?;
    Some(from_valid(text))
}

/// Reads a string or a number, which nearly all values are. `None` if the text is anything else or is not
/// represented exactly.
fn parse_simple(text: &str) -> Option<PropertyValue> {
    match text.as_bytes().first()? {
        b'"' => serde_json::from_str(text).ok().map(PropertyValue::String),
        b'-' | b'0'..=b'9' => number(text),
        _ => None,
    }
}

/// Reads a value of any other type. `None` if a number in it would be rounded.
fn parse_other(text: &str) -> Option<PropertyValue> {
    let Json(value) = serde_json::from_str(text).ok()?;
    let is_exact = numbers(text).all(|text| number(text).is_some());
    is_exact.then_some(PropertyValue::Other(value))
}

/// Reads a value from JSON. What Rust cannot represent, such as half of a surrogate pair or nesting too deep
/// to parse, is kept as text.
fn from_valid(json: &RawValue) -> PropertyValue {
    let text = json.get();
    let value = parse_simple(text).or_else(|| parse_other(text));
    value.unwrap_or_else(|| PropertyValue::Exact(JsonText::new(json)))
}

/// The name under which `serde_json` gives the text of a value instead of the value. The name is private: if
/// it ever changes, `serde_json` parses the value as any other format does, and nothing else is lost.
const RAW_VALUE: &str = "$serde_json::private::RawValue";

/// Reads a value of any format: from `serde_json` by its text, from any other by its type.
struct ValueVisitor;

impl<'de> Visitor<'de> for ValueVisitor {
    type Value = PropertyValue;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON value")
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(
        self,
        deserializer: D,
    ) -> Result<PropertyValue, D::Error> {
        deserializer.deserialize_any(self)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<PropertyValue, A::Error> {
        let mut object = Map::new();
        match members.next_key()? {
            Some(FirstName::RawValue) => return members.next_value_seed(FromText),
            Some(FirstName::Other(name)) => {
                let Json(value) = members.next_value()?;
                object.insert(name, value);
            }
            None => {}
        }
        while let Some((name, Json(value))) = members.next_entry()? {
            object.insert(name, value);
        }
        Ok(PropertyValue::Other(Value::Object(object)))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, items: A) -> Result<PropertyValue, A::Error> {
        AnyJson.visit_seq(items).map(PropertyValue::Other)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<PropertyValue, D::Error> {
        deserializer.deserialize_any(self)
    }

    fn visit_none<E>(self) -> Result<PropertyValue, E> {
        Ok(PropertyValue::Other(Value::Null))
    }

    fn visit_unit<E>(self) -> Result<PropertyValue, E> {
        Ok(PropertyValue::Other(Value::Null))
    }

    fn visit_bool<E>(self, value: bool) -> Result<PropertyValue, E> {
        Ok(PropertyValue::Other(value.into()))
    }

    fn visit_i64<E>(self, number: i64) -> Result<PropertyValue, E> {
        Ok(number.into())
    }

    fn visit_u64<E>(self, number: u64) -> Result<PropertyValue, E> {
        Ok(number.into())
    }

    fn visit_i128<E: de::Error>(self, number: i128) -> Result<PropertyValue, E> {
        parse(&number.to_string()).ok_or_else(|| E::custom("a number that JSON cannot represent"))
    }

    fn visit_u128<E: de::Error>(self, number: u128) -> Result<PropertyValue, E> {
        parse(&number.to_string()).ok_or_else(|| E::custom("a number that JSON cannot represent"))
    }

    fn visit_f64<E: de::Error>(self, number: f64) -> Result<PropertyValue, E> {
        AnyJson.visit_f64(number).map(|_| number.into())
    }

    fn visit_str<E>(self, text: &str) -> Result<PropertyValue, E> {
        Ok(text.into())
    }

    fn visit_string<E>(self, text: String) -> Result<PropertyValue, E> {
        Ok(text.into())
    }
}

/// The name of the first member of an object. It is `RAW_VALUE` for nearly every value, so that name is not
/// copied into a `String`.
enum FirstName {
    RawValue,
    Other(String),
}

impl<'de> Deserialize<'de> for FirstName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(FirstNameVisitor)
    }
}

struct FirstNameVisitor;

impl Visitor<'_> for FirstNameVisitor {
    type Value = FirstName;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string")
    }

    fn visit_str<E>(self, name: &str) -> Result<FirstName, E> {
        Ok(match name {
            RAW_VALUE => FirstName::RawValue,
            _ => FirstName::Other(name.to_owned()),
        })
    }
}

/// Reads a value from the string that holds its JSON text.
struct FromText;

impl<'de> DeserializeSeed<'de> for FromText {
    type Value = PropertyValue;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<PropertyValue, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for FromText {
    type Value = PropertyValue;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON text")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<PropertyValue, E> {
        // `serde_json` has checked the text already, so `parse` would only check it again.
        let value = parse_simple(text).or_else(|| parse(text));
        value.ok_or_else(|| E::custom("invalid JSON"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> PropertyValue {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn a_value_that_rust_cannot_represent_is_kept_as_its_text() {
        let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
        for text in [
            r#""\ud800""#,
            r#"{"a":[1,1e400]}"#,
            r#"["\"",0.10000000000000000001]"#,
            &deep,
        ] {
            let value = read(text);

            assert!(matches!(value, PropertyValue::Exact(_)));
            assert_eq!(serde_json::to_string(&value).unwrap(), text);
        }
        assert_eq!(
            read(r#"["1e400\\", "\"1e400", {"1e400": 1.5}]"#),
            PropertyValue::Other(serde_json::json!(["1e400\\", "\"1e400", {"1e400": 1.5}]))
        );
    }

    #[test]
    fn a_private_member_name_of_serde_json_is_read_like_any_other() {
        for name in ["RawValue", "Number"] {
            let text = format!(r#"{{"$serde_json::private::{name}":"[1]"}}"#);

            let value: Value = serde_json::from_str::<Json>(&text).unwrap().0;

            assert_eq!(read(&text), PropertyValue::Other(value.clone()));
            assert_eq!(
                serde_json::from_value::<PropertyValue>(value.clone()).unwrap(),
                PropertyValue::Other(value)
            );
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
}
