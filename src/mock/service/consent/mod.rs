//! Unsubscribe and subscribe: the consent transitions of section 3.2.

use bytes::Bytes;
use http::Response;
use serde::Deserialize;
use serde_json::Map;

use super::bodies::{Unknown, must_be, normalized, parse, present, refuse_unknown};
use super::contact::{Contact, Reason};
use super::contacts::{in_create_form, retrieve};
use super::dialect::{ConsentForm, Dialect, ReasonAfterSubscribe, RefusalOrder, UnknownAddress};
use super::{Audience, Refusal, check_address, empty_response};
use crate::mock::text::printable_name;

/// Opts a contact out of a topic, or of all broadcasts (section 4.5).
///
/// After a spam report, a global opt-out leaves the reason `complaint`. The table in section 3.2 would change it to
/// `manual`, and a subscribe could then undo the spam report.
///
/// # Errors
///
/// In this order, unless the dialect chooses another one:
///
/// - 422 `validation_error` if the body is invalid or declares a complaint;
/// - 404 `not_found` if the address is not a contact;
/// - 404 `not_found` if the topic is unknown.
pub(super) fn unsubscribe(
    audience: &mut Audience,
    address: &str,
    body: &[u8],
    now: i64,
) -> Result<Response<Bytes>, Refusal> {
    let order = audience.dialect.refusal_order;
    if order == RefusalOrder::ContactFirst {
        find_known(audience, address)?;
    }
    let body = UnsubscribeBody::parse(body, audience.dialect).map_err(Refusal::invalid)?;
    if order == RefusalOrder::TopicFirst {
        find_topic(audience, body.topic.as_deref())?;
    }
    find_known(audience, address)?;
    find_topic(audience, body.topic.as_deref())?;
    let contact = find_or_create(audience, address, now)?;
    match body.topic {
        Some(topic) => {
            contact.answers.insert(topic, false);
        }
        None => {
            contact.unsubscribed = true;
            if contact.reason != Reason::Complaint {
                contact.reason = body.reason;
            }
        }
    }
    consent_reply(audience, address)
}

/// Opts a contact into a topic, or clears its global opt-out (section 4.6).
///
/// # Errors
///
/// In this order, unless the dialect chooses another one:
///
/// - 422 `validation_error` if the body is invalid;
/// - 404 `not_found` if the address is not a contact;
/// - 422 `failed_precondition` if the contact reported spam;
/// - 404 `not_found` if the topic is unknown.
pub(super) fn subscribe(
    audience: &mut Audience,
    address: &str,
    body: &[u8],
    now: i64,
) -> Result<Response<Bytes>, Refusal> {
    let dialect = audience.dialect;
    if dialect.refusal_order == RefusalOrder::ContactFirst {
        check_complaint(find_known(audience, address)?)?;
    }
    let topic = parse_subscribe(body, dialect).map_err(Refusal::invalid)?;
    if dialect.refusal_order == RefusalOrder::TopicFirst {
        find_topic(audience, topic.as_deref())?;
    }
    check_complaint(find_known(audience, address)?)?;
    find_topic(audience, topic.as_deref())?;
    let contact = find_or_create(audience, address, now)?;
    match topic {
        Some(topic) => {
            contact.answers.insert(topic, true);
        }
        None => {
            contact.unsubscribed = false;
            if dialect.reason_after_subscribe == ReasonAfterSubscribe::Cleared {
                contact.reason = Reason::None;
            }
        }
    }
    consent_reply(audience, address)
}

/// Returns the contact with an address. `None` if there is none, and the dialect creates it.
///
/// # Errors
///
/// - 404 `not_found` or 422 `validation_error` if the dialect does not create it;
/// - 422 `validation_error` if it cannot be created with this address.
fn find_known<'a>(audience: &'a Audience, address: &str) -> Result<Option<&'a Contact>, Refusal> {
    let not_found = match audience.find(address) {
        Ok(contact) => return Ok(Some(contact)),
        Err(not_found) => not_found,
    };
    match audience.dialect.unknown_address {
        UnknownAddress::NotFound => Err(not_found),
        // The address of a contact in another spelling, if the dialect tells them apart.
        UnknownAddress::Created if audience.contacts.find(address).is_some() => Err(not_found),
        UnknownAddress::Unprocessable => Err(Refusal::invalid(not_found.message)),
        UnknownAddress::Created => check_address(address).map(|()| None),
    }
}

/// Returns the contact that [`find_known`] has found, or creates it.
///
/// # Errors
///
/// 402 `quota_exceeded` if it is new and the ceiling is reached.
fn find_or_create<'a>(
    audience: &'a mut Audience,
    address: &str,
    now: i64,
) -> Result<&'a mut Contact, Refusal> {
    let contacts = &mut audience.contacts;
    if contacts.find(address).is_none() {
        contacts.add(normalized(address), None, None, Map::new(), now)?;
    }
    audience.find_mut(&normalized(address))
}

/// Checks that there is such a topic.
///
/// # Errors
///
/// 404 `not_found` if the topic is unknown. The message names it (section 7).
fn find_topic(audience: &Audience, topic: Option<&str>) -> Result<(), Refusal> {
    match topic {
        Some(topic) if !audience.topics.contains_key(topic) => {
            let topic = printable_name(topic);
            Err(Refusal::not_found(format!("there is no topic `{topic}`")))
        }
        _ => Ok(()),
    }
}

/// Checks that a contact may be subscribed.
///
/// # Errors
///
/// 422 `failed_precondition` if it reported spam.
fn check_complaint(contact: Option<&Contact>) -> Result<(), Refusal> {
    match contact {
        Some(contact) if contact.reason == Reason::Complaint => {
            Err(Refusal::complaint_locked(&contact.email))
        }
        _ => Ok(()),
    }
}

/// Returns the contact. The document says "returns the contact" but not in which form; the dialect decides.
fn consent_reply(audience: &Audience, address: &str) -> Result<Response<Bytes>, Refusal> {
    // The contact may be new, with this address.
    let address = normalized(address);
    match audience.dialect.consent_form {
        ConsentForm::Full => retrieve(audience, &address),
        ConsentForm::NoContent => Ok(empty_response(204)),
        ConsentForm::Create => in_create_form(audience, &address),
    }
}

/// The body of an unsubscribe request (section 4.5).
#[derive(Clone, Debug, PartialEq, Eq)]
struct UnsubscribeBody {
    /// `manual` or `preferences`.
    reason: Reason,
    /// The topic to opt out of. `None` means all broadcasts.
    topic: Option<String>,
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
    fn parse(body: &[u8], dialect: Dialect) -> Result<Self, String> {
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
fn parse_subscribe(body: &[u8], dialect: Dialect) -> Result<Option<String>, String> {
    let members: SubscribeMembers = parse(or_empty_object(body), "the body")?;
    refuse_unknown(&members.unknown, dialect)?;
    Ok(members.topic)
}

fn or_empty_object(body: &[u8]) -> &[u8] {
    if body.is_empty() { b"{}" } else { body }
}

#[cfg(test)]
mod tests;
