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
use super::key::{DEFAULT_FULL_KEY, DEFAULT_SENDING_KEY, Key, Keys};
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

impl Default for Settings {
    fn default() -> Self {
        Self {
            full_key: DEFAULT_FULL_KEY.to_owned(),
            sending_key: DEFAULT_SENDING_KEY.to_owned(),
            ceiling: None,
            key_header: None,
            dialect: Dialect::default(),
        }
    }
}

/// Keys are secrets also where they are made up for a test: a test may hand in a real one.
impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings")
            .field("ceiling", &self.ceiling)
            .field("key_header", &self.key_header)
            .field("dialect", &self.dialect)
            .finish_non_exhaustive()
    }
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
    pub(crate) fn put_topic(&mut self, name: &str, default: bool) {
        self.topics.insert(name.to_owned(), default);
    }

    /// A segment, new or in place of the one with this id.
    pub(crate) fn put_segment(&mut self, id: &str, kind: SegmentKind) -> Result<(), String> {
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
    pub(crate) fn record_engagement(
        &mut self,
        address: &str,
        what: &str,
        at: i64,
    ) -> Result<(), String> {
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
    pub(crate) fn record_event(&mut self, event_type: &str, data: &Value, at: i64) {
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

    pub(crate) fn contact_count(&self) -> usize {
        self.roster.len()
    }

    /// How many contacts may be stored from now on; those there are stay.
    pub(crate) fn set_ceiling(&mut self, contacts: Option<u64>) {
        self.ceiling = contacts;
    }

    /// The events to deliver that have gathered since the last call, oldest first.
    pub(crate) fn take_events(&mut self) -> Vec<Outgoing> {
        std::mem::take(&mut self.outbox)
    }

    /// Refuses in the order: 401, 404 for the path, 403, 404 for the method, and then as the operation does.
    fn answer(&mut self, request: &Request<'_>, now: i64) -> Result<Reply, Refusal> {
        let key = self.keys.find(request.headers)?;
        let place = Place::of(request.path);
        let of_the_audience = match &place {
            Ok(place) => place.is_of_the_audience(),
            Err(refusal) => refusal.status != 404,
        };
        if key == Key::Sending && of_the_audience {
            return Err(Refusal::key_not_permitted());
        }
        let place = place?;
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
            .field("contacts", &self.contact_count())
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::testing::{Service, slug};

    #[test]
    fn a_sending_key_is_good_for_emails_alone() {
        let mut service = Service::new();
        for (method, target) in [
            ("POST", "/contacts"),
            ("GET", "/contacts"),
            ("POST", "/contacts/batch"),
            ("GET", "/contacts/ada@x.io"),
            ("PATCH", "/contacts/ada@x.io"),
            ("POST", "/contacts/ada@x.io/subscribe"),
            ("POST", "/contacts/ada@x.io/unsubscribe"),
        ] {
            let answer = service.send("sending", method, target, b"not even JSON");

            assert_eq!(
                slug(&answer),
                (403, "key_not_permitted"),
                "{method} {target}"
            );
        }
        let body = json!({"from": "me@x.io", "to": "ada@x.io"}).to_string();
        for key in ["sending", "full"] {
            assert_eq!(service.send(key, "POST", "/emails", body.as_bytes()).0, 200);
        }
    }

    #[test]
    fn the_key_is_judged_before_anything_else() {
        let mut service = Service::new();
        for target in ["/contacts", "/nowhere", "/contacts/%"] {
            let answer = service.send("other", "GET", target, b"");

            assert_eq!(slug(&answer), (401, "unauthorized"), "{target}");
        }
        assert_eq!(slug(&service.get("/nowhere")), (404, "not_found"));
        assert_eq!(
            slug(&service.send("full", "DELETE", "/contacts/ada@x.io", b"")),
            (404, "not_found")
        );
    }

    #[test]
    fn a_spam_report_opts_out_counts_as_engagement_and_suppresses() {
        let mut service = Service::new();
        service.create("ada@x.io");

        service.audience.report_spam(" ADA@x.io", service.now);
        service.audience.report_spam("nobody@x.io", service.now);

        let ada = service.audience.contact("ada@x.io").unwrap();
        assert!(ada.unsubscribed);
        assert_eq!(ada.unsubscribe_reason, "complaint");
        assert_eq!(service.audience.contact_count(), 1);
        let rule = r#"{"match_":"all","conditions":[{"field":"engagement","what":"complained","op":"ever"}]}"#;
        assert_eq!(service.found(&format!("rules={rule}")), ["ada@x.io"]);
        let to = json!({"from": "me@x.io", "to": ["ada@x.io", "nobody@x.io"]});
        service.post("/emails", &to);
        let types: Vec<String> = service
            .audience
            .take_events()
            .into_iter()
            .map(|event| event.event_type)
            .collect();
        assert_eq!(types, ["email.refused", "email.refused"]);
    }

    #[test]
    fn an_event_about_a_contacts_mail_counts_as_engagement() {
        let mut service = Service::new();
        service.create("ada@x.io");
        service.create("bob@x.io");

        for (event_type, to) in [
            ("email.opened", json!("Ada@x.io")),
            ("email.opened", json!("carol@x.io")),
            ("email.opened", json!(["bob@x.io"])),
            ("email.sent", json!("bob@x.io")),
            ("opened", json!("bob@x.io")),
        ] {
            let data = json!({ "to": to });
            service
                .audience
                .record_event(event_type, &data, service.now);
        }
        service.create("carol@x.io");

        let rule =
            r#"{"match_":"all","conditions":[{"field":"engagement","what":"opened","op":"ever"}]}"#;
        assert_eq!(service.found(&format!("rules={rule}")), ["ada@x.io"]);
    }

    #[test]
    fn a_complained_event_is_a_spam_report() {
        let mut service = Service::new();
        service.create("ada@x.io");

        let data = json!({"to": "ada@x.io"});
        service
            .audience
            .record_event("email.complained", &data, service.now);

        let answer = service.call("/contacts/ada@x.io/subscribe");
        assert_eq!(slug(&answer), (422, "failed_precondition"));
    }

    #[test]
    fn an_unknown_engagement_is_refused_with_those_there_are() {
        let mut service = Service::new();

        let error = service
            .audience
            .record_engagement("ada@x.io", "read", 0)
            .unwrap_err();

        assert_eq!(
            error,
            "`read` is none of `delivered`, `bounced`, `complained`, `opened`, `clicked`"
        );
    }
}
