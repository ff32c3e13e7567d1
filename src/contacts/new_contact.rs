use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::properties::{Properties, PropertyValue};
use crate::{ConfigError, Error};

/// A contact to create, or to update if the address already exists ([interface section 2.4](crate::interface#2.4)).
///
/// Only the members that you set are sent. The address is sent as given; the service trims it and converts
/// it to lower case, as [`normalized_address`](super::normalized_address) does.
///
/// The setters take a value. If you have an `Option`, assign to the field. An address alone converts to a
/// contact with nothing else set, so [`create`](super::Contacts::create) and
/// [`create_batch`](super::Contacts::create_batch) take addresses too.
///
/// # Example: a contact with properties
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
///
/// # Example: the fields of a form, set or not
///
/// ```
/// use audience::contacts::NewContact;
///
/// # struct Form { first_name: Option<String>, seats: Option<u32> }
/// # let form = Form { first_name: Some("Ada".to_owned()), seats: None };
/// let mut ada = NewContact::new("ada@example.com").property("plan", "pro");
/// ada.first_name = form.first_name;
/// if let Some(seats) = form.seats {
///     ada = ada.property("seats", seats);
/// }
///
/// let json = serde_json::to_string(&ada)?;
/// assert_eq!(json, r#"{"email":"ada@example.com","first_name":"Ada","properties":{"plan":"pro"}}"#);
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[must_use = "a contact is created by `contacts.create`"]
#[non_exhaustive]
pub struct NewContact {
    /// The address.
    pub email: String,
    /// The given name. `None` is not sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_name: Option<String>,
    /// The family name. `None` is not sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_name: Option<String>,
    /// The properties. `None` is not sent, but an empty map is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub properties: Option<Properties>,
    /// The action if the address already exists. `None` is not sent; the service then applies [`OnConflict::Upsert`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_conflict: Option<OnConflict>,
}

impl NewContact {
    /// Creates a contact with this address and nothing else set.
    ///
    /// # Example: create a contact
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), audience::Error> {
    /// # let server = audience::mock::MockServer::start().await;
    /// # let contacts = server.client().contacts();
    /// use audience::contacts::NewContact;
    ///
    /// contacts.create(NewContact::new("ada@example.com")).await?;
    /// # Ok(()) }
    /// ```
    pub fn new(email: impl Into<String>) -> Self {
        Self {
            email: email.into(),
            first_name: None,
            last_name: None,
            properties: None,
            on_conflict: None,
        }
    }

    /// Sets the given name, which templates insert for `{{first_name}}`.
    ///
    /// # Example: a name for templates
    ///
    /// ```
    /// use audience::contacts::NewContact;
    ///
    /// let ada = NewContact::new("ada@example.com").first_name("Ada");
    ///
    /// assert_eq!(ada.first_name.as_deref(), Some("Ada"));
    /// ```
    pub fn first_name(mut self, name: impl Into<String>) -> Self {
        self.first_name = Some(name.into());
        self
    }

    /// Sets the family name. Lists do not show it, but retrieve does.
    ///
    /// # Example: read the name back
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), audience::Error> {
    /// # let server = audience::mock::MockServer::start().await;
    /// # let contacts = server.client().contacts();
    /// use audience::contacts::NewContact;
    ///
    /// contacts.create(NewContact::new("ada@example.com").last_name("Lovelace")).await?;
    ///
    /// let ada = contacts.retrieve("ada@example.com").await?;
    /// assert_eq!(ada.last_name.as_deref(), Some("Lovelace"));
    /// # Ok(()) }
    /// ```
    pub fn last_name(mut self, name: impl Into<String>) -> Self {
        self.last_name = Some(name.into());
        self
    }

    /// Sets one property and keeps the properties that were set before.
    ///
    /// On an upsert, the service replaces all stored properties and removes those that are not sent
    /// ([section 4.1](crate::interface#4.1)). Use [`merge_properties`](super::Contacts::merge_properties) to keep them.
    ///
    /// # Example: text and a number
    ///
    /// ```
    /// use audience::contacts::NewContact;
    ///
    /// let ada = NewContact::new("ada@example.com").property("plan", "pro").property("seats", 3);
    /// ```
    pub fn property(mut self, name: impl Into<String>, value: impl Into<PropertyValue>) -> Self {
        // Without any property, the member is not sent: an empty map would clear the stored properties.
        self.properties.get_or_insert_default().insert(name, value);
        self
    }

    /// Sets all properties and discards the properties that were set before.
    ///
    /// An empty map is sent too; on an upsert, it clears the properties of an existing contact.
    ///
    /// # Example: properties from pairs
    ///
    /// ```
    /// use audience::contacts::NewContact;
    ///
    /// let ada = NewContact::new("ada@example.com").properties([("plan", "pro"), ("city", "London")]);
    /// ```
    pub fn properties(mut self, properties: impl Into<Properties>) -> Self {
        self.properties = Some(properties.into());
        self
    }

    /// Sets whether an existing contact is updated, left alone or an error. Default: [`OnConflict::Upsert`], which the
    /// service applies if nothing is sent.
    ///
    /// # Example: leave an existing contact untouched
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), audience::Error> {
    /// # let server = audience::mock::MockServer::start().await;
    /// # let contacts = server.client().contacts();
    /// # contacts.create(audience::contacts::NewContact::new("ada@example.com").first_name("Ada")).await?;
    /// use audience::contacts::{NewContact, OnConflict};
    ///
    /// let ada = NewContact::new("ada@example.com").first_name("A.").on_conflict(OnConflict::Skip);
    /// let created = contacts.create(ada).await?;
    ///
    /// assert_eq!(created.contact.first_name.as_deref(), Some("Ada"));
    /// # Ok(()) }
    /// ```
    pub fn on_conflict(mut self, choice: OnConflict) -> Self {
        self.on_conflict = Some(choice);
        self
    }

    /// Returns the members besides the address.
    #[cfg(feature = "import")]
    pub(crate) fn members(&self) -> Members<'_> {
        Members {
            first_name: self.first_name.as_deref(),
            last_name: self.last_name.as_deref(),
            properties: self.properties.as_ref(),
            on_conflict: self.on_conflict,
        }
    }

    /// Returns whether a retry would be refused if the first attempt was applied.
    pub(crate) fn fails_on_conflict(&self) -> bool {
        self.on_conflict == Some(OnConflict::Error)
    }

    /// Checks that JSON can represent the properties. Fails as [`check`] does.
    pub(crate) fn check(&self) -> Result<(), Error> {
        self.properties.as_ref().map_or(Ok(()), check)
    }
}

