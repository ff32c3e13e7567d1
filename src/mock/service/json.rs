//! JSON read strictly: no doubled members, and messages that name what was wrong.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, de};
use serde_json::error::Category;
use serde_json::{Map, Number, Value};

/// The JSON text as a value, or what is wrong with it.
pub(crate) fn value(text: &[u8]) -> Result<Value, String> {
    let strict: Strict = serde_json::from_slice(text).map_err(|error| not_json(&error))?;
    strict.checked()
}

/// The elements of a JSON array, each yet to be checked by itself, or why it is no array.
pub(crate) fn array(text: &[u8]) -> Result<Vec<Strict>, String> {
    serde_json::from_slice(text).map_err(|error| match error.classify() {
        Category::Data => "the body must be a JSON array".to_owned(),
        Category::Io | Category::Syntax | Category::Eof => not_json(&error),
    })
}

/// A value as a message shows it: short values as they are, long ones by their kind.
pub(crate) fn shown(value: &Value) -> String {
    let text = value.to_string();
    if text.len() <= 60 {
        return text;
    }
    match value {
        Value::String(_) => "a long text",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
        Value::Null | Value::Bool(_) | Value::Number(_) => "another value",
    }
    .to_owned()
}

/// The members of an object, read by name.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Members<'a> {
    members: &'a Map<String, Value>,
    /// What stands before a member's name in a message, such as `conditions[0].`.
    place: &'a str,
}

impl<'a> Members<'a> {
    pub(crate) fn of(value: &'a Value, what: &str, place: &'a str) -> Result<Self, String> {
        match value {
            Value::Object(members) => Ok(Self { members, place }),
            other => Err(format!(
                "{what} must be a JSON object, not {}",
                shown(other)
            )),
        }
    }

    pub(crate) fn value(&self, name: &str) -> Option<&'a Value> {
        self.members.get(name)
    }

    pub(crate) fn required(&self, name: &str) -> Result<&'a Value, String> {
        self.value(name)
            .ok_or_else(|| format!("`{}{name}` is missing", self.place))
    }

    pub(crate) fn text(&self, name: &str) -> Result<Option<&'a str>, String> {
        match self.value(name) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(other) => Err(self.must_be(name, "text", other)),
        }
    }

    pub(crate) fn required_text(&self, name: &str) -> Result<&'a str, String> {
        self.required(name)?;
        Ok(self.text(name)?.unwrap_or_default())
    }

    /// Refuses a member that is none of `known`.
    pub(crate) fn nothing_but(&self, known: &[&str]) -> Result<(), String> {
        match self
            .members
            .keys()
            .find(|name| !known.contains(&name.as_str()))
        {
            None => Ok(()),
            Some(unknown) => Err(format!(
                "`{}{}` is no member that is known here; known: {}",
                self.place,
                unknown.escape_debug(),
                listed(known)
            )),
        }
    }

    pub(crate) fn must_be(&self, name: &str, what: &str, found: &Value) -> String {
        format!(
            "`{}{name}` must be {what}, not {}",
            self.place,
            shown(found)
        )
    }
}

/// Names as a message lists them: `a`, `b`, `c`.
pub(crate) fn listed(names: &[&str]) -> String {
    let quoted: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
    quoted.join(", ")
}

fn not_json(error: &serde_json::Error) -> String {
    format!("this is not JSON: {error}")
}

/// A value, and the first member in it that was given twice.
#[derive(Debug)]
pub(crate) struct Strict {
    /// Of a member that was given twice, the last.
    pub(crate) value: Value,
    doubled: Option<String>,
}

impl Strict {
    pub(crate) fn checked(self) -> Result<Value, String> {
        match self.doubled {
            None => Ok(self.value),
            Some(name) => Err(format!("`{}` is given twice", name.escape_debug())),
        }
    }
}

impl<'de> Deserialize<'de> for Strict {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut doubled = None;
        let value = Reader(&mut doubled).deserialize(deserializer)?;
        Ok(Self { value, doubled })
    }
}

struct Reader<'a>(&'a mut Option<String>);

impl<'de> DeserializeSeed<'de> for Reader<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Reader<'_> {
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
        while let Some(element) = elements.next_element_seed(Reader(self.0))? {
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
            let value = members.next_value_seed(Reader(self.0))?;
            object.insert(name, value);
        }
        Ok(Value::Object(object))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_doubled_member_is_named_however_deep_it_lies() {
        let text = br#"{"properties": {"plan": [{"a": 1, "a": 2}]}}"#;

        assert_eq!(value(text), Err("`a` is given twice".to_owned()));
    }

    #[test]
    fn a_doubled_member_in_an_array_condemns_its_element_alone() {
        let elements = array(br#"[{"a": 1, "a": 2}, {"a": 1}]"#).unwrap();

        let checked: Vec<_> = elements.into_iter().map(Strict::checked).collect();
        assert!(checked[0].is_err());
        assert_eq!(checked[1], Ok(json!({"a": 1})));
    }

    #[test]
    fn numbers_are_kept_to_the_last_digit() {
        let text = br#"[18446744073709551615, -9223372036854775808, 0.1, 1e3]"#;

        let read = value(text).unwrap();

        assert_eq!(read, serde_json::from_slice::<Value>(text).unwrap());
    }

    #[test]
    fn what_is_not_json_says_so() {
        for text in ["", "{", "nul", "{}x", "[1,]", "\"\\ud800\"", "1e999"] {
            let error = value(text.as_bytes()).unwrap_err();

            assert!(error.starts_with("this is not JSON: "), "{text}: {error}");
        }
        let deep = "[".repeat(100_000);
        assert!(value(deep.as_bytes()).is_err());
        assert!(value(&[b'"', 0xff, b'"']).is_err());
    }

    #[test]
    fn an_object_is_no_array() {
        assert_eq!(array(b"{}").unwrap_err(), "the body must be a JSON array");
        assert!(array(b"[{]").unwrap_err().starts_with("this is not JSON"));
    }
}
