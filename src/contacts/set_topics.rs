use std::collections::BTreeMap;
use std::error::Error as StdError;
use std::fmt;
use std::pin::Pin;

use serde::{Deserialize, Serialize};

use super::{Contact, Contacts};
use crate::client::{CallOptions, TakesOptions, call_settings, opaque_debug, wait_for_call};
use crate::{Error, Outcome};

impl Contacts {
    /// Records a contact's answers for several topics, such as the whole form of a preference page.
    ///
    /// It retrieves the contact and then sends one request for each topic of the form. All opt-outs are sent before the
    /// first opt-in. Topics that are not in the form stay unchanged, and so does the global opt-out: while
    /// [`Contact::unsubscribed`] is true, no broadcast of any topic arrives. With an empty form, the contact is only
    /// retrieved.
    ///
    /// An answer is sent even if the contact shows it already, because the contact may show the topic's default
    /// ([section 2.1](crate::interface#2.1)). If a "no" were not recorded, it would be lost when the default becomes
    /// "yes". [`only_changed`](SetTopics::only_changed) sends fewer requests.
    ///
    /// # Errors
    ///
    /// [`TopicsError`] says which topic failed, which answers were recorded before it, and which were not
    /// sent. To recover, send the same form once more. If it has a `true`, do so only after another click: the person may
    /// have opted out since.
    ///
    /// - `not_found` (404) if the address is not one of your contacts, or if the contact shows no topic of a name in
    ///   the form: [`Error::is_not_found`]. [`Error::missing`] says which. In both cases, no answer was sent. The call
    ///   [makes sure](crate::contacts#a-404-is-no-proof) of a 404.
    /// - `failed_precondition` (422) if the contact reported spam: [`Error::is_complaint_locked`]. All
    ///   opt-outs are recorded by then, but no opt-in.
    /// - [`ErrorKind::Input`](crate::ErrorKind::Input), and no answer was sent, if the form has two different answers
    ///   for a topic, if the name of a topic is empty, or if the address is empty, `.` or `..`.
    /// - The errors of [`retrieve`](Self::retrieve) and [`set_topic`](Self::set_topic).
    ///
    /// # Example: save a preference page
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = audience::mock::MockServer::start().await;
    /// # server.topic("news", true);
    /// # server.topic("offers", false);
    /// # let contacts = server.client().contacts();
    /// # contacts.create(audience::contacts::NewContact::new("ada@example.com")).await?;
    /// let form = [("news", false), ("offers", false)];
    ///
    /// let saved = contacts.set_topics("ada@example.com", form).await?;
    ///
    /// assert!(saved.changed.contains_key("news") && saved.unchanged.contains_key("offers"));
    /// assert_eq!(saved.contact.topics.get("news"), Some(&false));
    /// # Ok(()) }
    /// ```
    pub fn set_topics(
        &self,
        address: impl Into<String>,
        answers: impl IntoIterator<Item = (impl Into<String>, bool)>,
    ) -> SetTopics {
        let answers = answers
            .into_iter()
            .map(|(topic, answer)| (topic.into(), answer));
        SetTopics {
            contacts: self.clone(),
            address: address.into(),
            form: AnswerForm::new(answers),
            only_changed: false,
            unless_opted_out: false,
            options: CallOptions::default(),
        }
    }
}

/// Records the answers for several topics when it is awaited: see [`Contacts::set_topics`].
///
/// The timeout and the retry policy apply to each request, the deadline to the whole form.
///
/// Dropping the future cancels the rest of the form, but not the requests that were already sent.
#[derive(Clone)]
#[must_use = "a call is sent only when it is awaited"]
pub struct SetTopics {
    contacts: Contacts,
    address: String,
    form: Result<AnswerForm, InvalidForm>,
    only_changed: bool,
    /// Whether nothing is sent if the contact is opted out of everything, and did not report spam.
    unless_opted_out: bool,
    options: CallOptions,
}

