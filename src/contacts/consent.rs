use bytes::Bytes;
use http::{Method, StatusCode};
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::model::address_segment;
use super::retrieve::Retrieve;
use super::{Contact, Contacts, OptOutReason, normalized_address};
use crate::address::are_different;
use crate::client::{
    CallOptions, Endpoint, Object, Operation, Request, Response, ResponseFuture, RetrySafety,
    Success, decode_item, endpoint_builder, not_sent, with_escapes,
};
use crate::error::{Target, without_mark};
use crate::{Client, Error, ErrorCode, ErrorKind, Missing, Outcome};

impl Contacts {
    /// Records an opt-in: clears the global opt-out or, with [`topic`](Subscribe::topic), opts the contact into one
    /// topic and leaves everything else unchanged (interface sections [3.2](crate::interface#3.2) and
    /// [4.6](crate::interface#4.6)).
    ///
    /// The call is retried only if it was certainly not applied. A late retry could undo an opt-out
    /// that the recipient made in the meantime.
    ///
    /// Send it for a person who asked for it. For somebody who may not be a contact yet, call
    /// [`confirm_opt_in`](Self::confirm_opt_in). A `false` in [`Contact::topics`] can be that person's "no", or the
    /// default of a topic that the person never answered: the service does not tell them apart.
    ///
    /// The interface document does not show the form of the response. [`Contact::shows_topics`] returns whether it has
    /// the topics. If a 2xx response has no contact, or one with another address, the client retrieves the contact within
    /// the same deadline. Otherwise the contact in the response is returned as it is.
    ///
    /// # Errors
    ///
    /// - [`Outcome::Applied`] if the change was made, but the response has no contact, and
    ///   retrieving it failed too.
    /// - [`Outcome::Unknown`] if a 2xx response has no contact, and the one that is retrieved is
    ///   still opted out or cannot be read, or if it [reports an error](crate::Outcome#a-2xx-response-that-cannot-be-read).
    /// - `failed_precondition` (422) if the contact reported spam: [`Error::is_complaint_locked`].
    /// - `not_found` (404) if the address is not one of your contacts, or if the topic does not exist.
    /// - [`ErrorKind::Input`] if the address is empty, `.` or `..`, or if the topic is empty.
    ///
    /// # Example: a contact who reported spam cannot be subscribed
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), audience::Error> {
    /// # let server = audience::mock::MockServer::start().await;
    /// # let contacts = server.client().contacts();
    /// # contacts.create(audience::contacts::NewContact::new("ada@example.com")).await?;
    /// server.report_spam("ada@example.com");
    ///
    /// let error = contacts.subscribe("ada@example.com").await.unwrap_err();
    ///
    /// assert!(error.is_complaint_locked());
    /// # Ok(()) }
    /// ```
    pub fn subscribe(&self, address: impl Into<String>) -> Subscribe {
        Subscribe::new(&self.client, Consent::new(Direction::In, address))
    }

    /// Records an opt-out: of all broadcasts or, with [`topic`](Unsubscribe::topic), only of that topic (interface
    /// sections [3.2](crate::interface#3.2) and [4.5](crate::interface#4.5)).
    ///
    /// An opt-out concerns broadcasts only. Transactional mail, such as a receipt, is still sent to the contact
    /// ([section 1](crate::interface#1)).
    ///
    /// A second global opt-out replaces the reason: without [`reason`](Unsubscribe::reason), the person's own
    /// `preferences` becomes `manual` (section 3.2). Whether it also replaces `complaint`, and so ends the lock after a
    /// spam report, the document leaves open. So use [`unless_complaint_locked`](Unsubscribe::unless_complaint_locked) if a
    /// person asks for it now, and [`unless_opted_out`](Unsubscribe::unless_opted_out) if the wish may be an old one.
    ///
    /// The interface document does not show the form of the response. [`Contact::shows_topics`] returns whether it has
    /// the topics.
    ///
    /// # Errors
    ///
    /// - [`Outcome::Applied`] if the change was made, but the contact in the response cannot be
    ///   read.
    /// - [`Outcome::Unknown`] if a 2xx response has no contact, and the contact [is still
    ///   subscribed](#a-2xx-response-without-a-contact) or cannot be retrieved, or if the response [reports an
    ///   error](crate::Outcome#a-2xx-response-that-cannot-be-read).
    /// - `not_found` (404) if the address is not one of your contacts, or if the topic does not exist:
    ///   [`Error::missing`] says which.
    /// - [`ErrorKind::Input`] if the address is empty, `.` or `..`, or if the topic is empty.
    /// - The errors of [`list`](Self::list), after a 404 that may have another sender.
    ///
    /// # A 404
    ///
    /// The call [makes sure](crate::contacts#a-404-is-no-proof) of each 404 that does not name the topic. If no list
    /// has the contact, nobody sends broadcasts to the address. If a list has it, and the call has a topic and the 404
    /// the code `not_found`, the topic is missing.
    ///
    /// # A 2xx response without a contact
    ///
    /// A gateway may have sent it. So the call retrieves the contact within the same deadline, and fails if the contact
    /// is still subscribed or cannot be retrieved. It does so, too, if the contact in the response has another address,
    /// or is still subscribed. If no list has the contact, [`Error::missing`] returns [`Missing::Contact`], as after a
    /// 404. It is safe to repeat the call, whatever its error says. If the service sends no contact,
    /// for example because it responds with 204, each opt-out takes two requests.
    ///
    /// If the contact in the response and the one that is retrieved both have `null` as the answer for the topic, the
    /// service has accepted the opt-out, and no further call would show more. So the call succeeds, and with the feature
    /// `tracing`, it logs a warning.
    ///
    /// # Example: from a preference page
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), audience::Error> {
    /// # let server = audience::mock::MockServer::start().await;
    /// # let contacts = server.client().contacts();
    /// # contacts.create(audience::contacts::NewContact::new("ada@example.com")).await?;
    /// use audience::contacts::OptOutReason;
    ///
    /// let contact = contacts.unsubscribe("ada@example.com").reason(OptOutReason::Preferences).await?;
    ///
    /// assert!(contact.unsubscribed);
    /// # Ok(()) }
    /// ```
    pub fn unsubscribe(&self, address: impl Into<String>) -> Unsubscribe {
        Unsubscribe::new(&self.client, Consent::new(Direction::Out, address))
    }

    /// Records a contact's answer for one topic: `true` subscribes the contact to the topic, `false` unsubscribes it
    /// from the topic ([interface section 3.2](crate::interface#3.2)). The global opt-out and all other topics stay
    /// unchanged.
    ///
    /// It sends [`subscribe`](Self::subscribe) or [`unsubscribe`](Self::unsubscribe) with the topic, and follows their
    /// rules for retries: an opt-in is retried only if it was certainly not applied. For a whole form of topics, use
    /// [`set_topics`](Self::set_topics).
    ///
    /// # Errors
    ///
    /// - [`Outcome::Applied`] if the answer was recorded, but the response has no contact, and
    ///   retrieving it failed too. If the answer is `false`, that is `Unknown`: see [`unsubscribe`](Self::unsubscribe).
    /// - [`Outcome::Unknown`] if a 2xx response has no contact, and the one that is retrieved has
    ///   the other answer or cannot be read, or if it [reports an error](crate::Outcome#a-2xx-response-that-cannot-be-read).
    /// - `failed_precondition` (422) if the answer is `true` and the contact reported spam:
    ///   [`Error::is_complaint_locked`].
    /// - `not_found` (404) if the address is not one of your contacts, or if the topic does not exist. If the
    ///   answer is `false`, the call makes sure of a 404, as [`unsubscribe`](Self::unsubscribe) does.
    /// - [`ErrorKind::Input`] if the address is empty, `.` or `..`, or if the topic is empty.
    ///
    /// # Example: a checkbox
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), audience::Error> {
    /// # let server = audience::mock::MockServer::start().await;
    /// # server.topic("news", true);
    /// # let contacts = server.client().contacts();
    /// # contacts.create(audience::contacts::NewContact::new("ada@example.com")).await?;
    /// let is_checked = false;
    /// let contact = contacts.set_topic("ada@example.com", "news", is_checked).await?;
    ///
    /// assert_eq!(contact.topics.get("news"), Some(&false));
    /// # Ok(()) }
    /// ```
    pub fn set_topic(
        &self,
        address: impl Into<String>,
        topic: impl Into<String>,
        answer: bool,
    ) -> SetTopic {
        let direction = if answer {
            Direction::In
        } else {
            Direction::Out
        };
        let consent = Consent::new(direction, address).topic(topic);
        SetTopic::new(&self.client, consent)
    }
}

