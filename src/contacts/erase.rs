use std::error::Error as _;
use std::fmt;

use serde::{Serialize, Serializer};

use super::{Contact, Contacts, OptOutReason};
use crate::client::{
    CallOptions, ResponseFuture, TakesOptions, call_settings, opaque_debug, wait_for_call,
};
use crate::{Error, ErrorKind, Missing, Outcome};

impl Contacts {
    /// Erases a person as far as the service can: [deletes](Self::delete) the contact or, if the service does not delete
    /// by that request, opts it out of everything and removes its names and properties.
    ///
    /// The interface document does not show how a contact is deleted ([section 4.7](crate::interface#4.7)). So look at
    /// the result: after [`Erasure::Emptied`], the service still has the address, and its support has to delete it.
    ///
    /// The request to delete is retried like any other. An attempt without a response, or with one such as a 503, may
    /// have deleted the contact. If the service responds to the next attempt that it does not delete by this request (404,
    /// 405, 410 or 501), the result is [`Erasure::Deleted`] if the contact is gone. If not, the call opts it out and empties
    /// it. If the contact is deleted only then, the call may create it again, opted out and empty.
    ///
    /// The opt-out is deleted with the contact. If the address is imported again, it gets broadcasts again, so keep a
    /// list of erased addresses.
    ///
    /// After [`change_address`](Self::change_address), the contact of the old address still has the names and properties.
    /// Nothing links the two contacts, so erase both.
    ///
    /// If a sync sends a table that has the person, call `Contacts::erase_rows` (feature `import`) instead: another row
    /// may have the address, and the state file of the sync has it, too.
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::Unsupported`] with [`Outcome::Unknown`] if the service responded 2xx, as if it had deleted the
    ///   contact, but still lists it. Nothing more was sent, because a change could create the contact anew.
    /// - [`ErrorKind::Decode`] with [`Outcome::Unknown`] if the contact is opted out, but the service still shows a
    ///   name or a property, or the contact cannot be read. Then its support has to remove them.
    /// - The errors of [`retrieve`](Self::retrieve), [`delete`](Self::delete), [`unsubscribe`](Self::unsubscribe) and
    ///   [`update`](Self::update). The call [makes sure](crate::contacts#a-404-is-no-proof) of a 404: the result is
    ///   [`Erasure::NoContact`] only if no list has the contact.
    ///
    /// It is safe to repeat the call after any error.
    ///
    /// # Example: a service that does not delete, such as the mock by default
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), audience::Error> {
    /// # use audience::mock::{MockServer, SeedContact};
    /// # let ada = SeedContact::new("ada@example.com").first_name("Ada").property("plan", "pro");
    /// # let server = MockServer::builder().seed_contact(ada).start().await;
    /// # let contacts = server.client().contacts();
    /// use audience::contacts::Erasure;
    ///
    /// let erasure = contacts.erase("ada@example.com").await?;
    ///
    /// assert_eq!(erasure, Erasure::Emptied);
    /// println!("{erasure}"); // not deleted, but opted out and without names and properties; ask …
    /// # let ada = server.contact("ada@example.com").unwrap();
    /// # assert!(ada.unsubscribed && ada.properties.is_empty());
    /// # Ok(()) }
    /// ```
    pub fn erase(&self, address: impl Into<String>) -> EraseContact {
        EraseContact {
            contacts: self.clone(),
            address: address.into(),
            options: CallOptions::default(),
        }
    }
}

/// What [`Contacts::erase`] has done. Its `Display` says it in plain words, for a support team.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[must_use = "the contact may not have been deleted, although the call succeeded: compare it with `Deleted`"]
#[non_exhaustive]
pub enum Erasure {
    /// The contact is deleted.
    Deleted,
    /// The service does not delete contacts by the request that this crate knows. The contact is opted out of
    /// everything, and has no names and properties any more.
    Emptied,
    /// The service has no contact with this address. It may be misspelled.
    NoContact,
    /// Nothing was done, because somebody else has the address. Only `Contacts::erase_rows` (feature `import`) returns
    /// this, if another row of the table has it, and `UnsubscribeService::erase` (feature `unsubscribe`), if the contact
    /// of an earlier address is subscribed.
    Kept,
}