impl SetTopics {
    /// Sends only the answers that differ from the answers that the contact shows. Default: every answer is sent.
    ///
    /// For a topic that the contact never answered, the contact shows the topic's default. An answer that equals this
    /// default is not recorded, so it changes when the default changes.
    ///
    /// # Example: an answer that follows the topic's default
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = audience::mock::MockServer::start().await;
    /// # let contacts = server.client().contacts();
    /// # contacts.create(audience::contacts::NewContact::new("ada@example.com")).await?;
    /// server.topic("offers", false);
    /// contacts.set_topics("ada@example.com", [("offers", false)]).only_changed().await?;
    ///
    /// server.topic("offers", true);
    /// let contact = contacts.retrieve("ada@example.com").await?;
    /// assert_eq!(contact.topics.get("offers"), Some(&true));
    /// # Ok(()) }
    /// ```
    pub fn only_changed(mut self) -> Self {
        self.only_changed = true;
        self
    }

    /// Allows retries of an opt-in even if an earlier attempt may have been applied. Default: only retries
    /// that are safe, as [`RetryPolicy`](crate::RetryPolicy) lists them.
    ///
    /// # Example: opt in although the connection breaks
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = audience::mock::MockServer::builder().topic("news", false).seed_contact("ada@example.com").start().await;
    /// # let contacts = server.client().contacts();
    /// # server.fault(audience::mock::Fault::close_before().path("*/subscribe").times(1));
    /// // The server closes the connection of the first opt-in without a response.
    /// let saved = contacts.set_topics("ada@example.com", [("news", true)]).idempotent().await?;
    ///
    /// assert_eq!(saved.contact.topics.get("news"), Some(&true));
    /// # Ok(()) }
    /// ```
    pub fn idempotent(mut self) -> Self {
        self.options.idempotent = true;
        self
    }

    /// Sends nothing if the contact is opted out of everything, and did not report spam.
    #[cfg(feature = "unsubscribe")]
    pub(crate) fn unless_opted_out(mut self) -> Self {
        self.unless_opted_out = true;
        self
    }

    /// Checks the form without a request.
    #[cfg(feature = "cli")]
    pub(crate) fn check(&self) -> Result<(), TopicsError> {
        match &self.form {
            Ok(_) => Ok(()),
            Err(invalid) => Err(TopicsError::invalid(invalid.clone())),
        }
    }

    async fn record(self) -> Result<RecordedTopics, TopicsError> {
        let has_opt_in = self.form.as_ref().is_ok_and(AnswerForm::has_opt_in);
        self.send_form().await.map_err(|mut error| {
            if has_opt_in {
                error.0.error.set_part_of_opt_in();
            }
            error
        })
    }

    async fn send_form(mut self) -> Result<RecordedTopics, TopicsError> {
        // All requests of the form share one deadline.
        self.options = self.contacts.client.start_deadline(self.options);
        let form = self.form.clone().map_err(TopicsError::invalid)?;
        let retrieving = self.contacts.retrieve_surely(&self.address, &self.options);
        let retrieved = retrieving
            .await
            .map_err(|error| TopicsError::unread(error.at("retrieve"), form.answers()))?;
        // After a spam report, the service refuses the opt-in with its reason.
        if self.unless_opted_out && retrieved.unsubscribed && !retrieved.has_reported_spam() {
            return Ok(RecordedTopics::new(retrieved));
        }
        let plan = form.plan(&retrieved, self.only_changed);
        let plan = plan.map_err(TopicsError::invalid)?;
        let contact = self.send(&plan, retrieved).await?;
        Ok(RecordedTopics {
            contact,
            changed: plan.changed,
            unchanged: plan.unchanged,
        })
    }

