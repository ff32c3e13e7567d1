//! The request bodies of the audience endpoints, parsed strictly.
//!
//! Each error is the message for a refusal, and names the member that is wrong.

use serde_json::{Map, Value};

use super::address::{is_address, normalized};
use super::dialect::{Dialect, PropertyValues, UnknownMembers};
use super::json::{self, Members};
use super::printable::printable;
use super::raw_json::text_member;
use super::reason::Reason;

/// The body of a create request, or an entry of a batch (section 2.4).
#[derive(Clone, Debug)]
pub(crate) struct CreateBody {
    /// Normalized and valid.
    pub(crate) email: String,
    pub(crate) first_name: Option<String>,
    pub(crate) last_name: Option<String>,
    pub(crate) properties: Option<Map<String, Value>>,
    pub(crate) on_conflict: OnConflict,
}

/// The effect of a create request if the address already exists (section 2.4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum OnConflict {
    #[default]
    Upsert,
    Skip,
    Error,
}

impl CreateBody {
    /// Parses a create request body.
    ///
    /// # Errors
    ///
    /// Fails if a member is missing or invalid, or if it is unknown and the dialect refuses unknown members.
    pub(crate) fn parse(body: &Value, dialect: Dialect) -> Result<Self, String> {
        let members = Members::new(body, "a contact", "")?;
        if dialect.unknown_members == UnknownMembers::Refused {
            members.reject_unknown(&[
                "email",
                "first_name",
                "last_name",
                "properties",
                "on_conflict",
            ])?;
        }
        let email = normalized(members.required_text("email")?);
        if !is_address(&email) {
            let found = members.required("email")?;
            return Err(members.must_be("email", "an email address", found));
        }
        Ok(Self {
            email,
            first_name: members.optional_text("first_name")?.map(str::to_owned),
            last_name: members.optional_text("last_name")?.map(str::to_owned),
            properties: members
                .optional("properties")
                .map(|found| properties(&members, found, dialect))
                .transpose()?,
            on_conflict: on_conflict(&members, dialect)?,
        })
    }

    /// Returns the address for the result entry of a batch entry that may be invalid (section 2.5).
    ///
    /// A valid address is normalized. An invalid one is returned unchanged, and as an empty string if it is missing
    /// or not a string. The other members need not be parsable.
    pub(crate) fn address_in(entry: &str) -> String {
        let sent = text_member(entry, "email").unwrap_or_default();
        let email = normalized(&sent);
        if is_address(&email) { email } else { sent }
    }
}

/// The body of an unsubscribe request (section 4.5).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct UnsubscribeBody {
    /// `manual` or `preferences`.
    pub(crate) reason: Reason,
    /// The topic to opt out of. `None` means all broadcasts.
    pub(crate) topic: Option<String>,
}

impl UnsubscribeBody {
    /// Parses an unsubscribe request body. Without a body or a reason, the reason is `manual`.
    ///
    /// # Errors
    ///
    /// Fails if a member is invalid, or if it is unknown and the dialect refuses unknown members.
    pub(crate) fn parse(body: &[u8], dialect: Dialect) -> Result<Self, String> {
        let body = parse_optional(body)?;
        let members = consent_members(&body, &["reason", "topic"], dialect)?;
        let reason = match members.optional_text("reason")? {
            None | Some("manual") => Reason::Manual,
            Some("preferences") => Reason::Preferences,
            Some("complaint") => {
                return Err(
                    "`reason` must be `manual` or `preferences`: a sender cannot declare a complaint"
                        .to_owned(),
                );
            }
            Some(other) => {
                return Err(members.must_be("reason", "`manual` or `preferences`", &other.into()));
            }
        };
        let topic = members.optional_text("topic")?.map(str::to_owned);
        Ok(Self { reason, topic })
    }
}

/// Parses a subscribe request body and returns its topic (section 4.6). `None` means the global opt-out.
///
/// # Errors
///
/// Fails if a member is invalid, or if it is unknown and the dialect refuses unknown members.
pub(crate) fn parse_subscribe(body: &[u8], dialect: Dialect) -> Result<Option<String>, String> {
    let body = parse_optional(body)?;
    let members = consent_members(&body, &["topic"], dialect)?;
    Ok(members.optional_text("topic")?.map(str::to_owned))
}

/// Parses a merge request body and returns the properties to merge.
///
/// The document does not show this body (section 4.7). The mock expects `{"properties": {…}}`.
///
/// # Errors
///
/// Fails if a member is missing or invalid, or if it is unknown and the dialect refuses unknown members.
pub(crate) fn parse_merge(body: &[u8], dialect: Dialect) -> Result<Map<String, Value>, String> {
    let body = json::parse(body)?;
    let members = Members::new(&body, "the body", "")?;
    if dialect.unknown_members == UnknownMembers::Refused {
        members.reject_unknown(&["properties"])?;
    }
    properties(&members, members.required("properties")?, dialect)
}

/// Returns the properties in `found`, the value of the member `properties`.
fn properties(
    members: &Members<'_>,
    found: &Value,
    dialect: Dialect,
) -> Result<Map<String, Value>, String> {
    let Value::Object(properties) = found else {
        return Err(members.must_be("properties", "a JSON object", found));
    };
    if let Some((name, value)) = unsupported_property(properties, dialect) {
        return Err(members.must_be(&name, PROPERTY_VALUE, value));
    }
    Ok(properties.clone())
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

fn on_conflict(members: &Members<'_>, dialect: Dialect) -> Result<OnConflict, String> {
    match members.optional_text("on_conflict")? {
        None | Some("upsert") => Ok(OnConflict::Upsert),
        Some("skip") => Ok(OnConflict::Skip),
        Some("error") => Ok(OnConflict::Error),
        Some(_) if dialect.unknown_members == UnknownMembers::Ignored => Ok(OnConflict::Upsert),
        Some(other) => {
            Err(members.must_be("on_conflict", "`upsert`, `skip` or `error`", &other.into()))
        }
    }
}

/// Parses a body. An empty one counts as an empty object.
fn parse_optional(body: &[u8]) -> Result<Value, String> {
    if body.is_empty() {
        return Ok(Value::Object(Map::new()));
    }
    json::parse(body)
}

/// Returns the members of a subscribe or unsubscribe body.
fn consent_members<'a>(
    body: &'a Value,
    known: &[&str],
    dialect: Dialect,
) -> Result<Members<'a>, String> {
    let members = Members::new(body, "the body", "")?;
    if dialect.unknown_members == UnknownMembers::Refused {
        members.reject_unknown(known)?;
    }
    Ok(members)
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
                "`name` is not a known member; known members: `email`, `first_name`, `last_name`, `properties`, `on_conflict`",
            ),
        ];
        for (body, message) in cases {
            assert_eq!(
                CreateBody::parse(&body, Dialect::default()).unwrap_err(),
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

        let entry = CreateBody::parse(&body, dialect).unwrap();

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
            assert_eq!(CreateBody::address_in(body), expected);
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
            (
                r#"{"topics": "news"}"#,
                "`topics` is not a known member; known members: `reason`, `topic`",
            ),
            (r#"{"topic": "a", "topic": "b"}"#, "`topic` is given twice"),
        ];
        for (body, message) in cases {
            assert_eq!(
                UnsubscribeBody::parse(body.as_bytes(), Dialect::default()).unwrap_err(),
                message
            );
        }
    }
}
