use std::fmt;

use serde::{Deserialize, Serialize, Serializer};

use crate::ErrorCode;
use crate::properties::PropertyValue;

/// The result of one entry of a batch.
///
/// It serializes to the members of section 2.5: `{"status": "created"}`, or
/// `{"status": "already_exists", "message": "…"}`. An unknown outcome has no status.
///
/// `Display` writes the status, and a message after it: `created`, `already_exists: …`, `unknown`. The
/// message is the service's, so it may name an address.
///
/// # Example: a line for each entry
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), audience::Error> {
/// # let server = audience::mock::MockServer::start().await;
/// # let contacts = server.client().contacts();
/// let report = contacts.create_batch(["ada@example.com", "no address"]).await?;
///
/// for entry in &report.entries {
///     println!("{:<20} {}", entry.email, entry.outcome);
/// }
/// # assert_eq!(report.entries[0].outcome.to_string(), "created");
/// # assert!(report.entries[1].outcome.to_string().starts_with("validation_error: "));
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(from = "ResultEntry")]
#[non_exhaustive]
pub enum BatchOutcome {
    /// The address was new.
    Created,
    /// The address existed and was updated.
    Updated,
    /// The address existed and was left unchanged.
    Skipped,
    /// The entry was not applied. A status other than the three above is an error slug.
    Failed {
        /// The slug, as in the error of a whole request.
        code: ErrorCode,
        /// The service's message, if it sent one.
        message: Option<String>,
    },
    /// The service sent no usable status for the entry, so it may have been applied or not.
    ///
    /// [`retrieve`](super::Contacts::retrieve) shows which.
    Unknown,
}

impl BatchOutcome {
    /// Returns whether the entry failed, or may have failed because its outcome is
    /// [unknown](Self::Unknown).
    #[must_use]
    pub fn is_failure(&self) -> bool {
        matches!(self, Self::Failed { .. } | Self::Unknown)
    }

    /// Reads a status of section 2.5, which is not empty.
    pub(super) fn read<'a>(status: &str, message: impl FnOnce() -> Option<&'a str>) -> Self {
        match status {
            "created" => Self::Created,
            "updated" => Self::Updated,
            "skipped" => Self::Skipped,
            slug => Self::Failed {
                code: ErrorCode::from_slug(slug),
                message: message().map(str::to_owned),
            },
        }
    }

    /// Returns the status and the message, as in section 2.5.
    fn status(&self) -> (Option<&str>, Option<&str>) {
        match self {
            Self::Created => (Some("created"), None),
            Self::Updated => (Some("updated"), None),
            Self::Skipped => (Some("skipped"), None),
            Self::Failed { code, message } => (Some(code.as_str()), message.as_deref()),
            Self::Unknown => (None, None),
        }
    }
}

impl fmt::Display for BatchOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.status() {
            (Some(status), Some(message)) => f.pad(&format!("{status}: {message}")),
            (Some(status), None) => f.pad(status),
            (None, _) => f.pad("unknown"),
        }
    }
}

impl Serialize for BatchOutcome {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct StoredOutcome<'a> {
            #[serde(skip_serializing_if = "Option::is_none")]
            status: Option<&'a str>,
            #[serde(skip_serializing_if = "Option::is_none")]
            message: Option<&'a str>,
        }
        let (status, message) = self.status();
        StoredOutcome { status, message }.serialize(serializer)
    }
}

/// An entry on the wire. Section 2.5 does not show the name of the message field. No member makes the entry
/// invalid, even if its type is wrong.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct ResultEntry {
    email: Option<PropertyValue>,
    status: Option<PropertyValue>,
    message: Option<PropertyValue>,
    error: Option<PropertyValue>,
    detail: Option<PropertyValue>,
    reason: Option<PropertyValue>,
    /// Only in an entry that was stored: the service does not send it.
    on_conflict: Option<PropertyValue>,
}

impl ResultEntry {
    /// Returns the address; empty if there is none.
    pub(super) fn email(&self) -> &str {
        text(self.email.as_ref()).unwrap_or_default()
    }

    pub(super) fn fails_on_conflict(&self) -> bool {
        text(self.on_conflict.as_ref()) == Some("error")
    }

    /// Returns the message, under any of its likely names.
    fn message(&self) -> Option<&str> {
        [&self.message, &self.error, &self.detail, &self.reason]
            .into_iter()
            .find_map(|member| text(member.as_ref()))
    }
}

/// Returns the text of a member, if it is text and not empty.
fn text(member: Option<&PropertyValue>) -> Option<&str> {
    member?.as_str().filter(|text| !text.is_empty())
}

impl From<ResultEntry> for BatchOutcome {
    fn from(entry: ResultEntry) -> Self {
        match text(entry.status.as_ref()) {
            Some(status) => Self::read(status, || entry.message()),
            None => Self::Unknown,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn failed(message: Option<&str>) -> BatchOutcome {
        BatchOutcome::Failed {
            code: ErrorCode::AlreadyExists,
            message: message.map(str::to_owned),
        }
    }

    #[test]
    fn an_outcome_is_displayed_for_people_and_read_back_from_its_json() {
        for (outcome, text, json) in [
            (
                BatchOutcome::Created,
                "created",
                json!({"status": "created"}),
            ),
            (
                BatchOutcome::Updated,
                "updated",
                json!({"status": "updated"}),
            ),
            (
                BatchOutcome::Skipped,
                "skipped",
                json!({"status": "skipped"}),
            ),
            (BatchOutcome::Unknown, "unknown", json!({})),
            (
                failed(None),
                "already_exists",
                json!({"status": "already_exists"}),
            ),
            (
                failed(Some("it is there")),
                "already_exists: it is there",
                json!({"status": "already_exists", "message": "it is there"}),
            ),
        ] {
            assert_eq!(outcome.to_string(), text);
            assert_eq!(format!("{outcome:>40}|"), format!("{text:>40}|"));
            assert_eq!(serde_json::to_value(&outcome).unwrap(), json);
            assert_eq!(
                serde_json::from_value::<BatchOutcome>(json).unwrap(),
                outcome
            );
        }
    }
}
