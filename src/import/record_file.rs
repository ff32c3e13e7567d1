//! Files of records, such as a journal: one JSON object on each line, only appended to, synced to disk and locked.

use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::BufRead;
#[cfg(unix)]
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use std::{io, thread};

use fs4::{FileExt, TryLockError};
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::Error;
use crate::secret::for_owner_only;
use crate::sync::LONGEST_HOLD;

/// The kind of a file: it determines the records and the errors.
#[derive(Clone, Copy, Debug)]
pub(super) struct Kind {
    /// The name of the file in errors.
    pub(super) name: &'static str,
    /// The kind of run that uses the file.
    pub(super) user: &'static str,
    /// What to do about a damaged file.
    pub(super) advice: &'static str,
    /// How the first record begins.
    pub(super) header: &'static str,
    /// How each other record may begin.
    pub(super) records: &'static [&'static str],
}

impl Kind {
    /// Opens a file, or creates it if it does not exist. Returns it with its canonical path.
    pub(super) fn open(self, path: &Path) -> Result<(PathBuf, File), Error> {
        let failed =
            |error| Error::config(format!("could not open the {}", self.name)).caused_by(error);
        let mut options = OpenOptions::new();
        options.read(true).create(true);
        // Appended records cannot overwrite what another process has written in between. But on Windows, what a crash
        // has left could not be removed then.
        match cfg!(windows) {
            true => options.write(true).truncate(false),
            false => options.append(true),
        };
        let file = for_owner_only(&mut options).open(path).map_err(failed)?;
        // A device such as /dev/zero could be read forever.
        if !file.metadata().map_err(failed)?.is_file() {
            return Err(Error::config(format!(
                "the {} must be a regular file",
                self.name
            )));
        }
        Ok((path.canonicalize().map_err(failed)?, file))
    }

    /// Reads the records of a file. `add` gets each with the number of bytes before it, and returns what is wrong with
    /// it.
    pub(super) fn read<R: for<'de> Deserialize<'de>>(
        self,
        mut reader: impl BufRead,
        mut add: impl FnMut(R, u64) -> Result<(), &'static str>,
    ) -> Result<Lengths, Error> {
        let (mut number, mut records, mut line) = (0_u64, 0, Vec::new());
        loop {
            number += 1;
            line.clear();
            let length = reader.read_until(b'\n', &mut line);
            let length = length.map_err(|error| self.unreadable(error))? as u64;
            if line.last() != Some(&b'\n') {
                if !self.is_partly_written::<R>(&line, records == 0) {
                    return Err(self.invalid_line(number, "it is not a record"));
                }
                let length = records + length;
                return Ok(Lengths { records, length });
            }
            // A complete line that is no record was not left by a crash: the file is something else, or damaged.
            let added = serde_json::from_slice::<R>(&line)
                .map_err(|_| "it is not a record")
                .and_then(|record| add(record, records));
            added.map_err(|problem| self.invalid_line(number, problem))?;
            records += length;
        }
    }

    /// Returns whether the last line of a file may be a record that was only partly written. Any other file is
    /// left alone.
    fn is_partly_written<R: for<'de> Deserialize<'de>>(self, line: &[u8], is_first: bool) -> bool {
        // After a power failure, a file system may show zeros for what was not synced.
        let zeros = line.iter().rev().take_while(|byte| **byte == 0).count();
        let line = &line[..line.len() - zeros];
        let header = [self.header];
        let starts: &[&str] = match is_first {
            true if zeros > 0 => return false,
            true => &header,
            false => self.records,
        };
        let is_start = starts.iter().any(|start| {
            let pairs = line.iter().zip(start.as_bytes());
            pairs.into_iter().all(|(found, expected)| found == expected)
        });
        is_start
            && match serde_json::from_slice::<IgnoredAny>(line) {
                Ok(_) => serde_json::from_slice::<R>(line).is_ok(),
                // A prefix of a record ends too early. Anything else was never a record.
                Err(error) => error.is_eof(),
            }
    }

