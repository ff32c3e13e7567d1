//! The stored contacts in the order in which they are listed, the three forms in which a response shows one (sections
//! 2.1 to 2.3), and what happened to the mail of an address (section 2.8).

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Bound;
use std::sync::Arc;

use serde::{Serialize, Serializer};
use serde_json::{Map, Value};

use super::Refusal;
use super::bodies::normalized;
use super::dialect::MissingName;
use crate::mock::text::{case_folded, printable, quoted_list};

/// Every stored contact, found by address or by id.
///
/// A contact's index in `contacts` never changes, and its id is made from that index unless a seed pins another. A
/// deleted contact keeps its place there, so that its id is still a cursor and no other contact gets it.
#[derive(Clone, Debug, Default)]
pub(in crate::mock) struct ContactStore {
    /// In the order in which they were stored. A copy of the store, for a reset, shares the contacts that do not
    /// change.
    contacts: Vec<Arc<Contact>>,
    /// The creation time and the index of each contact. Later ones are listed first (section 4.4).
    ///
    /// The two orders differ only if a test sets the clock back or seeds a contact with a creation time.
    by_creation: BTreeSet<(i64, usize)>,
    index_by_address: HashMap<String, usize>,
    ids: ContactIds,
    /// How many contacts may be stored (section 8). `None` means no ceiling.
    pub(in crate::mock) ceiling: Option<u64>,
}

impl ContactStore {
    /// Creates an empty store with a ceiling.
    pub(super) fn new(ceiling: Option<u64>) -> Self {
        Self {
            ceiling,
            ..Self::default()
        }
    }

    /// Returns how many contacts are stored.
    pub(in crate::mock) fn len(&self) -> usize {
        self.index_by_address.len()
    }

    /// Returns the contact with an address, in any of its spellings.
    pub(super) fn find(&self, address: &str) -> Option<&Contact> {
        let index = *self.index_by_address.get(&normalized(address))?;
        self.contacts.get(index).map(AsRef::as_ref)
    }

    /// Returns the contact with an address, in any of its spellings, for a change.
    pub(super) fn find_mut(&mut self, address: &str) -> Option<&mut Contact> {
        let index = *self.index_by_address.get(&normalized(address))?;
        self.contacts.get_mut(index).map(Arc::make_mut)
    }

    /// Stores a new contact: subscribed, without topic answers.
    ///
    /// `email` must be normalized, and no stored contact may have it.
    ///
    /// # Errors
    ///
    /// 402 `quota_exceeded` if the ceiling is reached (section 7).
    pub(super) fn add(
        &mut self,
        email: String,
        first_name: Option<String>,
        last_name: Option<String>,
        properties: Map<String, Value>,
        created_at: i64,
    ) -> Result<&Contact, Refusal> {
        if let Some(ceiling) = self.ceiling
            && self.len() as u64 >= ceiling
        {
            return Err(Refusal::quota_exceeded(ceiling));
        }
        Ok(self.put(Contact {
            id: String::new(),
            email,
            first_name,
            last_name,
            properties,
            unsubscribed: false,
            reason: Reason::None,
            created_at,
            answers: BTreeMap::new(),
        }))
    }

    /// Stores a contact in any state, or replaces the one with the same address. Ignores the ceiling.
    ///
    /// If the id is empty, the store sets it: a contact that is replaced keeps its id, a new one gets the next. Any
    /// other id must be [free](Self::owner_of_id).
    pub(super) fn put(&mut self, mut contact: Contact) -> &Contact {
        let created_at = contact.created_at;
        let index = match self.index_by_address.get(&contact.email) {
            Some(&index) => {
                let stored = &mut self.contacts[index];
                self.by_creation.remove(&(stored.created_at, index));
                if contact.id.is_empty() {
                    contact.id.clone_from(&stored.id);
                } else {
                    self.ids.release(&stored.id, index);
                }
                *stored = Arc::new(contact);
                index
            }
            None => {
                let index = self.contacts.len();
                if contact.id.is_empty() {
                    contact.id = self.ids.generate(index);
                }
                self.index_by_address.insert(contact.email.clone(), index);
                self.contacts.push(Arc::new(contact));
                index
            }
        };
        self.by_creation.insert((created_at, index));
        self.ids.assign(&self.contacts[index].id, index);
        &self.contacts[index]
    }

