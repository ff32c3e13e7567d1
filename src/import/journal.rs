use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::record_file::{
    Appender, Kind, Lengths, believable, hold_left, hold_until, lock_in_time, sync_directory,
    to_line,
};
use super::report::RowOutcome;
use super::row::{ImportRow, OptOut, OptOutsLeft, Source, number_of};
use crate::contacts::{MAX_BATCH, NewContact, OptOutReason};
use crate::{Error, ErrorCode};

/// A file in which an import records each finished batch, so that it can resume after a crash.
///
/// The file has one JSON object on each line, and is only appended to. A record is synced to disk before its rows count
/// as finished. Rows with opt-outs, and rows with `OnConflict::Error`, are also recorded before they are sent. It
/// contains no contacts, only row numbers, a fingerprint of the rows, their outcomes, the service's messages about
/// refused rows, until when the service has asked to wait after a 429, and whether a run has left no row to the next one. A
/// message may quote an address, so only the owner can read a new file (on Unix).
///
/// Only one import at a time can use a journal. While it runs, it holds a lock on the file, which ends with the process
/// at the latest. Another import waits 5 s for the lock, and then fails.
///
/// If a journal has records, an import with it resumes after them. It needs the same rows in the same
/// order, and the key of the same audience: see [`Import::journal`](crate::import::Import::journal).
///
/// # Example: an import that can be resumed
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = audience::mock::MockServer::start().await;
/// # let contacts = server.client().contacts();
/// # let path = std::env::temp_dir().join(format!("journal-{}", std::process::id()));
/// use audience::import::Journal;
///
/// let rows = ["ada@example.com", "bob@example.com"];
/// println!("{}", contacts.import(rows).journal(Journal::open(&path)?).await?);
///
/// // The same program, started again: everything is finished, so no row is sent.
/// let journal = Journal::open(&path)?;
/// assert!(!journal.is_empty());
/// let report = contacts.import(rows).journal(journal).await?;
/// assert_eq!(report.created(), 2);
/// # assert_eq!(server.requests().len(), 1);
/// # std::fs::remove_file(path).unwrap();
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    file: File,
    contents: Contents,
}

/// The records of the file.
#[derive(Debug)]
struct Contents {
    resumed: Resumed,
    lengths: Lengths,
}

const JOURNAL: Kind = Kind {
    name: "journal",
    user: "import",
    advice: "choose another file for the journal, or move this one away, which sends all rows again",
    header: "{\"import\":{\"version\":",
    records: &[
        "{\"started\":",
        "{\"not_applied\":",
        "{\"finished\":",
        "{\"opt_outs_left\":",
        "{\"batch\":",
        "{\"held_until\":",
        "{\"ended\":",
    ],
};

impl Journal {
    /// Opens a journal, or creates it if the file does not exist.
    ///
    /// A crash can leave a partly written line at the end of the file. This call ignores it, and the next import with
    /// the journal removes it.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Config`](crate::ErrorKind::Config) if the file cannot be opened or read, or if it is not
    /// a journal. Such a file is not changed.
    ///
    /// # Example: a file for each list
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = audience::mock::MockServer::start().await;
    /// # let contacts = server.client().contacts();
    /// # let path = std::env::temp_dir().join(format!("audience-list-{}.journal", std::process::id()));
    /// use audience::import::Journal;
    ///
    /// let journal = Journal::open(&path)?;
    /// let report = contacts.import(["ada@example.com"]).journal(journal).await?;
    ///
    /// assert_eq!(report.created(), 1);
    /// // The file belongs to these rows now. Another list needs another file.
    /// assert!(contacts.import(["bob@example.com"]).journal(Journal::open(&path)?).await.is_err());
    /// # std::fs::remove_file(path)?;
    /// # Ok(()) }
    /// ```
    pub fn open(path: impl AsRef<Path>) -> Result<Self, Error> {
        let (path, mut file) = JOURNAL.open(path.as_ref())?;
        let contents = read(&mut file).map_err(|error| error.about(&path.display().to_string()))?;
        Ok(Self {
            path,
            file,
            contents,
        })
    }