endpoint_builder! {
    /// Records an opt-in when it is awaited: see [`Contacts::subscribe`].
    pub struct Subscribe(Consent) -> Contact, idempotent;
}

impl Subscribe {
    /// Opts into this topic, and leaves the global opt-out unchanged. Default: no topic, which clears
    /// the global opt-out.
    ///
    /// It takes no `Option`. A call without a topic is another request: it would clear a global opt-out that the
    /// recipient meant to keep.
    ///
    /// # Example: one topic
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), audience::Error> {
    /// # let server = audience::mock::MockServer::start().await;
    /// # server.topic("news", false);
    /// # let contacts = server.client().contacts();
    /// # contacts.create(audience::contacts::NewContact::new("ada@example.com")).await?;
    /// let contact = contacts.subscribe("ada@example.com").topic("news").await?;
    ///
    /// assert_eq!(contact.topics.get("news"), Some(&true));
    /// # Ok(()) }
    /// ```
    ///
    /// # Example: a topic that may be missing does not compile
    ///
    /// ```compile_fail,E0277
    /// # async fn example(contacts: audience::contacts::Contacts, topic: Option<String>) {
    /// contacts.subscribe("ada@example.com").topic(topic).await;
    /// # }
    /// ```
    pub fn topic(mut self, name: impl Into<String>) -> Self {
        self.endpoint = self.endpoint.topic(name);
        self
    }
}

