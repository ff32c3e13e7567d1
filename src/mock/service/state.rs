//! Everything that the service stores about one audience, with the methods that read and change it.

use std::collections::{BTreeMap, HashMap, HashSet};

use serde_json::Value;

use super::address::{normalized, printable};
use super::contact::{Contact, ContactStore, Reason};
use super::dialect::Dialect;
use super::engagement::{EngagementKind, EngagementTimes, Engagements};
use super::mail_outcome::OutcomeKind;
use super::refusal::{OutgoingEvent, Refusal};
use super::segment::{Segment, SegmentMembers, SegmentView};
use super::sent_mail::{Mail, MailStore};

/// The stored data of one audience. The operations of section 4 read and change it through these methods only.
#[derive(Clone)]
pub(super) struct AudienceState {
    dialect: Dialect,
    contacts: ContactStore,
    /// The name of each topic, and its default answer (section 2.6).
    topics: BTreeMap<String, bool>,
    segments: HashMap<String, Segment>,
    engagements: Engagements,
    /// The addresses that no mail is sent to, whether they are contacts or not (section 3.1).
    suppressed: HashSet<String>,
    mails: MailStore,
    /// The events that have not been taken yet, oldest first.
    outbox: Vec<OutgoingEvent>,
}

impl AudienceState {
    /// Creates an audience without contacts, topics and segments.
    pub(super) fn new(dialect: Dialect, ceiling: Option<u64>) -> Self {
        Self {
            dialect,
            contacts: ContactStore::new(ceiling),
            topics: BTreeMap::new(),
            segments: HashMap::new(),
            engagements: Engagements::default(),
            suppressed: HashSet::new(),
            mails: MailStore::default(),
            outbox: Vec::new(),
        }
    }

    pub(super) fn dialect(&self) -> Dialect {
        self.dialect
    }

    pub(super) fn contacts(&self) -> &ContactStore {
        &self.contacts
    }

    pub(super) fn contacts_mut(&mut self) -> &mut ContactStore {
        &mut self.contacts
    }

    /// Returns the contact with an address.
    ///
    /// # Errors
    ///
    /// 404 `not_found` if the address is not a contact (section 7).
    pub(super) fn contact(&self, address: &str) -> Result<&Contact, Refusal> {
        let contact = self.contacts.find(address);
        contact.ok_or_else(|| unknown_contact(address))
    }

    /// Returns the contact with an address, for a change.
    ///
    /// # Errors
    ///
    /// The same as [`contact`](Self::contact).
    pub(super) fn contact_mut(&mut self, address: &str) -> Result<&mut Contact, Refusal> {
        let contact = self.contacts.find_mut(address);
        contact.ok_or_else(|| unknown_contact(address))
    }

    /// Returns the name and the default answer of each topic.
    pub(super) fn topics(&self) -> &BTreeMap<String, bool> {
        &self.topics
    }

    /// Adds a topic, or changes the default answer of an existing one.
    pub(super) fn put_topic(&mut self, name: &str, default: bool) {
        self.topics.insert(name.to_owned(), default);
    }

    /// Records a contact's answer to a topic.
    ///
    /// # Errors
    ///
    /// 404 `not_found` if the topic or the contact is unknown. The message names it (section 7).
    pub(super) fn record_answer(
        &mut self,
        address: &str,
        topic: String,
        answer: bool,
    ) -> Result<(), Refusal> {
        if !self.topics.contains_key(&topic) {
            let topic = printable(&topic);
            return Err(Refusal::not_found(format!("there is no topic `{topic}`")));
        }
        self.contact_mut(address)?.answers.insert(topic, answer);
        Ok(())
    }

    /// Returns the segment with an id.
    ///
    /// # Errors
    ///
    /// 404 `not_found` if the segment is unknown. The document does not say so; it is the mock's choice.
    pub(super) fn segment(&self, id: &str) -> Result<&Segment, Refusal> {
        self.segments.get(id).ok_or_else(|| {
            let id = printable(id);
            Refusal::not_found(format!("there is no segment `{id}`"))
        })
    }