    /// Returns whether the journal has no records, so that an import with it starts with the first row.
    ///
    /// # Example: say whether an import begins or continues
    ///
    /// ```
    /// # let path = std::env::temp_dir().join(format!("audience-empty-{}.journal", std::process::id()));
    /// use audience::import::Journal;
    ///
    /// let journal = Journal::open(&path)?;
    /// println!("{}", if journal.is_empty() { "importing" } else { "continuing" });
    /// # assert!(journal.is_empty());
    /// # std::fs::remove_file(path).unwrap();
    /// # Ok::<(), audience::Error>(())
    /// ```
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.contents.resumed.is_empty()
    }

    /// Returns the path of the file, in its canonical form.
    ///
    /// # Example: remove the file after the import
    ///
    /// ```
    /// # let path = std::env::temp_dir().join(format!("audience-path-{}.journal", std::process::id()));
    /// use audience::import::Journal;
    ///
    /// let file = Journal::open(&path)?.path().to_owned();
    /// // Import, and look at the report. Then:
    /// std::fs::remove_file(file)?;
    /// # assert!(!path.exists());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns how many rows the last run into this service has read, if it has left none of them to the next run.
    pub(super) fn rows_at_end(&self, service: &str) -> Option<u64> {
        let resumed = &self.contents.resumed;
        let header = resumed.header.as_ref();
        let is_same = header.is_some_and(|header| header.service == service);
        resumed.rows_at_end.filter(|_| is_same)
    }

    /// Returns the outcome of a finished row. `None` if something of the row is left, or if it was never sent.
    pub(super) fn outcome(&self, number: u64) -> Option<RowOutcome> {
        self.contents.resumed.outcome(number)
    }

    /// Starts an import into this service: a new journal gets a header, any other must have the header of this import.
    pub(super) async fn start(
        self,
        service: String,
        source: &mut Source,
    ) -> Result<(Resumed, JournalWriter), Error> {
        let (resumed, journal) = self.claim().await?;
        let first_rows = resumed.header.as_ref().map(|header| header.first_rows);
        // As many rows as the header covers. For a new journal that number is not known yet, and a slow stream is not
        // waited for.
        let head = source.read_head(first_rows).await;
        // When the input is mended, other rows are in place of the one that was cut off.
        let is_whole = |row: &&ImportRow| !row.is_cut_off();
        let whole = head.iter().take_while(is_whole).count();
        let header = Header::new(service, &head[..whole]);
        // The same rows are imported afterwards.
        source.put_back(head);
        match resumed.header.as_ref().map(|found| found.mismatch(&header)) {
            None => {
                let written = journal.append(&Record::Import(header)).await;
                written.map_err(|error| JOURNAL.unwritable(error))?;
            }
            Some(None) => {}
            Some(Some(problem)) => {
                return Err(Error::input(format!(
                    "the journal cannot continue this import: {problem}; begin with a new journal, which sends all rows again"
                )));
            }
        }
        Ok((resumed, journal))
    }

    /// Waits until no other import uses the journal, locks it, and removes what was only partly written.
    async fn claim(mut self) -> Result<(Resumed, JournalWriter), Error> {
        if !lock_in_time(&self.file).await {
            return Err(JOURNAL.in_use());
        }
        let failed = |error| JOURNAL.unwritable(error);
        let length = self.file.metadata().map_err(failed)?.len();
        // Another import may have written to the file between `open` and here.
        if length != self.contents.lengths.length {
            self.contents = read(&mut self.file)?;
        }
        let Contents { resumed, lengths } = self.contents;
        let Lengths { records, length } = lengths;
        // A record after half a line would make both unreadable.
        if records < length {
            self.file.set_len(records).map_err(failed)?;
        }
        if records == 0 {
            sync_directory(&self.path);
        }
        let writer = Appender::start(self.file, records).map_err(failed)?;
        Ok((resumed, JournalWriter(writer)))
    }
}

fn read(file: &mut File) -> Result<Contents, Error> {
    let rewound = file.seek(SeekFrom::Start(0));
    rewound.map_err(|error| JOURNAL.unreadable(error))?;
    read_records(BufReader::new(file))
}

fn read_records(reader: impl BufRead) -> Result<Contents, Error> {
    let mut resumed = Resumed::default();
    let lengths = JOURNAL.read(reader, |record, _| resumed.add(record))?;
    Ok(Contents { resumed, lengths })
}

/// Appends the records of a journal.
#[derive(Clone, Debug)]
pub(super) struct JournalWriter(Appender);

/// What is known of the rows of a batch at its end. The other rows are sent again.
#[derive(Debug, Default)]
pub(super) struct BatchEnd<'a> {
    /// Rows that were certainly not applied.
    pub(super) not_applied: Vec<u64>,
    /// Rows whose contacts were sent and whose opt-outs are not recorded.
    pub(super) opt_outs_left: Vec<(u64, &'a ImportRow, OptOutsLeft)>,
    /// Rows with their outcomes.
    pub(super) finished: Vec<(u64, &'a ImportRow, &'a RowOutcome)>,
}

impl JournalWriter {
    /// Records that rows are about to be sent.
    pub(super) async fn record_started(&self, rows: Vec<u64>) -> Result<(), Arc<io::Error>> {
        match rows.is_empty() {
            true => Ok(()),
            false => {
                self.append(&Record::Started(rows.into_iter().collect()))
                    .await
            }
        }
    }

