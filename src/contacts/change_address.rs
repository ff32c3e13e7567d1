use std::collections::BTreeSet;

use super::model::address_in_path;
use super::retrieve::Retrieve;
use super::{
    Contact, Contacts, NewContact, OnConflict, OptOutReason, Unsubscribe, UnsubscribeReason,
    normalized_address,
};
use crate::address::are_spellings_of_one;
use crate::client::{
    CallOptions, Endpoint as _, ResponseFuture, TakesOptions, call_settings, opaque_debug,
    wait_for_call,
};
use crate::{Error, ErrorKind, Outcome};

impl Contacts {
    /// Gives a contact another address: creates the contact of the new address with the names, the properties and the
    /// opt-outs of the old one, and then opts the old one out. It returns the new contact.
    ///
    /// The address identifies a contact, and the interface has no request that changes it
    /// ([section 4](crate::interface#4)). So both contacts exist afterwards, nothing links them, and the old one keeps its
    /// names and properties. To [erase](Self::erase) the person later, you need both addresses. If both addresses are the
    /// same, apart from spaces and capital letters, the contact is only retrieved.
    ///
    /// # What is sent
    ///
    /// 1. The call retrieves the old contact.
    /// 2. It creates the new contact with the names and properties of the old one. If the new address is a contact
    ///    already, its names and properties stay. A number of the properties that is no integer of up to 64 bits is
    ///    rounded (see [`PropertyValue`](super::PropertyValue)).
    /// 3. It records for the new contact every opt-out that the old one shows. An opt-out of everything gets the reason
    ///    `preferences`. If the new address was a contact already, it is retrieved before, and keeps its own opt-out of
    ///    everything. For a topic that the old contact never answered, the default counts. An answer that is `null` counts
    ///    as an opt-out, because it may be one.
    /// 4. It retrieves the new contact, and then the old one again. If the old one has another opt-out by now, the call
    ///    repeats step 3 for it.
    /// 5. It opts the old contact out with the reason `manual`, unless it is opted out already.
    ///
    /// # Consent
    ///
    /// - **No opt-in is sent.** A new contact has the defaults of the topics that the old one did not opt out of. If
    ///   the new address is a contact that is opted out or reported spam, it stays so, and no broadcast reaches the
    ///   person at either address: [`Contact::unsubscribed`] of the returned contact is then true.
    /// - **A spam report** locks the old address only. The new contact gets an opt-out of everything instead, which a
    ///   later [`subscribe`](Self::subscribe) can end. Nothing at the new address shows the report. If nobody may be
    ///   subscribed after a complaint, look at the [reason](Contact::unsubscribe_reason) of the old contact before the
    ///   change.
    /// - A broadcast can reach the new contact before its opt-outs are recorded, because the service creates no contact
    ///   that is opted out already.
    /// - An opt-out of the old contact that arrives between the last retrieve of step 4 and step 5 is not recorded for
    ///   the new one.
    /// - An opt-out that you have, but that the service does not have yet, is not recorded for the new contact either.
    ///   If you run an
    #[cfg_attr(
        feature = "unsubscribe",
        doc = "[`UnsubscribeService`](crate::unsubscribe::UnsubscribeService), call its [`change_address`](crate::unsubscribe::UnsubscribeService::change_address)"
    )]
    #[cfg_attr(
        not(feature = "unsubscribe"),
        doc = "`UnsubscribeService` (feature `unsubscribe`), call its `change_address`"
    )]
    ///   instead. A click on a link in older mail then opts out the new contact, too.
    ///
    /// # A call after a failure
    ///
    /// It is safe to repeat the call after any error, and after the program was killed. No opt-out of the old contact
    /// is lost, and the old contact is opted out last. So as long as it is subscribed, a further call does the rest.
    ///
    /// An old contact that is opted out with the reason `manual`, or without a reason, may have been opted out by step
    /// 5 of an earlier call, whose response may have been lost, or on behalf of the person. The new contact decides:
    ///
    /// - If it does not exist, the opt-out is the person's. The call changes its reason to `preferences` before it
    ///   creates the new contact, so that a further call does not take it for its own.
    /// - If it is opted out, too, nobody is subscribed, and the call records the other opt-outs.
    /// - If it is subscribed, the call cannot know. It changes nothing and fails with [`ErrorKind::Ambiguous`]. If an
    ///   earlier call made the opt-out, there is nothing left to do. If not, [`unsubscribe`](Self::unsubscribe) the new
    ///   contact and call again.
    ///
    /// If the old contact is opted out with one of these reasons while the call runs, and the new one is subscribed, it
    /// fails in the same way: a second call, after a double click, may have made the change, or somebody has opted the
    /// person out. The outcome is then `Unknown`.
    ///
    /// If the old contact was opted out for another reason, each call opts out the new one. So once a call has
    /// succeeded, do not repeat it later: the person may have opted in again at the new address.
    ///
    /// # Errors
    ///
    /// - `not_found` (404) if the old address is not one of your contacts: [`Error::is_not_found`]. The call
    ///   [makes sure](crate::contacts#a-404-is-no-proof) of it.
    /// - `validation_error` (422) if the new address is not an email address.
    /// - `quota_exceeded` (402) if the plan has no room for the new contact: the old one stays stored.
    /// - [`ErrorKind::Ambiguous`] if the new contact is subscribed although the old one is opted out: see above.
    /// - [`ErrorKind::Input`] if an address is empty, `.` or `..`.
    /// - [`ErrorKind::Decode`] if the service does not show the topics of the old contact.
    /// - [`ErrorKind::Unfinished`] if the old contact got other opt-outs as fast as the call recorded them.
    /// - The errors of [`retrieve`](Self::retrieve), [`create`](Self::create) and [`unsubscribe`](Self::unsubscribe).
    ///
    /// [`Error::outcome`] is about all requests. [`Unknown`](Outcome::Unknown) means that changes were made, or may
    /// have been, and that others may be missing. With any other outcome, nothing was changed.
    ///
    /// # Example: a new address, and the opt-out that goes with it
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), audience::Error> {
    /// # let ada = audience::mock::SeedContact::new("ada@example.com").first_name("Ada");
    /// # let server = audience::mock::MockServer::builder().topic("news", true).seed_contact(ada).start().await;
    /// # let contacts = server.client().contacts();
    /// contacts.unsubscribe("ada@example.com").topic("news").await?;
    ///
    /// let ada = contacts.change_address("ada@example.com", "ada@example.net").await?;
    ///
    /// assert_eq!((ada.email.as_str(), ada.first_name.as_deref()), ("ada@example.net", Some("Ada")));
    /// assert_eq!((ada.unsubscribed, ada.topics["news"]), (false, false));
    /// assert!(contacts.retrieve("ada@example.com").await?.unsubscribed);
    /// # Ok(()) }
    /// ```
    pub fn change_address(&self, old: impl Into<String>, new: impl Into<String>) -> ChangeAddress {
        ChangeAddress {
            contacts: self.clone(),
            old: old.into(),
            new: new.into(),
            options: CallOptions::default(),
        }
    }
}

