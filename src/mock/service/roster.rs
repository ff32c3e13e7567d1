//! The contacts there are, in the order they were made.

use std::collections::{BTreeMap, HashMap};

use serde_json::{Map, Value};

use super::contact::{Contact, Reason};

/// Every contact by its address and by its place. None is ever taken out, so a place is an id.
#[derive(Clone, Debug, Default)]
pub(crate) struct Roster {
    contacts: Vec<Contact>,
    places: HashMap<String, usize>,
}

impl Roster {
    pub(crate) fn len(&self) -> usize {
        self.contacts.len()
    }

    pub(crate) fn find(&self, address: &str) -> Option<&Contact> {
        let place = *self.places.get(address)?;
        self.contacts.get(place)
    }

    pub(crate) fn find_mut(&mut self, address: &str) -> Option<&mut Contact> {
        let place = *self.places.get(address)?;
        self.contacts.get_mut(place)
    }

    /// A new contact, subscribed, with no answers. The address must not be in the roster yet.
    pub(crate) fn add(
        &mut self,
        email: String,
        first_name: Option<String>,
        last_name: Option<String>,
        properties: Map<String, Value>,
        created_at: i64,
    ) -> &Contact {
        let place = self.contacts.len();
        self.places.insert(email.clone(), place);
        self.contacts.push(Contact {
            id: id_of(place),
            email,
            first_name,
            last_name,
            properties,
            unsubscribed: false,
            reason: Reason::None,
            created_at,
            answers: BTreeMap::new(),
        });
        &self.contacts[place]
    }

    /// Newest first, from the one made just before `after`; `None` where that is no contact's id.
    ///
    /// What is added later comes before any cursor handed out so far: a walk neither loses nor
    /// doubles a contact that was there when it began.
    pub(crate) fn newest_first(
        &self,
        after: Option<&str>,
    ) -> Option<impl Iterator<Item = &Contact>> {
        let end = match after {
            None => self.contacts.len(),
            Some(id) => self.place_of(id)?,
        };
        Some(self.contacts[..end].iter().rev())
    }

    fn place_of(&self, id: &str) -> Option<usize> {
        let number: usize = id.strip_prefix(PREFIX)?.parse().ok()?;
        let place = number.checked_sub(1)?;
        (self.contacts.get(place)?.id == id).then_some(place)
    }
}

const PREFIX: &str = "con_";

fn id_of(place: usize) -> String {
    format!("{PREFIX}{:08}", place + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(addresses: &[&str]) -> Roster {
        let mut roster = Roster::default();
        for address in addresses {
            roster.add((*address).to_owned(), None, None, Map::new(), 0);
        }
        roster
    }

    fn walk(roster: &Roster, after: Option<&str>) -> Option<Vec<String>> {
        let contacts = roster.newest_first(after)?;
        Some(contacts.map(|contact| contact.email.clone()).collect())
    }

    #[test]
    fn a_walk_goes_from_the_newest_to_the_oldest_within_one_second() {
        let roster = of(&["a@x", "b@x", "c@x"]);

        assert_eq!(walk(&roster, None).unwrap(), ["c@x", "b@x", "a@x"]);
        assert_eq!(walk(&roster, Some("con_00000002")).unwrap(), ["a@x"]);
        assert_eq!(walk(&roster, Some("con_00000001")).unwrap(), [""; 0]);
    }

    #[test]
    fn only_the_id_of_a_contact_is_a_cursor() {
        let roster = of(&["a@x"]);
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
            assert_eq!(walk(&roster, Some(id)), None, "{id}");
        }
    }
}
