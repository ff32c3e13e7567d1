//! Create, retrieve and merge: the operations on one contact (sections 4.1, 4.3 and 4.7).

use serde_json::{Map, Value};

use super::audience_state::AudienceState;
use super::contact::Contact;
use super::dialect::OmittedMembers;
use super::json;
use super::message::Reply;
use super::refusal::Refusal;
use super::request_body::{CreateBody, OnConflict, parse_merge};

/// Creates a contact, or updates the stored one: `POST /contacts` (section 4.1).
///
/// # Errors
///
/// The same as [`apply`], and 422 `validation_error` if the body is not JSON.
pub(super) fn create(state: &mut AudienceState, body: &[u8], now: i64) -> Result<Reply, Refusal> {
    let body = json::parse(body).map_err(Refusal::invalid)?;
    let missing_name = state.dialect().missing_name;
    let (contact, outcome) = apply(state, &body, now)?;
    Ok(Reply::json(
        outcome.status(),
        &contact.to_created(missing_name),
    ))
}

/// Returns a contact in its full form: `GET /contacts/{address}` (section 4.3).
///
/// # Errors
///
/// 404 `not_found` if the address is not a contact.
pub(super) fn retrieve(state: &AudienceState, address: &str) -> Result<Reply, Refusal> {
    let dialect = state.dialect();
    let contact = state.contact(address)?;
    Ok(Reply::json(
        dialect.success_status.code(),
        &contact.to_full(state.topics(), dialect.missing_name),
    ))
}

/// Adds properties to a contact: `PATCH /contacts/{address}` (section 4.7).
///
/// The document shows neither body nor response. The mock expects `{"properties": {…}}` and returns the full form.
///
/// # Errors
///
/// - 422 `validation_error` if the body is invalid;
/// - 404 `not_found` if the address is not a contact.
pub(super) fn merge(
    state: &mut AudienceState,
    address: &str,
    body: &[u8],
) -> Result<Reply, Refusal> {
    let properties = parse_merge(body, state.dialect()).map_err(Refusal::invalid)?;
    state.contact_mut(address)?.properties.extend(properties);
    retrieve(state, address)
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
pub(super) fn apply<'a>(
    state: &'a mut AudienceState,
    body: &Value,
    now: i64,
) -> Result<(&'a Contact, CreateOutcome), Refusal> {
    let dialect = state.dialect();
    let body = CreateBody::parse(body, dialect).map_err(Refusal::invalid)?;
    if state.contacts().find(&body.email).is_none() {
        let contact = state.contacts_mut().add(
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
            update(state.contact_mut(&address)?, body, dialect.omitted_members);
            CreateOutcome::Updated
        }
        OnConflict::Skip => CreateOutcome::Skipped,
        OnConflict::Error => return Err(Refusal::already_exists(&address)),
    };
    Ok((state.contact(&address)?, outcome))
}

/// The effect of a create request that was not refused.
#[derive(Clone, Copy)]
pub(super) enum CreateOutcome {
    Created,
    Updated,
    Skipped,
}

impl CreateOutcome {
    /// Returns the `status` of a batch result entry (section 2.5).
    pub(super) fn as_str(self) -> &'static str {
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::dialect::{Dialect, PropertyValues};
    use super::super::testing::{Service, status_and_slug};
    use super::*;

    fn ada(on_conflict: &str, plan: &str) -> Value {
        json!({"email": "Ada@x.io", "first_name": "Ada", "properties": {plan: 1}, "on_conflict": on_conflict})
    }

    #[test]
    fn a_contact_is_created_by_the_first_request_and_updated_by_the_next() {
        let mut service = Service::new();

        let first = service.post("/contacts", &ada("upsert", "free"));
        let second = service.post("/contacts", &ada("upsert", "pro"));

        assert_eq!(
            first,
            (
                201,
                json!({"id": "con_00000001", "email": "ada@x.io", "first_name": "Ada", "last_name": "",
                "properties": {"free": 1}, "unsubscribed": false, "created_at": 1_700_000_000})
            )
        );
        assert_eq!(second.0, 200);
        assert_eq!(second.1["properties"], json!({"pro": 1}));
        assert_eq!(service.audience.contact_count(), 1);
    }

