use std::fmt;

use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

macro_rules! event_types {
    ($($(#[$docs:meta])* $variant:ident = $text:literal,)*) => {
        /// The type of an event (interface section 6.1): one of the ten known ones, or the name of
        /// one that came later.
        ///
        /// # Example: names, known or not, are kept
        ///
        /// ```
        /// use audience::webhooks::EventType;
        ///
        /// assert_eq!(EventType::from("email.bounced"), EventType::Bounced);
        /// assert_eq!(EventType::from("email.snoozed").as_str(), "email.snoozed");
        /// assert_eq!(EventType::KNOWN.len(), 10);
        /// ```
        #[derive(Clone, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum EventType {
            $($(#[$docs])* $variant,)*
            /// A type that this version of the crate does not know, as it came.
            Other(String),
        }

        impl EventType {
            /// The ten types of interface section 6.1.
            pub const KNOWN: &'static [EventType] = &[$(Self::$variant,)*];

            /// The type's name on the wire.
            #[must_use]
            pub fn as_str(&self) -> &str {
                match self {
                    $(Self::$variant => $text,)*
                    Self::Other(text) => text,
                }
            }

            fn known(text: &str) -> Option<Self> {
                match text {
                    $($text => Some(Self::$variant),)*
                    _ => None,
                }
            }
        }
    };
}

event_types! {
    /// `email.bounced`: the receiving server refused the message.
    Bounced = "email.bounced",
    /// `email.clicked`: the recipient followed a link.
    Clicked = "email.clicked",
    /// `email.complained`: the recipient reported the message as spam.
    Complained = "email.complained",
    /// `email.delivered`: the receiving server took the message.
    Delivered = "email.delivered",
    /// `email.delivery_delayed`: the receiving server has not taken the message yet.
    DeliveryDelayed = "email.delivery_delayed",
    /// `email.failed`: the message could not be sent.
    Failed = "email.failed",
    /// `email.opened`: the recipient opened the message.
    Opened = "email.opened",
    /// `email.received`: a message came in at a domain with inbound switched on.
    Received = "email.received",
    /// `email.refused`: the service declined to send to this address; no message went.
    Refused = "email.refused",
    /// `email.sent`: the service sent the message.
    Sent = "email.sent",
}

impl From<&str> for EventType {
    fn from(text: &str) -> Self {
        Self::known(text).unwrap_or_else(|| Self::Other(text.to_owned()))
    }
}

impl From<String> for EventType {
    fn from(text: String) -> Self {
        Self::known(&text).unwrap_or(Self::Other(text))
    }
}

impl fmt::Display for EventType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl Serialize for EventType {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for EventType {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(Name)
    }
}

struct Name;

impl Visitor<'_> for Name {
    type Value = EventType;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the name of an event type")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<EventType, E> {
        Ok(EventType::from(text))
    }
}
