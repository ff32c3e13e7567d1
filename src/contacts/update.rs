use std::collections::BTreeMap;

use http::StatusCode;

use super::model::not_shown;
use super::{Contact, ContactRecord, Contacts, NewContact, Properties, PropertyValue, new_contact};
use crate::address::are_different;
use crate::client::{
    CallOptions, ResponseFuture, TakesOptions, call_settings, opaque_debug, wait_for_call,
};
use crate::{Error, Outcome};

impl Contacts {
    /// Changes some names and properties of a contact, and keeps all others. An upsert, by contrast, replaces all
    /// properties.
    ///
    /// Consent is never changed. Without any change, the contact is only retrieved.
    ///
    /// # What is sent
    ///
    /// If the call only sets properties, it sends a `PATCH`, which merges them ([section 4.7](crate::interface#4.7)).
    /// The document shows neither its body nor its response. So if the response does not show the new values, the call
    /// retrieves the contact, and if they are not stored, continues as below.
    ///
    /// If the call sets a name or removes a property, it retrieves the contact and sends an upsert with both names and
    /// all properties. The document describes both requests ([4.1](crate::interface#4.1), [4.3](crate::interface#4.3)).
    /// If nothing would change, the upsert is left out. It stores numbers of the properties as they were read: one that is
    /// no integer of up to 64 bits is rounded (see [`PropertyValue`]).
    ///
    /// # Two programs that change one contact
    ///
    /// - Two calls that only set properties do not disturb each other if the service merges as the document says, and
    ///   its response shows the contact. If it does not show it, and both set the same property, the first call may find
    ///   the value of the second one, and store its own by an upsert.
    /// - An upsert stores the contact as it was retrieved a moment before. A name or property that another program
    ///   changes in between gets its old value back. A contact that was deleted in between is created again, without
    ///   its opt-outs.
    ///
    /// # Errors
    ///
    /// - `not_found` (404) if the address is not one of your contacts. The call
    ///   [makes sure](crate::contacts#a-404-is-no-proof) of it.
    /// - [`ErrorKind::Input`](crate::ErrorKind::Input) if the address is empty, `.` or `..`, or if a property is a
    ///   number that JSON cannot represent. Nothing was sent.
    /// - [`ErrorKind::Decode`](crate::ErrorKind::Decode) with [`Outcome::Unknown`] if the response still shows a name
    ///   or a property that was to be removed.
    /// - The errors of [`merge_properties`](Self::merge_properties), [`retrieve`](Self::retrieve) and
    ///   [`create`](Self::create).
    ///
    /// It is safe to repeat the call after any error.
    ///
    /// # Example: a new name and one property less
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), audience::Error> {
    /// # let server = audience::mock::MockServer::start().await;
    /// # let contacts = server.client().contacts();
    /// use audience::contacts::NewContact;
    ///
    /// let ada = NewContact::new("ada@example.com").first_name("Ada").property("plan", "pro").property("trial", "yes");
    /// contacts.create(ada).await?;
    ///
    /// let ada = contacts.update("ada@example.com").last_name("Lovelace").remove_property("trial").await?;
    ///
    /// assert_eq!((ada.first_name.as_deref(), ada.last_name.as_deref()), (Some("Ada"), Some("Lovelace")));
    /// assert_eq!(ada.properties, [("plan", "pro")].into());
    /// # Ok(()) }
    /// ```
    pub fn update(&self, address: impl Into<String>) -> UpdateContact {
        UpdateContact {
            contacts: self.clone(),
            address: address.into(),
            changes: Changes::default(),
            options: CallOptions::default(),
        }
    }
}

/// Changes a contact when it is awaited: see [`Contacts::update`].
///
/// The timeout and the retry policy apply to each request, the deadline to the whole call.
#[derive(Clone)]
#[must_use = "a call is sent only when it is awaited"]
pub struct UpdateContact {
    contacts: Contacts,
    address: String,
    changes: Changes,
    options: CallOptions,
}

impl UpdateContact {
    /// Sets the first name. An empty one removes it.
    pub fn first_name(mut self, name: impl Into<String>) -> Self {
        self.changes.first_name = Some(name.into());
        self
    }

    /// Sets the last name. An empty one removes it.
    pub fn last_name(mut self, name: impl Into<String>) -> Self {
        self.changes.last_name = Some(name.into());
        self
    }

