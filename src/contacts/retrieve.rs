use std::future::poll_fn;
use std::pin::Pin;

use futures_core::Stream;
use http::Method;

use super::model::address_segment;
use super::normalized_address;
use super::{Contact, Contacts};
use crate::Error;
use crate::client::{CallOptions, TakesOptions};
use crate::client::{Endpoint, Operation, Request, RetrySafety, Success, endpoint_builder};
use crate::error::Target;

impl Contacts {
    /// Retrieves one contact in full, with its topics ([interface section 4.3](crate::interface#4.3)).
    ///
    /// # Errors
    ///
    /// - `not_found` (404) if the address is not one of your contacts: [`Error::is_not_found`].
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
    /// let reachable = !contact.unsubscribed && contact.topics.get("news") == Some(&true);
    /// assert!(reachable);
    /// # Ok(()) }
    /// ```
    pub fn retrieve(&self, address: impl Into<String>) -> RetrieveContact {
        let address = address.into();
        RetrieveContact::new(&self.client, Retrieve { address })
    }

    /// Returns whether the service certainly has no contact with this address: the list of the contacts whose address
    /// contains it does not have it. A 404 alone is no proof. A gateway may have sent it, or the base URL is wrong.
    pub(crate) async fn is_absent(
        &self,
        address: &str,
        options: CallOptions,
    ) -> Result<bool, Error> {
        let address = normalized_address(address);
        let mut found = self.list().query(&address).options(options).stream();
        while let Some(contact) = poll_fn(|context| Pin::new(&mut found).poll_next(context)).await {
            if normalized_address(&contact?.email) == address {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

endpoint_builder! {
    /// Retrieves a contact when it is awaited: see [`Contacts::retrieve`].
    pub struct RetrieveContact(Retrieve) -> Contact;
}

#[derive(Clone)]
pub(super) struct Retrieve {
    pub(super) address: String,
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
        success.object()
    }
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
