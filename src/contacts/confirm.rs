use std::collections::BTreeSet;

use tokio::task::JoinSet;

use super::{Contact, Contacts, NewContact, OnConflict};
use crate::address::are_spellings_of_one;
use crate::client::{
    CallOptions, ResponseFuture, TakesOptions, call_settings, in_current_span, opaque_debug,
    wait_for_call,
};
use crate::{Error, Missing, Outcome};

impl Contacts {
    /// Subscribes an address to these topics after a confirmation, such as the click of a double opt-in.
    ///
    /// It creates the contact if there is none, with the names and properties that are given, and ends an earlier
    /// opt-out of everything. A contact that exists keeps its names and properties. Its opt-outs are sent before
    /// opt-ins if it gets broadcasts, and any other contact gets none until the last request:
    ///
    /// | the address was | its other topics |
    /// |---|---|
    /// | no contact, or opted out of everything | are opted out |
    /// | a contact | keep their answer. A default of `false` becomes a recorded answer |
    ///
    /// A new contact is first opted out of everything, and the last request ends that. So if a call fails, the contact
    /// gets nothing until another click. Do not repeat the call without one: the person may have opted out since.
    ///
    /// Without any topic (`[""; 0]`), the contact gets broadcasts that have no topic, and its other topics are as in
    /// the table.
    ///
    /// Only between its creation and the opt-out of everything, a new contact has the topics whose default is `true`.
    /// If the program is killed then, this future is dropped, or the opt-out fails, also because the responses to the
    /// creation were lost until the deadline, it keeps them. So a web handler calls it in a task of its own, with
    /// `tokio::spawn`: the server drops the handler if the visitor leaves.
    ///
    /// This call does not see an opt-out that arrives while it runs: the last request to reach the service counts.
    #[cfg_attr(
        feature = "unsubscribe",
        doc = "[`UnsubscribeService::subscribe`](crate::unsubscribe::UnsubscribeService::subscribe)"
    )]
    #[cfg_attr(
        not(feature = "unsubscribe"),
        doc = "`UnsubscribeService::subscribe` (feature `unsubscribe`)"
    )]
    /// makes the same requests, and orders them with the opt-outs by your unsubscribe links. It has a store, so a
    /// contact does not keep these topics if the program is killed.
    ///
    /// # Errors
    ///
    /// - [`Error::is_complaint_locked`] if the contact reported spam. If it has done so before the call, and there is a
    ///   topic, nothing was changed: the outcome is [`Outcome::Refused`].
    /// - [`Error::is_not_found`] if the service has no such topic. The contact may exist by then.
    /// - `quota_exceeded` (402) if the plan's contact ceiling is reached.
    /// - [`ErrorKind::Decode`](crate::ErrorKind::Decode) if the contact is new or opted out of everything, and the
    ///   service does not show its topics.
    /// - The other errors of [`find`](Self::find), [`create`](Self::create), [`unsubscribe`](Self::unsubscribe),
    ///   [`set_topics`](Self::set_topics) and [`subscribe`](Self::subscribe). [`Error::outcome`] is about all requests
    ///   of the call: once one of them may have changed something, it is at least [`Outcome::Unknown`]. It is
    ///   [`Outcome::Applied`] only if all of them were applied.
    ///
    /// # Example: after the click
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), audience::Error> {
    /// # let server = audience::mock::MockServer::builder().topic("news", false).topic("offers", true).start().await;
    /// # let contacts = server.client().contacts();
    /// let ada = contacts.confirm_opt_in("ada@example.com", ["news"]).await?;
    ///
    /// assert!(ada.topics["news"] && !ada.topics["offers"]);
    /// # Ok(()) }
    /// ```
    pub fn confirm_opt_in(
        &self,
        contact: impl Into<NewContact>,
        topics: impl IntoIterator<Item = impl Into<String>>,
    ) -> ConfirmOptIn {
        ConfirmOptIn {
            contacts: self.clone(),
            contact: contact.into(),
            topics: topics.into_iter().map(Into::into).collect(),
            options: CallOptions::default(),
            has_written: false,
        }
    }

    /// Records a "yes" for these topics, and a "no" for the others, and ends the opt-out of everything. Returns the contact
    /// afterwards.
    #[cfg(feature = "unsubscribe")]
    pub(crate) async fn end_pause(
        &self,
        address: &str,
        topics: &BTreeSet<String>,
        others: BTreeSet<String>,
    ) -> Result<Contact, Error> {
        let mut call = self.confirm_opt_in(address, topics);
        let recorded = call.record(others, true).await;
        recorded.map_err(|error| call.outcome_of_all(error))
    }
}