    /// Sets a property. Of several changes of one property, the last counts.
    ///
    /// # Example: count the orders
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), audience::Error> {
    /// # let server = audience::mock::MockServer::builder().seed_contact("ada@example.com").start().await;
    /// # let contacts = server.client().contacts();
    /// let ada = contacts.update("ada@example.com").property("orders", 3).property("plan", "pro").await?;
    ///
    /// assert_eq!(ada.properties["orders"], 3);
    /// # Ok(()) }
    /// ```
    pub fn property(mut self, name: impl Into<String>, value: impl Into<PropertyValue>) -> Self {
        let change = Some(value.into());
        self.changes.properties.insert(name.into(), change);
        self
    }

    /// Removes a property. Nothing happens if the contact does not have it.
    pub fn remove_property(mut self, name: impl Into<String>) -> Self {
        self.changes.properties.insert(name.into(), None);
        self
    }

    async fn send(mut self) -> Result<ContactRecord, Error> {
        self.changes.check()?;
        // All requests of the call share one deadline.
        self.options = self.contacts.client.start_deadline(self.options);
        match self.change().await {
            Err(error) => {
                let checking = self.contacts.make_sure(error, &self.address, &self.options);
                Err(checking.await)
            }
            changed => changed,
        }
    }

    async fn change(&self) -> Result<ContactRecord, Error> {
        let Some(properties) = self.changes.only_new_properties() else {
            return self.read_and_write(None).await;
        };
        let (merged, earlier) = match self.merge(&properties).await? {
            Merge::Shown(contact) => return Ok(contact),
            Merge::NotShown => (Some(&properties), Outcome::Unknown),
            Merge::Refused(outcome) => (None, outcome),
        };
        let written = self.read_and_write(merged).await;
        written.map_err(|error| {
            let attempts = error.attempts();
            error.after(attempts, earlier)
        })
    }

    async fn merge(&self, properties: &Properties) -> Result<Merge, Error> {
        let call = self
            .contacts
            .merge_properties(&self.address, properties.clone());
        match call.options(self.options.clone()).await {
            Ok(response) => {
                let contact = response.json::<ContactRecord>().ok();
                let contact = contact.filter(|contact| {
                    let is_own = !are_different(&contact.email, &self.address);
                    is_own && has_all(&contact.properties, properties)
                });
                Ok(contact.map_or(Merge::NotShown, Merge::Shown))
            }
            Err(error) if error.status().is_some_and(is_about_the_form) => {
                Ok(Merge::Refused(error.outcome()))
            }
            Err(error) => Err(error),
        }
    }

    /// Retrieves the contact, and sends an upsert if it is not as it should be. `merged` was in the body of a `PATCH`.
    async fn read_and_write(&self, merged: Option<&Properties>) -> Result<ContactRecord, Error> {
        let (contacts, address) = (&self.contacts, &self.address);
        let contact = contacts.retrieve_own_with(address, &self.options).await?;
        let mut changes = self.changes.clone();
        if merged.is_some_and(|merged| has_stored_the_body(&contact, merged)) {
            changes.properties.entry(MEMBER.to_owned()).or_insert(None);
        }
        match changes.upsert(&contact)? {
            None => Ok(contact.into()),
            Some(changed) => {
                let create = self.contacts.create(changed);
                let created = create.options(self.options.clone()).await;
                // A gateway may have sent the response, and to send the upsert twice does no harm.
                let created = created.map_err(|error| match error.outcome() {
                    Outcome::Applied => error.with_outcome(Outcome::Unknown).repeatable(true),
                    _ => error,
                });
                let created = created?;
                let failed = |error: Error| Err(error.after(created.attempts(), Outcome::NotSent));
                if are_different(&created.contact.email, &self.address) {
                    return failed(Error::not_applied(true));
                }
                if !changes.are_removed_from(&created.contact) {
                    return failed(Error::decode(STILL_THERE).repeatable(true));
                }
                Ok(created.contact)
            }
        }
    }
}

const NO_PROPERTIES: &str = "the contact that was retrieved has no member `properties`, and an upsert removes those that it does not send";

const STILL_THERE: &str =
    "the contact in the response still has a name or a property that was to be removed";

/// The member of the body of a `PATCH` that holds the properties.
const MEMBER: &str = "properties";

/// Returns whether the service took this member for a property, because it expects the properties as the whole body.
fn has_stored_the_body(contact: &Contact, merged: &Properties) -> bool {
    let stored = serde_json::to_value(contact.properties.get(MEMBER));
    let stored = stored.and_then(serde_json::from_value::<Properties>);
    stored.is_ok_and(|stored| stored.len() == merged.len() && has_all(&stored, merged))
}

call_settings!(UpdateContact);
wait_for_call!(UpdateContact => Result<ContactRecord, Error>);
opaque_debug!(UpdateContact);

