use http::Method;

use super::{Contact, Contacts};
use crate::client::wire::{Operation, Request};
use crate::client::{Call, CallOptions, Repeat, call_options};
use crate::{Client, Error};

const RETRIEVE: Operation = Operation {
    name: "retrieve",
    template: "/contacts/{address}",
};

impl Contacts {
    /// Retrieves one contact in full, its topics included (interface section 4.3).
    ///
    /// # Errors
    ///
    /// `not_found` (404) where the address is no contact of yours: [`Error::is_not_found`].
    /// [`ErrorKind::Input`](crate::ErrorKind::Input) for an address that is empty, `.` or `..`.
    ///
    /// # Example: whether a topic may be sent
    ///
    /// ```
    /// # #[cfg(feature = "mock")]
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
    /// # #[cfg(not(feature = "mock"))] fn main() {}
    /// ```
    pub fn retrieve(&self, address: impl Into<String>) -> RetrieveContact {
        RetrieveContact {
            client: self.client.clone(),
            address: address.into(),
            options: CallOptions::default(),
        }
    }
}

/// A retrieve call, sent by `.await`: see [`Contacts::retrieve`].
#[derive(Clone)]
#[must_use = "a call is made only when it is awaited"]
pub struct RetrieveContact {
    client: Client,
    address: String,
    options: CallOptions,
}

impl RetrieveContact {
    call_options!();

    fn request(&self) -> Result<Request, Error> {
        Request::new(
            RETRIEVE,
            Method::GET,
            ["contacts", &self.address],
            Repeat::Always,
        )
    }
}

impl IntoFuture for RetrieveContact {
    type Output = Result<Contact, Error>;
    type IntoFuture = Call<Contact>;

    fn into_future(self) -> Self::IntoFuture {
        let request = self.request();
        self.client.call(request, self.options)
    }
}

crate::client::opaque_debug!(RetrieveContact);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_is_one_path_segment() {
        let contacts = Client::new("http://localhost", "key").unwrap().contacts();

        let request = contacts.retrieve("ada+a/b@example.com").request().unwrap();

        assert_eq!(
            (request.method, request.path.as_str()),
            (Method::GET, "/contacts/ada%2Ba%2Fb%40example.com")
        );
        assert_eq!((request.query.as_str(), request.body), ("", None));
    }

    #[test]
    fn no_address_is_printed() {
        let contacts = Client::new("http://localhost", "key").unwrap().contacts();

        assert!(!format!("{:?}", contacts.retrieve("ada@example.com")).contains("ada"));
    }
}