endpoint_builder! {
    /// Records an opt-out when it is awaited: see [`Contacts::unsubscribe`].
    ///
    /// # An opt-out under a condition
    ///
    /// [`unless_opted_out`](Self::unless_opted_out) and [`unless_complaint_locked`](Self::unless_complaint_locked)
    /// retrieve the contact first. If both are called, the last one counts. The result is the contact, whether the
    /// opt-out was sent or not. All requests share the deadline.
    ///
    /// If retrieving the contact fails, the call fails, and the opt-out was not sent. The call [makes
    /// sure](crate::contacts#a-404-is-no-proof) of a 404. If the contact is retrieved, but cannot be read
    /// ([`Error::is_malformed_contact`]), the opt-out is sent, unless the response still shows a spam report: a lost
    /// opt-out would be worse than a lost reason.
    ///
    /// With [`topic`](Self::topic), the opt-out is sent in any case: it has no reason, and a `false` of the contact may
    /// be the topic's default, which can change.
    pub struct Unsubscribe(Consent) -> Contact;
}

impl Unsubscribe {
    /// Opts out of this topic only. Default: no topic, which opts out of all broadcasts.
    ///
    /// It takes no `Option`. A call without a topic is another request, which opts out of everything.
    ///
    /// # Example: one topic
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), audience::Error> {
    /// # let server = audience::mock::MockServer::start().await;
    /// # server.topic("news", true);
    /// # let contacts = server.client().contacts();
    /// # contacts.create(audience::contacts::NewContact::new("ada@example.com")).await?;
    /// let contact = contacts.unsubscribe("ada@example.com").topic("news").await?;
    ///
    /// assert_eq!(contact.topics.get("news"), Some(&false));
    /// assert!(!contact.unsubscribed);
    /// # Ok(()) }
    /// ```
    pub fn topic(mut self, name: impl Into<String>) -> Self {
        self.endpoint = self.endpoint.topic(name);
        self
    }

    /// Sets the reason for the opt-out. Default: [`OptOutReason::Manual`], which the service records if nothing is
    /// sent.
    ///
    /// # Example: the recipient chose it
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), audience::Error> {
    /// # let server = audience::mock::MockServer::builder().seed_contact("ada@example.com").start().await;
    /// # let contacts = server.client().contacts();
    /// use audience::contacts::{OptOutReason, UnsubscribeReason};
    ///
    /// let ada = contacts.unsubscribe("ada@example.com").reason(OptOutReason::Preferences).await?;
    ///
    /// assert_eq!(ada.unsubscribe_reason, Some(UnsubscribeReason::Preferences));
    /// # Ok(()) }
    /// ```
    pub fn reason(mut self, reason: OptOutReason) -> Self {
        self.endpoint.body.reason = Some(reason);
        self
    }

    /// Retrieves the contact first, and sends nothing if it is opted out already or has reported spam, so that its
    /// reason stays, also a `manual` although [`reason`](Self::reason) is `Preferences`. Default: sends the opt-out,
    /// which replaces the reason. If retrieving fails, or with a topic, see
    /// [above](Unsubscribe#an-opt-out-under-a-condition).
    ///
    /// If the contact is opted out when it is retrieved, and another program opts it in directly afterwards, it stays
    /// subscribed, because this call sends nothing. So if a person asks for the opt-out now, use
    /// [`unless_complaint_locked`](Self::unless_complaint_locked).
    ///
    /// # Example: the lock after a spam report stays
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), audience::Error> {
    /// # let server = audience::mock::MockServer::builder().seed_contact("ada@example.com").start().await;
    /// # let contacts = server.client().contacts();
    /// use audience::contacts::UnsubscribeReason;
    ///
    /// server.report_spam("ada@example.com");
    /// let ada = contacts.unsubscribe("ada@example.com").unless_opted_out().await?;
    ///
    /// assert_eq!(ada.unsubscribe_reason, Some(UnsubscribeReason::Complaint));
    /// # Ok(()) }
    /// ```
    pub fn unless_opted_out(mut self) -> Self {
        self.endpoint.leaves = Some(Contact::is_opted_out);
        self
    }

    /// Retrieves the contact first, and sends nothing if it has reported spam, so that the lock after the spam report
    /// stays. Any other contact gets the opt-out, which replaces its reason: with [`reason`](Self::reason), a `manual`
    /// becomes `preferences`. Default: sends the opt-out to each contact. If retrieving fails, or with a topic, see
    /// [above](Unsubscribe#an-opt-out-under-a-condition).
    ///
    /// Another program may write between the two requests. If it opts the contact in, this call opts the contact out again.
    /// If a spam report arrives between them, the opt-out may replace its reason, as an opt-out without this setting may.
    ///
    /// # Example: a person asks to be unsubscribed
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), audience::Error> {
    /// # let server = audience::mock::MockServer::builder().seed_contact("ada@example.com").start().await;
    /// # let contacts = server.client().contacts();
    /// use audience::contacts::{OptOutReason, UnsubscribeReason};
    ///
    /// contacts.unsubscribe("ada@example.com").await?; // the sender decided: `manual`
    ///
    /// let asked = || contacts.unsubscribe("ada@example.com").reason(OptOutReason::Preferences).unless_complaint_locked();
    /// assert_eq!(asked().await?.unsubscribe_reason, Some(UnsubscribeReason::Preferences));
    ///
    /// server.report_spam("ada@example.com");
    /// assert_eq!(asked().await?.unsubscribe_reason, Some(UnsubscribeReason::Complaint));
    /// # Ok(()) }
    /// ```
    pub fn unless_complaint_locked(mut self) -> Self {
        self.endpoint.leaves = Some(Contact::has_reported_spam);
        self
    }
}

