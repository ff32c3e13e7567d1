use serde::ser::SerializeStruct;
use serde::{Serialize, Serializer};

use super::event_data::EventData;
use super::event_id::EventId;
use super::event_type::EventType;
use super::mail::MailEvent;
use crate::Timestamp;

/// An event (interface section 6.2).
///
/// It serializes to the JSON of the delivery, so it can be stored in a queue. Members that this
/// version of the crate does not know are not kept; store the bytes from
/// [`authenticate`](super::Verifier::authenticate) to keep them.
///
/// It does not implement [`Deserialize`](serde::Deserialize): a handler that takes `Json<Event>` would
/// accept events from anyone. [`from_unverified_json`](Self::from_unverified_json) reads a stored event.
/// A handler that accepts unverified JSON does not compile:
///
/// ```compile_fail,E0277
/// use audience::webhooks::Event;
///
/// let event: Event = serde_json::from_slice(b"{}").unwrap();
/// ```
///
/// # Example: an event for your own test
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
/// let body = serde_json::to_vec(&event)?;
/// assert_eq!(Event::from_unverified_json(&body)?, event);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Event {
    /// The event's id, identical in every delivery of it. Deduplicate on this only (interface
    /// section 6.5).
    pub id: EventId,
    /// When the event happened.
    pub created_at: Timestamp,
    /// The type of the event, with its data.
    pub data: EventData,
}

impl Event {
    /// Creates an event.
    ///
    /// # Example: a delivered message
    ///
    /// ```
    /// # use audience::Timestamp;
    /// # use audience::webhooks::{Event, EventData, EventId, InvalidEventId, MailEvent};
    /// let mail = MailEvent::new("em_1", "us@example.com", "ada@example.com", "Hi");
    /// let id = EventId::try_from("evt_1")?;
    ///
    /// let event = Event::new(id, Timestamp::from_unix(1_700_000_000), EventData::Delivered(mail));
    /// # Ok::<(), InvalidEventId>(())
    /// ```
    #[must_use]
    pub fn new(id: EventId, created_at: Timestamp, data: EventData) -> Self {
        Self {
            id,
            created_at,
            data,
        }
    }

    /// Returns the event's type, as stated in the body.
    ///
    /// # Example: count events by type
    ///
    /// ```
    /// # use audience::webhooks::{Event, EventType};
    /// # let body = br#"{"id": "evt_1", "type": "email.snoozed", "created_at": 1, "data": {}}"#;
    /// # let event = Event::from_unverified_json(body)?;
    /// # let mut counts = std::collections::HashMap::<EventType, u64>::new();
    /// *counts.entry(event.event_type()).or_default() += 1;
    /// # assert_eq!(counts[&EventType::from("email.snoozed")], 1);
    /// # Ok::<(), audience::webhooks::EnvelopeProblem>(())
    /// ```
    #[must_use]
    pub fn event_type(&self) -> EventType {
        self.data.event_type()
    }

    /// Returns the data about a sent message; `None` for inbound mail and unknown data.
    ///
    /// # Example: find your own record of the message
    ///
    /// ```
    /// # use audience::webhooks::Event;
    /// # let body = br#"{"id": "evt_1", "type": "email.opened", "created_at": 1, "data":
    /// #     {"email_id": "em_1", "from": "us@example.com", "to": "ada@example.com", "subject": "Hi",
    /// #      "bounce_type": "", "detail": ""}}"#;
    /// # let event = Event::from_unverified_json(body)?;
    /// if let Some(mail) = event.mail() {
    ///     println!("{}: {}", mail.email_id, event.event_type());
    /// }
    /// # assert_eq!(event.mail().unwrap().email_id, "em_1");
    /// # Ok::<(), audience::webhooks::EnvelopeProblem>(())
    /// ```
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
