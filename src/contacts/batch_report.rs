use serde::{Deserialize, Serialize, Serializer};

use super::batch_outcome::{BatchOutcome, ResultEntry};
use super::new_contact::OnConflict;
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
    /// Creates the report of a call with one attempt, for example for a unit test.
    ///
    /// # Example: in a unit test
    ///
    /// ```
    /// use audience::ErrorCode;
    /// use audience::contacts::{BatchEntry, BatchOutcome, BatchReport};
    ///
    /// let refused = BatchOutcome::Failed { code: ErrorCode::QuotaExceeded, message: None };
    /// let report = BatchReport::new([
    ///     BatchEntry::new("ada@example.com", BatchOutcome::Created),
    ///     BatchEntry::new("bob@example.com", refused),
    /// ]);
    ///
    /// assert!(report.quota_exceeded());
    /// assert_eq!(report.failures().count(), 1);
    /// ```
    pub fn new(entries: impl IntoIterator<Item = BatchEntry>) -> Self {
        Self {
            entries: entries.into_iter().collect(),
            attempts: 1,
        }
    }

    /// Sets the number of [attempts](Self::attempts). Default: 1.
    #[must_use]
    pub fn after_attempts(mut self, attempts: u32) -> Self {
        self.attempts = attempts;
        self
    }

    /// Returns whether the plan's contact ceiling stopped an entry, and with it every entry after it
    /// (section 4.2). Further batches fail in the same way until the plan or the audience changes.
    ///
    /// # Example: stop an import
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), audience::Error> {
    /// # let server = audience::mock::MockServer::builder().contact_ceiling(150).start().await;
    /// # let contacts = server.client().contacts();
    /// # let addresses: Vec<String> = (0..300).map(|n| format!("{n}@example.com")).collect();
    /// let mut batches = addresses.chunks(100);
    ///
    /// for batch in &mut batches {
    ///     let report = contacts.create_batch(batch).await?;
    ///     if report.quota_exceeded() {
    ///         println!("the plan is full; {} batches were not sent", batches.len());
    ///         break;
    ///     }
    /// }
    /// # assert_eq!(batches.len(), 1);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn quota_exceeded(&self) -> bool {
        self.entries.iter().any(|entry| {
            matches!(&entry.outcome, BatchOutcome::Failed { code, .. } if *code == ErrorCode::QuotaExceeded)
        })
    }

    /// Returns the entries that failed or whose outcome is [unknown](BatchOutcome::Unknown), each with
    /// its index in the batch.
    ///
    /// # Example: the slug of each failure
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), audience::Error> {
    /// # let server = audience::mock::MockServer::start().await;
    /// # let contacts = server.client().contacts();
    /// use audience::ErrorCode;
    /// use audience::contacts::BatchOutcome;
    ///
    /// let report = contacts.create_batch(["no address"]).await?;
    ///
    /// for (index, entry) in report.failures() {
    ///     if let BatchOutcome::Failed { code, message } = &entry.outcome {
    ///         assert_eq!((index, code), (0, &ErrorCode::ValidationError));
    ///     }
    /// }
    /// # Ok(()) }
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
    fails_on_conflict: bool,
}

impl BatchEntry {
    /// Creates the result of an entry, for example for a unit test: see [`BatchReport::new`].
    pub fn new(email: impl Into<String>, outcome: BatchOutcome) -> Self {
        Self {
            email: email.into(),
            outcome,
            fails_on_conflict: false,
        }
    }

    /// Sets the [`on_conflict`](super::NewContact::on_conflict) that the entry was sent with. Default:
    /// [`OnConflict::Upsert`].
    #[must_use]
    pub fn on_conflict(mut self, choice: OnConflict) -> Self {
        self.fails_on_conflict = choice == OnConflict::Error;
        self
    }

