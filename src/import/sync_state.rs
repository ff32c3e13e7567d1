use std::collections::{HashMap, HashSet};
use std::fmt;
use std::fs::{self, File};
use std::hash::{BuildHasher, DefaultHasher, Hash, Hasher, RandomState};
use std::io::{self, BufReader, BufWriter, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::batch::is_refused_key;
use super::other_audience::{SAMPLE, check_audience};
use super::record_file::{
    Appender, Kind, Lengths, believable, hold_left, hold_until, lock_in_time, read_at,
    sync_directory, to_line, with_suffix,
};
use super::report::RowOutcome;
use super::row::{
    AddressHash, EVERYTHING, Entry, NumberedRow, OptOut, SyncTask, TaskKind, add_missing, has,
    number_of,
};
use crate::Error;
use crate::client::{ResponseFuture, wait_for_call};
use crate::contacts::{Contacts, Erasure, normalized_address};
use crate::secret::for_owner_only;
use crate::signals::{StopSignal, unless_stopped};
use crate::sync::lock;

/// A file in which a [sync](super::SyncContacts) remembers what it has sent of each row.
///
/// It has one JSON object on each line: the key of a row, its address, a fingerprint of its names and properties, and
/// its opt-outs. What is about to be sent is synced to disk before, and what was sent afterwards. So a sync that was
/// killed continues when it is started again. A finished sync may write the file anew, to make it smaller. For that, it
/// needs the right to create a file in the same folder. Without it, the file grows with each sync. With the feature
/// `tracing`, a warning says so if the file has more than ten times the records that it needs.
///
/// The file contains addresses, so only the owner can read a new file (on Unix). It belongs to one table and one
/// audience: **use another file for each**. If it is lost, the next sync sends the whole table again. That undoes no
/// opt-out, but the sync cannot know which addresses the table had before. So let a program that runs every night open
/// it with [`open_existing`](Self::open_existing). A file that is restored from a backup, or has lost its end, is used as
/// that of an earlier sync: see [Keeping a list in step](crate::guides::keeping_in_step#the-state-file). If a person has
/// to be erased, [`Contacts::erase_rows`] removes the row from the file, too.
///
/// Only one sync at a time can use a file. While it runs, it holds a lock on the file, which ends with the process at
/// the latest. Another sync waits 5 s for the lock, and then fails. It also fails if the first one has changed the file since
/// it was [opened](Self::open): its rows may be older than what the first has sent. So open the file before you read the
/// table.
///
/// # Example: the second night
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = audience::mock::MockServer::start().await;
/// # let contacts = server.client().contacts();
/// # let path = std::env::temp_dir().join(format!("audience-state-{}.sync", std::process::id()));
/// use audience::import::{SyncRow, SyncState};
///
/// let table = || [SyncRow::new(7, "ada@example.com"), SyncRow::new(8, "bob@example.com")];
/// println!("{}", contacts.sync(table(), SyncState::open(&path)?).await?);
///
/// // Nothing has changed, so nothing is sent.
/// let report = contacts.sync(table(), SyncState::open(&path)?).await?;
/// assert_eq!(report.unchanged(), 2);
/// # assert_eq!(server.requests().len(), 1);
/// # std::fs::remove_file(path)?;
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct SyncState {
    path: PathBuf,
    file: File,
    contents: Contents,
}

const STATE: Kind = Kind {
    name: "sync state",
    user: "sync",
    advice: "restore the file from a backup, or choose another one",
    header: "{\"sync\":{\"version\":",
    records: &["{\"row\":", "{\"held_until\":"],
};

const VERSION: u32 = 1;

/// One line of the file.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Record {
    /// The first line.
    Sync(Header),
    /// What is known about a row. The last record of a key counts.
    Row(Box<Entry>),
    /// The service has asked to wait until this time, in Unix seconds.
    HeldUntil(u64),
}

