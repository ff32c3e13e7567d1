use std::fmt;

use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

/// The id of an event: 1 to 255 bytes of text without control characters.
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
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct EventId(Box<str>);

impl EventId {
    const MAX_BYTES: usize = 255;

    /// Returns the id as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<&str> for EventId {
    type Error = InvalidEventId;

    fn try_from(text: &str) -> Result<Self, InvalidEventId> {
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