/// Subscribes an address to topics when it is awaited: see [`Contacts::confirm_opt_in`].
///
/// The timeout and the retry policy apply to each request, the deadline to the whole call.
///
/// Dropping the future cancels the requests that were not sent yet.
#[derive(Clone)]
#[must_use = "a call is sent only when it is awaited"]
pub struct ConfirmOptIn {
    contacts: Contacts,
    contact: NewContact,
    topics: BTreeSet<String>,
    options: CallOptions,
    /// Whether the requests may have changed anything until now.
    has_written: bool,
}

const EMPTY_TOPIC: &str = "the name of a topic is empty; nothing was sent";

impl ConfirmOptIn {
    async fn send(&mut self) -> Result<Contact, Error> {
        let contact = match self.find().await? {
            Some(contact) => contact,
            None => self.create_paused(&mut false).await?,
        };
        self.confirm(contact).await
    }

    /// Makes the outcome of an error that of all requests of the call.
    pub(crate) fn outcome_of_all(&self, error: Error) -> Error {
        let attempts = error.attempts();
        let earlier = match self.has_written {
            true => Outcome::Unknown,
            false => Outcome::NotSent,
        };
        error.after(attempts, earlier)
    }

    /// Makes the first request of the call.
    pub(crate) async fn find(&mut self) -> Result<Option<Contact>, Error> {
        if self.topics.contains("") {
            return Err(Error::input(EMPTY_TOPIC));
        }
        // All requests of the call share one deadline.
        self.options = self.contacts.client.start_deadline(self.options.clone());
        let find = self.contacts.find(&self.contact.email);
        find.options(self.options.clone()).await
    }

    /// The service may find the contact by no other spelling than its own.
    fn use_spelling(&mut self, email: &str) {
        if are_spellings_of_one(email, &self.contact.email) {
            email.clone_into(&mut self.contact.email);
        }
    }

    /// Subscribes a contact that was found or created.
    pub(crate) async fn confirm(&mut self, contact: Contact) -> Result<Contact, Error> {
        self.use_spelling(&contact.email);
        let is_paused = contact.is_opted_out();
        if is_paused {
            // The last request would subscribe the contact to each topic that is not known here.
            contact.require_topics()?;
        }
        // A recorded "no" stays if the default of its topic changes.
        let is_out = |topic: &&String| contact.topics.get(*topic) == Some(&false);
        let others = contact.topic_names();
        let others = others.filter(|topic| is_paused || is_out(topic));
        let others = others.cloned().collect();
        self.record(others, is_paused).await.map_err(as_existing)
    }

    /// Creates a contact and opts it out of everything. So if a later request fails, the next click finds a contact
    /// that gets no topic that nobody has chosen. `has_defaults` says, also after this future was dropped, whether there
    /// may be a new contact that has the defaults of all topics.
    pub(crate) async fn create_paused(
        &mut self,
        has_defaults: &mut bool,
    ) -> Result<Contact, Error> {
        let contact = self.contact.clone().on_conflict(OnConflict::Skip);
        // Also if this future is dropped before the response.
        *has_defaults = true;
        let create = self.contacts.create(contact).options(self.options.clone());
        let created = match create.await {
            // The contact may be new.
            Err(error) if error.outcome() == Outcome::Applied => None,
            Err(error) => {
                *has_defaults = error.outcome().may_be_applied();
                self.has_written = *has_defaults;
                if *has_defaults {
                    // Nobody has chosen the topics that the contact has then. If the deadline is over, this fails.
                    *has_defaults = self.opt_out().await.is_err();
                }
                return Err(error);
            }
            Ok(created) => Some(created),
        };
        self.has_written = true;
        if let Some(created) = &created {
            self.use_spelling(&created.contact.email);
        }
        // If a response was lost, an earlier attempt may have created the contact.
        if created.is_some_and(|created| !created.is_new() && created.attempts() == 1) {
            *has_defaults = false;
            return self.retrieve().await.map_err(as_existing);
        }
        let opted_out = self.opt_out().await;
        opted_out.map_err(|error| as_existing(error).before_others())?;
        *has_defaults = false;
        // The response to the opt-out does not have to show every topic (section 4.5).
        let mut contact = self.retrieve().await.map_err(as_existing)?;
        // Also if the service has retrieved an older state.
        contact.unsubscribed = true;
        Ok(contact)
    }

