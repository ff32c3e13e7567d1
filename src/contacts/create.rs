use http::{Method, StatusCode};
use serde::{Deserialize, Serialize};

use super::{ContactRecord, Contacts, NewContact};
use crate::Error;
use crate::client::{Endpoint, Operation, Request, RetrySafety, Success, endpoint_builder};
use crate::error::Target;

impl Contacts {
    /// Creates a contact. If the address already exists, [`on_conflict`](NewContact::on_conflict) decides what happens
    /// ([interface section 4.1](crate::interface#4.1)).
    ///
    /// It takes a [`NewContact`], a reference to one, or an address alone.
    ///
    /// Broadcasts reach a new contact immediately, with the default answer of every topic
    /// ([section 3.1](crate::interface#3.1)). If the person has yet to confirm, create the contact after the
    /// confirmation: the guide *Double opt-in* shows how.
    ///
    /// With [`OnConflict::Error`](super::OnConflict::Error), the call is retried only if it was
    /// certainly not applied. If a 201 was lost, a retry would return 409.
    ///
    /// # Errors
    ///
    /// - `validation_error` (422) if the address is not an email address.
    /// - `already_exists` (409) if the address exists, with `OnConflict::Error`.
    /// - `quota_exceeded` (402) if the plan's contact ceiling would be exceeded.
    /// - `key_not_permitted` (403) if the key is a sending-access key.
    /// - [`ErrorKind::Input`](crate::ErrorKind::Input) if a property is a number that JSON cannot
    ///   represent.
    ///
    /// # Example: upsert
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), audience::Error> {
    /// # let server = audience::mock::MockServer::start().await;
    /// # let contacts = server.client().contacts();
    /// use audience::contacts::NewContact;
    ///
    /// let created = contacts.create(NewContact::new(" Ada@Example.com").property("plan", "pro")).await?;
    ///
    /// assert!(created.is_new());
    /// assert_eq!(created.contact.email, "ada@example.com");
    /// # Ok(()) }
    /// ```
    pub fn create(&self, contact: impl Into<NewContact>) -> CreateContact {
        let contact = contact.into();
        CreateContact::new(&self.client, Create { contact })
    }
}

endpoint_builder! {
    /// Creates a contact when it is awaited: see [`Contacts::create`].
    pub struct CreateContact(Create) -> Created, idempotent;
}

#[derive(Clone)]
struct Create {
    contact: NewContact,
}

impl Endpoint for Create {
    type Output = Created;

    fn operation(&self) -> Operation {
        Operation {
            name: "create",
            template: "/contacts",
        }
    }

    fn request(&self) -> Result<Request, Error> {
        self.contact.check()?;
        // If the first attempt created the contact and its response was lost, a retry would return 409.
        let must_be_new = self.contact.fails_on_conflict();
        let retry_safety = if must_be_new {
            RetrySafety::OnlyIfNotApplied
        } else {
            RetrySafety::Safe
        };
        Request::new(Method::POST, ["contacts"], retry_safety)?
            .about(Target::NewContact { must_be_new })
            .json(&self.contact)
    }

    fn decode(&self, success: Success) -> Result<Created, Error> {
        let is_new = success.response.status() == StatusCode::CREATED;
        Ok(Created::new(success.object()?, is_new).after_attempts(success.attempts))
    }
}

/// The result of a create call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Created {
    /// The contact as it is stored now.
    pub contact: ContactRecord,
    #[serde(default)]
    is_new: bool,
    #[serde(default)]
    attempts: u32,
}

impl Created {
    /// Creates the result of a call with one attempt, for example for a unit test.
    ///
    /// # Example: in a unit test
    ///
    /// ```
    /// use audience::contacts::{ContactRecord, Created};
    ///
    /// let ada = ContactRecord::new("c_1", "ada@example.com");
    /// let created = Created::new(ada, false).after_attempts(2);
    ///
    /// assert!(!created.is_new() && created.attempts() > 1, "an earlier attempt may have created it");
    /// ```
    #[must_use]
    pub fn new(contact: ContactRecord, is_new: bool) -> Self {
        Self {
            contact,
            is_new,
            attempts: 1,
        }
    }

    /// Sets the number of [attempts](Self::attempts). Default: 1.
    ///
    /// # Example: a test of code that looks at the attempts
    ///
    /// ```
    /// use audience::contacts::{ContactRecord, Created};
    ///
    /// let created = Created::new(ContactRecord::new("c_1", "ada@example.com"), true).after_attempts(3);
    ///
    /// assert_eq!(created.attempts(), 3);
    /// ```
    #[must_use]
    pub fn after_attempts(mut self, attempts: u32) -> Self {
        self.attempts = attempts;
        self
    }

    /// Returns whether the contact is new: the service responded with 201.
    ///
    /// If the call made more than one [attempt](Self::attempts), `false` may mean that an earlier
    /// attempt created the contact.
    ///
    /// # Example: greet new contacts only
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), audience::Error> {
    /// # let server = audience::mock::MockServer::builder().seed_contact("ada@example.com").start().await;
    /// # let contacts = server.client().contacts();
    /// let ada = contacts.create("ada@example.com").await?;
    /// let bob = contacts.create("bob@example.com").await?;
    ///
    /// assert!(!ada.is_new(), "ada was a contact before");
    /// assert!(bob.is_new());
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn is_new(&self) -> bool {
        self.is_new
    }

    /// Returns how many attempts the call made.
    ///
    /// # Example: a contact that may be new after all
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), audience::Error> {
    /// # let server = audience::mock::MockServer::start().await;
    /// # let contacts = server.client().contacts();
    /// # server.fault(audience::mock::Fault::close_after().times(1));
    /// // The service creates the contact, but the connection closes before the response arrives.
    /// let created = contacts.create("ada@example.com").await?;
    ///
    /// let may_be_new = created.is_new() || created.attempts() > 1;
    /// assert!(!created.is_new() && may_be_new);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn attempts(&self) -> u32 {
        self.attempts
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contacts::OnConflict;

    fn request(contact: NewContact) -> Request {
        Create { contact }.request().unwrap()
    }

    #[test]
    fn the_contact_is_the_body() {
        let request = request(NewContact::new("ada@example.com").first_name("Ada"));

        assert_eq!(
            (
                request.method,
                request.path.as_str(),
                request.query.as_str()
            ),
            (Method::POST, "/contacts", "")
        );
        assert_eq!(
            request.body.unwrap(),
            r#"{"email":"ada@example.com","first_name":"Ada"}"#
        );
    }

    #[test]
    fn only_an_error_on_conflict_makes_a_retry_unsafe() {
        let ada = NewContact::new("ada@example.com");
        let retry_safety = |contact| request(contact).retry_safety;

        assert_eq!(retry_safety(ada.clone()), RetrySafety::Safe);
        assert_eq!(
            retry_safety(ada.clone().on_conflict(OnConflict::Upsert)),
            RetrySafety::Safe
        );
        assert_eq!(
            retry_safety(ada.clone().on_conflict(OnConflict::Skip)),
            RetrySafety::Safe
        );
        assert_eq!(
            retry_safety(ada.on_conflict(OnConflict::Error)),
            RetrySafety::OnlyIfNotApplied
        );
    }
}
