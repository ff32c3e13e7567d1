//! Sends mail with `POST /emails`, about which the interface document says little.
//!
//! The document says that the endpoint returns an id, and that the events about the mail contain it
//! ([section 4.7](crate::interface#4.7)). All else here is **our reading**: a body with `from`, `to`, `subject` and
//! `headers`, and a response `{"id": "…"}`. If your service expects other members, set them with
//! [`Email::member`]. If it responds in another form, read the response with [`SendEmail::raw`].
//!
//! # Example: send a mail and remember its id
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), audience::Error> {
//! # let server = audience::mock::MockServer::start().await;
//! # let client = server.client();
//! use audience::emails::Email;
//!
//! let mail = Email::new().from("Shop <shop@example.com>").to("ada@example.com").subject("Your receipt");
//! let sent = client.emails().send(mail.member("text", "Thank you!")).await?;
//!
//! println!("sent as {}", sent.id); // `MailEvent::email_id` of its events
//! # assert_eq!(server.sent_mail()[0].id, sent.id);
//! # Ok(()) }
//! ```

use http::Method;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};

use crate::client::{
    Endpoint, Operation, RawResponse, Request, ResponseFuture, RetrySafety, Success,
    endpoint_builder,
};
use crate::contacts::optional_id;
use crate::error::Target;
use crate::{Client, Error};

impl Client {
    /// Returns the handle to `POST /emails`.
    #[must_use]
    pub fn emails(&self) -> Emails {
        Emails {
            client: self.clone(),
        }
    }
}

/// Sends mail. [`Client::emails`] returns it.
///
/// It is owned and cheap to clone, like the client. A sending-access key is enough in our reading.
#[derive(Clone, Debug)]
pub struct Emails {
    client: Client,
}

impl Emails {
    /// Sends a mail.
    ///
    /// The mail is transactional: opt-outs do not hold it back ([section 1](crate::interface#1)). For a mail that many
    /// people get, use a broadcast, or `UnsubscribeService::send_issue`, which looks for opt-outs.
    ///
    /// The call is retried only if the mail was certainly not sent, because a second attempt could send it twice.
    /// [`idempotent`](SendEmail::idempotent) allows retries, for a service that drops duplicate requests. If yours
    /// needs an idempotency key for that, send the mail as the example of [`Client::request`] does. That does
    /// not check the mail: keep control characters out of its addresses, subject and headers.
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::Input`](crate::ErrorKind::Input) if the mail has no sender or no recipient, if a header's name or
    ///   value cannot be a header's, or if `from`, `to`, `cc`, `bcc`, `reply_to` or `subject` has a control character,
    ///   such as a line ending. Nothing was sent.
    /// - [`ErrorKind::Decode`](crate::ErrorKind::Decode) if the response has no id. The mail was accepted then:
    ///   [`Error::outcome`] is [`Applied`](crate::Outcome::Applied).
    /// - The refusals of the service, which the document does not show.
    ///
    /// # Example: to a customer, with a header
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), audience::Error> {
    /// # let server = audience::mock::MockServer::start().await;
    /// # let client = server.client();
    /// use audience::emails::Email;
    ///
    /// let mail = Email::new().from("shop@example.com").to("ada@example.com").subject("Shipped");
    /// let sent = client.emails().send(mail.header("X-Order", "1815")).await?;
    ///
    /// assert!(!sent.id.is_empty());
    /// # Ok(()) }
    /// ```
    pub fn send(&self, email: Email) -> SendEmail {
        SendEmail::new(&self.client, SendMail { email })
    }
}

endpoint_builder! {
    /// Sends a mail when it is awaited: see [`Emails::send`].
    pub struct SendEmail(SendMail) -> SentEmail, idempotent;
}