/// A [`Record::Row`], to be written without a copy.
#[derive(Serialize)]
#[serde(rename_all = "snake_case")]
enum RowRecord<'a> {
    Row(&'a Entry),
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Header {
    version: u32,
    /// The base URL of the service.
    service: String,
    /// How often the file was written anew.
    #[serde(default)]
    rewritten: u64,
}

/// The records of a file.
#[derive(Debug)]
struct Contents {
    header: Option<Header>,
    known: Known,
    held_until: u64,
    lengths: Lengths,
    /// How many records of rows there are. Of several with the same key, all but the last are waste.
    rows: u64,
}

impl SyncState {
    /// Opens the file of the last sync, or creates it if it does not exist.
    ///
    /// A crash can leave a partly written line at the end of the file. This call ignores it, and the next sync removes
    /// it.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Config`](crate::ErrorKind::Config) if the file cannot be opened or read, if it is not the state of
    /// a sync, or if a newer version of this crate has written it. Such a file is not changed.
    ///
    /// # Example: another file for each table
    ///
    /// ```
    /// # let folder = std::env::temp_dir();
    /// # let path = folder.join(format!("audience-users-{}.sync", std::process::id()));
    /// use audience::import::SyncState;
    ///
    /// let state = SyncState::open(&path)?;
    /// assert!(state.is_empty());
    /// # std::fs::remove_file(path).unwrap();
    /// # Ok::<(), audience::Error>(())
    /// ```
    pub fn open(path: impl AsRef<Path>) -> Result<Self, Error> {
        let (path, mut file) = STATE.open(path.as_ref())?;
        let contents = read(&mut file)?;
        Ok(Self {
            path,
            file,
            contents,
        })
    }

    /// Opens the file of the last sync like [`open`](Self::open), and fails if it does not exist.
    ///
    /// This is for a program that runs every night: if the path is wrong or a volume is not mounted, it must not begin
    /// a new file and send the whole table again. The file may be empty. So create an empty one before the first run, which
    /// only its owner can read.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Config`](crate::ErrorKind::Config) if there is no such file, and the errors of [`open`](Self::open).
    /// The text begins with the path.
    ///
    /// # Example: before and after the file is created
    ///
    /// ```
    /// # let folder = std::env::temp_dir();
    /// # let path = folder.join(format!("audience-existing-{}.sync", std::process::id()));
    /// use audience::ErrorKind;
    /// use audience::import::SyncState;
    ///
    /// let error = SyncState::open_existing(&path).unwrap_err();
    /// assert_eq!(error.kind(), ErrorKind::Config);
    ///
    /// std::fs::File::create(&path)?; // once, before the first run
    /// assert!(SyncState::open_existing(&path)?.is_empty());
    /// # std::fs::remove_file(path)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn open_existing(path: impl AsRef<Path>) -> Result<Self, Error> {
        let path = path.as_ref();
        let opened = match path.try_exists() {
            Ok(false) => Err(Error::config(
                "there is no sync state; check the path and whether its volume is mounted, or create an empty file before the first run",
            )),
            _ => Self::open(path),
        };
        opened.map_err(|error| error.about(&path.display().to_string()))
    }

    /// Returns whether no sync has used the file yet, so that the next one sends the whole table.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.contents.header.is_none()
    }

    /// Returns the path of the file, in its canonical form.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Locks the file. Fails if another program has changed it since it was opened.
    pub(super) async fn claim(&self, service: &str) -> Result<(), Error> {
        if !lock_in_time(&self.file).await {
            return Err(STATE.in_use());
        }
        if self.is_changed().map_err(|error| STATE.unreadable(error))? {
            return Err(Error::config(
                "another sync has used the sync state since it was opened, so what you read from the table may be older; open the state and read the table again, and repeat the call",
            )
            .retryable());
        }
        match &self.contents.header {
            Some(header) if header.service != service => Err(Error::input(
                "the sync state belongs to a sync with another service; choose another file",
            )),
            _ => Ok(()),
        }
    }

    /// Returns whether another sync has appended to the file, or written it anew.
    fn is_changed(&self) -> io::Result<bool> {
        if self.file.metadata()?.len() != self.contents.lengths.length {
            return Ok(true);
        }
        // On Windows, no sync writes it anew.
        if cfg!(not(unix)) {
            return Ok(false);
        }
        let now = File::open(&self.path).and_then(|file| first_line(&file))?;
        Ok(now != first_line(&self.file)?)
    }

    pub(super) fn known(&mut self) -> &mut Known {
        &mut self.contents.known
    }

    /// Returns how long the service still wants no request.
    pub(super) fn hold(&self) -> Duration {
        hold_left(self.contents.held_until)
    }

    /// Removes what was only partly written, and starts to append.
    pub(super) async fn start(&mut self, service: &str) -> Result<StateWriter, Error> {
        let failed = |error| STATE.unwritable(error);
        let Lengths { records, length } = self.contents.lengths;
        // A record after half a line would make both unreadable.
        if records < length {
            self.file.set_len(records).map_err(failed)?;
        }
        let file = self.file.try_clone().map_err(failed)?;
        let writer = StateWriter {
            appender: Appender::start(file, records).map_err(failed)?,
            recent: Arc::default(),
            notes: Arc::default(),
            appended: Arc::default(),
        };
        if self.contents.header.is_none() {
            sync_directory(&self.path);
            let header = Header {
                version: VERSION,
                service: service.to_owned(),
                rewritten: 0,
            };
            let line = to_line(&Record::Sync(header)).map_err(|error| STATE.unwritable(error))?;
            let written = writer.appender.append(line).await;
            written.map_err(|error| STATE.unwritable(error))?;
        }
        Ok(writer)
    }

    /// Writes the file anew if a third of it is waste. A file that cannot be written anew is kept, and grows with each
    /// sync.
    pub(super) async fn shrink(mut self, writer: &StateWriter) {
        self.contents.rows += writer.appended.load(Ordering::Relaxed);
        // On Windows, another program cannot notice that the file is a new one.
        if cfg!(unix) && self.is_wasteful() {
            // A large file takes seconds, which must not hold up the runtime.
            let task = tokio::task::spawn_blocking(move || {
                // The file on disk is complete without this.
                let failed = self.try_shrink().err()?;
                self.is_mostly_waste()
                    .then(|| (self.path, failed.to_string()))
            });
            let _failed = task.await;
            #[cfg(feature = "tracing")]
            if let Ok(Some((path, error))) = _failed {
                tracing::warn!(target: "audience::import", path = %path.display(), error, "a sync state could not be written anew, so it grows with each sync; let the program create files in its folder");
            }
        }
    }

    fn is_wasteful(&self) -> bool {
        let needed = self.contents.known.slots.len() as u64;
        self.contents.rows > needed + needed / 2 + MIN_WASTE
    }

    /// Returns whether the waste is at least ten times the need.
    fn is_mostly_waste(&self) -> bool {
        let needed = self.contents.known.slots.len() as u64;
        self.contents.rows >= 11 * needed
    }

    fn try_shrink(&mut self) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        // Before the file is read again, because it takes as much memory.
        self.contents.known = Known::default();
        self.contents = read(&mut self.file)?;
        let Some(header) = self.contents.header.as_ref().filter(|_| self.is_wasteful()) else {
            return Ok(());
        };
        self.replace(header, |_| {})
    }

    /// Writes the file anew, with each entry as `change` leaves it.
    fn replace(
        &self,
        header: &Header,
        change: impl Fn(&mut Entry),
    ) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        let path = with_suffix(&self.path, ".new");
        let result = self.rewrite(header, &path, change);
        if result.is_err() {
            let _ = fs::remove_file(&path);
        }
        result
    }

    fn rewrite(
        &self,
        header: &Header,
        path: &Path,
        change: impl Fn(&mut Entry),
    ) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        let mut options = fs::OpenOptions::new();
        options.write(true).create(true).truncate(true);
        let file = for_owner_only(&mut options).open(path)?;
        let mut new = BufWriter::new(&file);
        let header = Header {
            rewritten: header.rewritten + 1,
            ..header.clone()
        };
        new.write_all(&to_line(&Record::Sync(header))?)?;
        if !self.hold().is_zero() {
            new.write_all(&to_line(&Record::HeldUntil(self.contents.held_until))?)?;
        }
        let mut places: Vec<_> = self.contents.known.slots.iter().map(Slot::start).collect();
        // In the order of the file, which is read faster.
        places.sort_unstable();
        for place in places {
            let mut entry = read_entry(&self.file, place)?;
            change(&mut entry);
            new.write_all(&to_line(&RowRecord::Row(&entry))?)?;
        }
        new.flush()?;
        drop(new);
        file.sync_all()?;
        let before = self.file.metadata()?;
        keep_owner(&file, &before)?;
        // After that, because a new owner clears some of them.
        file.set_permissions(before.permissions())?;
        fs::rename(path, &self.path)?;
        sync_directory(&self.path);
        Ok(())
    }

    /// Removes the rows with these keys from memory, but none that is not deleted, and returns them.
    fn take_out(&mut self, keys: &[KeyHash]) -> io::Result<HashMap<KeyHash, (Entry, Slot)>> {
        let keys: HashSet<_> = keys.iter().collect();
        let is_taken = |slot: &mut Slot| slot.place & GONE != 0 && keys.contains(&slot.key);
        let known = &mut self.contents.known;
        let slots: Vec<_> = known.slots.extract_if(.., is_taken).collect();
        let rows = slots.into_iter().map(|slot| {
            let entry = read_entry(&self.file, slot.start())?;
            Ok((slot.key, (entry, slot)))
        });
        rows.collect()
    }

    /// Returns the addresses that a row has, or may have got, unless the row was deleted.
    fn held(&self, asked_for: &HashSet<u64>) -> io::Result<HashSet<u64>> {
        let known = &self.contents.known;
        let living = known.slots.iter().filter(|slot| slot.place & GONE == 0);
        let addresses = living.map(|slot| slot.address.number());
        let mut held: HashSet<_> = addresses
            .filter(|address| asked_for.contains(address))
            .collect();
        for (address, was, key) in &known.former {
            if *was != Was::Tried || !asked_for.contains(address) {
                continue;
            }
            let Some(row) = known.find(key) else {
                continue;
            };
            // An older record of the row may have the address.
            let entry = read_entry(&self.file, known.slots[row].start())?;
            if entry
                .tried
                .is_some_and(|tried| number_of(&tried) == *address)
            {
                held.insert(*address);
            }
        }
        Ok(held)
    }

    /// Writes the file anew without the rows that were [taken out](Self::take_out), and without these addresses of what
    /// other rows had before or are to leave.
    fn forget(&self, addresses: &HashSet<u64>) -> Result<(), Error> {
        let Some(header) = &self.contents.header else {
            return Ok(());
        };
        let written = self.replace(header, |entry| {
            let is_erased = |address: &str| addresses.contains(&number_of(address));
            entry.former.retain(|former| !is_erased(&former.address));
            for address in entry.to_leave.clone() {
                if is_erased(&address) {
                    entry.remove_to_leave(&address);
                }
            }
        });
        written.map_err(|error| STATE.unwritable(error))
    }

    /// Returns the addresses of some contacts of the last run.
    pub(super) fn sample(&self) -> Result<Vec<String>, Error> {
        let places = self.contents.known.sample(SAMPLE).into_iter();
        let entries = places.map(|place| read_entry(&self.file, place.0));
        let addresses = entries.map(|entry| Ok(entry?.address));
        let addresses: io::Result<_> = addresses.collect();
        addresses.map_err(|error| STATE.unreadable(error))
    }

    /// Returns a reader of the entries that were there before this sync.
    pub(super) fn reader(&self) -> io::Result<EntryReader> {
        self.file.try_clone().map(EntryReader)
    }
}