    /// Removes the contact with an address, in any of its spellings. Returns whether there was one.
    pub(in crate::mock) fn remove(&mut self, address: &str) -> bool {
        let Some(index) = self.index_by_address.remove(&normalized(address)) else {
            return false;
        };
        let created_at = self.contacts[index].created_at;
        self.by_creation.remove(&(created_at, index))
    }

    /// Keeps the store from generating an id that a contact is about to get, even if its owner gives it up before.
    ///
    /// Until a contact gets the id, it belongs to none.
    pub(super) fn reserve_id(&mut self, id: &str) {
        self.ids.reserve(id);
    }

    /// Returns the contact that has an id.
    pub(super) fn owner_of_id(&self, id: &str) -> Option<&Contact> {
        let owner = &self.contacts[self.index_of_id(id)?];
        // Not if it was deleted, even if its address is a contact again.
        self.find(&owner.email).filter(|contact| contact.id == id)
    }

    /// Returns the contacts, newest first, starting after the one with the id `after` (section 4.4).
    ///
    /// Of two contacts created in the same second, the one stored later comes first. A contact that is replaced counts
    /// as stored when it was first stored. Returns `None` if no contact has or had that id.
    ///
    /// Contacts that are created while a caller reads the list come before every cursor it holds, unless the clock is
    /// set back or a seed gives them an earlier creation time. The caller sees each contact that existed at its first
    /// page exactly once, unless a seed changes its creation time.
    pub(super) fn newest_first(
        &self,
        after: Option<&str>,
    ) -> Option<impl Iterator<Item = &Contact>> {
        let end = match after {
            None => Bound::Unbounded,
            Some(id) => {
                let index = self.index_of_id(id)?;
                Bound::Excluded((self.contacts[index].created_at, index))
            }
        };
        let older = self.by_creation.range((Bound::Unbounded, end)).rev();
        Some(older.map(|&(_, index)| self.contacts[index].as_ref()))
    }

    fn index_of_id(&self, id: &str) -> Option<usize> {
        let index = self.ids.index_of(id)?;
        (self.contacts.get(index)?.id == id).then_some(index)
    }
}

const ID_PREFIX: &str = "con_";

/// Finds the index of a contact by its id, and generates ids.
///
/// An id that is made from the index of its contact is not stored, so that a large audience takes up less memory.
#[derive(Clone, Debug, Default)]
struct ContactIds {
    /// The index of each contact with another id. `None` is an id that a contact is about to get.
    others: HashMap<String, Option<usize>>,
    /// The number of the last generated id that is not made from an index.
    last_spare_number: usize,
}

impl ContactIds {
    /// Returns the index of the contact with an id. The contact there may have another id by now, or not exist.
    fn index_of(&self, id: &str) -> Option<usize> {
        if let Some(index) = self.others.get(id) {
            return *index;
        }
        let number: usize = id.strip_prefix(ID_PREFIX)?.parse().ok()?;
        number.checked_sub(1)
    }

    /// Returns an id for the new contact at an index. No contact has it or is about to get it.
    fn generate(&mut self, index: usize) -> String {
        let id = id_at(index);
        if !self.others.contains_key(&id) {
            return id;
        }
        loop {
            self.last_spare_number = self.last_spare_number.max(index) + 1;
            let id = id_at(self.last_spare_number);
            if !self.others.contains_key(&id) {
                return id;
            }
        }
    }

    /// Keeps an id that a contact is about to get from being generated.
    fn reserve(&mut self, id: &str) {
        self.others.insert(id.to_owned(), None);
    }

    /// Notes that the contact at an index has an id.
    fn assign(&mut self, id: &str, index: usize) {
        if id == id_at(index) {
            self.others.remove(id);
        } else if self.others.get(id) != Some(&Some(index)) {
            self.others.insert(id.to_owned(), Some(index));
        }
    }

    /// Notes that the contact at an index gets another id.
    fn release(&mut self, id: &str, index: usize) {
        if self.others.get(id) == Some(&Some(index)) {
            self.others.remove(id);
        }
    }
}

/// Returns the id of the contact at an index: sequential, so that it is the same on every run of a test.
fn id_at(index: usize) -> String {
    format!("{ID_PREFIX}{:08}", index + 1)
}

