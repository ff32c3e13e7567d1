//! JSON bodies: read by serde, and refused with a message that names the member that is wrong.

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

use serde::de::value::MapAccessDeserializer;
use serde::de::{DeserializeOwned, Error, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::address::{is_address, normalized, printable};
use super::contact::Reason;
use super::dialect::{Dialect, PropertyValues, UnknownMembers};

/// The body of a create request, or an entry of a batch (section 2.4).
#[derive(Clone, Debug)]
pub(super) struct CreateBody {
    /// Normalized and valid.
    pub(super) email: String,
    pub(super) first_name: Option<String>,
    pub(super) last_name: Option<String>,
    pub(super) properties: Option<Map<String, Value>>,
    pub(super) on_conflict: OnConflict,
}

/// The effect of a create request if the address already exists (section 2.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OnConflict {
    Upsert,
    Skip,
    Error,
}

#[derive(Deserialize)]
struct CreateMembers {
    email: String,
    #[serde(default, deserialize_with = "present")]
    first_name: Option<String>,
    #[serde(default, deserialize_with = "present")]
    last_name: Option<String>,
    #[serde(default, deserialize_with = "present")]
    properties: Option<UniqueMembers<Value>>,
    #[serde(default, deserialize_with = "present")]
    on_conflict: Option<String>,
    #[serde(flatten)]
    unknown: Unknown,
}

impl CreateBody {
    /// Parses a create request body.
    ///
    /// # Errors
    ///
    /// Fails if a member is missing or invalid, or if it is unknown and the dialect refuses unknown members.
    pub(super) fn parse(body: &[u8], dialect: Dialect) -> Result<Self, String> {
        let members: CreateMembers = parse(body, "a contact")?;
        refuse_unknown(&members.unknown, dialect)?;
        let email = normalized(&members.email);
        if !is_address(&email) {
            return Err(must_be("email", "an email address", &members.email.into()));
        }
        Ok(Self {
            email,
            first_name: members.first_name,
            last_name: members.last_name,
            properties: match members.properties {
                None => None,
                Some(properties) => Some(checked_properties(properties, dialect)?),
            },
            on_conflict: match members.on_conflict.as_deref() {
                None | Some("upsert") => OnConflict::Upsert,
                Some("skip") => OnConflict::Skip,
                Some("error") => OnConflict::Error,
                Some(_) if dialect.unknown_members == UnknownMembers::Ignored => OnConflict::Upsert,
                Some(other) => {
                    let known = "`upsert`, `skip` or `error`";
                    return Err(must_be("on_conflict", known, &other.into()));
                }
            },
        })
    }

    /// Returns the address for the result entry of a batch entry that may be invalid (section 2.5).
    ///
    /// A valid address is normalized. An invalid one is returned unchanged, and as an empty string if it is missing
    /// or not a string. The other members need not be parsable.
    pub(super) fn address_in(entry: &RawValue) -> String {
        let members: Option<RawMembers> = serde_json::from_str(entry.get()).ok();
        let sent = members
            .and_then(|members| members.email)
            .unwrap_or_default();
        let email = normalized(&sent);
        if is_address(&email) { email } else { sent }
    }
}

/// The address in an entry. Neither the other names nor their values are parsed.
struct RawMembers {
    email: Option<String>,
}

impl<'de> Deserialize<'de> for RawMembers {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(RawMembersVisitor)
    }
}

struct RawMembersVisitor;

impl<'de> Visitor<'de> for RawMembersVisitor {
    type Value = RawMembers;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<RawMembers, A::Error> {
        let mut email = None;
        while let Some((name, value)) = members.next_entry::<&RawValue, &RawValue>()? {
            if serde_json::from_str::<String>(name.get()).is_ok_and(|name| name == "email") {
                email = serde_json::from_str(value.get()).ok();
            }
        }
        Ok(RawMembers { email })
    }
}

/// Splits a batch into its entries, which need not be parsable: an invalid one fails by itself (section 4.2).
///
/// # Errors
///
/// Fails if the text is not JSON, or not an array.
pub(super) fn split_batch(body: &[u8]) -> Result<Vec<&RawValue>, String> {
    serde_json::from_slice(body).map_err(|error| {
        if error.is_data() {
            "the body must be a JSON array".to_owned()
        } else {
            invalid_json(&error)
        }
    })
}

