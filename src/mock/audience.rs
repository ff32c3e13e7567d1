//! The service as a state machine: a request and a moment in, an answer out.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;

use serde::Serialize;
use serde_json::Value;

use super::address::normalised;
use super::contact::{Reason, StoredContact};
use super::dialect::Dialect;
use super::engagement::{Engagement, Engagements};
use super::json::listed;
use super::key::{Key, Keys};
use super::message::{Outgoing, Reply, Request};
use super::refusal::Refusal;
use super::roster::Roster;
use super::router::{Operation, Place};
use super::segment::{Segment, SegmentKind};

/// What a service is set up with.
#[derive(Clone)]
pub(crate) struct Settings {
    pub(crate) full_key: String,
    pub(crate) sending_key: String,
    /// How many contacts may be stored; `None` is as many as there come.
    pub(crate) ceiling: Option<u64>,
    /// `None` is `Authorization: Bearer`; a header that is named holds the bare key.
    pub(crate) key_header: Option<String>,
    pub(crate) dialect: Dialect,
}

/// Everything the service knows of one audience, and what it answers.
///
/// Nothing in here waits, reads a clock or knows of HTTP libraries.
#[derive(Clone)]
pub(crate) struct Audience {
    keys: Keys,
    pub(super) dialect: Dialect,
    pub(super) ceiling: Option<u64>,
    pub(super) roster: Roster,
    /// Every topic's name and default answer.
    pub(super) topics: BTreeMap<String, bool>,
    pub(super) segments: HashMap<String, Segment>,
    pub(super) engagements: Engagements,
    /// The addresses that mail no longer goes out to, contacts or not.
    pub(super) suppressed: HashSet<String>,
    pub(super) emails: u64,
    pub(super) outbox: Vec<Outgoing>,
}

impl Audience {
    pub(crate) fn new(settings: Settings) -> Self {
        Self {
            keys: Keys {
                full: settings.full_key,
                sending: settings.sending_key,
                header: settings.key_header,
            },
            dialect: settings.dialect,
            ceiling: settings.ceiling,
            roster: Roster::default(),
            topics: BTreeMap::new(),
            segments: HashMap::new(),
            engagements: Engagements::default(),
            suppressed: HashSet::new(),
            emails: 0,
            outbox: Vec::new(),
        }
    }

    /// The answer to a request that arrives at `now`, in Unix seconds. Any bytes have one.
    pub(crate) fn handle(&mut self, request: &Request<'_>, now: i64) -> Reply {
        self.answer(request, now)
            .unwrap_or_else(|refusal| refusal.reply(self.dialect.error_shape))
    }

    /// A topic, new or with another default.
    pub(crate) fn topic(&mut self, name: &str, default: bool) {
        self.topics.insert(name.to_owned(), default);
    }

    /// A segment, new or in place of the one with this id.
    pub(crate) fn segment(&mut self, id: &str, kind: SegmentKind) -> Result<(), String> {
        self.segments.insert(id.to_owned(), Segment::read(kind)?);
        Ok(())
    }

    /// A mailbox provider's spam report: what no request can undo (section 3.2).
    pub(crate) fn report_spam(&mut self, address: &str, now: i64) {
        let address = normalised(address);
        if let Some(contact) = self.roster.find_mut(&address) {
            contact.unsubscribed = true;
            contact.reason = Reason::Complaint;
        }
        self.engagements.note(&address, Engagement::Complained, now);
        self.suppressed.insert(address);
    }

    /// Notes what an address did with its mail; an error where `what` is no engagement.
    pub(crate) fn engage(&mut self, address: &str, what: &str, at: i64) -> Result<(), String> {
        let Some(what) = Engagement::named(what) else {
            return Err(format!(
                "`{}` is none of {}",
                what.escape_debug(),
                listed(&Engagement::NAMES)
            ));
        };
        self.engagements.note(&normalised(address), what, at);
        Ok(())
    }

    /// Takes in an event: one about a contact's mail is engagement, and a complaint a spam report.
    pub(crate) fn record(&mut self, event_type: &str, data: &Value, at: i64) {
        let what = event_type
            .strip_prefix("email.")
            .and_then(Engagement::named);
        let (Some(what), Some(address)) = (what, data.get("to").and_then(Value::as_str)) else {
            return;
        };
        if what == Engagement::Complained {
            return self.report_spam(address, at);
        }
        let address = normalised(address);
        if self.roster.find(&address).is_some() {
            self.engagements.note(&address, what, at);
        }
    }

    pub(crate) fn contact(&self, address: &str) -> Option<StoredContact> {
        let contact = self.roster.find(&normalised(address))?;
        Some(contact.stored(&self.topics))
    }

    pub(crate) fn contacts(&self) -> usize {
        self.roster.len()
    }

    /// How many contacts may be stored from now on; those there are stay.
    pub(crate) fn ceiling(&mut self, contacts: Option<u64>) {
        self.ceiling = contacts;
    }

    /// The events to deliver that have gathered since the last call, oldest first.
    pub(crate) fn take_events(&mut self) -> Vec<Outgoing> {
        std::mem::take(&mut self.outbox)
    }

    /// Refuses in the order 401, 404 or 405 for the path, 403, and then as the operation does.
    fn answer(&mut self, request: &Request<'_>, now: i64) -> Result<Reply, Refusal> {
        let key = self.keys.find(request.headers)?;
        let place = Place::of(request.path)?;
        if key == Key::Sending && place.is_of_the_audience() {
            return Err(Refusal::key_not_permitted());
        }
        let body = request.body;
        match place.operation(request.method)? {
            Operation::Create => self.create(body, now),
            Operation::CreateBatch => self.create_batch(body, now),
            Operation::Retrieve(address) => self.retrieve(&address),
            Operation::List => self.list(request.query.unwrap_or_default(), now),
            Operation::Unsubscribe(address) => self.unsubscribe(&address, body),
            Operation::Subscribe(address) => self.subscribe(&address, body),
            Operation::Merge(address) => self.merge(&address, body),
            Operation::SendEmail => self.send_email(body, now),
        }
    }
}

/// Counts and settings only: contacts are personal data, and keys are keys.
impl fmt::Debug for Audience {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Audience")
            .field("contacts", &self.contacts())
            .field("ceiling", &self.ceiling)
            .field("dialect", &self.dialect)
            .finish_non_exhaustive()
    }
}

/// An answer that is no refusal.
pub(super) fn reply(status: u16, body: &impl Serialize) -> Reply {
    Reply {
        status,
        body: serde_json::to_vec(body)
            .expect("text, numbers and maps with text for keys always have a JSON form"),
    }
}
