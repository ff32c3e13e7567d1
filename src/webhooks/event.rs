//! The event of a delivery, and its JSON (interface sections 6.1 and 6.2).

use std::cell::Cell;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::de::value::MapAccessDeserializer;
use serde::de::{self, DeserializeSeed, IgnoredAny, MapAccess, Visitor};
use serde::ser::SerializeStruct;
use serde::{Deserialize, Deserializer, Serialize, Serializer, forward_to_deserialize_any};
use serde_json::Value;
use serde_json::error::Category;
use serde_json::value::RawValue;

use super::inbound::InboundMail;
use super::mail::MailEvent;
use crate::Timestamp;
use crate::string_enum::string_enum;

/// An event ([interface section 6.2](crate::interface#6.2)).
///
/// It serializes to the JSON of the delivery, so it can be stored in a queue. Members that this version of the crate does
/// not know are lost, and data that is kept as [JSON text](EventData::Unknown) is written as a string; to keep both, store
/// the bytes from [`authenticate`](super::Verifier::authenticate).
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
    /// The event's id, identical in every delivery of it. Deduplicate on this only
    /// ([interface section 6.5](crate::interface#6.5)).
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

    /// Parses an event from JSON **without verifying it**.
    ///
    /// Use it only for JSON that was verified before: the body of a stored delivery, or an event that
    /// your program serialized. It does not tell who sent the bytes; use
    /// [`Verifier::verify`](super::Verifier::verify) for a delivery from the network.
    ///
    /// This is the only way to read an event without its signature. [`Event`] does not implement
    /// [`Deserialize`], so a handler cannot take it from a request body by accident.
    ///
    /// # Errors
    ///
    /// Returns an [`EnvelopeProblem`] if the body is not an event envelope
    /// ([interface section 6.2](crate::interface#6.2)).
    ///
    /// # Example: a stored delivery
    ///
    /// ```
    /// use audience::webhooks::Event;
    ///
    /// let body = br#"{"id": "evt_1", "type": "email.sent", "created_at": 1700000000, "data": {}}"#;
    ///
    /// let event = Event::from_unverified_json(body)?;
    ///
    /// assert_eq!(event.id.as_str(), "evt_1");
    /// # Ok::<(), audience::webhooks::EnvelopeProblem>(())
    /// ```
    pub fn from_unverified_json(json: &[u8]) -> Result<Self, EnvelopeProblem> {
        let text = str::from_utf8(json).map_err(|_| EnvelopeProblem::NotUtf8)?;
        // The first pass fails if the data has another shape than its type. The second keeps it as JSON.
        parse(text, true).or_else(|_| parse(text, false))
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

/// The table of event types (interface section 6.1): variant, type of `data`, name.
///
/// It passes its rows to the macro `$use`. `EventType`, `EventData` and the parsing are made from
/// it, so to add an event type, add a row.
macro_rules! event_types {
    ($use:ident) => {
        $use! {
            /// The receiving server rejected the message; see
            /// [`bounce_type`](crate::webhooks::MailEvent::bounce_type).
            Bounced(MailEvent) = "email.bounced",
            /// The recipient followed a link.
            Clicked(MailEvent) = "email.clicked",
            /// The recipient reported the message as spam.
            Complained(MailEvent) = "email.complained",
            /// The receiving server accepted the message.
            Delivered(MailEvent) = "email.delivered",
            /// The receiving server has not accepted the message yet.
            DeliveryDelayed(MailEvent) = "email.delivery_delayed",
            /// The service reports that the message failed. The interface does not say how; only
            /// `email.refused` means that the message was not sent ([interface section 6.3](crate::interface#6.3)).
            Failed(MailEvent) = "email.failed",
            /// The recipient opened the message.
            Opened(MailEvent) = "email.opened",
            /// A message arrived at a domain with inbound switched on.
            Received(InboundMail) = "email.received",
            /// The service declined to send to this address;
            /// [`detail`](crate::webhooks::MailEvent::detail) states the reason. The one event that
            /// means a message was not sent ([interface section 6.3](crate::interface#6.3)).
            Refused(MailEvent) = "email.refused",
            /// The service sent the message.
            Sent(MailEvent) = "email.sent",
        }
    };
}

macro_rules! define_event_type {
    ($($(#[$docs:meta])* $variant:ident($data:ident) = $name:literal,)*) => {
        string_enum! {
            /// The type of an event ([interface section 6.1](crate::interface#6.1)), including types that this version
            /// of the crate does not know.
            ///
            /// # Example: known and unknown types
            ///
            /// ```
            /// use audience::webhooks::EventType;
            ///
            /// assert_eq!(EventType::from("email.bounced"), EventType::Bounced);
            /// assert_eq!(EventType::Bounced.as_str(), "email.bounced");
            /// assert_eq!(EventType::from("email.snoozed").as_str(), "email.snoozed");
            /// ```
            pub enum EventType {
                $(#[doc = concat!("`", $name, "`:")] $(#[$docs])* $variant = $name,)*
            }
        }
    };
}

event_types!(define_event_type);

macro_rules! define_event_data {
    ($($(#[$docs:meta])* $variant:ident($data:ident) = $name:literal,)*) => {
        /// The `data` of an event: one variant for each event type ([interface section 6.1](crate::interface#6.1)).
        ///
        /// It serializes to the `data` of the envelope. It cannot be deserialized without the type; use
        /// [`Event::from_unverified_json`](super::Event::from_unverified_json) for stored JSON.
        ///
        /// # Example: handle some types
        ///
        /// ```
        /// use audience::webhooks::EventData;
        /// # use audience::webhooks::MailEvent;
        /// # let mail = MailEvent::new("em_1", "us@example.com", "ada@example.com", "Hi");
        /// # let data = EventData::Opened(mail);
        ///
        /// match data {
        ///     EventData::Complained(mail) => println!("drop {}", mail.to),
        ///     EventData::Received(inbound) => println!("reply to {}", inbound.from),
        ///     _ => {}
        /// }
        /// ```
        #[derive(Clone, Debug, PartialEq)]
        #[non_exhaustive]
        pub enum EventData {
            $($(#[$docs])* $variant($data),)*
            /// A type that this version of the crate does not know, or a known type whose data lacks a member that
            /// identifies what the event is about.
            ///
            /// These members are `email_id` and `to` of sent mail, and `inbound_id`, `from` and `to` of received mail.
            /// If one of them is missing, has another JSON type than the interface shows, or contains half a surrogate
            /// pair, if the `to` of sent mail is empty or white space, or if a member of its section occurs twice, the
            /// event is `Unknown`. If the type is known, [`is_incomplete`](Self::is_incomplete) returns `true`, the
            /// verifier emits a [warning](crate::webhooks#tracing), and an `Inbox` counts the event, so that a handler's
            /// `_ => {}` does not hide it.
            Unknown {
                /// The event's type, known or not.
                event_type: EventType,
                /// The data; null if it is missing. If a member occurs more than once, the last one is kept, and a
                /// number that is neither an integer of 64 bits nor exactly an `f64` is rounded. Data that a [`Value`]
                /// cannot represent (nested too deeply, a number out of range, half a surrogate pair) is kept as its
                /// JSON text. [`VerifiedEvent::body`](crate::webhooks::VerifiedEvent::body) has the original.
                data: Value,
            },
        }

        impl EventData {
            /// Returns the type of the event.
            ///
            /// # Example: data of a type that this version does not know
            ///
            /// ```
            /// use audience::webhooks::Event;
            ///
            /// let body = br#"{"id": "evt_1", "type": "email.snoozed", "created_at": 1, "data": {"by": "ada"}}"#;
            /// let data = Event::from_unverified_json(body)?.data;
            ///
            /// assert_eq!(data.event_type().as_str(), "email.snoozed");
            /// assert!(data.mail().is_none());
            /// # Ok::<(), audience::webhooks::EnvelopeProblem>(())
            /// ```
            #[must_use]
            pub fn event_type(&self) -> EventType {
                match self {
                    $(Self::$variant(_) => EventType::$variant,)*
                    Self::Unknown { event_type, .. } => event_type.clone(),
                }
            }

            /// Returns the data about a sent message; `None` for [`Received`](Self::Received) and
            /// [`Unknown`](Self::Unknown).
            ///
            /// # Example: the address of any event about a sent message
            ///
            /// ```
            /// use audience::webhooks::{EventData, MailEvent};
            ///
            /// let data = EventData::Opened(MailEvent::new("em_1", "us@example.com", "ada@example.com", "Hi"));
            ///
            /// assert_eq!(data.mail().map(|mail| mail.to.as_str()), Some("ada@example.com"));
            /// ```
            #[must_use]
            pub fn mail(&self) -> Option<&MailEvent> {
                match self {
                    $(Self::$variant(data) => data.as_mail(),)*
                    Self::Unknown { .. } => None,
                }
            }

            /// Returns whether the type is known, but the data does not tell what the event is about, so that it is
            /// [`Unknown`](Self::Unknown).
            ///
            /// A bounce or a complaint without its address must not be acknowledged like a type that does not concern
            /// you: return an error, so that a worker parks the event.
            ///
            /// # Example: no complaint is lost
            ///
            /// ```
            /// use audience::webhooks::{Event, EventData};
            ///
            /// fn handle(event: &Event) -> Result<(), &'static str> {
            ///     match &event.data {
            ///         EventData::Complained(mail) => println!("stop sending to {}", mail.address()),
            ///         data if data.is_incomplete() => return Err("the data does not tell what the event is about"),
            ///         _ => {}
            ///     }
            ///     Ok(())
            /// }
            ///
            /// let body = br#"{"id": "evt_1", "type": "email.complained", "created_at": 1, "data": {"email_id": "em_1"}}"#;
            /// assert!(handle(&Event::from_unverified_json(body)?).is_err());
            /// # Ok::<(), audience::webhooks::EnvelopeProblem>(())
            /// ```
            #[must_use]
            pub fn is_incomplete(&self) -> bool {
                match self {
                    Self::Unknown { event_type, .. } => !matches!(event_type, EventType::Other(_)),
                    _ => false,
                }
            }

            /// Reads data as the shape of `event_type`.
            fn deserialize_known<'de, D: Deserializer<'de>>(
                event_type: &EventType,
                data: D,
            ) -> Result<Self, D::Error> {
                match event_type {
                    $(EventType::$variant => $data::deserialize(data).map(Self::$variant),)*
                    EventType::Other(_) => Err(de::Error::custom("the event type is unknown")),
                }
            }
        }

        impl Serialize for EventData {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                match self {
                    $(Self::$variant(data) => data.serialize(serializer),)*
                    Self::Unknown { data, .. } => data.serialize(serializer),
                }
            }
        }
    };
}

event_types!(define_event_data);

trait AsMail {
    fn as_mail(&self) -> Option<&MailEvent>;
}

impl AsMail for MailEvent {
    fn as_mail(&self) -> Option<&MailEvent> {
        Some(self)
    }
}

impl AsMail for InboundMail {
    fn as_mail(&self) -> Option<&MailEvent> {
        None
    }
}

/// The id of an event: 1 to 255 bytes of text without control characters. Clones share the text.
///
/// # Example: valid and invalid ids
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
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EventId(Arc<str>);

impl EventId {
    const MAX_BYTES: usize = 255;

    /// Returns the id as text.
    ///
    /// # Example: a key of a table
    ///
    /// ```
    /// use audience::webhooks::EventId;
    ///
    /// let mut seen = std::collections::HashSet::new();
    /// let id = EventId::try_from("evt_1")?;
    ///
    /// assert!(seen.insert(id.as_str().to_owned()));
    /// # Ok::<(), audience::webhooks::InvalidEventId>(())
    /// ```
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<&str> for EventId {
    type Error = InvalidEventId;

    fn try_from(text: &str) -> Result<Self, InvalidEventId> {
        // The inbox uses the id as a key in its store.
        let valid = (1..=Self::MAX_BYTES).contains(&text.len()) && !text.contains(char::is_control);
        valid.then(|| Self(text.into())).ok_or(InvalidEventId)
    }
}

impl TryFrom<String> for EventId {
    type Error = InvalidEventId;

    fn try_from(text: String) -> Result<Self, InvalidEventId> {
        Self::try_from(text.as_str())
    }
}

/// The same as `EventId::try_from`, for flags of a program.
///
/// # Example: an id from the command line
///
/// ```
/// use audience::webhooks::EventId;
///
/// let id: EventId = "evt_1".parse()?;
///
/// assert_eq!(id, EventId::try_from("evt_1")?);
/// # Ok::<(), audience::webhooks::InvalidEventId>(())
/// ```
impl FromStr for EventId {
    type Err = InvalidEventId;

    fn from_str(text: &str) -> Result<Self, InvalidEventId> {
        Self::try_from(text)
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

impl Serialize for EventId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for EventId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct IdVisitor;

        impl Visitor<'_> for IdVisitor {
            type Value = EventId;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an event id")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<EventId, E> {
                EventId::try_from(text).map_err(E::custom)
            }
        }

        deserializer.deserialize_str(IdVisitor)
    }
}

/// The text is not a valid [`EventId`]: it is empty, longer than 255 bytes, or contains control
/// characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an event id must be 1 to 255 bytes of text without control characters")]
#[non_exhaustive]
pub struct InvalidEventId;

/// Why a body is not an event envelope. The text contains no part of the body.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EnvelopeProblem {
    /// The bytes are not UTF-8.
    #[error("the body is not UTF-8")]
    NotUtf8,

    /// The text is not JSON.
    #[error("the body is not JSON, at line {line} column {column}")]
    NotJson {
        /// The line of the error, from 1.
        line: usize,
        /// The column of the error, in bytes.
        column: usize,
    },

    /// The JSON is not an object.
    #[error("the body is not a JSON object")]
    NotAnObject,

    /// A required member is missing.
    #[error("the body has no {member:?}")]
    Missing {
        /// `id`, `type` or `created_at`.
        member: &'static str,
    },

    /// A member occurs more than once, so it is unclear which one is meant.
    #[error("the body has more than one {member:?}")]
    Duplicate {
        /// `id`, `type`, `created_at` or `data`.
        member: &'static str,
    },

    /// A member has an invalid value: an `id` that is not 1 to 255 bytes of text without control
    /// characters, a `type` that is not text, or a `created_at` that is not an integer.
    #[error("the {member:?} of the body is invalid")]
    Invalid {
        /// `id`, `type` or `created_at`.
        member: &'static str,
    },
}

// The envelope is parsed in one pass if `type` precedes `data`.

fn parse(text: &str, typed: bool) -> Result<Event, EnvelopeProblem> {
    let problem = Cell::new(None);
    let envelope = Envelope {
        typed,
        problem: &problem,
    };
    let mut json = serde_json::Deserializer::from_str(text);
    json.deserialize_map(envelope)
        // Bytes after the object were signed too, so they make the delivery invalid instead of being ignored.
        .and_then(|event| json.end().map(|()| event))
        .map_err(|error| match error.classify() {
            Category::Data => problem.get().unwrap_or(EnvelopeProblem::NotAnObject),
            _ => EnvelopeProblem::NotJson {
                line: error.line(),
                column: error.column(),
            },
        })
}

struct Envelope<'p> {
    /// Whether data that follows its type is parsed as that type immediately.
    typed: bool,
    /// Why parsing failed, if it is more precise than the deserializer's own error.
    problem: &'p Cell<Option<EnvelopeProblem>>,
}

impl Envelope<'_> {
    fn fail<E: de::Error>(&self, problem: EnvelopeProblem) -> E {
        // Kept beside the error, because an error of serde_json has only a text.
        self.problem.set(Some(problem));
        E::custom(problem)
    }

    /// Reads the value of a member that may occur only once.
    fn member<'de, T: Deserialize<'de>, A: MapAccess<'de>>(
        &self,
        slot: &mut Option<T>,
        map: &mut A,
        member: &'static str,
    ) -> Result<(), A::Error> {
        if slot.is_some() {
            return Err(self.fail(EnvelopeProblem::Duplicate { member }));
        }
        *slot = Some(map.next_value().inspect_err(|_| {
            self.problem.set(Some(EnvelopeProblem::Invalid { member }));
        })?);
        Ok(())
    }

    fn required<T, E: de::Error>(&self, slot: Option<T>, member: &'static str) -> Result<T, E> {
        slot.ok_or_else(|| self.fail(EnvelopeProblem::Missing { member }))
    }
}

impl<'de> Visitor<'de> for Envelope<'_> {
    type Value = Event;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an event envelope")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Event, A::Error> {
        let mut id: Option<EventId> = None;
        let mut event_type: Option<EventType> = None;
        let mut created_at: Option<Timestamp> = None;
        let mut data: Option<Data<'de>> = None;

        while let Some(member) = map.next_key()? {
            match member {
                Member::Id => self.member(&mut id, &mut map, "id")?,
                Member::Type => self.member(&mut event_type, &mut map, "type")?,
                Member::CreatedAt => self.member(&mut created_at, &mut map, "created_at")?,
                Member::Data if data.is_some() => {
                    return Err(self.fail(EnvelopeProblem::Duplicate { member: "data" }));
                }
                Member::Data => {
                    data = Some(match &event_type {
                        // The type came first, as the service writes it: the data needs no second pass.
                        Some(event_type) if self.typed => {
                            Data::Parsed(map.next_value_seed(DataSeed(event_type))?)
                        }
                        _ => Data::Captured(map.next_value()?),
                    });
                }
                // A member of a later version of the interface is no reason to lose the event.
                Member::Unknown => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }

        let id = self.required(id, "id")?;
        let event_type = self.required(event_type, "type")?;
        let created_at = self.required(created_at, "created_at")?;
        let data = match data {
            Some(Data::Parsed(data)) => data,
            Some(Data::Captured(data)) => into_data(data, event_type),
            None => EventData::Unknown {
                event_type,
                data: Value::Null,
            },
        };
        Ok(Event::new(id, created_at, data))
    }
}

enum Data<'de> {
    Parsed(EventData),
    /// Kept until its type is known.
    Captured(&'de RawValue),
}

/// Parses data as `event_type`, or keeps the JSON if it has another shape.
fn into_data(data: &RawValue, event_type: EventType) -> EventData {
    // Data of another shape is kept as JSON: a genuine event must reach the handler.
    let typed = data.deserialize_map(Lossy(DataSeed(&event_type)));
    typed.unwrap_or_else(|_| {
        let json = Value::deserialize(data);
        EventData::Unknown {
            // Nested too deeply for a `Value`, for example. The text of the JSON keeps it.
            data: json.unwrap_or_else(|_| data.get().into()),
            event_type,
        }
    })
}

/// Parses data of a known type, and fails if it has another shape.
struct DataSeed<'t>(&'t EventType);