    /// Opts the contact out of everything.
    async fn opt_out(&self) -> Result<Contact, Error> {
        let opt_out = self.contacts.unsubscribe(&self.contact.email);
        opt_out.options(self.options.clone()).await
    }

    /// Records a "no" for the others, and then a "yes" for the topics.
    async fn record(
        &mut self,
        mut others: BTreeSet<String>,
        ends_pause: bool,
    ) -> Result<Contact, Error> {
        let topics = self.topics.clone();
        others.retain(|topic| !topics.contains(topic));
        if ends_pause {
            // No topic has an effect before the last request. So the opt-ins, which the service can refuse, come first.
            self.set_simultaneously(topics, true).await?;
            self.set_simultaneously(others, false).await?;
            let subscribe = self.contacts.subscribe(&self.contact.email);
            let contact = subscribe.options(self.options.clone()).await?;
            // It may be a short form. If this fails, the opt-in is recorded all the same.
            return match contact.shows_topics() {
                true => Ok(contact),
                false => Ok(self.retrieve().await.unwrap_or(contact)),
            };
        }
        self.set_simultaneously(others, false).await?;
        let opt_ins = topics.into_iter().map(|topic| (topic, true));
        let set_topics = self.contacts.set_topics(&self.contact.email, opt_ins);
        match set_topics.options(self.options.clone()).await {
            Ok(saved) => Ok(saved.contact),
            Err(error) => {
                self.has_written |= error.form_outcome().may_be_applied();
                Err(error.into_error())
            }
        }
    }

    async fn retrieve(&self) -> Result<Contact, Error> {
        let (contacts, address) = (&self.contacts, &self.contact.email);
        contacts.retrieve_own_with(address, &self.options).await
    }

    async fn set_simultaneously(
        &mut self,
        topics: BTreeSet<String>,
        answer: bool,
    ) -> Result<(), Error> {
        let calls = topics.into_iter().map(|topic| {
            let set_topic = self.contacts.set_topic(&self.contact.email, topic, answer);
            in_current_span(set_topic.options(self.options.clone()).into_future())
        });
        let calls: JoinSet<_> = calls.collect();
        let results = calls.join_all().await;
        self.has_written |= results.iter().any(|set| match set {
            Ok(_) => true,
            Err(error) => error.outcome().may_be_applied(),
        });
        let mut results = results.into_iter();
        results.try_for_each(|set| set.map(drop).map_err(Error::before_others))
    }
}

/// Returns the error of a request for a contact that exists: a 404 that says otherwise does not come from the service.
fn as_existing(error: Error) -> Error {
    match error.missing() {
        Some(Missing::Contact) => error.not_from_service(),
        _ => error,
    }
}

call_settings!(ConfirmOptIn);
wait_for_call!(ConfirmOptIn => Result<Contact, Error>);
opaque_debug!(ConfirmOptIn);

impl IntoFuture for ConfirmOptIn {
    type Output = Result<Contact, Error>;
    type IntoFuture = ResponseFuture<Contact>;

    fn into_future(self) -> Self::IntoFuture {
        ResponseFuture::new(async {
            let mut call = self;
            let sent = call.send().await;
            sent.map_err(|error| call.outcome_of_all(error).at("confirm_opt_in"))
        })
    }
}