    /// Records the end of a batch in one line: after a crash, all of it is known or nothing.
    ///
    /// If some of its rows were known and others were sent again, an older row could replace a newer one of its address.
    pub(super) async fn record_end(&self, end: BatchEnd<'_>) -> Result<(), Arc<io::Error>> {
        let mut records = Vec::new();
        if !end.not_applied.is_empty() {
            let not_applied = end.not_applied.into_iter().collect();
            records.push(Record::NotApplied(not_applied));
        }
        if !end.opt_outs_left.is_empty() {
            let left = end.opt_outs_left.into_iter();
            let left = left.map(|(number, row, left)| Unfinished {
                row: number,
                fingerprint: fingerprint(number, row),
                left,
            });
            records.push(Record::OptOutsLeft(left.collect()));
        }
        if !end.finished.is_empty() {
            records.push(Record::Finished(Finished::new(end.finished)));
        }
        if records.is_empty() {
            return Ok(());
        }
        match <[Record; 1]>::try_from(records) {
            Ok([record]) => self.append(&record).await,
            Err(several) => self.append(&Record::Batch(several)).await,
        }
    }

    /// Records that the service has asked to wait this long, so that a resumed import waits too.
    pub(super) async fn record_hold(&self, wait: Duration) -> Result<(), Arc<io::Error>> {
        self.append(&Record::HeldUntil(hold_until(wait))).await
    }

    /// Records that a run has begun, if an earlier one has left no row to it. Call it before the rejects are emptied: until
    /// this run has ended, they lack rows.
    pub(super) async fn record_begun(&self, resumed: &Resumed) -> Result<(), Error> {
        if resumed.rows_at_end.is_none() {
            return Ok(());
        }
        let written = self.append(&Record::Ended(None)).await;
        written.map_err(|error| JOURNAL.unwritable(error))
    }

    /// Records that a run has read this many rows, and has left none of them to the next run. Call it when the rejects are
    /// written.
    pub(super) async fn record_ended(&self, rows: u64) -> Result<(), Arc<io::Error>> {
        self.append(&Record::Ended(Some(rows))).await
    }

    /// Appends a record. When this returns, the record is on disk.
    async fn append(&self, record: &Record) -> Result<(), Arc<io::Error>> {
        let line = to_line(record).map_err(|error| Arc::new(error.into()))?;
        self.0.append(line).await
    }
}

const VERSION: u32 = 1;

/// One line of a journal.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Record {
    /// The first line: which import the journal belongs to.
    Import(Header),
    /// Rows are about to be sent that must not be sent twice, or that have opt-outs.
    Started(RowNumbers),
    /// Started rows were certainly not applied, so they may be sent again.
    NotApplied(RowNumbers),
    /// A batch is finished.
    Finished(Finished),
    /// The contacts of these rows were sent, and their opt-outs are not recorded.
    OptOutsLeft(Vec<Unfinished>),
    /// Several of these, which hold together or not at all.
    Batch(Vec<Record>),
    /// The service has asked to wait until this time, in Unix seconds.
    HeldUntil(u64),
    /// A run has read this many rows, and has left none of them to the next run. `None`: another run has begun since.
    Ended(Option<u64>),
}

/// A row whose contact was sent and whose opt-outs are not recorded.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Unfinished {
    row: u64,
    fingerprint: Fingerprint,
    #[serde(flatten)]
    left: OptOutsLeft,
}

/// Which import a journal belongs to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Header {
    version: u32,
    /// The base URL of the service.
    service: String,
    /// How many of the first rows the fingerprint covers.
    first_rows: usize,
    fingerprint: Fingerprint,
}

impl Header {
    /// Creates the header for an import into this service that begins with these rows.
    fn new(service: String, first_rows: &[ImportRow]) -> Self {
        Self {
            version: VERSION,
            service,
            first_rows: first_rows.len(),
            fingerprint: fingerprint_of((0..).zip(first_rows)),
        }
    }

    /// Returns why a journal with this header cannot continue the import with the other; `None` if it can.
    fn mismatch(&self, import: &Self) -> Option<&'static str> {
        if self.version != import.version {
            Some("it was written by another version of this crate")
        } else if self.service != import.service {
            Some("it belongs to an import into another service")
        } else if (self.first_rows, self.fingerprint) != (import.first_rows, import.fingerprint) {
            Some("it belongs to other rows or to another mapping of the columns")
        } else {
            None
        }
    }
}

/// The numbers of rows: ranges from a first to a last one, both included.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
struct RowNumbers(Vec<(u64, u64)>);

impl RowNumbers {
    fn ranges(&self) -> &[(u64, u64)] {
        &self.0
    }