endpoint_builder! {
    /// Records the answer for one topic when it is awaited: see [`Contacts::set_topic`].
    pub struct SetTopic(Consent) -> Contact, idempotent;
}

/// A change of a contact's consent: all broadcasts, or one topic.
#[derive(Clone)]
struct Consent {
    address: String,
    direction: Direction,
    body: Body,
    /// Says of a retrieved contact whether it is left as it is, so that nothing is sent.
    leaves: Option<fn(&Contact) -> bool>,
}

#[derive(Clone, Copy)]
enum Direction {
    In,
    Out,
}

#[derive(Clone, Default, PartialEq, Serialize)]
struct Body {
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<OptOutReason>,
    #[serde(skip_serializing_if = "Option::is_none")]
    topic: Option<String>,
}

impl Consent {
    fn new(direction: Direction, address: impl Into<String>) -> Self {
        Self {
            address: address.into(),
            direction,
            body: Body::default(),
            leaves: None,
        }
    }

    fn topic(mut self, name: impl Into<String>) -> Self {
        self.body.topic = Some(name.into());
        self
    }
}

impl Endpoint for Consent {
    type Output = Contact;

    fn operation(&self) -> Operation {
        match self.direction {
            Direction::In => Operation {
                name: "subscribe",
                template: "/contacts/{address}/subscribe",
            },
            Direction::Out => Operation {
                name: "unsubscribe",
                template: "/contacts/{address}/unsubscribe",
            },
        }
    }

    fn request(&self) -> Result<Request, Error> {
        let retry_safety = match self.direction {
            // A late retry could undo an opt-out that the recipient made in the meantime.
            Direction::In => RetrySafety::OnlyIfNotApplied,
            // An opt-out that arrives twice, or late, is still the wish of the recipient.
            Direction::Out => RetrySafety::Safe,
        };
        if self.body.topic.as_deref() == Some("") {
            return Err(Error::input("the name of the topic is empty"));
        }
        let address = address_segment(&self.address)?;
        let segments = ["contacts", &address, self.operation().name];
        let target = match &self.body.topic {
            None => Target::Contact,
            Some(topic) => Target::Answer {
                address: address.clone(),
                topic: topic.clone(),
            },
        };
        let request = Request::new(Method::POST, segments, retry_safety)?.about(target);
        // Section 3.2 shows the global opt-in and opt-out without a body.
        if self.body == Body::default() {
            return Ok(request);
        }
        request.json(&self.body)
    }

