//! The stored contacts, and the order in which they are listed.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Bound;
use std::sync::Arc;

use serde_json::{Map, Value};

use super::address::normalized;
use super::contact::{Contact, Reason};
use super::refusal::Refusal;

/// Every stored contact, found by address or by id.
///
/// The document shows no endpoint that deletes a contact, so none is ever removed. A contact's index in
/// `contacts` therefore never changes, and its id is made from that index unless a seed pins another.
#[derive(Clone, Debug, Default)]
pub(crate) struct ContactStore {
    /// In the order in which they were stored. A copy of the store, for a reset, shares those that do not change.
    contacts: Vec<Arc<Contact>>,
    /// The creation time and the index of each contact. Later ones are listed first (section 4.4).
    ///
    /// The two orders differ only if a test sets the clock back or seeds a contact with a creation time.
    by_creation: BTreeSet<(i64, usize)>,
    index_by_address: HashMap<String, usize>,
    ids: ContactIds,
    /// How many contacts may be stored (section 8). `None` means no ceiling.
    ceiling: Option<u64>,
}

impl ContactStore {
    /// Creates an empty store with a ceiling.
    pub(crate) fn new(ceiling: Option<u64>) -> Self {
        Self {
            ceiling,
            ..Self::default()
        }
    }

    /// Returns how many contacts can be stored, or `None` if there is no ceiling.
    pub(crate) fn ceiling(&self) -> Option<u64> {
        self.ceiling
    }

    /// Changes the ceiling. Contacts above a lower ceiling stay stored.
    pub(crate) fn set_ceiling(&mut self, ceiling: Option<u64>) {
        self.ceiling = ceiling;
    }

    /// Returns how many contacts are stored.
    pub(crate) fn len(&self) -> usize {
        self.contacts.len()
    }

    /// Returns the contact with an address, in any of its spellings.
    pub(crate) fn find(&self, address: &str) -> Option<&Contact> {
        let index = *self.index_by_address.get(&normalized(address))?;
        self.contacts.get(index).map(AsRef::as_ref)
    }

