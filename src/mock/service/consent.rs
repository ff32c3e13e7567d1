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
mod tests {
    use serde_json::{Value, json};

    use super::super::dialect::{Dialect, PathAddress, SuccessStatus};
    use super::super::mail::report_spam;
    use super::super::{Service, message, status_and_slug};
    use super::*;

    const UNSUBSCRIBE: &str = "/contacts/ada%40x.io/unsubscribe";
    const SUBSCRIBE: &str = "/contacts/ada%40x.io/subscribe";

    fn with_ada(dialect: Dialect) -> Service {
        let mut service = Service::with_dialect(dialect);
        service.audience.put_topic("news", true);
        service.audience.put_topic("offers", false);
        service.create("ada@x.io");
        service
    }

    fn state(contact: &Value) -> (bool, &str, &Value) {
        let unsubscribed = contact["unsubscribed"].as_bool().unwrap();
        let reason = contact["unsubscribe_reason"].as_str().unwrap();
        (unsubscribed, reason, &contact["topics"])
    }

    #[test]
    fn each_transition_leads_to_the_state_of_section_3_2() {
        let defaults = json!({"news": true, "offers": false});
        let steps = [
            (UNSUBSCRIBE, "", (true, "manual", defaults.clone())),
            (
                UNSUBSCRIBE,
                r#"{"reason": "preferences"}"#,
                (true, "preferences", defaults.clone()),
            ),
            (
                UNSUBSCRIBE,
                r#"{"reason": "manual"}"#,
                (true, "manual", defaults.clone()),
            ),
            (SUBSCRIBE, "", (false, "", defaults.clone())),
            (SUBSCRIBE, "{}", (false, "", defaults)),
            (
                UNSUBSCRIBE,
                r#"{"topic": "news"}"#,
                (false, "", json!({"news": false, "offers": false})),
            ),
            (
                SUBSCRIBE,
                r#"{"topic": "offers"}"#,
                (false, "", json!({"news": false, "offers": true})),
            ),
            (
                UNSUBSCRIBE,
                r#"{"topic": "offers", "reason": "preferences"}"#,
                (false, "", json!({"news": false, "offers": false})),
            ),
        ];
        let mut service = with_ada(Dialect::default());
        for (target, body, (unsubscribed, reason, topics)) in steps {
            let (status, contact) = service.send("full", "POST", target, body.as_bytes());

            assert_eq!(status, 200, "{target} {body}");
            assert_eq!(
                state(&contact),
                (unsubscribed, reason, &topics),
                "{target} {body}"
            );
            assert_eq!(service.get("/contacts/ada%40x.io").1, contact);
        }
    }

    #[test]
    fn no_request_undoes_a_complaint() {
        let mut service = with_ada(Dialect::default());
        report_spam(&mut service.audience, "ada@x.io", service.now);

        for body in [
            json!({}),
            json!({"reason": "preferences"}),
            json!({"topic": "news"}),
        ] {
            assert_eq!(service.post(UNSUBSCRIBE, &body).0, 200);
            let response = service.post(SUBSCRIBE, &json!({}));
            assert_eq!(
                status_and_slug(&response),
                (422, "failed_precondition"),
                "{body}"
            );
        }
        let topic = service.post(SUBSCRIBE, &json!({"topic": "offers"}));
        assert_eq!(status_and_slug(&topic), (422, "failed_precondition"));
        service.post(
            "/contacts",
            &json!({"email": "ada@x.io", "first_name": "Ada"}),
        );

        let (_, ada) = service.get("/contacts/ada@x.io");
        assert_eq!(
            state(&ada),
            (true, "complaint", &json!({"news": false, "offers": false}))
        );
    }