    fn decode(&self, success: Success) -> Result<Contact, Error> {
        if let Some(contact) = success.valid_object() {
            return Ok(contact);
        }
        // A member of the contact may be called `error`. In a wrapper, it belongs to the response.
        success.refuse_error()?;
        let wrapped = success.valid_object().and_then(Wrapped::contact);
        wrapped.map_or_else(|| success.object(), Ok)
    }

    fn steps(
        &self,
        client: &Client,
        options: &CallOptions,
    ) -> Option<ResponseFuture<Response<Contact>>> {
        let (consent, client, options) = (self.clone(), client.clone(), options.clone());
        Some(ResponseFuture::new(async move {
            let (response, _) = consent.change(&client, options).await?;
            Ok(response)
        }))
    }
}

/// What a contact that is retrieved after the change has to show.
struct Proof {
    is_needed: bool,
    /// The caller can do without the contact, and takes the change for made if there is none.
    may_be_gone: bool,
    /// The response to the change has the contact, with `null` as the answer. So the service has accepted the change, and
    /// no proof is needed if it never shows the answer.
    may_be_silent: bool,
}

/// Returns `None` if the change was made but its response has no contact.
fn contact_of_write<T>(decoded: Result<T, Error>) -> Result<Option<T>, Error> {
    match decoded {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.outcome() == Outcome::Applied => Ok(None),
        Err(error) => Err(error),
    }
}

/// Emits an event for a change that counts as made although nothing shows it.
fn report_silence(operation: Operation) {
    #[cfg(feature = "tracing")]
    tracing::warn!(
        operation = operation.name,
        "the service accepted the change, but does not show whether it was made"
    );
    #[cfg(not(feature = "tracing"))]
    let _ = operation;
}

impl Consent {
    /// Returns the future of the change, for a caller that can do without the contact: `None` if it is gone or cannot be
    /// read. A 2xx response without a contact is no proof that the change was made, because a gateway may have sent it.
    /// Then the retrieved contact decides.
    fn apply(self, client: Client, options: CallOptions) -> ResponseFuture<Option<Contact>> {
        ResponseFuture::new(async move {
            let options = client.start_deadline(options);
            if let Some(found) = self.looked(&client, &options).await? {
                return Ok(Some(found.into_inner()));
            }
            let written = self.write(&client, true, &options);
            contact_of_write(written.await.map(Response::into_inner))
        })
    }

    /// Makes the change, unless the contact is left as it is. Also returns whether the change was sent.
    async fn change(
        &self,
        client: &Client,
        options: CallOptions,
    ) -> Result<(Response<Contact>, bool), Error> {
        let options = client.start_deadline(options);
        match self.looked(client, &options).await? {
            Some(left) => Ok((left, false)),
            None => Ok((self.write(client, false, &options).await?, true)),
        }
    }

    /// Looks whether the contact is left as it is. Then nothing has to be sent.
    async fn looked(
        &self,
        client: &Client,
        options: &CallOptions,
    ) -> Result<Option<Response<Contact>>, Error> {
        // An opt-out of a topic has no reason that could be lost, and the contact also shows the topic's default.
        let Some(is_left) = self.leaves.filter(|_| self.body.topic.is_none()) else {
            return Ok(None);
        };
        let contacts = client.contacts();
        match contacts.response_surely(&self.address, options).await {
            Ok(response) => Ok(is_left(response.value()).then_some(response)),
            // Nothing is known of its reason. A lost opt-out would be worse than a lost reason.
            Err(error)
                if error.is_malformed_contact() && !shows_spam_report(&error, &self.address) =>
            {
                Ok(None)
            }
            Err(error) => Err(error.at(self.operation().name)),
        }
    }

