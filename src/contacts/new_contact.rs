use serde::{Deserialize, Serialize};

use super::{Properties, PropertyValue};
use crate::Error;

/// A contact to create, or to update where the address exists (interface section 2.4).
///
/// What is left out here is left out on the wire. The address is sent as given: the service trims it
/// and puts it in lower case.
///
/// # Example: with merge fields
///
/// ```
/// use audience::contacts::{NewContact, OnConflict};
///
/// let ada = NewContact::new("ada@example.com")
///     .first_name("Ada")
///     .property("plan", "pro")
///     .property("seats", 3)
///     .on_conflict(OnConflict::Skip);
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[must_use = "a contact is created by `contacts.create`"]
pub struct NewContact {
    email: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    first_name: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    last_name: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    properties: Option<Properties>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    on_conflict: Option<OnConflict>,
}

impl NewContact {
    /// A contact with this address.
    pub fn new(email: impl Into<String>) -> Self {
        Self {
            email: email.into(),
            first_name: None,
            last_name: None,
            properties: None,
            on_conflict: None,
        }
    }

    /// Sets the given name.
    pub fn first_name(mut self, name: impl Into<String>) -> Self {
        self.first_name = Some(name.into());
        self
    }

    /// Sets the family name.
    pub fn last_name(mut self, name: impl Into<String>) -> Self {
        self.last_name = Some(name.into());
        self
    }

    /// Sets one merge field, and keeps those set before.
    ///
    /// On an upsert the service replaces the stored properties as a whole: those not sent are
    /// removed (section 4.1). [`merge_properties`](super::Contacts::merge_properties) keeps them.
    pub fn property(mut self, name: impl Into<String>, value: impl Into<PropertyValue>) -> Self {
        self.properties.get_or_insert_default().insert(name, value);
        self
    }

    /// Sets all merge fields, in place of those set before. An empty map is sent too, and clears
    /// those of an existing contact.
    pub fn properties(mut self, properties: impl Into<Properties>) -> Self {
        self.properties = Some(properties.into());
        self
    }

    /// Says what becomes of an address that exists. The service's default is
    /// [`OnConflict::Upsert`].
    pub fn on_conflict(mut self, choice: OnConflict) -> Self {
        self.on_conflict = Some(choice);
        self
    }

    /// The address, as given.
    #[must_use]
    pub fn email(&self) -> &str {
        &self.email
    }

    /// Whether a repeat would be refused for what the first one did.
    pub(super) fn fails_on_conflict(&self) -> bool {
        self.on_conflict == Some(OnConflict::Error)
    }

    pub(super) fn check(&self) -> Result<(), Error> {
        self.properties.as_ref().map_or(Ok(()), check)
    }
}

/// Refuses numbers that JSON cannot hold.
pub(super) fn check(properties: &Properties) -> Result<(), Error> {
    match properties.iter().all(|(_, value)| value.is_valid_json()) {
        true => Ok(()),
        false => Err(Error::input(
            "a property is an infinity or not a number, which JSON cannot hold",
        )),
    }
}

/// What becomes of a contact whose address exists already (interface section 2.4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum OnConflict {
    /// It is updated, its properties replaced as a whole: the service's default.
    #[default]
    Upsert,
    /// It stays as it is.
    Skip,
    /// The call, or the entry of a batch, is refused with `already_exists`.
    Error,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_left_out_is_left_out_on_the_wire() {
        assert_eq!(
            serde_json::to_value(NewContact::new("a@x.io")).unwrap(),
            json!({"email": "a@x.io"})
        );
        assert_eq!(
            serde_json::to_value(NewContact::new("a@x.io").properties(Properties::new())).unwrap(),
            json!({"email": "a@x.io", "properties": {}})
        );
    }

    #[test]
    fn everything_set_is_sent_under_its_documented_name() {
        let ada = NewContact::new("Ada@X.io ")
            .first_name("Ada")
            .last_name("Lovelace");
        let ada = ada
            .property("plan", "pro")
            .property("seats", 3)
            .property("rate", 0.5);

        let written = serde_json::to_value(ada.on_conflict(OnConflict::Skip)).unwrap();

        let properties = json!({"plan": "pro", "seats": 3, "rate": 0.5});
        let expected = json!({"email": "Ada@X.io ", "first_name": "Ada", "last_name": "Lovelace",
            "properties": properties, "on_conflict": "skip"});
        assert_eq!(written, expected);
    }

    #[test]
    fn a_number_that_json_cannot_hold_is_refused_before_it_turns_into_null() {
        for number in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            let error = NewContact::new("a@x.io")
                .property("rate", number)
                .check()
                .unwrap_err();

            assert_eq!(error.kind(), crate::ErrorKind::Input);
        }
    }
}