/// A contact as the [`ContactStore`] holds it.
#[derive(Clone, Debug)]
pub(super) struct Contact {
    pub(super) id: String,
    /// Normalized.
    pub(super) email: String,
    pub(super) first_name: Option<String>,
    pub(super) last_name: Option<String>,
    pub(super) properties: Map<String, Value>,
    pub(super) unsubscribed: bool,
    pub(super) reason: Reason,
    /// Unix seconds. Only [`ContactStore::put`] changes it: the order of the store depends on it.
    pub(super) created_at: i64,
    /// The contact's own topic answers.
    pub(super) answers: BTreeMap<String, bool>,
}

impl Contact {
    /// Returns the full form, which retrieve returns (section 2.1).
    pub(super) fn to_full<'a>(
        &'a self,
        topics: &'a BTreeMap<String, bool>,
        missing: MissingName,
    ) -> impl Serialize + 'a {
        FullForm {
            id: &self.id,
            email: &self.email,
            first_name: Name::new(self.first_name.as_deref(), missing),
            last_name: Name::new(self.last_name.as_deref(), missing),
            properties: &self.properties,
            unsubscribed: self.unsubscribed,
            unsubscribe_reason: self.reason.as_str(),
            created_at: self.created_at,
            topics: self.topics(topics),
        }
    }

    /// Returns the form that create returns: the full form, without the reason and the topics (section 2.2).
    pub(super) fn to_created(&self, missing: MissingName) -> impl Serialize + '_ {
        CreatedForm {
            id: &self.id,
            email: &self.email,
            first_name: Name::new(self.first_name.as_deref(), missing),
            last_name: Name::new(self.last_name.as_deref(), missing),
            properties: &self.properties,
            unsubscribed: self.unsubscribed,
            created_at: self.created_at,
        }
    }

    /// Returns the form of a list item: the form that create returns, without the last name (section 2.3).
    pub(super) fn to_list_item(&self, missing: MissingName) -> impl Serialize + '_ {
        ListItemForm {
            id: &self.id,
            email: &self.email,
            first_name: Name::new(self.first_name.as_deref(), missing),
            properties: &self.properties,
            unsubscribed: self.unsubscribed,
            created_at: self.created_at,
        }
    }

    /// Returns whether the address or one of the names contains a case-folded text (`query`).
    pub(super) fn contains_text(&self, text: &str) -> bool {
        let names = [&self.first_name, &self.last_name].into_iter().flatten();
        names
            .chain([&self.email])
            .any(|part| case_folded(part).contains(text))
    }

    /// Returns an answer for every topic: the contact's own, or else the default of the topic (section 2.1).
    pub(super) fn topics<'a>(
        &self,
        defaults: &'a BTreeMap<String, bool>,
    ) -> BTreeMap<&'a str, bool> {
        defaults
            .iter()
            .map(|(name, default)| {
                let answer = self.answers.get(name).unwrap_or(default);
                (name.as_str(), *answer)
            })
            .collect()
    }
}

/// The JSON form of section 2.1.
#[derive(Serialize)]
struct FullForm<'a> {
    id: &'a str,
    email: &'a str,
    #[serde(skip_serializing_if = "Name::is_absent")]
    first_name: Name<'a>,
    #[serde(skip_serializing_if = "Name::is_absent")]
    last_name: Name<'a>,
    properties: &'a Map<String, Value>,
    unsubscribed: bool,
    unsubscribe_reason: &'a str,
    created_at: i64,
    topics: BTreeMap<&'a str, bool>,
}

/// The JSON form of section 2.2.
#[derive(Serialize)]
struct CreatedForm<'a> {
    id: &'a str,
    email: &'a str,
    #[serde(skip_serializing_if = "Name::is_absent")]
    first_name: Name<'a>,
    #[serde(skip_serializing_if = "Name::is_absent")]
    last_name: Name<'a>,
    properties: &'a Map<String, Value>,
    unsubscribed: bool,
    created_at: i64,
}

/// The JSON form of section 2.3.
#[derive(Serialize)]
struct ListItemForm<'a> {
    id: &'a str,
    email: &'a str,
    #[serde(skip_serializing_if = "Name::is_absent")]
    first_name: Name<'a>,
    properties: &'a Map<String, Value>,
    unsubscribed: bool,
    created_at: i64,
}