    /// Sends the change and, if the contact in the response is no proof, retrieves the contact. `is_repeated` says that
    /// the caller repeats a change that failed.
    async fn write(
        &self,
        client: &Client,
        is_repeated: bool,
        options: &CallOptions,
    ) -> Result<Response<Contact>, Error> {
        let operation = self.operation();
        let request = self.request().map_err(|error| not_sent(operation, error))?;
        let received = match client.receive(operation, &request, options).await {
            Ok(received) => received,
            // In boxes, because these are rare, and the future of every call would grow by them.
            Err(refusal) => {
                return Err(Box::pin(self.checked(client, refusal, options)).await);
            }
        };
        let mut body = Bytes::new();
        let written = received.decode(|success| {
            body.clone_from(success.response.body());
            Response::read(success, |success| contact_of_write(self.decode(success)))
        })?;
        let (contact, written) = written.split();
        let contact = match contact {
            Some(contact) if self.is_proof(&contact) => contact,
            unproved => {
                // A contact that contradicts the change makes it doubtful, and a change that may be repeated is better
                // repeated than lost.
                let proof = Proof {
                    is_needed: is_repeated || self.is_opt_out() || unproved.is_some(),
                    may_be_gone: is_repeated,
                    may_be_silent: unproved.is_some_and(|contact| self.is_silent(&contact)),
                };
                let retrieved = Box::pin(self.retrieve_written(client, proof, body, options));
                retrieved.await.map_err(|error| {
                    let (attempts, outcome) = (error.attempts(), error.outcome());
                    error
                        .after(written.attempts() + attempts, outcome)
                        .at(operation.name)
                })?
            }
        };
        Ok(written.with(contact))
    }

    /// Makes sure that a refusal means what it says, with further requests if it takes some. Returns the error of the
    /// call.
    async fn checked(&self, client: &Client, refusal: Error, options: &CallOptions) -> Error {
        let error = match self.is_doubtful(&refusal) {
            true => {
                let contacts = client.contacts();
                let is_absent = contacts.is_absent(&self.address, options.clone());
                with_proof(refusal, is_absent.await, self.body.topic.is_some())
            }
            false => refusal,
        };
        error.at(self.operation().name)
    }

    /// Retrieves the contact of a change whose 2xx response has this body and no contact, or one that is no proof. If that
    /// fails, the change counts as made, unless this needs a proof. If there certainly is no such contact, the change was
    /// not made, and the error is the one of a 404.
    async fn retrieve_written(
        &self,
        client: &Client,
        proof: Proof,
        body: Bytes,
        options: &CallOptions,
    ) -> Result<Contact, Error> {
        let retrieve = Retrieve::own(&self.address);
        let operation = retrieve.operation();
        let retrieved = async {
            let request = retrieve
                .request()
                .map_err(|error| not_sent(operation, error))?;
            let received = client.receive(operation, &request, options).await?;
            received.decode(|success| Response::read(success, |success| self.decode(success)))
        };
        let error = match retrieved.await {
            // Otherwise an opt-out would be repeated without end.
            Ok(retrieved) if proof.may_be_silent && self.is_silent(retrieved.value()) => {
                report_silence(self.operation());
                return Ok(retrieved.into_inner());
            }
            Ok(retrieved) if !self.is_applied_to(retrieved.value()) => {
                let error = Error::not_applied(self.is_opt_out()).reading(body);
                return Err(error.after(retrieved.attempts(), Outcome::Unknown));
            }
            Ok(retrieved) => return Ok(retrieved.into_inner()),
            Err(error) => error,
        };
        let attempts = error.attempts();
        let failed = |error: Error| {
            let error = error.with_outcome(Outcome::Unknown);
            error.about("the response has no contact with the change, and retrieving it failed")
        };
        let is_unreadable = error.kind() == ErrorKind::Decode;
        if proof.is_needed {
            // Neither response may come from the service.
            if error.status() == Some(StatusCode::NOT_FOUND) {
                let contacts = client.contacts();
                match contacts.is_absent(&self.address, options.clone()).await {
                    Ok(true) if proof.may_be_gone => {}
                    Ok(true) => {
                        let error = error.about_missing(Missing::Contact);
                        return Err(error.with_outcome(Outcome::Refused));
                    }
                    Ok(false) => return Err(failed(error.not_from_service())),
                    Err(error) => return Err(failed(error.of_proof(attempts, Outcome::Unknown))),
                }
            } else if !is_unreadable || error.body().and_then(invalid_contact).is_none() {
                return Err(failed(error));
            }
        } else if is_unreadable
            && error
                .body()
                .is_some_and(|body| invalid_contact(body).is_none())
        {
            // Whoever sends this may have sent the other 2xx response, too.
            return Err(failed(error));
        }
        let error = Error::not_read_back(invalid_contact(&body), body, error);
        Err(error.after(attempts, Outcome::Applied))
    }

    fn is_opt_out(&self) -> bool {
        matches!(self.direction, Direction::Out)
    }

