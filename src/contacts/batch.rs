use super::batch_exchange::{self, OPERATION, SentEntry};
use super::{BatchReport, Contacts, NewContact};
use crate::Error;
use crate::client::{Endpoint, Operation, Request, Success, endpoint_builder};

impl Contacts {
    /// Creates 1 to [`MAX_BATCH`] contacts in one request (interface section 4.2).
    ///
    /// It takes [`NewContact`]s, references to them, or addresses.
    ///
    /// The call succeeds even if entries fail. The [`BatchReport`] has one result for each entry, in
    /// the order of the entries. Once the plan's contact ceiling is crossed, every remaining entry
    /// reports `quota_exceeded`. If the service sends no usable result for an entry, its outcome is
    /// [`BatchOutcome::Unknown`](super::BatchOutcome::Unknown).
    ///
    /// If any entry has `OnConflict::Error`, the batch is retried only if it was certainly not
    /// applied.
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::Input`](crate::ErrorKind::Input) if the batch is empty or has more than
    ///   [`MAX_BATCH`] entries, or if a property is a number that JSON cannot represent. Nothing is
    ///   sent.
    /// - `key_not_permitted` (403) if the key is a sending-access key.
    /// - [`ErrorKind::Decode`](crate::ErrorKind::Decode) if the response is not a report, or does not
    ///   have one result for each entry.
    ///
    /// # Example: an import that reports failures
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), audience::Error> {
    /// # let server = audience::mock::MockServer::start().await;
    /// # let contacts = server.client().contacts();
    /// use audience::contacts::{MAX_BATCH, NewContact};
    ///
    /// let rows = [NewContact::new("ada@example.com").first_name("Ada"), NewContact::new("no address")];
    ///
    /// for batch in rows.chunks(MAX_BATCH) {
    ///     let report = contacts.create_batch(batch).await?;
    ///     for (index, entry) in report.failures() {
    ///         println!("{}: {}", batch[index].email, entry.outcome);
    ///     }
    /// #   assert_eq!(report.failures().count(), 1);
    /// }
    /// # Ok(()) }
    /// ```
    ///
    /// [`MAX_BATCH`]: super::MAX_BATCH
    pub fn create_batch(&self, contacts: impl IntoIterator<Item: Into<NewContact>>) -> CreateBatch {
        let entries = contacts.into_iter().map(Into::into).collect();
        CreateBatch::new(&self.client, Batch { entries })
    }
}

endpoint_builder! {
    /// A batch of contacts to create, sent by `.await`: see [`Contacts::create_batch`].
    pub struct CreateBatch(Batch) -> BatchReport, idempotent;
}

#[derive(Clone)]
pub(super) struct Batch {
    entries: Vec<NewContact>,
}

impl Endpoint for Batch {
    type Output = BatchReport;

    fn operation(&self) -> Operation {
        OPERATION
    }

    fn request(&self) -> Result<Request, Error> {
        batch_exchange::request(&self.entries)
    }

    fn decode(&self, success: Success) -> Result<BatchReport, Error> {
        batch_exchange::decode(&success, self.entries.iter().map(SentEntry::from))
    }
}

#[cfg(test)]
mod tests {
    use http::Method;

    use super::*;
    use crate::client::RetrySafety;
    use crate::contacts::OnConflict;
    use crate::{ErrorKind, Outcome};

    fn request(entries: impl IntoIterator<Item = NewContact>) -> Result<Request, Error> {
        let entries = entries.into_iter().collect();
        Batch { entries }.request()
    }

    fn many(count: usize) -> impl Iterator<Item = NewContact> {
        (0..count).map(|n| NewContact::new(format!("{n}@x.io")))
    }

    #[test]
    fn the_body_is_the_array_of_the_entries() {
        let request = request(many(2)).unwrap();

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
    fn a_batch_has_1_to_100_entries() {
        assert!(request(many(1)).is_ok());
        assert!(request(many(100)).is_ok());
        for count in [0, 101] {
            let error = request(many(count)).unwrap_err();

            assert_eq!(
                (error.kind(), error.outcome()),
                (ErrorKind::Input, Outcome::NotSent)
            );
        }
    }

    #[test]
    fn one_entry_that_fails_on_conflict_makes_a_retry_of_the_batch_unsafe() {
        let strict = NewContact::new("s@x.io").on_conflict(OnConflict::Error);

        assert_eq!(request(many(3)).unwrap().retry_safety, RetrySafety::Safe);
        assert_eq!(
            request(many(3).chain([strict])).unwrap().retry_safety,
            RetrySafety::OnlyIfNotApplied
        );
    }
}