    #[test]
    fn the_first_applicable_refusal_is_returned_and_nothing_changes() {
        let mut service = with_ada(Dialect::default());
        let declared = json!({"reason": "complaint"});
        let unknown = json!({"topic": "nonsense"});
        let nobody = "/contacts/bob@x.io";

        let cases = [
            (
                service.post(UNSUBSCRIBE, &declared),
                422,
                "validation_error",
            ),
            (
                service.post(&format!("{nobody}/unsubscribe"), &declared),
                422,
                "validation_error",
            ),
            (
                service.post(&format!("{nobody}/unsubscribe"), &unknown),
                404,
                "not_found",
            ),
            (
                service.post(&format!("{nobody}/subscribe"), &unknown),
                404,
                "not_found",
            ),
            (
                service.post(SUBSCRIBE, &json!({"reason": "manual"})),
                422,
                "validation_error",
            ),
            (
                service.post(SUBSCRIBE, &json!("news")),
                422,
                "validation_error",
            ),
        ];
        for (response, status, code) in &cases {
            assert_eq!(status_and_slug(response), (*status, *code), "{response:?}");
        }
        assert!(message(&cases[2].0).contains("bob@x.io"));
        for target in [SUBSCRIBE, UNSUBSCRIBE] {
            let response = service.post(target, &unknown);
            assert_eq!(status_and_slug(&response), (404, "not_found"));
            assert_eq!(message(&response), "there is no topic `nonsense`");
        }
        report_spam(&mut service.audience, "ada@x.io", service.now);
        let locked = service.post(SUBSCRIBE, &unknown);
        assert_eq!(status_and_slug(&locked), (422, "failed_precondition"));
    }

    #[test]
    fn the_message_about_an_unknown_topic_has_only_the_beginning_of_a_long_name() {
        let mut service = with_ada(Dialect::default());

        let response = service.post(SUBSCRIBE, &json!({"topic": "t".repeat(1_000_000)}));

        let expected = format!("there is no topic `{}…`", "t".repeat(200));
        assert_eq!(message(&response), expected);
    }

    #[test]
    fn a_new_default_applies_to_topics_the_contact_never_answered() {
        let mut service = with_ada(Dialect::default());
        service.post(UNSUBSCRIBE, &json!({"topic": "news"}));

        service.audience.put_topic("news", true);
        service.audience.put_topic("offers", true);

        let (_, ada) = service.get("/contacts/ada@x.io");
        assert_eq!(ada["topics"], json!({"news": false, "offers": true}));
    }

    #[test]
    fn the_dialect_decides_the_form_the_status_and_the_reason_after_subscribe() {
        let mut service = with_ada(Dialect {
            consent_form: ConsentForm::Create,
            success_status: SuccessStatus::Accepted,
            reason_after_subscribe: ReasonAfterSubscribe::Kept,
            ..Dialect::default()
        });
        service.post_without_body(UNSUBSCRIBE);

        let (status, contact) = service.post_without_body(SUBSCRIBE);

        assert_eq!(status, 202);
        assert_eq!(contact.get("topics"), None);
        let (_, ada) = service.get("/contacts/ada@x.io");
        assert_eq!(
            (&ada["unsubscribed"], &ada["unsubscribe_reason"]),
            (&json!(false), &json!("manual"))
        );
    }

    #[test]
    fn another_spelling_changes_no_contact_if_the_dialect_tells_them_apart() {
        let mut service = with_ada(Dialect {
            path_address: PathAddress::Exact,
            unknown_address: UnknownAddress::Created,
            ..Dialect::default()
        });
        report_spam(&mut service.audience, "ada@x.io", service.now);
        let (_, before) = service.get("/contacts/ada%40x.io");

        for target in [
            "/contacts/Ada%40x.io/subscribe",
            "/contacts/Ada%40x.io/unsubscribe",
        ] {
            assert_eq!(service.post_without_body(target).0, 404, "{target}");
        }
        let created = service.post_without_body("/contacts/Bob%40x.io/unsubscribe");

        assert_eq!(service.get("/contacts/ada%40x.io").1, before);
        assert_eq!((created.0, &created.1["email"]), (200, &json!("bob@x.io")));
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
}