    /// Returns the segments, in the order of their ids.
    pub(super) fn segment_views(&self) -> Vec<SegmentView> {
        let views = self.segments.iter().map(|(id, segment)| SegmentView {
            id: id.clone(),
            members: SegmentMembers::new(segment),
        });
        let mut views: Vec<_> = views.collect();
        views.sort_unstable_by(|a, b| a.id.cmp(&b.id));
        views
    }

    /// Adds a segment, or replaces the one with the same id.
    pub(super) fn put_segment(&mut self, id: &str, segment: Segment) {
        self.segments.insert(id.to_owned(), segment);
    }

    pub(super) fn engagements(&self) -> &Engagements {
        &self.engagements
    }

    /// Records an engagement of an address, which need not be a contact.
    pub(super) fn record_engagement(&mut self, address: &str, what: EngagementKind, at: i64) {
        self.engagements.record(normalized(address), what, at);
    }

    /// Replaces the engagements of an address, and adds it to the suppression list or removes it from there.
    pub(super) fn set_mail_history(
        &mut self,
        address: String,
        times: EngagementTimes,
        suppressed: bool,
    ) {
        if suppressed {
            self.suppressed.insert(address.clone());
        } else {
            self.suppressed.remove(&address);
        }
        self.engagements.replace(address, times);
    }

    /// Adds an address to the suppression list.
    fn suppress(&mut self, address: &str) {
        self.suppressed.insert(normalized(address));
    }

    /// Returns whether an address is on the suppression list.
    pub(super) fn is_suppressed(&self, address: &str) -> bool {
        self.suppressed.contains(&normalized(address))
    }

    pub(super) fn mails(&self) -> &MailStore {
        &self.mails
    }

    pub(super) fn mails_mut(&mut self) -> &mut MailStore {
        &mut self.mails
    }
}

fn unknown_contact(address: &str) -> Refusal {
    let address = printable(address);
    Refusal::not_found(format!("there is no contact `{address}`"))
}

impl AudienceState {
    /// Records a mailbox provider's spam report, which no request can undo (section 3.2).
    ///
    /// It opts out the contact, if the address is one. It counts as the engagement `complained`, puts the address on
    /// the suppression list, and publishes an `email.complained` about the latest mail to the address.
    pub(super) fn report_spam(&mut self, address: &str, now: i64) {
        let to = normalized(address);
        let (mail, at) = match self.mails().latest(&to) {
            Some(mail) => {
                // A report is published even if it is not possible in the state of the mail, such as after a bounce.
                let mails = self.mails_mut();
                let _ = mails.record_outcome(&mail.id, &to, OutcomeKind::Complained);
                let at = mails.event_time(&mail.id, now);
                (mail, at)
            }
            None => (Mail::sample().into(), now),
        };
        self.publish("email.complained", mail.event_data(&to, "", ""), at);
    }

    /// Records the effects of a spam report on the contact, its engagement and the suppression list.
    fn record_spam_report(&mut self, address: &str, at: i64) {
        if let Some(contact) = self.contacts_mut().find_mut(address) {
            contact.unsubscribed = true;
            contact.reason = Reason::Complaint;
        }
        self.record_engagement(address, EngagementKind::Complained, at);
        self.suppress(address);
    }

    /// Records the engagement or the spam report that an event is about.
    ///
    /// `email.complained` is a spam report. The other events with the name of an engagement count as that engagement,
    /// even if the recipient becomes a contact only later. Any other event changes nothing.
    pub(super) fn record_event(&mut self, event_type: &str, data: &Value, at: i64) {
        let what = event_type
            .strip_prefix("email.")
            .and_then(EngagementKind::from_name);
        let (Some(what), Some(address)) = (what, data.get("to").and_then(Value::as_str)) else {
            return;
        };
        if what == EngagementKind::Complained {
            self.record_spam_report(address, at);
        } else {
            self.record_engagement(address, what, at);
        }
    }