impl Contacts {
    /// Erases people whose rows a [sync](Self::sync) has sent: [erases](Self::erase) the contacts of all their
    /// addresses, and removes the rows from the state file.
    ///
    /// Call this after a [finished](super::SyncReport::finished) sync, with the key and the address of each row that is
    /// marked as deleted in your table, or that is missing with
    /// [`deletes_missing`](super::SyncContacts::deletes_missing). If the table has no address of a row any more, give
    /// an empty one. The result has one entry for each row, in this order. Then delete those rows of the table whose
    /// entry is `Ok`: the next sync takes a row that is still there for a new one, and puts its address into the file
    /// again. If the program stops in between, do the same again: a contact that was deleted by then is
    /// [`Erasure::NoContact`].
    ///
    /// `Ok` has each address, as [`normalized_address`] returns it, and what was done with it. The addresses of a row
    /// are the one that you give, and all that it has or had, as far as a run has sent them; of a row that the file
    /// does not know, only the first. If another row that is not deleted has such an address, the contact stays:
    /// [`Erasure::Kept`]. Contacts that the file does not know of, such as those of a newer row or of another table,
    /// are not protected. Another deleted row keeps the address in the file until it is erased, too.
    ///
    /// It takes some requests for each contact, one after another. The client's settings apply to each contact. The file
    /// is written anew afterwards, and replaces the old one.
    ///
    /// # If the person comes back
    ///
    /// The sync takes their row for a new one. If the contact was deleted, it is created again. After
    /// [`Erasure::Emptied`], it is still opted out, with the reason `preferences`, and no sync changes that. A sync that
    /// [checks the list](super::SyncContacts::checks_list) then has the key in
    /// [`opted_out_at_service`](super::SyncReport::opted_out_at_service), and whoever writes these keys into the table
    /// writes a "no" over the new "yes". So call [`subscribe`](Self::subscribe) when the person asks for mail.
    ///
    /// # Errors
    ///
    /// It is safe to repeat the call after any error, with the same rows. A row that fails stays in the file, and does
    /// not hold up the others. Its error is one of these:
    ///
    /// - The errors of [`erase`](Self::erase), with the key of the row. After three consecutive rows that failed
    ///   because of the service or the connection, no request is sent for the others: each of them gets an
    ///   [`ErrorKind::Unfinished`](crate::ErrorKind::Unfinished) error. If the same rows fail each time, give them
    ///   last.
    /// - [`ErrorKind::Stopped`](crate::ErrorKind::Stopped) after [`stop_when`](super::EraseRows::stop_when).
    /// - [`ErrorKind::Input`](crate::ErrorKind::Input) if the last sync did not have the row as deleted, such as one
    ///   that was marked since.
    ///
    /// The call itself fails with one of these:
    ///
    /// - [`ErrorKind::Input`](crate::ErrorKind::Input) if the file belongs to a sync with another service, or if the
    ///   service has none of some contacts of the last run, so that the key may be that of another audience. Nothing
    ///   was erased.
    /// - The errors of [`find`](Self::find) if the call could not make sure of that. Nothing was erased.
    /// - [`ErrorKind::Config`](crate::ErrorKind::Config) if a sync uses the file and has not ended within 5 s, if one has
    ///   changed the file since it was opened, or if the file cannot be read. Nothing was erased. On Windows, this is always
    ///   so. Erase the contacts there, and delete the lines of the rows, and their addresses from the lines of other rows,
    ///   while no sync runs.
    /// - [`ErrorKind::Config`](crate::ErrorKind::Config) with [`Outcome::Unknown`](crate::Outcome::Unknown) if no file
    ///   can be created in the folder, or the file is itself a mount. Contacts were erased, but the results of the rows
    ///   are lost, and the file is as it was.
    ///
    /// # Example: at the end of the night
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # if cfg!(not(unix)) { return Ok(()); }
    /// # let server = audience::mock::MockServer::start().await;
    /// # let contacts = server.client().contacts();
    /// # let path = std::env::temp_dir().join(format!("audience-erase-{}.sync", std::process::id()));
    /// use audience::import::{SyncRow, SyncState};
    ///
    /// let table = [
    ///     SyncRow::new(7, "ada@example.com").deleted(true),
    ///     SyncRow::new(8, "bob@example.com"),
    /// ];
    /// # let before = [SyncRow::new(7, "ada@example.com"), SyncRow::new(8, "bob@example.com")];
    /// # println!("{}", contacts.sync(before, SyncState::open(&path)?).await?);
    /// println!("{}", contacts.sync(table, SyncState::open(&path)?).await?.finished()?);
    ///
    /// for (id, erased) in contacts.erase_rows(SyncState::open(&path)?, [(7, "ada@example.com")]).await? {
    ///     for (address, erasure) in erased? {
    ///         println!("{address}: {erasure}");
    ///     }
    ///     println!("DELETE FROM users WHERE id = {id}");
    /// }
    ///
    /// assert!(!std::fs::read_to_string(&path)?.contains("ada@example.com"));
    /// # std::fs::remove_file(path)?;
    /// # Ok(()) }
    /// ```
    pub fn erase_rows<K: ToString + Send + 'static, A: Into<String>>(
        &self,
        state: SyncState,
        rows: impl IntoIterator<Item = (K, A)>,
    ) -> EraseRows<K> {
        let rows = rows.into_iter().map(|(key, address)| (key, address.into()));
        EraseRows {
            contacts: self.clone(),
            state,
            rows: rows.collect(),
            stop_signal: None,
        }
    }
}

/// Erases people whose rows a sync has sent when it is awaited: see [`Contacts::erase_rows`].
#[must_use = "a call is sent only when it is awaited"]
pub struct EraseRows<K> {
    contacts: Contacts,
    state: SyncState,
    rows: Vec<(K, String)>,
    stop_signal: Option<StopSignal>,
}

impl<K> EraseRows<K> {
    /// Stops when this future is ready. Default: the call runs to its end. For SIGTERM and Ctrl-C, pass
    /// [`shutdown_signal()`](crate::shutdown_signal).
    ///
    /// The rows that are erased by then leave the file. Each other row gets an
    /// [`ErrorKind::Stopped`](crate::ErrorKind::Stopped) error, and a later call erases it.
    ///
    /// # Example: end on SIGTERM
    ///
    /// ```no_run
    /// # async fn run(contacts: audience::contacts::Contacts, state: audience::import::SyncState) -> Result<(), audience::Error> {
    /// let erasing = contacts.erase_rows(state, [(7, "ada@example.com")]);
    /// let erased = erasing.stop_when(audience::shutdown_signal()).await?;
    /// # Ok(()) }
    /// ```
    pub fn stop_when(mut self, signal: impl Future<Output = ()> + Send + 'static) -> Self {
        self.stop_signal = Some(Box::pin(signal));
        self
    }
}

