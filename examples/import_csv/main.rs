//! Imports contacts from a CSV file of any size: `cargo run --example import_csv [-- FILE]`.
//!
//! It prints the meaning of each column, then a progress bar, then a summary. The exit status is 0 if every row was
//! applied, 2 if some were rejected, and 1 if the import could not finish. In that case, continue it with `--resume`.
//!
//! Set `AUDIENCE_URL` and `AUDIENCE_KEY` to use a service. Without them, the example uses the embedded mock.
#![expect(clippy::print_stderr, reason = "a program prints its errors")]

use std::env;
use std::error::Error as StdError;
use std::ffi::OsString;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use audience::contacts::{Contacts, OnConflict};
use audience::import::{Column, CsvInput, Import, ImportReport, Journal};
use audience::mock::MockServer;
use audience::{Client, Error};
use clap::Parser;
use indicatif::ProgressBar;

use arguments::{Arguments, Choice};
use generated::Generated;
use terminal::{explain_all, interrupt, printable, progress_bar, say, show};

mod arguments;
mod generated;
mod terminal;

const SAMPLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures/contacts.csv");

#[tokio::main]
async fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => {
            // 2 means that some rows were refused.
            error.print().ok();
            return ExitCode::from(u8::from(error.use_stderr()));
        }
    };
    run(&arguments).await.unwrap_or_else(|error| {
        explain_all(&*error);
        ExitCode::FAILURE
    })
}

async fn run(arguments: &Arguments) -> Result<ExitCode, Box<dyn StdError>> {
    let input = open(arguments)?;
    say(format_args!(
        "{} (delimiter {:?})",
        source_name(arguments),
        input.delimiter_char()
    ));
    let mut topics = Vec::new();
    for (name, column) in input.columns() {
        if let Column::Topic(topic) = column {
            topics.push(topic.clone());
        }
        let (name, column) = (printable(name), printable(&column.to_string()));
        say(format_args!("  {name:<24} {column}"));
    }
    let rows = input.rows()?;
    let total = count(arguments)?;
    let journal = open_journal(arguments)?;
    let has_journal = journal.is_some();

    let (contacts, _server) = connect(topics).await?;
    let bar = progress_bar(total);
    let result = set_up(arguments, contacts.import(rows), journal, &bar)?.await;
    bar.finish_and_clear();
    Ok(match result {
        Ok(report) => summarize(arguments, &report, has_journal),
        Err(error) => {
            explain_all(&error);
            summarize(arguments, error.report(), has_journal);
            ExitCode::FAILURE
        }
    })
}

/// Sets what the flags say, and what to show and to stop at.
fn set_up(
    arguments: &Arguments,
    import: Import,
    journal: Option<Journal>,
    bar: &ProgressBar,
) -> Result<Import, Box<dyn StdError>> {
    let mut import = import
        .concurrency(arguments.concurrency)
        .stop_when(interrupt(journal.is_some()))
        .on_progress({
            let bar = bar.clone();
            move |progress| show(&bar, progress)
        });
    if arguments.dry_run {
        import = import.dry_run();
    }
    if let Some(total) = bar.length() {
        import = import.total(total);
    }
    if let Some(path) = &arguments.rejects {
        let journal = journal.as_ref().map(Journal::path);
        import = import.rejects(create_rejects(arguments, path, journal)?);
    }
    if let Some(journal) = journal {
        import = import.journal(journal);
    }
    Ok(import)
}

/// Prints what was not applied and what to do about it, then the summary line.
fn summarize(arguments: &Arguments, report: &ImportReport, has_journal: bool) -> ExitCode {
    for (code, count) in report.refused_by_code() {
        say(format_args!("refused: {count:>8}  {code}"));
    }
    if report.opt_out_failed() > 0 {
        say(format_args!(
            "applied without their opt-out: {}",
            report.opt_out_failed()
        ));
    }
    if report.refused() > 0 {
        match &arguments.rejects {
            Some(path) => say(format_args!(
                "fix the rows in {} and import that file",
                path.display()
            )),
            None => say("use --rejects FILE to see the refused rows"),
        }
    }
    if arguments.dry_run {
        let (valid, duplicates) = (report.valid(), report.duplicates());
        say(format_args!(
            "dry run: nothing was sent; {valid} rows are valid, {duplicates} of them duplicates"
        ));
    } else if report.quota_exceeded() {
        say("the plan's contact ceiling is reached; raise it, then continue with --resume");
    }
    let is_finished = report.unknown() == 0
        && match arguments.dry_run {
            true => report.not_sent() == report.valid(),
            false => report.not_sent() == 0,
        };
    if report.unknown() > 0 {
        say(format_args!(
            "{} rows may have been applied or not: no usable response arrived",
            report.unknown()
        ));
    }
    if !is_finished && has_journal {
        say("not finished: run the same command with --resume to continue");
    }
    if let Some(failure) = report.first_failure() {
        say(format_args!("the first batch that failed: {failure}"));
    }
    say(report);
    match (is_finished, report.refused()) {
        (false, _) => ExitCode::FAILURE,
        (true, 0) => ExitCode::SUCCESS,
        (true, _) => ExitCode::from(2),
    }
}

