use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::string_enum::string_enum;

/// What an event says about a message the sender sent, to one recipient (interface section 6.3).
///
/// # Example: one for a test of your own
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
    /// The id that `POST /emails` returned: joins the event to the sender's own record.
    pub email_id: String,
    /// The envelope sender of the message.
    pub from: String,
    /// The one recipient that this event is about.
    pub to: String,
    /// The message's subject.
    pub subject: String,
    /// How final a bounce is; `None` on events that are not bounces.
    #[serde(default, deserialize_with = "bounce_type", serialize_with = "or_empty")]
    pub bounce_type: Option<BounceType>,
    /// The receiving server's words, or the service's reason not to send: prose, not to be parsed.
    /// `None` where there are none.
    #[serde(
        default,
        deserialize_with = "unless_empty",
        serialize_with = "or_empty"
    )]
    pub detail: Option<String>,
}

impl MailEvent {
    /// What an event says about a message, without bounce type and detail.
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
}

string_enum! {
    /// How final a bounce is, as the receiving side was understood.
    pub enum BounceType {
        /// `Permanent`: no later attempt will do better.
        Permanent = "Permanent",
        /// `Transient`: a later attempt may.
        Transient = "Transient",
        /// `Undetermined`: the receiving server's words did not tell.
        Undetermined = "Undetermined",
    }
}

/// Reads missing, null and empty text as none: the service writes the empty string for it.
pub(super) fn unless_empty<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<String>, D::Error> {
    Option::<String>::deserialize(deserializer).map(|text| text.filter(|text| !text.is_empty()))
}

fn bounce_type<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<BounceType>, D::Error> {
    unless_empty(deserializer).map(|text| text.map(BounceType::from))
}

fn or_empty<S: Serializer>(
    text: &Option<impl AsRef<str>>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(text.as_ref().map_or("", AsRef::as_ref))
}
