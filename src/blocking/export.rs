//! Exports without an async runtime.

use std::path::Path;

use super::Call;
use crate::Error;
use crate::contacts::ListContacts;
use crate::export::{Export, ExportReport, Format};

impl Call<ListContacts> {
    /// Exports all contacts after the cursor to a file: see [`ListContacts::export`].
    ///
    /// # Example: a list as CSV
    ///
    /// ```
    /// # #[cfg(feature = "mock")]
    /// # fn main() -> Result<(), audience::Error> {
    /// # let server = audience::mock::MockServer::builder().seed_contact("ada@example.com").start_blocking();
    /// # let client = audience::blocking::Client::new(server.url(), server.full_key())?;
    /// # let contacts = client.contacts();
    /// # let path = std::env::temp_dir().join(format!("audience-blocking-{}.csv", std::process::id()));
    /// use audience::export::Csv;
    ///
    /// let report = contacts.list().export(&path, Csv::new(["email"])).send()?;
    ///
    /// assert_eq!(report.contacts(), 1);
    /// # std::fs::remove_file(&path).unwrap();
    /// # std::fs::remove_file(path.with_extension("csv.cursor")).unwrap();
    /// # Ok(()) }
    /// # #[cfg(not(feature = "mock"))] fn main() {}
    /// ```
    pub fn export(self, path: impl AsRef<Path>, format: impl Into<Format>) -> Call<Export> {
        self.map(|list| list.export(path, format))
    }
}

impl Call<Export> {
    /// Does the same as [`Export::full`].
    pub fn full(self) -> Self {
        self.map(Export::full)
    }

    /// Does the same as [`Export::max_in_flight`].
    pub fn max_in_flight(self, contacts: usize) -> Self {
        self.map(|export| export.max_in_flight(contacts))
    }

    /// Does the same as [`Export::resume`].
    pub fn resume(self) -> Self {
        self.map(Export::resume)
    }

    /// Does the same as [`Export::cursor_file`].
    pub fn cursor_file(self, path: impl AsRef<Path>) -> Self {
        self.map(|export| export.cursor_file(path))
    }

    /// Does the same as [`Export::on_progress`]. The function runs on the client's thread.
    pub fn on_progress(self, show: impl FnMut(&ExportReport) + Send + 'static) -> Self {
        self.map(|export| export.on_progress(show))
    }

    /// Does the same as [`Export::on_malformed`]. The function runs on the client's thread.
    pub fn on_malformed(self, keep: impl FnMut(&Error) + Send + 'static) -> Self {
        self.map(|export| export.on_malformed(keep))
    }
}
