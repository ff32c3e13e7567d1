//! Imports: what rows, services, crashes and callers can do to them.

mod blocking;
mod cancellation;
mod csv_dry_run;
mod csv_files;
mod csv_program;
mod csv_rejects;
mod csv_terminal;
mod failures;
mod journal;
mod journal_files;
mod killed;
mod model;
mod opt_outs;
mod order;
mod outcomes;
mod pace;
mod paced_service;
mod progress;
pub(crate) mod random;
mod reference;
mod several_files;
mod verify;

use std::path::{Path, PathBuf};

use audience::contacts::{Contacts, NewContact};
use audience::import::{Import, ImportReport, Journal};
use audience::mock::{Fault, MockServer};
use serde_json::Value;

use support::{in_time, mock_builder};

/// The contacts of a mock, with fast retries.
fn contacts(server: &MockServer) -> Contacts {
    mock_builder(server).build().unwrap().contacts()
}

/// The service refuses a whole batch because of its rows.
fn refused_batch() -> Fault {
    let body = r#"{"error": {"code": "validation_error"}}"#;
    Fault::status(422).body(body).path("/contacts/batch")
}

/// This many contacts, each with an address of its own and its number as a property.
fn numbered(count: usize) -> impl Iterator<Item = NewContact> + Send + 'static {
    (0..count).map(|n| NewContact::new(format!("{n}@x.io")).property("n", n))
}

/// A path for a journal that no other test uses. The file is removed when this is dropped.
struct JournalPath(PathBuf);

impl JournalPath {
    fn new() -> Self {
        // Not the process id: it comes again, and a run that was killed has left its files.
        let name = format!("audience-{:016x}.journal", fastrand::u64(..));
        Self(std::env::temp_dir().join(name))
    }

    fn open(&self) -> Journal {
        Journal::open(&self.0).unwrap()
    }

    fn read(&self) -> String {
        std::fs::read_to_string(&self.0).unwrap()
    }

    fn write(&self, content: impl AsRef<[u8]>) {
        std::fs::write(&self.0, content).unwrap();
    }
}

impl AsRef<Path> for JournalPath {
    fn as_ref(&self) -> &Path {
        &self.0
    }
}

impl Drop for JournalPath {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Runs an import with a journal: the first one, or one that continues where the journal ends.
async fn with_journal(import: Import, journal: &JournalPath) -> ImportReport {
    in_time(import.journal(journal.open())).await.unwrap()
}

/// The batches that a mock received, as the addresses of their entries.
fn batches(server: &MockServer) -> Vec<Vec<String>> {
    let requests = server.requests();
    let batches = requests
        .iter()
        .filter(|request| request.path == "/contacts/batch");
    batches
        .map(|request| {
            let entries: Vec<Value> = serde_json::from_slice(&request.body).unwrap();
            let address = |entry: &Value| entry["email"].as_str().unwrap().to_owned();
            entries.iter().map(address).collect()
        })
        .collect()
}

/// Created, updated, skipped, refused, not sent, unknown.
fn counts(report: &ImportReport) -> [u64; 6] {
    [
        report.created(),
        report.updated(),
        report.skipped(),
        report.refused(),
        report.not_sent(),
        report.unknown(),
    ]
}