    /// Returns whether a contact that was retrieved after the change shows that the change was made.
    fn is_applied_to(&self, contact: &Contact) -> bool {
        let no = self.is_opt_out();
        let has_answer = match &self.body.topic {
            None => contact.unsubscribed == no,
            Some(topic) => match contact.topics.get(topic) {
                Some(answer) => *answer != no,
                // A contact does not have to show every topic. But `null` says nothing.
                None => !contact.has_topic(topic),
            },
        };
        has_answer && !are_different(&contact.email, &self.address)
    }

    /// Returns whether the contact in the response to the change shows that the change was made to it.
    fn is_proof(&self, contact: &Contact) -> bool {
        match self.direction {
            // The caller sees what the contact shows.
            Direction::In => !are_different(&contact.email, &self.address),
            // An opt-out that gets lost is mail that somebody does not want.
            Direction::Out => self.is_of(contact) && self.is_applied_to(contact),
        }
    }

    fn is_of(&self, contact: &Contact) -> bool {
        normalized_address(&contact.email) == normalized_address(&self.address)
    }

    /// Returns whether the contact is the right one, but has `null` as the answer for the topic.
    fn is_silent(&self, contact: &Contact) -> bool {
        let is_null = |topic: &String| contact.null_topics().any(|name| name == topic);
        self.is_of(contact) && self.body.topic.as_ref().is_some_and(is_null)
    }

    /// Returns whether a refusal of an opt-out may say that there is no such contact. That needs a proof: a gateway can
    /// say so, too, and then the contact still gets broadcasts.
    fn is_doubtful(&self, refusal: &Error) -> bool {
        // Only the service names the topic, and that claims nothing about the contact.
        self.is_opt_out() && may_be_missing(refusal) && refusal.missing() != Some(Missing::Topic)
    }
}

/// Returns whether a refusal may say that something is missing, whoever has sent it.
pub(crate) fn may_be_missing(refusal: &Error) -> bool {
    refusal.status() == Some(StatusCode::NOT_FOUND) || refusal.is_not_found()
}

/// Says what a refusal means, now that it is known whether the contact exists.
pub(super) fn with_proof(refusal: Error, is_absent: Result<bool, Error>, has_topic: bool) -> Error {
    match is_absent {
        Ok(true) => refusal.about_missing(Missing::Contact),
        Ok(false) if has_topic && refusal.code() == Some(&ErrorCode::NotFound) => {
            refusal.about_missing(Missing::Topic)
        }
        Ok(false) => refusal.not_from_service(),
        Err(error) => error.of_proof(refusal.attempts(), refusal.outcome()),
    }
}

/// Returns whether a contact that cannot be read as one has certainly reported spam.
pub(crate) fn shows_spam_report(error: &Error, address: &str) -> bool {
    #[derive(Deserialize)]
    struct Shown {
        email: String,
        unsubscribe_reason: String,
    }

    if !error.is_malformed_contact() {
        return false;
    }
    let body = error.body().map(without_mark);
    let shown = body.and_then(|body| serde_json::from_slice::<Shown>(body).ok());
    shown.is_some_and(|shown| {
        !are_different(&shown.email, address) && shown.unsubscribe_reason == "complaint"
    })
}

/// A response that has the contact in a member.
#[derive(Deserialize)]
struct Wrapped<'a> {
    #[serde(borrow)]
    contact: Option<&'a RawValue>,
    #[serde(borrow)]
    data: Option<&'a RawValue>,
}

impl Wrapped<'_> {
    fn contact(self) -> Option<Contact> {
        let members = [self.contact, self.data].into_iter().flatten();
        let mut contacts = members.filter_map(|member| serde_json::from_str(member.get()).ok());
        contacts.next().map(|Object(contact)| contact)
    }
}

/// Says what is wrong with the contact in a response body, if the body has one.
fn invalid_contact(body: &[u8]) -> Option<String> {
    #[derive(Deserialize)]
    struct Named {
        #[serde(rename = "id")]
        _id: IgnoredAny,
        #[serde(rename = "email")]
        _email: IgnoredAny,
    }

    let body = without_mark(body);
    let escaped = with_escapes(body);
    let body: &RawValue = serde_json::from_slice(escaped.as_deref().unwrap_or(body)).ok()?;
    let Object(Wrapped { contact, data }) = serde_json::from_str(body.get()).ok()?;
    let places = [(Some(body), "$"), (contact, "$.contact"), (data, "$.data")];
    places.into_iter().find_map(|(item, place)| {
        let item = item?;
        let _is_contact: Object<Named> = serde_json::from_str(item.get()).ok()?;
        decode_item::<Contact>(item, place).err()
    })
}