    /// Sends the answers of a plan, and returns the contact after the last of them.
    async fn send(&self, plan: &Plan, retrieved: Contact) -> Result<Contact, TopicsError> {
        let mut recorded = BTreeMap::new();
        let mut last = None;
        // One request after the other, so that a failure leaves no doubt about the answers before it.
        let mut rest = plan.to_send.iter();
        while let Some((topic, answer)) = rest.next() {
            match self.answer(topic, *answer).await {
                Ok(contact) => last = contact,
                Err(error) => {
                    let failed = (topic.clone(), *answer);
                    let not_sent = rest.cloned().collect();
                    return Err(TopicsError::after(recorded, error, Some(failed))
                        .leaving(not_sent, plan.not_to_send.clone()));
                }
            }
            recorded.insert(topic.clone(), *answer);
        }
        match last {
            None if recorded.is_empty() => return Ok(retrieved),
            Some(last) if !shows_less(&last, &retrieved) => return Ok(last),
            _ => {}
        }
        let (contacts, address) = (&self.contacts, &self.address);
        let retrieved = contacts.retrieve_own_with(address, &self.options).await;
        retrieved.map_err(|error| {
            TopicsError::after(recorded, error, None)
                .leaving(BTreeMap::new(), plan.not_to_send.clone())
        })
    }

    /// Returns the contact if the response has one.
    async fn answer(&self, topic: &str, answer: bool) -> Result<Option<Contact>, Error> {
        let answer = self.contacts.set_topic(&self.address, topic, answer);
        answer.options(self.options.clone()).apply().await
    }
}

/// Returns whether a response leaves out members that retrieve shows. Section 4 does not say which form the consent
/// calls return.
fn shows_less(response: &Contact, retrieved: &Contact) -> bool {
    let is_left_out = |topic: &String| !response.topics.contains_key(topic);
    retrieved.shows_topics() && !response.shows_topics()
        || retrieved.topics.keys().any(is_left_out)
        || retrieved.shows_unsubscribe_reason() && !response.shows_unsubscribe_reason()
}

call_settings!(SetTopics);
wait_for_call!(SetTopics => Result<RecordedTopics, TopicsError>);
opaque_debug!(SetTopics);

impl IntoFuture for SetTopics {
    type Output = Result<RecordedTopics, TopicsError>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.record())
    }
}

/// The result of [`Contacts::set_topics`]: the contact, and the answers of the form, which either changed or confirmed
/// an answer that the contact showed.
///
/// # Example: confirm the changes to the visitor
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = audience::mock::MockServer::builder()
/// #     .topic("news", true).topic("offers", false).seed_contact("ada@example.com").start().await;
/// # let contacts = server.client().contacts();
/// let saved = contacts.set_topics("ada@example.com", [("news", false), ("offers", false)]).await?;
///
/// for (topic, answer) in &saved.changed {
///     println!("{topic}: {}", if *answer { "subscribed" } else { "unsubscribed" });
/// }
/// # assert_eq!(saved.changed.len(), 1);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct RecordedTopics {
    /// The contact after the last answer was recorded. If no answer was sent, the contact as it was retrieved.
    pub contact: Contact,
    /// The answers that differed from the shown ones. They were recorded.
    #[serde(default)]
    pub changed: BTreeMap<String, bool>,
    /// The answers that the contact showed already. They were recorded too, unless
    /// [`only_changed`](SetTopics::only_changed) is set.
    #[serde(default)]
    pub unchanged: BTreeMap<String, bool>,
}

impl RecordedTopics {
    /// Creates a result without answers, for example for a unit test. Assign to the other fields.
    ///
    /// # Example: in a unit test
    ///
    /// ```
    /// use audience::contacts::{Contact, RecordedTopics};
    ///
    /// let mut saved = RecordedTopics::new(Contact::new("c_1", "ada@example.com"));
    /// saved.changed.insert("news".to_owned(), false);
    ///
    /// assert!(saved.unchanged.is_empty());
    /// ```
    #[must_use]
    pub fn new(contact: Contact) -> Self {
        Self {
            contact,
            changed: BTreeMap::new(),
            unchanged: BTreeMap::new(),
        }
    }
}

