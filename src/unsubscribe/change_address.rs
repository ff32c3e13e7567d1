//! Gives a contact another address, together with the opt-outs that the service does not have yet, and remembers the
//! change for links in older mail.

use std::collections::{BTreeSet, HashMap};
use std::pin::Pin;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::links::Target;
use super::mail::DAY;
use super::service::{ConsentError, OptOut, UnsubscribeService};
use crate::client::{CallOptions, opaque_debug};
use crate::contacts::{Contact, Erasure, normalized_address};
use crate::inbox::{InboxError, StoreError};
use crate::webhooks::EventId;
use crate::{Error, ErrorKind, Outcome};

const OPERATION: &str = "change_address";
/// How many changes of addresses are read at once.
const MOVES_AT_ONCE: usize = 1_000;
/// How many changes of one address are looked at.
const MOVES_OF_ADDRESS: usize = 100;

impl UnsubscribeService {
    /// Gives a contact another address, as [`Contacts::change_address`](crate::contacts::Contacts::change_address)
    /// does, and returns the contact of the new address: no opt-in moves. No opt-out that this service has acknowledged and
    /// has not sent yet stays at the old address alone.
    ///
    /// 1. It notes the change in the store. Links in mail that was sent before name the old address: from then on, each
    ///    click on them opts out both addresses ([the guide](crate::guides::unsubscribe#after-a-new-address)).
    /// 2. If an opt-out of the old address waits in the store, the call fails and changes nothing. Call it again in a
    ///    few minutes: by then, the [worker](Self::worker) has usually sent the opt-out.
    /// 3. It makes the change.
    /// 4. If somebody opted out at the old address meanwhile, it stores the opt-out for the new address, too, before it
    ///    returns. The worker sends it.
    ///
    /// It looks for the opt-outs from everything, from the topics of the
    /// [page](super::UnsubscribeServiceBuilder::topic) and from all topics that the service has. If links name a topic
    /// that the service no longer has, add it with [`topics`](AddressChange::topics).
    ///
    /// If the call fails, call it again. After an error with the outcome [`Unknown`](Outcome::Unknown) or
    /// [`Applied`](Outcome::Applied), the note stays, because the change may have been made. After any other, it is
    /// deleted again, unless the store fails. If the program is killed meanwhile, call it again, too: the note stays, and a
    /// click in old mail would opt out an address that is perhaps not the person's. If the further call has another new
    /// address and succeeds, only this one counts.
    ///
    /// The store keeps the note, with both addresses, until [`forget_earlier_addresses`](Self::forget_earlier_addresses).
    /// An opt-out without a link, by [`opt_out`](Self::opt_out), [`set_topics`](Self::set_topics) or a spam report, also
    /// concerns the new address of whoever had this one last, even if somebody else has it now.
    ///
    /// The call continues if its future is dropped.
    ///
    /// # Errors
    ///
    /// - [`ConsentError::Service`] with [`ErrorKind::Unfinished`] and [`Outcome::Unchanged`] if an opt-out of the old
    ///   address waits. [`Error::may_repeat`] is `true`.
    /// - [`ConsentError::Service`] with an error of
    ///   [`Contacts::change_address`](crate::contacts::Contacts::change_address). If the outcome is
    ///   [`Unknown`](Outcome::Unknown), step 4 was tried, too. A call after a failure is described there.
    /// - [`ConsentError::Service`] with [`ErrorKind::Unfinished`] and [`Outcome::Applied`] if the change was made, and
    ///   the store failed in step 4. An opt-out that arrived meanwhile may be missing at the new address. In a few
    ///   minutes, compare both contacts.
    /// - [`ConsentError::Store`] if the store failed before step 3. Nothing was changed.
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