impl<K: ToString> EraseRows<K> {
    async fn send(self) -> Result<Vec<(K, Result<Vec<(String, Erasure)>, Error>)>, Error> {
        let Self {
            contacts,
            mut state,
            rows,
            mut stop_signal,
        } = self;
        // As for `shrink`, no other sync would notice it.
        if cfg!(not(unix)) {
            return Err(Error::config(
                "a sync state cannot be written anew on this system; erase the contacts, and delete the lines of the rows from the file, and their addresses from other lines, while no sync runs",
            ));
        }
        state.claim(&contacts.client.base_url()).await?;
        if rows.is_empty() {
            return Ok(Vec::new());
        }
        contacts.client.hold_back(state.hold());
        let unasked = check_audience(
            state.sample()?,
            |address| contacts.find(address),
            &mut stop_signal,
            "the last run had sent",
            "erase the contacts one by one",
        )
        .await?;
        // In another audience, no contact exists, and each row would count as erased.
        if let Some(error) = unasked {
            return Err(error);
        }
        let unreadable = |error| STATE.unreadable(error);
        let hashes = &state.contents.known.hashes;
        let hash = |(key, _): &(K, _)| hashes.of(&key.to_string());
        let keys: Vec<_> = rows.iter().map(hash).collect();
        let mut taken = state.take_out(&keys).map_err(unreadable)?;
        let addresses = taken.values().flat_map(|(entry, _)| addresses_of(entry));
        let addresses = addresses.chain(rows.iter().map(|(_, address)| address));
        let numbers = addresses.map(|address| number_of(address)).collect();
        let mut erasing = Erasing {
            contacts,
            held: state.held(&numbers).map_err(unreadable)?,
            erased: HashMap::new(),
            failures: 0,
            stop_signal,
            has_stopped: false,
        };
        // The addresses of a row that has failed stay in the file, so that the next call returns all of them.
        let (mut result, mut gone, mut left) = (Vec::new(), HashSet::new(), Vec::new());
        for ((key, address), hash) in rows.into_iter().zip(keys) {
            let entry = taken.get(&hash).map(|(entry, _)| entry);
            let erased = match state.contents.known.find(&hash) {
                // What was taken out is not there any more.
                Some(_) => Err(Error::input(
                    "it was not deleted in the last sync; mark it as deleted in the table, and run the sync first; its rejects say if the row cannot be read",
                )),
                None => erasing.erase(&address, entry).await,
            };
            let name = format!("the row with the key {:?}", key.to_string());
            let erased = erased.map_err(|error| error.about(&name).at("erase").repeatable(true));
            match &erased {
                Ok(addresses) => {
                    let gone_now = addresses.iter().filter(|(_, erasure)| is_gone(*erasure));
                    gone.extend(gone_now.map(|(address, _)| number_of(address)));
                }
                Err(_) => left.push(hash),
            }
            result.push((key, erased));
        }
        let left: Vec<_> = left.iter().filter_map(|key| taken.remove(key)).collect();
        if taken.is_empty() && gone.is_empty() {
            return Ok(result);
        }
        let slots = left.into_iter().map(|(_, slot)| slot);
        state.contents.known.slots.extend(slots);
        let has_erased = erasing.erased.values().any(|erasure| is_gone(*erasure));
        // A large file takes seconds, which must not hold up the runtime.
        let task = tokio::task::spawn_blocking(move || state.forget(&gone));
        let written = task.await;
        let written = written.unwrap_or_else(|error| Err(STATE.unwritable(error)));
        match written {
            Err(error) if has_erased => Err(error.maybe_applied().repeatable(true)),
            written => written.map(|()| result),
        }
    }
}

/// After how many failures in a row no other row is tried.
const MAX_FAILURES: u32 = 3;

/// The contacts of rows that are erased.
struct Erasing {
    contacts: Contacts,
    /// The addresses that other rows have.
    held: HashSet<u64>,
    /// What was done with each address.
    erased: HashMap<String, Erasure>,
    /// How many rows in a row have failed in a way that says nothing about them.
    failures: u32,
    stop_signal: Option<StopSignal>,
    has_stopped: bool,
}

impl Erasing {
    /// Erases the contacts of an address, which may be empty, and of all addresses of a row.
    async fn erase(
        &mut self,
        address: &str,
        row: Option<&Entry>,
    ) -> Result<Vec<(String, Erasure)>, Error> {
        if self.failures == MAX_FAILURES {
            return Err(Error::unfinished(
                "it was not tried, because the rows before it failed; repeat the call later",
                true,
            ));
        }
        let given = Some(address).filter(|address| !address.trim().is_empty());
        let known = row.into_iter().flat_map(addresses_of).map(String::as_str);
        let mut erased: Vec<(String, Erasure)> = Vec::new();
        for address in given.into_iter().chain(known) {
            let normalized = normalized_address(address);
            if erased.iter().any(|(other, _)| *other == normalized) {
                continue;
            }
            let erasure = match self.erased.get(&normalized) {
                Some(erasure) => *erasure,
                None => self.erase_contact(address).await.map_err(|error| {
                    match erased.iter().any(|(_, erasure)| is_gone(*erasure)) {
                        true => error.maybe_applied(),
                        false => error,
                    }
                })?,
            };
            self.erased.insert(normalized.clone(), erasure);
            erased.push((normalized, erasure));
        }
        Ok(erased)
    }

    async fn erase_contact(&mut self, address: &str) -> Result<Erasure, Error> {
        if self.held.contains(&number_of(address)) {
            return Ok(Erasure::Kept);
        }
        let stopped = || Error::stopped("the call was asked to stop; repeat it to erase the rest");
        if self.has_stopped {
            return Err(stopped());
        }
        let erasing = self.contacts.erase(address).into_future();
        let Some(erasure) = unless_stopped(&mut self.stop_signal, erasing).await else {
            self.has_stopped = true;
            return Err(stopped().maybe_applied());
        };
        self.failures = match &erasure {
            Err(error) if error.is_retryable() || is_refused_key(error) => self.failures + 1,
            _ => 0,
        };
        erasure
    }
}

fn is_gone(erasure: Erasure) -> bool {
    erasure != Erasure::Kept
}

wait_for_call!(impl[K: ToString + Send + 'static] EraseRows<K> => Result<Vec<(K, Result<Vec<(String, Erasure)>, Error>)>, Error>);

impl<K> fmt::Debug for EraseRows<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EraseRows").finish_non_exhaustive()
    }
}

impl<K: ToString + Send + 'static> IntoFuture for EraseRows<K> {
    type Output = Result<Vec<(K, Result<Vec<(String, Erasure)>, Error>)>, Error>;
    type IntoFuture = ResponseFuture<Vec<(K, Result<Vec<(String, Erasure)>, Error>)>>;

    fn into_future(self) -> Self::IntoFuture {
        ResponseFuture::new(self.send())
    }
}

/// Gives a new file the owner and the group of the one that it replaces. Otherwise, a sync that root has started once
/// would lock out the user of all others.
#[cfg(unix)]
fn keep_owner(new: &File, before: &fs::Metadata) -> io::Result<()> {
    use std::os::unix::fs::{MetadataExt as _, fchown};

    let found = new.metadata()?;
    let changed = |before, found| Some(before).filter(|before| *before != found);
    match (
        changed(before.uid(), found.uid()),
        changed(before.gid(), found.gid()),
    ) {
        // Some file systems refuse even a change to the same owner.
        (None, None) => Ok(()),
        (owner, group) => fchown(new, owner, group),
    }
}

#[cfg(not(unix))]
fn keep_owner(_: &File, _: &fs::Metadata) -> io::Result<()> {
    Ok(())
}

/// How many records may be waste in any file.
const MIN_WASTE: u64 = 1_000;

/// Reads entries by the places in the file where they start.
#[derive(Debug)]
pub(super) struct EntryReader(File);

impl EntryReader {
    pub(super) fn read(&self, place: Place) -> Result<Entry, Error> {
        read_entry(&self.0, place.0).map_err(|error| STATE.unreadable(error))
    }
}

fn read(file: &mut File) -> Result<Contents, Error> {
    let rewound = file.seek(SeekFrom::Start(0));
    rewound.map_err(|error| STATE.unreadable(error))?;
    let hashes = Hashes::default();
    let (mut header, mut slots, mut held_until) = (None, Vec::new(), 0);
    let mut former = Vec::new();
    let lengths = STATE.read(BufReader::with_capacity(1 << 16, file), |record, start| {
        match record {
            Record::Sync(_) if header.is_some() => return Err("it has two headers"),
            Record::Sync(Header { version, .. }) if version != VERSION => {
                return Err("it was written by another version of this crate");
            }
            Record::Sync(found) => header = Some(found),
            _ if header.is_none() => return Err("it has no header"),
            Record::Row(entry) => {
                let slot = Slot::new(&hashes, &entry, start);
                former.extend(former_of(&entry, &slot));
                slots.push(slot);
            }
            Record::HeldUntil(until) => held_until = held_until.max(believable(until)),
        }
        Ok(())
    })?;
    let rows = slots.len() as u64;
    // The last record of a key counts. The sort is stable, so it is the last of its equals.
    slots.sort_by_key(|slot: &Slot| slot.key);
    slots.reverse();
    slots.dedup_by_key(|slot| slot.key);
    slots.reverse();
    slots.shrink_to_fit();
    former.sort_unstable();
    former.dedup();
    let known = Known {
        hashes,
        slots,
        former,
    };
    Ok(Contents {
        header,
        known,
        held_until,
        lengths,
        rows,
    })
}