/// The error of [`Contacts::set_topics`]: it says why the form failed, and which answers were recorded before.
///
/// Each answer of the form is in one of four places: [`recorded`](Self::recorded), [`failed`](Self::failed),
/// [`not_sent`](Self::not_sent) or [`unchanged`](Self::unchanged).
///
/// `Display` prints the topic and the counts, and then the error of the request that failed. So `source()` returns the
/// cause of that error, not the error itself: [`error`](Self::error) does.
///
/// `Display`, `Debug` and [`explanation`](Self::explanation) print the names of topics, unless a name contains `@`.
/// They never print the contact's address.
///
/// # Example: say what was saved
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), audience::Error> {
/// # let server = audience::mock::MockServer::start().await;
/// # server.topic("news", true);
/// # server.topic("offers", false);
/// # let contacts = server.client().contacts();
/// # contacts.create(audience::contacts::NewContact::new("ada@example.com")).await?;
/// # server.report_spam("ada@example.com");
/// let form = [("offers", true), ("news", false)];
///
/// if let Err(error) = contacts.set_topics("ada@example.com", form).await {
///     if error.error().is_complaint_locked() {
///         println!("You reported our mail as spam, so we cannot subscribe you again.");
///     }
///     for topic in error.recorded().keys() {
///         println!("Your answer for {topic} was saved.");
///     }
/// #   assert!(error.error().is_complaint_locked());
/// #   assert!(error.recorded().contains_key("news"));
/// #   assert_eq!(error.failed(), Some(("offers", true)));
/// }
/// # Ok(()) }
/// ```
pub struct TopicsError(Box<Inner>);

struct Inner {
    error: Error,
    outcome: Outcome,
    failed: Option<(String, bool)>,
    recorded: BTreeMap<String, bool>,
    not_sent: BTreeMap<String, bool>,
    unchanged: BTreeMap<String, bool>,
}

impl TopicsError {
    /// Returns the topic whose answer failed, with the answer. The [`Error::outcome`] of [`error`](Self::error) says
    /// whether it may have been recorded anyway.
    ///
    /// `None` if the contact could not be retrieved, before the first answer or after the last.
    ///
    /// # Example: the misspelled topic of a form
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() {
    /// # let server = audience::mock::MockServer::builder().topic("news", true).seed_contact("ada@example.com").start().await;
    /// # let contacts = server.client().contacts();
    /// let error = contacts.set_topics("ada@example.com", [("nwes", false)]).await.unwrap_err();
    ///
    /// assert_eq!(error.failed(), Some(("nwes", false)));
    /// # }
    /// ```
    #[must_use]
    pub fn failed(&self) -> Option<(&str, bool)> {
        let failed = self.0.failed.as_ref();
        failed.map(|(topic, answer)| (topic.as_str(), *answer))
    }

    /// Returns the answers that were recorded before the failure.
    ///
    /// # Example: an outage in the middle of a form
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() {
    /// # let server = audience::mock::MockServer::builder()
    /// #     .topic("news", true).topic("offers", true).seed_contact("ada@example.com").start().await;
    /// # let contacts = server.client().contacts();
    /// use audience::RetryPolicy;
    /// use audience::mock::Fault;
    ///
    /// // The first opt-out is recorded, and then the service is down.
    /// server.fault(Fault::status(503).path("*/unsubscribe").after(1));
    ///
    /// let form = [("news", false), ("offers", false)];
    /// let call = contacts.set_topics("ada@example.com", form).retry(RetryPolicy::none());
    /// let error = call.await.unwrap_err();
    ///
    /// assert_eq!(error.recorded().get("news"), Some(&false));
    /// assert_eq!(error.failed(), Some(("offers", false)));
    /// # }
    /// ```
    #[must_use]
    pub fn recorded(&self) -> &BTreeMap<String, bool> {
        &self.0.recorded
    }

    /// Returns the answers that were not sent because of the failure.
    ///
    /// # Example: nothing is sent for an unknown contact
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() {
    /// # let server = audience::mock::MockServer::start().await;
    /// # let contacts = server.client().contacts();
    /// let error = contacts.set_topics("nobody@example.com", [("news", false)]).await.unwrap_err();
    ///
    /// assert!(error.error().is_not_found());
    /// assert_eq!(error.not_sent().get("news"), Some(&false));
    /// # }
    /// ```
    #[must_use]
    pub fn not_sent(&self) -> &BTreeMap<String, bool> {
        &self.0.not_sent
    }

    /// Returns the answers that [`only_changed`](SetTopics::only_changed) left out, because the contact showed them
    /// already.
    #[must_use]
    pub fn unchanged(&self) -> &BTreeMap<String, bool> {
        &self.0.unchanged
    }

    /// Returns whether any answer of the form may have been recorded.
    ///
    /// - [`NotSent`](Outcome::NotSent) and [`Refused`](Outcome::Refused) mean that no answer was recorded.
    /// - [`Unknown`](Outcome::Unknown) means that some answers were recorded, or may have been.
    /// - [`Applied`](Outcome::Applied) means that all answers were recorded, and only the contact could not be
    ///   retrieved afterwards.
    ///
    /// # Example: nothing was saved
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() {
    /// # let server = audience::mock::MockServer::start().await;
    /// # let contacts = server.client().contacts();
    /// use audience::Outcome;
    ///
    /// let error = contacts.set_topics("nobody@example.com", [("news", false)]).await.unwrap_err();
    ///
    /// if matches!(error.form_outcome(), Outcome::NotSent | Outcome::Refused) {
    ///     println!("Nothing was saved. Please send the form again.");
    /// }
    /// # assert_eq!(error.form_outcome(), Outcome::NotSent);
    /// # }
    /// ```
    #[must_use]
    pub fn form_outcome(&self) -> Outcome {
        self.0.outcome
    }

    /// Returns what happened and what to do, in plain words, for a person who does not program: the
    /// [explanation](Error::explanation) of the error, and which answers were recorded.
    ///
    /// # Example: for a support team
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() {
    /// # let server = audience::mock::MockServer::builder().topic("news", true).topic("offers", false).seed_contact("ada@example.com").start().await;
    /// # server.fault(audience::mock::Fault::status(503).path("*/subscribe"));
    /// # let contacts = server.client().contacts();
    /// let form = [("news", false), ("offers", true)];
    /// let error = contacts.set_topics("ada@example.com", form).await.unwrap_err();
    ///
    /// let text = error.explanation();
    /// assert!(text.starts_with("offers: the service is not available (503"), "{text}");
    /// assert!(text.ends_with("; recorded: news (no)"), "{text}");
    /// # }
    /// ```
    #[must_use]
    pub fn explanation(&self) -> String {
        let mut text = self.error().explanation();
        if let Some((topic, _)) = self.failed() {
            text = format!("{}: {text}", Topic(topic));
        }
        for (what, answers) in [("recorded", self.recorded()), ("not sent", self.not_sent())] {
            let answers = answers.iter().map(|(topic, answer)| {
                let answer = if *answer { "yes" } else { "no" };
                format!("{} ({answer})", Topic(topic))
            });
            let answers: Vec<_> = answers.collect();
            if !answers.is_empty() {
                text += &format!("; {what}: {}", answers.join(", "));
            }
        }
        text
    }

    /// Returns the error of the request that failed.
    #[must_use]
    pub fn error(&self) -> &Error {
        &self.0.error
    }

    /// Returns the error of the request that failed, and drops the four lists of answers.
    ///
    /// # Example: one error type for a program
    ///
    /// ```
    /// use audience::contacts::{Contact, Contacts, TopicsError};
    ///
    /// async fn opt_out(contacts: &Contacts, address: &str) -> Result<Contact, audience::Error> {
    ///     let saved = contacts.set_topics(address, [("news", false)]).await;
    ///     Ok(saved.map_err(TopicsError::into_error)?.contact)
    /// }
    /// # let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    /// # runtime.block_on(async {
    /// # let server = audience::mock::MockServer::start().await;
    /// # let contacts = server.client().contacts();
    /// # assert!(opt_out(&contacts, "nobody@example.com").await.unwrap_err().is_not_found());
    /// # });
    /// ```
    #[must_use]
    pub fn into_error(self) -> Error {
        self.0.error
    }

    fn before(error: Error) -> Self {
        Self(Box::new(Inner {
            outcome: error.outcome(),
            error,
            failed: None,
            recorded: BTreeMap::new(),
            not_sent: BTreeMap::new(),
            unchanged: BTreeMap::new(),
        }))
    }

    /// Creates the error for a form that cannot be recorded.
    fn invalid(form: InvalidForm) -> Self {
        let error = match form.reason {
            // The same error as when the service refuses the topic in any other call.
            Reason::UnknownTopic => Error::unknown_topic(
                "the contact shows no topic of this name, so no answer was sent; check the spelling",
            ),
            Reason::TwoAnswers => two_answers(),
            Reason::EmptyTopic => {
                Error::input("the name of a topic in the form is empty; nothing was sent")
            }
        };
        let mut invalid = Self::before(error.at("set_topics"));
        invalid.0.failed = Some(form.topic);
        invalid.0.not_sent = form.others;
        invalid
    }

    /// Creates the error for a contact that could not be retrieved before anything was sent.
    fn unread(error: Error, not_sent: BTreeMap<String, bool>) -> Self {
        let mut unread = Self::before(error);
        // A retrieve changes nothing, even if its own outcome is unknown.
        unread.0.outcome = Outcome::NotSent;
        unread.0.not_sent = not_sent;
        unread
    }

    /// Creates the error for a request that failed after these answers were recorded. `failed` is the answer
    /// that it was to record.
    fn after(
        recorded: BTreeMap<String, bool>,
        error: Error,
        failed: Option<(String, bool)>,
    ) -> Self {
        let mut partial = Self::before(error);
        if !recorded.is_empty() {
            partial.0.error.set_after_change();
            // Without a failed answer, only the contact could not be retrieved after the last one.
            let is_complete = failed.is_none();
            partial.0.outcome = if is_complete {
                Outcome::Applied
            } else {
                Outcome::Unknown
            };
        }
        partial.0.recorded = recorded;
        partial.0.failed = failed;
        partial
    }

    /// Adds the answers that were not sent because of the failure, and the answers that the plan left out.
    fn leaving(
        mut self,
        not_sent: BTreeMap<String, bool>,
        unchanged: BTreeMap<String, bool>,
    ) -> Self {
        self.0.not_sent = not_sent;
        self.0.unchanged = unchanged;
        self
    }
}

/// The error of a form with two different answers for a topic.
pub(crate) fn two_answers() -> Error {
    Error::input("the form has two different answers for the same topic; nothing was sent")
}

impl fmt::Display for TopicsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Inner {
            failed,
            recorded,
            not_sent,
            error,
            ..
        } = &*self.0;
        match failed {
            Some((topic, _)) => write!(
                f,
                "could not record the answer for topic {:?}",
                Topic(topic)
            )?,
            None if recorded.is_empty() => f.write_str("could not retrieve the contact")?,
            None => f.write_str("could not retrieve the contact afterwards")?,
        }
        write!(
            f,
            " ({} recorded, {} not sent): {error}",
            recorded.len(),
            not_sent.len()
        )
    }
}

impl fmt::Debug for TopicsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let failed = self.failed().map(|(topic, answer)| (Topic(topic), answer));
        f.debug_struct("TopicsError")
            .field("failed", &failed)
            .field("recorded", &Answers(&self.0.recorded))
            .field("not_sent", &Answers(&self.0.not_sent))
            .field("unchanged", &Answers(&self.0.unchanged))
            .field("outcome", &self.0.outcome)
            .field("error", &self.0.error)
            .finish()
    }
}

impl StdError for TopicsError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        // `Display` has the error itself.
        self.0.error.source()
    }
}

