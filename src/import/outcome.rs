use std::fmt;

use serde::{Deserialize, Serialize};

use crate::ErrorCode;

/// What an import did with one row.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum RowOutcome {
    /// The contact was created.
    Created,
    /// The address existed and was updated.
    ///
    /// After a retry or a resumed import, this may be a contact that an earlier attempt created.
    Updated,
    /// The address existed and was left unchanged.
    Skipped,
    /// The row was not applied, and neither were its opt-outs.
    Refused {
        /// The slug of the refusal. `invalid_row` if the row could not be sent.
        code: ErrorCode,
        /// What was wrong, if that is known.
        message: Option<String>,
        /// Whether importing the same row again can help.
        retryable: bool,
    },
    /// The contact was created, updated or skipped, but an opt-out of the row was not recorded. Until it
    /// is, the contact may get broadcasts that it opted out of.
    ///
    /// A resumed import does not record it either, unless the key was refused. Import the row again with upsert or
    /// skip: with [`OnConflict::Error`](crate::contacts::OnConflict::Error) it would be refused, because the
    /// contact exists.
    OptOutFailed {
        /// The slug of the refusal, or what kind of failure it was.
        code: ErrorCode,
        /// Which opt-out failed, and why.
        message: Option<String>,
    },
    /// The row was checked in a dry run, and nothing is wrong with it.
    Valid,
    /// The row was not sent: the import stopped before it, the service could not be reached, or an earlier row
    /// of the same address was not sent or has an unknown outcome.
    NotSent,
    /// The row was sent, and no usable response arrived: it may have been applied or not. Its opt-outs were not
    /// recorded.
    Unknown,
}

impl RowOutcome {
    /// Returns whether the row was applied in full.
    #[must_use]
    pub fn is_applied(&self) -> bool {
        matches!(self, Self::Created | Self::Updated | Self::Skipped)
    }

    /// Returns whether the row belongs to the rejects: it was neither applied nor, in a dry run, found to be
    /// valid.
    #[must_use]
    pub fn is_reject(&self) -> bool {
        !matches!(self, Self::Valid) && !self.is_applied()
    }

    /// Returns whether importing the same row again can help.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Created | Self::Updated | Self::Skipped | Self::Valid => false,
            Self::Refused { retryable, .. } => *retryable,
            Self::OptOutFailed { .. } | Self::NotSent | Self::Unknown => true,
        }
    }

    /// Returns the slug for the rejects, or the name of the outcome.
    #[must_use]
    pub fn code(&self) -> &str {
        match self {
            Self::Created => "created",
            Self::Updated => "updated",
            Self::Skipped => "skipped",
            Self::Refused { code, .. } => code.as_str(),
            Self::OptOutFailed { .. } => "opt_out_failed",
            Self::Valid => "valid",
            Self::NotSent => "not_sent",
            Self::Unknown => "unknown",
        }
    }

    /// Returns the message, if there is one.
    #[must_use]
    pub fn message(&self) -> Option<&str> {
        match self {
            Self::Refused { message, .. } | Self::OptOutFailed { message, .. } => {
                message.as_deref()
            }
            _ => None,
        }
    }
}

/// Writes the code and, if there is one, the message.
impl fmt::Display for RowOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.code())?;
        match self.message() {
            Some(message) => write!(f, ": {message}"),
            None => Ok(()),
        }
    }
}
