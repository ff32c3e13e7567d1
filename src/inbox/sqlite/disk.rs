//! The store's files as the file system has them: whether they are still the files that were opened, and a reserve
//! for a full disk.

use std::ffi::OsStr;
use std::fs::{self, Metadata, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use crate::secret::for_owner_only;
use crate::sync::lock;
use rusqlite::{Error, ffi};

/// How large the reserve is. Deleting it must make room in the file for everything in the log. The log is copied into
/// the file when it has `LOG_FULL_BYTES`, to which the last commit adds up to `BATCH_BYTES`, or one longer body. If
/// there is not enough room for that, the log may still grow by less than its own length before it is full, too.
const RESERVE_BYTES: usize = 8 * 1024 * 1024;
/// How often the store tries to write an absent reserve again.
const RETRY: Duration = Duration::from_secs(1);
/// How often the store looks whether its files are still there. Without syncs to disk, looking before every transaction
/// would take a twentieth of the time.
const CHECK: Duration = Duration::from_millis(100);

/// The files of a store.
pub(super) struct Disk {
    files: Vec<(PathBuf, Option<Identity>)>,
    reserve: PathBuf,
    last_try: Mutex<Option<Instant>>,
    last_check: Mutex<Option<Instant>>,
}

impl Disk {
    /// Describes the files of a database that is open.
    pub(super) fn new(path: &Path) -> io::Result<Self> {
        // SQLite puts the other files beside the file that a link leads to.
        let target = fs::canonicalize(path)?;
        let beside = |suffix| beside(&target, suffix);
        let files = [path.to_owned(), beside("-wal"), beside("-shm")];
        Ok(Self {
            files: files
                .into_iter()
                .map(|file| {
                    let identity = identity(&file);
                    (file, identity)
                })
                .collect(),
            reserve: reserve(&target),
            last_try: Mutex::default(),
            last_check: Mutex::default(),
        })
    }

    /// Fails if a file was deleted or replaced since it was opened. Other processes would then use other files, and
    /// what is written now would be lost.
    ///
    /// Looks at the files only if that was some time ago.
    pub(super) fn check(&self) -> rusqlite::Result<()> {
        let mut last_check = lock(&self.last_check);
        if last_check.is_none_or(|last| last.elapsed() >= CHECK) {
            self.check_now()?;
            *last_check = Some(Instant::now());
        }
        Ok(())
    }

    fn check_now(&self) -> rusqlite::Result<()> {
        match self.files.iter().find(|(path, opened)| {
            // A file that had no identity when it was opened is not compared.
            opened.is_some() && identity(path) != *opened
        }) {
            None => Ok(()),
            Some((path, _)) => Err(Error::SqliteFailure(
                ffi::Error::new(ffi::SQLITE_READONLY_DBMOVED),
                Some(format!(
                    "the file `{}` was deleted or replaced while it was open: open the store again",
                    path.file_name().unwrap_or_default().display()
                )),
            )),
        }
    }

    /// Returns whether the reserve was deleted, so that no event may be added.
    pub(super) fn is_full(&self) -> bool {
        let length = fs::metadata(&self.reserve).map_or(0, |metadata| metadata.len());
        length < RESERVE_BYTES as u64
    }

    /// Deletes the reserve.
    pub(super) fn give_up(&self) {
        fs::remove_file(&self.reserve).ok();
        *lock(&self.last_try) = Some(Instant::now());
    }

    /// Returns whether the reserve is absent, and the last try to write it was some time ago.
    pub(super) fn should_reserve(&self) -> bool {
        let mut last_try = lock(&self.last_try);
        let is_due = last_try.is_none_or(|last| last.elapsed() >= RETRY);
        if is_due {
            *last_try = Some(Instant::now());
        }
        is_due && self.is_full()
    }

    /// Forgets when the last try was.
    pub(super) fn try_again(&self) {
        *lock(&self.last_try) = None;
    }

    /// Writes the reserve if there is room for it. Nothing else may write to the database meanwhile, because this
    /// fills the disk for a moment.
    pub(super) fn write_reserve(&self) {
        if write(&self.reserve).is_err() {
            fs::remove_file(&self.reserve).ok();
        }
    }
}

/// Deletes the reserve of a database that cannot be opened, because the disk is full. Returns whether there was one.
pub(super) fn give_up_reserve(path: &Path) -> bool {
    fs::canonicalize(path).is_ok_and(|target| fs::remove_file(reserve(&target)).is_ok())
}

fn reserve(target: &Path) -> PathBuf {
    beside(target, "-reserve")
}

fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(OsStr::new(suffix));
    name.into()
}

fn write(path: &Path) -> io::Result<()> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true);
    let mut file = for_owner_only(&mut options).open(path)?;
    // A file system may not store zeros, or the same bytes twice.
    let mut random = fastrand::Rng::new();
    let mut bytes = vec![0; 64 * 1024];
    for _ in 0..RESERVE_BYTES / bytes.len() {
        random.fill(&mut bytes);
        file.write_all(&bytes)?;
    }
    Ok(())
}

/// The numbers that tell a file from another file with the same name.
type Identity = (u64, u64);

fn identity(path: &Path) -> Option<Identity> {
    fs::metadata(path)
        .ok()
        .and_then(|metadata| numbers(&metadata))
}

#[cfg(unix)]
fn numbers(metadata: &Metadata) -> Option<Identity> {
    use std::os::unix::fs::MetadataExt;
    Some((metadata.dev(), metadata.ino()))
}

/// Windows keeps SQLite's files from being deleted and replaced while they are open.
#[cfg(not(unix))]
fn numbers(_: &Metadata) -> Option<Identity> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder with a file, until it is dropped.
    struct Folder(PathBuf);

    impl Folder {
        fn new() -> Self {
            let name = format!("audience-disk-{:016x}", fastrand::u64(..));
            let folder = Self(std::env::temp_dir().join(name));
            fs::create_dir(&folder.0).unwrap();
            fs::write(folder.file(), "").unwrap();
            folder
        }

        fn file(&self) -> PathBuf {
            self.0.join("inbox.db")
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            fs::remove_dir_all(&self.0).ok();
        }
    }

    #[test]
    fn a_disk_is_full_if_it_has_no_reserve() {
        let folder = Folder::new();
        let disk = Disk::new(&folder.file()).unwrap();

        let before = disk.is_full();
        disk.write_reserve();
        let reserved = disk.is_full();
        disk.give_up();

        assert!(before && !reserved && disk.is_full());
        assert!(!folder.0.join("inbox.db-reserve").exists());
    }

    #[test]
    fn a_reserve_that_another_program_kept_from_being_written_is_due_immediately() {
        let folder = Folder::new();
        let disk = Disk::new(&folder.file()).unwrap();

        assert!(disk.should_reserve());
        disk.try_again();

        assert!(disk.should_reserve());
    }

    #[test]
    fn a_reserve_is_given_up_once() {
        let folder = Folder::new();
        fs::write(folder.0.join("inbox.db-reserve"), "reserve").unwrap();

        assert!(give_up_reserve(&folder.file()));
        assert!(!give_up_reserve(&folder.file()));
    }
}