/// Opens the input, with the columns mapped as the flags say.
fn open(arguments: &Arguments) -> Result<CsvInput, Box<dyn StdError>> {
    let mut input = match (&arguments.file, arguments.generate) {
        (Some(file), _) => CsvInput::open(file).map_err(|error| explain(file, &error))?,
        (None, Some(rows)) => CsvInput::new(Generated::new(rows))?,
        (None, None) => CsvInput::open(SAMPLE)?,
    };
    for (name, column) in &arguments.map {
        input = input.map(name, column.clone())?;
    }
    Ok(match arguments.on_conflict {
        None => input,
        Some(Choice::Upsert) => input.on_conflict(OnConflict::Upsert),
        Some(Choice::Skip) => input.on_conflict(OnConflict::Skip),
        Some(Choice::Error) => input.on_conflict(OnConflict::Error),
    })
}

/// Counts the rows, for the progress bar. A pipe cannot be read twice.
fn count(arguments: &Arguments) -> Result<Option<u64>, Box<dyn StdError>> {
    let is_pipe = |file: &PathBuf| file.metadata().is_ok_and(|metadata| !metadata.is_file());
    Ok(match arguments.generate {
        Some(rows) => Some(rows),
        None if arguments.file.as_ref().is_some_and(is_pipe) => None,
        None => Some(open(arguments)?.rows()?.count() as u64),
    })
}

fn source_name(arguments: &Arguments) -> String {
    match (&arguments.file, arguments.generate) {
        (Some(file), _) => file.display().to_string(),
        (None, Some(rows)) => format!("{rows} generated contacts"),
        (None, None) => "the sample fixtures/contacts.csv".to_owned(),
    }
}

fn open_journal(arguments: &Arguments) -> Result<Option<Journal>, Box<dyn StdError>> {
    // What the embedded mock has is gone when the program ends, and a pipe cannot be read again.
    let file = arguments
        .file
        .as_ref()
        .filter(|file| !uses_mock() && file.is_file());
    let beside_file = file.map(|file| {
        let mut name: OsString = file.clone().into();
        name.push(".journal");
        PathBuf::from(name)
    });
    let path = arguments.journal.clone().or(beside_file);
    if arguments.dry_run {
        return Ok(None);
    }
    let Some(path) = path else {
        let needs_journal =
            "--resume needs a service and a FILE that is not a pipe, or --journal FILE";
        return if arguments.resume {
            Err(needs_journal.into())
        } else {
            Ok(None)
        };
    };
    let journal = Journal::open(&path).map_err(|error| explain(&path, &error))?;
    if !journal.is_empty() && !arguments.resume {
        let path = path.display();
        let hint = format!(
            "{path} records an earlier import: add --resume to continue it, or delete the file to start again"
        );
        return Err(hint.into());
    }
    Ok(Some(journal))
}

fn create_rejects(
    arguments: &Arguments,
    path: &Path,
    journal: Option<&Path>,
) -> Result<File, Box<dyn StdError>> {
    let same = |other: &Path| match (path.canonicalize(), other.canonicalize()) {
        (Ok(path), Ok(other)) => path == other,
        _ => false,
    };
    if arguments.file.as_deref().is_some_and(same) {
        return Err("--rejects must not be the file to import".into());
    }
    if journal.is_some_and(same) {
        return Err("--rejects must not be the journal".into());
    }
    File::create(path).map_err(|error| format!("{}: {error}", path.display()).into())
}

fn explain(path: &Path, error: &Error) -> String {
    let because = error.source().map(|source| format!(": {source}"));
    format!("{}: {error}{}", path.display(), because.unwrap_or_default())
}

/// Returns the service's contacts. The mock lives as long as the server that is returned with it.
async fn connect(topics: Vec<String>) -> Result<(Contacts, Option<MockServer>), Box<dyn StdError>> {
    match (env::var("AUDIENCE_URL"), env::var("AUDIENCE_KEY")) {
        (Ok(url), Ok(key)) => Ok((Client::new(url, key)?.contacts(), None)),
        (Err(_), Err(_)) => {
            say("AUDIENCE_URL and AUDIENCE_KEY are not set: using the embedded mock");
            let builder = topics
                .into_iter()
                .fold(MockServer::builder(), |builder, topic| {
                    builder.topic(topic, true)
                });
            let server = builder.start().await;
            Ok((server.client().contacts(), Some(server)))
        }
        _ => Err("set both AUDIENCE_URL and AUDIENCE_KEY, or neither".into()),
    }
}

fn uses_mock() -> bool {
    env::var_os("AUDIENCE_URL").is_none() && env::var_os("AUDIENCE_KEY").is_none()
}
