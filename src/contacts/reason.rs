use serde::{Deserialize, Serialize};

use crate::string_enum::string_enum;

string_enum! {
    /// Why a contact is opted out of all broadcasts (interface section 3.1), as read.
    ///
    /// A reason is kept word for word, also one that this version does not know.
    pub enum UnsubscribeReason {
        /// `manual`: the sender recorded it.
        Manual = "manual",
        /// `preferences`: the recipient chose it, on a preferences page for example.
        Preferences = "preferences",
        /// `complaint`: a mailbox provider reported spam. Final through the interface: the contact
        /// cannot be subscribed again, and the address is suppressed.
        Complaint = "complaint",
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
    fn what_may_be_sent_is_written_as_the_document_says() {
        for reason in [OptOutReason::Manual, OptOutReason::Preferences] {
            let written = serde_json::to_value(reason).unwrap();

            assert_eq!(written, UnsubscribeReason::from(reason).as_str());
        }
    }
}
