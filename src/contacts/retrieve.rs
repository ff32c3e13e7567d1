use http::Method;
use serde::Deserialize;
use serde::de::IgnoredAny;

use super::model::address_segment;
use super::{Contact, Contacts};
use crate::Error;
use crate::address::are_different;
use crate::client::{
    CallOptions, Endpoint, Operation, Request, RetrySafety, Success, TakesOptions, endpoint_builder,
};
use crate::error::Target;

impl Contacts {
    /// Retrieves one contact in full, with its topics ([interface section 4.3](crate::interface#4.3)).
    ///
    /// It returns the contact that the response has. [`find`](Self::find) makes sure that it has this address.
    ///
    /// # Errors
    ///
    /// - `not_found` (404) if the address is not one of your contacts: [`Error::is_not_found`].
    ///   [`find`](Self::find) returns `None` instead.
    /// - [`ErrorKind::Input`](crate::ErrorKind::Input) if the address is empty, `.` or `..`.
    ///
    /// # Example: whether a broadcast on a topic reaches the contact
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), audience::Error> {
    /// # let server = audience::mock::MockServer::start().await;
    /// # server.topic("news", true);
    /// # let contacts = server.client().contacts();
    /// # contacts.create(audience::contacts::NewContact::new("ada@example.com")).await?;
    /// let contact = contacts.retrieve("ada@example.com").await?;
    ///
    /// assert!(contact.reachability_for("news").is_reachable());
    /// # Ok(()) }
    /// ```
    pub fn retrieve(&self, address: impl Into<String>) -> RetrieveContact {
        let retrieve = Retrieve {
            refuses_others: false,
            ..Retrieve::own(address)
        };
        RetrieveContact::new(&self.client, retrieve)
    }

    /// Retrieves a contact that decides what somebody gets or does not get. Fails if the response has another one.
    pub(crate) fn retrieve_own(&self, address: impl Into<String>) -> RetrieveContact {
        RetrieveContact::new(&self.client, Retrieve::own(address))
    }

    /// Does the same, as one request of a call with these options.
    pub(super) async fn retrieve_own_with(
        &self,
        address: &str,
        options: &CallOptions,
    ) -> Result<Contact, Error> {
        self.retrieve_own(address).options(options.clone()).await
    }
}

endpoint_builder! {
    /// Retrieves a contact when it is awaited: see [`Contacts::retrieve`].
    pub struct RetrieveContact(Retrieve) -> Contact;
}

const OTHER_CONTACT: &str = "the contact in the response has another address than the one that was asked for, so the response most likely comes from a cache or a proxy";

#[derive(Clone)]
pub(super) struct Retrieve {
    address: String,
    /// Whether a contact with another address is an error.
    refuses_others: bool,
}

impl Retrieve {
    pub(super) fn own(address: impl Into<String>) -> Self {
        Self {
            address: address.into(),
            refuses_others: true,
        }
    }
}

impl Endpoint for Retrieve {
    type Output = Contact;

    fn operation(&self) -> Operation {
        Operation {
            name: "retrieve",
            template: "/contacts/{address}",
        }
    }

    fn request(&self) -> Result<Request, Error> {
        let segments = ["contacts", &address_segment(&self.address)?];
        let request = Request::new(Method::GET, segments, RetrySafety::Safe)?;
        Ok(request.about(Target::Contact))
    }

    fn decode(&self, success: Success) -> Result<Contact, Error> {
        let contact: Contact = success.object().map_err(|error| {
            // Anything else, such as the `{}` of a gateway, says nothing about this contact.
            let named = success.valid_object::<Named>();
            let is_contact = named.is_some_and(|named| named.id.or(named.email).is_some());
            match is_contact && success.refuse_error().is_ok() {
                true => error.malformed_contact(),
                false => error,
            }
        })?;
        // A wrong cache must not say that somebody may get mail who has opted out.
        match self.refuses_others && are_different(&contact.email, &self.address) {
            true => Err(Error::decode(OTHER_CONTACT).malformed_contact()),
            false => Ok(contact),
        }
    }
}

/// The members that tell a malformed contact from the object of something else.
#[derive(Deserialize)]
struct Named {
    id: Option<IgnoredAny>,
    email: Option<IgnoredAny>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Client;

    fn retrieve(address: &str) -> RetrieveContact {
        let client = Client::new("http://localhost", "key").unwrap();
        client.contacts().retrieve(address)
    }

    #[test]
    fn the_address_is_one_path_segment() {
        let retrieve = retrieve("ada+a/b@example.com");

        let request = retrieve.endpoint.request().unwrap();

        assert_eq!(
            (request.method, request.path.as_str()),
            (Method::GET, "/contacts/ada%2Ba%2Fb%40example.com")
        );
        assert_eq!((request.query.as_str(), request.body), ("", None));
    }

    #[test]
    fn the_address_is_not_printed() {
        assert!(!format!("{:?}", retrieve("ada@example.com")).contains("ada"));
    }
}
