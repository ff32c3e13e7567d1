use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

use crate::address::normalized_address;
use crate::string_enum::string_enum;

/// The `data` of an event about a sent message, for one recipient ([interface section 6.3](crate::interface#6.3)).
///
/// Only `email_id` and `to` must be in the JSON, because they identify the message and its recipient. A `to` that is empty
/// or white space counts as missing. Another member that is missing, `null` or no string is empty or `None`. In an
/// [`Event`](super::Event), half a surrogate pair in another member, such as at the end of a text that was cut, is read
/// as U+FFFD.
///
/// # Example: data for your own test
///
/// ```
/// use audience::webhooks::{BounceType, MailEvent};
///
/// let mut mail = MailEvent::new("em_1", "us@example.com", "ada@example.com", "Hi");
/// mail.bounce_type = Some(BounceType::Permanent);
/// mail.detail = Some("550 5.1.1 no such user".to_owned());
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct MailEvent {
    /// The id that `POST /emails` returned. It links the event to your record of the message.
    pub email_id: String,
    /// The envelope sender of the message; empty if the event does not state it.
    #[serde(default, deserialize_with = "text_or_empty")]
    pub from: String,
    /// The single recipient that this event is about.
    #[serde(deserialize_with = "not_blank")]
    pub to: String,
    /// The message's subject; empty if the event does not state it.
    #[serde(default, deserialize_with = "text_or_empty")]
    pub subject: String,
    /// The kind of bounce; `None` if the event is not a bounce.
    #[serde(
        default,
        deserialize_with = "unless_empty",
        serialize_with = "or_empty"
    )]
    pub bounce_type: Option<BounceType>,
    /// The receiving server's diagnostic text, or the service's reason not to send. It is prose; do not
    /// parse it. `None` if the service gives no text.
    #[serde(
        default,
        deserialize_with = "unless_empty",
        serialize_with = "or_empty"
    )]
    pub detail: Option<String>,
}

impl MailEvent {
    /// Creates the data without bounce type and detail.
    ///
    /// # Example: an event for your own test
    ///
    /// ```
    /// use audience::webhooks::{EventData, EventType, MailEvent};
    ///
    /// let mail = MailEvent::new("em_1", "us@example.com", "ada@example.com", "Hi");
    /// assert_eq!(mail.bounce_type, None);
    ///
    /// assert_eq!(EventData::Clicked(mail).event_type(), EventType::Clicked);
    /// ```
    #[must_use]
    pub fn new(
        email_id: impl Into<String>,
        from: impl Into<String>,
        to: impl Into<String>,
        subject: impl Into<String>,
    ) -> Self {
        Self {
            email_id: email_id.into(),
            from: from.into(),
            to: to.into(),
            subject: subject.into(),
            bounce_type: None,
            detail: None,
        }
    }

    /// Returns the address of the contact: the recipient [`to`](Self::to), trimmed and in lower case, as the service
    /// stores it ([interface section 2.1](crate::interface#2.1)).
    ///
    /// The interface does not say whether the service sends `to` in this form. So use this method to find the row of
    /// the person in your own database, and store your addresses in the same form.
    ///
    /// # Example: the row of a recipient
    ///
    /// ```
    /// use audience::webhooks::MailEvent;
    ///
    /// let mail = MailEvent::new("em_1", "us@example.com", "Ada@Example.com", "Hi");
    /// assert_eq!(mail.address(), "ada@example.com");
    /// ```
    #[must_use]
    pub fn address(&self) -> String {
        normalized_address(&self.to)
    }

    /// Returns whether a later attempt to reach this address will fail, too: the
    /// [`bounce_type`](Self::bounce_type) is `Permanent`.
    ///
    /// It is `false` for every other bounce and for an event that is not a bounce.
    ///
    /// # Example: stop sending to an address
    ///
    /// ```
    /// # use audience::webhooks::{Event, EventData, MailEvent};
    /// fn is_dead(event: &Event) -> bool {
    ///     event.mail().is_some_and(MailEvent::is_permanent_bounce)
    /// }
    /// # let body = br#"{"id": "evt_1", "type": "email.bounced", "created_at": 1, "data":
    /// #     {"email_id": "em_1", "from": "us@example.com", "to": "ada@example.com", "subject": "Hi",
    /// #      "bounce_type": "Permanent", "detail": ""}}"#;
    /// # assert!(is_dead(&Event::from_unverified_json(body)?));
    /// # Ok::<(), audience::webhooks::EnvelopeProblem>(())
    /// ```
    #[must_use]
    pub fn is_permanent_bounce(&self) -> bool {
        self.bounce_type == Some(BounceType::Permanent)
    }
}

string_enum! {
    /// The kind of a bounce.
    ///
    /// # Example: stop sending after a permanent bounce
    ///
    /// ```
    /// use audience::webhooks::{BounceType, MailEvent};
    /// # let mut mail = MailEvent::new("em_1", "us@example.com", "ada@example.com", "Hi");
    /// # mail.bounce_type = Some(BounceType::from("Permanent"));
    ///
    /// if mail.bounce_type == Some(BounceType::Permanent) {
    ///     println!("stop sending to {}", mail.to);
    /// }
    /// # assert_eq!(mail.bounce_type, Some(BounceType::Permanent));
    /// ```
    pub enum BounceType {
        /// `Permanent`: a later attempt will fail, too.
        Permanent = "Permanent",
        /// `Transient`: a later attempt may succeed.
        Transient = "Transient",
        /// `Undetermined`: the receiving server's response did not show which.
        Undetermined = "Undetermined",
    }
}

/// Reads text that is more than white space. A handler that gets a complaint without an address would take it for done.
fn not_blank<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    let text = String::deserialize(deserializer)?;
    match text.trim().is_empty() {
        true => Err(D::Error::custom("the text is empty")),
        false => Ok(text),
    }
}

/// Reads text, and any other JSON as empty text: without this member, the event is still useful.
pub(super) fn text_or_empty<'de, T: From<String>, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<T, D::Error> {
    Ok(text(deserializer)?.unwrap_or_default().into())
}

/// Reads text, and empty text or any other JSON as `None`. The service writes an empty string for a missing value.
pub(super) fn unless_empty<'de, T: From<String>, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    let text = text(deserializer)?.filter(|text| !text.is_empty());
    Ok(text.map(T::from))
}

fn text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    Ok(match Value::deserialize(deserializer)? {
        Value::String(text) => Some(text),
        _ => None,
    })
}

fn or_empty<S: Serializer>(
    text: &Option<impl AsRef<str>>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(text.as_ref().map_or("", AsRef::as_ref))
}
