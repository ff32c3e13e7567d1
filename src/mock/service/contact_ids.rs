//! The ids of contacts: generated from the order in which they are stored, or pinned by a seed.

use std::collections::HashMap;

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