    pub(super) fn unreadable(self, error: io::Error) -> Error {
        /// What Windows calls a lock violation: another run has locked the file, so it cannot be read.
        const LOCKED: i32 = 33;
        if cfg!(windows) && error.raw_os_error() == Some(LOCKED) {
            return self.in_use();
        }
        Error::config(format!("could not read the {}", self.name)).caused_by(error)
    }

    pub(super) fn unwritable(
        self,
        error: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Error {
        Error::config(format!("could not write the {}", self.name)).caused_by(error)
    }

    fn invalid_line(self, number: u64, problem: &str) -> Error {
        let Self { name, advice, .. } = self;
        Error::config(format!(
            "line {number} of the {name} is invalid: {problem}; {advice}"
        ))
    }

    pub(super) fn in_use(self) -> Error {
        let Self { name, user, .. } = self;
        Error::config(format!(
            "another {user} is using the {name}, in this process or another; wait for its end, or choose another file",
        ))
        .retryable()
    }
}

/// The lengths of a file in bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lengths {
    /// The length of its complete records. A record after that length was only partly written.
    pub(super) records: u64,
    pub(super) length: u64,
}

/// Returns the line of a record.
pub(super) fn to_line(record: &impl Serialize) -> serde_json::Result<Vec<u8>> {
    let mut line = serde_json::to_vec(record)?;
    line.push(b'\n');
    Ok(line)
}

/// Returns the end of a hold that begins now, in Unix seconds.
pub(super) fn hold_until(wait: Duration) -> u64 {
    unix_now().saturating_add(wait.min(LONGEST_HOLD).as_secs())
}

/// Returns the end of a recorded hold, or 0 if no hold is that long: the clock was ahead when it was recorded.
pub(super) fn believable(until: u64) -> u64 {
    match until <= hold_until(LONGEST_HOLD) {
        true => until,
        false => 0,
    }
}

/// Returns how long a hold lasts that ends then; zero if it is over.
pub(super) fn hold_left(until: u64) -> Duration {
    Duration::from_secs(until.saturating_sub(unix_now()))
}

fn unix_now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}

/// Returns the path without links. The file does not have to exist.
pub(crate) fn real_path(path: &Path) -> PathBuf {
    let mut path = path.to_owned();
    // `canonicalize` fails for a link whose target does not exist. Links may form a circle.
    for _ in 0..MOST_LINKS {
        if let Ok(path) = path.canonicalize() {
            return path;
        }
        let Ok(target) = path.read_link() else {
            break;
        };
        // A target that is absolute replaces the folder.
        path = folder_of(&path).join(target);
    }
    if let Ok(folder) = folder_of(&path).canonicalize()
        && let Some(name) = path.file_name()
    {
        return folder.join(name);
    }
    path
}

/// How many links to follow, as on Linux.
const MOST_LINKS: usize = 40;

fn folder_of(path: &Path) -> &Path {
    let folder = path.parent().filter(|folder| *folder != Path::new(""));
    folder.unwrap_or(Path::new("."))
}

/// Returns the path of a file beside this one, such as `list.csv.journal`.
pub(crate) fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut text = OsString::from(path);
    text.push(suffix);
    text.into()
}

/// Makes the creation, renaming or removal of a file durable, if the system can do that: some file systems cannot sync a
/// directory, and one without the right to read cannot be opened.
pub(crate) fn sync_directory(path: &Path) {
    let directory = File::open(folder_of(path));
    // Without it, a power failure may lose the change as a whole, never a part of a file.
    let _ = directory.and_then(|directory| directory.sync_all());
}

/// Appends lines on a thread of its own. Lines that arrive while the file is synced share the next sync. The thread
/// ends when the last clone is dropped.
#[derive(Clone, Debug)]
pub(super) struct Appender(mpsc::Sender<Append>);

