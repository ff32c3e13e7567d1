//! Everything that the service stores about one audience, with the methods that read and change it.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::address::AddressKey;
use super::contact::Contact;
use super::contact_store::ContactStore;
use super::dialect::Dialect;
use super::engagement::{Engagement, EngagementTimes, Engagements};
use super::message::OutgoingEvent;
use super::printable::{printable, visible};
use super::refusal::Refusal;
use super::segment::{Segment, SegmentMembers, SegmentView};
use super::sent_mail::MailStore;

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
    suppressed: HashSet<AddressKey>,
    mails: MailStore,
    /// The events that have not been taken yet, oldest first.
    pub(super) outbox: Vec<OutgoingEvent>,
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
    pub(super) fn record_engagement(&mut self, address: &str, what: Engagement, at: i64) {
        self.engagements.record(AddressKey::new(address), what, at);
    }

    /// Replaces the engagements of an address, and adds it to the suppression list or removes it from there.
    pub(super) fn set_mail_history(
        &mut self,
        address: AddressKey,
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
    pub(super) fn suppress(&mut self, address: &str) {
        self.suppressed.insert(AddressKey::new(address));
    }

    /// Returns whether an address is on the suppression list.
    pub(super) fn is_suppressed(&self, address: &str) -> bool {
        self.suppressed.contains(&AddressKey::new(address))
    }

    pub(super) fn mails(&self) -> &MailStore {
        &self.mails
    }

    pub(super) fn mails_mut(&mut self) -> &mut MailStore {
        &mut self.mails
    }
}

fn unknown_contact(address: &str) -> Refusal {
    let address = visible(address);
    Refusal::not_found(format!("there is no contact `{address}`"))
}
