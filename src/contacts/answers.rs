use std::collections::BTreeMap;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use super::answers_plan::{AnswerForm, InvalidForm, Plan};
use super::{AnswersError, Contact, Contacts, RecordedAnswers};
use crate::Error;
use crate::client::{
    CallOptions, ResponseFuture, Started, TakesOptions, call_settings, opaque_debug, wait_for_call,
};

impl Contacts {
    /// Records a contact's answers for several topics: the whole form of a preference page.
    ///
    /// Retrieves the contact, compares, and sends only the answers that differ from those shown, one request
    /// after the other. All opt-outs are sent before the first opt-in. Topics that are not in the form stay
    /// unchanged, and so does the global opt-out: while [`Contact::unsubscribed`] is true, no broadcast of
    /// any topic arrives. With an empty form, the contact is only retrieved.
    ///
    /// # Answers and defaults
    ///
    /// For a topic that the contact never answered, the topic's default is shown (section 2.1). A "no" that
    /// equals this default is therefore not sent, and is lost if the default becomes "yes" later. If the
    /// answers are a person's own, as those of a preference page, set
    /// [`record_unchanged`](RecordAnswers::record_unchanged).
    ///
    /// # Errors
    ///
    /// [`AnswersError`] says which topic failed, which answers were recorded before it, and which were not
    /// sent. To recover, call again with the same form: what was recorded is shown by then, and only the
    /// rest is sent. In a function that returns [`Error`], `?` converts it.
    ///
    /// - `not_found` (404) if the address is not one of your contacts: [`Error::is_not_found`].
    /// - `failed_precondition` (422) if the contact reported spam: [`Error::is_complaint_locked`]. All
    ///   opt-outs are recorded by then, but no opt-in.
    /// - [`ErrorKind::Input`](crate::ErrorKind::Input), and no answer was sent, if the contact shows no topic
    ///   of a name in the form, if the form has two different answers for a topic, or if the address is
    ///   empty, `.` or `..`.
    /// - The errors of [`retrieve`](Self::retrieve) and [`answer`](Self::answer).
    ///
    /// # Example: save a preference page
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), audience::Error> {
    /// # let server = audience::mock::MockServer::start().await;
    /// # server.topic("news", true);
    /// # server.topic("offers", false);
    /// # let contacts = server.client().contacts();
    /// # contacts.create(audience::contacts::NewContact::new("ada@example.com")).await?;
    /// let form = [("news", false), ("offers", false)];
    ///
    /// let saved = contacts.answers("ada@example.com", form).record_unchanged().await?;
    ///
    /// assert!(saved.changed.contains_key("news") && saved.unchanged.contains_key("offers"));
    /// assert_eq!(saved.contact.topics.get("news"), Some(&false));
    /// # Ok(()) }
    /// ```
    pub fn answers(
        &self,
        address: impl Into<String>,
        answers: impl IntoIterator<Item = (impl Into<String>, bool)>,
    ) -> RecordAnswers {
        let answers = answers
            .into_iter()
            .map(|(topic, answer)| (topic.into(), answer));
        RecordAnswers {
            call: FormCall {
                contacts: self.clone(),
                address: address.into(),
                form: AnswerForm::new(answers),
                sends_unchanged: false,
                options: CallOptions::default(),
            },
            recording: Started::default(),
        }
    }
}

/// The answers for several topics, sent by `.await`: see [`Contacts::answers`].
///
/// The timeout and the retry policy apply to each request, the deadline to the whole form.
///
/// Dropping it while it is polled cancels the rest of the form, but not what was already sent.
#[derive(Clone)]
#[must_use = "a call is sent only when it is awaited"]
pub struct RecordAnswers {
    call: FormCall,
    recording: Started<ResponseFuture<Result<RecordedAnswers, AnswersError>>>,
}