/// The members of a [`NewContact`] besides the address.
#[cfg(feature = "import")]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Members<'a> {
    pub(crate) first_name: Option<&'a str>,
    pub(crate) last_name: Option<&'a str>,
    pub(crate) properties: Option<&'a Properties>,
    pub(crate) on_conflict: Option<OnConflict>,
}

/// Creates a contact with this address and nothing else set.
impl From<&str> for NewContact {
    fn from(email: &str) -> Self {
        Self::new(email)
    }
}

/// Creates a contact with this address and nothing else set. A loop over `&["ada@example.com"]` has such
/// items.
impl From<&&str> for NewContact {
    fn from(email: &&str) -> Self {
        Self::new(*email)
    }
}

/// Creates a contact with this address and nothing else set.
impl From<String> for NewContact {
    fn from(email: String) -> Self {
        Self::new(email)
    }
}

/// Creates a contact with this address and nothing else set.
impl From<&String> for NewContact {
    fn from(email: &String) -> Self {
        Self::new(email)
    }
}

/// Clones the contact.
impl From<&NewContact> for NewContact {
    fn from(contact: &NewContact) -> Self {
        contact.clone()
    }
}

/// Checks that JSON can represent all values.
///
/// # Errors
///
/// [`ErrorKind::Input`](crate::ErrorKind::Input) if a value is an infinite number or NaN.
pub(super) fn check(properties: &Properties) -> Result<(), Error> {
    match properties.iter().all(|(_, value)| value.is_valid_json()) {
        true => Ok(()),
        false => Err(Error::input(
            "a property is an infinite number or NaN, which JSON cannot represent; use a finite number",
        )),
    }
}

/// The action of the service if the address of a new contact already exists
/// ([interface section 2.4](crate::interface#2.4)).
///
/// # Example: an update without properties keeps the stored ones
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), audience::Error> {
/// # let server = audience::mock::MockServer::start().await;
/// # let contacts = server.client().contacts();
/// use audience::contacts::{NewContact, OnConflict};
///
/// contacts.create(NewContact::new("ada@example.com").property("plan", "pro")).await?;
///
/// let update = NewContact::new("ada@example.com").first_name("Ada").on_conflict(OnConflict::Upsert);
/// let updated = contacts.create(update).await?.contact;
///
/// assert_eq!(updated.first_name.as_deref(), Some("Ada"));
/// assert_eq!(updated.properties["plan"], "pro");
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum OnConflict {
    /// It updates the contact and replaces all of its properties. This is the service's default.
    #[default]
    Upsert,
    /// It leaves the contact unchanged.
    Skip,
    /// It refuses the call, or the entry of a batch, with `already_exists`.
    Error,
}

impl OnConflict {
    /// Returns the choice as the service reads it: `upsert`, `skip` or `error`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Upsert => "upsert",
            Self::Skip => "skip",
            Self::Error => "error",
        }
    }
}

/// Writes [`as_str`](OnConflict::as_str).
impl fmt::Display for OnConflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// Reads what `Display` writes.
///
/// # Example: a setting of a program
///
/// ```
/// use audience::contacts::OnConflict;
///
/// assert_eq!("skip".parse::<OnConflict>()?, OnConflict::Skip);
/// assert!("replace".parse::<OnConflict>().is_err());
/// # Ok::<(), audience::ConfigError>(())
/// ```
impl FromStr for OnConflict {
    type Err = ConfigError;

    fn from_str(text: &str) -> Result<Self, ConfigError> {
        let all = [Self::Upsert, Self::Skip, Self::Error];
        let choice = all.into_iter().find(|choice| choice.as_str() == text);
        choice.ok_or_else(|| ConfigError::new("the choice is neither upsert nor skip nor error"))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_members_that_were_set_are_sent() {
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
    fn every_member_is_sent_under_its_documented_name() {
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
    fn a_choice_has_the_same_name_in_json_as_text_and_in_a_setting() {
        for choice in [OnConflict::Upsert, OnConflict::Skip, OnConflict::Error] {
            assert_eq!(serde_json::to_value(choice).unwrap(), choice.to_string());
            assert_eq!(choice.to_string().parse::<OnConflict>().unwrap(), choice);
        }
    }

    #[test]
    fn an_infinite_number_or_nan_is_refused_rather_than_sent_as_null() {
        for number in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            let error = NewContact::new("a@x.io")
                .property("rate", number)
                .check()
                .unwrap_err();

            assert_eq!(error.kind(), crate::ErrorKind::Input);
        }
    }
}