struct Append {
    lines: Vec<u8>,
    done: oneshot::Sender<Result<(), Arc<io::Error>>>,
}

/// The file and its expected length.
struct Output {
    /// Locked. Other imports may use it when the thread has ended and the file is closed.
    file: File,
    length: u64,
}

impl Appender {
    pub(super) fn start(file: File, length: u64) -> io::Result<Self> {
        let (sender, appends) = mpsc::channel();
        let output = Output { file, length };
        thread::Builder::new()
            .name("audience-journal".to_owned())
            .spawn(move || output.run(&appends))?;
        Ok(Self(sender))
    }

    /// Appends complete lines. When this returns, they are on disk.
    ///
    /// The order of the calls is the order in the file, whenever the futures are awaited.
    pub(super) fn append(
        &self,
        lines: Vec<u8>,
    ) -> impl Future<Output = Result<(), Arc<io::Error>>> + Send + use<> {
        let (done, result) = oneshot::channel();
        let sent = self.0.send(Append { lines, done });
        async move {
            let stopped = || Arc::new(io::Error::other("the file is no longer written to"));
            sent.map_err(|_| stopped())?;
            result.await.map_err(|_| stopped())?
        }
    }
}

impl Output {
    fn run(mut self, appends: &mpsc::Receiver<Append>) {
        while let Ok(first) = appends.recv() {
            // A sync takes milliseconds, and many batches end meanwhile: their records share the next one.
            let group: Vec<Append> = std::iter::once(first).chain(appends.try_iter()).collect();
            let lines: Vec<u8> = group
                .iter()
                .flat_map(|append| &append.lines)
                .copied()
                .collect();
            let result = self.write(&lines).map_err(Arc::new);
            // The receiver is gone if the import was cancelled.
            let reply = |append: Append| _ = append.done.send(result.clone());
            group.into_iter().for_each(reply);
            if result.is_err() {
                // A part of a line may be in the file, so nothing may follow it. The file stays locked until the batches
                // in flight have ended: another import would send their rows, too.
                return appends.iter().for_each(reply);
            }
        }
    }

    fn write(&mut self, lines: &[u8]) -> io::Result<()> {
        // Not every file system has locks. A file of another length has records of another program, and both imports
        // would send the same rows.
        if self.file.metadata()?.len() != self.length {
            return Err(io::Error::other("another program has changed the file"));
        }
        append(&self.file, lines, self.length)?;
        self.file.sync_data()?;
        self.length += lines.len() as u64;
        Ok(())
    }
}

/// Appends to a file of this length.
#[cfg(unix)]
fn append(mut file: &File, lines: &[u8], _length: u64) -> io::Result<()> {
    file.write_all(lines)
}

#[cfg(windows)]
fn append(file: &File, mut lines: &[u8], mut length: u64) -> io::Result<()> {
    // Not `write_all`: a read moves the place at which it writes.
    while !lines.is_empty() {
        match std::os::windows::fs::FileExt::seek_write(file, lines, length)? {
            0 => return Err(io::ErrorKind::WriteZero.into()),
            written => {
                lines = &lines[written..];
                length += written as u64;
            }
        }
    }
    Ok(())
}

/// Reads at a place of a file that another thread may be appending to.
#[cfg(unix)]
pub(super) fn read_at(file: &File, buffer: &mut [u8], start: u64) -> io::Result<usize> {
    std::os::unix::fs::FileExt::read_at(file, buffer, start)
}

#[cfg(windows)]
pub(super) fn read_at(file: &File, buffer: &mut [u8], start: u64) -> io::Result<usize> {
    std::os::windows::fs::FileExt::seek_read(file, buffer, start)
}

/// How long to wait for a file. An import that was dropped releases it a moment later.
const PATIENCE: Duration = Duration::from_secs(5);

const INTERVAL: Duration = Duration::from_millis(2);

/// How often to try at least. While the whole machine stands still, time passes, and nobody can release the file.
const LEAST_TRIES: u32 = 100;