    /// Returns whether sending this entry again, unchanged, can help.
    ///
    /// - `false` if the entry was applied, and for every refusal that the interface document names: the
    ///   entry, the plan or the key must change first.
    /// - `true` for any other slug, because its cause may be temporary. The entry was not applied.
    /// - If the outcome is [unknown](BatchOutcome::Unknown): `true`, unless the entry was sent with
    ///   [`OnConflict::Error`](super::OnConflict::Error), which would then refuse a contact that the first
    ///   batch created.
    ///
    /// # Example: the entries to send again
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), audience::Error> {
    /// # let server = audience::mock::MockServer::start().await;
    /// # let contacts = server.client().contacts();
    /// use audience::contacts::NewContact;
    ///
    /// let batch = ["ada@example.com", "no address"].map(NewContact::new);
    /// let report = contacts.create_batch(&batch).await?;
    ///
    /// let retryable = report.failures().filter(|(_, entry)| entry.is_retryable());
    /// let again: Vec<&NewContact> = retryable.map(|(index, _)| &batch[index]).collect();
    /// assert!(again.is_empty(), "an invalid address stays invalid");
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        match &self.outcome {
            BatchOutcome::Created | BatchOutcome::Updated | BatchOutcome::Skipped => false,
            BatchOutcome::Failed { code, .. } => !ErrorCode::KNOWN.contains(code),
            BatchOutcome::Unknown => !self.fails_on_conflict,
        }
    }

    /// Sets what is known of the entry from sending it.
    pub(super) fn sent_as(mut self, email: &str, fails_on_conflict: bool) -> Self {
        if self.email.is_empty() {
            email.clone_into(&mut self.email);
        }
        self.fails_on_conflict = fails_on_conflict;
        self
    }
}

/// Serializes to the form of section 2.5. An unknown outcome has no status. An entry that was sent with
/// `OnConflict::Error` has the member `on_conflict` too, so that [`is_retryable`](BatchEntry::is_retryable)
/// is the same when it is read back.
impl Serialize for BatchEntry {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct StoredEntry<'a> {
            email: &'a str,
            #[serde(flatten)]
            outcome: &'a BatchOutcome,
            #[serde(skip_serializing_if = "Option::is_none")]
            on_conflict: Option<OnConflict>,
        }
        StoredEntry {
            email: &self.email,
            outcome: &self.outcome,
            on_conflict: self.fails_on_conflict.then_some(OnConflict::Error),
        }
        .serialize(serializer)
    }
}

impl From<ResultEntry> for BatchEntry {
    fn from(entry: ResultEntry) -> Self {
        Self {
            email: entry.email().to_owned(),
            fails_on_conflict: entry.fails_on_conflict(),
            outcome: entry.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_entry_that_is_stored_and_read_back_is_the_same() {
        for outcome in [BatchOutcome::Created, BatchOutcome::Unknown] {
            for choice in [OnConflict::Upsert, OnConflict::Error] {
                let entry = BatchEntry::new("a@x.io", outcome.clone()).on_conflict(choice);

                let text = serde_json::to_string(&entry).unwrap();
                let read: BatchEntry = serde_json::from_str(&text).unwrap();

                assert_eq!(read, entry);
                assert_eq!(read.is_retryable(), entry.is_retryable());
            }
        }
        let strict =
            BatchEntry::new("a@x.io", BatchOutcome::Unknown).on_conflict(OnConflict::Error);
        assert!(!strict.is_retryable());
    }

    #[test]
    fn the_quota_is_exceeded_if_it_stopped_any_entry() {
        let failed = |code| BatchOutcome::Failed {
            code,
            message: None,
        };
        let report = |outcomes: [BatchOutcome; 2]| {
            BatchReport::new(outcomes.map(|outcome| BatchEntry::new("a@x.io", outcome)))
        };

        let full = report([BatchOutcome::Created, failed(ErrorCode::QuotaExceeded)]);
        let refused = report([BatchOutcome::Unknown, failed(ErrorCode::ValidationError)]);

        assert!(full.quota_exceeded());
        assert!(!refused.quota_exceeded());
    }

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