fn first_line(file: &File) -> io::Result<Vec<u8>> {
    let mut start = vec![0; 4_096];
    let length = read_at(file, &mut start, 0)?;
    start.truncate(length);
    let end = start.iter().position(|byte| *byte == b'\n');
    // Half a line belongs to a file without a header. Such a file is never written anew.
    start.truncate(end.unwrap_or(0));
    Ok(start)
}

fn read_entry(file: &File, start: u64) -> io::Result<Entry> {
    let (mut line, mut buffer) = (Vec::new(), [0; 512]);
    loop {
        let place = start + line.len() as u64;
        let length = read_at(file, &mut buffer, place)?;
        let found = &buffer[..length];
        if let Some(end) = found.iter().position(|byte| *byte == b'\n') {
            line.extend_from_slice(&found[..end]);
            return match serde_json::from_slice(&line)? {
                Record::Row(entry) => Ok(*entry),
                _ => Err(io::Error::other("another program has changed the file")),
            };
        }
        if length == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        line.extend_from_slice(found);
    }
}

/// What is known about all rows, in 40 bytes for each. The rest is read from the file when it is needed.
#[derive(Debug, Default)]
pub(super) struct Known {
    hashes: Hashes,
    /// Sorted by key, each key once.
    slots: Vec<Slot>,
    /// The addresses that rows had before, sorted.
    former: Vec<FormerAddress>,
}

/// An address, what it was for a row, and the row.
type FormerAddress = (u64, Was, KeyHash);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Was {
    /// Maybe its next address.
    Tried,
    /// Its address.
    Held,
    /// Its address, which was opted out.
    OptedOut,
}

fn former_of(entry: &Entry, slot: &Slot) -> Vec<FormerAddress> {
    let former = entry.former.iter().map(|former| match former.is_out {
        true => (number_of(&former.address), Was::OptedOut, slot.key),
        false => (number_of(&former.address), Was::Held, slot.key),
    });
    let to_leave = entry.to_leave.iter().map(|address| number_of(address));
    let to_leave = to_leave.filter(|address| *address != slot.address.number());
    let to_leave = to_leave.map(|address| (address, Was::Held, slot.key));
    let tried = entry.tried.iter();
    let tried = tried.map(|address| (number_of(address), Was::Tried, slot.key));
    former.chain(to_leave).chain(tried).collect()
}

/// Returns all addresses that a row has, had, or may have got.
fn addresses_of(entry: &Entry) -> impl Iterator<Item = &String> {
    let former = entry.former.iter().map(|former| &former.address);
    let others = entry.to_leave.iter().chain(&entry.tried).chain(former);
    std::iter::once(&entry.address).chain(others)
}

/// The addresses that rows had before this sync.
#[derive(Debug)]
pub(super) struct History {
    hashes: Hashes,
    /// Of all rows, sorted.
    held: Vec<u64>,
    /// Of the rows that are opted out, sorted.
    opted_out: Vec<u64>,
    former: Vec<FormerAddress>,
}

impl History {
    /// Returns whether any row had this address before this sync. The row with this key is new, or had another address.
    pub(super) fn knows(&self, address: &str, key: &str) -> bool {
        let (address, key) = (number_of(address), self.hashes.of(key));
        let is_other = |(_, was, row): &FormerAddress| *was != Was::Tried || *row != key;
        count(&self.held, address) > 0 || self.former(address).iter().any(is_other)
    }

    /// Returns whether another row had this address, too. The row with this key had it before this sync.
    pub(super) fn is_shared(&self, address: &str, key: &str) -> bool {
        let (address, key) = (number_of(address), self.hashes.of(key));
        let former = self.former(address);
        count(&self.held, address) > 1 || former.iter().any(|(_, _, row)| *row != key)
    }

    /// Returns whether a sync has opted out this address, or knows that it was opted out.
    pub(super) fn is_opted_out(&self, address: &str) -> bool {
        let address = number_of(address);
        let former = self.former(address);
        let was_left = former.iter().any(|(_, was, _)| *was == Was::OptedOut);
        was_left || count(&self.opted_out, address) > 0
    }

    fn former(&self, address: u64) -> &[FormerAddress] {
        let start = self.former.partition_point(|former| former.0 < address);
        let rest = &self.former[start..];
        &rest[..rest.partition_point(|former| former.0 == address)]
    }
}

/// Returns how often a number is among these sorted ones.
pub(super) fn count(sorted: &[u64], number: u64) -> usize {
    let start = sorted.partition_point(|other| *other < number);
    sorted[start..].partition_point(|other| *other == number)
}

/// Two hashes make one of 128 bits, so that no two keys are taken for one.
#[derive(Clone, Debug, Default)]
struct Hashes([RandomState; 2]);

type KeyHash = [u64; 2];

impl Hashes {
    fn of(&self, key: &str) -> KeyHash {
        self.0.each_ref().map(|state| state.hash_one(key))
    }
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    key: KeyHash,
    /// Of what the table had, if the service certainly has it; otherwise 0.
    fingerprint: u64,
    address: AddressHash,
    /// Where the record starts, and four flags below.
    place: u64,
}

const SEEN: u64 = 1;
const GONE: u64 = 2;
/// The contact is opted out.
const OUT: u64 = 4;
/// See [`Entry::is_opt_in`].
const OPT_IN: u64 = 8;
const FLAGS: u32 = 4;

/// The place of an entry in the file.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct Place(u64);

impl Slot {
    fn new(hashes: &Hashes, entry: &Entry, start: u64) -> Self {
        Self {
            key: hashes.of(&entry.key),
            fingerprint: entry.fingerprint(),
            address: AddressHash::new(&entry.address),
            place: start << FLAGS
                | flag(entry.is_gone, GONE)
                | flag(has(&entry.opt_outs, &EVERYTHING), OUT)
                | flag(entry.is_opt_in, OPT_IN),
        }
    }

    fn start(&self) -> u64 {
        self.place >> FLAGS
    }
}

fn flag(is_set: bool, flag: u64) -> u64 {
    if is_set { flag } else { 0 }
}

/// What is known about a row with this key.
#[derive(Clone, Copy, Debug)]
pub(super) enum Seen {
    /// No sync has seen the key.
    New(KeyHash),
    /// This sync has seen it already.
    Again,
    /// An earlier sync has recorded this of the row.
    Before(Found),
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Found {
    pub(super) fingerprint: u64,
    pub(super) place: Place,
    pub(super) address: AddressHash,
    pub(super) is_opt_in: bool,
}

impl Known {
    /// Looks for a key, and marks it as seen.
    pub(super) fn see(&mut self, key: &str) -> Seen {
        let hash = self.hashes.of(key);
        let Some(found) = self.find(&hash) else {
            return Seen::New(hash);
        };
        let slot = &mut self.slots[found];
        if slot.place & SEEN != 0 {
            return Seen::Again;
        }
        slot.place |= SEEN;
        Seen::Before(Found {
            fingerprint: slot.fingerprint,
            place: Place(slot.start()),
            address: slot.address,
            is_opt_in: slot.place & OPT_IN != 0,
        })
    }

    /// Returns the index of the slot with this key.
    fn find(&self, key: &KeyHash) -> Option<usize> {
        self.slots.binary_search_by_key(key, |slot| slot.key).ok()
    }