    /// Returns how many rows there are; `None` if a range is invalid or they are not in order.
    fn count(&self) -> Option<u64> {
        // A range that overlaps another would give one row two outcomes.
        let is_ordered = self.0.windows(2).all(|pair| pair[0].1 < pair[1].0);
        let count = self.0.iter().try_fold(0_u64, |sum, (first, last)| {
            let length = last.checked_sub(*first)?.checked_add(1)?;
            sum.checked_add(length)
        });
        count.filter(|_| is_ordered)
    }
}

impl FromIterator<u64> for RowNumbers {
    fn from_iter<I: IntoIterator<Item = u64>>(numbers: I) -> Self {
        let mut ranges: Vec<(u64, u64)> = Vec::new();
        for number in numbers {
            match ranges.last_mut() {
                Some((_, last)) if last.checked_add(1) == Some(number) => *last = number,
                _ => ranges.push((number, number)),
            }
        }
        Self(ranges)
    }
}

/// The outcomes of the rows of a batch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Finished {
    rows: RowNumbers,
    fingerprint: Fingerprint,
    /// One letter for each row, in the order of the rows.
    outcomes: String,
    /// More than the letter alone says, by the place of the row in the batch.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    details: BTreeMap<usize, Detail>,
}

/// Why a row was not applied in full.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Detail {
    code: ErrorCode,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    message: Option<String>,
    #[serde(default)]
    retryable: bool,
}

impl Detail {
    fn new(code: &ErrorCode, message: &Option<String>, retryable: bool) -> Self {
        let (code, message) = (code.clone(), message.clone());
        Self {
            code,
            message,
            retryable,
        }
    }
}

impl Finished {
    fn new<'a>(rows: impl IntoIterator<Item = (u64, &'a ImportRow, &'a RowOutcome)>) -> Self {
        let mut outcomes = String::new();
        let mut details = BTreeMap::new();
        let mut numbers = Vec::new();
        let mut fingerprint: Fingerprint = 0;
        for (index, (number, row, outcome)) in rows.into_iter().enumerate() {
            numbers.push(number);
            // A sum, because a resumed import reads the rows of a batch one by one and mixed with others.
            fingerprint = fingerprint.wrapping_add(fingerprint_of([(number, row)]));
            let (letter, detail) = write(outcome);
            outcomes.push(letter);
            if let Some(detail) = detail {
                details.insert(index, detail);
            }
        }
        Self {
            rows: numbers.into_iter().collect(),
            fingerprint,
            outcomes,
            details,
        }
    }

    /// Returns the outcome of the row at this place; `None` if the record is not valid.
    fn outcome(&self, index: usize) -> Option<RowOutcome> {
        let letter = *self.outcomes.as_bytes().get(index)?;
        let detail = self.details.get(&index).cloned();
        Some(match letter {
            b'c' => RowOutcome::Created,
            b'u' => RowOutcome::Updated,
            b's' => RowOutcome::Skipped,
            b'x' => RowOutcome::Unknown,
            b'r' => {
                let detail = detail?;
                RowOutcome::Refused {
                    code: detail.code,
                    message: detail.message,
                    retryable: detail.retryable,
                }
            }
            b'o' => {
                let detail = detail?;
                RowOutcome::OptOutFailed {
                    code: detail.code,
                    message: detail.message,
                    retryable: detail.retryable,
                }
            }
            _ => return None,
        })
    }
}

fn write(outcome: &RowOutcome) -> (char, Option<Detail>) {
    match outcome {
        RowOutcome::Created => ('c', None),
        RowOutcome::Updated => ('u', None),
        RowOutcome::Skipped => ('s', None),
        // A sync has no journal, and thus `OptedOut` is never written.
        RowOutcome::Unknown
        | RowOutcome::NotSent
        | RowOutcome::Valid
        | RowOutcome::OptOutMissing { .. }
        | RowOutcome::OptedOut => ('x', None),
        RowOutcome::Refused {
            code,
            message,
            retryable,
        } => ('r', Some(Detail::new(code, message, *retryable))),
        RowOutcome::OptOutFailed {
            code,
            message,
            retryable,
        } => ('o', Some(Detail::new(code, message, *retryable))),
    }
}

/// The fingerprint of one row or of several. It tells whether a journal belongs to the rows of an import.
type Fingerprint = u64;

#[derive(Serialize)]
struct Content<'a> {
    contact: Option<&'a NewContact>,
    unreadable: Option<&'a str>,
    everything: Vec<OptOutReason>,
    topics: Vec<&'a str>,
}