impl RecordAnswers {
    /// Sends every answer, also those that the contact shows already. Default: only those that differ from
    /// what is shown.
    ///
    /// A shown answer may be the topic's default, and the contact's own answer then stays unrecorded. Set
    /// this if the answers must hold even if a default changes: it costs one request for each topic.
    ///
    /// # Example: a "no" that outlives the topic's default
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), audience::Error> {
    /// # let server = audience::mock::MockServer::start().await;
    /// # let contacts = server.client().contacts();
    /// # contacts.create(audience::contacts::NewContact::new("ada@example.com")).await?;
    /// server.topic("offers", false);
    /// contacts.answers("ada@example.com", [("offers", false)]).record_unchanged().await?;
    ///
    /// server.topic("offers", true);
    /// let contact = contacts.retrieve("ada@example.com").await?;
    /// assert_eq!(contact.topics.get("offers"), Some(&false));
    /// # Ok(()) }
    /// ```
    pub fn record_unchanged(mut self) -> Self {
        self.call.sends_unchanged = true;
        self
    }

    /// Allows retries of an opt-in even if an earlier attempt may have been applied. Default: only retries
    /// that are safe; see [`RetryPolicy`](crate::RetryPolicy).
    pub fn repeatable(mut self) -> Self {
        self.call.options.repeatable = true;
        self
    }
}

call_settings!(RecordAnswers, call.options);
wait_for_call!(RecordAnswers => Result<RecordedAnswers, AnswersError>);
opaque_debug!(RecordAnswers);

/// Sends the call: see [A builder is a future](crate::client#a-builder-is-a-future).
impl Future for RecordAnswers {
    type Output = Result<RecordedAnswers, AnswersError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { call, recording } = self.get_mut();
        let recorded = ready!(recording.poll(context, || {
            let call = call.clone();
            ResponseFuture::new(async { Ok(call.record().await) })
        }));
        Poll::Ready(recorded?)
    }
}

#[derive(Clone)]
struct FormCall {
    contacts: Contacts,
    address: String,
    form: Result<AnswerForm, InvalidForm>,
    sends_unchanged: bool,
    options: CallOptions,
}

impl FormCall {
    async fn record(mut self) -> Result<RecordedAnswers, AnswersError> {
        self.options = self.contacts.client.start_deadline(self.options);
        let form = self.form.clone().map_err(AnswersError::invalid)?;
        let retrieved = self
            .retrieve()
            .await
            .map_err(|error| AnswersError::unread(error, form.answers()))?;
        let plan = form.plan(&retrieved, self.sends_unchanged);
        let plan = plan.map_err(AnswersError::invalid)?;
        let contact = self.send(&plan, retrieved).await?;
        Ok(RecordedAnswers {
            contact,
            changed: plan.changed,
            unchanged: plan.unchanged,
        })
    }

    /// Sends the answers of a plan, and returns the contact after the last of them.
    async fn send(&self, plan: &Plan, retrieved: Contact) -> Result<Contact, AnswersError> {
        let mut recorded = BTreeMap::new();
        let mut last = None;
        let mut rest = plan.to_send.iter();
        while let Some((topic, answer)) = rest.next() {
            match self.answer(topic, *answer).await {
                Ok(contact) => last = Some(contact),
                Err(error) => {
                    let failed = (topic.clone(), *answer);
                    let not_sent = rest.cloned().collect();
                    return Err(AnswersError::after(recorded, error, Some(failed))
                        .leaving(not_sent, plan.not_to_send()));
                }
            }
            recorded.insert(topic.clone(), *answer);
        }
        match last {
            None => Ok(retrieved),
            Some(last) if shows_less(&last, &retrieved) => self.retrieve().await.map_err(|error| {
                AnswersError::after(recorded, error, None)
                    .leaving(BTreeMap::new(), plan.not_to_send())
            }),
            Some(last) => Ok(last),
        }
    }

    async fn retrieve(&self) -> Result<Contact, Error> {
        let retrieve = self.contacts.retrieve(&self.address);
        retrieve.options(self.options.clone()).await
    }

    async fn answer(&self, topic: &str, answer: bool) -> Result<Contact, Error> {
        let answer = self.contacts.answer(&self.address, topic, answer);
        answer.options(self.options.clone()).await
    }
}

/// Returns whether a response leaves out what retrieve shows. Section 4 does not say which form the consent
/// calls return.
fn shows_less(response: &Contact, retrieved: &Contact) -> bool {
    let is_left_out = |topic: &String| !response.topics.contains_key(topic);
    retrieved.shows_topics() && !response.shows_topics()
        || retrieved.topics.keys().any(is_left_out)
        || retrieved.shows_unsubscribe_reason() && !response.shows_unsubscribe_reason()
}