impl<'de> DeserializeSeed<'de> for DataSeed<'_> {
    type Value = EventData;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<EventData, D::Error> {
        // An unknown type has no shape to compare with, so any JSON is its data.
        if let EventType::Other(_) = self.0 {
            return Ok(EventData::Unknown {
                event_type: self.0.clone(),
                data: Value::deserialize(deserializer)?,
            });
        }
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for DataSeed<'_> {
    type Value = EventData;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the data of an event")
    }

    // A map only: the derived models would also accept an array of their members.
    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<EventData, A::Error> {
        EventData::deserialize_known(self.0, MapAccessDeserializer::new(map))
    }
}

/// Parses data of a known type, also if an optional member has a value that no [`Value`] can hold.
struct Lossy<'t>(DataSeed<'t>);

impl<'de> Visitor<'de> for Lossy<'_> {
    type Value = EventData;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.expecting(f)
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<EventData, A::Error> {
        self.0.visit_map(LossyMembers(map))
    }
}

struct LossyMembers<A>(A);

impl<'de, A: MapAccess<'de>> MapAccess<'de> for LossyMembers<A> {
    type Error = A::Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, A::Error> {
        self.0.next_key_seed(seed)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, A::Error> {
        let json: &RawValue = self.0.next_value()?;
        let read = match Value::deserialize(json) {
            Ok(_) => seed.deserialize(json),
            Err(_) => seed.deserialize(Unrepresentable(json)),
        };
        read.map_err(de::Error::custom)
    }
}