/// Changes the address of a contact when it is awaited: see [`Contacts::change_address`].
///
/// The timeout and the retry policy apply to each request, the deadline to the whole call.
///
/// Dropping the future cancels the requests that were not sent yet. A further call does the rest.
#[derive(Clone)]
#[must_use = "a call is sent only when it is awaited"]
pub struct ChangeAddress {
    contacts: Contacts,
    old: String,
    new: String,
    options: CallOptions,
}

impl ChangeAddress {
    /// `written` becomes [`Outcome::Unknown`] with the first change.
    async fn send(mut self, written: &mut Outcome) -> Result<Contact, Error> {
        // If a later request could not be sent, nothing is sent.
        let request = Retrieve::own(&self.new).request();
        request.map_err(|error| error.about("the new address"))?;
        // All requests of the call share one deadline.
        self.options = self.contacts.client.start_deadline(self.options);
        let retrieving = self.contacts.retrieve_surely(&self.old, &self.options);
        let mut old = retrieving.await?;
        if normalized_address(&self.old) == normalized_address(&self.new) {
            return Ok(old);
        }
        old.require_topics()?;
        if old.unsubscribed && may_be_own(&old) {
            self.tell_opt_out_from_own(written).await?;
        }
        let is_new = self.create(&old).await?;
        *written = Outcome::Unknown;
        // Both contacts exist by now, or the service has not responded to the requests before.
        let opted_out = self.opt_out_both(&mut old, is_new).await;
        opted_out.map_err(|error| match error.is_not_found() {
            true => error.not_from_service(),
            false => error,
        })
    }

    async fn opt_out_both(&self, old: &mut Contact, is_new: bool) -> Result<Contact, Error> {
        let new = self.record_opt_outs(old, is_new).await?;
        // This is the last step, because a further call does the rest only while the old contact is subscribed.
        if !old.is_opted_out() {
            self.opt_out(self.contacts.unsubscribe(&self.old)).await?;
        }
        Ok(new)
    }

