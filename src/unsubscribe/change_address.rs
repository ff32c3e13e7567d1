//! Gives a contact another address, together with the opt-outs that the service does not have yet.

use std::collections::BTreeSet;
use std::pin::Pin;

use super::links::Target;
use super::service::{ConsentError, OptOut, UnsubscribeService};
use crate::client::{CallOptions, opaque_debug};
use crate::contacts::Contact;
use crate::inbox::InboxError;
use crate::{Error, ErrorKind, Outcome};

const OPERATION: &str = "change_address";

impl UnsubscribeService {
    /// Gives a contact another address, as [`Contacts::change_address`](crate::contacts::Contacts::change_address)
    /// does, and returns the contact of the new address. No opt-out that this service has acknowledged and has not sent
    /// yet stays at the old address alone.
    ///
    /// 1. If an opt-out of the old address waits in the store, the call fails and changes nothing. Call it again in a
    ///    few minutes: by then, the [worker](Self::worker) has usually sent the opt-out.
    /// 2. It makes the change.
    /// 3. If somebody opted out at the old address meanwhile, it stores the opt-out for the new address, too, before it
    ///    returns. The worker sends it.
    ///
    /// It looks for the opt-outs from everything, from the topics of the
    /// [page](super::UnsubscribeServiceBuilder::topic) and from all topics that the service has. If links name a topic
    /// that the service no longer has, add it with [`topics`](AddressChange::topics).
    ///
    /// Links in mail that was sent before name the old address. Write the row for
    /// [`current_address`](super::UnsubscribeServiceBuilder::current_address) before the call: from then on, each click
    /// is stored for both addresses. Without that row, an opt-out reaches the old address alone in three cases: it
    /// arrives later, it arrives and is sent during the last two requests of the change, or the program is killed
    /// before step 3. If the call fails, call it again. If you give up, and no call had the outcome
    /// [`Unknown`](Outcome::Unknown) or [`Applied`](Outcome::Applied), such as after a 404, delete the row: otherwise, a
    /// click for the old address also opts out the new one. [The guide](crate::guides::unsubscribe#after-a-new-address)
    /// has both functions.
    ///
    /// The call continues if its future is dropped.
    ///
    /// # Errors
    ///
    /// - [`ConsentError::Service`] with [`ErrorKind::Unfinished`] and [`Outcome::Unchanged`] if an opt-out of the old
    ///   address waits. [`Error::may_repeat`] is `true`.
    /// - [`ConsentError::Service`] with an error of
    ///   [`Contacts::change_address`](crate::contacts::Contacts::change_address). If the outcome is
    ///   [`Unknown`](Outcome::Unknown), step 3 was tried, too. A call after a failure is described there.
    /// - [`ConsentError::Service`] with [`ErrorKind::Unfinished`] and [`Outcome::Applied`] if the change was made, and
    ///   the store failed in step 3. An opt-out that arrived meanwhile may be missing at the new address. In a few
    ///   minutes, compare both contacts.
    /// - [`ConsentError::Store`] if the store failed in step 1. Nothing was changed.
    ///
    /// # Panics
    ///
    /// Panics outside of a Tokio runtime.
    ///
    /// # Example: an opt-out that waits
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use audience::inbox::MemoryStore;
    /// # use audience::unsubscribe::{UnsubscribeLinks, UnsubscribeService};
    /// # let server = audience::mock::MockServer::builder().topic("news", true).seed_contact("ada@example.com").start().await;
    /// # let links = UnsubscribeLinks::new(["S3cr3t-0f-32-bytes-0r-m0re-1815!"], "https://shop.example.com/unsubscribe")?;
    /// # let service = UnsubscribeService::builder(links, server.client().contacts(), MemoryStore::new()).build();
    /// service.opt_out("ada@example.com", Some("news")).await?;
    /// let error = service.change_address("ada@example.com", "ada@example.net").await.unwrap_err();
    /// assert!(error.to_string().ends_with("waits to be sent; call again in a few minutes"));
    ///
    /// service.worker().run_until_idle().await?; // beside your server, it runs all the time
    /// let ada = service.change_address("ada@example.com", "ada@example.net").await?;
    /// assert!(!ada.topics["news"]);
    /// # Ok(()) }
    /// ```
    pub fn change_address(&self, old: impl Into<String>, new: impl Into<String>) -> AddressChange {
        let offered = self.0.topics.iter().map(|topic| topic.name.clone());
        AddressChange {
            service: self.clone(),
            old: old.into(),
            new: new.into(),
            topics: offered.collect(),
        }
    }
}

