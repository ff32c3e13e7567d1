//! The request and the response of a batch, whoever holds its contacts.

use std::borrow::{Borrow, Cow};

use http::Method;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::batch_outcome::{BatchOutcome, ResultEntry};
use super::batch_report::{BatchEntry, BatchReport};
use super::new_contact::NewContact;
use crate::Error;
use crate::client::{Object, Operation, Request, RetrySafety, Success};

/// The largest number of entries in a batch (interface section 8).
pub const MAX_BATCH: usize = 100;

pub(super) const OPERATION: Operation = Operation {
    name: "create_batch",
    template: "/contacts/batch",
};

/// What is known of an entry when its result arrives.
#[derive(Clone, Copy)]
pub(super) struct SentEntry<'a> {
    pub(super) email: &'a str,
    pub(super) fails_on_conflict: bool,
}

impl<'a> From<&'a NewContact> for SentEntry<'a> {
    fn from(contact: &'a NewContact) -> Self {
        Self {
            email: &contact.email,
            fails_on_conflict: contact.fails_on_conflict(),
        }
    }
}

/// Creates the request.
///
/// # Errors
///
/// `ErrorKind::Input` if the number of entries or a property is invalid.
pub(super) fn request(entries: &[impl Borrow<NewContact> + Serialize]) -> Result<Request, Error> {
    match entries.len() {
        0 => {
            return Err(Error::input(format!(
                "the batch is empty; send 1 to {MAX_BATCH} entries"
            )));
        }
        1..=MAX_BATCH => {}
        count => {
            return Err(Error::input(format!(
                "the batch has {count} entries; send at most {MAX_BATCH} in one batch"
            )));
        }
    }
    let mut retry_safety = RetrySafety::Safe;
    for entry in entries.iter().map(Borrow::borrow) {
        entry.check()?;
        if entry.fails_on_conflict() {
            retry_safety = RetrySafety::OnlyIfNotApplied;
        }
    }
    Request::new(Method::POST, ["contacts", "batch"], retry_safety)?
        .without_target()
        .json(entries)
}

/// Reads the results.
///
/// # Errors
///
/// `ErrorKind::Decode` if the response does not have one result for each entry.
pub(super) fn decode<'a>(
    success: &Success,
    sent: impl ExactSizeIterator<Item = SentEntry<'a>>,
) -> Result<BatchReport, Error> {
    // Nearly every response has the documented form, which is fast to read. Any other is read again, and a
    // result of any form is accepted.
    let entries = match success.valid_object() {
        Some(Results::<Object<DocumentedEntry<'_>>> { data }) => read(data, sent)?,
        None => {
            let Object(Results::<&RawValue> { data }) = success.json()?;
            read(data, sent)?
        }
    };
    Ok(BatchReport::new(entries).after_attempts(success.attempts()))
}

fn read<'a>(
    results: Vec<impl Into<BatchEntry>>,
    sent: impl ExactSizeIterator<Item = SentEntry<'a>>,
) -> Result<Vec<BatchEntry>, Error> {
    let (count, sent_count) = (results.len(), sent.len());
    if count != sent_count {
        let message = format!("the response has {count} results for {sent_count} entries");
        return Err(Error::decode(message));
    }
    let entries = results.into_iter().map(Into::into).zip(sent);
    let entries = entries.map(|(entry, sent)| entry.sent_as(sent.email, sent.fails_on_conflict));
    Ok(entries.collect())
}

#[derive(Deserialize)]
struct Results<T> {
    data: Vec<T>,
}

/// A result in the form of section 2.5, with the most likely name of the message.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DocumentedEntry<'a> {
    #[serde(borrow)]
    email: Cow<'a, str>,
    #[serde(borrow)]
    status: Cow<'a, str>,
    #[serde(borrow, default)]
    message: Option<Cow<'a, str>>,
}

impl From<Object<DocumentedEntry<'_>>> for BatchEntry {
    fn from(Object(entry): Object<DocumentedEntry<'_>>) -> Self {
        let message = || entry.message.as_deref().filter(|text| !text.is_empty());
        let outcome = match entry.status.as_ref() {
            "" => BatchOutcome::Unknown,
            status => BatchOutcome::read(status, message),
        };
        Self::new(entry.email, outcome)
    }
}

/// A result that is not an object tells nothing.
impl From<&RawValue> for BatchEntry {
    fn from(result: &RawValue) -> Self {
        let entry = serde_json::from_str(result.get()).map(|Object(entry)| entry);
        Self::from(entry.unwrap_or_else(|_| ResultEntry::default()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_in_the_documented_form_is_read_as_any_other_result_is() {
        for (text, is_documented) in [
            (r#"{"email": "a@x.io", "status": "created"}"#, true),
            (r#"{"status": "updated", "email": "\u00e4@x.io"}"#, true),
            (r#"{"email": "", "status": ""}"#, true),
            (
                r#"{"email": "a@x.io", "status": "Already-Exists", "message": "it is there"}"#,
                true,
            ),
            (
                r#"{"email": "a@x.io", "status": "new_slug", "message": ""}"#,
                true,
            ),
            (
                r#"{"email": "a@x.io", "status": "new_slug", "message": null}"#,
                true,
            ),
            (
                r#"{"email": "a@x.io", "status": "new_slug", "detail": "x"}"#,
                false,
            ),
            (r#"{"email": "a@x.io", "status": 5}"#, false),
            (r#"{"status": "created"}"#, false),
            (r#"["a@x.io", "created"]"#, false),
            (
                r#"{"email": "a@x.io", "status": "created", "status": "skipped"}"#,
                false,
            ),
        ] {
            let documented = serde_json::from_str::<Object<DocumentedEntry<'_>>>(text);
            let any: &RawValue = serde_json::from_str(text).unwrap();

            assert_eq!(documented.is_ok(), is_documented, "{text}");
            if let Ok(documented) = documented {
                assert_eq!(BatchEntry::from(documented), BatchEntry::from(any));
            }
        }
    }
}
