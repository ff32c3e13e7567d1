//! [`Error`], which says why a call failed, and its parts.

use std::borrow::Cow;
use std::error::Error as StdError;
use std::fmt;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::header::{DATE, RETRY_AFTER};
use http::{HeaderMap, Method, StatusCode};
use serde_json::{Map, Value};

use crate::causes::with_causes;
use crate::string_enum::string_enum;

/// The error of a failed call.
///
/// One method for each question:
///
/// - Where did the call fail, and who can fix it? [`kind`](Error::kind)
/// - How did the service refuse the request? [`api`](Error::api), [`status`](Error::status), and predicates such as
///   [`is_not_found`](Error::is_not_found)
/// - May a later call succeed, and when? [`is_retryable`](Error::is_retryable), [`retry_after`](Error::retry_after)
/// - May a write have been applied anyway? [`outcome`](Error::outcome)
/// - How many attempts did the call make? [`attempts`](Error::attempts)
/// - What can be shown to a person? [`explanation`](Error::explanation)
///
/// If the call was retried, the error describes the last attempt, but the outcome covers all of them.
///
/// Neither `Display` nor `Debug` prints an address, a key or the text of a body, so you can log an error without
/// redaction. `{error:#}` also prints what caused the error. Read the service's message with [`ApiError::message`].
///
/// In a unit test, [`refused`](Error::refused) creates the error of a refusal. To test code that calls the client, or to
/// get an error of another kind, use a `MockServer` (feature `mock`): [Testing your application] has a line for each
/// failure.
///
/// # Example: a refusal and its text
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// # let server = audience::mock::MockServer::start().await;
/// # let contacts = server.client().contacts();
/// let error = contacts.retrieve("nobody@example.com").await.unwrap_err();
///
/// assert!(error.is_not_found());
/// assert_eq!(error.to_string(), "retrieve: the service responded 404 not_found: no such contact");
/// # }
/// ```
///
/// [Testing your application]: https://docs.rs/audience/latest/audience/guides/testing/index.html
pub struct Error(Box<Inner>);

// Boxed, because every `Result` of this crate is at least as large as its error.
struct Inner {
    kind: ErrorKind,
    operation: Option<&'static str>,
    message: Cow<'static, str>,
    /// What a developer should check. `Display` prints it after the message.
    advice: Option<&'static str>,
    /// What else has failed. `Display` prints it last.
    also: Option<String>,
    api: Option<ApiError>,
    outcome: Outcome,
    attempts: u32,
    is_retryable: bool,
    /// Whether the call may be repeated without harm although it may have been applied.
    is_repeatable: bool,
    /// Whether the request belongs to a call that was to opt in.
    is_part_of_opt_in: bool,
    /// Whether an earlier request of the call has changed something.
    is_after_change: bool,
    is_malformed_contact: bool,
    body: Option<Bytes>,
    source: Option<Box<dyn StdError + Send + Sync>>,
}