/// Returns the fingerprint of rows with their places in the input: the sum of the fingerprints of each, so
/// that it can be added up in any order.
pub(super) fn fingerprint_of<'a>(
    rows: impl IntoIterator<Item = (u64, &'a ImportRow)>,
) -> Fingerprint {
    rows.into_iter().fold(0, |sum, (number, row)| {
        Fingerprint::wrapping_add(sum, fingerprint(number, row))
    })
}

fn fingerprint(number: u64, row: &ImportRow) -> Fingerprint {
    let mut content = Content {
        contact: row.contact(),
        unreadable: row.unreadable_reason(),
        everything: Vec::new(),
        topics: Vec::new(),
    };
    for opt_out in row.opt_outs() {
        match opt_out {
            OptOut::Everything(reason) => content.everything.push(*reason),
            OptOut::Topic(name) => content.topics.push(name),
        }
    }
    let mut hash = Sha256::new();
    // The place is part of it: the same rows in another order are another import.
    hash.update(number.to_le_bytes());
    // A number that JSON cannot represent is refused before this, and then the row is not sent.
    hash.update(serde_json::to_vec(&content).unwrap_or_default());
    let digest = hash.finalize();
    let mut first = [0; 8];
    // Eight bytes are enough against mistakes. A forger could write the journal as well.
    first.copy_from_slice(&digest[..8]);
    u64::from_le_bytes(first)
}

/// The outcomes that a journal has recorded.
#[derive(Clone, Debug, Default)]
pub(super) struct Resumed {
    header: Option<Header>,
    /// By the number of the first row.
    spans: BTreeMap<u64, Span>,
    batches: Vec<Batch>,
    /// Rows that were about to be sent and are not finished, if they must not be sent twice or have opt-outs.
    started: BTreeSet<u64>,
    opt_outs_left: BTreeMap<u64, Unfinished>,
    /// Until when the service has asked to wait, in Unix seconds; 0 if it has not.
    held_until: u64,
    /// How many rows the last run has read, if it has left none of them to the next run.
    rows_at_end: Option<u64>,
}

/// Rows that follow each other in the input and in a batch.
#[derive(Clone, Copy, Debug)]
struct Span {
    last: u64,
    batch: usize,
    /// The place of the first row in its batch.
    offset: usize,
}

#[derive(Clone, Debug)]
struct Batch {
    finished: Finished,
    /// The sum of the fingerprints of the rows read so far.
    read: Fingerprint,
    rows_left: usize,
}

/// The outcome that a journal has recorded for a row.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum ResumedRow {
    /// The row is to be sent.
    ToSend,
    /// The row may have been sent, and its outcome is unknown.
    Started,
    /// Only the opt-outs of the row are to be sent.
    OptOutsLeft(OptOutsLeft),
    /// The row is finished.
    Finished(RowOutcome),
    /// The journal belongs to another input: it recorded other rows for this batch.
    Mismatch,
}