/// The body of an unsubscribe request (section 4.5).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct UnsubscribeBody {
    /// `manual` or `preferences`.
    pub(super) reason: Reason,
    /// The topic to opt out of. `None` means all broadcasts.
    pub(super) topic: Option<String>,
}

#[derive(Deserialize)]
struct UnsubscribeMembers {
    #[serde(default, deserialize_with = "present")]
    reason: Option<String>,
    #[serde(default, deserialize_with = "present")]
    topic: Option<String>,
    #[serde(flatten)]
    unknown: Unknown,
}

impl UnsubscribeBody {
    /// Parses an unsubscribe request body. Without a body or a reason, the reason is `manual`.
    ///
    /// # Errors
    ///
    /// Fails if a member is invalid, or if it is unknown and the dialect refuses unknown members.
    pub(super) fn parse(body: &[u8], dialect: Dialect) -> Result<Self, String> {
        let members: UnsubscribeMembers = parse(or_empty_object(body), "the body")?;
        refuse_unknown(&members.unknown, dialect)?;
        let reason = match members.reason.as_deref() {
            None | Some("manual") => Reason::Manual,
            Some("preferences") => Reason::Preferences,
            Some("complaint") => {
                return Err(
                    "`reason` must be `manual` or `preferences`: a sender cannot declare a complaint"
                        .to_owned(),
                );
            }
            Some(other) => {
                let known = "`manual` or `preferences`";
                return Err(must_be("reason", known, &other.into()));
            }
        };
        let topic = members.topic;
        Ok(Self { reason, topic })
    }
}

#[derive(Deserialize)]
struct SubscribeMembers {
    #[serde(default, deserialize_with = "present")]
    topic: Option<String>,
    #[serde(flatten)]
    unknown: Unknown,
}

/// Parses a subscribe request body and returns its topic (section 4.6). `None` means the global opt-out.
///
/// # Errors
///
/// Fails if a member is invalid, or if it is unknown and the dialect refuses unknown members.
pub(super) fn parse_subscribe(body: &[u8], dialect: Dialect) -> Result<Option<String>, String> {
    let members: SubscribeMembers = parse(or_empty_object(body), "the body")?;
    refuse_unknown(&members.unknown, dialect)?;
    Ok(members.topic)
}

#[derive(Deserialize)]
struct MergeMembers {
    properties: UniqueMembers<Value>,
    #[serde(flatten)]
    unknown: Unknown,
}

/// Parses a merge request body and returns the properties to merge.
///
/// The document does not show this body (section 4.7). The mock expects `{"properties": {…}}`.
///
/// # Errors
///
/// Fails if a member is missing or invalid, or if it is unknown and the dialect refuses unknown members.
pub(super) fn parse_merge(body: &[u8], dialect: Dialect) -> Result<Map<String, Value>, String> {
    let members: MergeMembers = parse(body, "the body")?;
    refuse_unknown(&members.unknown, dialect)?;
    checked_properties(members.properties, dialect)
}

fn or_empty_object(body: &[u8]) -> &[u8] {
    if body.is_empty() { b"{}" } else { body }
}

fn checked_properties(
    properties: UniqueMembers<Value>,
    dialect: Dialect,
) -> Result<Map<String, Value>, String> {
    let properties = properties.0.into_iter().collect();
    match unsupported_property(&properties, dialect) {
        Some((name, value)) => Err(must_be(&name, PROPERTY_VALUE, value)),
        None => Ok(properties),
    }
}

/// The values that a property may have by default.
pub(super) const PROPERTY_VALUE: &str = "a string or a number";

/// Returns the first property whose value the dialect does not allow, with its name as a message shows it.
pub(super) fn unsupported_property(
    properties: &Map<String, Value>,
    dialect: Dialect,
) -> Option<(String, &Value)> {
    if dialect.property_values == PropertyValues::Any {
        return None;
    }
    let (key, value) = properties
        .iter()
        .find(|(_, value)| !value.is_string() && !value.is_number())?;
    Some((format!("properties.{}", printable(key)), value))
}

/// The members of a body that its type does not have. What happens to them depends on the dialect.
pub(super) type Unknown = BTreeMap<String, IgnoredAny>;

