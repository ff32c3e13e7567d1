use serde::{Deserialize, Serialize, Serializer};
use serde_json::Value;

use crate::ErrorCode;

/// The results of a batch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct BatchReport {
    /// One result for each entry of the batch, in its order.
    pub entries: Vec<BatchEntry>,
    #[serde(default)]
    attempts: u32,
}

impl BatchReport {
    pub(super) fn new(entries: Vec<BatchEntry>, attempts: u32) -> Self {
        Self { entries, attempts }
    }

    /// Returns the entries that failed, each with its index in the batch.
    ///
    /// # Example: the slug of each failure
    ///
    /// ```
    /// # #[cfg(feature = "mock")]
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), audience::Error> {
    /// # let server = audience::mock::MockServer::start().await;
    /// # let contacts = server.client().contacts();
    /// use audience::ErrorCode;
    /// use audience::contacts::{BatchOutcome, NewContact};
    ///
    /// let report = contacts.create_batch([NewContact::new("no address")]).await?;
    ///
    /// for (index, entry) in report.failures() {
    ///     if let BatchOutcome::Failed { code, message } = &entry.outcome {
    ///         assert_eq!((index, code), (0, &ErrorCode::ValidationError));
    ///     }
    /// }
    /// # Ok(()) }
    /// # #[cfg(not(feature = "mock"))] fn main() {}
    /// ```
    pub fn failures(&self) -> impl Iterator<Item = (usize, &BatchEntry)> {
        self.entries
            .iter()
            .enumerate()
            .filter(|(_, entry)| entry.outcome.is_failure())
    }

    /// Returns how many attempts the call made.
    ///
    /// If there was more than one, `Updated` or `Skipped` may mean that an earlier attempt created the
    /// contact.
    #[must_use]
    pub fn attempts(&self) -> u32 {
        self.attempts
    }
}

/// The result of one entry of a batch (interface section 2.5).
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(from = "ResultEntry")]
#[non_exhaustive]
pub struct BatchEntry {
    /// The address of the entry: as in the response or, if the response has none, as it was sent.
    pub email: String,
    /// What happened to the entry.
    pub outcome: BatchOutcome,
}

/// Serializes to the form of section 2.5.
impl Serialize for BatchEntry {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct WireEntry<'a> {
            email: &'a str,
            status: &'a str,
            #[serde(skip_serializing_if = "Option::is_none")]
            message: Option<&'a str>,
        }
        let (status, message) = match &self.outcome {
            BatchOutcome::Created => ("created", None),
            BatchOutcome::Updated => ("updated", None),
            BatchOutcome::Skipped => ("skipped", None),
            BatchOutcome::Failed { code, message } => (code.as_str(), message.as_deref()),
        };
        let email = &self.email;
        WireEntry {
            email,
            status,
            message,
        }
        .serialize(serializer)
    }
}

/// What happened to one entry of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BatchOutcome {
    /// The address was new.
    Created,
    /// The address existed and was updated.
    Updated,
    /// The address existed and was left unchanged.
    Skipped,
    /// The entry was not applied. Every other status in a response is an error slug.
    Failed {
        /// The slug, as in the error of a whole request.
        code: ErrorCode,
        /// The service's message, if it sent one.
        message: Option<String>,
    },
}

impl BatchOutcome {
    /// Returns whether the entry was not applied.
    #[must_use]
    pub fn is_failure(&self) -> bool {
        matches!(self, Self::Failed { .. })
    }
}

/// An entry on the wire. Section 2.5 does not show the name of the message field.
#[derive(Deserialize)]
struct ResultEntry {
    #[serde(default)]
    email: Option<String>,
    status: String,
    #[serde(default)]
    message: Value,
    #[serde(default)]
    error: Value,
    #[serde(default)]
    detail: Value,
    #[serde(default)]
    reason: Value,
}

impl From<ResultEntry> for BatchEntry {
    fn from(entry: ResultEntry) -> Self {
        let outcome = match entry.status.as_str() {
            "created" => BatchOutcome::Created,
            "updated" => BatchOutcome::Updated,
            "skipped" => BatchOutcome::Skipped,
            slug => {
                let message = [&entry.message, &entry.error, &entry.detail, &entry.reason]
                    .into_iter()
                    .filter_map(Value::as_str)
                    .find(|text| !text.is_empty())
                    .map(str::to_owned);
                BatchOutcome::Failed {
                    code: ErrorCode::from_slug(slug),
                    message,
                }
            }
        };
        Self {
            email: entry.email.unwrap_or_default(),
            outcome,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_message_of_a_failed_entry_is_found_under_any_likely_name() {
        for name in ["message", "error", "detail", "reason"] {
            let entry = json!({"email": "a@x.io", "status": "quota_exceeded", name: "full"});

            let entry: BatchEntry = serde_json::from_value(entry).unwrap();

            let message = Some("full".to_owned());
            assert_eq!(
                entry.outcome,
                BatchOutcome::Failed {
                    code: ErrorCode::QuotaExceeded,
                    message
                }
            );
        }
        let bare: BatchEntry =
            serde_json::from_value(json!({"email": "a@x.io", "status": "new_slug"})).unwrap();
        assert_eq!(
            bare.outcome,
            BatchOutcome::Failed {
                code: "new_slug".into(),
                message: None
            }
        );
    }
}