impl Error {
    /// Returns where the call failed, which says who can fix it.
    ///
    /// # Example: an argument that cannot be sent
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), audience::Error> {
    /// use audience::{Client, ErrorKind};
    ///
    /// let contacts = Client::new("https://api.example.com/v1", "key")?.contacts();
    ///
    /// let error = contacts.retrieve("").await.unwrap_err();
    /// assert_eq!(error.kind(), ErrorKind::Input);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// Returns the service's response, if it refused the request.
    ///
    /// `None` unless the kind is [`ErrorKind::Api`].
    ///
    /// # Example: status, code and message
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() {
    /// # let server = audience::mock::MockServer::start().await;
    /// # let contacts = server.client().contacts();
    /// use audience::contacts::NewContact;
    ///
    /// let error = contacts.create(NewContact::new("not an address")).await.unwrap_err();
    ///
    /// if let Some(refusal) = error.api() {
    ///     println!("{} {:?} {:?}", refusal.status(), refusal.code(), refusal.message());
    /// }
    /// # assert_eq!(error.api().unwrap().status(), 422);
    /// # }
    /// ```
    #[must_use]
    pub fn api(&self) -> Option<&ApiError> {
        self.0.api.as_ref()
    }

    /// Returns the code of the refusal, if the response has one. It is the [`ApiError::code`] of [`api`](Error::api).
    ///
    /// # Example: count refusals by their code
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() {
    /// # let server = audience::mock::MockServer::start().await;
    /// # let contacts = server.client().contacts();
    /// use audience::ErrorCode;
    ///
    /// let error = contacts.unsubscribe("nobody@example.com").await.unwrap_err();
    ///
    /// let label = error.code().map_or("none", ErrorCode::as_str);
    /// assert_eq!(label, "not_found");
    /// # }
    /// ```
    #[must_use]
    pub fn code(&self) -> Option<&ErrorCode> {
        self.api().and_then(ApiError::code)
    }

    /// Returns whether the write may have been applied anyway. A call that only reads never changes anything.
    ///
    /// # Example: a failed connection applied nothing
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), audience::Error> {
    /// use audience::contacts::NewContact;
    /// use audience::{Client, Outcome, RetryPolicy};
    ///
    /// let nobody_listens_here = "http://127.0.0.1:1";
    /// let client = Client::builder(nobody_listens_here, "key")
    ///     .retry(RetryPolicy::none())
    ///     .build()?;
    ///
    /// let error = client.contacts().create(NewContact::new("ada@example.com")).await.unwrap_err();
    /// assert_eq!(error.outcome(), Outcome::NotSent);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn outcome(&self) -> Outcome {
        self.0.outcome
    }

    /// Returns whether the same call may succeed later, without a change to its arguments or to the
    /// client's settings.
    ///
    /// `true` if the service could not be reached, did not respond in time, broke the connection, or
    /// responded 408, 425, 429, or 5xx other than 501 and 505. Also `true` if a change got a 2xx response, and the
    /// contact does not show it, if a 404 came from a gateway although the service has the contact, and if another run is
    /// using a file that this one needs, or has just used it. `false` if rustls rejects the server's certificate, or if a
    /// 2xx response arrived in full but cannot be read: whatever has sent it most likely sends it again.
    /// Before you retry, wait as long as [`retry_after`](Error::retry_after) says.
    ///
    /// A retry may do harm, because the write may have been applied anyway: [`may_repeat`](Error::may_repeat) says
    /// whether it does. See [`outcome`](Error::outcome) and [`RetryPolicy`](crate::RetryPolicy), too.
    ///
    /// # Example: wait as long as the service says
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() {
    /// # let server = audience::mock::MockServer::start().await;
    /// # server.fault(audience::mock::Fault::status(503).retry_after(600));
    /// # let contacts = server.client().contacts();
    /// // An opt-out may be applied twice without harm.
    /// let error = contacts.unsubscribe("ada@example.com").await.unwrap_err();
    ///
    /// if error.is_retryable() {
    ///     println!("retry the job in {:?}", error.retry_after().unwrap_or_default());
    /// }
    /// # assert!(error.is_retryable());
    /// # }
    /// ```
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        self.0.is_retryable
    }

    /// Returns whether a program may repeat the call later without asking anybody: it may help, and it does no harm.
    ///
    /// It is [`is_retryable`](Error::is_retryable), but `false` for each opt-in, even if it was not sent, because the
    /// person has to be asked again. It is also `false` for a mail, a create with
    /// [`OnConflict::Error`](crate::contacts::OnConflict::Error) or a raw request that may have been applied, unless
    /// `.idempotent()` was set on the call. A job, such as an import, sends nothing twice that must not be: if it ended
    /// with an error, see [`exit_status`](crate::exit_status).
    ///
    /// # Example: put a task back into its queue
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() {
    /// # let server = audience::mock::MockServer::start().await;
    /// # server.fault(audience::mock::Fault::status(503).retry_after(600));
    /// # let contacts = server.client().contacts();
    /// let opt_out = contacts.unsubscribe("ada@example.com").await.unwrap_err();
    /// let opt_in = contacts.subscribe("ada@example.com").await.unwrap_err();
    ///
    /// assert!(opt_out.is_retryable() && opt_out.may_repeat());
    /// assert!(opt_in.is_retryable() && !opt_in.may_repeat()); // the person may have opted out by then
    /// # }
    /// ```
    #[must_use]
    pub fn may_repeat(&self) -> bool {
        let maybe_sent = self.outcome().may_be_applied();
        let is_harmful = self.is_opt_in() || maybe_sent && !self.0.is_repeatable;
        self.is_retryable() && !is_harmful
    }

    /// Returns the body of the response, if the service refused the request or sent a 2xx response that could not be
    /// decoded.
    ///
    /// If only one item of a list is malformed, it is the JSON of that item. `None` if there is no response, or if its
    /// body could not be read to its end. But a refusal whose body could not be read has an empty one: see
    /// [`ApiError::body`]. Neither `Display` nor `Debug` prints it.
    ///
    /// # Example: keep a body that could not be decoded
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() {
    /// # let server = audience::mock::MockServer::builder().seed_contact("ada@example.com").start().await;
    /// # server.fault(audience::mock::Fault::wrong_body("<html>Sign in to the hotel network</html>"));
    /// # let contacts = server.client().contacts();
    /// use audience::ErrorKind;
    ///
    /// let error = contacts.retrieve("ada@example.com").await.unwrap_err();
    ///
    /// assert_eq!(error.kind(), ErrorKind::Decode);
    /// assert!(error.body().is_some_and(|body| body.starts_with(b"<html>")));
    /// # }
    /// ```
    #[must_use]
    pub fn body(&self) -> Option<&[u8]> {
        self.0.body.as_deref().or(self.api().map(ApiError::body))
    }

    /// Returns how many attempts the call made: 0 if it failed before the first, more than 1 if it was retried. A
    /// failed connection counts as an attempt. Some calls that send several requests count only the attempts of the
    /// request that failed.
    ///
    /// # Example: an invalid argument makes no attempt
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() {
    /// # let server = audience::mock::MockServer::start().await;
    /// # let contacts = server.client().contacts();
    /// let error = contacts.create_batch(Vec::<String>::new()).await.unwrap_err();
    ///
    /// assert_eq!(error.attempts(), 0);
    /// assert_eq!(error.to_string(), "create_batch: the batch is empty; send 1 to 100 entries");
    /// # }
    /// ```
    #[must_use]
    pub fn attempts(&self) -> u32 {
        self.0.attempts
    }

    /// Returns what happened and what to do, for a person who does not program, such as a support team.
    ///
    /// The text is English, in lowercase and without a full stop. Its wording may change in any release. Like
    /// `Display`, it contains no address, no key and no text of a body. `Display` is for logs: some errors say the same
    /// in both, so print one of them.
    ///
    /// If a change was made or may have been made, the text says so, as [`outcome`](Error::outcome) does. If a mail
    /// failed, it says whether the mail may have been sent. It never tells the person to repeat an opt-in that failed:
    /// see [`RetryPolicy`](crate::RetryPolicy).
    ///
    /// # Example: what a support tool shows
    ///
    /// If the service does not accept the input, its own message says what is wrong. The message may contain the input.
    ///
    /// ```
    /// use audience::{ApiError, Error};
    ///
    /// fn show(error: &Error) {
    ///     println!("{}", error.explanation());
    ///     if let Some(message) = error.api().and_then(ApiError::message) {
    ///         println!("the service says: {message:?}"); // without control characters
    ///     }
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() {
    /// # let server = audience::mock::MockServer::builder().seed_contact("ada@example.com").start().await;
    /// # let contacts = server.client().contacts();
    /// # server.report_spam("ada@example.com");
    /// let unknown = contacts.retrieve("nobody@example.com").await.unwrap_err();
    /// let locked = contacts.subscribe("ada@example.com").await.unwrap_err();
    ///
    /// assert_eq!(
    ///     unknown.explanation(),
    ///     "there is no contact with this address: check the address (404 not_found)"
    /// );
    /// assert!(locked.explanation().starts_with("the contact reported mail as spam"));
    /// # }
    /// ```
    #[must_use]
    pub fn explanation(&self) -> String {
        let message = &*self.0.message;
        let mut text = match self.api() {
            Some(api) => self.refusal_in_words(api),
            None if self.kind() == ErrorKind::Decode && !message.starts_with(MADE) => {
                format!(
                    "the response of the service cannot be used ({message}); tell your developers"
                )
            }
            None if self.0.advice.is_some() && !self.is_retryable() => {
                format!("{message}; tell your developers")
            }
            None => message.to_owned(),
        };
        let is_opt_in = self.is_opt_in();
        // Nobody can mend it by another click.
        let is_refused = self.api().is_some_and(|api| {
            let outcome = Outcome::from_status(api.status(), &Method::POST);
            !self.is_retryable() && outcome == Outcome::Refused
        });
        let is_confirmation =
            self.0.is_part_of_opt_in || self.0.operation == Some("confirm_opt_in");
        match self.outcome() {
            _ if self.0.operation == Some("send_email") => text += self.mail_in_words(),
            Outcome::Unknown if is_refused && is_confirmation => {
                text += "; a part of the change may have been made: look at the contact";
            }
            Outcome::Unknown if self.sends_opt_in() => {
                text += "; the opt-in may have been recorded or not: look at the contact";
            }
            Outcome::Unknown if is_opt_in => {
                text += "; the change may have been made or not: look at the contact";
            }
            Outcome::Unknown if self.0.operation == Some("change_address") => {
                text += "; a part of the change may have been made, and it is safe to repeat it";
            }
            Outcome::Unknown if self.0.is_repeatable => {
                text += "; the change may have been made or not, and it is safe to repeat it";
            }
            Outcome::Unknown => {
                text += "; the change may have been made or not: check before you repeat it";
            }
            Outcome::Applied if text.starts_with(MADE) => text += "; do not repeat it",
            Outcome::Applied => text += &format!("; {MADE}, so do not repeat it"),
            _ if self.0.is_after_change => {}
            Outcome::NotSent | Outcome::Refused if self.is_retryable() && !self.is_of_report() => {
                text += "; nothing was changed";
            }
            _ => {}
        }
        let seconds = self
            .retry_after()
            .map(|wait| wait.as_millis().div_ceil(1_000));
        if is_opt_in && (self.is_retryable() || self.outcome() == Outcome::Unknown && !is_refused) {
            text += "; ask the person again before you repeat an opt-in";
            if let Some(seconds) = seconds {
                text += &format!(", in {seconds} s at the earliest");
            }
        } else if self.is_retryable() && !self.is_of_report() {
            text += &seconds.map_or("; try again later".to_owned(), |seconds| {
                format!("; try again in {seconds} s")
            });
        }
        text
    }

    /// Returns whether the person has to be asked again before the call is repeated.
    fn is_opt_in(&self) -> bool {
        self.0.is_part_of_opt_in || self.sends_opt_in()
    }

    fn sends_opt_in(&self) -> bool {
        matches!(self.0.operation, Some("subscribe" | "confirm_opt_in"))
    }

    /// Says whether the mail was sent. A mail changes no contact at which somebody could look.
    fn mail_in_words(&self) -> &'static str {
        match self.outcome() {
            Outcome::Unknown if self.0.is_repeatable => {
                "; the mail may have been sent or not, and it is safe to send it again"
            }
            Outcome::Unknown => {
                "; the mail may have been sent or not: look whether it has arrived before you send it again"
            }
            Outcome::Applied => "; the service accepted the mail, so do not send it again",
            Outcome::NotSent | Outcome::Refused if self.is_retryable() => "; the mail was not sent",
            _ => "",
        }
    }

    fn refusal_in_words(&self, api: &ApiError) -> String {
        if let Some(target) = &api.redirected_to {
            return format!(
                "the response is a redirect to {target}, so it does not come from the service; tell your developers"
            );
        }
        let words = match self.missing() {
            Some(Missing::Contact) => "there is no contact with this address: check the address",
            Some(Missing::Topic) => "there is no topic with this name: check the name of the topic",
            Some(Missing::Segment) => "there is no segment with this id: check the id",
            None if self.is_not_found() => {
                "there is no such contact or topic: check the address and the name of the topic"
            }
            None if api.is_foreign_404() => {
                "the response does not come from the service: tell your developers"
            }
            None if self.is_validation_error() => "the service does not accept the input",
            None if self.is_already_exists() => "a contact with this address exists already",
            None if self.is_complaint_locked() => {
                "the contact reported mail as spam, so the service sends it no mail and accepts no opt-in"
            }
            None if self.is_quota_exceeded() => {
                "the plan has no room for another contact: choose a larger plan"
            }
            None if self.is_key_not_permitted() => {
                "the key may only send mail: use a full-access key"
            }
            None if self.is_unauthorized() => {
                "the service does not accept the key: it is wrong, belongs to another environment, or is expected in another header"
            }
            None if self.is_forbidden() => "the service does not allow this with this key",
            None if self.is_rate_limited() => "the service allows no more requests for the moment",
            None if self.is_retryable() => "the service is not available",
            None if api.status() == StatusCode::UNPROCESSABLE_ENTITY => {
                "the service does not accept the input, or refuses the change for this contact: look at the contact, and ask the service's support"
            }
            None if api.status() == StatusCode::PAYMENT_REQUIRED => {
                "the plan does not allow this: look at the plan in the service's dashboard"
            }
            None => "the service refused the request",
        };
        match api.printable_code() {
            Some(code) => format!("{words} ({} {code})", api.status().as_u16()),
            None => format!("{words} ({})", api.status().as_u16()),
        }
    }
}

impl Error {
    /// Creates the error of a write that the service refused at its first attempt, for example for a unit test. See
    /// also [`ApiError::new`].
    ///
    /// The status decides [`outcome`](Error::outcome) and [`is_retryable`](Error::is_retryable), as it does for
    /// a real response. The error belongs to no call, so its text does not begin with the name of one, and
    /// [`explanation`](Error::explanation) does not take it for that of an opt-in. After a status such as 503,
    /// [`may_repeat`](Error::may_repeat) is `false`, and [`exit_status`](crate::exit_status) 1, as for a mail.
    ///
    /// # Example: an overloaded service
    ///
    /// ```
    /// use audience::{ApiError, Error, Outcome, StatusCode};
    ///
    /// let error = Error::refused(ApiError::new(StatusCode::SERVICE_UNAVAILABLE, None, ""));
    ///
    /// assert!(error.is_retryable());
    /// assert_eq!(error.outcome(), Outcome::Unknown);
    /// ```
    #[must_use]
    pub fn refused(api: ApiError) -> Self {
        let outcome = Outcome::from_status(api.status(), &Method::POST);
        Self::from_api(api, outcome).after(1, Outcome::NotSent)
    }
}

impl Error {
    /// Returns whether the contact, topic or segment that the call names does not exist.
    ///
    /// `true` for the code `not_found`, and for a 404 without a code whose body is a JSON object. Any other
    /// 404 most likely comes from a proxy or a wrong base URL, and the error's text says so.
    ///
    /// A create, a batch, a mail, or a list without a segment does not refer to anything that may be missing. For such
    /// a call, the result is always `false`, even if [`code`](Error::code) returns `not_found`. So it is with a status
    /// such as 503, with which a service that is not available says nothing about a contact. This holds for every
    /// predicate of a code.
    ///
    /// A gateway may send a 404, so this method alone does not prove that a contact is missing: [most calls make
    /// sure](crate::contacts#a-404-is-no-proof) of it. [`missing`](Error::missing) says what does not exist.
    ///
    /// # Example: an opt-out of somebody who gets no mail
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), audience::Error> {
    /// # let server = audience::mock::MockServer::start().await;
    /// # let contacts = server.client().contacts();
    /// let address = "nobody@example.com";
    /// match contacts.unsubscribe(address).await {
    ///     Ok(_) => println!("you get no more mail from us"),
    ///     Err(error) if error.is_not_found() => println!("you get no mail from us"),
    ///     Err(error) => return Err(error),
    /// }
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn is_not_found(&self) -> bool {
        self.api().is_some_and(ApiError::is_not_found)
    }

    /// Returns what the service does not have, if [`is_not_found`](Error::is_not_found) is true and the response shows
    /// it.
    ///
    /// A missing contact concerns the visitor. A missing topic or segment is a mistake in the program. If a call has a
    /// topic, either the contact or the topic may be missing. The result is then [`Missing::Topic`] if the response
    /// names the topic, as the interface document promises ([section 4.5](crate::interface#4.5)), [`Missing::Contact`]
    /// if it names the address, and `None` if it names both or neither. A response names the topic if it has the name
    /// in quotation marks, after the word `topic`, or in the member `topic`. In any other place, the name may be a word
    /// of the sentence or a part of the path.
    ///
    /// The result is also `None` for a raw request and for an [`ApiError::new`].
    ///
    /// # Example: a misspelled topic
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() {
    /// # let server = audience::mock::MockServer::builder().topic("news", true).seed_contact("ada@example.com").start().await;
    /// # let contacts = server.client().contacts();
    /// use audience::Missing;
    ///
    /// let error = contacts.unsubscribe("ada@example.com").topic("nwes").await.unwrap_err();
    /// assert_eq!(error.missing(), Some(Missing::Topic));
    ///
    /// let error = contacts.unsubscribe("bob@example.com").topic("news").await.unwrap_err();
    /// assert_eq!(error.missing(), Some(Missing::Contact));
    /// # }
    /// ```
    #[must_use]
    pub fn missing(&self) -> Option<Missing> {
        self.api().filter(|api| api.is_not_found())?.missing
    }

    /// Returns whether a create call with
    /// [`OnConflict::Error`](crate::contacts::OnConflict::Error) was refused because the address
    /// already exists.
    ///
    /// `true` for the code `already_exists`. If a single create with `OnConflict::Error` is refused with a 409 that has
    /// no code, but a JSON object as its body, it is `true` too. A 409 without a code in response to any other call has
    /// another reason, so it is `false`.
    ///
    /// # Example: a contact that must be new
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), audience::Error> {
    /// # let server = audience::mock::MockServer::start().await;
    /// # let contacts = server.client().contacts();
    /// use audience::contacts::{NewContact, OnConflict};
    ///
    /// let ada = NewContact::new("ada@example.com").on_conflict(OnConflict::Error);
    /// contacts.create(ada.clone()).await?;
    ///
    /// let error = contacts.create(ada).await.unwrap_err();
    /// assert!(error.is_already_exists());
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn is_already_exists(&self) -> bool {
        self.is_refused_with(&ErrorCode::AlreadyExists)
    }

    /// Returns whether the write would exceed the plan's ceiling of stored contacts.
    ///
    /// `true` for the code `quota_exceeded`. If a create or a batch is refused with a 402 that has no code, but a JSON
    /// object as its body, it is `true` too. A retry fails in the same way until the plan is larger or the audience
    /// smaller.
    ///
    /// # Example: one contact more than the plan allows
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), audience::Error> {
    /// # let server = audience::mock::MockServer::builder().contact_ceiling(1).start().await;
    /// # let contacts = server.client().contacts();
    /// contacts.create("ada@example.com").await?;
    ///
    /// let error = contacts.create("bob@example.com").await.unwrap_err();
    /// assert!(error.is_quota_exceeded() && !error.is_retryable());
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn is_quota_exceeded(&self) -> bool {
        self.is_refused_with(&ErrorCode::QuotaExceeded)
    }

    /// Returns whether a subscribe was refused because the contact reported spam
    /// ([interface section 3.2](crate::interface#3.2)).
    ///
    /// `true` for the code `failed_precondition`. A 422 without a code does not count, because it may
    /// also mean `validation_error`.
    ///
    /// # Example: explain the lock to the visitor
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() {
    /// # let server = audience::mock::MockServer::builder().seed_contact("ada@example.com").start().await;
    /// # let contacts = server.client().contacts();
    /// # server.report_spam("ada@example.com");
    /// let error = contacts.subscribe("ada@example.com").await.unwrap_err();
    ///
    /// if error.is_complaint_locked() {
    ///     println!("You reported our mail as spam, so we cannot send you mail again.");
    /// }
    /// # assert!(error.is_complaint_locked());
    /// # }
    /// ```
    #[must_use]
    pub fn is_complaint_locked(&self) -> bool {
        self.is_refused_with(&ErrorCode::FailedPrecondition)
    }

    /// Returns whether a sending-access key was used on an endpoint that needs a full-access key.
    ///
    /// `true` for the code `key_not_permitted`.
    ///
    /// # Example: the wrong kind of key
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), audience::Error> {
    /// # let server = audience::mock::MockServer::start().await;
    /// # let (base_url, sending_key) = (server.url(), server.sending_key());
    /// use audience::Client;
    ///
    /// let contacts = Client::new(base_url, sending_key)?.contacts();
    ///
    /// let error = contacts.create("ada@example.com").await.unwrap_err();
    /// assert!(error.is_key_not_permitted());
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn is_key_not_permitted(&self) -> bool {
        self.is_refused_with(&ErrorCode::KeyNotPermitted)
    }

    /// Returns whether the service refused the input as invalid. [`ApiError::message`] says why.
    ///
    /// `true` for the code `validation_error`.
    ///
    /// # Example: a mistake in a form
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() {
    /// # let server = audience::mock::MockServer::start().await;
    /// # let contacts = server.client().contacts();
    /// let error = contacts.create("not an address").await.unwrap_err();
    ///
    /// assert!(error.is_validation_error());
    /// assert_eq!(
    ///     error.to_string(),
    ///     "create: the service responded 422 validation_error; its message says why",
    /// );
    /// # }
    /// ```
    #[must_use]
    pub fn is_validation_error(&self) -> bool {
        self.is_refused_with(&ErrorCode::ValidationError)
    }

    /// Returns the status of the service's response, if it refused the request.
    ///
    /// `None` unless the kind is [`ErrorKind::Api`](crate::ErrorKind::Api).
    ///
    /// # Example: pass the status on to your own caller
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() {
    /// # let server = audience::mock::MockServer::start().await;
    /// # let contacts = server.client().contacts();
    /// use audience::StatusCode;
    ///
    /// let error = contacts.retrieve("nobody@example.com").await.unwrap_err();
    ///
    /// let status = error.status().unwrap_or(StatusCode::BAD_GATEWAY);
    /// assert_eq!(status, StatusCode::NOT_FOUND);
    /// # }
    /// ```
    #[must_use]
    pub fn status(&self) -> Option<StatusCode> {
        self.api().map(ApiError::status)
    }

    /// Returns the status of your own response to the visitor for whom the call was made.
    ///
    /// | status | if |
    /// |---|---|
    /// | 404 | the contact does not exist: [`missing`](Error::missing) returns [`Missing::Contact`] |
    /// | 409 | the contact reported spam, or exists already: [`is_complaint_locked`](Error::is_complaint_locked), [`is_already_exists`](Error::is_already_exists) |
    /// | 422 | the service refused the input ([`is_validation_error`](Error::is_validation_error)), or the address was refused before a request, by [`check_address`](crate::contacts::check_address) or because it is empty, or a name or a property cannot be in the link of a confirmation mail |
    /// | 503 | the visitor may try again: [`is_retryable`](Error::is_retryable) |
    /// | 500 | anything else. The visitor can do nothing, so alert your team: arguments, such as a topic that does not exist, the key, the settings, or a plan that is full |
    ///
    /// After [`Outcome::Applied`](crate::Outcome::Applied), it is 500, too. But the change was made: say so to the
    /// visitor. After a change of address that may have been made before
    /// ([`ErrorKind::Ambiguous`](crate::ErrorKind::Ambiguous)), it is 500, and most likely everything is done.
    ///
    /// Any other error of the kind [`Input`](crate::ErrorKind::Input) is 500. So check the visitor's address before the
    /// call. If visitors choose a rule, respond with 422 yourself: a rule without conditions, for example, is such an error.
    ///
    /// # Example: a visitor whose address is unknown
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() {
    /// # let server = audience::mock::MockServer::start().await;
    /// # let contacts = server.client().contacts();
    /// use audience::StatusCode;
    ///
    /// let error = contacts.unsubscribe("nobody@example.com").await.unwrap_err();
    ///
    /// assert_eq!(error.visitor_status(), StatusCode::NOT_FOUND);
    /// # }
    /// ```
    #[must_use]
    pub fn visitor_status(&self) -> StatusCode {
        if self.missing() == Some(Missing::Contact) {
            StatusCode::NOT_FOUND
        } else if self.is_complaint_locked() || self.is_already_exists() {
            StatusCode::CONFLICT
        } else if self.is_validation_error() || self.is_refused_input() {
            StatusCode::UNPROCESSABLE_ENTITY
        } else if self.is_retryable() {
            StatusCode::SERVICE_UNAVAILABLE
        } else {
            StatusCode::INTERNAL_SERVER_ERROR
        }
    }

    /// Returns whether the address, a name or a property of one contact cannot be used, so that no request was sent.
    fn is_refused_input(&self) -> bool {
        self.kind() == ErrorKind::Input && self.0.is_malformed_contact
    }

    /// Returns whether the error is about one contact that cannot be read or addressed, so that a loop over contacts
    /// can log it and continue with the next one.
    ///
    /// `true` if an item of a list or the contact in the response to a retrieve request does not have the form that the
    /// interface document shows, if [`find`](crate::contacts::Contacts::find) gets another contact, if an issue cannot
    /// retrieve a contact that the list has, and if an address is
    /// empty, `.` or `..`, so that no request can name its contact, or
    /// [`check_address`](crate::contacts::check_address) refuses it, or if the names or properties of one contact cannot be
    /// in the link of a confirmation mail. It is `false` if the response is no JSON object,
    /// has neither `id` nor `email`, or reports an error: then the next contact would fail, too.
    ///
    /// A stream continues after such an error: see [`ContactStream`](crate::contacts::ContactStream).
    ///
    /// # Example: a loop that leaves out malformed contacts
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), audience::Error> {
    /// # let server = audience::mock::MockServer::builder().seed_contact("ada@example.com").start().await;
    /// # let contacts = server.client().contacts();
    /// use audience::mock::Fault;
    /// use futures_util::StreamExt;
    ///
    /// # let body = r#"{"data": [{"id": "c_1"}], "next": null}"#;
    /// server.fault(Fault::wrong_body(body).times(1)); // a contact without an address
    /// # server.fault(Fault::status(200).body(r#"{"data": []}"#));
    ///
    /// let mut stream = contacts.list().stream();
    /// while let Some(contact) = stream.next().await {
    ///     match contact {
    ///         Ok(contact) => println!("{}", contact.email),
    ///         Err(error) if error.is_malformed_contact() => eprintln!("left out: {error}"),
    ///         Err(error) => return Err(error),
    ///     }
    /// }
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn is_malformed_contact(&self) -> bool {
        self.0.is_malformed_contact
    }

    /// Returns whether an attempt took longer than its timeout, or the call longer than its deadline.
    ///
    /// A 408 or 504 of the service does not count: see [`status`](Error::status).
    ///
    /// # Example: a response that comes too late
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() {
    /// # let server = audience::mock::MockServer::start().await;
    /// # let contacts = server.client().contacts();
    /// use std::time::Duration;
    /// use audience::RetryPolicy;
    /// use audience::mock::Fault;
    ///
    /// server.fault(Fault::delay(Duration::from_secs(60)));
    ///
    /// let call = contacts.list().timeout(Duration::from_millis(1)).retry(RetryPolicy::none());
    /// assert!(call.await.unwrap_err().is_timeout());
    /// # }
    /// ```
    #[must_use]
    pub fn is_timeout(&self) -> bool {
        self.kind() == ErrorKind::Timeout
    }

    /// Returns whether the service responded 429, or whether an earlier 429 held back this call so that nothing
    /// was sent.
    ///
    /// # Example: retry when the service allows it
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), audience::Error> {
    /// # let server = audience::mock::MockServer::start().await;
    /// # server.fault(audience::mock::Fault::status(429).retry_after(3_600));
    /// # let contacts = server.client().contacts();
    /// let error = contacts.retrieve("ada@example.com").await.unwrap_err();
    ///
    /// if let (true, Some(wait)) = (error.is_rate_limited(), error.retry_after()) {
    ///     println!("retry in {} s", wait.as_secs());
    /// }
    /// # assert!(error.is_rate_limited() && error.retry_after().is_some());
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn is_rate_limited(&self) -> bool {
        self.status() == Some(StatusCode::TOO_MANY_REQUESTS)
    }

    /// Returns whether the service responded 401: it does not accept the key.
    ///
    /// The key is wrong or belongs to another environment, or the service expects it in another header:
    /// see [`Auth`](crate::Auth).
    ///
    /// # Example: check the key when the program starts
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), audience::Error> {
    /// # let server = audience::mock::MockServer::start().await;
    /// # let base_url = server.url();
    /// use audience::Client;
    ///
    /// let contacts = Client::new(base_url, "revoked-key")?.contacts();
    ///
    /// let error = contacts.list().limit(1).await.unwrap_err();
    /// assert!(error.is_unauthorized());
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn is_unauthorized(&self) -> bool {
        self.status() == Some(StatusCode::UNAUTHORIZED)
    }

    /// Returns whether the service responded 403: the key may not be used for this call.
    ///
    /// [`is_key_not_permitted`](Error::is_key_not_permitted) returns whether the reason is the one that the interface
    /// document names.
    ///
    /// # Example: a rule of the service that this crate does not know
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() {
    /// # let server = audience::mock::MockServer::start().await;
    /// # let contacts = server.client().contacts();
    /// use audience::mock::Fault;
    ///
    /// server.fault(Fault::status(403).body(r#"{"code": "account_paused"}"#));
    ///
    /// let error = contacts.list().await.unwrap_err();
    /// assert!(error.is_forbidden() && !error.is_key_not_permitted());
    /// # }
    /// ```
    #[must_use]
    pub fn is_forbidden(&self) -> bool {
        self.status() == Some(StatusCode::FORBIDDEN)
    }

    /// Returns how long the service asked to wait, if its response has a `Retry-After` header.
    ///
    /// If a call would have to wait longer than the policy's
    /// [`max_retry_after`](crate::RetryPolicy::max_retry_after), or past its deadline, it fails immediately. Retry it
    /// after this time.
    ///
    /// # Example: a service that is down for maintenance
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() {
    /// # let server = audience::mock::MockServer::start().await;
    /// # let contacts = server.client().contacts();
    /// use std::time::Duration;
    /// use audience::mock::Fault;
    ///
    /// server.fault(Fault::status(503).retry_after(600));
    ///
    /// let error = contacts.list().await.unwrap_err();
    /// assert_eq!(error.retry_after(), Some(Duration::from_secs(600)));
    /// # }
    /// ```
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        self.api().and_then(ApiError::retry_after)
    }

    fn is_refused_with(&self, code: &ErrorCode) -> bool {
        self.api().is_some_and(|api| api.is(code))
    }
}

/// Constructors, one for each cause.
impl Error {
    /// Creates the error for a response with a status other than 2xx. `redirected_to` names the target of a
    /// redirect and says why it is not followed.
    pub(crate) fn from_response(
        response: http::Response<Bytes>,
        method: &Method,
        target: &Target,
        redirected_to: Option<String>,
        read_error: Option<&ReadError>,
    ) -> Self {
        let outcome = Outcome::from_status(response.status(), method);
        let mut api = ApiError {
            retry_after: retry_after(response.headers(), SystemTime::now()),
            redirected_to,
            ..ApiError::from_response(response, target)
        };
        if let Some((code, message)) = read_error.and_then(|read| read(&api)) {
            api.code = Some(ErrorCode::from_slug(code.as_str())).filter(|code| !code.is_empty());
            api.message = Some(message).filter(|message| !message.is_empty());
        }
        if api.is_not_found() {
            api.missing = target.missing(&api.body);
        }
        Self::from_api(api, outcome)
    }

    /// Creates the error for a topic that no retrieved contact shows, so the service does not have it. Its answer was
    /// not sent.
    pub(crate) fn unknown_topic(message: &'static str) -> Self {
        let mut error = Self::from_api(ApiError::missing(Missing::Topic), Outcome::NotSent);
        error.0.message = message.into();
        error
    }

    /// Creates the error for a request that was not sent because the service has asked to wait this long.
    pub(crate) fn held_back(left: Duration) -> Self {
        let api = ApiError {
            retry_after: Some(left),
            ..ApiError::without_body(StatusCode::TOO_MANY_REQUESTS)
        };
        let mut error = Self::from_api(api, Outcome::NotSent);
        let seconds = left.as_millis().div_ceil(1_000);
        error.0.message = format!(
            "rate limited: the service asked to wait another {seconds} s, so the request was not sent"
        )
        .into();
        error
    }

    /// Returns whether this is a 403 that does not look like one of the service, because its body is no JSON object. It
    /// most likely comes from a firewall, which may have refused only what this request contains.
    #[cfg(any(feature = "import", feature = "unsubscribe"))]
    pub(crate) fn is_foreign_403(&self) -> bool {
        self.api().is_some_and(ApiError::is_foreign_403)
    }

    /// Adds what else has failed to the end of the text.
    #[cfg(feature = "import")]
    pub(crate) fn adding(mut self, failure: String) -> Self {
        self.0.also = Some(failure);
        self
    }

    /// Says that this 404 does not come from the service, which has what the request names. The base URL is right, because
    /// another request found the contact, so a later call may succeed.
    pub(crate) fn not_from_service(mut self) -> Self {
        self.0.is_retryable = true;
        if let Some(api) = &mut self.0.api {
            api.has_target = false;
            api.missing = None;
            self.0.message = api.summary().into();
        }
        self
    }

    /// Says that this refusal is about a missing contact or topic, after another request has proved it. So the call would
    /// fail again, whatever its status.
    pub(crate) fn about_missing(mut self, thing: Missing) -> Self {
        self.0.is_retryable = false;
        if let Some(api) = &mut self.0.api {
            api.code = Some(ErrorCode::NotFound);
            api.missing = Some(thing);
            self.0.message = api.summary().into();
        }
        self
    }

    /// Returns the error with the request id as the only header of its response, and without most of a long body and
    /// message, so that many errors take little memory.
    #[cfg(feature = "unsubscribe")]
    pub(crate) fn shortened(mut self) -> Self {
        const MAX_BODY: usize = 4 * 1024;
        // A copy: a part of the body would keep all of it in memory.
        let cut = |body: &Bytes| Bytes::copy_from_slice(&body[..body.len().min(MAX_BODY)]);
        self.0.body = self.0.body.as_ref().map(cut);
        if let Some(api) = &mut self.0.api {
            let ids = REQUEST_IDS.iter().filter_map(|name| {
                let id = api.headers.get(*name)?.clone();
                Some((http::HeaderName::from_static(name), id))
            });
            api.headers = ids.collect();
            api.body = cut(&api.body);
            api.message = api.message.as_deref().map(shortened);
        }
        self
    }

    fn from_api(api: ApiError, outcome: Outcome) -> Self {
        let mut error = Self::new(ErrorKind::Api, outcome, api.summary());
        error.0.is_retryable = is_transient(api.status());
        error.0.api = Some(api);
        error
    }

    pub(crate) fn config(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(ErrorKind::Config, Outcome::NotSent, message)
    }

    pub(crate) fn decode(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(ErrorKind::Decode, Outcome::Unknown, message)
    }

    pub(crate) fn input(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(ErrorKind::Input, Outcome::NotSent, message)
    }

    /// Creates the error of a job that was asked to stop. Its report says what was done.
    #[cfg(any(feature = "import", feature = "unsubscribe"))]
    pub(crate) fn stopped(message: &'static str) -> Self {
        Self::new(ErrorKind::Stopped, Outcome::NotSent, message).retryable()
    }

    /// Creates the error of a job that reached its end, but has left something undone.
    #[cfg(any(feature = "import", feature = "unsubscribe"))]
    pub(crate) fn unfinished(reason: impl Into<Cow<'static, str>>, is_retryable: bool) -> Self {
        let error = Self::new(ErrorKind::Unfinished, Outcome::NotSent, reason);
        match is_retryable {
            true => error.retryable(),
            false => error,
        }
    }

    /// Returns whether this is the error of a job that ended without a failed call.
    pub(crate) fn is_of_report(&self) -> bool {
        matches!(self.kind(), ErrorKind::Stopped | ErrorKind::Unfinished)
    }

    /// Returns how a job with this error has ended, for the text of its own error.
    #[cfg(any(feature = "import", feature = "unsubscribe"))]
    pub(crate) fn end_of_job(&self) -> &'static str {
        match self.is_of_report() {
            true => "is not finished",
            false => "stopped before its end",
        }
    }

    pub(crate) fn transport(message: &'static str) -> Self {
        Self::new(ErrorKind::Transport, Outcome::Unknown, message)
    }

    pub(crate) fn new(
        kind: ErrorKind,
        outcome: Outcome,
        message: impl Into<Cow<'static, str>>,
    ) -> Self {
        Self(Box::new(Inner {
            kind,
            operation: None,
            message: message.into(),
            advice: None,
            also: None,
            api: None,
            outcome,
            attempts: 0,
            is_retryable: matches!(
                kind,
                ErrorKind::Connect | ErrorKind::Timeout | ErrorKind::Transport
            ),
            is_repeatable: false,
            is_part_of_opt_in: false,
            is_after_change: false,
            is_malformed_contact: false,
            body: None,
            source: None,
        }))
    }

    /// Creates the error for a write that was applied, but whose response has no contact, if retrieving the contact
    /// failed too. `body` is the response to the write. `invalid` says what is wrong with the contact in the response,
    /// if it has one.
    pub(crate) fn not_read_back(invalid: Option<String>, body: Bytes, source: Self) -> Self {
        let unread = match invalid {
            Some(invalid) => format!("the contact in the response cannot be read ({invalid})"),
            None => "the response has no contact".to_owned(),
        };
        let message = format!("{MADE}, but {unread}, and the contact could not be retrieved");
        Self::new(ErrorKind::Decode, Outcome::Applied, message)
            .reading(body)
            .caused_by(source)
    }

    /// Creates the error for a write whose 2xx response has no contact with the change, if the contact that was
    /// retrieved afterwards does not have it either.
    pub(crate) fn not_applied(is_repeatable: bool) -> Self {
        let advice = match is_repeatable {
            true => "check the base URL and repeat the call",
            false => CHECK_THE_BASE_URL,
        };
        let message = "the response has no contact with the change, and neither has the contact that was retrieved, so the response most likely comes from a proxy or another server";
        let error = Self::decode(message).advising(advice);
        error.repeatable(is_repeatable).retryable()
    }

    /// Says what a developer should look at.
    pub(crate) fn advising(mut self, advice: &'static str) -> Self {
        self.0.advice = Some(advice);
        self
    }

    /// Says what is known about the write.
    pub(crate) fn with_outcome(mut self, outcome: Outcome) -> Self {
        self.0.outcome = outcome;
        self
    }

    /// Makes this the error of a call whose own request ended with this outcome, and which could not read whether that
    /// is true.
    pub(crate) fn of_proof(self, attempts: u32, outcome: Outcome) -> Self {
        let attempts = attempts + self.attempts();
        self.with_outcome(outcome).after(attempts, outcome)
    }

    /// Says that the call only reads.
    pub(crate) fn set_read(&mut self) {
        self.0.outcome = self.0.outcome.min(Outcome::Unchanged);
    }

    /// Says that the request belongs to a call that was to opt in.
    pub(crate) fn set_part_of_opt_in(&mut self) {
        self.0.is_part_of_opt_in = true;
    }

    /// Says that an earlier request of the call has changed something.
    pub(crate) fn set_after_change(&mut self) {
        self.0.is_after_change = true;
    }

    /// Says that the same call may succeed later.
    pub(crate) fn retryable(mut self) -> Self {
        self.0.is_retryable = true;
        self
    }

    /// Says that the same call would fail again.
    pub(crate) fn not_retryable(mut self) -> Self {
        self.0.is_retryable = false;
        self
    }

    /// Says that only one contact is at fault: see [`is_malformed_contact`](Self::is_malformed_contact).
    pub(crate) fn malformed_contact(mut self) -> Self {
        self.0.is_malformed_contact = true;
        self
    }

    /// Says whether the call may be repeated without harm although it may have been applied.
    pub(crate) fn repeatable(mut self, is_repeatable: bool) -> Self {
        self.0.is_repeatable = is_repeatable;
        self
    }

    /// Adds the name of the operation that failed.
    pub(crate) fn at(mut self, operation: &'static str) -> Self {
        self.0.operation = Some(operation);
        self
    }

    /// Returns whether the operation with this name failed.
    #[cfg(feature = "import")]
    pub(crate) fn is_at(&self, operation: &str) -> bool {
        self.0.operation == Some(operation)
    }

    /// Puts the name of the thing that failed before the message.
    pub(crate) fn about(mut self, name: &str) -> Self {
        self.0.message = format!("{name}: {}", self.0.message).into();
        self
    }

    /// Adds the error that caused this one.
    pub(crate) fn caused_by(mut self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        self.0.source = Some(source.into());
        self
    }

    /// Adds the body that could not be decoded, unless the error has a part of it already.
    pub(crate) fn reading(mut self, body: Bytes) -> Self {
        self.0.body.get_or_insert(body);
        self
    }

    /// Says that other requests of the call were to follow: even if this one was applied, the call was not.
    pub(crate) fn before_others(mut self) -> Self {
        if self.0.outcome == Outcome::Applied {
            self.0.outcome = Outcome::Unknown;
        }
        self
    }

    /// Says that the call may have been applied, although this request was not.
    pub(crate) fn maybe_applied(self) -> Self {
        let attempts = self.attempts();
        self.after(attempts, Outcome::Unknown)
    }

    /// Adds the number of attempts, and the least certain outcome of the earlier ones.
    pub(crate) fn after(mut self, attempts: u32, earlier: Outcome) -> Self {
        self.0.attempts = attempts;
        self.0.outcome = self.0.outcome.max(earlier);
        self
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(operation) = self.0.operation {
            write!(f, "{operation}: ")?;
        }
        f.write_str(&self.0.message)?;
        if let Some(advice) = self.0.advice {
            write!(f, "; {advice}")?;
        }
        if self.0.attempts > 1 {
            write!(f, " (after {} attempts)", self.0.attempts)?;
        }
        if f.alternate()
            && let Some(cause) = self.source()
        {
            write!(f, ": {}", with_causes(cause))?;
        }
        match &self.0.also {
            Some(failure) => write!(f, "; {failure}"),
            None => Ok(()),
        }
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("Error");
        debug
            .field("kind", &self.0.kind)
            .field("message", &self.0.message);
        if let Some(advice) = self.0.advice {
            debug.field("advice", &advice);
        }
        debug
            .field("outcome", &self.0.outcome)
            .field("attempts", &self.0.attempts);
        if let Some(operation) = self.0.operation {
            debug.field("operation", &operation);
        }
        if let Some(api) = &self.0.api {
            debug.field("api", api);
        }
        if let Some(failure) = &self.0.also {
            debug.field("also", failure);
        }
        // The body stays out: it may name a contact.
        if let Some(source) = &self.0.source {
            debug.field("source", source);
        }
        debug.finish()
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.0.source.as_deref().map(|source| source as _)
    }
}

/// The start of the message if a write was applied but its value is missing.
const MADE: &str = "the change was made";

/// The advice of an error that a wrong base URL or a gateway may cause.
pub(crate) const CHECK_THE_BASE_URL: &str = "check the base URL";

/// A thing that a call names and the service does not have: see [`Error::missing`].
///
/// # Example: what to tell a visitor
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// # let server = audience::mock::MockServer::start().await;
/// # let contacts = server.client().contacts();
/// use audience::Missing;
///
/// let error = contacts.retrieve("nobody@example.com").await.unwrap_err();
///
/// match error.missing() {
///     Some(Missing::Contact) => println!("You get no newsletters from us."),
///     Some(Missing::Topic | Missing::Segment) => println!("Something is wrong on our side."),
///     _ => println!("It does not exist, or another error occurred: {error}"),
/// }
/// # assert_eq!(error.missing(), Some(Missing::Contact));
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Missing {
    /// The address is not one of your contacts.
    Contact,
    /// There is no topic of this name. Topics are created outside of this interface, so check the spelling.
    Topic,
    /// There is no segment with this id.
    Segment,
}

/// The place where a call failed, which says who can fix it.
///
/// # Example: whom to tell about an error
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// # let server = audience::mock::MockServer::start().await;
/// # let contacts = server.client().contacts();
/// use audience::ErrorKind;
///
/// let error = contacts.create_batch(Vec::<String>::new()).await.unwrap_err();
///
/// match error.kind() {
///     ErrorKind::Input | ErrorKind::Config => println!("fix the program: {error}"),
///     ErrorKind::Api => println!("the service refused: {:?}", error.code()),
///     _ if error.is_retryable() => println!("retry later: {error}"),
///     _ => println!("report a fault: {error}"),
/// }
/// # assert_eq!(error.kind(), ErrorKind::Input);
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// [`change_address`](crate::contacts::Contacts::change_address) cannot know whether an earlier call has changed the
    /// address: the old contact is opted out, and the new one is subscribed.
    ///
    /// Compare both contacts. If the old one was opted out during the call, [`Error::outcome`] is `Unknown`. Otherwise,
    /// it is `Unchanged`.
    Ambiguous,
    /// The service responded with a status other than 2xx, or an earlier 429 still holds back the client (see
    /// [`RetryPolicy`](crate::RetryPolicy#retry-after)). Or [`set_topics`](crate::contacts::Contacts::set_topics) found
    /// that a topic of its form does not exist, so the service would respond with 404.
    ///
    /// [`Error::api`](Error::api) has the response. Its [code](ApiError::code) says what to do.
    Api,
    /// The client cannot be built, because the base URL, the key or another setting is invalid. Nothing was sent. Or an
    /// import or an export cannot read or write one of its files.
    ///
    /// Fix the configuration or the file.
    Config,
    /// The client could not connect: the host name was not found, the connection was refused, or the
    /// TLS handshake failed.
    ///
    /// This attempt sent nothing; [`Error::outcome`](Error::outcome) covers earlier ones too. Check
    /// the base URL, the network, the proxy, and the error's [`source`](std::error::Error::source). A retry does not
    /// help if rustls rejected the server's certificate, so [`Error::is_retryable`] is then false.
    Connect,
    /// The service responded with 2xx, but the body cannot be used: it is not the expected JSON, does not
    /// decompress, or exceeds the [`body_limit`](crate::ClientBuilder::body_limit).
    ///
    /// The text of the error says which, with the JSON path if there is one. [`Error::body`](Error::body) has the body
    /// if it was read. [`Error::outcome`] says whether a write was applied: most likely it was.
    Decode,
    /// The request cannot be sent because an argument is invalid: for example an address that would
    /// reach another endpoint, an empty batch, a number that JSON cannot represent, or a rule that makes
    /// the URL longer than 65,534 bytes.
    ///
    /// Fix the argument. Nothing was sent.
    ///
    /// Or a job has stopped, such as an import whose file cannot be read to its end, or whose journal belongs to other
    /// rows: its report says what was sent. Fix the input of the job.
    Input,
    /// The service repeated a cursor or a page, so listing stopped to avoid an endless loop. Or the service sent a cursor
    /// that is too long for a URL.
    ///
    /// All items returned before the error are valid, but contacts on repeated pages may have been
    /// returned twice.
    Pagination,
    /// The future given to `stop_when` ended an import, a sync, an export or the sending of an issue. The next run does
    /// the rest.
    Stopped,
    /// An attempt took longer than its timeout, or the whole call took longer than its deadline.
    ///
    /// Unless [`Error::outcome`](Error::outcome) says otherwise, a write may have been applied.
    Timeout,
    /// The connection broke, the response was not valid HTTP, or a client passed to
    /// [`http_client`](crate::ClientBuilder::http_client) followed a redirect.
    ///
    /// A write may have been applied.
    Transport,
    /// An import, a sync or the sending of an issue ran to its end, but not everything is done: an opt-out failed, or a
    /// row has no known outcome, or an issue had no reader. `finished` of its report returns this. Or
    /// [`change_address`](crate::contacts::Contacts::change_address) has left opt-outs, or
    /// `UnsubscribeService::change_address` has found an opt-out that waits to be sent.
    ///
    /// [`Error::is_retryable`] says whether the next run may do the rest without a change.
    Unfinished,
    /// The service does not support the call: see [`delete`](crate::contacts::Contacts::delete).
    ///
    /// The error's [`source`](std::error::Error::source) is the refusal, if there was one.
    Unsupported,
}

/// Writes the kind as one lowercase word, such as `timeout`, for logs and metrics.
impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Ambiguous => "ambiguous",
            Self::Api => "api",
            Self::Config => "config",
            Self::Connect => "connect",
            Self::Decode => "decode",
            Self::Input => "input",
            Self::Pagination => "pagination",
            Self::Stopped => "stopped",
            Self::Timeout => "timeout",
            Self::Transport => "transport",
            Self::Unfinished => "unfinished",
            Self::Unsupported => "unsupported",
        })
    }
}

/// Says whether a failed write may have been applied anyway.
///
/// If a call made several attempts, the one that is most likely to have been applied counts: the variants are in this
/// order. For example, if the first attempt got no response and the second was refused, the outcome is
/// [`Unknown`](Outcome::Unknown).
///
/// # A 2xx response that cannot be read
///
/// A 2xx status means that the service did what the call asked for, unless the body says otherwise. So if only the body
/// is missing or malformed, the outcome is [`Applied`](Outcome::Applied). There are five exceptions, whose outcome is
/// [`Unknown`](Outcome::Unknown):
///
/// - The body is an HTML or XML page. The service sends JSON, so the page most likely comes from elsewhere: the login
///   page of a network, or another site at a wrong base URL.
/// - The body is a JSON object that reports an error: it has an `error` or `errors` that is not empty, a `success` or
///   `ok` that is `false`, or a `code` or `status` that is a number from 400 to 599. A body that can be read as a
///   contact is no error, even if it has such a member.
/// - The body could not be read to its end, or is compressed in a way that the client cannot decode.
/// - The call is an opt-in or an opt-out, and the contact that is retrieved afterwards does not show it; or it is an
///   opt-out, and the contact cannot be retrieved; or it is an opt-in, and the response to the retrieve request has no
///   contact either: see [`subscribe`](crate::contacts::Contacts::subscribe) and
///   [`unsubscribe`](crate::contacts::Contacts::unsubscribe).
/// - The call is a batch. Its status is 2xx even if entries fail, so without the report nothing is known about them.
///
/// # Example: when to check before a retry
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), audience::Error> {
/// # let server = audience::mock::MockServer::start().await;
/// # let contacts = server.client().contacts();
/// use audience::Outcome;
/// use audience::contacts::NewContact;
///
/// if let Err(error) = contacts.create(NewContact::new("not an address")).await {
///     match error.outcome() {
///         Outcome::NotSent => println!("nothing was sent: retry"),
///         Outcome::Refused => println!("not applied: fix the contact first"),
///         Outcome::Unchanged => println!("the call has only read"),
///         Outcome::Unknown => println!("retrieve the contact to find out"),
///         Outcome::Applied => println!("applied: nothing to do but to report the odd response"),
///     }
/// #   assert_eq!(error.outcome(), Outcome::Refused);
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Outcome {
    /// No request reached the service. A retry is safe.
    NotSent,
    /// The service responded, and did not apply the write.
    Refused,
    /// The call sent only requests that read, so it changed nothing, whether they reached the service or not. A retry
    /// is safe.
    Unchanged,
    /// The write may or may not have been applied: there was no response, the response could not be
    /// read, or its status was 101, 303, 408, or 5xx other than 501.
    ///
    /// [`retrieve`](crate::contacts::Contacts::retrieve) the contact to find out.
    Unknown,
    /// The service responded with 2xx, so it applied the write, but its response does not have what the call returns.
    ///
    /// A create with [`OnConflict::Skip`](crate::contacts::OnConflict::Skip) may have found a contact and left it
    /// unchanged, as it should.
    Applied,
}

impl Outcome {
    /// Returns `not_sent`, `refused`, `unchanged`, `unknown` or `applied`: a name for logs and metrics.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NotSent => "not_sent",
            Self::Refused => "refused",
            Self::Unchanged => "unchanged",
            Self::Unknown => "unknown",
            Self::Applied => "applied",
        }
    }

    pub(crate) fn may_be_applied(self) -> bool {
        matches!(self, Self::Unknown | Self::Applied)
    }

    /// Returns the outcome of a request that got a response with this status, which is not 2xx.
    ///
    /// A 501 says that the service does not implement the request, so it did not apply it. A 408 or another 5xx may
    /// come from a proxy that forwarded the request and then stopped waiting. A 303 in response to a write says that
    /// the service processed it and shows the result at another URL. A 101, which the client did not ask for, says only
    /// that the response follows in another protocol, so the client cannot read it.
    fn from_status(status: StatusCode, method: &Method) -> Self {
        let is_processed = status == StatusCode::SEE_OTHER && !method.is_safe();
        if status == StatusCode::NOT_IMPLEMENTED {
            return Self::Refused;
        }
        if status.is_server_error()
            || status.is_informational()
            || status == StatusCode::REQUEST_TIMEOUT
            || is_processed
        {
            if method.is_safe() {
                Self::Unchanged
            } else {
                Self::Unknown
            }
        } else {
            Self::Refused
        }
    }
}

/// Returns whether a status says that the service cannot respond now, but may do so later.
pub(crate) fn is_transient(status: StatusCode) -> bool {
    // Gateways have statuses of their own, such as 520 to 527. A 501 or a 505 stays as it is.
    matches!(status.as_u16(), 408 | 425 | 429 | 500 | 502..=504 | 506..=599)
}

/// The response with which the service refused a request.
///
/// The interface document does not show the shape of an error body ([section 7](crate::interface#7)). So the client
/// looks for the code and the message in every member that services commonly use for them, and always keeps the body. A
/// body over 1 MiB is kept, but not searched.
///
/// # How the code is found
///
/// 1. In the members `code`, `slug`, `error_code`, `error`, `type`, `name` and `status` of the body, of its members
///    `error` and `detail`, and of each item of `errors`. A documented slug takes precedence over any other. It may
///    stand at the end of a longer name, as in `contact.not_found`, `https://example.com/errors/not-found` or
///    `urn:problem:not_found`.
/// 2. If there is no documented slug, in any other text of the body that is one, or ends with one in this way. If the
///    body has several documented slugs in such places, none of them counts. This step is only for a 4xx status other
///    than 401, 407, 408, 425 and 429. It leaves out members that repeat the request or lead to documentation, such as
///    `email`, `topic`, `path`, `url`, `help` and all of `input`.
/// 3. If there is still none, the first undocumented slug in the members of step 1 is the code. In `type`, it may be
///    the last part of a URL or URN, as in `https://example.com/errors/rate-limited`, if it has only letters, `-` and
///    `_`.
/// 4. If your service does it in yet another way, tell the client:
///    [`ClientBuilder::read_errors`](crate::ClientBuilder::read_errors).
///
/// A number, or the words of the HTTP status as HTTP writes them, such as `"error": "Conflict"` with a 409, only repeat
/// the status, so they are no code. In `code`, `slug` and `error_code`, such a word is a code.
///
/// If an earlier 429 holds back the client, nothing is sent, so there is no response. The status is then
/// 429, `retry_after` is the time left, and the headers and the body are empty. See
/// [`RetryPolicy`](crate::RetryPolicy#retry-after).
///
/// If [`set_topics`](crate::contacts::Contacts::set_topics) finds that a topic of its form does not exist, nothing is
/// sent for it either. The status is then 404 and the code `not_found`, as for any other call with such a topic.
///
/// `Debug` prints the status, the code if it consists only of `a-z` and `_`, the `Retry-After` and the
/// length of the body, but never the message, the headers or the body.
///
/// # Example: log a refusal with its message
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// # let server = audience::mock::MockServer::start().await;
/// # let contacts = server.client().contacts();
/// let error = contacts.create("not an address").await.unwrap_err();
///
/// if let Some(refusal) = error.api() {
///     println!("{error}: {}", refusal.message().unwrap_or("the service sent no message"));
/// }
/// # assert!(error.api().unwrap().message().is_some());
/// # }
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct ApiError {
    status: StatusCode,
    code: Option<ErrorCode>,
    message: Option<String>,
    retry_after: Option<Duration>,
    redirected_to: Option<String>,
    /// Whether the request names a contact, topic or segment that may not exist.
    has_target: bool,
    /// The refusal that the status stands for, if the response has no code.
    implied: Option<ErrorCode>,
    /// The thing that does not exist, if the refusal is about a missing one.
    missing: Option<Missing>,
    headers: HeaderMap,
    body: Bytes,
}

impl ApiError {
    /// Creates a refusal without headers and body, for a unit test of a program that handles it. If `message` is empty,
    /// the refusal has no message. A code without text is no code.
    ///
    /// # Example: in a unit test
    ///
    /// ```
    /// use audience::{ApiError, Error, ErrorCode, StatusCode};
    ///
    /// fn explain(error: &Error) -> &'static str {
    ///     if error.is_not_found() { "no such contact" } else { "please come back later" }
    /// }
    ///
    /// let refusal = ApiError::new(StatusCode::NOT_FOUND, ErrorCode::NotFound, "no contact ada@example.com");
    ///
    /// assert_eq!(explain(&Error::refused(refusal)), "no such contact");
    /// ```
    pub fn new(
        status: StatusCode,
        code: impl Into<Option<ErrorCode>>,
        message: impl Into<String>,
    ) -> Self {
        Self {
            code: code.into().filter(|code| !code.is_empty()),
            message: Some(message.into()).filter(|message| !message.is_empty()),
            implied: Target::Unknown.implied(status),
            ..Self::without_body(status)
        }
    }

    /// Creates a 404 for a thing that the service does not have, for a unit test: see [`Error::missing`].
    ///
    /// # Example: in a unit test
    ///
    /// ```
    /// use audience::{ApiError, Error, Missing, StatusCode};
    ///
    /// let error = Error::refused(ApiError::missing(Missing::Contact));
    ///
    /// assert!(error.is_not_found());
    /// assert_eq!(error.visitor_status(), StatusCode::NOT_FOUND);
    /// ```
    #[must_use]
    pub fn missing(thing: Missing) -> Self {
        Self {
            missing: Some(thing),
            ..Self::new(StatusCode::NOT_FOUND, ErrorCode::NotFound, "")
        }
    }

    /// Returns the HTTP status.
    #[must_use]
    pub fn status(&self) -> StatusCode {
        self.status
    }

    /// Returns the code, if the body has one. It is never guessed from the status.
    ///
    /// # Example: act on a code
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() {
    /// # let server = audience::mock::MockServer::start().await;
    /// # let contacts = server.client().contacts();
    /// # let error = contacts.retrieve("nobody@example.com").await.unwrap_err();
    /// # let refusal = error.api().unwrap();
    /// use audience::ErrorCode;
    ///
    /// match refusal.code() {
    ///     Some(ErrorCode::NotFound) => println!("no contact with this address"),
    ///     Some(code) => println!("refused: {code}"),
    ///     None => println!("refused with status {}", refusal.status()),
    /// }
    /// # assert_eq!(refusal.code(), Some(&ErrorCode::NotFound));
    /// # }
    /// ```
    #[must_use]
    pub fn code(&self) -> Option<&ErrorCode> {
        self.code.as_ref()
    }

    /// Returns the service's message, if the body has one. It may name an address or a topic.
    ///
    /// # Example: why the input was refused
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() {
    /// # let server = audience::mock::MockServer::start().await;
    /// # let contacts = server.client().contacts();
    /// # let new_contact = audience::contacts::NewContact::new("not an address");
    /// let error = contacts.create(new_contact).await.unwrap_err();
    ///
    /// let message = error.api().and_then(|refusal| refusal.message());
    /// println!("the service says: {}", message.unwrap_or("nothing"));
    /// # assert!(message.is_some());
    /// # }
    /// ```
    #[must_use]
    pub fn message(&self) -> Option<&str> {
        self.message.as_deref()
    }

    /// Returns how long the service asked to wait, if the response has a `Retry-After` header.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        self.retry_after
    }

    /// Returns the headers of the response, for example those about rate limits, which the interface document does not
    /// show ([section 8](crate::interface#8)).
    ///
    /// # Example: the limit that a 429 reports
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() {
    /// # let server = audience::mock::MockServer::start().await;
    /// # let contacts = server.client().contacts();
    /// use audience::RetryPolicy;
    /// use audience::mock::Fault;
    ///
    /// server.fault(Fault::status(429).header("RateLimit-Remaining", "0"));
    ///
    /// let error = contacts.list().retry(RetryPolicy::none()).await.unwrap_err();
    /// let refusal = error.api().expect("the service responded");
    /// assert_eq!(refusal.headers()["ratelimit-remaining"], "0");
    /// # }
    /// ```
    #[must_use]
    pub fn headers(&self) -> &HeaderMap {
        &self.headers
    }

    /// Returns the id of the request. Quote it when you ask the service's support about a refusal.
    ///
    /// The interface document shows no such header. The id is taken from the first of `x-request-id`,
    /// `request-id`, `x-correlation-id`, `x-amzn-requestid` and `x-trace-id` that the response has.
    ///
    /// # Example: a refusal with an id
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() {
    /// # let server = audience::mock::MockServer::start().await;
    /// # let contacts = server.client().contacts();
    /// use audience::mock::Fault;
    ///
    /// server.fault(Fault::status(403).header("x-request-id", "req_7"));
    ///
    /// let error = contacts.list().await.unwrap_err();
    /// assert_eq!(error.api().and_then(|refusal| refusal.request_id()), Some("req_7"));
    /// # }
    /// ```
    #[must_use]
    pub fn request_id(&self) -> Option<&str> {
        REQUEST_IDS
            .iter()
            .filter_map(|name| self.headers.get(*name)?.to_str().ok())
            .find(|id| !id.is_empty())
    }

    /// Returns the body, unchanged. It is empty if the response has no body, or a body that does not decompress
    /// or that exceeds the [`body_limit`](crate::ClientBuilder::body_limit). It is also empty if the connection broke
    /// while the body arrived and the status may be retried, such as 503 or 429. After any other status, such an error
    /// is no refusal, but of the kind [`Transport`](ErrorKind::Transport).
    ///
    /// # Example: members that this crate does not read
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() {
    /// # let server = audience::mock::MockServer::start().await;
    /// # let contacts = server.client().contacts();
    /// use audience::mock::Fault;
    /// use serde_json::Value;
    ///
    /// server.fault(Fault::status(403).body(r#"{"code": "key_expired", "since": 1700000000}"#));
    ///
    /// let error = contacts.list().await.unwrap_err();
    /// let refusal = error.api().expect("the service responded");
    /// let body: Value = serde_json::from_slice(refusal.body()).unwrap_or_default();
    /// assert_eq!(body["since"], 1_700_000_000);
    /// # }
    /// ```
    #[must_use]
    pub fn body(&self) -> &[u8] {
        &self.body
    }

    fn without_body(status: StatusCode) -> Self {
        let mut response = http::Response::default();
        *response.status_mut() = status;
        Self::from_response(response, &Target::Unknown)
    }

    fn from_response(response: http::Response<Bytes>, target: &Target) -> Self {
        let (head, body) = response.into_parts();
        let read = ErrorBody::read(head.status, &body);
        // The service responds with a JSON object, a proxy or another site most likely with HTML.
        let implied = target.implied(head.status).filter(|_| read.is_object);
        Self {
            status: head.status,
            code: read.code,
            message: read.message,
            retry_after: None,
            redirected_to: None,
            has_target: target.may_be_missing(),
            implied,
            missing: None,
            headers: head.headers,
            body,
        }
    }

    /// Returns whether the response is this refusal: it has this code, or it has no code but a status that stands for
    /// this refusal. A service that is not available refuses nothing for good, and neither does a gateway.
    fn is(&self, code: &ErrorCode) -> bool {
        !is_transient(self.status) && self.code.as_ref().or(self.implied.as_ref()) == Some(code)
    }

    /// Returns whether a contact, topic or segment that the request names does not exist. A redirect and a refusal
    /// of the key say nothing about that, whatever their code is.
    fn is_not_found(&self) -> bool {
        let is_answered =
            !self.status.is_redirection() && !matches!(self.status.as_u16(), 401 | 407);
        self.has_target && is_answered && self.is(&ErrorCode::NotFound)
    }

    /// Returns whether a 404 most likely comes from somewhere other than the endpoint.
    fn is_foreign_404(&self) -> bool {
        let is_bare = self.code.is_none() && self.implied.is_none();
        self.status == StatusCode::NOT_FOUND && (!self.has_target || is_bare)
    }

    #[cfg(any(feature = "import", feature = "unsubscribe"))]
    fn is_foreign_403(&self) -> bool {
        let is_bare = self.code.is_none() && self.status == StatusCode::FORBIDDEN;
        is_bare && !ErrorBody::read(self.status, &self.body).is_object
    }

    /// Returns the slug if it consists only of `a-z` and `_`. A slug with other characters may be an
    /// address that the server echoes, which must not be printed.
    fn printable_code(&self) -> Option<&str> {
        let is_word = |slug: &&str| {
            slug.bytes()
                .all(|byte| byte.is_ascii_lowercase() || byte == b'_')
        };
        self.code.as_ref().map(ErrorCode::as_str).filter(is_word)
    }

    /// Returns the text that `Error` prints: status, slug and what is missing, never the message or the body.
    fn summary(&self) -> String {
        let status = self.status.as_u16();
        if let Some(target) = &self.redirected_to {
            return format!(
                "the service responded {status}, a redirect to {target}; {CHECK_THE_BASE_URL}"
            );
        }
        let mut text = format!("the service responded {status}");
        if let Some(code) = self.printable_code() {
            text = format!("{text} {code}");
        }
        if let Some(missing) = self.missing {
            text += match missing {
                Missing::Contact => ": no such contact",
                Missing::Topic => ": no such topic",
                Missing::Segment => ": no such segment",
            };
        } else if self.is_foreign_404() {
            text += &format!("; {CHECK_THE_BASE_URL}");
        } else if self.status == StatusCode::UNPROCESSABLE_ENTITY && self.message.is_some() {
            // The message may contain an address, so it is not printed.
            text += "; its message says why";
        } else if self.status == StatusCode::UNAUTHORIZED {
            text += ": the key is wrong or belongs to another environment, or the service expects it in another header (see `Auth`)";
        }
        text
    }
}

/// Reads the code and the message of a refusal: see [`ClientBuilder::read_errors`](crate::ClientBuilder::read_errors).
pub(crate) type ReadError = dyn Fn(&ApiError) -> Option<(ErrorCode, String)> + Send + Sync;

/// The thing that a request is about. It decides the meaning of a refusal without a code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// A raw request may be about anything.
    Unknown,
    /// The whole audience.
    Audience,
    Segment,
    Contact,
    /// A contact's answer for a topic.
    Answer {
        address: String,
        topic: String,
    },
    /// A contact to store. `must_be_new` says that the request fails if the address exists.
    NewContact {
        must_be_new: bool,
    },
    /// Several contacts to store. The response has a result for each.
    Batch,
}

impl Target {
    /// Returns whether the request names a contact, topic or segment that may not exist.
    fn may_be_missing(&self) -> bool {
        matches!(
            self,
            Self::Unknown | Self::Segment | Self::Contact | Self::Answer { .. }
        )
    }

    /// Returns what does not exist if a response with this body says that something does not.
    fn missing(&self, body: &[u8]) -> Option<Missing> {
        match self {
            Self::Segment => Some(Missing::Segment),
            Self::Contact => Some(Missing::Contact),
            Self::Answer { address, topic } if body.len() <= LONGEST => {
                named(body, &address.to_lowercase(), &topic.to_lowercase())
            }
            _ => None,
        }
    }

    /// Returns the refusal that a status without a code stands for. A status that may have several reasons stands for
    /// none.
    fn implied(&self, status: StatusCode) -> Option<ErrorCode> {
        match (status, self) {
            (StatusCode::NOT_FOUND, _) if self.may_be_missing() => Some(ErrorCode::NotFound),
            (StatusCode::CONFLICT, Self::NewContact { must_be_new: true }) => {
                Some(ErrorCode::AlreadyExists)
            }
            (StatusCode::PAYMENT_REQUIRED, Self::NewContact { .. } | Self::Batch) => {
                Some(ErrorCode::QuotaExceeded)
            }
            _ => None,
        }
    }
}

/// Returns whether an error body names the address or the topic; `None` if it names both or neither.
fn named(body: &[u8], address: &str, topic: &str) -> Option<Missing> {
    let text = match json_of(body) {
        Some(value) => {
            let texts = texts_of("", &value);
            let lines = texts.iter().map(|(name, text)| format!("{name}: {text}"));
            lines.collect::<Vec<_>>().join("\n")
        }
        None => String::from_utf8_lossy(body).into_owned(),
    };
    let text = text.to_lowercase();
    // The path of the request is not a name: a framework may repeat it.
    let names_address = has_word(&text.replace(&format!("/{address}"), "/"), address);
    match (names_topic(&text, topic), names_address) {
        (true, false) => Some(Missing::Topic),
        (false, true) => Some(Missing::Contact),
        _ => None,
    }
}

/// Returns whether a text has the topic in quotation marks, or after the word `topic`. Any other word may be a part of
/// a sentence or of a path.
fn names_topic(text: &str, topic: &str) -> bool {
    let is_quoted = |(at, found): (usize, &str)| {
        let (before, after) = (&text[..at], &text[at + found.len()..]);
        before.ends_with(QUOTES) && after.starts_with(QUOTES)
    };
    !topic.is_empty()
        && (text.match_indices(topic).any(is_quoted)
            || ["topic ", "topic: "]
                .iter()
                .any(|before| has_word(text, &format!("{before}{topic}"))))
}

/// The marks in which a message may quote a name.
const QUOTES: [char; 9] = ['`', '\'', '"', '‘', '’', '“', '”', '«', '»'];

/// Returns whether a text has this word, and not only as a part of a longer one.
fn has_word(text: &str, word: &str) -> bool {
    let is_part = |c: char| c.is_alphanumeric() || "-_@%".contains(c);
    let is_whole = |(at, found): (usize, &str)| {
        let (before, after) = (&text[..at], &text[at + found.len()..]);
        !before.ends_with(is_part) && !after.starts_with(is_part)
    };
    !word.is_empty() && text.match_indices(word).any(is_whole)
}

/// The headers that commonly hold the id of a request.
const REQUEST_IDS: [&str; 5] = [
    "x-request-id",
    "request-id",
    "x-correlation-id",
    "x-amzn-requestid",
    "x-trace-id",
];

/// Returns the wait that a `Retry-After` header asks for, in seconds or as a date. A fraction, which the standard does not
/// allow, counts as a whole second. More seconds than a `u64` can hold are read as the largest `u64`. `now` counts if the
/// response has no valid `Date`.
fn retry_after(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    let (seconds, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if is_number(seconds) && is_number(fraction) {
        let more = u64::from(fraction.bytes().any(|digit| digit != b'0'));
        let seconds: u64 = seconds.parse().unwrap_or(u64::MAX);
        return Some(Duration::from_secs(seconds.saturating_add(more)));
    }
    let then = httpdate::parse_http_date(text).ok()?;
    // The server's own clock has made both dates. The clock of this machine may be minutes off.
    let sent = headers.get(DATE).and_then(|date| date.to_str().ok());
    let sent = sent.and_then(|date| httpdate::parse_http_date(date.trim()).ok());
    Some(then.duration_since(sent.unwrap_or(now)).unwrap_or_default())
}

impl fmt::Debug for ApiError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ApiError")
            .field("status", &self.status.as_u16())
            .field("code", &self.printable_code())
            .field("retry_after", &self.retry_after)
            .field("body", &format_args!("<{} bytes>", self.body.len()))
            .finish_non_exhaustive()
    }
}

string_enum! {
    /// The code with which the service says why it refused a request ([interface section 7](crate::interface#7)). The
    /// interface document calls its text a slug.
    ///
    /// [`ApiError::code`](crate::ApiError::code) returns the code of a refused request. A failed batch entry has its
    /// own. A slug that this version of the crate does not know is kept verbatim as [`ErrorCode::Other`]. In a
    /// response, a known slug is recognized in upper and lower case, and with `-` instead of `_`.
    ///
    /// # Example: slugs and variants
    ///
    /// ```
    /// use audience::ErrorCode;
    ///
    /// assert_eq!(ErrorCode::from("quota_exceeded"), ErrorCode::QuotaExceeded);
    /// assert_eq!(ErrorCode::QuotaExceeded.as_str(), "quota_exceeded");
    /// assert_eq!(ErrorCode::from("on_holiday").as_str(), "on_holiday");
    /// ```
    pub enum ErrorCode {
        /// `validation_error`, 422: the address is not an email address, the properties are not a
        /// JSON object, or the sender declared a complaint. [`ApiError::message`](crate::ApiError::message) says which.
        /// Fix the input.
        ValidationError = "validation_error",
        /// `already_exists`, 409: the address already exists, and the create call set
        /// [`OnConflict::Error`](crate::contacts::OnConflict::Error).
        AlreadyExists = "already_exists",
        /// `quota_exceeded`, 402: the write would exceed the plan's ceiling of stored contacts.
        /// A retry does not help.
        QuotaExceeded = "quota_exceeded",
        /// `key_not_permitted`, 403: a sending-access key was used on the audience. Use a full-access
        /// key.
        KeyNotPermitted = "key_not_permitted",
        /// `not_found`, 404: the address is not a contact of the caller, or the topic does not exist.
        NotFound = "not_found",
        /// `failed_precondition`, 422: a subscribe for a contact who reported spam. A sender cannot subscribe this
        /// contact again.
        FailedPrecondition = "failed_precondition",
    }
}

impl ErrorCode {
    /// Reads a slug as services write it: case does not matter, and `-` counts as `_`. A documented slug may stand at
    /// the end of a longer name. An unknown slug is kept verbatim.
    pub(crate) fn from_slug(text: &str) -> Self {
        Self::documented(text).unwrap_or_else(|| Self::from(text))
    }

    fn is_empty(&self) -> bool {
        self.as_str().is_empty()
    }

    /// Returns the documented slug that a text is, or with which a name such as a URL ends.
    fn documented(text: &str) -> Option<Self> {
        let last = text.trim_end_matches('/').rsplit(['.', '/', ':', '#']);
        let last = last.into_iter().next().filter(|last| last.len() <= 64)?;
        let snake_case = last.to_ascii_lowercase().replace('-', "_");
        let known = Self::KNOWN.iter().find(|code| code.as_str() == snake_case);
        // Prose may end with such a word, and so may an address.
        let is_other = |c: char| c.is_whitespace() || c == '@';
        known.filter(|_| !text.contains(is_other)).cloned()
    }
}

/// The parts of an error body that are understood.
#[derive(Debug, Default, PartialEq, Eq)]
struct ErrorBody {
    code: Option<ErrorCode>,
    message: Option<String>,
    is_object: bool,
}

/// Returns a text without the byte order mark that some frameworks put before JSON.
pub(crate) fn without_mark(text: &[u8]) -> &[u8] {
    text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text)
}

/// Reads an error body. A message that is not valid Unicode must not hide the slug beside it, so its invalid parts are
/// replaced.
fn json_of(body: &[u8]) -> Option<Value> {
    let text = String::from_utf8_lossy(without_mark(body));
    let value = serde_json::from_str(&text);
    value
        .or_else(|_| serde_json::from_str(&without_surrogates(&text)))
        .ok()
}

/// Replaces the escapes of surrogates in JSON. A service that cuts a message after so many characters may leave one half of
/// a pair, which JSON allows and a Rust string does not.
fn without_surrogates(json: &str) -> String {
    let mut parts = json.split("\\u");
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let is_surrogate = matches!(
            part.as_bytes(),
            [b'd' | b'D', b'8' | b'9' | b'a'..=b'f' | b'A'..=b'F', ..]
        );
        text += "\\u";
        match part.get(4..).filter(|_| is_surrogate) {
            Some(rest) => text.extend(["fffd", rest]),
            None => text += part,
        }
    }
    text
}

/// The members of an error object that hold a slug and nothing else.
const CODES: [&str; 3] = ["code", "slug", "error_code"];

/// The other members of an error object that may hold a slug, the most likely first.
const SLUGS: [&str; 4] = ["error", "type", "name", "status"];

/// The members of an error object that may hold a message.
const MESSAGES: [&str; 3] = ["message", "detail", "reason"];

/// Members that are a message unless they look like a slug.
const SENTENCES: [&str; 3] = ["error", "description", "title"];

/// Words that say only that there is an error.
const GENERIC: [&str; 5] = ["error", "errors", "fail", "failed", "failure"];

/// Members whose text repeats a part of the request or leads to documentation, without `_` and `-`.
const ECHOES: [&str; 22] = [
    "address",
    "doc",
    "docs",
    "documentation",
    "email",
    "field",
    "firstname",
    "help",
    "hint",
    "href",
    "instance",
    "lastname",
    "link",
    "moreinfo",
    "param",
    "parameter",
    "pointer",
    "query",
    "segment",
    "segmentid",
    "self",
    "topic",
];

/// Members that repeat a part of the request with all that is in it, without `_` and `-`.
const REQUEST_PARTS: [&str; 7] = [
    "input",
    "loc",
    "parameters",
    "params",
    "properties",
    "request",
    "value",
];

/// The longest body that is searched, in bytes. Parsed JSON takes many times the memory of its text.
const LONGEST: usize = 1024 * 1024;

type Object = Map<String, Value>;

/// Returns the code and the message of a refusal that is a part of a 2xx response, such as a failed batch entry.
pub(crate) fn refusal_in(object: &Object) -> (Option<ErrorCode>, Option<String>) {
    let read =
        ErrorBody::of_object(StatusCode::OK, object).or_documented_in(&texts_of_members(object));
    (read.code, read.message)
}

/// Returns a text of the service as it is kept for each of many rows or mails: its first 500 characters, and `…` for the
/// rest.
#[cfg(any(feature = "import", feature = "unsubscribe"))]
pub(crate) fn shortened(text: &str) -> String {
    const MAX_CHARACTERS: usize = 500;
    match text.char_indices().nth(MAX_CHARACTERS) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// Returns whether a text says only that there is an error.
pub(crate) fn is_generic(text: &str) -> bool {
    GENERIC.iter().any(|word| text.eq_ignore_ascii_case(word))
}

impl ErrorBody {
    /// Reads the slug and the message. A body that is longer than 1 MiB has neither.
    fn read(status: StatusCode, body: &[u8]) -> Self {
        if body.len() > LONGEST {
            return Self::default();
        }
        // A proxy may respond with HTML. Then only the status counts.
        let Some(value) = json_of(body) else {
            let text = std::str::from_utf8(without_mark(body)).unwrap_or_default();
            let code = ErrorCode::documented(text.trim());
            return Self {
                code: code.filter(|_| may_have_slug(status)),
                ..Self::default()
            };
        };
        let read = value
            .as_object()
            .map(|whole| Self::of_object(status, whole));
        let read = read.unwrap_or_default();
        if may_have_slug(status) {
            read.or_documented_in(&texts_of("", &value))
        } else {
            read
        }
    }

    /// Replaces a code that the interface document does not name with the documented slug that stands alone in one of
    /// these texts, unless there are several.
    fn or_documented_in(self, texts: &[(&str, &str)]) -> Self {
        let is_documented = |code: &ErrorCode| ErrorCode::KNOWN.contains(code);
        if self.code.as_ref().is_some_and(is_documented) {
            return self;
        }
        Self {
            code: only_documented(texts).or(self.code),
            ..self
        }
    }

    /// Reads the slug and the message from the members that commonly hold them.
    ///
    /// A slug that the interface document names takes precedence over any other.
    fn of_object(status: StatusCode, whole: &Object) -> Self {
        let parts = parts(whole);
        // `type`, `name` and `status` often mean something else at the top level, so they come last there.
        let slugs: Vec<&str> = texts(whole, &CODES)
            .chain(slugs(whole, &SLUGS[..1], status))
            .chain(
                parts
                    .iter()
                    .flat_map(|part| texts(part, &CODES).chain(slugs(part, &SLUGS, status))),
            )
            .chain(slugs(whole, &SLUGS[1..], status))
            .collect();
        // A body may have a vague slug such as `client_error` beside the documented one.
        let documented = slugs.iter().find_map(|text| ErrorCode::documented(text));
        let first = || slugs.iter().find(|text| is_slug(text));
        let message = texts(whole, &MESSAGES)
            .chain(parts.iter().flat_map(|part| texts(part, &MESSAGES)))
            .chain(texts(whole, &SENTENCES).filter(|text| !is_slug(text)))
            .next();
        Self {
            code: documented.or_else(|| first().map(|text| ErrorCode::from(*text))),
            message: message.map(str::to_owned),
            is_object: true,
        }
    }
}

/// Returns the error objects inside the body: `error`, `detail`, and those in the array `errors`.
fn parts(whole: &Object) -> Vec<&Object> {
    let nested = ["error", "detail"]
        .iter()
        .filter_map(|name| whole.get(*name));
    let listed = whole.get("errors").and_then(Value::as_array);
    nested
        .chain(listed.into_iter().flatten())
        .filter_map(Value::as_object)
        .collect()
}

/// Returns the members with these names that hold non-empty text, in the order of the names.
fn texts<'a>(object: &'a Object, names: &[&str]) -> impl Iterator<Item = &'a str> + use<'a> {
    let found = names.iter().filter_map(|name| object.get(*name)?.as_str());
    let found: Vec<_> = found.filter(|text| !text.is_empty()).collect();
    found.into_iter()
}

/// Returns the texts of these members that may be a slug: not the words of the status, as frameworks add them.
fn slugs<'a>(
    object: &'a Object,
    names: &[&str],
    status: StatusCode,
) -> impl Iterator<Item = &'a str> + use<'a> {
    let found = names.iter().flat_map(|name| {
        let found = texts(object, &[name]);
        found.map(|text| match *name {
            "type" => problem_code(text).unwrap_or(text),
            _ => text,
        })
    });
    // A slug with the same letters, such as `unauthorized`, is in lower case or all in upper case.
    let found: Vec<_> = found
        .filter(|text| Some(*text) != status.canonical_reason())
        .collect();
    found.into_iter()
}

/// Returns the last part of the URL or URN that is the type of a problem (RFC 9457), if it looks like a slug. A part
/// with a digit or a dot is most likely a page, or a section of an RFC as in `rfc9110#section-15.5.5`.
fn problem_code(text: &str) -> Option<&str> {
    let path = || Some(text.split_once("://")?.1.split_once('/')?.1);
    let name = text.strip_prefix("urn:").or_else(path)?;
    let last = name.trim_end_matches('/').rsplit(['/', ':', '#']).next()?;
    let is_word = |byte: u8| byte.is_ascii_alphabetic() || b"_-".contains(&byte);
    Some(last).filter(|last| is_slug(last) && last.bytes().all(is_word))
}

/// Returns whether a response with this status may have a documented slug in an unusual place. The reason for any other
/// status is the key, the rate or a fault, and then such a word is about something else.
fn may_have_slug(status: StatusCode) -> bool {
    status.is_client_error() && !matches!(status.as_u16(), 401 | 407 | 408 | 425 | 429)
}

/// Returns the documented slug that stands alone in any of these texts, unless there are several.
fn only_documented(texts: &[(&str, &str)]) -> Option<ErrorCode> {
    let texts = texts.iter().filter(|(name, _)| !is_echo(name));
    let mut found = texts.filter_map(|(_, text)| ErrorCode::documented(text));
    let first = found.next()?;
    found.all(|other| other == first).then_some(first)
}

/// Returns whether a member of this name repeats a part of the request, or leads to documentation.
fn is_echo(name: &str) -> bool {
    let name = squeezed(name);
    let ends = ["url", "uri", "path"];
    ECHOES.contains(&name.as_str()) || ends.iter().any(|end| name.ends_with(end))
}

/// Returns a name in lower case and without `_` and `-`.
fn squeezed(name: &str) -> String {
    name.to_ascii_lowercase().replace(['_', '-'], "")
}

/// Returns all texts in a value, each with the name of its member. A text in an array has no name.
fn texts_of<'a>(name: &'a str, value: &'a Value) -> Vec<(&'a str, &'a str)> {
    match value {
        Value::String(text) => vec![(name, text)],
        Value::Array(items) => items.iter().flat_map(|item| texts_of("", item)).collect(),
        Value::Object(members) => texts_of_members(members),
        Value::Null | Value::Bool(_) | Value::Number(_) => Vec::new(),
    }
}

/// Returns all texts in an object, but not those in parts of the request that it repeats.
fn texts_of_members(members: &Object) -> Vec<(&str, &str)> {
    let is_own = |name: &str| !REQUEST_PARTS.contains(&squeezed(name).as_str());
    let own = members.iter().filter(|(name, _)| is_own(name));
    own.flat_map(|(name, value)| texts_of(name, value))
        .collect()
}

/// Returns whether a text looks like a slug rather than a sentence, an address or a status.
fn is_slug(text: &str) -> bool {
    (1..=64).contains(&text.len())
        && text
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"_-.".contains(&b))
        && !text.bytes().all(|byte| byte.is_ascii_digit())
        && !is_generic(text)
}

#[cfg(test)]
mod tests;