impl Resumed {
    /// Adds the next record.
    ///
    /// # Errors
    ///
    /// The mistake, if the record does not fit the records before it.
    fn add(&mut self, record: Record) -> Result<(), &'static str> {
        match record {
            Record::Import(_) if self.header.is_some() => Err("it has two headers"),
            // A damaged header must not make the import read the whole input into memory.
            Record::Import(header) if header.first_rows > MAX_BATCH => Err("the header is invalid"),
            Record::Import(header) => {
                self.header = Some(header);
                Ok(())
            }
            _ if self.header.is_none() => Err("it has no header"),
            Record::Started(rows) => {
                self.started.extend(numbers(&rows)?);
                Ok(())
            }
            Record::NotApplied(rows) => {
                for number in numbers(&rows)? {
                    self.started.remove(&number);
                }
                Ok(())
            }
            Record::Finished(finished) => self.add_finished(finished),
            Record::OptOutsLeft(rows) => rows.into_iter().try_for_each(|row| {
                if self.place(row.row).is_some() {
                    return Err("it contains a row twice");
                }
                self.started.remove(&row.row);
                // The newest record counts: they may have failed in several runs.
                self.opt_outs_left.insert(row.row, row);
                Ok(())
            }),
            Record::Batch(records) => records.into_iter().try_for_each(|record| self.add(record)),
            Record::HeldUntil(until) => {
                self.held_until = self.held_until.max(believable(until));
                Ok(())
            }
            Record::Ended(rows) => {
                self.rows_at_end = rows;
                Ok(())
            }
        }
    }

    /// Returns how long the service still wants no request, by the journal.
    pub(super) fn hold(&self) -> Duration {
        hold_left(self.held_until)
    }

    fn add_finished(&mut self, finished: Finished) -> Result<(), &'static str> {
        let mut count = 0;
        for number in numbers(&finished.rows)? {
            if self.place(number).is_some() {
                return Err("it contains a row twice");
            }
            if finished.outcome(count).is_none() {
                return Err("the outcomes of a batch are invalid");
            }
            self.started.remove(&number);
            self.opt_outs_left.remove(&number);
            count += 1;
        }
        if finished.outcomes.len() != count {
            return Err("the outcomes of a batch are invalid");
        }
        let batch = self.batches.len();
        let mut offset = 0;
        for (first, last) in finished.rows.ranges() {
            let last = *last;
            let span = Span {
                last,
                batch,
                offset,
            };
            self.spans.insert(*first, span);
            offset += usize::try_from(last - first).map_or(0, |length| length + 1);
        }
        self.batches.push(Batch {
            finished,
            read: 0,
            rows_left: count,
        });
        Ok(())
    }

    /// Returns the batch of a finished row, and the place of the row in it.
    fn place(&self, number: u64) -> Option<(usize, usize)> {
        let (first, span) = self.spans.range(..=number).next_back()?;
        if number > span.last {
            return None;
        }
        let index = span.offset + usize::try_from(number - first).ok()?;
        Some((span.batch, index))
    }

    /// Returns whether nothing is recorded.
    fn is_empty(&self) -> bool {
        self.header.is_none()
    }

    /// Returns the addresses of contacts that the service has by the records, at most this many. They are spread over
    /// the first rows, because the very first ones may be those of a test that were deleted later.
    pub(super) async fn sample(&self, source: &mut Source, most: usize) -> Vec<String> {
        let Some(header) = &self.header else {
            return Vec::new();
        };
        let head = source.read_head(Some(header.first_rows)).await;
        let mut seen = HashSet::new();
        let mut addresses = Vec::new();
        for (number, row) in (0..).zip(&head) {
            if self.has_contact(number) && seen.insert(number_of(row.address())) {
                addresses.push(row.address().to_owned());
            }
        }
        source.put_back(head);
        let step = (addresses.len() / most).max(1);
        addresses.into_iter().step_by(step).take(most).collect()
    }

    /// Returns whether the contact of a row was created or updated, or existed. This does not count the row as read.
    fn has_contact(&self, number: u64) -> bool {
        let outcome = match self.opt_outs_left.get(&number) {
            Some(unfinished) => Some(unfinished.left.contact.clone()),
            None => self.outcome(number),
        };
        outcome.is_some_and(|outcome| outcome.is_applied())
    }

    /// Returns the outcome of a finished row. This does not count the row as read.
    fn outcome(&self, number: u64) -> Option<RowOutcome> {
        let (batch, index) = self.place(number)?;
        self.batches[batch].finished.outcome(index)
    }

    /// Returns what is known about the next row of the input. Rows must be asked for in order, once each.
    pub(super) fn row(
        &mut self,
        number: u64,
        fingerprint: impl FnOnce() -> Fingerprint,
    ) -> ResumedRow {
        if let Some(unfinished) = self.opt_outs_left.remove(&number) {
            return match unfinished.fingerprint == fingerprint() {
                true => ResumedRow::OptOutsLeft(unfinished.left),
                false => ResumedRow::Mismatch,
            };
        }
        let Some((batch, index)) = self.place(number) else {
            return match self.started.contains(&number) {
                true => ResumedRow::Started,
                false => ResumedRow::ToSend,
            };
        };
        let batch = &mut self.batches[batch];
        batch.read = batch.read.wrapping_add(fingerprint());
        batch.rows_left = batch.rows_left.saturating_sub(1);
        // Only a complete batch can be compared, so its last row reports the mismatch.
        if batch.rows_left == 0 && batch.read != batch.finished.fingerprint {
            return ResumedRow::Mismatch;
        }
        match batch.finished.outcome(index) {
            Some(outcome) => ResumedRow::Finished(outcome),
            None => ResumedRow::Mismatch,
        }
    }

    /// Returns whether a finished row was not read: the input is shorter than the one the journal belongs to.
    pub(super) fn has_unread_rows(&self) -> bool {
        !self.opt_outs_left.is_empty() || self.batches.iter().any(|batch| batch.rows_left > 0)
    }
}

fn numbers(rows: &RowNumbers) -> Result<impl Iterator<Item = u64>, &'static str> {
    match rows.count() {
        None => Err("a range of rows is invalid"),
        // A damaged range would otherwise be expanded into billions of numbers.
        Some(count) if count > MAX_BATCH as u64 => Err("a batch has too many rows"),
        Some(_) => Ok(rows
            .ranges()
            .iter()
            .flat_map(|(first, last)| *first..=*last)),
    }
}

/// The content of a journal without its file, for the fuzz targets.
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
#[derive(Debug)]
pub struct JournalText(Contents);