impl IntoFuture for UpdateContact {
    type Output = Result<ContactRecord, Error>;
    type IntoFuture = ResponseFuture<ContactRecord>;

    fn into_future(self) -> Self::IntoFuture {
        ResponseFuture::new(async { self.send().await.map_err(|error| error.at("update")) })
    }
}

/// The effect of a `PATCH`, as far as its response tells.
enum Merge {
    /// The response shows the contact with the new values.
    Shown(ContactRecord),
    /// It succeeded, but the response does not show that the service understood its body.
    NotShown,
    /// The service refused it, maybe because it expects another body. An earlier attempt may have been applied, and its
    /// response lost: then the outcome is `Unknown`.
    Refused(Outcome),
}

/// Returns whether the service may have refused a `PATCH` because it expects another body.
fn is_about_the_form(status: StatusCode) -> bool {
    matches!(
        status,
        StatusCode::BAD_REQUEST
            | StatusCode::METHOD_NOT_ALLOWED
            | StatusCode::UNSUPPORTED_MEDIA_TYPE
            | StatusCode::UNPROCESSABLE_ENTITY
            | StatusCode::NOT_IMPLEMENTED
    )
}

fn has_all(stored: &Properties, wanted: &Properties) -> bool {
    wanted.iter().all(|(name, value)| has(stored, name, value))
}

fn has(stored: &Properties, name: &str, value: &PropertyValue) -> bool {
    stored
        .get(name)
        .is_some_and(|stored| value.is_shown_as(stored))
}

#[derive(Clone, Debug, Default)]
struct Changes {
    first_name: Option<String>,
    last_name: Option<String>,
    /// `None` removes the property.
    properties: BTreeMap<String, Option<PropertyValue>>,
}

impl Changes {
    fn check(&self) -> Result<(), Error> {
        new_contact::check(&self.new_properties())
    }

    fn new_properties(&self) -> Properties {
        let new = self.properties.iter();
        new.filter_map(|(name, value)| Some((name.clone(), value.clone()?)))
            .collect()
    }

    /// Returns the properties to set, if that is all there is to do.
    fn only_new_properties(&self) -> Option<Properties> {
        let keeps_names = self.first_name.is_none() && self.last_name.is_none();
        let removes_none = self.properties.values().all(Option::is_some);
        (keeps_names && removes_none && !self.properties.is_empty()).then(|| self.new_properties())
    }

    /// Returns whether a contact does not show what these changes remove. The document does not say that an empty name
    /// removes a name. A value that is set is not compared, because the service may store it in another form.
    fn are_removed_from(&self, contact: &ContactRecord) -> bool {
        let is_gone = |change: &Option<String>, shown: &Option<String>| {
            change.as_deref() != Some("") || shown.is_none()
        };
        let mut properties = self.properties.iter();
        is_gone(&self.first_name, &contact.first_name)
            && is_gone(&self.last_name, &contact.last_name)
            && properties
                .all(|(name, change)| change.is_some() || contact.properties.get(name).is_none())
    }

    /// Returns the upsert that makes these changes and keeps everything else. `None` if nothing would change.
    ///
    /// # Errors
    ///
    /// `ErrorKind::Decode` if a property is to be set, and the contact does not show the others.
    fn upsert(&self, contact: &Contact) -> Result<Option<NewContact>, Error> {
        let mut changed = NewContact::new(&contact.email);
        // Both names are sent, because the document does not say whether an upsert keeps a name that is left out.
        let name = |change: &Option<String>, stored: &Option<String>| {
            change.clone().or_else(|| stored.clone())
        };
        changed.first_name = name(&self.first_name, &contact.first_name);
        changed.last_name = name(&self.last_name, &contact.last_name);
        let mut properties = contact.properties.clone();
        for (name, change) in &self.properties {
            match change {
                Some(value) => drop(properties.insert(name, value.clone())),
                None => drop(properties.remove(name)),
            }
        }
        let is_same = |name: &Option<String>, stored: &Option<String>| {
            name.as_deref().unwrap_or_default() == stored.as_deref().unwrap_or_default()
        };
        let is_stored = |(name, change): (&String, &Option<PropertyValue>)| match change {
            Some(value) => has(&contact.properties, name, value),
            None => contact.properties.get(name).is_none(),
        };
        let is_unchanged = is_same(&changed.first_name, &contact.first_name)
            && is_same(&changed.last_name, &contact.last_name)
            && self.properties.iter().all(is_stored);
        if contact.shows_properties() {
            changed.properties = Some(properties);
        } else if self.properties.values().any(Option::is_some) {
            return Err(not_shown(NO_PROPERTIES));
        }
        Ok((!is_unchanged).then_some(changed))
    }
}