/// Checks that a body has no unknown members, unless the dialect ignores them.
pub(super) fn refuse_unknown(unknown: &Unknown, dialect: Dialect) -> Result<(), String> {
    match unknown.keys().next() {
        Some(name) if dialect.unknown_members == UnknownMembers::Refused => {
            Err(format!("`{}` is not a known member", printable(name)))
        }
        _ => Ok(()),
    }
}

/// Reads an optional member that must not be `null`. Serde takes `null` for a member that is missing.
pub(super) fn present<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    T::deserialize(deserializer).map(Some)
}

/// A type that is read from an object. Serde reads a struct from an array too.
pub(super) struct Object<T>(pub(super) T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(ObjectVisitor(PhantomData))
    }
}

struct ObjectVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for ObjectVisitor<T> {
    type Value = Object<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON object")
    }

    fn visit_map<A: MapAccess<'de>>(self, members: A) -> Result<Object<T>, A::Error> {
        T::deserialize(MapAccessDeserializer::new(members)).map(Object)
    }
}

/// The members of an object with any names, each of which it has once.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct UniqueMembers<T>(pub(super) BTreeMap<String, T>);

impl<T> Default for UniqueMembers<T> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for UniqueMembers<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(UniqueMembersVisitor(PhantomData))
    }
}

struct UniqueMembersVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for UniqueMembersVisitor<T> {
    type Value = UniqueMembers<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Self::Value, A::Error> {
        let mut unique = BTreeMap::new();
        while let Some(name) = members.next_key::<String>()? {
            if unique.contains_key(&name) {
                return Err(A::Error::custom(format_args!("`{name}` is given twice")));
            }
            unique.insert(name, members.next_value()?);
        }
        Ok(UniqueMembers(unique))
    }
}

/// Parses JSON text. Messages call the whole of it `what`.
///
/// # Errors
///
/// Fails if the text is not JSON, or not an object that a `T` can be read from. The message names the member.
pub(super) fn parse<T: DeserializeOwned>(text: &[u8], what: &str) -> Result<T, String> {
    let mut deserializer = serde_json::Deserializer::from_slice(text);
    let parsed: Object<T> = match serde_path_to_error::deserialize(&mut deserializer) {
        Ok(parsed) => parsed,
        Err(error) if error.inner().is_data() => {
            // The value is looked up in the text, since an error of serde says only of which kind it is.
            return Err(match serde_json::from_slice::<Value>(text) {
                Ok(whole) => explain(&error, lookup(&whole, error.path()), what),
                Err(error) => invalid_json(&error),
            });
        }
        Err(error) => return Err(invalid_json(error.inner())),
    };
    deserializer.end().map_err(|error| invalid_json(&error))?;
    Ok(parsed.0)
}

fn invalid_json(error: &serde_json::Error) -> String {
    printable(&format!("invalid JSON: {error}"))
}

fn lookup<'a>(whole: &'a Value, path: &serde_path_to_error::Path) -> Option<&'a Value> {
    use serde_path_to_error::Segment;
    path.iter().try_fold(whole, |value, segment| match segment {
        Segment::Seq { index } => value.get(index),
        Segment::Map { key } => value.get(key),
        Segment::Enum { .. } | Segment::Unknown => None,
    })
}

/// Returns the message for a value that is JSON but not what is expected.
fn explain(
    error: &serde_path_to_error::Error<serde_json::Error>,
    found: Option<&Value>,
    what: &str,
) -> String {
    let path = error.path().to_string();
    let is_whole = path == ".";
    let member = |name: &str| match is_whole {
        true => format!("`{name}`"),
        false => format!("`{path}.{name}`"),
    };
    let subject = match is_whole {
        true => what.to_owned(),
        false => format!("`{path}`"),
    };
    let problem = error.inner().to_string();
    let problem = match problem.rsplit_once(" at line ") {
        Some((problem, _)) => problem,
        None => &problem,
    };
    let message = if let Some(name) = problem.strip_prefix("missing field ") {
        format!("{} is missing", member(name.trim_matches('`')))
    } else if let Some(name) = problem.strip_prefix("duplicate field ") {
        format!("{} is given twice", member(name.trim_matches('`')))
    } else if let Some((_, known)) = unknown_field(problem) {
        format!("{subject} is not a known member; known members: {known}")
    } else if let Some((_, expected)) = problem.rsplit_once(", expected ") {
        let expected = match expected {
            "a boolean" => "`true` or `false`",
            "a sequence" => "an array",
            "i64" => "whole Unix seconds",
            other => other,
        };
        must(&subject, &path, &format!("must be {expected}"), found)
    } else if problem.starts_with("must be ") {
        must(&subject, &path, problem, found)
    } else if problem.starts_with("needs ") {
        format!("{subject} {problem}")
    } else {
        format!("{subject}: {problem}")
    };
    printable(&message)
}

