//! Splits JSON text without parsing its parts, so that one invalid part does not make the others invalid.

use std::fmt;

use serde::Deserializer;
use serde::de::{IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::error::Category;
use serde_json::value::RawValue;

use super::json::invalid_json;

/// Splits a JSON array into the text of its elements, each of which can then be parsed by itself.
///
/// Keeps the first `keep` elements. The elements after them are only counted.
///
/// Splitting checks the grammar of JSON and nothing else. Parsing an element may still fail: it may have a number out of
/// range, a lone surrogate, or too many levels.
///
/// # Errors
///
/// Fails if the text is not JSON, or not an array.
pub(crate) fn split_array(text: &[u8], keep: usize) -> Result<Elements<'_>, String> {
    let mut deserializer = serde_json::Deserializer::from_slice(text);
    let elements = deserializer
        .deserialize_seq(ElementsReader { keep })
        .and_then(|elements| deserializer.end().map(|()| elements));
    elements.map_err(|error| match error.classify() {
        Category::Data => "the body must be a JSON array".to_owned(),
        Category::Io | Category::Syntax | Category::Eof => invalid_json(&error),
    })
}

/// The elements of a JSON array, as text.
#[derive(Debug, Default)]
pub(crate) struct Elements<'a> {
    /// The first elements.
    pub(crate) first: Vec<&'a str>,
    /// The number of all elements.
    pub(crate) len: usize,
}

/// Returns the string value of a member of an object, even if the rest of the object cannot be parsed.
///
/// If a member is given twice, the last one counts. Returns `None` if the text is not an object, or if the member is
/// missing or not a string.
pub(crate) fn text_member(object: &str, name: &str) -> Option<String> {
    let mut deserializer = serde_json::Deserializer::from_str(object);
    deserializer
        .deserialize_map(TextMemberReader { name })
        .ok()?
}

/// Collects the elements of an array without parsing them.
struct ElementsReader {
    keep: usize,
}

impl<'de> Visitor<'de> for ElementsReader {
    type Value = Elements<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON array")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut array: A) -> Result<Self::Value, A::Error> {
        let mut elements = Elements::default();
        while elements.len < self.keep {
            let Some(element) = array.next_element::<&RawValue>()? else {
                return Ok(elements);
            };
            elements.first.push(element.get());
            elements.len += 1;
        }
        while array.next_element::<IgnoredAny>()?.is_some() {
            elements.len += 1;
        }
        Ok(elements)
    }
}

/// Finds the string value of one member. Other names and values are skipped without being parsed.
struct TextMemberReader<'a> {
    name: &'a str,
}

impl<'de> Visitor<'de> for TextMemberReader<'_> {
    type Value = Option<String>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Self::Value, A::Error> {
        let mut found = None;
        while let Some((name, value)) = members.next_entry::<&RawValue, &RawValue>()? {
            if serde_json::from_str::<String>(name.get()).is_ok_and(|name| name == self.name) {
                found = serde_json::from_str(value.get()).ok();
            }
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::super::json;
    use super::*;

    #[test]
    fn an_array_is_split_into_elements_that_need_not_be_parsable() {
        let deep = "[".repeat(100_000) + &"]".repeat(100_000);
        let text = format!(r#" [ 1e400 , {{"a": "\ud800"}},{deep}, "]"] "#);

        let elements = split_array(text.as_bytes(), 9).unwrap();

        assert_eq!(elements.len, 4);
        assert_eq!(
            elements.first,
            ["1e400", r#"{"a": "\ud800"}"#, &deep, r#""]""#]
        );
        for element in &elements.first[..3] {
            assert!(json::parse(element.as_bytes()).is_err());
        }
    }

    #[test]
    fn elements_beyond_those_to_keep_are_only_counted() {
        let elements = split_array(b"[0, 1, 2, 3]", 2).unwrap();

        assert_eq!((elements.first, elements.len), (vec!["0", "1"], 4));
    }

    #[test]
    fn a_member_is_found_beside_members_that_cannot_be_parsed() {
        for (object, expected) in [
            (r#"{"n": 1e400, "email": "a@x"}"#, Some("a@x")),
            (r#"{"\ud800": 1, "\u0065mail": "a@x"}"#, Some("a@x")),
            (r#"{"email": 1, "email": "a@x"}"#, Some("a@x")),
            (r#"{"email": "a@x", "email": 1}"#, None),
            (r#"{"email": "\ud800"}"#, None),
            (r#"{"x": {"email": "a@x"}}"#, None),
            (r#""email""#, None),
            (r#"["email", "a@x"]"#, None),
        ] {
            assert_eq!(
                text_member(object, "email").as_deref(),
                expected,
                "{object}"
            );
        }
    }

    #[test]
    fn an_object_is_refused_if_an_array_is_needed() {
        assert_eq!(
            split_array(b"{}", 9).unwrap_err(),
            "the body must be a JSON array"
        );
        for text in ["[{]", "[1,]", "[1] 2", "[01]", "[\"\n\"]", ""] {
            let error = split_array(text.as_bytes(), 9).unwrap_err();

            assert!(error.starts_with("invalid JSON"), "{text}: {error}");
        }
    }
}