/// JSON that no [`Value`] can hold: text with half a surrogate pair, a number out of range, or deep nesting.
struct Unrepresentable<'de>(&'de RawValue);

impl<'de> Deserializer<'de> for Unrepresentable<'de> {
    type Error = serde_json::Error;

    /// For the optional members, which may be any JSON. The end of a text that was cut may be half a surrogate pair.
    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Self::Error> {
        match self.0.deserialize_bytes(LossyText) {
            Ok(text) => visitor.visit_string(text),
            Err(_) => visitor.visit_unit(),
        }
    }

    /// For the members that identify what the event is about. With another character, they would identify nothing.
    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Self::Error> {
        self.0.deserialize_string(visitor)
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str bytes byte_buf option unit unit_struct
        newtype_struct seq tuple tuple_struct map struct enum identifier ignored_any
    }
}

/// Reads text, with U+FFFD for each half of a surrogate pair.
struct LossyText;

impl Visitor<'_> for LossyText {
    type Value = String;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("text")
    }

    fn visit_bytes<E: de::Error>(self, bytes: &[u8]) -> Result<String, E> {
        let mut text = String::with_capacity(bytes.len());
        for chunk in bytes.utf8_chunks() {
            text.push_str(chunk.valid());
            // serde_json writes half a pair as three bytes, each of which is invalid UTF-8. The first one is this.
            if chunk.invalid() == [0xED] {
                text.push(char::REPLACEMENT_CHARACTER);
            }
        }
        Ok(text)
    }
}

enum Member {
    Id,
    Type,
    CreatedAt,
    Data,
    Unknown,
}

impl<'de> Deserialize<'de> for Member {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct NameVisitor;

        impl Visitor<'_> for NameVisitor {
            type Value = Member;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the name of a member")
            }

            fn visit_str<E: de::Error>(self, name: &str) -> Result<Member, E> {
                Ok(match name {
                    "id" => Member::Id,
                    "type" => Member::Type,
                    "created_at" => Member::CreatedAt,
                    "data" => Member::Data,
                    _ => Member::Unknown,
                })
            }
        }

        deserializer.deserialize_identifier(NameVisitor)
    }
}
