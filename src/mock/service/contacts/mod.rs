//! Create, retrieve and merge: the operations on one contact, and on a batch (sections 4.1 to 4.3 and 4.7).

use std::fmt;

use bytes::Bytes;
use http::Response;
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::bodies::{
    PROPERTY_VALUE, UniqueMembers, Unknown, invalid_json, is_address, must_be, normalized, parse,
    present, refuse_unknown, unsupported_property,
};
use super::contact::Contact;
use super::dialect::{
    BatchMessage, ContactDeletion, Dialect, MergeBody, MergeResponse, OmittedMembers, RefusalOrder,
    UnknownMembers,
};
use super::{Audience, Refusal, empty_response, json_response};

/// Creates a contact, or updates the stored one: `POST /contacts` (section 4.1).
///
/// # Errors
///
/// The same as [`apply`].
pub(super) fn create(
    audience: &mut Audience,
    body: &[u8],
    now: i64,
) -> Result<Response<Bytes>, Refusal> {
    let missing_name = audience.dialect.missing_name;
    let (contact, outcome) = apply(audience, body, now)?;
    Ok(json_response(
        outcome.status(),
        &contact.to_created(missing_name),
    ))
}

/// Returns a contact in its full form: `GET /contacts/{address}` (section 4.3).
///
/// # Errors
///
/// 404 `not_found` if the address is not a contact.
pub(super) fn retrieve(audience: &Audience, address: &str) -> Result<Response<Bytes>, Refusal> {
    let dialect = audience.dialect;
    let contact = audience.find(address)?;
    Ok(json_response(
        dialect.success_status.code(),
        &contact.to_full(&audience.topics, dialect.missing_name),
    ))
}

/// Returns a contact in the form of section 2.2.
///
/// # Errors
///
/// The same as [`retrieve`].
pub(super) fn in_create_form(
    audience: &Audience,
    address: &str,
) -> Result<Response<Bytes>, Refusal> {
    let dialect = audience.dialect;
    let form = audience.find(address)?.to_created(dialect.missing_name);
    Ok(json_response(dialect.success_status.code(), &form))
}

/// Adds properties to a contact: `PATCH /contacts/{address}` (section 4.7).
///
/// The document shows neither body nor response. By default, the mock expects `{"properties": {…}}`, and returns the
/// full form.
///
/// # Errors
///
/// In this order, unless the dialect chooses another one:
///
/// - 422 `validation_error` if the body is invalid;
/// - 404 `not_found` if the address is not a contact.
pub(super) fn merge(
    audience: &mut Audience,
    address: &str,
    body: &[u8],
) -> Result<Response<Bytes>, Refusal> {
    if audience.dialect.refusal_order == RefusalOrder::ContactFirst {
        audience.find(address)?;
    }
    let properties = parse_merge(body, audience.dialect).map_err(Refusal::invalid)?;
    audience.find_mut(address)?.properties.extend(properties);
    match audience.dialect.merge_response {
        MergeResponse::Full => retrieve(audience, address),
        MergeResponse::NoContent => Ok(empty_response(204)),
        MergeResponse::Create => in_create_form(audience, address),
    }
}

/// Deletes a contact, if the dialect says so: `DELETE /contacts/{address}` (section 4.7).
///
/// The document names deletion, but shows neither method, path nor response. Its address stays on the suppression list.
///
/// # Errors
///
/// - 501 `not_described` by default, and if the path has no address;
/// - 404 `not_found` if the address is not a contact.
pub(super) fn delete(audience: &mut Audience, address: &str) -> Result<Response<Bytes>, Refusal> {
    if audience.dialect.contact_deletion == ContactDeletion::NotDescribed || address.is_empty() {
        return Err(Refusal::not_described(
            "the interface document names the deletion of contacts, but does not show it, so nothing was deleted; with \
             the dialect `contact_deletion` `no_content`, the mock deletes at `DELETE /contacts/{address}`",
        ));
    }
    audience.find(address)?;
    audience.contacts.remove(address);
    Ok(empty_response(204))
}

/// Applies one create request body, from `POST /contacts` or from a batch.
///
/// # Errors
///
/// In this order, which is the mock's choice:
///
/// - 422 `validation_error` if the body is invalid;
/// - 409 `already_exists` if the address exists and `on_conflict` is `error`;
/// - 402 `quota_exceeded` if the contact is new and the ceiling is reached.
fn apply<'a>(
    audience: &'a mut Audience,
    body: &[u8],
    now: i64,
) -> Result<(&'a Contact, CreateOutcome), Refusal> {
    let dialect = audience.dialect;
    let body = CreateBody::parse(body, dialect).map_err(Refusal::invalid)?;
    if audience.contacts.find(&body.email).is_none() {
        let contact = audience.contacts.add(
            body.email,
            without_empty(body.first_name),
            without_empty(body.last_name),
            body.properties.unwrap_or_default(),
            now,
        )?;
        return Ok((contact, CreateOutcome::Created));
    }

    let address = body.email.clone();
    let outcome = match body.on_conflict {
        OnConflict::Upsert => {
            update(audience.find_mut(&address)?, body, dialect.omitted_members);
            CreateOutcome::Updated
        }
        OnConflict::Skip => CreateOutcome::Skipped,
        OnConflict::Error => return Err(Refusal::already_exists(&address)),
    };
    Ok((audience.find(&address)?, outcome))
}