/// The name of a topic. One that contains `@` may be an address in the wrong place, and is not printed.
struct Topic<'a>(&'a str);

const HIDDEN: &str = "<hidden>";

impl Topic<'_> {
    fn is_hidden(&self) -> bool {
        self.0.contains('@')
    }
}

impl fmt::Display for Topic<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_hidden() { HIDDEN } else { self.0 })
    }
}

impl fmt::Debug for Topic<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_hidden() {
            return f.write_str(HIDDEN);
        }
        self.0.fmt(f)
    }
}

struct Answers<'a>(&'a BTreeMap<String, bool>);

impl fmt::Debug for Answers<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let answers = self.0.iter().map(|(topic, answer)| (Topic(topic), answer));
        f.debug_map().entries(answers).finish()
    }
}

/// The answers of a form, in the order given. Each topic is in it once.
#[derive(Clone, Debug, PartialEq)]
struct AnswerForm(Vec<(String, bool)>);

/// Why a form cannot be recorded. No answer of it was sent.
#[derive(Clone, Debug, PartialEq)]
struct InvalidForm {
    reason: Reason,
    /// The topic that makes it invalid.
    topic: (String, bool),
    /// The answers for all other topics.
    others: BTreeMap<String, bool>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Reason {
    UnknownTopic,
    TwoAnswers,
    EmptyTopic,
}

impl AnswerForm {
    /// Creates a form. The same answer twice counts once.
    ///
    /// # Errors
    ///
    /// If the form has two different answers for a topic, or an answer for a topic without a name.
    fn new(answers: impl IntoIterator<Item = (String, bool)>) -> Result<Self, InvalidForm> {
        let (mut form, mut conflict) = (Vec::new(), None);
        // A form sent twice by a browser, or a hidden field beside a checkbox, may have a topic twice.
        let mut seen = BTreeMap::new();
        for (topic, answer) in answers {
            match seen.insert(topic.clone(), answer) {
                None => form.push((topic, answer)),
                Some(first) if first == answer => {}
                Some(_) => conflict = conflict.or(Some((topic, answer))),
            }
        }
        let empty = form.iter().find(|(topic, _)| topic.is_empty()).cloned();
        match (empty, conflict) {
            (None, None) => Ok(Self(form)),
            (Some(topic), _) => Err(Self(form).invalid(topic, Reason::EmptyTopic)),
            (None, Some(topic)) => Err(Self(form).invalid(topic, Reason::TwoAnswers)),
        }
    }

