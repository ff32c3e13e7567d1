//! Appends records to the file of a journal, and syncs them before they count.

use std::fs::File;
use std::io::{self, Write};
use std::sync::{Arc, mpsc};
use std::thread;

use tokio::sync::oneshot;

use super::record::Record;

/// Appends records on a thread of its own. Records that arrive while the file is synced share the next
/// sync. The thread ends when the last clone is dropped.
#[derive(Clone, Debug)]
pub(in crate::import) struct JournalWriter(mpsc::Sender<Append>);

struct Append {
    line: Vec<u8>,
    done: oneshot::Sender<Result<(), Arc<io::Error>>>,
}

impl JournalWriter {
    /// Starts the thread.
    pub(super) fn start(file: File) -> io::Result<Self> {
        let (sender, appends) = mpsc::channel();
        thread::Builder::new()
            .name("audience-journal".to_owned())
            .spawn(move || run(file, &appends))?;
        Ok(Self(sender))
    }

    /// Appends a record. When this returns, the record is on disk.
    pub(in crate::import) async fn append(&self, record: &Record) -> Result<(), Arc<io::Error>> {
        let mut line = serde_json::to_vec(record).map_err(|error| Arc::new(error.into()))?;
        line.push(b'\n');
        let (done, result) = oneshot::channel();
        let stopped = || Arc::new(io::Error::other("the journal's thread has stopped"));
        self.0.send(Append { line, done }).map_err(|_| stopped())?;
        result.await.map_err(|_| stopped())?
    }
}

fn run(mut file: File, appends: &mpsc::Receiver<Append>) {
    while let Ok(first) = appends.recv() {
        let group: Vec<Append> = std::iter::once(first).chain(appends.try_iter()).collect();
        let lines: Vec<u8> = group
            .iter()
            .flat_map(|append| &append.line)
            .copied()
            .collect();
        let written = file.write_all(&lines).and_then(|()| file.sync_data());
        let result = written.map_err(Arc::new);
        let has_failed = result.is_err();
        for append in group {
            // The receiver is gone if the import was cancelled.
            let _ = append.done.send(result.clone());
        }
        if has_failed {
            // A part of a line may be in the file, so nothing may follow it.
            return;
        }
    }
}
