use serde::{Deserialize, Serialize};

use crate::string_enum::string_enum;

string_enum! {
    /// Why a contact is opted out of all broadcasts, as read from the service (interface section 3.1).
    ///
    /// A reason that this version of the crate does not know is kept verbatim as
    /// [`UnsubscribeReason::Other`]. The reason that a sender gives is an [`OptOutReason`].
    ///
    /// # Example: reasons and variants
    ///
    /// ```
    /// use audience::contacts::UnsubscribeReason;
    ///
    /// assert_eq!(UnsubscribeReason::from("complaint"), UnsubscribeReason::Complaint);
    /// assert_eq!(UnsubscribeReason::Manual.as_str(), "manual");
    /// assert_eq!(UnsubscribeReason::from("moved_away").as_str(), "moved_away");
    /// ```
    pub enum UnsubscribeReason {
        /// `manual`: the sender recorded it.
        Manual = "manual",
        /// `preferences`: the recipient chose it, for example on a preferences page.
        Preferences = "preferences",
        /// `complaint`: a mailbox provider reported spam. The contact cannot be subscribed again
        /// through the service, and the address is suppressed.
        Complaint = "complaint",
    }
}

/// The reason that a sender may give with an opt-out (interface section 4.5).
///
/// It has no complaint: only the service records one.
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
    /// The sender records it. This is the service's default.
    #[default]
    Manual,
    /// The recipient chose it, for example on a preferences page.
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
    fn a_reason_to_send_serializes_like_the_reason_to_read() {
        for reason in [OptOutReason::Manual, OptOutReason::Preferences] {
            let written = serde_json::to_value(reason).unwrap();

            assert_eq!(written, UnsubscribeReason::from(reason).as_str());
        }
    }
}