#[cfg(any(test, fuzzing))]
impl JournalText {
    /// Reads a text as the content of a file.
    ///
    /// # Errors
    ///
    /// The same as for a file with this text.
    pub fn read(text: &[u8]) -> Result<Self, Error> {
        read_records(text).map(Self)
    }

    /// Returns the length of the complete records in bytes.
    #[must_use]
    pub fn records_length(&self) -> u64 {
        self.0.lengths.records
    }

    /// Returns what the records say, to compare it.
    #[must_use]
    pub fn records(&self) -> String {
        format!("{:?}", self.0.resumed)
    }

    /// Returns what the records say about the next row, which has this fingerprint.
    pub fn row(&mut self, number: u64, fingerprint: u64) -> String {
        format!("{:?}", self.0.resumed.row(number, || fingerprint))
    }

    /// Returns the line that the writer writes for the record in this line; `None` if it is no record.
    #[must_use]
    pub fn rewritten(line: &[u8]) -> Option<Vec<u8>> {
        to_line(&serde_json::from_slice::<Record>(line).ok()?).ok()
    }
}

#[cfg(test)]
mod tests {
    use crate::import::ImportRow;
    use crate::import::record_file::unlocked;

    use super::*;

    fn row() -> ImportRow {
        ImportRow::from("a@x.io")
    }

    fn fingerprint(number: u64) -> u64 {
        fingerprint_of([(number, &row())])
    }

