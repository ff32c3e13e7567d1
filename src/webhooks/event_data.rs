use serde::de::{self, Deserialize, Deserializer};
use serde::{Serialize, Serializer};
use serde_json::Value;

use super::event_type::{EventType, event_types};
use super::inbound::InboundMail;
use super::mail::MailEvent;

macro_rules! define_event_data {
    ($($(#[$docs:meta])* $variant:ident($data:ident) = $name:literal,)*) => {
        /// The `data` of an event: one variant for each event type (interface section 6.1).
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
        ///     EventData::Bounced(mail) | EventData::Complained(mail) => println!("drop {}", mail.to),
        ///     EventData::Received(inbound) => println!("reply to {}", inbound.from),
        ///     _ => {}
        /// }
        /// ```
        #[derive(Clone, Debug, PartialEq)]
        #[non_exhaustive]
        pub enum EventData {
            $($(#[$docs])* $variant($data),)*
            /// A type that this version of the crate does not know, or a known type with data of
            /// another shape than the interface document shows.
            Unknown {
                /// The event's type, known or not.
                event_type: EventType,
                /// The data, unchanged; null if there was none. If a member occurs more than once,
                /// which is another shape too, the last one is kept. Data that a [`Value`] cannot
                /// represent (nested too deeply, a number out of range, half a surrogate pair) is
                /// kept as its JSON text.
                data: Value,
            },
        }

        impl EventData {
            /// Returns the type of the event.
            #[must_use]
            pub fn event_type(&self) -> EventType {
                match self {
                    $(Self::$variant(_) => EventType::$variant,)*
                    Self::Unknown { event_type, .. } => event_type.clone(),
                }
            }

            /// Returns the data about a sent message; `None` for [`Received`](Self::Received) and
            /// [`Unknown`](Self::Unknown).
            #[must_use]
            pub fn mail(&self) -> Option<&MailEvent> {
                match self {
                    $(Self::$variant(data) => data.as_mail(),)*
                    Self::Unknown { .. } => None,
                }
            }

            /// Reads data as the shape of `event_type`.
            pub(super) fn deserialize_known<'de, D: Deserializer<'de>>(
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
