use serde::{Deserialize, Serialize, Serializer};
use serde_json::value::RawValue;

use super::NewContact;
use crate::ErrorCode;
use crate::client::Object;
use crate::properties::PropertyValue;

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

    /// Returns the entries that failed or whose outcome is [unknown](BatchOutcome::Unknown), each with
    /// its index in the batch.
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
    /// The result of the entry.
    pub outcome: BatchOutcome,
    /// Whether the entry was sent with `OnConflict::Error`.
    #[serde(skip)]
    fails_on_conflict: bool,
}

impl BatchEntry {
    /// Returns whether sending this entry again, unchanged, can help.
    ///
    /// - `false` if the entry was applied, and for every refusal that the interface document names: the
    ///   entry, the plan or the key must change first.
    /// - `true` for any other slug, because its cause may be temporary. The entry was not applied.
    /// - If the outcome is [unknown](BatchOutcome::Unknown): `true`, unless the entry was sent with
    ///   [`OnConflict::Error`](super::OnConflict::Error), which would then refuse a contact that the first
    ///   batch created. A report that was stored and read back does not know that, and returns `true`.
    ///
    /// # Example: the entries to send again
    ///
    /// ```
    /// # #[cfg(feature = "mock")]
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), audience::Error> {
    /// # let server = audience::mock::MockServer::start().await;
    /// # let contacts = server.client().contacts();
    /// use audience::contacts::NewContact;
    ///
    /// let batch = ["ada@example.com", "no address"].map(NewContact::new);
    /// let report = contacts.create_batch(batch.clone()).await?;
    ///
    /// let retryable = report.failures().filter(|(_, entry)| entry.is_retryable());
    /// let again: Vec<_> = retryable.map(|(index, _)| batch[index].clone()).collect();
    /// assert!(again.is_empty(), "an invalid address stays invalid");
    /// # Ok(()) }
    /// # #[cfg(not(feature = "mock"))] fn main() {}
    /// ```
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        match &self.outcome {
            BatchOutcome::Created | BatchOutcome::Updated | BatchOutcome::Skipped => false,
            BatchOutcome::Failed { code, .. } => !ErrorCode::KNOWN.contains(code),
            BatchOutcome::Unknown => !self.fails_on_conflict,
        }
    }

    /// Reads the result of an entry that was sent. A result that is not an object tells nothing.
    pub(super) fn read(result: &RawValue, sent: &NewContact) -> Self {
        let result = serde_json::from_str(result.get()).map(|Object(result)| result);
        let mut entry = Self::from(result.unwrap_or_else(|_| ResultEntry::default()));
        if entry.email.is_empty() {
            sent.email().clone_into(&mut entry.email);
        }
        entry.fails_on_conflict = sent.fails_on_conflict();
        entry
    }
}

/// Serializes to the form of section 2.5. An unknown outcome has no status.
impl Serialize for BatchEntry {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct WireEntry<'a> {
            email: &'a str,
            #[serde(skip_serializing_if = "Option::is_none")]
            status: Option<&'a str>,
            #[serde(skip_serializing_if = "Option::is_none")]
            message: Option<&'a str>,
        }
        let (status, message) = match &self.outcome {
            BatchOutcome::Created => (Some("created"), None),
            BatchOutcome::Updated => (Some("updated"), None),
            BatchOutcome::Skipped => (Some("skipped"), None),
            BatchOutcome::Failed { code, message } => (Some(code.as_str()), message.as_deref()),
            BatchOutcome::Unknown => (None, None),
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

/// The result of one entry of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
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
}

/// An entry on the wire. Section 2.5 does not show the name of the message field. No member makes the entry
/// invalid, even if its type is wrong.
#[derive(Default, Deserialize)]
#[serde(default)]
struct ResultEntry {
    email: Option<PropertyValue>,
    status: Option<PropertyValue>,
    message: Option<PropertyValue>,
    error: Option<PropertyValue>,
    detail: Option<PropertyValue>,
    reason: Option<PropertyValue>,
}

/// Returns the text of a member, if it is text and not empty.
fn text(member: Option<&PropertyValue>) -> Option<&str> {
    member?.as_str().filter(|text| !text.is_empty())
}

impl From<ResultEntry> for BatchEntry {
    fn from(entry: ResultEntry) -> Self {
        let outcome = match text(entry.status.as_ref()) {
            Some("created") => BatchOutcome::Created,
            Some("updated") => BatchOutcome::Updated,
            Some("skipped") => BatchOutcome::Skipped,
            Some(slug) => {
                let messages = [&entry.message, &entry.error, &entry.detail, &entry.reason];
                let message = messages
                    .into_iter()
                    .find_map(|member| text(member.as_ref()));
                BatchOutcome::Failed {
                    code: ErrorCode::from_slug(slug),
                    message: message.map(str::to_owned),
                }
            }
            None => BatchOutcome::Unknown,
        };
        let email = text(entry.email.as_ref()).unwrap_or_default().to_owned();
        Self {
            email,
            outcome,
            fails_on_conflict: false,
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
