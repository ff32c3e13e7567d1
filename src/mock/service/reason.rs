//! The reason of a global opt-out (section 3.1).

/// The reason of a contact's global opt-out (interface section 3.1): the values of `unsubscribe_reason`.
///
/// # Example: a contact who reported spam
///
/// ```
/// use audience::mock::{Reason, SeedContact};
///
/// let contact = SeedContact::new("ada@example.com").unsubscribed(Reason::Complaint);
/// # let _ = contact;
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Reason {
    /// No reason: `unsubscribe_reason` is an empty string.
    ///
    /// Default.
    #[default]
    None,
    /// `manual`.
    Manual,
    /// `preferences`.
    Preferences,
    /// `complaint`: a mailbox provider reported spam. No request can undo it.
    Complaint,
}

impl Reason {
    /// The reasons, in the order of the variants.
    const ALL: [Self; 4] = [Self::None, Self::Manual, Self::Preferences, Self::Complaint];

    /// Returns the value of `unsubscribe_reason`. It is an empty string if there is no reason (section 2.1).
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::None => "",
            Self::Manual => "manual",
            Self::Preferences => "preferences",
            Self::Complaint => "complaint",
        }
    }

    /// Returns the reason with a value of `unsubscribe_reason`, or `None` if the value is unknown.
    pub(crate) fn from_value(value: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|reason| reason.as_str() == value)
    }
}