/// A first or last name. If the contact has none, the dialect decides how it is shown.
struct Name<'a> {
    name: Option<&'a str>,
    missing: MissingName,
}

impl<'a> Name<'a> {
    fn new(name: Option<&'a str>, missing: MissingName) -> Self {
        Self { name, missing }
    }

    fn is_absent(&self) -> bool {
        self.name.is_none() && self.missing == MissingName::Absent
    }
}

impl Serialize for Name<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match (self.name, self.missing) {
            (Some(name), _) => serializer.serialize_str(name),
            (None, MissingName::Empty) => serializer.serialize_str(""),
            (None, MissingName::Null | MissingName::Absent) => serializer.serialize_none(),
        }
    }
}

/// The reason of a contact's global opt-out ([interface section 3.1](crate::interface#3.1)): the values of
/// `unsubscribe_reason`.
///
/// # Example: a contact who reported spam
///
/// ```
/// use audience::mock::{Reason, SeedContact};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// # let server = audience::mock::MockServer::start().await;
/// let ada = server.seed_contact(SeedContact::new("ada@example.com").unsubscribed(Reason::Complaint));
///
/// assert_eq!(ada.unsubscribe_reason, "complaint");
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Reason {
    /// No reason: `unsubscribe_reason` is an empty string.
    ///
    /// Default.
    #[default]
    None,
    /// `manual`.
    Manual,
    /// `preferences`.
    Preferences,
    /// `complaint`: a mailbox provider reported spam. No request can undo it.
    Complaint,
}

impl Reason {
    /// The reasons, in the order of the variants.
    const ALL: [Self; 4] = [Self::None, Self::Manual, Self::Preferences, Self::Complaint];

    /// Returns the value of `unsubscribe_reason`. It is an empty string if there is no reason (section 2.1).
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::None => "",
            Self::Manual => "manual",
            Self::Preferences => "preferences",
            Self::Complaint => "complaint",
        }
    }

    /// Returns the reason with a value of `unsubscribe_reason`, or `None` if the value is unknown.
    pub(super) fn from_value(value: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|reason| reason.as_str() == value)
    }
}

/// The engagement with mail to an address, on which rules can depend ([interface section 2.8](crate::interface#2.8)).
///
/// # Example: a contact whose mail bounced
///
/// ```
/// use audience::mock::{EngagementKind, SeedContact};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// # let server = audience::mock::MockServer::start().await;
/// let ada = server.seed_contact(SeedContact::new("ada@example.com").engaged(EngagementKind::Bounced, 1_700_000_000));
///
/// assert!(ada.engagement.contains_key(&EngagementKind::Bounced));
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum EngagementKind {
    /// The receiving server accepted the mail.
    Delivered,
    /// The receiving server refused the mail.
    Bounced,
    /// The recipient reported the mail as spam.
    Complained,
    /// The recipient opened the mail.
    Opened,
    /// The recipient clicked a link in the mail.
    Clicked,
}

impl EngagementKind {
    /// The kinds, in the order of the variants.
    pub(super) const ALL: [Self; 5] = [
        Self::Delivered,
        Self::Bounced,
        Self::Complained,
        Self::Opened,
        Self::Clicked,
    ];

    /// The names of the kinds, in the order of the variants.
    pub(super) const NAMES: [&'static str; 5] =
        ["delivered", "bounced", "complained", "opened", "clicked"];

    /// Returns the engagement with a name from section 2.8, or `None` if the name is unknown.
    pub(super) fn from_name(name: &str) -> Option<Self> {
        let index = Self::NAMES.into_iter().position(|known| known == name)?;
        Some(Self::ALL[index])
    }

    /// Returns the engagement that a test names.
    ///
    /// # Errors
    ///
    /// Fails if the name is unknown. The message lists the known ones.
    pub(in crate::mock) fn parse(name: &str) -> Result<Self, String> {
        Self::from_name(name).ok_or_else(|| {
            format!(
                "`{}` is not a known engagement; known engagements: {}",
                printable(name),
                quoted_list(&Self::NAMES)
            )
        })
    }
}

#[cfg(test)]
mod tests;