    /// Returns the addresses that rows have or had.
    pub(super) fn history(&self) -> History {
        let is_out = |slot: &&Slot| slot.place & OUT != 0;
        let number = |slot: &Slot| slot.address.number();
        let mut held: Vec<_> = self.slots.iter().map(number).collect();
        let mut opted_out: Vec<_> = self.slots.iter().filter(is_out).map(number).collect();
        held.sort_unstable();
        opted_out.sort_unstable();
        History {
            hashes: self.hashes.clone(),
            held,
            opted_out,
            former: self.former.clone(),
        }
    }

    /// Returns some of the rows that the service had as subscribed after the last sync, at random: the order of the slots
    /// is that of a hash with a random key.
    fn sample(&self, most: usize) -> Vec<Place> {
        let is_subscribed = |slot: &&Slot| slot.place & (GONE | OUT) == 0 && slot.fingerprint != 0;
        let sample = self.slots.iter().filter(is_subscribed).take(most);
        sample.map(|slot| Place(slot.start())).collect()
    }

    /// Returns how many rows are known that were not deleted.
    pub(super) fn count(&self) -> u64 {
        self.slots
            .iter()
            .filter(|slot| slot.place & GONE == 0)
            .count() as u64
    }

    /// Returns the rows that this sync has not seen, if something may be left to do for them, or all of them that were
    /// not deleted.
    pub(super) fn unseen(&self, all: bool) -> impl Iterator<Item = (Place, AddressHash)> {
        let unseen = self.slots.iter().filter(move |slot| {
            let is_live = slot.place & GONE == 0;
            slot.place & SEEN == 0 && (slot.fingerprint == 0 || all && is_live)
        });
        unseen.map(|slot| (Place(slot.start()), slot.address))
    }

    /// Returns the addresses of the rows that this sync has not seen and that were not deleted.
    pub(super) fn unseen_addresses(&self) -> impl Iterator<Item = AddressHash> {
        let live = self
            .slots
            .iter()
            .filter(|slot| slot.place & (SEEN | GONE) == 0);
        live.map(|slot| slot.address)
    }
}

/// Returns the fingerprint of what a table says about a row. It is never 0.
pub(super) fn fingerprint(address: &str, content: u64, opt_outs: &[OptOut]) -> u64 {
    let mut topics: Vec<_> = opt_outs.iter().collect();
    topics.sort_unstable_by_key(|opt_out| match opt_out {
        OptOut::Everything(_) => None,
        OptOut::Topic(name) => Some(name),
    });
    let mut hasher = DefaultHasher::new();
    AddressHash::new(address).hash(&mut hasher);
    content.hash(&mut hasher);
    for opt_out in topics {
        match opt_out {
            OptOut::Everything(_) => hasher.write_u8(1),
            OptOut::Topic(name) => name.hash(&mut hasher),
        }
    }
    hasher.finish().max(2)
}

/// The fingerprint of a row that is deleted and opted out.
pub(super) const DELETED: u64 = 1;

impl Entry {
    fn fingerprint(&self) -> u64 {
        match self.content {
            _ if !self.left.is_empty() || !self.to_leave.is_empty() => 0,
            _ if self.tried.is_some() || self.is_untold || self.is_by_person => 0,
            // A row that went missing while another had its address is not opted out, and may come back as deleted.
            _ if self.is_gone => match has(&self.opt_outs, &EVERYTHING) {
                true => DELETED,
                false => 0,
            },
            Some(content) if self.carried.is_none() => {
                fingerprint(&self.address, content, &self.opt_outs)
            }
            _ => 0,
        }
    }
}

/// Appends what a sync does to its state. Clones share it.
#[derive(Clone, Debug)]
pub(super) struct StateWriter {
    appender: Appender,
    /// The entries of the first part of the sync, by key. The second part looks for them here.
    recent: Arc<Mutex<HashMap<String, Entry>>>,
    notes: Arc<Mutex<Notes>>,
    /// How many entries were appended.
    appended: Arc<AtomicU64>,
}

/// Facts that this sync has learned and does not write.
#[derive(Debug, Default)]
struct Notes {
    /// The opt-outs that it has sent without a change of the contact, by the number of the address.
    sent: HashMap<u64, Vec<OptOut>>,
    /// The keys of the rows whose contacts have opted in at the service.
    subscribed: HashSet<String>,
    /// The keys of the rows whose contacts are not opted out of everything.
    reachable: HashSet<String>,
    /// The keys of the rows that take an opt-out of everything to their next address, although nothing shows that the
    /// person has made it: an earlier run may have. The value is whether it was sent.
    moved_opt_outs: HashMap<String, bool>,
    /// The addresses that this sync has opted out of everything without a change of the contact, by their numbers.
    opted_out: HashSet<u64>,
    /// Whether the plan allows no more contacts.
    is_at_ceiling: bool,
    /// The addresses to leave that other rows are to take in this sync, by their numbers.
    to_be_taken: HashSet<u64>,
    /// The opt-outs that need not be sent again, by the keys of their rows, until the outcomes of these rows are recorded.
    ended: HashMap<String, Ended>,
}

/// The opt-outs of a row that were sent for the last time.
#[derive(Debug, Default)]
struct Ended {
    recorded: Vec<OptOut>,
    /// The service has no such topics.
    unknown: Vec<OptOut>,
}

impl StateWriter {
    /// Records entries, and keeps them for the second part of the sync.
    pub(super) async fn record(&self, entries: Vec<Entry>) -> Result<(), Arc<io::Error>> {
        self.append(entries.iter()).await?;
        let named = entries.into_iter().map(|entry| (entry.key.clone(), entry));
        self.recent().extend(named);
        Ok(())
    }

    /// Records entries that nothing of this sync depends on.
    pub(super) async fn append<'a>(
        &self,
        entries: impl Iterator<Item = &'a Entry>,
    ) -> Result<(), Arc<io::Error>> {
        let lines = self.lines(entries)?;
        match lines.is_empty() {
            true => Ok(()),
            false => self.appender.append(lines).await,
        }
    }