    #[test]
    fn on_conflict_decides_what_happens_to_an_existing_contact() {
        let mut service = Service::new();
        service.post("/contacts", &ada("error", "free"));

        let skipped = service.post("/contacts", &ada("skip", "pro"));
        let refused = service.post("/contacts", &ada("error", "pro"));

        assert_eq!(
            (skipped.0, &skipped.1["properties"]),
            (200, &json!({"free": 1}))
        );
        assert_eq!(status_and_slug(&refused), (409, "already_exists"));
    }

    #[test]
    fn an_upsert_keeps_what_it_leaves_out_and_clears_what_it_sends_empty() {
        let mut service = Service::new();
        service.post("/contacts", &ada("upsert", "free"));

        service.post("/contacts", &json!({"email": "ada@x.io", "last_name": "L"}));
        let kept = service.audience.contact("ada@x.io").unwrap();
        service.post(
            "/contacts",
            &json!({"email": "ada@x.io", "properties": {}, "first_name": ""}),
        );
        let cleared = service.audience.contact("ada@x.io").unwrap();

        assert_eq!(kept.first_name.as_deref(), Some("Ada"));
        assert_eq!(kept.last_name.as_deref(), Some("L"));
        assert_eq!(kept.properties.len(), 1);
        assert_eq!((cleared.first_name, cleared.properties.len()), (None, 0));
    }

    #[test]
    fn an_upsert_does_not_change_consent() {
        let mut service = Service::new();
        service.create("ada@x.io");
        service.post_without_body("/contacts/ada@x.io/unsubscribe");

        let (_, contact) = service.post("/contacts", &ada("upsert", "pro"));

        assert_eq!(contact["unsubscribed"], json!(true));
    }

    #[test]
    fn the_ceiling_refuses_only_new_contacts() {
        let mut service = Service::new();
        service.audience.set_ceiling(Some(1));
        service.create("ada@x.io");

        let another = service.post("/contacts", &json!({"email": "bob@x.io"}));
        let update = service.post("/contacts", &ada("upsert", "pro"));
        let conflict = service.post("/contacts", &ada("error", "pro"));
        let invalid = service.post("/contacts", &json!({"email": "bob"}));

        assert_eq!(status_and_slug(&another), (402, "quota_exceeded"));
        assert_eq!(update.0, 200);
        assert_eq!(status_and_slug(&conflict), (409, "already_exists"));
        assert_eq!(status_and_slug(&invalid), (422, "validation_error"));
    }

    #[test]
    fn a_merge_adds_properties_and_returns_the_full_form() {
        let mut service = Service::new();
        service.post(
            "/contacts",
            &json!({"email": "ada@x.io", "properties": {"a": 1, "b": 1}}),
        );

        let merged = service.patch("/contacts/ADA%40x.io", &json!({"properties": {"b": 2}}));

        assert_eq!(merged.0, 200);
        assert_eq!(merged.1["properties"], json!({"a": 1, "b": 2}));
        assert_eq!(merged.1["unsubscribe_reason"], json!(""));
        let unknown = service.patch("/contacts/bob@x.io", &json!({"properties": {}}));
        assert_eq!(status_and_slug(&unknown), (404, "not_found"));
        let missing = service.patch("/contacts/bob@x.io", &json!({}));
        assert_eq!(status_and_slug(&missing), (422, "validation_error"));
    }

    #[test]
    fn the_dialect_decides_left_out_members_and_property_values() {
        let mut service = Service::with_dialect(Dialect {
            omitted_members: OmittedMembers::Cleared,
            property_values: PropertyValues::Any,
            ..Dialect::default()
        });
        service.post(
            "/contacts",
            &json!({"email": "ada@x.io", "properties": {"a": [true]}}),
        );

        let kept = service.audience.contact("ada@x.io").unwrap();
        service.post("/contacts", &json!({"email": "ada@x.io"}));
        let cleared = service.audience.contact("ada@x.io").unwrap();

        assert_eq!(kept.properties.get("a"), Some(&json!([true])));
        assert!(cleared.properties.is_empty());
    }
}
