use futures_core::Stream;

use super::builder::Import;
use super::row::ImportRow;
use super::source::Source;
use crate::contacts::Contacts;

impl Contacts {
    /// Imports contacts, however many: in batches of 100, several at once.
    ///
    /// It takes any iterator of [`NewContact`](crate::contacts::NewContact)s, addresses or [`ImportRow`]s, and
    /// reads it as it goes. The [module](crate::import) says what an import does about duplicates, failures,
    /// opt-outs and crashes.
    ///
    /// Dropping the future cancels the import. Batches in flight may still be applied; with a
    /// [`journal`](Import::journal), the next import finds out.
    ///
    /// # Errors
    ///
    /// [`ImportError`](crate::import::ImportError) if the import stopped before its end. It has the report so far,
    /// and an [`Error`](crate::Error) that says why:
    ///
    /// - `unauthorized` (401) or `key_not_permitted` (403): the key was refused.
    /// - [`ErrorKind::Config`](crate::ErrorKind::Config): the journal could not be written, or another import
    ///   uses it; or the [`rejects`](Import::rejects) could not be written. Rows that the journal could not record
    ///   are reported as unknown.
    /// - [`ErrorKind::Input`](crate::ErrorKind::Input): the journal belongs to other rows or to another service, or
    ///   a CSV file could not be read to its end.
    /// - The error of the first batch that failed, with [`stop_on_failure`](Import::stop_on_failure).
    ///
    /// Refused rows, failed batches and the plan's ceiling are no errors: the
    /// [`ImportReport`](crate::import::ImportReport) counts them.
    ///
    /// # Example: import a list of addresses
    ///
    /// ```
    /// # #[cfg(feature = "mock")]
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), audience::Error> {
    /// # let server = audience::mock::MockServer::start().await;
    /// # let contacts = server.client().contacts();
    /// let report = contacts.import(["ada@example.com", "bob@example.com", "no address"]).await?;
    ///
    /// assert_eq!((report.created(), report.refused()), (2, 1));
    /// # Ok(()) }
    /// # #[cfg(not(feature = "mock"))] fn main() {}
    /// ```
    pub fn import<I>(&self, rows: I) -> Import
    where
        I: IntoIterator<Item: Into<ImportRow> + 'static, IntoIter: Send + 'static>,
    {
        Import::new(self.clone(), Source::from_iter(rows))
    }

    /// Imports contacts like [`import`](Self::import), from a stream.
    ///
    /// A batch is sent when it is full, or when no other is in flight and the stream has no more rows for
    /// now. So a slow stream does not keep back the rows that it has already given.
    ///
    /// # Errors
    ///
    /// Those of [`import`](Self::import).
    ///
    /// # Example: rows from a database or a channel
    ///
    /// ```
    /// # #[cfg(feature = "mock")]
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), audience::Error> {
    /// # let server = audience::mock::MockServer::start().await;
    /// # let contacts = server.client().contacts();
    /// let rows = futures_util::stream::iter(["ada@example.com", "bob@example.com"]);
    ///
    /// let report = contacts.import_stream(rows).await?;
    ///
    /// assert_eq!(report.created(), 2);
    /// # Ok(()) }
    /// # #[cfg(not(feature = "mock"))] fn main() {}
    /// ```
    pub fn import_stream<S>(&self, rows: S) -> Import
    where
        S: Stream<Item: Into<ImportRow>> + Send + 'static,
    {
        Import::new(self.clone(), Source::from_stream(rows))
    }
}