impl SetTopic {
    /// Records the answer, for a caller that can do without the contact: `None` if it is gone or cannot be read.
    pub(super) fn apply(self) -> ResponseFuture<Option<Contact>> {
        self.endpoint.apply(self.client, self.options)
    }
}

impl Unsubscribe {
    /// Records the opt-out, for a caller that can do without the contact: `None` if it is gone or cannot be read.
    pub(crate) fn apply(self) -> ResponseFuture<Option<Contact>> {
        self.endpoint.apply(self.client, self.options)
    }

    /// Records the opt-out. Also returns whether it was sent.
    #[cfg(feature = "cli")]
    pub(crate) async fn record(self) -> Result<(Contact, bool), Error> {
        let change = self.endpoint.change(&self.client, self.options);
        let (response, is_sent) = change.await?;
        Ok((response.into_inner(), is_sent))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contacts() -> Contacts {
        Client::new("http://localhost", "key").unwrap().contacts()
    }

    fn subscribe() -> Subscribe {
        contacts().subscribe("ada@x.io")
    }

    fn unsubscribe() -> Unsubscribe {
        contacts().unsubscribe("ada@x.io")
    }

    fn opt_in(subscribe: &Subscribe) -> Request {
        subscribe.endpoint.request().unwrap()
    }

    fn opt_out(unsubscribe: &Unsubscribe) -> Request {
        unsubscribe.endpoint.request().unwrap()
    }

    #[test]
    fn a_global_opt_in_has_no_body() {
        let request = opt_in(&subscribe());

        assert_eq!(
            (request.path.as_str(), request.body),
            ("/contacts/ada%40x.io/subscribe", None)
        );
    }

    #[test]
    fn the_topic_of_an_opt_in_is_a_member_of_the_body() {
        let request = opt_in(&subscribe().topic("news"));

        assert_eq!(request.body.unwrap(), r#"{"topic":"news"}"#);
    }

    #[test]
    fn an_opt_in_is_retried_only_if_it_was_not_applied() {
        for subscribe in [subscribe(), subscribe().topic("news")] {
            assert_eq!(
                opt_in(&subscribe).retry_safety,
                RetrySafety::OnlyIfNotApplied
            );
        }
    }

    #[test]
    fn a_global_opt_out_without_a_reason_has_no_body() {
        let request = opt_out(&unsubscribe());

        assert_eq!(
            (request.path.as_str(), request.body),
            ("/contacts/ada%40x.io/unsubscribe", None)
        );
    }

    #[test]
    fn topic_and_reason_are_members_of_the_body() {
        let with_reason = opt_out(&unsubscribe().reason(OptOutReason::Preferences));
        let with_topic = opt_out(&unsubscribe().topic("news"));

        assert_eq!(with_reason.body.unwrap(), r#"{"reason":"preferences"}"#);
        assert_eq!(with_topic.body.unwrap(), r#"{"topic":"news"}"#);
    }

    #[test]
    fn an_empty_topic_is_not_sent() {
        let contacts = contacts();
        for call in [
            subscribe().topic("").endpoint,
            unsubscribe().topic("").endpoint,
            contacts.set_topic("ada@x.io", "", true).endpoint,
            contacts.set_topic("ada@x.io", "", false).endpoint,
        ] {
            let error = call.request().unwrap_err();

            assert_eq!(error.kind(), ErrorKind::Input);
            assert!(error.to_string().contains("topic is empty"), "{error}");
        }
        // A topic is in the body, not in the path.
        assert!(unsubscribe().topic("..").endpoint.request().is_ok());
    }

    #[test]
    fn an_opt_out_is_safe_to_retry() {
        assert_eq!(opt_out(&unsubscribe()).retry_safety, RetrySafety::Safe);
    }

    #[test]
    fn a_yes_subscribes_and_a_no_unsubscribes_with_the_topic() {
        for (answer, path, retry_safety) in [
            (
                true,
                "/contacts/ada%40x.io/subscribe",
                RetrySafety::OnlyIfNotApplied,
            ),
            (false, "/contacts/ada%40x.io/unsubscribe", RetrySafety::Safe),
        ] {
            let call = contacts().set_topic("ada@x.io", "news", answer);
            let request = call.endpoint.request().unwrap();

            assert_eq!(
                (request.path.as_str(), request.retry_safety),
                (path, retry_safety)
            );
            assert_eq!(request.body.unwrap(), r#"{"topic":"news"}"#);
            assert!(path.ends_with(call.endpoint.operation().name));
        }
    }
}