    /// Returns the addresses that the person of this one had before, as far as [`change_address`](Self::change_address) of
    /// this service has changed them: the newest change first, each address once.
    ///
    /// It reads all changes in the store, so it is for your support team, and not for each request. An address that
    /// somebody else has taken over meanwhile is among them, so ask before you erase a contact that is subscribed. So is
    /// the address of a change that was [perhaps not made](Self::change_address).
    ///
    /// # Errors
    ///
    /// Returns [`InboxError::Store`] if the store fails.
    ///
    /// # Example: all addresses of a person
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use audience::inbox::MemoryStore;
    /// # use audience::unsubscribe::{UnsubscribeLinks, UnsubscribeService};
    /// # let server = audience::mock::MockServer::builder().seed_contact("ada@example.com").start().await;
    /// # let links = UnsubscribeLinks::new(["S3cr3t-0f-32-bytes-0r-m0re-1815!"], "https://shop.example.com/unsubscribe")?;
    /// # let service = UnsubscribeService::builder(links, server.client().contacts(), MemoryStore::new()).build();
    /// service.change_address("ada@example.com", "ada@example.net").await?;
    ///
    /// assert_eq!(service.earlier_addresses("ada@example.net").await?, ["ada@example.com"]);
    /// # Ok(()) }
    /// ```
    pub async fn earlier_addresses(
        &self,
        address: impl AsRef<str>,
    ) -> Result<Vec<String>, InboxError> {
        let address = normalized_address(address.as_ref());
        let moves = self.moves_to(&address).await?;
        Ok(others(&moves, &address))
    }

    /// Erases the contact of a person and those of the [`earlier_addresses`](Self::earlier_addresses), as
    /// [`Contacts::erase`](crate::contacts::Contacts::erase) does, and then
    /// [forgets](Self::forget_earlier_addresses) these. Returns each address, and what was done with it: the person's
    /// own is the last.
    ///
    /// An earlier address whose contact is subscribed is [`Kept`](Erasure::Kept): most likely, another person has it by
    /// now. If not, call [`Contacts::erase`](crate::contacts::Contacts::erase) for it.
    ///
    /// # Errors
    ///
    /// - [`ConsentError::Service`] with an error of [`Contacts::erase`](crate::contacts::Contacts::erase) or
    ///   [`Contacts::find`](crate::contacts::Contacts::find).
    /// - [`ConsentError::Store`] if the store fails.
    ///
    /// Call it again then: the contacts that were deleted by then are [`NoContact`](Erasure::NoContact).
    ///
    /// # Example: "Please erase me"
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use audience::inbox::MemoryStore;
    /// # use audience::unsubscribe::{UnsubscribeLinks, UnsubscribeService};
    /// # let server = audience::mock::MockServer::builder().seed_contact("ada@example.com").start().await;
    /// # let links = UnsubscribeLinks::new(["S3cr3t-0f-32-bytes-0r-m0re-1815!"], "https://shop.example.com/unsubscribe")?;
    /// # let service = UnsubscribeService::builder(links, server.client().contacts(), MemoryStore::new()).build();
    /// service.change_address("ada@example.com", "ada@example.net").await?;
    ///
    /// let erased = service.erase("ada@example.net").await?;
    /// for (address, erasure) in &erased {
    ///     println!("{address}: {erasure}");
    /// }
    /// # assert_eq!(erased.len(), 2);
    /// # Ok(()) }
    /// ```
    pub async fn erase(
        &self,
        address: impl AsRef<str>,
    ) -> Result<Vec<(String, Erasure)>, ConsentError> {
        let contacts = &self.0.contacts;
        let address = normalized_address(address.as_ref());
        let moves = self.moves_to(&address).await?;
        let mut erased = Vec::new();
        for earlier in others(&moves, &address) {
            let contact = contacts.find(&earlier).await?;
            let erasure = match contact.is_some_and(|contact| !contact.unsubscribed) {
                true => Erasure::Kept,
                false => contacts.erase(&earlier).await?,
            };
            erased.push((earlier, erasure));
        }
        let erasure = contacts.erase(&address).await?;
        self.forget(moves).await?;
        erased.push((address, erasure));
        Ok(erased)
    }

    /// Deletes the changes from which [`earlier_addresses`](Self::earlier_addresses) knows the earlier addresses. From
    /// then on, a link in mail to one of them opts out this address only. [`erase`](Self::erase) does it, too.
    ///
    /// If the address was mistyped, call [`forget_change`](Self::forget_change), so that the links in mail to still earlier
    /// addresses opt out the right one.
    ///
    /// # Errors
    ///
    /// Returns [`InboxError::Store`] if the store fails. Call it again then.
    pub async fn forget_earlier_addresses(
        &self,
        address: impl AsRef<str>,
    ) -> Result<(), InboxError> {
        let address = normalized_address(address.as_ref());
        let moves = self.moves_to(&address).await?;
        self.forget(moves).await
    }