/// The effect of a create request that was not refused.
#[derive(Clone, Copy)]
enum CreateOutcome {
    Created,
    Updated,
    Skipped,
}

impl CreateOutcome {
    /// Returns the `status` of a batch result entry (section 2.5).
    fn as_str(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Updated => "updated",
            Self::Skipped => "skipped",
        }
    }

    /// Returns the HTTP status of a create request (section 4.1).
    fn status(self) -> u16 {
        match self {
            Self::Created => 201,
            Self::Updated | Self::Skipped => 200,
        }
    }
}

/// Updates a stored contact. `properties` is replaced as a whole (section 4.1); consent does not change.
fn update(contact: &mut Contact, body: CreateBody, omitted: OmittedMembers) {
    let clear = omitted == OmittedMembers::Cleared;
    if body.first_name.is_some() || clear {
        contact.first_name = without_empty(body.first_name);
    }
    if body.last_name.is_some() || clear {
        contact.last_name = without_empty(body.last_name);
    }
    match body.properties {
        Some(properties) => contact.properties = properties,
        None if clear => contact.properties = Map::new(),
        None => {}
    }
}

/// Treats an empty name as missing. The document does not distinguish the two.
fn without_empty(name: Option<String>) -> Option<String> {
    name.filter(|name| !name.is_empty())
}

/// The number of entries in the longest batch (section 8).
const MAX_ENTRIES: usize = 100;

/// Applies each entry of a batch in order, and returns a result for each.
///
/// # Errors
///
/// - 422 `validation_error` if the body is not a JSON array;
/// - the status and slug that the dialect chooses if the batch has zero or more than 100 entries.
///
/// Then nothing is applied. An invalid entry does not refuse the batch: it fails by itself, even if it cannot be
/// parsed.
pub(super) fn create_batch(
    audience: &mut Audience,
    body: &[u8],
    now: i64,
) -> Result<Response<Bytes>, Refusal> {
    let entries = split_batch(body).map_err(Refusal::invalid)?;
    let count = entries.len();
    if count == 0 || count > MAX_ENTRIES {
        let message = format!("a batch must have 1 to {MAX_ENTRIES} entries, not {count}");
        return Err(Refusal::batch(message, audience.dialect.batch_refusal));
    }
    let mut quota_exceeded = None;
    let results: Vec<Value> = entries
        .into_iter()
        .map(|entry| apply_entry(audience, entry, &mut quota_exceeded, now))
        .collect();
    Ok(json_response(200, &json!({ "data": results })))
}

/// Applies an entry and returns its result (section 2.5).
///
/// Once an entry exceeds the quota, every entry after it reports the same, even an invalid one (section 4.2).
fn apply_entry(
    audience: &mut Audience,
    entry: &RawValue,
    quota_exceeded: &mut Option<Refusal>,
    now: i64,
) -> Value {
    let email = CreateBody::address_in(entry);
    let applied = match &*quota_exceeded {
        Some(refusal) => Err(refusal.clone()),
        None => apply(audience, entry.get().as_bytes(), now).map(|(_, outcome)| outcome),
    };
    match applied {
        Ok(outcome) => json!({"email": email, "status": outcome.as_str()}),
        Err(refusal) => {
            let message = message_member(audience.dialect.batch_message);
            let result = json!({"email": email, "status": refusal.code, message: refusal.message});
            if refusal.status == 402 {
                *quota_exceeded = Some(refusal);
            }
            result
        }
    }
}

/// Returns the name of the member that holds the message of a failed entry.
fn message_member(choice: BatchMessage) -> &'static str {
    match choice {
        BatchMessage::Message => "message",
        BatchMessage::Error => "error",
        BatchMessage::Detail => "detail",
        BatchMessage::Reason => "reason",
    }
}

/// The body of a create request, or an entry of a batch (section 2.4).
#[derive(Clone, Debug)]
struct CreateBody {
    /// Normalized and valid.
    email: String,
    first_name: Option<String>,
    last_name: Option<String>,
    properties: Option<Map<String, Value>>,
    on_conflict: OnConflict,
}

/// The effect of a create request if the address already exists (section 2.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OnConflict {
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
    fn parse(body: &[u8], dialect: Dialect) -> Result<Self, String> {
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
    fn address_in(entry: &RawValue) -> String {
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
fn split_batch(body: &[u8]) -> Result<Vec<&RawValue>, String> {
    serde_json::from_slice(body).map_err(|error| {
        if error.is_data() {
            "the body must be a JSON array".to_owned()
        } else {
            invalid_json(&error)
        }
    })
}

#[derive(Deserialize)]
struct MergeMembers {
    properties: UniqueMembers<Value>,
    #[serde(flatten)]
    unknown: Unknown,
}

/// Parses a merge request body and returns the properties to merge.
///
/// The document does not show this body (section 4.7). By default, the mock expects `{"properties": {…}}`.
///
/// # Errors
///
/// Fails if a member is missing or invalid, or if it is unknown and the dialect refuses unknown members.
fn parse_merge(body: &[u8], dialect: Dialect) -> Result<Map<String, Value>, String> {
    if dialect.merge_body == MergeBody::Bare {
        return checked_properties(parse(body, "the body")?, dialect);
    }
    let members: MergeMembers = parse(body, "the body")?;
    refuse_unknown(&members.unknown, dialect)?;
    checked_properties(members.properties, dialect)
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

#[cfg(test)]
mod tests;