impl SendEmail {
    /// Returns a future that sends the mail and returns the response without decoding it, for a service that responds
    /// in another form.
    ///
    /// Call the setters first: the future has none.
    ///
    /// # Example: another member of the response
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), audience::Error> {
    /// # let server = audience::mock::MockServer::start().await;
    /// # let client = server.client();
    /// use audience::emails::Email;
    /// use serde_json::Value;
    ///
    /// let mail = Email::new().from("shop@example.com").to("ada@example.com").subject("Shipped");
    /// let response: Value = client.emails().send(mail).raw().await?.json()?;
    ///
    /// assert!(response["id"].is_string());
    /// # Ok(()) }
    /// ```
    pub fn raw(self) -> ResponseFuture<RawResponse> {
        self.client.call(Raw(self.endpoint), self.options)
    }
}

/// A mail to send.
///
/// # Example: two recipients
///
/// ```
/// use audience::emails::Email;
///
/// let mail = Email::new().from("shop@example.com").to("ada@example.com").to("bob@example.com").subject("Hello");
///
/// let body = r#"{"from":"shop@example.com","subject":"Hello","to":["ada@example.com","bob@example.com"]}"#;
/// assert_eq!(serde_json::to_string(&mail)?, body);
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
#[must_use = "a mail is sent by `emails().send`"]
pub struct Email(Map<String, Value>);

impl Email {
    /// Creates an empty mail.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the sender, with or without a display name: `Shop <shop@example.com>`.
    pub fn from(self, sender: impl Into<String>) -> Self {
        self.member("from", sender.into())
    }

    /// Adds a recipient. Events are about one recipient each ([section 6.3](crate::interface#6.3)).
    ///
    /// One is sent as text, several as an array.
    pub fn to(mut self, recipient: impl Into<String>) -> Self {
        let recipient = Value::from(recipient.into());
        let all = match self.0.remove("to") {
            None => recipient,
            Some(Value::Array(mut all)) => {
                all.push(recipient);
                all.into()
            }
            Some(first) => vec![first, recipient].into(),
        };
        self.member("to", all)
    }

    /// Sets the subject.
    pub fn subject(self, subject: impl Into<String>) -> Self {
        self.member("subject", subject.into())
    }

    /// Sets a header of the mail, such as `List-Unsubscribe`. It is sent in the member `headers`, an object. If you
    /// have set [`member`](Self::member) `headers` to anything else, such as an array, this call replaces it.
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        let headers = self.0.entry("headers").or_insert_with(|| Map::new().into());
        if !headers.is_object() {
            *headers = Map::new().into();
        }
        headers[name.into()] = value.into().into();
        self
    }

    /// Sets several headers of the mail, such as the two of
    #[cfg_attr(
        feature = "unsubscribe",
        doc = "[`UnsubscribeLinks::headers`](crate::unsubscribe::UnsubscribeLinks::headers)."
    )]
    #[cfg_attr(
        not(feature = "unsubscribe"),
        doc = "`UnsubscribeLinks::headers` (feature `unsubscribe`)."
    )]
    ///
    /// # Example: two headers
    ///
    /// ```
    /// use audience::emails::Email;
    ///
    /// let mail = Email::new().headers([("X-Order", "1815"), ("X-Shop", "Berlin")]);
    ///
    /// assert_eq!(mail, Email::new().header("X-Order", "1815").header("X-Shop", "Berlin"));
    /// ```
    pub fn headers<N: Into<String>, V: Into<String>>(
        self,
        headers: impl IntoIterator<Item = (N, V)>,
    ) -> Self {
        let headers = headers.into_iter();
        headers.fold(self, |mail, (name, value)| mail.header(name, value))
    }

    /// Returns whether the mail has a header, or may have it: a member `headers` that is no object has a form of the
    /// application.
    #[cfg(feature = "unsubscribe")]
    pub(crate) fn may_have_header(&self, name: &str) -> bool {
        match self.0.get("headers") {
            None | Some(Value::Null) => false,
            Some(Value::Object(headers)) => {
                headers.keys().any(|own| own.eq_ignore_ascii_case(name))
            }
            Some(_) => true,
        }
    }

    /// Sets any member of the body, such as the text of the mail, for which the document names no member.
    ///
    /// # Example: text and HTML
    ///
    /// ```
    /// use audience::emails::Email;
    ///
    /// let mail = Email::new().from("shop@example.com").to("ada@example.com").subject("Hello");
    /// let mail = mail.member("text", "Hello, Ada").member("html", "<p>Hello, Ada</p>");
    /// # assert!(serde_json::to_string(&mail).unwrap().contains("html"));
    /// ```
    pub fn member(mut self, name: impl Into<String>, value: impl Into<Value>) -> Self {
        self.0.insert(name.into(), value.into());
        self
    }

    fn check(&self) -> Result<(), Error> {
        let is_missing = |name| matches!(self.0.get(name), None | Some(Value::Null));
        if is_missing("from") {
            return Err(Error::input("the mail has no sender; set it with `from`"));
        }
        if is_missing("to") {
            return Err(Error::input("the mail has no recipient; add one with `to`"));
        }
        // A line ending would begin another header.
        let mut members = HEADER_MEMBERS.iter().filter_map(|name| self.0.get(*name));
        if members.any(has_control) {
            let error = Error::input(
                "an address or the subject of the mail has a control character in it, such as a line ending",
            );
            // Most likely from the name of the recipient, so an issue continues with the others.
            return Err(error.malformed_contact());
        }
        let headers = self.0.get("headers").unwrap_or(&Value::Null);
        let mut names = headers.as_object().into_iter().flat_map(Map::keys);
        let is_name = |byte: u8| byte.is_ascii_graphic() && byte != b':';
        if names.any(|name| name.is_empty() || !name.bytes().all(is_name)) || has_control(headers) {
            return Err(Error::input(
                "a header of the mail has a name that is not visible ASCII, or a control character in its value",
            ));
        }
        Ok(())
    }
}

