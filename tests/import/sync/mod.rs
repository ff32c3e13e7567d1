//! Syncs: what is sent of a table, night after night.

mod broken;
mod broken_model;
mod chains;
mod consent;
mod files;
mod killed;
mod list;
mod model;
mod moves;
mod recreated;
mod rows;
mod topics;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use audience::contacts::{Contacts, NewContact};
use audience::import::{SyncContacts, SyncReport, SyncRow, SyncState};
use audience::mock::dialect::ContactDeletion;
use audience::mock::{Dialect, MockServer};
use serde_json::Value;
use support::{in_time, mock_builder};

/// A path for a state file that no other test uses. The file is removed when this is dropped.
struct StatePath(PathBuf);

impl StatePath {
    fn new() -> Self {
        // Not the process id: it comes again, and a run that was killed has left its files.
        let name = format!("audience-{:016x}.sync", fastrand::u64(..));
        Self(std::env::temp_dir().join(name))
    }

    fn open(&self) -> SyncState {
        SyncState::open(&self.0).unwrap()
    }
}

impl AsRef<Path> for StatePath {
    fn as_ref(&self) -> &Path {
        &self.0
    }
}

impl Drop for StatePath {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// A mock with two topics that deletes contacts, and the state of the syncs with it.
struct Nights {
    server: MockServer,
    contacts: Contacts,
    state: StatePath,
}

impl Nights {
    async fn new() -> Self {
        let dialect = Dialect {
            contact_deletion: ContactDeletion::NoContent,
            ..Dialect::default()
        };
        let server = MockServer::builder()
            .dialect(dialect)
            .topic("news", true)
            .topic("offers", true);
        let server = server.start().await;
        let contacts = mock_builder(&server).build().unwrap().contacts();
        let state = StatePath::new();
        Self {
            server,
            contacts,
            state,
        }
    }

    fn sync(&self, table: &[SyncRow]) -> SyncContacts {
        self.contacts.sync(table.to_vec(), self.state.open())
    }

    /// Runs a sync to its end, and returns its report and what the mock received. In an `Arc`, the report may be ignored:
    /// many nights only lead to another one.
    async fn run(&self, table: &[SyncRow]) -> (Arc<SyncReport>, Vec<String>) {
        self.run_with(table, |sync| sync).await
    }

    async fn run_with(
        &self,
        table: &[SyncRow],
        settings: impl FnOnce(SyncContacts) -> SyncContacts,
    ) -> (Arc<SyncReport>, Vec<String>) {
        self.server.clear_requests();
        let report = in_time(settings(self.sync(table)).into_future())
            .await
            .unwrap();
        (Arc::new(report), self.calls())
    }

    /// Returns the requests since the last `clear_requests`, with the number of entries of batches.
    fn calls(&self) -> Vec<String> {
        let requests = self.server.requests();
        let calls = requests.iter().map(|request| {
            let path = request
                .path
                .strip_prefix("/contacts")
                .unwrap_or(&request.path);
            let path = path.replace("%40", "@");
            match path.as_str() {
                "/batch" => {
                    let entries: Vec<Value> = serde_json::from_slice(&request.body).unwrap();
                    format!("batch {}", entries.len())
                }
                _ => {
                    let body: Value = serde_json::from_slice(&request.body).unwrap_or_default();
                    let topic = body["topic"].as_str().unwrap_or_default();
                    format!("{} {path} {topic}", request.method)
                        .trim_end()
                        .to_owned()
                }
            }
        });
        calls.collect()
    }

    /// Erases rows of which the table has no address any more. Returns the addresses of all, or the error of the first row
    /// that has failed.
    #[cfg(unix)]
    async fn erase<K: ToString + Send + 'static>(
        &self,
        keys: impl IntoIterator<Item = K>,
    ) -> Result<Vec<(String, audience::contacts::Erasure)>, audience::Error> {
        let rows = keys.into_iter().map(|key| (key, ""));
        let erasing = self.contacts.erase_rows(self.state.open(), rows);
        let mut all = Vec::new();
        for (_, erased) in in_time(erasing.into_future()).await? {
            all.extend(erased?);
        }
        Ok(all)
    }

    /// Waits until a run that was dropped has written to the state what it had begun to write. The next run would not use
    /// a state that changes after it was opened.
    async fn wait_for_dropped_run(&self) {
        let dry = self.sync(&[]).dry_run();
        // It waits for the lock of the other run, and may see that the state changes.
        let _ = in_time(dry.into_future()).await;
    }

    fn is_opted_out(&self, address: &str) -> bool {
        self.server.contact(address).unwrap().unsubscribed
    }
}

/// A row with a name and a property.
fn row(key: u64, address: &str) -> SyncRow {
    SyncRow::new(key, contact(address))
}

fn contact(address: &str) -> NewContact {
    NewContact::new(address)
        .first_name("Ada")
        .property("plan", "pro")
}
