use http::Method;
use serde::{Deserialize, Serialize, Serializer};
use serde_json::Value;

use super::{Contacts, NewContact};
use crate::client::wire::{Operation, Request};
use crate::client::{Call, CallOptions, Repeat, call_options};
use crate::{Client, Error, ErrorCode};

const CREATE_BATCH: Operation = Operation {
    name: "create_batch",
    template: "/contacts/batch",
};

/// How many entries a batch holds at the most (interface section 8).
pub const MAX_BATCH: usize = 100;

impl Contacts {
    /// Creates 1 to [`MAX_BATCH`] contacts in one request (interface section 4.2).
    ///
    /// The call succeeds even where entries failed: the [`BatchReport`] tells for each one what
    /// became of it, in the order given. Once the plan's ceiling is crossed, every remaining entry
    /// reports `quota_exceeded`.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Input`](crate::ErrorKind::Input) for an empty batch, for one of more than
    /// [`MAX_BATCH`] entries, and for a property that JSON cannot hold: nothing is sent then.
    /// `key_not_permitted` (403) with a sending-access key. A batch with any `OnConflict::Error` in
    /// it is repeated only where it was certainly not applied.
    ///
    /// # Example: an import that tells what failed
    ///
    /// ```
    /// # #[cfg(feature = "mock")]
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), audience::Error> {
    /// # let server = audience::mock::MockServer::start().await;
    /// # let contacts = server.client().contacts();
    /// use audience::contacts::{BatchOutcome, NewContact};
    ///
    /// let report = contacts.create_batch(["ada@example.com", "no address"].map(NewContact::new)).await?;
    ///
    /// assert_eq!(report.entries[0].outcome, BatchOutcome::Created);
    /// for (index, entry) in report.failures() {
    ///     assert_eq!((index, entry.email.as_str()), (1, "no address"));
    /// }
    /// # Ok(()) }
    /// # #[cfg(not(feature = "mock"))] fn main() {}
    /// ```
    pub fn create_batch(&self, contacts: impl IntoIterator<Item = NewContact>) -> CreateBatch {
        let entries = contacts.into_iter().collect();
        CreateBatch {
            client: self.client.clone(),
            entries,
            options: CallOptions::default(),
        }
    }
}

/// A batch, sent by `.await`: see [`Contacts::create_batch`].
#[derive(Clone)]
#[must_use = "a call is made only when it is awaited"]
pub struct CreateBatch {
    client: Client,
    entries: Vec<NewContact>,
    options: CallOptions,
}

impl CreateBatch {
    call_options!(repeatable);

    fn request(&self) -> Result<Request, Error> {
        self.check().map_err(|error| error.at(CREATE_BATCH.name))?;
        let unsafe_to_repeat = self.entries.iter().any(NewContact::fails_on_conflict);
        let repeat = if unsafe_to_repeat {
            Repeat::Unapplied
        } else {
            Repeat::Always
        };
        Request::new(CREATE_BATCH, Method::POST, ["contacts", "batch"], repeat)?.json(&self.entries)
    }

    fn check(&self) -> Result<(), Error> {
        match self.entries.len() {
            0 => Err(Error::input(
                "the batch is empty; it takes 1 to 100 entries",
            )),
            1..=MAX_BATCH => self.entries.iter().try_for_each(NewContact::check),
            count => Err(Error::input(format!(
                "the batch has {count} entries; it takes 1 to {MAX_BATCH}, so send it in parts"
            ))),
        }
    }
}

impl IntoFuture for CreateBatch {
    type Output = Result<BatchReport, Error>;
    type IntoFuture = Call<BatchReport>;

    fn into_future(self) -> Self::IntoFuture {
        Call::new(async move {
            let request = self.request()?;
            let answer = self.client.execute(request, self.options).await?;
            let Results { data: mut entries } = answer.json()?;
            if entries.len() != self.entries.len() {
                let message = format!(
                    "{} results for {} entries",
                    entries.len(),
                    self.entries.len()
                );
                return Err(answer.unusable(Error::decode(message)));
            }
            for (entry, sent) in entries.iter_mut().zip(&self.entries) {
                if entry.email.is_empty() {
                    sent.email().clone_into(&mut entry.email);
                }
            }
            Ok(BatchReport {
                entries,
                attempts: answer.attempts,
            })
        })
    }
}