    fn has_opt_in(&self) -> bool {
        self.0.iter().any(|(_, answer)| *answer)
    }

    /// Returns the answer for each topic.
    fn answers(&self) -> BTreeMap<String, bool> {
        self.0.iter().cloned().collect()
    }

    /// Decides what to send, given the contact.
    ///
    /// # Errors
    ///
    /// If the contact shows its topics, and one of the form is not among them.
    fn plan(self, contact: &Contact, only_changed: bool) -> Result<Plan, InvalidForm> {
        let shows_topics = contact.shows_topics();
        let is_unknown = |(topic, _): &&(String, bool)| shows_topics && !contact.has_topic(topic);
        // Checked before anything is sent: a misspelled topic must not leave half of a form recorded.
        if let Some(unknown) = self.0.iter().find(is_unknown).cloned() {
            return Err(self.invalid(unknown, Reason::UnknownTopic));
        }
        let is_shown = |(topic, answer): &(String, bool)| contact.topics.get(topic) == Some(answer);
        let (unchanged, changed): (Vec<_>, Vec<_>) = self.0.iter().cloned().partition(is_shown);
        let unchanged: BTreeMap<_, _> = unchanged.into_iter().collect();
        let (mut to_send, not_to_send) = match only_changed {
            true => (changed.clone(), unchanged.clone()),
            false => (self.0, BTreeMap::new()),
        };
        // Sorting is stable: opt-outs first, each kind in the order of the form.
        to_send.sort_by_key(|(_, answer)| *answer);
        Ok(Plan {
            to_send,
            changed: changed.into_iter().collect(),
            unchanged,
            not_to_send,
        })
    }