    /// Deletes the changes from one address to another one, which was mistyped and belongs to another person. From then on,
    /// no link in mail to the old address opts out that person. Links in mail to the addresses before the old one still
    /// opt out the old one, and after the next change the right one.
    ///
    /// # Errors
    ///
    /// Returns [`InboxError::Store`] if the store fails. Call it again then.
    ///
    /// # Example: a mistyped address
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use audience::inbox::MemoryStore;
    /// # use audience::unsubscribe::{UnsubscribeLinks, UnsubscribeService};
    /// # let server = audience::mock::MockServer::builder().seed_contact("ada@example.com").start().await;
    /// # let links = UnsubscribeLinks::new(["S3cr3t-0f-32-bytes-0r-m0re-1815!"], "https://shop.example.com/unsubscribe")?;
    /// # let service = UnsubscribeService::builder(links, server.client().contacts(), MemoryStore::new()).build();
    /// # service.change_address("ada@example.com", "adam@example.net").await?;
    /// service.forget_change("ada@example.com", "adam@example.net").await?;
    /// service.change_address("ada@example.com", "ada@example.net").await?;
    ///
    /// assert!(service.earlier_addresses("adam@example.net").await?.is_empty());
    /// # Ok(()) }
    /// ```
    pub async fn forget_change(
        &self,
        old: impl AsRef<str>,
        new: impl AsRef<str>,
    ) -> Result<(), InboxError> {
        let old = normalized_address(old.as_ref());
        let new = normalized_address(new.as_ref());
        for (made_at, moved) in self.moves_from(&old, Duration::ZERO).await? {
            if normalized_address(&moved.new) == new {
                self.0.moves.delete_kept(&move_id(&old, made_at)).await?;
            }
        }
        Ok(())
    }

    /// Deletes these changes, of which the newest comes first.
    async fn forget(&self, moves: Vec<(EventId, String)>) -> Result<(), InboxError> {
        // The oldest change first: without the newer ones, a further call would not find it.
        for (id, _) in moves.into_iter().rev() {
            self.0.moves.delete_kept(&id).await?;
        }
        Ok(())
    }

    /// Notes a change in the store before it is made, and returns the time of the note.
    async fn note_move(&self, old: &str, new: &str) -> Result<(Duration, Moved), StoreError> {
        let moved = Moved {
            old: normalized_address(old),
            new: Target::new(new, None).address,
            is_made: false,
        };
        let made_at = self.0.links.since_1970();
        Ok((self.keep_move(made_at, &moved).await?, moved))
    }

    /// Notes that a change was made, in place of its first note. The notes of earlier calls that may have failed are
    /// deleted, too: the person has tried again since, maybe with another address.
    async fn confirm_move(&self, noted_at: Duration, moved: Moved) -> Result<(), StoreError> {
        let noted = self.moves_from(&moved.old, Duration::ZERO).await?;
        let moved = Moved {
            is_made: true,
            ..moved
        };
        self.keep_move(noted_at, &moved).await?;
        for (made_at, earlier) in noted {
            if made_at <= noted_at && !earlier.is_made {
                let id = move_id(&moved.old, made_at);
                self.0.moves.delete_kept(&id).await?;
            }
        }
        Ok(())
    }

    /// Keeps a note under this time or, if the address has another one of that time, directly after it. Returns the time.
    async fn keep_move(
        &self,
        mut made_at: Duration,
        moved: &Moved,
    ) -> Result<Duration, StoreError> {
        let text = serde_json::to_string(moved).expect("two texts and a flag are valid JSON");
        loop {
            let id = move_id(&moved.old, made_at);
            match self.0.moves.keep(&id, &text).await {
                Ok(true) => return Ok(made_at),
                Ok(false) => made_at += Duration::from_micros(1),
                Err(error) => {
                    // The store may have kept it, and not have responded in time.
                    self.0.moves.delete_kept(&id).await.ok();
                    return Err(error);
                }
            }
        }
    }

    /// Returns the address that the person has now who had this one, as far as the store has noted it.
    ///
    /// A link concerns whoever had its address when it was made, so changes before that day do not count. Without a link,
    /// the person is the last one who had the address.
    pub(super) async fn moved_to(&self, linked: &Target) -> Result<Option<String>, InboxError> {
        // A day earlier: clocks differ, and a list may have been read before the change.
        let linked_at = linked.made_on.map(|day| DAY * day.saturating_sub(1));
        let start = linked_at.unwrap_or_default();
        let moves = self.moves_from(&linked.address, start).await?;
        let mut next = match linked_at {
            Some(_) => first_made(moves),
            None => moves.into_iter().last(),
        };
        let mut current = None;
        while let Some((made_at, moved)) = next {
            next = first_made(self.moves_from(&moved.new, made_at).await?);
            current = Some(moved.new);
        }
        Ok(current)
    }

