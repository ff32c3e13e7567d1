//! Parses the envelope of interface section 6.2, in one pass if `type` precedes `data`.

use std::cell::Cell;
use std::fmt;

use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{self, DeserializeSeed, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::Value;
use serde_json::error::Category;
use serde_json::value::RawValue;

use super::envelope_problem::EnvelopeProblem;
use super::event::Event;
use super::event_data::EventData;
use super::event_id::EventId;
use super::event_type::EventType;
use crate::Timestamp;

impl Event {
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
    /// Returns an [`EnvelopeProblem`] if the body is not an event envelope (interface section 6.2).
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
}

fn parse(text: &str, typed: bool) -> Result<Event, EnvelopeProblem> {
    let problem = Cell::new(None);
    let envelope = Envelope {
        typed,
        problem: &problem,
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

struct Envelope<'p> {
    /// Whether data that follows its type is parsed as that type immediately.
    typed: bool,
    /// Why parsing failed, if it is more precise than the deserializer's own error.
    problem: &'p Cell<Option<EnvelopeProblem>>,
}

impl Envelope<'_> {
    fn fail<E: de::Error>(&self, problem: EnvelopeProblem) -> E {
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
                        Some(event_type) if self.typed => {
                            Data::Parsed(map.next_value_seed(DataSeed(event_type))?)
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
    let typed = DataSeed(&event_type).deserialize(data);
    typed.unwrap_or_else(|_| {
        let json = Value::deserialize(data);
        EventData::Unknown {
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
