//! Starts an import, and drives it for its caller.

use std::future::poll_fn;
use std::io::Write;
use std::task::{Context, Poll, ready};

use super::batch::{Retries, Sender};
use super::error::ImportError;
use super::journal::{Header, Journal, JournalWriter, Record, Resumed};
use super::outcome::RowOutcome;
use super::progress::Progress;
use super::rejects::Rejects;
use super::report::ImportReport;
use super::row::ImportRow;
use super::run::{Run, Settings};
use super::settled::Keep;
use super::source::Source;
use crate::Error;
use crate::client::CallOptions;
use crate::contacts::{Contacts, MAX_BATCH};

/// A function that shows the progress of an import.
pub(super) type ShowProgress = Box<dyn FnMut(&Progress) + Send>;

/// An import that has not started.
pub(super) struct Job {
    pub(super) contacts: Contacts,
    pub(super) source: Source,
    pub(super) options: CallOptions,
    pub(super) journal: Option<Journal>,
    pub(super) settings: Settings,
    pub(super) on_progress: Option<ShowProgress>,
}

impl Job {
    /// Checks the journal against the rows, and starts the import.
    pub(super) async fn start(mut self, keep: Keep) -> Result<Runner, ImportError> {
        let mut settings = self.settings;
        settings.total = settings.total.or_else(|| self.source.total());
        let journal = self.journal.filter(|_| !settings.dry_run);
        let (resumed, journal) = match journal {
            None => (None, None),
            Some(journal) => {
                let (resumed, journal) =
                    start_journal(journal, &self.contacts, &mut self.source).await?;
                (Some(resumed), Some(journal))
            }
        };
        let sender = Sender {
            retries: Retries::new(&self.contacts, self.options),
            contacts: self.contacts,
            journal,
        };
        Ok(Runner {
            run: Run::new(self.source, resumed, sender, settings, keep),
            on_progress: self.on_progress,
        })
    }
}

/// Starts an import with a journal: a new one gets a header, any other must have that of this import.
async fn start_journal(
    journal: Journal,
    contacts: &Contacts,
    source: &mut Source,
) -> Result<(Resumed, JournalWriter), Error> {
    let (resumed, journal) = journal.start().await?;
    let head = read_head(source, resumed.header().map(Header::first_rows)).await;
    let header = Header::new(contacts.base_url(), &head);
    source.put_back(head);
    match resumed.header().map(|found| found.mismatch(&header)) {
        None => {
            let written = journal.append(&Record::Import(header)).await;
            written
                .map_err(|error| Error::config("could not write the journal").caused_by(error))?;
        }
        Some(None) => {}
        Some(Some(problem)) => {
            return Err(Error::input(format!(
                "the journal cannot continue this import: {problem}; choose another file for the journal"
            )));
        }
    }
    Ok((resumed, journal))
}

/// Reads as many of the first rows as are wanted. If nothing is said, that is as many as a batch has at
/// most, or those that are there without waiting for more.
async fn read_head(source: &mut Source, wanted: Option<usize>) -> Vec<ImportRow> {
    let mut head = Vec::new();
    poll_fn(|context| {
        while head.len() < wanted.unwrap_or(MAX_BATCH) {
            match source.poll_next(context) {
                Poll::Ready(Some(row)) => head.push(row),
                Poll::Ready(None) => break,
                Poll::Pending if wanted.is_none() && !head.is_empty() => break,
                Poll::Pending => return Poll::Pending,
            }
        }
        Poll::Ready(())
    })
    .await;
    head
}

/// Runs an import to its end, and writes the rejects.
pub(super) async fn run(
    job: Job,
    rejects: Option<Box<dyn Write + Send>>,
) -> Result<ImportReport, ImportError> {
    let mut rejects = rejects.map(Rejects::new);
    let keep = match rejects {
        Some(_) => Keep::Rejects,
        None => Keep::Nothing,
    };
    let mut runner = job.start(keep).await?;
    let mut has_ended = false;
    while !has_ended {
        has_ended = !poll_fn(|context| runner.poll_change(context)).await;
        while let Some((row, outcome)) = runner.next_settled() {
            if let Some(rejects) = &mut rejects {
                rejects.write(&row, &outcome);
            }
        }
    }
    let written = rejects.map_or(Ok(()), Rejects::finish);
    let report = runner.finish()?;
    match written {
        Ok(()) => Ok(report),
        Err(error) => {
            let error = Error::config("could not write the rejects").caused_by(error);
            Err(ImportError::new(report, error))
        }
    }
}

/// An import that is running.
pub(super) struct Runner {
    run: Run,
    on_progress: Option<ShowProgress>,
}

impl Runner {
    /// Goes on until something has changed. Returns whether there is more to do.
    ///
    /// Take all [settled](Self::next_settled) rows before the next call.
    pub(super) fn poll_change(&mut self, context: &mut Context<'_>) -> Poll<bool> {
        let changed = ready!(self.run.poll_change(context));
        if let Some(show) = &mut self.on_progress {
            show(&self.run.progress());
        }
        Poll::Ready(changed.is_some())
    }

    /// Returns the next row in input order, if it has an outcome.
    pub(super) fn next_settled(&mut self) -> Option<(ImportRow, RowOutcome)> {
        self.run.next_settled()
    }

    /// Returns whether a row with an outcome was not taken.
    pub(super) fn has_settled(&self) -> bool {
        self.run.has_settled()
    }

    /// Returns the report: of the whole import, or of what was done so far.
    pub(super) fn finish(self) -> Result<ImportReport, ImportError> {
        match self.run.finish() {
            (report, None) => Ok(report),
            (report, Some(error)) => Err(ImportError::new(report, error)),
        }
    }
}