crate::client::opaque_debug!(CreateBatch);

#[derive(Deserialize)]
struct Results {
    data: Vec<BatchEntry>,
}

/// What became of a batch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct BatchReport {
    /// One result for each entry of the batch, in its order.
    pub entries: Vec<BatchEntry>,
    #[serde(default)]
    attempts: u32,
}

impl BatchReport {
    /// The entries that failed, each with its place in the batch, counted from 0.
    pub fn failures(&self) -> impl Iterator<Item = (usize, &BatchEntry)> {
        self.entries
            .iter()
            .enumerate()
            .filter(|(_, entry)| entry.outcome.is_failure())
    }

    /// How many requests it took. After more than one, an `Updated` or `Skipped` may hide a `Created`
    /// of ours.
    #[must_use]
    pub fn attempts(&self) -> u32 {
        self.attempts
    }
}

/// What became of one entry of a batch (interface section 2.5).
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(from = "ResultEntry")]
#[non_exhaustive]
pub struct BatchEntry {
    /// The address of the entry, as the service names it, or as it was sent where it does not.
    pub email: String,
    /// Its result.
    pub outcome: BatchOutcome,
}

/// As section 2.5 shows it.
impl Serialize for BatchEntry {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Written<'a> {
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
        Written {
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
    /// The address existed and was left as it is.
    Skipped,
    /// The entry was not applied. Any status other than those three is an error slug.
    Failed {
        /// Why, as for a whole request.
        code: ErrorCode,
        /// The service's own words, where it has any.
        message: Option<String>,
    },
}

impl BatchOutcome {
    /// Whether the entry was not applied.
    #[must_use]
    pub fn is_failure(&self) -> bool {
        matches!(self, Self::Failed { .. })
    }
}

/// An entry on the wire. The name of the message is not shown in section 2.5.
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
                let words = [&entry.message, &entry.error, &entry.detail, &entry.reason];
                let mut words = words.into_iter().filter_map(Value::as_str);
                let message = words.find(|text| !text.is_empty()).map(str::to_owned);
                BatchOutcome::Failed {
                    code: slug.into(),
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
    use crate::contacts::OnConflict;
    use crate::{ErrorKind, Outcome};

    fn batch(entries: impl IntoIterator<Item = NewContact>) -> CreateBatch {
        Client::new("http://localhost", "key")
            .unwrap()
            .contacts()
            .create_batch(entries)
    }

    fn many(count: usize) -> impl Iterator<Item = NewContact> {
        (0..count).map(|n| NewContact::new(format!("{n}@x.io")))
    }

    #[test]
    fn the_body_is_the_array_of_the_entries() {
        let request = batch(many(2)).request().unwrap();

        assert_eq!(
            (request.method, request.path.as_str()),
            (Method::POST, "/contacts/batch")
        );
        assert_eq!(
            request.body.unwrap(),
            r#"[{"email":"0@x.io"},{"email":"1@x.io"}]"#
        );
    }

    #[test]
    fn one_to_a_hundred_entries_are_sent_and_no_others() {
        assert!(batch(many(1)).request().is_ok());
        assert!(batch(many(100)).request().is_ok());
        for count in [0, 101] {
            let error = batch(many(count)).request().unwrap_err();

            assert_eq!(
                (error.kind(), error.outcome()),
                (ErrorKind::Input, Outcome::NotSent)
            );
        }
    }

    #[test]
    fn one_entry_that_fails_on_conflict_makes_the_batch_unsafe_to_repeat() {
        let strict = NewContact::new("s@x.io").on_conflict(OnConflict::Error);

        assert_eq!(batch(many(3)).request().unwrap().repeat, Repeat::Always);
        assert_eq!(
            batch(many(3).chain([strict])).request().unwrap().repeat,
            Repeat::Unapplied
        );
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