    fn lines<'a>(
        &self,
        entries: impl Iterator<Item = &'a Entry>,
    ) -> Result<Vec<u8>, Arc<io::Error>> {
        let mut lines = Vec::new();
        for entry in entries {
            let line = to_line(&RowRecord::Row(entry));
            lines.extend(line.map_err(|error| Arc::new(error.into()))?);
            self.appended.fetch_add(1, Ordering::Relaxed);
        }
        Ok(lines)
    }

    /// Keeps an entry, if there is no newer one, so that [`update`](Self::update) finds it.
    pub(super) fn keep(&self, entry: &Entry) {
        let mut recent = self.recent();
        recent
            .entry(entry.key.clone())
            .or_insert_with(|| entry.clone());
    }

    /// Changes the entries with these keys, and records them.
    pub(super) async fn update(
        &self,
        keys: &[String],
        change: impl Fn(&mut Entry) + Send,
    ) -> Result<(), Arc<io::Error>> {
        let written = {
            let mut recent = self.recent();
            for key in keys {
                recent.entry(key.clone()).and_modify(&change);
            }
            let changed = keys.iter().filter_map(|key| recent.get(key));
            // Before another task changes them again.
            self.appender.append(self.lines(changed)?)
        };
        written.await
    }

    /// Returns the entry that the first part of the sync has recorded for a key.
    pub(super) fn find_recent(&self, key: &str) -> Option<Entry> {
        self.recent().get(key).cloned()
    }

    /// Notes an opt-out of a row that was sent to an address which other rows may leave.
    pub(super) fn note_sent(&self, address: &str, opt_out: &OptOut) {
        let mut notes = self.notes();
        add_missing(notes.sent.entry(number_of(address)).or_default(), [opt_out]);
    }

    /// Returns the opt-outs that this sync has sent to an address without a change of its contact.
    pub(super) fn sent_to(&self, address: &str) -> Vec<OptOut> {
        let notes = self.notes();
        notes
            .sent
            .get(&number_of(address))
            .cloned()
            .unwrap_or_default()
    }

    /// Notes that the contact of a row is subscribed, so that no opt-in is left to send.
    pub(super) fn note_subscribed(&self, key: &str) {
        self.notes().subscribed.insert(key.to_owned());
    }

    /// Notes that the contact of a row is not opted out of everything.
    pub(super) fn note_reachable(&self, key: &str) {
        self.notes().reachable.insert(key.to_owned());
    }

    pub(super) fn is_reachable(&self, key: &str) -> bool {
        self.notes().reachable.contains(key)
    }

    /// Notes that a row takes an opt-out of everything along that an earlier run may have made.
    pub(super) fn note_moved_opt_out(&self, key: &str) {
        let mut notes = self.notes();
        notes.moved_opt_outs.insert(key.to_owned(), false);
    }

    /// Notes that the contact of a row was opted out of everything.
    pub(super) fn note_opted_out(&self, key: &str) {
        if let Some(is_sent) = self.notes().moved_opt_outs.get_mut(key) {
            *is_sent = true;
        }
    }

    /// Notes that an opt-out of a row need not be sent again: it is recorded, or the service has no such topic.
    pub(super) fn note_ended(&self, key: &str, opt_out: &OptOut, is_recorded: bool) {
        let mut notes = self.notes();
        let ended = notes.ended.entry(key.to_owned()).or_default();
        let opt_outs = match is_recorded {
            true => &mut ended.recorded,
            false => &mut ended.unknown,
        };
        add_missing(opt_outs, [opt_out]);
    }

    /// Notes that an address was opted out of everything without a change of its contact.
    pub(super) fn note_address_opted_out(&self, address: &str) {
        self.notes().opted_out.insert(number_of(address));
    }

    /// Returns whether this sync has opted out the contact of a row because of its old address or of another row, and not
    /// because the person has opted out at the service.
    pub(super) fn has_opted_out(&self, key: &str, address: &str) -> bool {
        let notes = self.notes();
        notes.moved_opt_outs.get(key) == Some(&true)
            || notes.opted_out.contains(&number_of(address))
    }

    /// Notes that the plan allows no more contacts.
    pub(super) fn note_ceiling(&self) {
        self.notes().is_at_ceiling = true;
    }

    pub(super) fn is_at_ceiling(&self) -> bool {
        self.notes().is_at_ceiling
    }

    pub(super) fn is_subscribed(&self, key: &str) -> bool {
        self.notes().subscribed.contains(key)
    }

    /// Notes which addresses to leave other rows are to take in this sync.
    pub(super) fn note_to_be_taken(&self, addresses: HashSet<u64>) {
        self.notes().to_be_taken = addresses;
    }

    /// Records, at the end of the sync, which addresses to leave other rows have now: those rows leave them later.
    ///
    /// After a crash before that, the next sync finds out.
    pub(super) async fn hand_over(&self) -> Result<(), Arc<io::Error>> {
        let changed = self.handed_over();
        self.append(changed.iter()).await
    }

    /// Takes the addresses that other rows have now from the rows that would leave them, and returns the entries of these
    /// rows.
    fn handed_over(&self) -> Vec<Entry> {
        let notes = self.notes();
        if notes.to_be_taken.is_empty() {
            return Vec::new();
        }
        let mut recent = self.recent();
        let held = recent.values().flat_map(Entry::holds);
        let held = held.map(|address| number_of(address));
        let taken: HashSet<_> = held
            .filter(|number| notes.to_be_taken.contains(number))
            .collect();
        let mut changed = Vec::new();
        for entry in recent.values_mut() {
            let mut handed_over = entry.to_leave.clone();
            handed_over.retain(|address| taken.contains(&number_of(address)));
            if handed_over.is_empty() {
                continue;
            }
            for address in handed_over {
                entry.hand_over(&address);
            }
            changed.push(entry.clone());
        }
        changed
    }

    fn notes(&self) -> MutexGuard<'_, Notes> {
        lock(&self.notes)
    }

    fn recent(&self) -> MutexGuard<'_, HashMap<String, Entry>> {
        lock(&self.recent)
    }

    /// Records that rows are about to be sent.
    pub(super) async fn record_start(&self, rows: &[NumberedRow]) -> Result<(), Arc<io::Error>> {
        let tasks = rows.iter().filter_map(|row| row.row.task());
        // The first part of the sync was recorded as a whole.
        let upserts = tasks.filter(|task| task.kind == TaskKind::Upsert);
        let started = upserts.filter_map(|task| task.started.as_ref());
        self.append(started.clone()).await?;
        // The last part and the end of the sync must not record what was known before, and have to know who takes an
        // address to leave.
        let notes = self.notes();
        let mut recent = self.recent();
        for entry in started {
            let takes = notes.to_be_taken.contains(&number_of(&entry.address));
            if takes || recent.contains_key(&entry.key) {
                recent.insert(entry.key.clone(), entry.clone());
            }
        }
        Ok(())
    }

    /// Records the outcomes that are final, and which contacts were not sent: for each row, the outcome of its contact and
    /// the one with its opt-outs.
    pub(super) async fn record_end<'a>(
        &self,
        rows: impl Iterator<Item = (&'a NumberedRow, &'a RowOutcome, &'a RowOutcome)>,
    ) -> Result<(), Arc<io::Error>> {
        let mut entries = Vec::new();
        for (row, contact, outcome) in rows {
            let Some(task) = row.row.task() else { continue };
            let (is_sent, is_done) = (contact.is_applied(), outcome.is_applied());
            let key = row.row.key_text().unwrap_or_default();
            let ended = self.notes().ended.remove(key).unwrap_or_default();
            // Only a contact that is created or updated has an entry for the other two outcomes.
            entries.extend(match contact {
                _ if is_sent && is_done => task.done.clone(),
                _ if task.kind == TaskKind::OptOut => ended.left_of(&task.started, task),
                _ if is_sent => ended.left_of(&task.applied, task),
                RowOutcome::Refused { .. } if contact == outcome => task.refused.clone(),
                RowOutcome::NotSent => task.started.clone().and_then(Entry::not_sent),
                _ => None,
            });
        }
        for entry in &mut entries {
            let is_wanted = has(&entry.opt_outs, &EVERYTHING);
            entry.is_opt_in |= self.has_opted_out(&entry.key, &entry.address) && !is_wanted;
        }
        self.append(entries.iter()).await?;
        // The last part and the end of the sync look for these.
        let mut recent = self.recent();
        for entry in entries {
            if recent.contains_key(&entry.key) || entry.is_untold {
                recent.insert(entry.key.clone(), entry);
            }
        }
        Ok(())
    }

    /// Records that the service has asked to wait this long.
    pub(super) async fn record_hold(&self, wait: Duration) -> Result<(), Arc<io::Error>> {
        let until = Record::HeldUntil(hold_until(wait));
        let line = to_line(&until).map_err(|error| Arc::new(error.into()))?;
        self.appender.append(line).await
    }
}

impl Entry {
    /// Returns the entry of a row whose contact was not sent: it is no new one, so no opt-out is left that an earlier run
    /// has recorded. `None` if there is none.
    fn not_sent(mut self) -> Option<Self> {
        let known = &self.opt_outs;
        let is_known = |opt_out: &mut OptOut| has(known, opt_out);
        let removed = self.left.extract_if(.., is_known).count();
        (removed > 0).then_some(self)
    }
}

