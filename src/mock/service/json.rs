//! Strict JSON: a member given twice is an error. Each error is the message for a refusal.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, de};
use serde_json::{Map, Number, Value};

use super::printable::{printable, visible};

/// Parses JSON text.
///
/// # Errors
///
/// Fails if the text is not JSON, or if an object in it has a member twice.
pub(crate) fn parse(text: &[u8]) -> Result<Value, String> {
    let parsed: Parsed = serde_json::from_slice(text).map_err(|error| invalid_json(&error))?;
    parsed.without_duplicates()
}

/// Returns a value as a message shows it: as JSON if it is short, otherwise only its kind.
fn abbreviated(value: &Value) -> String {
    let text = visible(&value.to_string());
    if text.len() <= 60 {
        return text;
    }
    match value {
        Value::String(_) => "a long string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
        Value::Null | Value::Bool(_) | Value::Number(_) => "another value",
    }
    .to_owned()
}

/// The members of a JSON object, read by name.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Members<'a> {
    members: &'a Map<String, Value>,
    /// The text before a member's name in a message, such as `conditions[0].`.
    prefix: &'a str,
}

impl<'a> Members<'a> {
    /// Returns the members of `value`. Messages call the value `what`, and put `prefix` before the names of its members.
    ///
    /// # Errors
    ///
    /// Fails if the value is not an object.
    pub(crate) fn new(value: &'a Value, what: &str, prefix: &'a str) -> Result<Self, String> {
        match value {
            Value::Object(members) => Ok(Self { members, prefix }),
            other => Err(format!(
                "{what} must be a JSON object, not {}",
                abbreviated(other)
            )),
        }
    }

    /// Returns the value of a member, or `None` if it is missing.
    pub(crate) fn optional(&self, name: &str) -> Option<&'a Value> {
        self.members.get(name)
    }

    /// Returns the value of a member.
    ///
    /// # Errors
    ///
    /// Fails if the member is missing.
    pub(crate) fn required(&self, name: &str) -> Result<&'a Value, String> {
        self.optional(name)
            .ok_or_else(|| format!("`{}{name}` is missing", self.prefix))
    }

    /// Returns the string value of a member, or `None` if it is missing.
    ///
    /// # Errors
    ///
    /// Fails if the value is not a string. `null` is not a string either.
    pub(crate) fn optional_text(&self, name: &str) -> Result<Option<&'a str>, String> {
        match self.optional(name) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(other) => Err(self.must_be(name, "a string", other)),
        }
    }

    /// Returns the string value of a member.
    ///
    /// # Errors
    ///
    /// Fails if the member is missing, or if its value is not a string.
    pub(crate) fn required_text(&self, name: &str) -> Result<&'a str, String> {
        self.required(name)?;
        Ok(self.optional_text(name)?.unwrap_or_default())
    }

    /// Checks that the object has no members other than `known`.
    ///
    /// # Errors
    ///
    /// Fails if it has another member. The message lists the known members.
    pub(crate) fn reject_unknown(&self, known: &[&str]) -> Result<(), String> {
        match self
            .members
            .keys()
            .find(|name| !known.contains(&name.as_str()))
        {
            None => Ok(()),
            Some(unknown) => Err(format!(
                "`{}{}` is not a known member; known members: {}",
                self.prefix,
                printable(unknown),
                quoted_list(known)
            )),
        }
    }

    /// Returns the message for a member whose value is invalid: `what` it must be, and what was `found`.
    pub(crate) fn must_be(&self, name: &str, what: &str, found: &Value) -> String {
        must_be(&format!("{}{name}", self.prefix), what, found)
    }
}

/// Returns the message for an invalid value at `path`: `what` it must be, and what was `found`.
pub(crate) fn must_be(path: &str, what: &str, found: &Value) -> String {
    format!("`{path}` must be {what}, not {}", abbreviated(found))
}

/// Returns names as a message lists them: each in backticks, separated by commas.
pub(crate) fn quoted_list(names: &[&str]) -> String {
    let quoted: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
    quoted.join(", ")
}

/// Returns the message for a text that is not JSON, or that cannot be parsed.
pub(super) fn invalid_json(error: &serde_json::Error) -> String {
    format!("invalid JSON: {error}")
}

/// A parsed value, and the name of the first member that an object in it has twice.
///
/// The [`Value`] of `serde_json` keeps the last of two members without an error.
struct Parsed {
    /// The value. If a member is given twice, it has the last one.
    value: Value,
    duplicate: Option<String>,
}

impl Parsed {
    /// Returns the value if no object in it has a member twice.
    ///
    /// # Errors
    ///
    /// Fails if an object has a member twice. The message names the member.
    fn without_duplicates(self) -> Result<Value, String> {
        match self.duplicate {
            None => Ok(self.value),
            Some(name) => Err(format!("`{}` is given twice", printable(&name))),
        }
    }
}

impl<'de> Deserialize<'de> for Parsed {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut duplicate = None;
        let value = ValueReader(&mut duplicate).deserialize(deserializer)?;
        Ok(Self { value, duplicate })
    }
}

/// Deserializes a [`Value`] and stores the name of the first duplicate member.
struct ValueReader<'a>(&'a mut Option<String>);

impl<'de> DeserializeSeed<'de> for ValueReader<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for ValueReader<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<Value, E> {
        Number::from_f64(value)
            .map(Value::Number)
            .ok_or_else(|| E::custom("a number that is not finite"))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Value, A::Error> {
        let mut array = Vec::new();
        while let Some(element) = elements.next_element_seed(ValueReader(self.0))? {
            array.push(element);
        }
        Ok(Value::Array(array))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Value, A::Error> {
        let mut object = Map::new();
        while let Some(name) = members.next_key::<String>()? {
            if self.0.is_none() && object.contains_key(&name) {
                *self.0 = Some(name.clone());
            }
            let value = members.next_value_seed(ValueReader(self.0))?;
            object.insert(name, value);
        }
        Ok(Value::Object(object))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_given_twice_is_found_at_any_depth() {
        let text = br#"{"properties": {"plan": [{"a": 1, "a": 2}]}}"#;

        assert_eq!(parse(text), Err("`a` is given twice".to_owned()));
    }

    #[test]
    fn numbers_keep_every_digit() {
        let text = br#"[18446744073709551615, -9223372036854775808, 0.1, 1e3]"#;

        let read = parse(text).unwrap();

        assert_eq!(read, serde_json::from_slice::<Value>(text).unwrap());
    }

    #[test]
    fn invalid_json_is_reported_as_invalid_json() {
        for text in ["", "{", "nul", "{}x", "[1,]", "\"\\ud800\"", "1e999"] {
            let error = parse(text.as_bytes()).unwrap_err();

            assert!(error.starts_with("invalid JSON: "), "{text}: {error}");
        }
        let deep = "[".repeat(100_000);
        assert!(parse(deep.as_bytes()).is_err());
        assert!(parse(&[b'"', 0xff, b'"']).is_err());
    }
}