    /// Returns the contact with an address, in any of its spellings, for a change.
    pub(crate) fn find_mut(&mut self, address: &str) -> Option<&mut Contact> {
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
    pub(crate) fn add(
        &mut self,
        email: String,
        first_name: Option<String>,
        last_name: Option<String>,
        properties: Map<String, Value>,
        created_at: i64,
    ) -> Result<&Contact, Refusal> {
        let index = self.contacts.len();
        if let Some(ceiling) = self.ceiling
            && index as u64 >= ceiling
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
    /// If the id is empty, the store sets it: a contact that is replaced keeps its id, a new one gets the next. Any other
    /// id must be [free](Self::owner_of_id).
    pub(crate) fn put(&mut self, mut contact: Contact) -> &Contact {
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

    /// Keeps the store from generating an id that a contact is about to get.
    pub(crate) fn reserve_id(&mut self, id: &str) {
        if self.index_of_id(id).is_none() {
            self.ids.reserve(id);
        }
    }

    /// Returns the contact that has an id.
    pub(crate) fn owner_of_id(&self, id: &str) -> Option<&Contact> {
        Some(&self.contacts[self.index_of_id(id)?])
    }

    /// Returns the contacts, newest first, starting after the one with the id `after` (section 4.4).
    ///
    /// Of two contacts created in the same second, the one stored later comes first. Returns `None` if no contact has
    /// that id.
    ///
    /// Contacts that are created while a caller reads the list come before every cursor it holds, unless the clock is
    /// set back or a seed gives them an earlier creation time. The caller sees each contact that existed at its first
    /// page exactly once, unless a seed changes its creation time.
    pub(crate) fn newest_first(
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
pub(super) struct ContactIds {
    /// The index of each contact with another id. `None` is an id that a contact is about to get.
    others: HashMap<String, Option<usize>>,
    /// The number of the last generated id that is not made from an index.
    last_spare_number: usize,
}

impl ContactIds {
    /// Returns the index of the contact with an id. The contact there may have another id by now, or not exist.
    pub(super) fn index_of(&self, id: &str) -> Option<usize> {
        if let Some(index) = self.others.get(id) {
            return *index;
        }
        let number: usize = id.strip_prefix(ID_PREFIX)?.parse().ok()?;
        number.checked_sub(1)
    }

    /// Returns an id for the new contact at an index. No contact has it or is about to get it.
    pub(super) fn generate(&mut self, index: usize) -> String {
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
    pub(super) fn reserve(&mut self, id: &str) {
        self.others.insert(id.to_owned(), None);
    }

    /// Notes that the contact at an index has an id.
    pub(super) fn assign(&mut self, id: &str, index: usize) {
        if id == id_at(index) {
            self.others.remove(id);
        } else if self.others.get(id) != Some(&Some(index)) {
            self.others.insert(id.to_owned(), Some(index));
        }
    }

    /// Notes that the contact at an index gets another id.
    pub(super) fn release(&mut self, id: &str, index: usize) {
        if self.others.get(id) == Some(&Some(index)) {
            self.others.remove(id);
        }
    }
}

/// Returns the id of the contact at an index: sequential, so that it is the same on every run of a test.
fn id_at(index: usize) -> String {
    format!("{ID_PREFIX}{:08}", index + 1)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn store_with(addresses: &[&str]) -> ContactStore {
        let mut store = ContactStore::default();
        for address in addresses {
            let email = (*address).to_owned();
            store.add(email, None, None, Map::new(), 0).unwrap();
        }
        store
    }

    fn addresses_after(store: &ContactStore, after: Option<&str>) -> Option<Vec<String>> {
        let contacts = store.newest_first(after)?;
        Some(contacts.map(|contact| contact.email.clone()).collect())
    }

    #[test]
    fn contacts_created_in_the_same_second_are_listed_newest_first() {
        let store = store_with(&["a@x", "b@x", "c@x"]);

        assert_eq!(
            addresses_after(&store, None).unwrap(),
            ["c@x", "b@x", "a@x"]
        );
        assert_eq!(
            addresses_after(&store, Some("con_00000002")).unwrap(),
            ["a@x"]
        );
        assert_eq!(
            addresses_after(&store, Some("con_00000001")).unwrap(),
            [""; 0]
        );
    }

    #[test]
    fn a_contact_that_is_put_again_keeps_its_id_and_moves_to_the_place_of_its_new_creation_time() {
        let mut store = store_with(&["a@x", "b@x", "c@x"]);

        for created_at in [5, i64::MIN, i64::MAX, -7] {
            let moved = Contact {
                id: String::new(),
                email: "b@x".to_owned(),
                created_at,
                ..store.find("b@x").unwrap().clone()
            };
            let id = store.put(moved).id.clone();

            let expected = if created_at > 0 {
                ["b@x", "c@x", "a@x"]
            } else {
                ["c@x", "a@x", "b@x"]
            };
            assert_eq!(id, "con_00000002");
            assert_eq!(addresses_after(&store, None).unwrap(), expected);
            assert_eq!(store.len(), 3);
        }
        assert_eq!(
            addresses_after(&store, Some("con_00000001")).unwrap(),
            ["b@x"]
        );
    }

    proptest! {
        #[test]
        fn any_puts_keep_the_list_in_order_and_every_id_a_cursor(
            puts in prop::collection::vec((0..6_u8, prop_oneof![-2..2_i64, any::<i64>()]), 0..40),
        ) {
            let mut store = ContactStore::default();
            let mut last_times = BTreeMap::new();
            for (who, created_at) in puts {
                let template = store_with(&[&format!("c{who}@x")]);
                let contact = template.find(&format!("c{who}@x")).unwrap().clone();
                store.put(Contact {
                    id: String::new(),
                    created_at,
                    ..contact
                });
                last_times.insert(format!("c{who}@x"), created_at);
            }

            let listed: Vec<&Contact> = store.newest_first(None).unwrap().collect();

            prop_assert_eq!(listed.len(), last_times.len());
            for (position, contact) in listed.iter().enumerate() {
                prop_assert_eq!(contact.created_at, last_times[&contact.email]);
                let rest: Vec<&str> = store.newest_first(Some(&contact.id)).unwrap().map(|next| &*next.id).collect();
                let expected: Vec<&str> = listed[position + 1..].iter().map(|next| &*next.id).collect();
                prop_assert_eq!(rest, expected);
            }
            prop_assert!(listed.is_sorted_by(|a, b| (a.created_at, &a.id) > (b.created_at, &b.id)));
        }
    }

    #[test]
    fn contacts_are_listed_by_their_creation_time_then_by_their_order() {
        let mut store = ContactStore::default();
        for (address, created_at) in [("a@x", 5), ("b@x", i64::MAX), ("c@x", 5), ("d@x", i64::MIN)]
        {
            let email = address.to_owned();
            store
                .add(email, None, None, Map::new(), created_at)
                .unwrap();
        }

        assert_eq!(
            addresses_after(&store, None).unwrap(),
            ["b@x", "c@x", "a@x", "d@x"]
        );
        assert_eq!(
            addresses_after(&store, Some("con_00000003")).unwrap(),
            ["a@x", "d@x"]
        );
        assert_eq!(
            addresses_after(&store, Some("con_00000004")).unwrap(),
            [""; 0]
        );
    }

    #[test]
    fn only_the_id_of_a_contact_is_a_cursor() {
        let store = store_with(&["a@x"]);
        for id in [
            "",
            "con_",
            "con_0",
            "con_1",
            "con_00000000",
            "con_00000002",
            "con_+0000001",
            "con_99999999999999999999999",
            "00000001",
            "a@x",
        ] {
            assert_eq!(addresses_after(&store, Some(id)), None, "{id}");
        }
    }
}