impl Ended {
    /// Returns the entry of a row of which an opt-out failed, without those that need not be sent again.
    fn left_of(&self, entry: &Option<Entry>, task: &SyncTask) -> Option<Entry> {
        let (mut entry, done) = (entry.clone()?, task.done.as_ref()?);
        let has_ended =
            |opt_out: &OptOut| has(&self.recorded, opt_out) || has(&self.unknown, opt_out);
        entry.left.retain(|opt_out| !has_ended(opt_out));
        let recorded = self.recorded.iter();
        // Not those of other rows that have the address.
        let own = recorded.filter(|opt_out| has(&done.opt_outs, opt_out));
        add_missing(&mut entry.opt_outs, own);
        Some(entry)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::import::record_file::unlocked;

    /// Returns a path that no other test uses.
    fn path(name: &str) -> PathBuf {
        let name = format!("audience-state-{name}-{}.sync", std::process::id());
        std::env::temp_dir().join(name)
    }

    #[test]
    fn an_entry_of_any_length_is_read_and_one_that_is_cut_off_is_an_error() {
        let path = path("entry");
        let entry = Entry {
            key: "k".repeat(2_000),
            ..Entry::default()
        };
        let line = to_line(&RowRecord::Row(&entry)).unwrap();
        let read = |bytes: &[u8]| {
            fs::write(&path, bytes).unwrap();
            read_entry(&File::open(&path).unwrap(), 0)
        };

        let whole = read(&line);
        let cut_off = read(&line[..1_000]);

        fs::remove_file(&path).unwrap();
        assert_eq!(whole.unwrap(), entry);
        assert_eq!(cut_off.unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    }

    fn entry(key: usize) -> Entry {
        Entry {
            key: key.to_string(),
            ..Entry::default()
        }
    }

    #[tokio::test]
    async fn after_half_a_line_a_sync_removes_it_and_continues() {
        let path = path("half");
        let mut state = SyncState::open(&path).unwrap();
        let writer = state.start("https://service.example").await.unwrap();
        writer.append([entry(1)].iter()).await.unwrap();
        drop((state, writer));
        let whole = unlocked(&path).await;
        fs::write(&path, [&whole, &b"{\"row\":{\"key\":\"2"[..]].concat()).unwrap();

        let mut state = SyncState::open(&path).unwrap();
        state.claim("https://service.example").await.unwrap();
        let writer = state.start("https://service.example").await.unwrap();
        writer.append([entry(3)].iter()).await.unwrap();
        drop((state, writer));

        let now = unlocked(&path).await;
        fs::remove_file(&path).unwrap();
        let added = now.strip_prefix(&whole[..]).unwrap();
        assert_eq!(added, to_line(&RowRecord::Row(&entry(3))).unwrap());
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn entries_are_read_while_others_are_appended() {
        let path = path("at-once");
        let mut state = SyncState::open(&path).unwrap();
        let writer = state.start("https://service.example").await.unwrap();
        let entries: Vec<_> = (0..1_000).map(entry).collect();
        writer.append(entries.iter()).await.unwrap();
        drop((state, writer));
        let mut state = SyncState::open(&path).unwrap();
        let reader = state.reader().unwrap();
        let writer = state.start("https://service.example").await.unwrap();

        let appending = tokio::spawn(async move {
            for key in 1_000..1_200 {
                writer.append([entry(key)].iter()).await.unwrap();
            }
        });
        for slot in state.contents.known.slots.iter().cycle() {
            let read = reader.read(Place(slot.start())).unwrap();
            assert_eq!(state.contents.known.hashes.of(&read.key), slot.key);
            if appending.is_finished() {
                break;
            }
        }

        appending.await.unwrap();
        drop(state);
        unlocked(&path).await;
        let entries = SyncState::open(&path).unwrap().contents.rows;
        fs::remove_file(&path).unwrap();
        assert_eq!(entries, 1_200);
    }

    #[cfg(unix)]
    #[tokio::test]
    async fn a_wait_that_the_service_asked_for_is_in_the_file_also_after_it_was_written_anew() {
        let path = path("hold");
        let mut state = SyncState::open(&path).unwrap();
        let writer = state.start("https://service.example").await.unwrap();

        let hour = Duration::from_secs(3_600);
        writer.record_hold(hour).await.unwrap();
        let recorded = SyncState::open(&path).unwrap();
        let header = recorded.contents.header.as_ref().unwrap();
        recorded.replace(header, |_| {}).unwrap();
        let rewritten = SyncState::open(&path).unwrap();

        fs::remove_file(&path).unwrap();
        assert_eq!(rewritten.contents.header.as_ref().unwrap().rewritten, 1);
        for state in [recorded, rewritten] {
            assert!(state.hold() > hour / 2, "{:?}", state.hold());
        }
    }

    #[cfg(unix)]
    #[test]
    fn a_wait_that_is_over_counts_no_more_and_is_not_written_anew() {
        let path = path("over");
        let header = Header {
            version: VERSION,
            service: "https://service.example".to_owned(),
            rewritten: 0,
        };
        let year_2001 = Record::HeldUntil(1_000_000_000);
        let lines = [Record::Sync(header), year_2001].map(|record| to_line(&record).unwrap());
        fs::write(&path, lines.concat()).unwrap();
        let state = SyncState::open(&path).unwrap();

        let hold = state.hold();
        let header = state.contents.header.as_ref().unwrap();
        state.replace(header, |_| {}).unwrap();
        let rewritten = SyncState::open(&path).unwrap();

        fs::remove_file(&path).unwrap();
        assert_eq!(hold, Duration::ZERO);
        assert_eq!(rewritten.contents.header.unwrap().rewritten, 1);
        assert_eq!(rewritten.contents.held_until, 0);
    }

    #[cfg(unix)]
    #[tokio::test]
    async fn a_file_that_was_only_written_anew_since_it_was_opened_has_changed() {
        let path = path("anew");
        let service = "https://service.example";
        let mut state = SyncState::open(&path).unwrap();
        drop(state.start(service).await.unwrap());
        drop(state);
        unlocked(&path).await;
        let opened = SyncState::open(&path).unwrap();
        let other = SyncState::open(&path).unwrap();

        let header = other.contents.header.as_ref().unwrap();
        other.replace(header, |_| {}).unwrap();
        let claimed = opened.claim(service).await;

        fs::remove_file(&path).unwrap();
        let error = claimed.unwrap_err().to_string();
        assert!(error.starts_with("another sync has used"), "{error}");
    }

    #[test]
    fn a_sample_has_rows_that_the_service_has_as_subscribed_and_no_others() {
        let with = |change: fn(&mut Entry)| {
            let mut entry = Entry {
                content: Some(1),
                ..Entry::default()
            };
            change(&mut entry);
            entry
        };
        let entries = [
            with(|_| {}),
            with(|entry| entry.is_opt_in = true),
            with(|entry| entry.content = None),
            with(|entry| entry.opt_outs = vec![EVERYTHING]),
            with(|entry| {
                entry.opt_outs = vec![EVERYTHING];
                entry.is_gone = true;
            }),
        ];
        let mut known = Known::default();
        for (place, entry) in (0..).zip(&entries) {
            known.slots.push(Slot::new(&known.hashes, entry, place));
        }
        let sample = |most| Vec::from_iter(known.sample(most).iter().map(|place| place.0));

        assert_eq!(sample(10), [0, 1]);
        assert_eq!(sample(1), [0]);
    }

    #[test]
    fn a_file_with_much_waste_is_written_anew_and_one_that_is_mostly_waste_is_worth_a_warning() {
        let path = path("waste");
        let mut state = SyncState::open(&path).unwrap();
        fs::remove_file(&path).unwrap();
        let slot = Slot::new(&Hashes::default(), &Entry::default(), 0);
        state.contents.known.slots = vec![slot; 1_000];

        let is_wasteful = [2_500, 2_501].map(|rows| {
            state.contents.rows = rows;
            state.is_wasteful()
        });
        let is_mostly_waste = [10_999, 11_000].map(|rows| {
            state.contents.rows = rows;
            state.is_mostly_waste()
        });

        assert_eq!(is_wasteful, [false, true]);
        assert_eq!(is_mostly_waste, [false, true]);
    }
}
