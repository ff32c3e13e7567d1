//! The bodies of requests, read strictly: what is asked for, or what is wrong with it.

use serde_json::{Map, Value};

use super::address::{is_address, normalised};
use super::contact::Reason;
use super::dialect::{Dialect, PropertyValues, UnknownMembers};
use super::json::{self, Members};

/// A create request body, or an entry of a batch (section 2.4).
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) email: String,
    pub(crate) first_name: Option<String>,
    pub(crate) last_name: Option<String>,
    pub(crate) properties: Option<Map<String, Value>>,
    pub(crate) on_conflict: OnConflict,
}

/// What becomes of an entry whose address exists already.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum OnConflict {
    #[default]
    Upsert,
    Skip,
    Error,
}

impl Entry {
    pub(crate) fn read(body: &Value, dialect: Dialect) -> Result<Self, String> {
        let members = Members::of(body, "a contact", "")?;
        if dialect.unknown_members == UnknownMembers::Refused {
            members.nothing_but(&[
                "email",
                "first_name",
                "last_name",
                "properties",
                "on_conflict",
            ])?;
        }
        let email = normalised(members.required_text("email")?);
        if !is_address(&email) {
            let found = members.required("email")?;
            return Err(members.must_be("email", "an email address", found));
        }
        Ok(Self {
            email,
            first_name: members.text("first_name")?.map(str::to_owned),
            last_name: members.text("last_name")?.map(str::to_owned),
            properties: members
                .value("properties")
                .map(|found| properties(&members, found, dialect))
                .transpose()?,
            on_conflict: on_conflict(&members, dialect)?,
        })
    }

    /// The address that a refused entry is listed with: as it would be stored, or as it was sent
    /// where it is none; empty where it is no text.
    pub(crate) fn address_of(body: &Value) -> String {
        let sent = body
            .get("email")
            .and_then(Value::as_str)
            .unwrap_or_default();
        let email = normalised(sent);
        if is_address(&email) {
            email
        } else {
            sent.to_owned()
        }
    }
}

/// What an unsubscribe asks for (section 4.5).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OptOut {
    pub(crate) reason: Reason,
    pub(crate) topic: Option<String>,
}

impl OptOut {
    pub(crate) fn read(body: &[u8], dialect: Dialect) -> Result<Self, String> {
        let body = optional_object(body)?;
        let members = consent_members(&body, &["reason", "topic"], dialect)?;
        let reason = match members.text("reason")? {
            None | Some("manual") => Reason::Manual,
            Some("preferences") => Reason::Preferences,
            Some("complaint") => {
                return Err(
                    "`reason` must be `manual` or `preferences`: a sender cannot declare a complaint"
                        .to_owned(),
                );
            }
            Some(_) => {
                let found = members.required("reason")?;
                return Err(members.must_be("reason", "`manual` or `preferences`", found));
            }
        };
        let topic = members.text("topic")?.map(str::to_owned);
        Ok(Self { reason, topic })
    }
}

/// The topic that a subscribe is about, if it is about one (section 4.6).
pub(crate) fn opt_in(body: &[u8], dialect: Dialect) -> Result<Option<String>, String> {
    let body = optional_object(body)?;
    let members = consent_members(&body, &["topic"], dialect)?;
    Ok(members.text("topic")?.map(str::to_owned))
}

/// The properties to merge. The document leaves this body open (section 4.7).
pub(crate) fn merge(body: &[u8], dialect: Dialect) -> Result<Map<String, Value>, String> {
    let body = json::value(body)?;
    let members = Members::of(&body, "the body", "")?;
    if dialect.unknown_members == UnknownMembers::Refused {
        members.nothing_but(&["properties"])?;
    }
    properties(&members, members.required("properties")?, dialect)
}

fn properties(
    members: &Members<'_>,
    found: &Value,
    dialect: Dialect,
) -> Result<Map<String, Value>, String> {
    let Value::Object(properties) = found else {
        return Err(members.must_be("properties", "a JSON object", found));
    };
    if dialect.property_values == PropertyValues::TextAndNumbers {
        let odd = properties
            .iter()
            .find(|(_, value)| !value.is_string() && !value.is_number());
        if let Some((key, value)) = odd {
            let name = format!("properties.{}", key.escape_debug());
            return Err(members.must_be(&name, "text or a number", value));
        }
    }
    Ok(properties.clone())
}

