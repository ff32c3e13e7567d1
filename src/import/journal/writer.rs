//! Appends records to the file of a journal, and syncs them before they count.

use std::fs::File;
use std::io::{self, Write};
use std::sync::{Arc, mpsc};
use std::thread;

use tokio::sync::oneshot;

use super::claim::Claim;
use super::record::Record;

/// Appends records on a thread of its own. Records that arrive while the file is synced share the next
/// sync. The thread ends when the last clone is dropped.
#[derive(Clone, Debug)]
pub(in crate::import) struct JournalWriter(mpsc::Sender<Append>);

struct Append {
    line: Vec<u8>,
    done: oneshot::Sender<Result<(), Arc<io::Error>>>,
}

/// The file of a journal and its expected length.
struct Output {
    file: File,
    length: u64,
    /// Other imports of this process may use the journal when the thread has ended.
    _claim: Claim,
}

impl JournalWriter {
    /// Starts the thread.
    pub(super) fn start(file: File, length: u64, claim: Claim) -> io::Result<Self> {
        let (sender, appends) = mpsc::channel();
        let output = Output {
            file,
            length,
            _claim: claim,
        };
        thread::Builder::new()
            .name("audience-journal".to_owned())
            .spawn(move || output.run(&appends))?;
        Ok(Self(sender))
    }

    /// Appends a record. When this returns, the record is on disk.
    pub(in crate::import) async fn append(&self, record: &Record) -> Result<(), Arc<io::Error>> {
        let mut line = serde_json::to_vec(record).map_err(|error| Arc::new(error.into()))?;
        line.push(b'\n');
        let (done, result) = oneshot::channel();
        let stopped = || Arc::new(io::Error::other("an earlier write has failed"));
        self.0.send(Append { line, done }).map_err(|_| stopped())?;
        result.await.map_err(|_| stopped())?
    }
}

impl Output {
    fn run(mut self, appends: &mpsc::Receiver<Append>) {
        while let Ok(first) = appends.recv() {
            let group: Vec<Append> = std::iter::once(first).chain(appends.try_iter()).collect();
            let lines: Vec<u8> = group
                .iter()
                .flat_map(|append| &append.line)
                .copied()
                .collect();
            let result = self.write(&lines).map_err(Arc::new);
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

    fn write(&mut self, lines: &[u8]) -> io::Result<()> {
        if self.file.metadata()?.len() != self.length {
            return Err(io::Error::other("another program has changed the file"));
        }
        self.file.write_all(lines)?;
        self.file.sync_data()?;
        self.length += lines.len() as u64;
        Ok(())
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::fs::OpenOptions;
    use std::path::Path;

    use super::*;
    use crate::import::journal::Header;

    fn record() -> Record {
        Record::Import(Header::new("s".to_owned(), &[]))
    }

    #[tokio::test]
    async fn a_full_disk_is_reported_for_this_and_every_later_record() {
        let path = Path::new("/dev/full");
        let file = OpenOptions::new().append(true).open(path).unwrap();
        let claim = Claim::take(path).await.unwrap();
        let writer = JournalWriter::start(file, 0, claim).unwrap();

        let first = writer.append(&record()).await.unwrap_err();
        let second = writer.append(&record()).await.unwrap_err();

        assert_eq!(first.kind(), io::ErrorKind::StorageFull);
        assert_eq!(second.to_string(), "an earlier write has failed");
    }
}
