use std::collections::BTreeMap;
use std::error::Error as StdError;
use std::fmt;
use std::ops::Deref;

use super::answers_plan::InvalidForm;
use crate::{Error, Outcome};

/// Why [`Contacts::answers`](super::Contacts::answers) failed, and how far it got.
///
/// Each answer of the form is in one place: [`recorded`](Self::recorded), [`failed`](Self::failed),
/// [`not_sent`](Self::not_sent) or [`unchanged`](Self::unchanged).
///
/// It dereferences to the [`Error`] of the request that failed, which is also its
/// [`source`](StdError::source), so it has every predicate of [`Error`]. In a function that returns
/// [`Error`], `?` converts it to that error, with the [`outcome`](Self::outcome) of the whole form.
///
/// `Display` and `Debug` print names of topics, unless one contains `@`, but no address.
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
/// if let Err(error) = contacts.answers("ada@example.com", form).await {
///     if error.is_complaint_locked() {
///         println!("You reported our mail as spam, so we cannot subscribe you again.");
///     }
///     for topic in error.recorded().keys() {
///         println!("Your answer for {topic} was saved.");
///     }
/// #   assert!(error.is_complaint_locked());
/// #   assert!(error.recorded().contains_key("news"));
/// #   assert_eq!(error.failed(), Some(("offers", true)));
/// }
/// # Ok(()) }
/// ```
pub struct AnswersError(Box<Inner>);

struct Inner {
    error: Error,
    outcome: Outcome,
    failed: Option<(String, bool)>,
    recorded: BTreeMap<String, bool>,
    not_sent: BTreeMap<String, bool>,
    unchanged: BTreeMap<String, bool>,
}

impl AnswersError {
    /// Returns the topic whose answer failed, with the answer. `Error::outcome(&error)` says whether it may
    /// have been recorded anyway.
    ///
    /// `None` if the contact could not be retrieved, before the first answer or after the last.
    #[must_use]
    pub fn failed(&self) -> Option<(&str, bool)> {
        let failed = self.0.failed.as_ref();
        failed.map(|(topic, answer)| (topic.as_str(), *answer))
    }

    /// Returns the answers that were recorded before the failure.
    #[must_use]
    pub fn recorded(&self) -> &BTreeMap<String, bool> {
        &self.0.recorded
    }

    /// Returns the answers that were not sent because of the failure.
    #[must_use]
    pub fn not_sent(&self) -> &BTreeMap<String, bool> {
        &self.0.not_sent
    }

    /// Returns the answers that the contact showed already, so that they were not to be sent.
    #[must_use]
    pub fn unchanged(&self) -> &BTreeMap<String, bool> {
        &self.0.unchanged
    }

    /// Returns whether any part of the form may have been recorded:
    /// [`NotSent`](Outcome::NotSent) and [`Refused`](Outcome::Refused) mean that none was,
    /// [`Unknown`](Outcome::Unknown) that some answers were recorded, or may have been.
    #[must_use]
    pub fn outcome(&self) -> Outcome {
        self.0.outcome
    }

    /// Returns the error of the request that failed, with the outcome of that request alone.
    #[must_use]
    pub fn into_error(self) -> Error {
        self.0.error
    }

    /// Creates the error for a form that cannot be recorded.
    pub(super) fn invalid(form: InvalidForm) -> Self {
        let error = Error::input(form.message).at("answers");
        let mut invalid = Self::from(error);
        invalid.0.failed = Some(form.topic);
        invalid.0.not_sent = form.others;
        invalid
    }

    /// Creates the error for a contact that could not be retrieved before anything was sent.
    pub(super) fn unread(error: Error, not_sent: BTreeMap<String, bool>) -> Self {
        let mut unread = Self::from(error);
        unread.0.outcome = Outcome::NotSent;
        unread.0.not_sent = not_sent;
        unread
    }

    /// Creates the error for a request that failed after these answers were recorded. `failed` is the answer
    /// that it was to record.
    pub(super) fn after(
        recorded: BTreeMap<String, bool>,
        error: Error,
        failed: Option<(String, bool)>,
    ) -> Self {
        let mut partial = Self::from(error);
        if !recorded.is_empty() {
            partial.0.outcome = Outcome::Unknown;
        }
        partial.0.recorded = recorded;
        partial.0.failed = failed;
        partial
    }

    /// Adds the answers that were not sent because of the failure, and those that were not to be sent.
    pub(super) fn leaving(
        mut self,
        not_sent: BTreeMap<String, bool>,
        unchanged: BTreeMap<String, bool>,
    ) -> Self {
        self.0.not_sent = not_sent;
        self.0.unchanged = unchanged;
        self
    }
}

/// For an error that occurs before the form is looked at, for example a blocking call in async code. No
/// answer is in any of the four places.
impl From<Error> for AnswersError {
    fn from(error: Error) -> Self {
        Self(Box::new(Inner {
            outcome: error.outcome(),
            error,
            failed: None,
            recorded: BTreeMap::new(),
            not_sent: BTreeMap::new(),
            unchanged: BTreeMap::new(),
        }))
    }
}

/// Returns the error of the request that failed, with the [`outcome`](AnswersError::outcome) of the whole
/// form. What was recorded is lost.
impl From<AnswersError> for Error {
    fn from(error: AnswersError) -> Self {
        let outcome = error.outcome();
        error.into_error().ending_in(outcome)
    }
}

impl Deref for AnswersError {
    type Target = Error;

    fn deref(&self) -> &Error {
        &self.0.error
    }
}

impl fmt::Display for AnswersError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Inner {
            failed,
            recorded,
            not_sent,
            ..
        } = &*self.0;
        match failed {
            Some((topic, _)) => write!(
                f,
                "could not record the answer for topic {:?}",
                Topic(topic)
            )?,
            None if recorded.is_empty() && not_sent.is_empty() => {
                return f.write_str("could not record the answers");
            }
            None if recorded.is_empty() => f.write_str("could not retrieve the contact")?,
            None => f.write_str("could not retrieve the contact afterwards")?,
        }
        write!(
            f,
            " ({} recorded, {} not sent)",
            recorded.len(),
            not_sent.len()
        )
    }
}

impl fmt::Debug for AnswersError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let failed = self.failed().map(|(topic, answer)| (Topic(topic), answer));
        f.debug_struct("AnswersError")
            .field("failed", &failed)
            .field("recorded", &Answers(&self.0.recorded))
            .field("not_sent", &Answers(&self.0.not_sent))
            .field("unchanged", &Answers(&self.0.unchanged))
            .field("outcome", &self.0.outcome)
            .field("error", &self.0.error)
            .finish()
    }
}

impl StdError for AnswersError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        Some(&self.0.error)
    }
}

/// The name of a topic. One that contains `@` may be an address in the wrong place, and is not printed.
struct Topic<'a>(&'a str);

impl fmt::Debug for Topic<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.contains('@') {
            return f.write_str("<hidden>");
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