/// Changes the address of a contact when it is awaited: see [`UnsubscribeService::change_address`].
#[derive(Clone)]
#[must_use = "a call is sent only when it is awaited"]
pub struct AddressChange {
    service: UnsubscribeService,
    old: String,
    new: String,
    topics: BTreeSet<String>,
}

impl AddressChange {
    /// Adds topics that links name, and that the service no longer has. Default: the topics of the page and of the
    /// service.
    ///
    /// # Example: a topic that no longer exists
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use audience::inbox::MemoryStore;
    /// # use audience::unsubscribe::{UnsubscribeLinks, UnsubscribeService};
    /// # let server = audience::mock::MockServer::builder().seed_contact("ada@example.com").start().await;
    /// # let links = UnsubscribeLinks::new(["S3cr3t-0f-32-bytes-0r-m0re-1815!"], "https://shop.example.com/unsubscribe")?;
    /// # let service = UnsubscribeService::builder(links, server.client().contacts(), MemoryStore::new()).build();
    /// let change = service.change_address("ada@example.com", "ada@example.net");
    /// let ada = change.topics(["offers-2025"]).await?;
    /// # assert_eq!(ada.email, "ada@example.net");
    /// # Ok(()) }
    /// ```
    pub fn topics(mut self, topics: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.topics.extend(topics.into_iter().map(Into::into));
        self
    }

    async fn run(mut self) -> Result<Contact, ConsentError> {
        self.require_none_waiting().await?;
        let contacts = &self.service.0.contacts;
        let moved = match contacts.change_address(&self.old, &self.new).await {
            Err(error) if !error.outcome().may_be_applied() => return Err(error.into()),
            moved => moved,
        };
        // After an error, the change may be complete. A further call fails then, because it cannot know that, and
        // copies nothing.
        match (moved, self.copy_opt_outs().await) {
            (Ok(_), Err(error)) => Err(not_copied(error).into()),
            (moved, _) => Ok(moved?),
        }
    }

    /// Fails if an opt-out of the old address waits: it would stay at the old contact.
    async fn require_none_waiting(&mut self) -> Result<(), ConsentError> {
        let service = &self.service;
        let options = CallOptions::default();
        let old = service.0.contacts.retrieve_surely(&self.old, &options);
        let old = old.await.map_err(|error| error.at(OPERATION))?;
        // A link may name a topic that the page does not offer. After a change that fails, nobody may be able to ask.
        self.topics.extend(old.topic_names().cloned());
        match service.has_pending(&self.old, &self.topics).await? {
            true => {
                let message =
                    "an opt-out of the old address waits to be sent; call again in a few minutes";
                let waits = Error::unfinished(message, true).with_outcome(Outcome::Unchanged);
                Err(waits.at(OPERATION).into())
            }
            false => Ok(()),
        }
    }

    /// Stores each waiting opt-out of the old address for the new address, too.
    async fn copy_opt_outs(&self) -> Result<(), InboxError> {
        let service = &self.service;
        if service.pending().await? == 0 {
            return Ok(());
        }
        let old = Target::new(&self.old, None).address;
        let new = Target::new(&self.new, None).address;
        let topics = self.topics.iter().map(|topic| Some(topic.as_str()));
        let opt_outs: Vec<_> = topics.chain([None]).collect();
        for topic in opt_outs {
            if service.waits_for_any(&OptOut::ids(&old, topic)).await? {
                // After a failure, the new contact may not exist yet.
                service.store_of(OptOut::of_current(&new, topic)).await?;
            }
        }
        Ok(())
    }
}

opaque_debug!(AddressChange);

impl IntoFuture for AddressChange {
    type Output = Result<Contact, ConsentError>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let service = self.service.clone();
            // A further call may not do the last step if this future is dropped before it.
            let task = service.start(self.run());
            task.await.unwrap_or_else(|stopped| {
                let message = "the call has ended early, by a panic or because the program stops";
                let error = Error::unfinished(message, true).with_outcome(Outcome::Unknown);
                let error = error.repeatable(true).at(OPERATION);
                Err(error.caused_by(stopped).into())
            })
        })
    }
}

/// Returns the error of a change that was made, if the store failed after it.
fn not_copied(error: InboxError) -> Error {
    let message = "the change was made, but the store of the opt-outs failed, so an opt-out that arrived meanwhile may be missing at the new address: compare both contacts in a few minutes";
    let applied = Error::new(ErrorKind::Unfinished, Outcome::Applied, message);
    applied.at(OPERATION).caused_by(error)
}
