use std::fmt;

use serde::de::{self, Visitor};
use serde::ser::SerializeStruct;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

use super::envelope::{self, EnvelopeProblem};
use super::event_type::EventType;
use super::inbound::InboundMail;
use super::mail::MailEvent;
use crate::Timestamp;

/// One event of the service (interface section 6.2).
///
/// It serialises to the JSON that stands on the wire, and back, so it can wait in a queue.
/// Members that this version of the crate does not know are not kept; the bytes that
/// [`authenticate`](super::Verifier::authenticate) returns have them.
///
/// # Example: an event for a test of your own
///
/// ```
/// use audience::Timestamp;
/// use audience::webhooks::{Event, EventData, EventId, EventType, MailEvent};
///
/// let mail = MailEvent::new("em_1", "us@example.com", "ada@example.com", "Hi");
/// let event = Event::new(
///     EventId::try_from("evt_1")?,
///     Timestamp::from_unix(1_700_000_000),
///     EventData::Opened(mail),
/// );
///
/// assert_eq!(event.event_type(), EventType::Opened);
/// assert_eq!(event.mail().map(|mail| mail.email_id.as_str()), Some("em_1"));
/// let body = serde_json::to_vec(&event)?;
/// assert_eq!(serde_json::from_slice::<Event>(&body)?, event);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Event {
    /// The same in every delivery of this event: the one thing to deduplicate on (interface
    /// section 6.5).
    pub id: EventId,
    /// When the event happened.
    pub created_at: Timestamp,
    /// What happened.
    pub data: EventData,
}

impl Event {
    /// An event as the service would send it.
    #[must_use]
    pub fn new(id: EventId, created_at: Timestamp, data: EventData) -> Self {
        Self {
            id,
            created_at,
            data,
        }
    }

    /// Reads an event out of a body that was authenticated before, by whatever means: a delivery
    /// kept from an earlier day, say. It proves nothing about where the bytes came from.
    ///
    /// # Errors
    ///
    /// The [`EnvelopeProblem`] where this is not an event envelope (interface section 6.2).
    pub fn from_json(body: &[u8]) -> Result<Self, EnvelopeProblem> {
        envelope::read(body)
    }

    /// The event's type, as the body has it.
    #[must_use]
    pub fn event_type(&self) -> EventType {
        self.data.event_type()
    }

    /// What the event says about mail the sender sent, which is what nine of the ten types do.
    #[must_use]
    pub fn mail(&self) -> Option<&MailEvent> {
        self.data.mail()
    }
}

impl Serialize for Event {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut event = serializer.serialize_struct("Event", 4)?;
        event.serialize_field("id", &self.id)?;
        event.serialize_field("type", &self.event_type())?;
        event.serialize_field("created_at", &self.created_at)?;
        event.serialize_field("data", &self.data)?;
        event.end()
    }
}

impl<'de> Deserialize<'de> for Event {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        envelope::deserialize(deserializer)
    }
}

/// What happened: one variant for each type of event (interface section 6.1).
///
/// It serialises to the `data` of the event. There is no way back without the type, so only
/// [`Event`] can be read.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum EventData {
    /// The receiving server refused the message; see [`MailEvent::bounce_type`].
    Bounced(MailEvent),
    /// The recipient followed a link.
    Clicked(MailEvent),
    /// The recipient reported the message as spam.
    Complained(MailEvent),
    /// The receiving server took the message.
    Delivered(MailEvent),
    /// The receiving server has not taken the message yet.
    DeliveryDelayed(MailEvent),
    /// The message could not be sent.
    Failed(MailEvent),
    /// The recipient opened the message.
    Opened(MailEvent),
    /// A message came in at a domain with inbound switched on.
    Received(InboundMail),
    /// The service declined to send to this address; [`MailEvent::detail`] says why. The one event
    /// that means a message did not go (interface section 6.3).
    Refused(MailEvent),
    /// The service sent the message.
    Sent(MailEvent),
    /// A type that this version of the crate does not know, or a known type whose data has another
    /// shape than the interface document gives.
    Unknown {
        /// The type's name, known or not.
        event_type: EventType,
        /// The data, as it came; null where there was none. Of members that came twice, which is
        /// another shape too, the last is kept. Data that no JSON value of ours can hold, because it
        /// is nested too deeply or has a number out of range or half a character in it, is kept as
        /// the text it came as.
        data: Value,
    },
}

impl EventData {
    /// The type of event that this is the data of.
    #[must_use]
    pub fn event_type(&self) -> EventType {
        match self {
            Self::Bounced(_) => EventType::Bounced,
            Self::Clicked(_) => EventType::Clicked,
            Self::Complained(_) => EventType::Complained,
            Self::Delivered(_) => EventType::Delivered,
            Self::DeliveryDelayed(_) => EventType::DeliveryDelayed,
            Self::Failed(_) => EventType::Failed,
            Self::Opened(_) => EventType::Opened,
            Self::Received(_) => EventType::Received,
            Self::Refused(_) => EventType::Refused,
            Self::Sent(_) => EventType::Sent,
            Self::Unknown { event_type, .. } => event_type.clone(),
        }
    }

    /// What this says about mail the sender sent; `None` for [`Received`](Self::Received) and
    /// [`Unknown`](Self::Unknown).
    #[must_use]
    pub fn mail(&self) -> Option<&MailEvent> {
        match self {
            Self::Bounced(mail)
            | Self::Clicked(mail)
            | Self::Complained(mail)
            | Self::Delivered(mail)
            | Self::DeliveryDelayed(mail)
            | Self::Failed(mail)
            | Self::Opened(mail)
            | Self::Refused(mail)
            | Self::Sent(mail) => Some(mail),
            Self::Received(_) | Self::Unknown { .. } => None,
        }
    }
}

impl Serialize for EventData {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Received(inbound) => inbound.serialize(serializer),
            Self::Unknown { data, .. } => data.serialize(serializer),
            mail => mail.mail().serialize(serializer),
        }
    }
}

/// The id of an event: 1 to 255 bytes of text without control characters.
///
/// # Example: what can be an id
///
/// ```
/// use audience::webhooks::EventId;
///
/// let id = EventId::try_from("evt_1")?;
///
/// assert_eq!(id.as_str(), "evt_1");
/// assert!(EventId::try_from("").is_err());
/// # Ok::<(), audience::webhooks::InvalidEventId>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct EventId(Box<str>);

impl EventId {
    const LONGEST: usize = 255;

    /// The id as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<&str> for EventId {
    type Error = InvalidEventId;

    fn try_from(text: &str) -> Result<Self, InvalidEventId> {
        let usable = (1..=Self::LONGEST).contains(&text.len()) && !text.contains(char::is_control);
        usable.then(|| Self(text.into())).ok_or(InvalidEventId)
    }
}

impl TryFrom<String> for EventId {
    type Error = InvalidEventId;

    fn try_from(text: String) -> Result<Self, InvalidEventId> {
        Self::try_from(text.as_str())
    }
}

impl AsRef<str> for EventId {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for EventId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl<'de> Deserialize<'de> for EventId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Id;

        impl Visitor<'_> for Id {
            type Value = EventId;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an event id")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<EventId, E> {
                EventId::try_from(text).map_err(E::custom)
            }
        }

        deserializer.deserialize_str(Id)
    }
}

/// The text cannot be an [`EventId`]: it is empty, longer than 255 bytes, or has control characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an event id is 1 to 255 bytes of text without control characters")]
#[non_exhaustive]
pub struct InvalidEventId;