    /// Records the opt-outs of the old contact for the new one, and retrieves both, until the old one has no others.
    /// Returns the new contact.
    async fn record_opt_outs(&self, old: &mut Contact, is_new: bool) -> Result<Contact, Error> {
        let mut recorded = BTreeSet::new();
        let mut left = opt_outs(old);
        // Each round records at least one opt-out, so only a service that keeps adding topics reaches the bound.
        let most = old.topic_names().count() + 1;
        loop {
            // The opt-out of everything comes first: until then, broadcasts reach the new contact.
            for topic in left {
                let call = self.contacts.unsubscribe(&self.new);
                let call = match &topic {
                    // No request may fail between the creation and the opt-out.
                    None if is_new => call.reason(OptOutReason::Preferences),
                    // Another opt-out could replace the reason `complaint`, and so end the lock after a spam report.
                    None => call.reason(OptOutReason::Preferences).unless_opted_out(),
                    Some(topic) => call.topic(topic),
                };
                self.opt_out(call).await?;
                recorded.insert(topic);
            }
            let (contacts, options) = (&self.contacts, &self.options);
            let new = contacts.retrieve_own_with(&self.new, options).await?;
            *old = contacts.retrieve_own_with(&self.old, options).await?;
            old.require_topics()?;
            let is_new_subscribed = !new.is_opted_out();
            if old.unsubscribed && may_be_own(old) && !recorded.contains(&None) && is_new_subscribed
            {
                return Err(ambiguous(
                    "the old contact was opted out during the call: by another call that changes the address, or on behalf of the person; in the second case, unsubscribe the new contact, too",
                ));
            }
            left = &opt_outs(old) - &recorded;
            if left.is_empty() {
                return Ok(new);
            }
            if recorded.len() > most {
                let message = "the old contact got other opt-outs all the time, and not all of them are recorded for the new contact";
                let error = Error::new(ErrorKind::Unfinished, Outcome::Unknown, message);
                return Err(error.after(1, Outcome::Unknown).retryable());
            }
        }
    }

    /// Makes sure that a further call does not take the person's opt-out of the old contact for its own.
    async fn tell_opt_out_from_own(&self, written: &mut Outcome) -> Result<(), Error> {
        match self.find_new().await? {
            Some(new) if new.is_opted_out() => Ok(()),
            Some(_) => Err(ambiguous(
                "if the address was changed before, most likely everything is done: compare both contacts; if it was not, unsubscribe the new contact and change the address again: the old one is opted out and the new one is not; nothing was changed",
            )),
            // No earlier call has reached its last step.
            None => {
                let opt_out = self.contacts.unsubscribe(&self.old);
                self.opt_out(opt_out.reason(OptOutReason::Preferences))
                    .await?;
                *written = Outcome::Unknown;
                Ok(())
            }
        }
    }

    async fn find_new(&self) -> Result<Option<Contact>, Error> {
        let find = |address: &str| self.contacts.find(address).options(self.options.clone());
        let found = find(&self.new).await?;
        // The service may find the contact only by the spelling that it has stored.
        let stored = normalized_address(&self.new);
        match found.is_none() && stored != address_in_path(&self.new) {
            true => find(&stored).await,
            false => Ok(found),
        }
    }

    /// Creates the new contact, unless it exists. Returns whether it is certainly new. The requests after it name the
    /// address as the service has stored it, because it may find the contact by no other spelling.
    async fn create(&mut self, old: &Contact) -> Result<bool, Error> {
        let mut new = NewContact::new(&self.new).on_conflict(OnConflict::Skip);
        new.first_name.clone_from(&old.first_name);
        new.last_name.clone_from(&old.last_name);
        if !old.properties.is_empty() {
            new = new.properties(old.properties.clone());
        }
        let create = self.contacts.create(new).options(self.options.clone());
        match create.await {
            // The contact is retrieved later.
            Err(error) if error.outcome() == Outcome::Applied => Ok(false),
            created => {
                let created = created?;
                if are_spellings_of_one(&created.contact.email, &self.new) {
                    self.new.clone_from(&created.contact.email);
                }
                Ok(created.is_new())
            }
        }
    }

    async fn opt_out(&self, opt_out: Unsubscribe) -> Result<(), Error> {
        let opt_out = opt_out.options(self.options.clone());
        opt_out.apply().await.map(drop)
    }
}

/// The old contact was opted out by another call or by the person. Both contacts were retrieved to find that out.
fn ambiguous(message: &'static str) -> Error {
    Error::new(ErrorKind::Ambiguous, Outcome::Unchanged, message).after(1, Outcome::Unchanged)
}

/// Returns the opt-outs that a contact shows. `None` is the opt-out of everything, and comes first.
fn opt_outs(contact: &Contact) -> BTreeSet<Option<String>> {
    let topics = contact.topic_opt_outs();
    let topics = topics.map(|topic| Some(topic.clone()));
    let everything = contact.is_opted_out().then_some(None);
    everything.into_iter().chain(topics).collect()
}

/// Returns whether the last step of a call may have opted out this contact.
pub(crate) fn may_be_own(contact: &Contact) -> bool {
    matches!(
        contact.unsubscribe_reason,
        None | Some(UnsubscribeReason::Manual)
    )
}

call_settings!(ChangeAddress);
wait_for_call!(ChangeAddress => Result<Contact, Error>);
opaque_debug!(ChangeAddress);

impl IntoFuture for ChangeAddress {
    type Output = Result<Contact, Error>;
    type IntoFuture = ResponseFuture<Contact>;

    fn into_future(self) -> Self::IntoFuture {
        ResponseFuture::new(async {
            let mut written = Outcome::NotSent;
            self.send(&mut written).await.map_err(|error| {
                let attempts = error.attempts();
                let error = error.after(attempts, written).at("change_address");
                error.repeatable(true)
            })
        })
    }
}