    /// Returns the first changes of an address after this time, the oldest first.
    async fn moves_from(
        &self,
        address: &str,
        after: Duration,
    ) -> Result<Vec<(Duration, Moved)>, StoreError> {
        let after = move_id(address, after);
        let kept = self.0.moves.kept_after(Some(&after), MOVES_OF_ADDRESS);
        let of_address = kept.await?.into_iter().filter_map(|(id, text)| {
            let made_at = made_at(&id).filter(|made_at| id == move_id(address, *made_at))?;
            Some((made_at, serde_json::from_str(&text).ok()?))
        });
        Ok(of_address.collect())
    }

    /// Returns the changes that lead to this address, the newest first: their ids and the earlier addresses.
    async fn moves_to(&self, address: &str) -> Result<Vec<(EventId, String)>, InboxError> {
        let mut moves = self.all_moves().await?;
        moves.sort_by_key(|(made_at, ..)| *made_at);
        // Of each address, where whoever had it at the time of the change is now, or may be.
        let mut current: HashMap<String, Vec<String>> = HashMap::new();
        let mut found = Vec::new();
        for (_, id, Moved { old, new, is_made }) in moves.into_iter().rev() {
            let new = normalized_address(&new);
            let mut now = current.get(&new).cloned().unwrap_or_else(|| vec![new]);
            if !is_made {
                now.push(old.clone());
            }
            if now.iter().any(|now| now == address) {
                found.push((id, old.clone()));
            }
            current.insert(old, now);
        }
        Ok(found)
    }

    async fn all_moves(&self) -> Result<Vec<(Duration, EventId, Moved)>, StoreError> {
        let mut moves = Vec::new();
        let mut after = None;
        loop {
            let page = self
                .0
                .moves
                .kept_after(after.as_ref(), MOVES_AT_ONCE)
                .await?;
            // A store may return fewer than it was asked for.
            let Some((last, _)) = page.last() else {
                return Ok(moves);
            };
            after = Some(last.clone());
            moves.extend(page.into_iter().filter_map(|(id, text)| {
                let moved = serde_json::from_str(&text).ok()?;
                Some((made_at(&id)?, id, moved))
            }));
        }
    }
}

/// A change of an address, as the store keeps it.
#[derive(Serialize, Deserialize)]
struct Moved {
    old: String,
    new: String,
    /// Whether the change was certainly made.
    #[serde(default)]
    is_made: bool,
}

/// Returns the earlier addresses of these changes, each once and without this one.
fn others(moves: &[(EventId, String)], address: &str) -> Vec<String> {
    let mut others: Vec<String> = Vec::new();
    for (_, old) in moves {
        if old != address && !others.contains(old) {
            others.push(old.clone());
        }
    }
    others
}

/// Returns the first of these changes that was certainly made, or else the last one: whoever calls again has given up the
/// address of the call before.
fn first_made(moves: Vec<(Duration, Moved)>) -> Option<(Duration, Moved)> {
    let made = moves.iter().position(|(_, moved)| moved.is_made);
    let place = made.unwrap_or(moves.len().saturating_sub(1));
    moves.into_iter().nth(place)
}

/// Returns the id of a change: the changes of an address are in the order of their times.
fn move_id(old: &str, made_at: Duration) -> EventId {
    let of_address = OptOut::id("moved", old, None);
    let id = format!("{}.{:020}", of_address.as_str(), made_at.as_micros());
    EventId::try_from(id).expect("it has letters and digits")
}

fn made_at(id: &EventId) -> Option<Duration> {
    let (_, micros) = id.as_str().rsplit_once('.')?;
    Some(Duration::from_micros(micros.parse().ok()?))
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
        let service = self.service.clone();
        let noted = service.note_move(&self.old, &self.new).await;
        let (noted_at, noted) = noted.map_err(InboxError::from)?;
        let moved = self.change().await;
        match &moved {
            // If the store fails, the note stays one of a change that was maybe made.
            Ok(_) => _ = service.confirm_move(noted_at, noted).await,
            Err(ConsentError::Service(error)) if error.outcome().may_be_applied() => {}
            Err(_) => {
                // If the store fails, a click opts out one address too many.
                let id = move_id(&noted.old, noted_at);
                _ = service.0.moves.delete_kept(&id).await;
            }
        }
        moved
    }

    async fn change(&mut self) -> Result<Contact, ConsentError> {
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