/// Waits until no other import has locked the file, and locks it. Returns `false` if it is still locked after `PATIENCE`
/// and `LEAST_TRIES`.
pub(super) async fn lock_in_time(file: &File) -> bool {
    let end = Instant::now() + PATIENCE;
    let mut tries = 0;
    while !try_lock(file) {
        tries += 1;
        if tries >= LEAST_TRIES && Instant::now() >= end {
            return false;
        }
        tokio::time::sleep(INTERVAL).await;
    }
    true
}

/// Locks a file, unless it is locked already, by this process or another. Returns whether the caller may use it.
///
/// The lock belongs to the open file, so it ends when the file is closed, also by the end of the process. On a file
/// system without locks, every caller may use the file.
pub(crate) fn try_lock(file: &File) -> bool {
    // Not `file.try_lock()`: from Rust 1.89 on, that is the method of the standard library.
    !matches!(FileExt::try_lock(file), Err(TryLockError::WouldBlock))
}

/// Unlocks a file before it is closed.
///
/// A process that is being started holds the files of this one open for a moment, and a closed file stays locked until
/// then.
pub(crate) fn unlock(file: &File) {
    // If it fails, the file is unlocked when it is closed.
    let _ = FileExt::unlock(file);
}

/// Returns the contents of a file that no import uses any more. On Windows, nobody else can read it before that.
#[cfg(test)]
pub(super) async fn unlocked(path: &Path) -> Vec<u8> {
    let file = File::open(path).unwrap();
    assert!(lock_in_time(&file).await);
    unlock(&file);
    std::fs::read(path).unwrap()
}

#[cfg(target_os = "linux")]
#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_full_disk_is_reported_for_this_and_every_later_record() {
        let path = Path::new("/dev/full");
        let file = OpenOptions::new().append(true).open(path).unwrap();
        let writer = Appender::start(file, 0).unwrap();

        let first = writer.append(b"{}\n".to_vec()).await.unwrap_err();
        let second = writer.append(b"{}\n".to_vec()).await.unwrap_err();

        assert_eq!(first.kind(), io::ErrorKind::StorageFull);
        assert_eq!(second.kind(), io::ErrorKind::StorageFull);
    }

    #[tokio::test]
    async fn a_file_that_could_not_be_written_stays_locked_until_its_import_has_ended() {
        let name = format!("audience-locked-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let open = || {
            let mut options = OpenOptions::new();
            options.append(true).create(true).open(&path).unwrap()
        };
        let (file, other) = (open(), open());
        assert!(try_lock(&file));
        other.set_len(1).unwrap();
        let writer = Appender::start(file, 0).unwrap();
        let in_flight = writer.clone();

        writer.append(b"{}\n".to_vec()).await.unwrap_err();
        drop(writer);
        in_flight.append(b"{}\n".to_vec()).await.unwrap_err();
        let was_free = try_lock(&other);
        drop(in_flight);
        let is_free = lock_in_time(&other).await;

        std::fs::remove_file(&path).unwrap();
        assert!(!was_free && is_free);
    }

    #[tokio::test(start_paused = true)]
    async fn a_file_that_is_released_after_the_machine_stood_still_is_locked() {
        let name = format!("audience-stood-still-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let open = || {
            let mut options = OpenOptions::new();
            options.append(true).create(true).open(&path).unwrap()
        };
        let (file, other) = (open(), open());
        assert!(try_lock(&file));

        let (is_free, ()) = tokio::join!(lock_in_time(&other), async {
            tokio::time::advance(2 * PATIENCE).await;
            tokio::time::sleep(2 * INTERVAL).await;
            unlock(&file);
        });
        let start = Instant::now();
        let is_free_again = lock_in_time(&file).await;

        std::fs::remove_file(&path).unwrap();
        assert!(is_free && !is_free_again);
        assert!(start.elapsed() >= PATIENCE);
    }
}
