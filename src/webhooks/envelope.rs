//! Reads the envelope of interface section 6.2 in one pass, where `type` comes before `data`.

use std::cell::Cell;
use std::fmt;
use std::marker::PhantomData;

use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{self, DeserializeSeed, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::Value;
use serde_json::error::Category;
use serde_json::value::RawValue;

use super::event::{Event, EventData, EventId};
use super::event_type::EventType;
use super::inbound::InboundMail;
use super::mail::MailEvent;
use crate::Timestamp;
use crate::json::Json;

/// What is wrong with a body that is no event envelope. It tells nothing of what stands in there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EnvelopeProblem {
    /// The bytes are not UTF-8.
    #[error("it is not UTF-8")]
    NotUtf8,

    /// The text is not JSON.
    #[error("it is not JSON, at line {line} column {column}")]
    NotJson {
        /// The line where reading ended, from 1.
        line: usize,
        /// The column where reading ended, in bytes.
        column: usize,
    },

    /// The JSON is not an object.
    #[error("it is not a JSON object")]
    NotAnObject,

    /// A member that every event has is not there.
    #[error("it has no {member:?}")]
    Missing {
        /// `id`, `type` or `created_at`.
        member: &'static str,
    },

    /// A member came twice, so that it is unclear which is meant.
    #[error("it has more than one {member:?}")]
    Duplicate {
        /// `id`, `type`, `created_at` or `data`.
        member: &'static str,
    },

    /// A member has a value that it cannot have: an `id` that is not 1 to 255 bytes of text without
    /// control characters, a `type` that is not text, a `created_at` that is not an integer.
    #[error("its {member:?} is not what it can be")]
    Invalid {
        /// `id`, `type` or `created_at`.
        member: &'static str,
    },
}

/// Reads an authenticated body.
pub(super) fn read(body: &[u8]) -> Result<Event, EnvelopeProblem> {
    let text = str::from_utf8(body).map_err(|_| EnvelopeProblem::NotUtf8)?;
    // Data of another shape than its type says ends the first reading. The second takes it as text.
    parse(text, true).or_else(|_| parse(text, false))
}

fn parse(text: &str, typed: bool) -> Result<Event, EnvelopeProblem> {
    let problem = Cell::new(None);
    let envelope = Envelope::<&RawValue> {
        typed,
        problem: &problem,
        capture: PhantomData,
    };
    let mut json = serde_json::Deserializer::from_str(text);
    json.deserialize_map(envelope)
        .and_then(|event| json.end().map(|()| event))
        .map_err(|error| match error.classify() {
            Category::Data => problem.get().unwrap_or(EnvelopeProblem::NotAnObject),
            _ => EnvelopeProblem::NotJson {
                line: error.line(),
                column: error.column(),
            },
        })
}

/// Reads an event from any format that describes itself.
pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Event, D::Error> {
    let problem = Cell::new(None);
    deserializer
        .deserialize_map(Envelope::<Json> {
            typed: false,
            problem: &problem,
            capture: PhantomData,
        })
        .map_err(|error| problem.get().map_or(error, de::Error::custom))
}

struct Envelope<'p, C> {
    /// Whether data that comes after its type is read as that type says, at once.
    typed: bool,
    /// Why reading ended, where the deserializer's own error would say less.
    problem: &'p Cell<Option<EnvelopeProblem>>,
    capture: PhantomData<C>,
}

impl<C> Envelope<'_, C> {
    fn stop<E: de::Error>(&self, problem: EnvelopeProblem) -> E {
        self.problem.set(Some(problem));
        E::custom(problem)
    }

    /// Takes the value of a member that may stand there only once.
    fn member<'de, T: Deserialize<'de>, A: MapAccess<'de>>(
        &self,
        slot: &mut Option<T>,
        map: &mut A,
        member: &'static str,
    ) -> Result<(), A::Error> {
        if slot.is_some() {
            return Err(self.stop(EnvelopeProblem::Duplicate { member }));
        }
        *slot = Some(map.next_value().inspect_err(|_| {
            self.problem.set(Some(EnvelopeProblem::Invalid { member }));
        })?);
        Ok(())
    }

    fn required<T, E: de::Error>(&self, slot: Option<T>, member: &'static str) -> Result<T, E> {
        slot.ok_or_else(|| self.stop(EnvelopeProblem::Missing { member }))
    }
}

