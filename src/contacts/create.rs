use http::{Method, StatusCode};
use serde::{Deserialize, Serialize};

use super::{ContactRecord, Contacts, NewContact};
use crate::client::wire::{Operation, Request};
use crate::client::{Call, CallOptions, Repeat, call_options};
use crate::{Client, Error};

const CREATE: Operation = Operation {
    name: "create",
    template: "/contacts",
};

impl Contacts {
    /// Creates a contact, or does with an existing one what
    /// [`on_conflict`](NewContact::on_conflict) says (interface section 4.1).
    ///
    /// # Errors
    ///
    /// `validation_error` (422) where the address is no email address; `already_exists` (409) with
    /// [`OnConflict::Error`](super::OnConflict::Error); `quota_exceeded` (402); `key_not_permitted`
    /// (403) with a sending-access key. [`ErrorKind::Input`](crate::ErrorKind::Input) for a property
    /// that JSON cannot hold. With `OnConflict::Error` it is repeated only where it was certainly
    /// not applied, since a lost 201 would come back as a 409.
    ///
    /// # Example: upsert
    ///
    /// ```
    /// # #[cfg(feature = "mock")]
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
    /// # #[cfg(not(feature = "mock"))] fn main() {}
    /// ```
    pub fn create(&self, contact: NewContact) -> CreateContact {
        CreateContact {
            client: self.client.clone(),
            contact,
            options: CallOptions::default(),
        }
    }
}

/// A create call, sent by `.await`: see [`Contacts::create`].
#[derive(Clone)]
#[must_use = "a call is made only when it is awaited"]
pub struct CreateContact {
    client: Client,
    contact: NewContact,
    options: CallOptions,
}

impl CreateContact {
    call_options!(repeatable);

    fn request(&self) -> Result<Request, Error> {
        self.contact
            .check()
            .map_err(|error| error.at(CREATE.name))?;
        let repeat = if self.contact.fails_on_conflict() {
            Repeat::Unapplied
        } else {
            Repeat::Always
        };
        Request::new(CREATE, Method::POST, ["contacts"], repeat)?.json(&self.contact)
    }
}

impl IntoFuture for CreateContact {
    type Output = Result<Created, Error>;
    type IntoFuture = Call<Created>;

    fn into_future(self) -> Self::IntoFuture {
        Call::new(async move {
            let request = self.request()?;
            let answer = self.client.execute(request, self.options).await?;
            let is_new = answer.response.status == StatusCode::CREATED;
            Ok(Created {
                contact: answer.json()?,
                is_new,
                attempts: answer.attempts,
            })
        })
    }
}

crate::client::opaque_debug!(CreateContact);

/// What a create call came to.
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
    /// Whether the service answered 201: the address was new to it. After more than one
    /// [attempt](Self::attempts), a `false` may mean that an earlier attempt of ours created it.
    #[must_use]
    pub fn is_new(&self) -> bool {
        self.is_new
    }

    /// How many requests it took.
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
        Client::new("http://localhost", "key")
            .unwrap()
            .contacts()
            .create(contact)
            .request()
            .unwrap()
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
    fn only_an_error_on_conflict_makes_a_repeat_unsafe() {
        let ada = NewContact::new("ada@example.com");

        assert_eq!(request(ada.clone()).repeat, Repeat::Always);
        assert_eq!(
            request(ada.clone().on_conflict(OnConflict::Upsert)).repeat,
            Repeat::Always
        );
        assert_eq!(
            request(ada.clone().on_conflict(OnConflict::Skip)).repeat,
            Repeat::Always
        );
        assert_eq!(
            request(ada.on_conflict(OnConflict::Error)).repeat,
            Repeat::Unapplied
        );
    }
}
