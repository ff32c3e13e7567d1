use super::consent::{may_be_missing, with_proof};
use super::{Contact, Contacts};
use crate::client::{
    CallOptions, Response, ResponseFuture, TakesOptions, call_settings, opaque_debug, wait_for_call,
};
use crate::{Error, ErrorCode, Missing};

impl Contacts {
    /// Retrieves one contact in full, or returns `None` if the service has none with this address.
    ///
    /// [A 404 is no proof](crate::contacts#a-404-is-no-proof) of that, unless it has the service's code `not_found`.
    /// After any other 404, the call lists the contacts with this address, and returns `None` if it is not among them. If
    /// the address has letters outside ASCII, the call lists also after this code, and retrieves a contact that the
    /// service has in small or capital letters, or with a capital at its start. A status such as 503 is an error,
    /// whatever its code. A contact with another address, for example of a wrong cache, is an error.
    ///
    /// If the path of the base URL is wrong, something else may respond with this code. So check the settings of a new
    /// program once with a call that lists, such as [`list`](Self::list).
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::Api`](crate::ErrorKind::Api) with the refusal if the list has the contact. Then
    ///   [`Error::is_not_found`] is false.
    /// - [`ErrorKind::Input`](crate::ErrorKind::Input) if the address is empty, `.` or `..`.
    /// - [`ErrorKind::Decode`](crate::ErrorKind::Decode) if the contact in the response has another address. Addresses
    ///   with letters outside ASCII are not compared: how the service writes them is unknown.
    /// - The other errors of [`retrieve`](Self::retrieve), and the errors of [`list`](Self::list) if the call lists the
    ///   contacts.
    ///
    /// # Example: a contact that may not exist
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), audience::Error> {
    /// # let server = audience::mock::MockServer::builder().seed_contact("ada@example.com").start().await;
    /// # let contacts = server.client().contacts();
    /// match contacts.find("ada@example.com").await? {
    ///     Some(ada) => println!("Ada joined at {}", ada.created_at),
    ///     None => println!("Ada is not a contact"),
    /// }
    /// assert_eq!(contacts.find("bob@example.com").await?, None);
    /// # Ok(()) }
    /// ```
    pub fn find(&self, address: impl Into<String>) -> FindContact {
        FindContact {
            contacts: self.clone(),
            address: address.into(),
            options: CallOptions::default(),
        }
    }

    /// Returns whether the service certainly has no contact with this address, because it does not list one.
    pub(crate) async fn is_absent(
        &self,
        address: &str,
        options: CallOptions,
    ) -> Result<bool, Error> {
        let list = self.list().options(options);
        list.has(address).await.map(|has_contact| !has_contact)
    }

    /// Retrieves a contact that decides what somebody gets or does not get, and makes sure of a 404. Both end by one
    /// deadline.
    pub(crate) async fn retrieve_surely(
        &self,
        address: &str,
        options: &CallOptions,
    ) -> Result<Contact, Error> {
        let response = self.response_surely(address, options).await?;
        Ok(response.into_inner())
    }

    /// Does the same, and returns the contact with its response.
    pub(super) async fn response_surely(
        &self,
        address: &str,
        options: &CallOptions,
    ) -> Result<Response<Contact>, Error> {
        let options = self.client.start_reads(options.clone());
        let retrieve = self.retrieve_own(address).options(options.clone());
        match retrieve.response().await {
            Ok(response) => Ok(response),
            // In a box, because this is rare.
            Err(error) => Err(Box::pin(self.make_sure(error, address, &options)).await),
        }
    }

    /// Retrieves a contact. Believes a refusal with the service's code `not_found`, and makes sure of any other one that
    /// says that the contact does not exist.
    pub(super) async fn retrieve_or_missing(
        &self,
        address: &str,
        options: &CallOptions,
    ) -> Result<Contact, Error> {
        match self.retrieve_own_with(address, options).await {
            Err(error) if error.code() != Some(&ErrorCode::NotFound) => {
                Err(self.make_sure(error, address, options).await)
            }
            retrieved => retrieved,
        }
    }

    /// Makes sure of a refusal that says that the contact does not exist, if this is one.
    pub(super) async fn make_sure(
        &self,
        refusal: Error,
        address: &str,
        options: &CallOptions,
    ) -> Error {
        if !may_be_missing(&refusal) {
            return refusal;
        }
        let is_absent = self.is_absent(address, options.clone());
        with_proof(refusal, is_absent.await, false)
    }
}

/// Retrieves a contact that may not exist when it is awaited: see [`Contacts::find`].
///
/// The timeout and the retry policy apply to each request, the deadline to the whole call.
#[derive(Clone)]
#[must_use = "a call is sent only when it is awaited"]
pub struct FindContact {
    contacts: Contacts,
    address: String,
    options: CallOptions,
}

impl FindContact {
    async fn send(self) -> Result<Option<Contact>, Error> {
        let (contacts, address) = (&self.contacts, &self.address);
        // All requests of the call share one deadline.
        let options = contacts.client.start_reads(self.options);
        let (mut refusal, mut is_sure) = match contacts.retrieve_own_with(address, &options).await {
            Ok(contact) => return Ok(Some(contact)),
            Err(refusal) => (refusal, address.is_ascii()),
        };
        if refusal.code() != Some(&ErrorCode::NotFound) {
            // This looks for all spellings.
            refusal = contacts.make_sure(refusal, address, &options).await;
            is_sure = true;
        }
        if refusal.missing() != Some(Missing::Contact) {
            return Err(refusal);
        }
        if is_sure {
            return Ok(None);
        }
        // How a service converts other letters is unknown, and it may find an address only as it has stored it.
        let list = contacts.list().options(options.clone());
        let Some(stored) = list.stored(address).await? else {
            return Ok(None);
        };
        match contacts.retrieve_own_with(&stored, &options).await {
            Err(refusal) if may_be_missing(&refusal) => Err(refusal.not_from_service()),
            retrieved => retrieved.map(Some),
        }
    }
}

call_settings!(FindContact);
wait_for_call!(FindContact => Result<Option<Contact>, Error>);
opaque_debug!(FindContact);

impl IntoFuture for FindContact {
    type Output = Result<Option<Contact>, Error>;
    type IntoFuture = ResponseFuture<Option<Contact>>;

    fn into_future(self) -> Self::IntoFuture {
        ResponseFuture::new(async { self.send().await.map_err(|error| error.at("find")) })
    }
}
