use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Why a contact is opted out of all broadcasts (interface section 3.1), as read.
///
/// A reason is kept word for word, also one that this version does not know.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum UnsubscribeReason {
    /// `manual`: the sender recorded it.
    Manual,
    /// `preferences`: the recipient chose it, on a preferences page for example.
    Preferences,
    /// `complaint`: a mailbox provider reported spam. Final through the interface: the contact cannot
    /// be subscribed again, and the address is suppressed.
    Complaint,
    /// A reason that the interface document does not name.
    Other(Box<str>),
}

impl UnsubscribeReason {
    /// The reason as it stands on the wire.
    #[must_use]
    pub fn as_str(&self) -> &str {
        match self {
            Self::Manual => "manual",
            Self::Preferences => "preferences",
            Self::Complaint => "complaint",
            Self::Other(text) => text,
        }
    }
}

impl From<&str> for UnsubscribeReason {
    fn from(text: &str) -> Self {
        match text {
            "manual" => Self::Manual,
            "preferences" => Self::Preferences,
            "complaint" => Self::Complaint,
            other => Self::Other(other.into()),
        }
    }
}

impl fmt::Display for UnsubscribeReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Serialize for UnsubscribeReason {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for UnsubscribeReason {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(|text| Self::from(text.as_str()))
    }
}

/// The reason that a sender may give with an opt-out (interface section 4.5).
///
/// There is no complaint among them: only the service records one.
///
/// # Example: a complaint cannot be declared
///
/// ```compile_fail,E0599
/// use audience::contacts::OptOutReason;
///
/// let reason = OptOutReason::Complaint;
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OptOutReason {
    /// The sender records it: what the service takes where no reason is given.
    #[default]
    Manual,
    /// The recipient chose it.
    Preferences,
}

impl From<OptOutReason> for UnsubscribeReason {
    fn from(reason: OptOutReason) -> Self {
        match reason {
            OptOutReason::Manual => Self::Manual,
            OptOutReason::Preferences => Self::Preferences,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_read_and_write_word_for_word() {
        for text in ["manual", "preferences", "complaint", "left the company"] {
            let reason: UnsubscribeReason = serde_json::from_value(text.into()).unwrap();

            assert_eq!(serde_json::to_value(&reason).unwrap(), text);
        }
        assert_eq!(
            UnsubscribeReason::from("complaint"),
            UnsubscribeReason::Complaint
        );
    }

    #[test]
    fn what_may_be_sent_is_written_as_the_document_says() {
        for reason in [OptOutReason::Manual, OptOutReason::Preferences] {
            let written = serde_json::to_value(reason).unwrap();

            assert_eq!(written, UnsubscribeReason::from(reason).as_str());
        }
    }
}