impl Erasure {
    /// Returns the name for a program, such as `emptied`. It is also the value in JSON, and never changes.
    ///
    /// # Example: a line of a log
    ///
    /// ```
    /// use audience::contacts::Erasure;
    ///
    /// assert_eq!(Erasure::NoContact.as_str(), "no_contact");
    /// ```
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Deleted => "deleted",
            Self::Emptied => "emptied",
            Self::NoContact => "no_contact",
            Self::Kept => "kept",
        }
    }
}

/// Writes [`as_str`](Erasure::as_str).
impl Serialize for Erasure {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl fmt::Display for Erasure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Deleted => "deleted",
            Self::Emptied => {
                "not deleted, but opted out and without names and properties; ask the support of the service to delete the address"
            }
            Self::NoContact => "there is no contact with this address; check the spelling",
            Self::Kept => "kept, because somebody else has the address",
        })
    }
}

/// Erases a person when it is awaited: see [`Contacts::erase`].
///
/// The timeout and the retry policy apply to each request, the deadline to the whole call.
#[derive(Clone)]
#[must_use = "a call is sent only when it is awaited"]
pub struct EraseContact {
    contacts: Contacts,
    address: String,
    options: CallOptions,
}

impl EraseContact {
    async fn send(self) -> Result<Erasure, Error> {
        let (contacts, address) = (&self.contacts, &self.address);
        let options = contacts.client.start_deadline(self.options);
        let contact = match contacts.retrieve_surely(address, &options).await {
            Err(error) if error.missing() == Some(Missing::Contact) => {
                return Ok(Erasure::NoContact);
            }
            Err(error) if !error.is_malformed_contact() => return Err(error),
            // A contact that cannot be read exists, although its properties are not known.
            retrieved => retrieved,
        };
        let refused = match contacts.delete(address).options(options.clone()).await {
            Ok(()) => return Ok(Erasure::Deleted),
            Err(error) if is_refusal(&error) => error.outcome(),
            // After a 2xx status, the service may delete the contact later. A change would then create it anew.
            Err(error) => return Err(error),
        };
        // An earlier attempt failed, and may delete the contact, even now.
        let is_doubtful = refused == Outcome::Unknown;
        match empty(contacts, contact, address, &options).await {
            Ok(()) => Ok(Erasure::Emptied),
            // Only if no list has it.
            Err(error) if error.missing() == Some(Missing::Contact) => Ok(Erasure::Deleted),
            Err(error) if is_doubtful => Err(error.maybe_applied()),
            Err(error) => Err(error),
        }
    }
}

/// Returns whether the service does not delete by the request. After a 2xx status, the error has no source.
fn is_refusal(error: &Error) -> bool {
    error.kind() == ErrorKind::Unsupported && error.source().is_some()
}

/// How often to remove properties that another program adds meanwhile.
const ATTEMPTS: u32 = 3;

/// Opts a contact out, and removes its names and properties.
async fn empty(
    contacts: &Contacts,
    contact: Result<Contact, Error>,
    address: &str,
    options: &CallOptions,
) -> Result<(), Error> {
    let opt_out = || {
        let opt_out = contacts
            .unsubscribe(address)
            .reason(OptOutReason::Preferences)
            .unless_complaint_locked();
        opt_out.options(options.clone())
    };
    // First, because an opt-out creates no contact.
    opt_out().await?;
    // The opt-out is recorded by now.
    let mut properties = contact.map_err(Error::maybe_applied)?.properties;
    for _ in 0..ATTEMPTS {
        let mut update = contacts.update(address).first_name("").last_name("");
        for (name, _) in &properties {
            update = update.remove_property(name);
        }
        let emptied = update.options(options.clone()).await;
        let emptied = emptied.map_err(Error::maybe_applied)?;
        // The contact was deleted meanwhile, and the update has created it anew, or somebody has opted it in.
        if !emptied.unsubscribed {
            opt_out().await.map_err(Error::maybe_applied)?;
        }
        // Another program may have added some.
        properties = emptied.properties;
        if properties.is_empty() {
            return Ok(());
        }
    }
    let error = Error::decode("another program adds properties to the contact; stop it first");
    Err(error.repeatable(true).maybe_applied())
}

call_settings!(EraseContact);
wait_for_call!(EraseContact => Result<Erasure, Error>);
opaque_debug!(EraseContact);

impl IntoFuture for EraseContact {
    type Output = Result<Erasure, Error>;
    type IntoFuture = ResponseFuture<Erasure>;

    fn into_future(self) -> Self::IntoFuture {
        ResponseFuture::new(async {
            let erased = self.send().await;
            erased.map_err(|error| error.at("erase").repeatable(true))
        })
    }
}
