//! Create, one by one and in batches; retrieve; merge (sections 4.1 to 4.3 and 4.7).

use serde_json::{Map, Value, json};

use super::address::normalised;
use super::audience::{Audience, reply};
use super::contact::Contact;
use super::dialect::{BatchMessage, LeftOut};
use super::json;
use super::message::Reply;
use super::reading::{self, Entry, OnConflict};
use super::refusal::Refusal;

const MOST_ENTRIES: usize = 100;

impl Audience {
    pub(super) fn create(&mut self, body: &[u8], now: i64) -> Result<Reply, Refusal> {
        let body = json::value(body).map_err(Refusal::invalid)?;
        let missing = self.dialect.missing_name;
        let (contact, outcome) = self.apply(&body, now)?;
        let form = contact.created(missing);
        Ok(reply(outcome.status(), &form))
    }

    pub(super) fn create_batch(&mut self, body: &[u8], now: i64) -> Result<Reply, Refusal> {
        let entries = json::array(body).map_err(Refusal::invalid)?;
        if entries.is_empty() || entries.len() > MOST_ENTRIES {
            let found = entries.len();
            let message = format!("a batch has 1 to {MOST_ENTRIES} entries, not {found}");
            return Err(Refusal::batch(message, self.dialect.batch_refusal));
        }
        let mut over_quota = None;
        let results: Vec<Value> = entries
            .into_iter()
            .map(|entry| self.batch_result(entry, &mut over_quota, now))
            .collect();
        Ok(reply(200, &json!({ "data": results })))
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

    /// Once an entry is over the ceiling, every entry after it is, whatever it says (section 4.2).
    fn batch_result(
        &mut self,
        entry: Result<Value, String>,
        over_quota: &mut Option<Refusal>,
        now: i64,
    ) -> Value {
        let email = entry.as_ref().map(Entry::address_of).unwrap_or_default();
        let applied = match (&*over_quota, entry) {
            (Some(refusal), _) => Err(refusal.clone()),
            (None, Err(message)) => Err(Refusal::invalid(message)),
            (None, Ok(body)) => self.apply(&body, now).map(|(_, outcome)| outcome),
        };
        match applied {
            Ok(outcome) => json!({"email": email, "status": outcome.as_str()}),
            Err(refusal) => {
                let message = match self.dialect.batch_message {
                    BatchMessage::Message => "message",
                    BatchMessage::Error => "error",
                    BatchMessage::Detail => "detail",
                    BatchMessage::Reason => "reason",
                };
                let result =
                    json!({"email": email, "status": refusal.code, message: refusal.message});
                if refusal.status == 402 {
                    *over_quota = Some(refusal);
                }
                result
            }
        }
    }

    /// Refuses in the order 422, 409, 402.
    fn apply(&mut self, body: &Value, now: i64) -> Result<(&Contact, Outcome), Refusal> {
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
enum Outcome {
    Created,
    Updated,
    Skipped,
}

impl Outcome {
    fn as_str(self) -> &'static str {
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