impl<'de, C: Capture<'de>> Visitor<'de> for Envelope<'_, C> {
    type Value = Event;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an event envelope")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Event, A::Error> {
        let mut id: Option<EventId> = None;
        let mut event_type: Option<EventType> = None;
        let mut created_at: Option<Timestamp> = None;
        let mut data: Option<Data<C>> = None;

        while let Some(member) = map.next_key()? {
            match member {
                Member::Id => self.member(&mut id, &mut map, "id")?,
                Member::Type => self.member(&mut event_type, &mut map, "type")?,
                Member::CreatedAt => self.member(&mut created_at, &mut map, "created_at")?,
                Member::Data if data.is_some() => {
                    return Err(self.stop(EnvelopeProblem::Duplicate { member: "data" }));
                }
                Member::Data => {
                    data = Some(match &event_type {
                        Some(event_type) if self.typed => {
                            Data::Read(map.next_value_seed(DataOf(event_type))?)
                        }
                        _ => Data::Captured(map.next_value()?),
                    });
                }
                Member::Unknown => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }

        let id = self.required(id, "id")?;
        let event_type = self.required(event_type, "type")?;
        let created_at = self.required(created_at, "created_at")?;
        let data = match data {
            Some(Data::Read(data)) => data,
            Some(Data::Captured(data)) => data.into_data(event_type),
            None => EventData::Unknown {
                event_type,
                data: Value::Null,
            },
        };
        Ok(Event::new(id, created_at, data))
    }
}

enum Data<C> {
    Read(EventData),
    Captured(C),
}

/// Data set aside until its type is known.
trait Capture<'de>: Deserialize<'de> {
    /// Reads it as `event_type` says, or keeps the JSON where it has another shape.
    fn into_data(self, event_type: EventType) -> EventData;
}

impl<'de> Capture<'de> for &'de RawValue {
    fn into_data(self, event_type: EventType) -> EventData {
        let typed = DataOf(&event_type).deserialize(self);
        typed.unwrap_or_else(|_| {
            let json = Json::deserialize(self).map(|Json(json)| json);
            EventData::Unknown {
                data: json.unwrap_or_else(|_| self.get().into()),
                event_type,
            }
        })
    }
}

impl<'de> Capture<'de> for Json {
    fn into_data(self, event_type: EventType) -> EventData {
        let typed = DataOf(&event_type).deserialize(&self.0);
        typed.unwrap_or(EventData::Unknown {
            event_type,
            data: self.0,
        })
    }
}

/// Reads data whose type is known, and fails where it has another shape.
struct DataOf<'t>(&'t EventType);

impl<'de> DeserializeSeed<'de> for DataOf<'_> {
    type Value = EventData;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<EventData, D::Error> {
        if let EventType::Other(_) = self.0 {
            return Ok(EventData::Unknown {
                event_type: self.0.clone(),
                data: Json::deserialize(deserializer)?.0,
            });
        }
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for DataOf<'_> {
    type Value = EventData;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the data of an event")
    }

    // Nothing but a map: the models would take an array of their members, too.
    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<EventData, A::Error> {
        let data = MapAccessDeserializer::new(map);
        let of_mail = match self.0 {
            EventType::Bounced => EventData::Bounced,
            EventType::Clicked => EventData::Clicked,
            EventType::Complained => EventData::Complained,
            EventType::Delivered => EventData::Delivered,
            EventType::DeliveryDelayed => EventData::DeliveryDelayed,
            EventType::Failed => EventData::Failed,
            EventType::Opened => EventData::Opened,
            EventType::Refused => EventData::Refused,
            EventType::Sent => EventData::Sent,
            EventType::Received => return InboundMail::deserialize(data).map(EventData::Received),
            EventType::Other(_) => return Err(de::Error::custom("the type is not known")),
        };
        MailEvent::deserialize(data).map(of_mail)
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
        struct Name;

        impl Visitor<'_> for Name {
            type Value = Member;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a member's name")
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

        deserializer.deserialize_identifier(Name)
    }
}