    /// Records an event and keeps it for delivery to the webhook endpoints.
    pub(super) fn publish(&mut self, event_type: &str, data: Value, at: i64) {
        self.record_event(event_type, &data, at);
        self.outbox.push(OutgoingEvent {
            event_type: event_type.to_owned(),
            data,
            at,
        });
    }

    /// Removes and returns the events to deliver, oldest first.
    pub(super) fn take_events(&mut self) -> Vec<OutgoingEvent> {
        std::mem::take(&mut self.outbox)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::mail_outcome::MailOutcome;
    use super::super::testing::{Service, status_and_slug};

    #[test]
    fn a_spam_report_opts_out_counts_as_engagement_and_suppresses_the_address() {
        let mut service = Service::new();
        service.create("ada@x.io");

        service.audience.report_spam(" ADA@x.io", service.now);
        service.audience.report_spam("nobody@x.io", service.now);

        let ada = service.audience.contact("ada@x.io").unwrap();
        assert!(ada.unsubscribed);
        assert_eq!(ada.unsubscribe_reason, "complaint");
        assert_eq!(service.audience.contact_count(), 1);
        let rule = r#"{"match_":"all","conditions":[{"field":"engagement","what":"complained","op":"ever"}]}"#;
        assert_eq!(
            service.listed_addresses(&format!("rules={rule}")),
            ["ada@x.io"]
        );
        let to = json!({"from": "me@x.io", "to": ["ada@x.io", "nobody@x.io"]});
        service.post("/emails", &to);
        let types: Vec<String> = service
            .audience
            .take_events()
            .into_iter()
            .map(|event| event.event_type)
            .collect();
        assert_eq!(
            types,
            [
                "email.complained",
                "email.complained",
                "email.refused",
                "email.refused"
            ]
        );
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
        assert_eq!(
            service.listed_addresses(&format!("rules={rule}")),
            ["carol@x.io", "ada@x.io"],
            "carol became a contact after her event"
        );
    }

    #[test]
    fn a_complained_event_is_a_spam_report() {
        let mut service = Service::new();
        service.create("ada@x.io");

        let data = json!({"to": "ada@x.io"});
        service
            .audience
            .record_event("email.complained", &data, service.now);

        let response = service.post_without_body("/contacts/ada@x.io/subscribe");
        assert_eq!(status_and_slug(&response), (422, "failed_precondition"));
        assert!(
            service.audience.take_events().is_empty(),
            "it is not published again"
        );
    }

    #[test]
    fn a_spam_report_is_about_the_latest_mail_to_the_address() {
        let mut service = Service::new();
        for subject in ["First", "Last"] {
            let mail = json!({"from": "me@x.io", "to": "ada@x.io", "subject": subject});
            service.post("/emails", &mail);
        }
        service.audience.take_events();

        service.audience.report_spam("Ada@x.io ", service.now);
        service.audience.report_spam("bob@x.io", service.now);

        let events = service.audience.take_events();
        assert_eq!(events.len(), 2);
        assert_eq!(events[0].event_type, "email.complained");
        assert_eq!(
            events[0].data,
            json!({"email_id": "eml_00000002", "from": "me@x.io", "to": "ada@x.io", "subject": "Last",
                "bounce_type": "", "detail": ""})
        );
        assert_eq!(events[1].data["to"], "bob@x.io");
    }

    #[test]
    fn a_mail_is_reported_as_spam_only_once() {
        let mut service = Service::new();
        service.post("/emails", &json!({"from": "me@x.io", "to": "ada@x.io"}));
        service.audience.report_spam("ada@x.io", service.now);

        let complained = MailOutcome::complained();
        let error = service
            .audience
            .mail_outcome("eml_00000001", &complained, service.now)
            .unwrap_err();

        assert!(
            error.message.contains("reported as spam"),
            "{}",
            error.message
        );
    }
}