/// Splits serde's message for an unknown member into its name and those that are known.
fn unknown_field(problem: &str) -> Option<(&str, String)> {
    let (name, known) = problem
        .strip_prefix("unknown field ")?
        .split_once(", expected ")?;
    let known = known.trim_start_matches("one of ").replace(" or ", ", ");
    Some((name, known))
}

fn must(subject: &str, path: &str, problem: &str, found: Option<&Value>) -> String {
    let is_secret = path.starts_with("keys") || path.ends_with(".secret");
    match found {
        Some(found) if !is_secret => format!("{subject} {problem}, not {}", abbreviated(found)),
        _ => format!("{subject} {problem}"),
    }
}

/// Returns the message for an invalid value at `path`: `what` it must be, and what was `found`.
pub(super) fn must_be(path: &str, what: &str, found: &Value) -> String {
    format!("`{path}` must be {what}, not {}", abbreviated(found))
}

/// Returns a value as a message shows it: as JSON if it is short, otherwise only its kind.
fn abbreviated(value: &Value) -> String {
    let text = printable(&value.to_string());
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_error_for_an_invalid_contact_names_the_invalid_member() {
        let cases = [
            (json!(1), "a contact must be a JSON object, not 1"),
            (json!({}), "`email` is missing"),
            (json!({"email": null}), "`email` must be a string, not null"),
            (
                json!({"email": "ada"}),
                "`email` must be an email address, not \"ada\"",
            ),
            (
                json!({"email": "a@x", "first_name": 1}),
                "`first_name` must be a string, not 1",
            ),
            (
                json!({"email": "a@x", "last_name": null}),
                "`last_name` must be a string, not null",
            ),
            (
                json!({"email": "a@x", "properties": []}),
                "`properties` must be a JSON object, not []",
            ),
            (
                json!({"email": "a@x", "properties": {"plan": true}}),
                "`properties.plan` must be a string or a number, not true",
            ),
            (
                json!({"email": "a@x", "on_conflict": "replace"}),
                "`on_conflict` must be `upsert`, `skip` or `error`, not \"replace\"",
            ),
            (
                json!({"email": "a@x", "name": "Ada"}),
                "`name` is not a known member",
            ),
        ];
        for (body, message) in cases {
            assert_eq!(
                CreateBody::parse(body.to_string().as_bytes(), Dialect::default()).unwrap_err(),
                message
            );
        }
    }

    #[test]
    fn unknown_members_are_ignored_in_a_lenient_dialect() {
        let dialect = Dialect {
            unknown_members: UnknownMembers::Ignored,
            ..Dialect::default()
        };
        let body = json!({"email": "a@x", "name": "Ada", "on_conflict": "replace"});

        let entry = CreateBody::parse(body.to_string().as_bytes(), dialect).unwrap();

        assert_eq!(entry.on_conflict, OnConflict::Upsert);
    }

    #[test]
    fn the_result_of_an_invalid_entry_has_the_address_that_was_sent() {
        let cases = [
            (r#"{"email": " Ada@X "}"#, "ada@x"),
            (r#"{"email": " Ada "}"#, " Ada "),
            (r#"{"email": "Ada@X", "properties": {"n": 1e400}}"#, "ada@x"),
            (r#"{"email": 1}"#, ""),
            (r#""ada@x""#, ""),
        ];
        for (body, expected) in cases {
            assert_eq!(
                CreateBody::address_in(serde_json::from_str(body).unwrap()),
                expected
            );
        }
    }

    #[test]
    fn an_unsubscribe_without_a_body_is_a_manual_global_opt_out() {
        let opt_out = UnsubscribeBody {
            reason: Reason::Manual,
            topic: None,
        };

        assert_eq!(
            UnsubscribeBody::parse(b"", Dialect::default()),
            Ok(opt_out.clone())
        );
        assert_eq!(
            UnsubscribeBody::parse(b"{}", Dialect::default()),
            Ok(opt_out)
        );
    }

    #[test]
    fn the_error_for_an_invalid_unsubscribe_names_the_invalid_member() {
        let cases = [
            ("null", "the body must be a JSON object, not null"),
            (
                r#"{"reason": "complaint", "topic": "news"}"#,
                "`reason` must be `manual` or `preferences`: a sender cannot declare a complaint",
            ),
            (
                r#"{"reason": ""}"#,
                "`reason` must be `manual` or `preferences`, not \"\"",
            ),
            (r#"{"topic": null}"#, "`topic` must be a string, not null"),
            (r#"{"topics": "news"}"#, "`topics` is not a known member"),
            (r#"{"topic": "a", "topic": "b"}"#, "`topic` is given twice"),
        ];
        for (body, message) in cases {
            assert_eq!(
                UnsubscribeBody::parse(body.as_bytes(), Dialect::default()).unwrap_err(),
                message
            );
        }
    }

    #[test]
    fn numbers_keep_every_digit() {
        let text = br#"{"a": 18446744073709551615, "b": -9223372036854775808, "c": 0.1, "d": 1e3}"#;

        let read: Map<String, Value> = parse(text, "the body").unwrap();

        assert_eq!(read, serde_json::from_slice(text).unwrap());
    }

    #[test]
    fn invalid_json_is_reported_as_invalid_json() {
        for text in [
            "",
            "{",
            "nul",
            "{}x",
            "{\"a\": [1,]}",
            "{\"a\": \"\\ud800\"}",
            "{\"a\": 1e999}",
        ] {
            let error = parse::<Map<String, Value>>(text.as_bytes(), "the body").unwrap_err();

            assert!(error.starts_with("invalid JSON: "), "{text}: {error}");
        }
        let deep = format!("{{\"a\": {}", "[".repeat(100_000));
        assert!(parse::<Map<String, Value>>(deep.as_bytes(), "the body").is_err());
        assert!(parse::<Map<String, Value>>(b"{\"a\": \"\xff\"}", "the body").is_err());
    }

    #[test]
    fn a_batch_is_split_into_entries_that_need_not_be_parsable() {
        let deep = "[".repeat(100_000) + &"]".repeat(100_000);
        let text = format!(r#" [ 1e400 , {{"a": "\ud800"}},{deep}, "]"] "#);

        let entries = split_batch(text.as_bytes()).unwrap();

        let entries: Vec<&str> = entries.into_iter().map(RawValue::get).collect();
        assert_eq!(entries, ["1e400", r#"{"a": "\ud800"}"#, &deep, r#""]""#]);
    }

    #[test]
    fn a_batch_that_is_no_array_is_refused() {
        assert_eq!(
            split_batch(b"{}").unwrap_err(),
            "the body must be a JSON array"
        );
        for text in ["[{]", "[1,]", "[1] 2", "[01]", "[\"\n\"]", ""] {
            let error = split_batch(text.as_bytes()).unwrap_err();

            assert!(error.starts_with("invalid JSON"), "{text}: {error}");
        }
    }

    #[test]
    fn an_address_is_found_beside_members_that_cannot_be_parsed() {
        for (object, expected) in [
            (r#"{"n": 1e400, "email": "a@x"}"#, "a@x"),
            (r#"{"\ud800": 1, "\u0065mail": "a@x"}"#, "a@x"),
            (r#"{"email": 1, "email": "a@x"}"#, "a@x"),
            (r#"{"email": "a@x", "email": 1}"#, ""),
            (r#"{"email": "\ud800"}"#, ""),
            (r#"{"x": {"email": "a@x"}}"#, ""),
            (r#""email""#, ""),
            (r#"["email", "a@x"]"#, ""),
        ] {
            let entry: &RawValue = serde_json::from_str(object).unwrap();

            assert_eq!(CreateBody::address_in(entry), expected, "{object}");
        }
    }
}