fn on_conflict(members: &Members<'_>, dialect: Dialect) -> Result<OnConflict, String> {
    match members.text("on_conflict")? {
        None | Some("upsert") => Ok(OnConflict::Upsert),
        Some("skip") => Ok(OnConflict::Skip),
        Some("error") => Ok(OnConflict::Error),
        Some(_) if dialect.unknown_members == UnknownMembers::Ignored => Ok(OnConflict::Upsert),
        Some(_) => {
            let found = members.required("on_conflict")?;
            Err(members.must_be("on_conflict", "`upsert`, `skip` or `error`", found))
        }
    }
}

/// No body at all is an empty object.
fn optional_object(body: &[u8]) -> Result<Value, String> {
    if body.is_empty() {
        return Ok(Value::Object(Map::new()));
    }
    json::value(body)
}

fn consent_members<'a>(
    body: &'a Value,
    known: &[&str],
    dialect: Dialect,
) -> Result<Members<'a>, String> {
    let members = Members::of(body, "the body", "")?;
    if dialect.unknown_members == UnknownMembers::Refused {
        members.nothing_but(known)?;
    }
    Ok(members)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const STRICT: fn() -> Dialect = Dialect::default;

    #[test]
    fn a_bad_entry_is_refused_with_the_member_that_is_wrong() {
        let cases = [
            (json!(1), "a contact must be a JSON object, not 1"),
            (json!({}), "`email` is missing"),
            (json!({"email": null}), "`email` must be text, not null"),
            (
                json!({"email": "ada"}),
                "`email` must be an email address, not \"ada\"",
            ),
            (
                json!({"email": "a@x", "first_name": 1}),
                "`first_name` must be text, not 1",
            ),
            (
                json!({"email": "a@x", "last_name": null}),
                "`last_name` must be text, not null",
            ),
            (
                json!({"email": "a@x", "properties": []}),
                "`properties` must be a JSON object, not []",
            ),
            (
                json!({"email": "a@x", "properties": {"plan": true}}),
                "`properties.plan` must be text or a number, not true",
            ),
            (
                json!({"email": "a@x", "on_conflict": "replace"}),
                "`on_conflict` must be `upsert`, `skip` or `error`, not \"replace\"",
            ),
            (
                json!({"email": "a@x", "name": "Ada"}),
                "`name` is no member that is known here; known: `email`, `first_name`, `last_name`, `properties`, `on_conflict`",
            ),
        ];
        for (body, message) in cases {
            assert_eq!(Entry::read(&body, STRICT()).unwrap_err(), message);
        }
    }

    #[test]
    fn a_lenient_dialect_passes_over_what_it_does_not_know() {
        let dialect = Dialect {
            unknown_members: UnknownMembers::Ignored,
            ..Dialect::default()
        };
        let body = json!({"email": "a@x", "name": "Ada", "on_conflict": "replace"});

        let entry = Entry::read(&body, dialect).unwrap();

        assert_eq!(entry.on_conflict, OnConflict::Upsert);
    }

    #[test]
    fn a_refused_entry_is_listed_with_its_address_as_far_as_it_has_one() {
        let cases = [
            (json!({"email": " Ada@X "}), "ada@x"),
            (json!({"email": " Ada "}), " Ada "),
            (json!({"email": 1}), ""),
            (json!("ada@x"), ""),
        ];
        for (body, expected) in cases {
            assert_eq!(Entry::address_of(&body), expected);
        }
    }

    #[test]
    fn no_body_is_a_manual_opt_out_of_everything() {
        let opt_out = OptOut {
            reason: Reason::Manual,
            topic: None,
        };

        assert_eq!(OptOut::read(b"", STRICT()), Ok(opt_out.clone()));
        assert_eq!(OptOut::read(b"{}", STRICT()), Ok(opt_out));
    }

    #[test]
    fn a_bad_opt_out_is_refused_with_the_member_that_is_wrong() {
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
            (r#"{"topic": null}"#, "`topic` must be text, not null"),
            (
                r#"{"topics": "news"}"#,
                "`topics` is no member that is known here; known: `reason`, `topic`",
            ),
            (r#"{"topic": "a", "topic": "b"}"#, "`topic` is given twice"),
        ];
        for (body, message) in cases {
            assert_eq!(
                OptOut::read(body.as_bytes(), STRICT()).unwrap_err(),
                message
            );
        }
    }
}