    fn invalid(self, topic: (String, bool), reason: Reason) -> InvalidForm {
        let mut others = self.answers();
        others.remove(&topic.0);
        InvalidForm {
            reason,
            topic,
            others,
        }
    }
}

/// The answers of a form, by whether and in which order to send them.
#[derive(Clone, Debug, PartialEq)]
struct Plan {
    /// All opt-outs, then all opt-ins, each in the order of the form.
    to_send: Vec<(String, bool)>,
    /// The answers that differ from the shown ones.
    changed: BTreeMap<String, bool>,
    /// The answers that were shown already.
    unchanged: BTreeMap<String, bool>,
    /// The answers that are not sent because they were shown already.
    not_to_send: BTreeMap<String, bool>,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const FORM: [(&str, bool); 6] = [
        ("yes-to-yes", true),
        ("no-to-yes", true),
        ("yes-to-no", false),
        ("no-to-no", false),
        ("2-no-to-yes", true),
        ("2-yes-to-no", false),
    ];

    fn form<const N: usize>(answers: [(&str, bool); N]) -> Result<AnswerForm, InvalidForm> {
        AnswerForm::new(answers.map(|(topic, answer)| (topic.to_owned(), answer)))
    }

    fn contact() -> Contact {
        let value = json!({"id": "c1", "email": "a@x.io", "unsubscribed": false, "created_at": 5, "topics": {
            "yes-to-yes": true, "no-to-yes": false, "yes-to-no": true, "no-to-no": false,
            "2-no-to-yes": false, "2-yes-to-no": true, "not-in-the-form": true}});
        serde_json::from_value(value).unwrap()
    }

