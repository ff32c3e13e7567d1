use crate::Client;
#[cfg(feature = "import")]
use crate::client::CallOptions;

/// The contacts of a sender: see [`Client::contacts`].
///
/// Owned and cheap to clone, like the client.
///
/// # Example: create and retrieve
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), audience::Error> {
/// # let server = audience::mock::MockServer::start().await;
/// # let client = server.client();
/// use audience::contacts::NewContact;
///
/// let contacts = client.contacts();
/// contacts.create(NewContact::new("ada@example.com")).await?;
///
/// let ada = contacts.retrieve("ada@example.com").await?;
/// assert!(!ada.unsubscribed);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Contacts {
    pub(super) client: Client,
}

#[cfg(feature = "import")]
impl Contacts {
    /// Returns the base URL of the service.
    pub(crate) fn base_url(&self) -> String {
        self.client.base_url()
    }

    /// Returns these options with more patience, unless the call or the client has settings of its own.
    pub(crate) fn patient(&self, options: CallOptions) -> CallOptions {
        self.client.patient(options)
    }
}

impl Client {
    /// Returns the handle to the contacts endpoints (interface section 4).
    #[must_use]
    pub fn contacts(&self) -> Contacts {
        Contacts {
            client: self.clone(),
        }
    }
}