    fn resumed(records: impl IntoIterator<Item = Record>) -> Result<Resumed, &'static str> {
        let mut resumed = Resumed::default();
        resumed.add(Record::Import(Header::new("s".to_owned(), &[])))?;
        for record in records {
            resumed.add(record)?;
        }
        Ok(resumed)
    }

    fn finished(rows: &[u64]) -> Record {
        let row = row();
        let outcomes = rows
            .iter()
            .map(|number| (*number, &row, &RowOutcome::Created));
        Record::Finished(Finished::new(outcomes))
    }

    #[tokio::test]
    async fn after_half_a_line_an_import_removes_it_and_continues() {
        let name = format!("audience-journal-half-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let start = || {
            let mut source = Source::from_iter([row()]);
            let journal = Journal::open(&path).unwrap();
            async move { journal.start("s".to_owned(), &mut source).await.unwrap() }
        };
        drop(start().await);
        let whole = unlocked(&path).await;
        std::fs::write(&path, [&whole, &b"{\"started\":[[0"[..]].concat()).unwrap();

        let (_, journal) = start().await;
        journal.record_started(vec![7]).await.unwrap();
        drop(journal);

        let now = unlocked(&path).await;
        std::fs::remove_file(&path).unwrap();
        assert_eq!(
            now.strip_prefix(&whole[..]).unwrap(),
            b"{\"started\":[[7,7]]}\n"
        );
    }

    #[test]
    fn finished_rows_are_not_sent_again_and_all_others_are() {
        let mut resumed = resumed([finished(&[0, 1, 4]), finished(&[2])]).unwrap();

        let rows: Vec<_> = (0..6)
            .map(|number| resumed.row(number, || fingerprint(number)))
            .collect();

        let done = ResumedRow::Finished(RowOutcome::Created);
        let to_send = ResumedRow::ToSend;
        assert_eq!(
            rows,
            [&done, &done, &done, &to_send, &done, &to_send].map(Clone::clone)
        );
        assert!(!resumed.has_unread_rows());
    }

    #[tokio::test]
    async fn a_sample_has_the_contacts_of_every_batch_among_the_first_rows() {
        let addresses = ["a@x.io", "b@x.io", "c@x.io"];
        let rows = addresses.map(ImportRow::from);
        let mut resumed = Resumed::default();
        let header = Record::Import(Header::new("s".to_owned(), &rows));
        for record in [header, finished(&[0]), finished(&[1, 2])] {
            resumed.add(record).unwrap();
        }

        let sample = resumed.sample(&mut Source::from_iter(rows), 10).await;

        assert_eq!(sample, addresses);
    }

    #[test]
    fn rows_of_another_input_are_a_mismatch_at_the_end_of_their_batch() {
        let mut resumed = resumed([finished(&[0, 1])]).unwrap();

        assert!(matches!(resumed.row(0, || 77), ResumedRow::Finished(_)));
        assert_eq!(resumed.row(1, || 1), ResumedRow::Mismatch);
    }

    #[test]
    fn rows_that_were_started_but_not_finished_may_have_been_sent() {
        let started = Record::Started([3, 4].into_iter().collect::<RowNumbers>());
        let mut resumed = resumed([started, finished(&[3])]).unwrap();

        let mut row = |number| resumed.row(number, || fingerprint(number));
        assert_eq!(row(3), ResumedRow::Finished(RowOutcome::Created));
        assert_eq!(row(4), ResumedRow::Started);
        assert_eq!(row(5), ResumedRow::ToSend);
    }

    #[test]
    fn started_rows_that_were_not_applied_are_sent_until_they_are_started_again() {
        let rows = || [3, 4].into_iter().collect::<RowNumbers>();
        let not_applied = [Record::Started(rows()), Record::NotApplied(rows())];
        let mut first = resumed(not_applied.clone()).unwrap();
        let again = not_applied.into_iter().chain([Record::Started(rows())]);
        let mut second = resumed(again).unwrap();

        assert_eq!(first.row(3, || 3), ResumedRow::ToSend);
        assert_eq!(second.row(3, || 3), ResumedRow::Started);
    }

    #[test]
    fn a_run_that_begins_after_the_end_of_another_one_has_not_ended() {
        let records = [Record::Ended(Some(2)), Record::Ended(None)];
        let text = records.map(|record| serde_json::to_string(&record).unwrap());
        let read = |count| {
            let records = text.iter().take(count);
            let records = records.map(|text| serde_json::from_str(text).unwrap());
            resumed(records).unwrap().rows_at_end
        };

        assert_eq!([read(0), read(1), read(2)], [None, Some(2), None]);
    }

    #[test]
    fn every_outcome_is_read_as_it_was_written() {
        let (code, message) = (ErrorCode::ValidationError, Some("no".to_owned()));
        let refused = RowOutcome::Refused {
            code: code.clone(),
            message: message.clone(),
            retryable: true,
        };
        let outcomes = [
            RowOutcome::Created,
            RowOutcome::Updated,
            RowOutcome::Skipped,
            RowOutcome::Unknown,
            refused,
            RowOutcome::OptOutFailed {
                code,
                message,
                retryable: false,
            },
        ];
        let row = row();

        let finished = Finished::new(outcomes.iter().map(|outcome| (0, &row, outcome)));

        let read = (0..outcomes.len()).map(|index| finished.outcome(index).unwrap());
        assert_eq!(read.collect::<Vec<_>>(), outcomes);
        assert_eq!(finished.outcome(outcomes.len()), None);
    }

    fn opt_outs_left(number: u64) -> Record {
        Record::OptOutsLeft(vec![Unfinished {
            row: number,
            fingerprint: fingerprint(number),
            left: OptOutsLeft {
                contact: RowOutcome::Created,
                now: RowOutcome::Unknown,
            },
        }])
    }

    #[test]
    fn the_opt_outs_that_are_left_of_a_row_are_sent_until_it_is_finished() {
        let started = Record::Started([3].into_iter().collect::<RowNumbers>());
        let left = [started, opt_outs_left(3), opt_outs_left(3)];
        let text: Vec<_> = left
            .iter()
            .map(|record| serde_json::to_string(record).unwrap())
            .collect();
        let read = text.iter().map(|text| serde_json::from_str(text).unwrap());
        let mut first = resumed(read).unwrap();
        let mut other_rows = resumed(left.clone()).unwrap();
        let mut second = resumed(left.into_iter().chain([finished(&[3])])).unwrap();

        assert!(first.has_unread_rows());
        let row = first.row(3, || fingerprint(3));
        assert!(
            matches!(row, ResumedRow::OptOutsLeft(left) if left.contact == RowOutcome::Created)
        );
        assert!(!first.has_unread_rows());
        assert_eq!(other_rows.row(3, || 7), ResumedRow::Mismatch);
        let done = ResumedRow::Finished(RowOutcome::Created);
        assert_eq!(second.row(3, || fingerprint(3)), done);
    }

    #[test]
    fn ranges_that_no_batch_can_have_make_the_journal_invalid() {
        for range in [
            "[0,18446744073709551615]",
            "[5,4]",
            "[0,100]",
            "[0,1],[1,2]",
        ] {
            for kind in ["started", "not_applied"] {
                let line = format!("{{\"{kind}\":[{range}]}}");
                let record: Record = serde_json::from_str(&line).unwrap();

                assert!(resumed([record]).is_err(), "{line}");
            }
            let finished =
                format!(r#"{{"finished":{{"rows":[{range}],"fingerprint":1,"outcomes":"c"}}}}"#);
            let record: Record = serde_json::from_str(&finished).unwrap();

            assert!(resumed([record]).is_err(), "{finished}");
        }
    }

    #[test]
    fn a_row_that_is_recorded_twice_makes_the_journal_invalid() {
        for records in [[&[0, 1][..], &[1]], [&[5], &[4, 5, 6]], [&[3, 4, 5], &[4]]] {
            assert!(resumed(records.map(finished)).is_err(), "{records:?}");
        }
        assert!(resumed([finished(&[3]), opt_outs_left(3)]).is_err());
    }
}
