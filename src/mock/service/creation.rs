//! Create, retrieve, merge (sections 4.1, 4.3 and 4.7).

use serde_json::{Map, Value};

use super::address::normalised;
use super::audience::{Audience, reply};
use super::contact::Contact;
use super::dialect::LeftOut;
use super::json;
use super::message::Reply;
use super::reading::{self, Entry, OnConflict};
use super::refusal::Refusal;

impl Audience {
    pub(super) fn create(&mut self, body: &[u8], now: i64) -> Result<Reply, Refusal> {
        let body = json::value(body).map_err(Refusal::invalid)?;
        let missing = self.dialect.missing_name;
        let (contact, outcome) = self.apply(&body, now)?;
        let form = contact.created(missing);
        Ok(reply(outcome.status(), &form))
    }

    pub(super) fn retrieve(&self, address: &str) -> Result<Reply, Refusal> {
        let contact = self.found(address)?;
        let form = contact.full(&self.topics, self.dialect.missing_name);
        Ok(reply(self.dialect.success_status.code(), &form))
    }

    pub(super) fn merge(&mut self, address: &str, body: &[u8]) -> Result<Reply, Refusal> {
        let properties = reading::merge(body, self.dialect).map_err(Refusal::invalid)?;
        let contact = self.found_mut(address)?;
        contact.properties.extend(properties);
        self.retrieve(address)
    }

    pub(super) fn found(&self, address: &str) -> Result<&Contact, Refusal> {
        let contact = self.roster.find(&normalised(address));
        contact.ok_or_else(|| no_contact(address))
    }

    pub(super) fn found_mut(&mut self, address: &str) -> Result<&mut Contact, Refusal> {
        let contact = self.roster.find_mut(&normalised(address));
        contact.ok_or_else(|| no_contact(address))
    }

    /// Refuses in the order 422, 409, 402.
    pub(super) fn apply(&mut self, body: &Value, now: i64) -> Result<(&Contact, Outcome), Refusal> {
        let entry = Entry::read(body, self.dialect).map_err(Refusal::invalid)?;
        let exists = self.roster.find(&entry.email).is_some();
        if !exists {
            return Ok((self.add(entry, now)?, Outcome::Created));
        }
        let left_out = self.dialect.left_out;
        let address = entry.email.clone();
        let outcome = match entry.on_conflict {
            OnConflict::Upsert => {
                update(self.found_mut(&address)?, entry, left_out);
                Outcome::Updated
            }
            OnConflict::Skip => Outcome::Skipped,
            OnConflict::Error => return Err(Refusal::already_exists(&address)),
        };
        Ok((self.found(&address)?, outcome))
    }

    fn add(&mut self, entry: Entry, now: i64) -> Result<&Contact, Refusal> {
        if let Some(ceiling) = self.ceiling
            && self.roster.len() as u64 >= ceiling
        {
            return Err(Refusal::quota_exceeded(ceiling));
        }
        Ok(self.roster.add(
            entry.email,
            given(entry.first_name),
            given(entry.last_name),
            entry.properties.unwrap_or_default(),
            now,
        ))
    }
}

/// What became of an entry that was taken.
#[derive(Clone, Copy)]
pub(super) enum Outcome {
    Created,
    Updated,
    Skipped,
}

impl Outcome {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Updated => "updated",
            Self::Skipped => "skipped",
        }
    }

    fn status(self) -> u16 {
        match self {
            Self::Created => 201,
            Self::Updated | Self::Skipped => 200,
        }
    }
}

/// `properties` is replaced as a whole (section 4.1); consent is not touched by any of this.
fn update(contact: &mut Contact, entry: Entry, left_out: LeftOut) {
    let cleared = left_out == LeftOut::Cleared;
    if entry.first_name.is_some() || cleared {
        contact.first_name = given(entry.first_name);
    }
    if entry.last_name.is_some() || cleared {
        contact.last_name = given(entry.last_name);
    }
    match entry.properties {
        Some(properties) => contact.properties = properties,
        None if cleared => contact.properties = Map::new(),
        None => {}
    }
}

/// An empty name is no name: the service writes one for the other.
fn given(name: Option<String>) -> Option<String> {
    name.filter(|name| !name.is_empty())
}

fn no_contact(address: &str) -> Refusal {
    let address = address.escape_debug();
    Refusal::not_found(format!("`{address}` is not a contact of yours"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::dialect::{Dialect, PropertyValues};
    use super::super::testing::{Service, slug};
    use super::*;

    fn ada(on_conflict: &str, plan: &str) -> Value {
        json!({"email": "Ada@x.io", "first_name": "Ada", "properties": {plan: 1}, "on_conflict": on_conflict})
    }

    #[test]
    fn a_contact_is_created_once_and_updated_after_that() {
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
    fn a_conflict_ends_as_the_caller_asks() {
        let mut service = Service::new();
        service.post("/contacts", &ada("error", "free"));

        let skipped = service.post("/contacts", &ada("skip", "pro"));
        let refused = service.post("/contacts", &ada("error", "pro"));

        assert_eq!(
            (skipped.0, &skipped.1["properties"]),
            (200, &json!({"free": 1}))
        );
        assert_eq!(slug(&refused), (409, "already_exists"));
    }

    #[test]
    fn what_an_upsert_leaves_out_stays_and_an_empty_object_clears() {
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
    fn an_upsert_never_touches_consent() {
        let mut service = Service::new();
        service.create("ada@x.io");
        service.call("/contacts/ada@x.io/unsubscribe");

        let (_, contact) = service.post("/contacts", &ada("upsert", "pro"));

        assert_eq!(contact["unsubscribed"], json!(true));
    }

    #[test]
    fn the_ceiling_stops_new_contacts_and_no_others() {
        let mut service = Service::new();
        service.audience.set_ceiling(Some(1));
        service.create("ada@x.io");

        let another = service.post("/contacts", &json!({"email": "bob@x.io"}));
        let update = service.post("/contacts", &ada("upsert", "pro"));
        let conflict = service.post("/contacts", &ada("error", "pro"));
        let invalid = service.post("/contacts", &json!({"email": "bob"}));

        assert_eq!(slug(&another), (402, "quota_exceeded"));
        assert_eq!(update.0, 200);
        assert_eq!(slug(&conflict), (409, "already_exists"));
        assert_eq!(slug(&invalid), (422, "validation_error"));
    }

    #[test]
    fn a_merge_adds_to_the_properties_and_answers_with_the_full_form() {
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
        assert_eq!(slug(&unknown), (404, "not_found"));
        let missing = service.patch("/contacts/bob@x.io", &json!({}));
        assert_eq!(slug(&missing), (422, "validation_error"));
    }

    #[test]
    fn a_dialect_decides_what_the_document_leaves_open() {
        let mut service = Service::speaking(Dialect {
            left_out: LeftOut::Cleared,
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