    fn sent(plan: &Plan) -> Vec<&str> {
        plan.to_send
            .iter()
            .map(|(topic, _)| topic.as_str())
            .collect()
    }

    #[test]
    fn what_differs_is_sent_opt_outs_first_and_each_kind_in_the_order_of_the_form() {
        let plan = form(FORM).unwrap().plan(&contact(), true).unwrap();

        assert_eq!(
            sent(&plan),
            ["yes-to-no", "2-yes-to-no", "no-to-yes", "2-no-to-yes"]
        );
        assert_eq!(plan.changed, plan.to_send.iter().cloned().collect());
        let unchanged = BTreeMap::from([
            ("yes-to-yes".to_owned(), true),
            ("no-to-no".to_owned(), false),
        ]);
        assert_eq!(plan.unchanged, unchanged);
    }

    #[test]
    fn what_is_shown_already_is_sent_too_unless_the_caller_says_otherwise() {
        let plan = form(FORM).unwrap().plan(&contact(), false).unwrap();

        assert_eq!(
            sent(&plan),
            [
                "yes-to-no",
                "no-to-no",
                "2-yes-to-no",
                "yes-to-yes",
                "no-to-yes",
                "2-no-to-yes"
            ]
        );
        assert_eq!((plan.changed.len(), plan.unchanged.len()), (4, 2));
    }

    #[test]
    fn everything_is_sent_if_the_contact_does_not_show_its_topics() {
        let short = json!({"id": "c1", "email": "a@x.io", "unsubscribed": false, "created_at": 5});
        let short = serde_json::from_value(short).unwrap();

        let plan = form([("a", true), ("b", false)])
            .unwrap()
            .plan(&short, true)
            .unwrap();

        assert_eq!(sent(&plan), ["b", "a"]);
        assert!(plan.unchanged.is_empty());
    }

    #[test]
    fn a_topic_that_the_contact_does_not_show_is_invalid() {
        let answers = [("no-to-yes", true), ("typo", false), ("typo-2", false)];

        let invalid = form(answers).unwrap().plan(&contact(), true).unwrap_err();

        assert_eq!(invalid.topic, ("typo".to_owned(), false));
        let others = BTreeMap::from([("no-to-yes".to_owned(), true), ("typo-2".to_owned(), false)]);
        assert_eq!(invalid.others, others);
    }

    #[test]
    fn a_topic_may_occur_twice_only_with_the_same_answer() {
        assert_eq!(
            form([("a", true), ("b", true), ("a", true)]),
            form([("a", true), ("b", true)])
        );

        let invalid = form([("a", true), ("b", true), ("a", false)]).unwrap_err();

        assert_eq!(invalid.topic, ("a".to_owned(), false));
        assert_eq!(invalid.others, BTreeMap::from([("b".to_owned(), true)]));
    }
}