/// The members whose texts become headers of the mail.
const HEADER_MEMBERS: [&str; 6] = ["from", "to", "cc", "bcc", "reply_to", "subject"];

/// Returns whether a text in this value has a control character other than a tab.
fn has_control(value: &Value) -> bool {
    match value {
        Value::String(text) => text.contains(|letter: char| letter.is_control() && letter != '\t'),
        Value::Array(values) => values.iter().any(has_control),
        Value::Object(members) => members.values().any(has_control),
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

/// The response to a mail that the service accepted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct SentEmail {
    /// The id of the mail. The events about it have it as [`email_id`](crate::interface#6.3).
    pub id: String,
}

/// Reads the id from the member `id` or `email_id`. The document does not show its name.
impl<'de> Deserialize<'de> for SentEmail {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct Ids {
            #[serde(default, deserialize_with = "optional_id")]
            id: Option<String>,
            #[serde(default, deserialize_with = "optional_id")]
            email_id: Option<String>,
        }

        let Ids { id, email_id } = Ids::deserialize(deserializer)?;
        let id = id.or(email_id);
        id.map(Self::new)
            .ok_or_else(|| D::Error::missing_field("id"))
    }
}

impl SentEmail {
    /// Creates a result, for example for a unit test.
    #[must_use]
    pub fn new(id: impl Into<String>) -> Self {
        Self { id: id.into() }
    }
}

#[derive(Clone)]
struct SendMail {
    email: Email,
}

impl Endpoint for SendMail {
    type Output = SentEmail;

    fn operation(&self) -> Operation {
        Operation {
            name: "send_email",
            template: "/emails",
        }
    }

    fn request(&self) -> Result<Request, Error> {
        self.email.check()?;
        let request = Request::new(Method::POST, ["emails"], RetrySafety::OnlyIfNotApplied)?;
        // A mail names no contact or topic that may be missing.
        request.about(Target::Audience).json(&self.email)
    }

    fn decode(&self, success: Success) -> Result<SentEmail, Error> {
        success.object()
    }
}

/// The endpoint of [`SendEmail::raw`].
struct Raw(SendMail);

impl Endpoint for Raw {
    type Output = RawResponse;

    fn operation(&self) -> Operation {
        self.0.operation()
    }

    fn request(&self) -> Result<Request, Error> {
        self.0.request()
    }

    fn decode(&self, success: Success) -> Result<RawResponse, Error> {
        Ok(success.into())
    }
}
