//! The commands for whole lists: import, sync and export.

use std::error::Error as _;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::future::poll_fn;
use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::process::{ExitCode, Termination};
use std::time::SystemTime;

use clap::{Args, ValueEnum};
use futures_core::Stream as _;
use serde_json::json;

use super::contacts::{Filter, on_conflict};
use super::output::{Failure, Output, ProgressLine, REFUSED, clear_progress, interrupt, say};
use super::{Confirmation, Connection, Service};
use crate::causes::with_causes;
use crate::contacts::{ListContacts, OnConflict};
use crate::export::{Csv, ExportColumn, ExportReport, ExportedContact, Format, JsonLines};
use crate::import::{
    Column, CsvInput, ImportFiles, ImportReport, ImportRow, Journal, Safeguard, SyncError,
    SyncReport, SyncRow, SyncState, is_regular_file, with_suffix,
};
use crate::terminal::{padded, print, printable, printable_json};
use crate::{Error, ErrorKind, shutdown_signal};

/// The CSV file to read.
#[derive(Args)]
struct CsvFile {
    /// Read this CSV file, whose first line names the columns; - reads standard input
    #[arg(value_name = "FILE")]
    file: PathBuf,
    #[arg(long, value_name = "COLUMN=MEMBER", value_parser = parse_map, help = MAP_HELP)]
    map: Vec<(String, Column)>,
    /// Ignore the columns that are neither mapped nor known by their names, which would become properties
    #[arg(long)]
    ignore_unmapped: bool,
    /// Refuse a file with a column that is neither mapped nor known by its name: it may be a topic, and the "no" of a
    /// property is no opt-out
    #[arg(long, conflicts_with = "ignore_unmapped")]
    refuse_unmapped: bool,
}

#[derive(Args)]
#[command(after_help = IMPORT_HELP)]
pub(super) struct ImportOptions {
    #[command(flatten)]
    input: CsvFile,
    /// Import these files, too; those whose columns say that everybody opted out come first, and if rows of them are
    /// refused, the others are not sent
    #[arg(value_name = "FILE")]
    more: Vec<PathBuf>,
    /// Resume from the journal
    #[arg(long)]
    resume: bool,
    /// Record the finished rows in this file [default: FILE.journal; none for a pipe and with --mock]
    #[arg(long, value_name = "FILE")]
    journal: Option<PathBuf>,
    /// Write the rows that were not applied to this CSV file, so that you can fix and import them; with several files,
    /// a folder for such files with the same names
    #[arg(long, value_name = "FILE")]
    rejects: Option<PathBuf>,
    /// Import the corrected rejects in this folder in place of the files of the same names, which must be finished; can be
    /// repeated, with the newest folder last; with --verify, a row that a corrected row stands for is left out
    #[arg(long, value_name = "FOLDER", conflicts_with_all = ["journal", "mock"])]
    corrected: Vec<PathBuf>,
    /// Check every row without sending anything
    #[arg(long)]
    dry_run: bool,
    /// Look whether the service has the contact and every opt-out of each row, and change nothing; --rejects gets the
    /// rows whose contact or opt-out is missing; if you corrected rejects, add --corrected with each of their folders
    #[arg(long, conflicts_with_all = ["dry_run", "resume", "journal"])]
    verify: bool,
    /// Opt every contact of this file out of everything; =FILE may be left out if there is only one file; can be
    /// repeated
    #[arg(
        long,
        value_name = "FILE",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = ALL_FILES
    )]
    opt_out_all: Vec<OsString>,
    /// Send at most N batches concurrently
    #[arg(long, value_name = "N", default_value_t = 16)]
    concurrency: usize,
    /// Choose what happens if an address already exists [default: upsert]
    #[arg(long, value_name = "CHOICE", value_parser = on_conflict())]
    on_conflict: Option<OnConflict>,
    #[command(flatten)]
    confirmation: Confirmation,
    #[command(flatten)]
    service: Service,
}

/// Stands for a FILE that was left out. No argument can contain this character, so a name that is empty by mistake, such
/// as that of an unset variable, does not mean everybody.
const ALL_FILES: &str = "\0";

const MAP_HELP: &str = "\
Map a column to email, first_name, last_name, property:NAME, properties, unsubscribed, subscribed, \
unsubscribe_reason, topic:NAME, topics, groups:GROUP:TOPIC,GROUP:TOPIC, on_conflict, key or ignore; can be repeated. \
In the name of a group or its topic, write a comma as \\, and a colon as \\:, in quotation marks in a shell. \
Of several files, those without the column need no mapping";

const IMPORT_HELP: &str = "\
After a crash, an outage or Ctrl-C, run the same command with --resume.

With --resume, refused rows are refused again. Fix them in the rejects, and import those: of several files, with the same
command and --corrected. The command prints how. Give a dry run other --rejects than the import.

Exit status: 0 if every row was applied, 3 if some were refused, and otherwise 1, 75 or 143: see audience --help. With
--verify, 1 if an opt-out is missing, and otherwise 3 if a contact is missing.

Example:
  audience import list.csv --map Status=subscribed --rejects rejects.csv
  audience import contacts.csv blocklisted.csv --opt-out-all=blocklisted.csv
  audience import subscribed.csv unsubscribed.csv cleaned.csv --rejects rejects
  audience import subscribed.csv unsubscribed.csv cleaned.csv --rejects rejects --resume --corrected corrected
  audience import subscribed.csv unsubscribed.csv cleaned.csv --verify --corrected corrected";

fn parse_map(text: &str) -> Result<(String, Column), String> {
    // A column, a topic and a property may have a `=` in their names.
    let mut last_error = None;
    for (place, _) in text.rmatch_indices('=') {
        match text[place + 1..].parse() {
            Ok(column) => return Ok((text[..place].to_owned(), column)),
            Err(error) => last_error = last_error.or(Some(error)),
        }
    }
    let error = last_error.map(|error: Error| error.to_string());
    Err(error.unwrap_or_else(|| "write COLUMN=MEMBER".to_owned()))
}

/// Imports the files. Prints the meaning of each column if it asks or in a dry run, and then what was done.
pub(super) async fn import(options: ImportOptions, output: Output) -> Result<ExitCode, Failure> {
    let files = options.open()?;
    let connection = options.service.connect().await?;
    let mut import = options.set_up(connection.contacts.import_files(files))?;
    import.replace_files()?;
    for rejects in import.rejects() {
        options.input.check_rejects(rejects)?;
    }
    import
        .check_paths()
        .map_err(|error| Failure::usage(error.explanation()))?;
    for rejects in import.rejects() {
        check_replaced(rejects, &options.service)?;
    }
    for (path, input) in import.inputs() {
        if !output.json && (options.dry_run || !options.confirmation.yes) {
            show_columns(path, input);
        }
        add_topics(&connection, &options.service, input, &[]);
    }
    import.check()?;
    if options.sends() {
        let count = || Ok(import.count());
        let opt_outs = || match import.count_opt_outs() {
            Some(0) => None,
            Some(count) => Some(count.to_string()),
            None => {
                let opts_out_all = import.inputs().all(|(_, input)| input.opts_out_all());
                opts_out_all.then(|| "all".to_owned())
            }
        };
        let confirmation = &options.confirmation;
        confirmation.ask_with_opt_outs(count, opt_outs, &options.service)?;
    }
    let journals = import.open_journals();
    let journals = journals.map_err(|(path, error)| cannot_open(&path, &error))?;
    for (path, journal) in &journals {
        options.check_journal(path, journal)?;
    }
    let has_journal = !journals.is_empty();
    let maps_topics = import
        .inputs()
        .flat_map(|(_, input)| input.columns())
        .any(|(_, column)| column.topics().next().is_some());
    let to_continue = has_journal.then(command_to_continue);
    let import = import.stop_when(interrupt(to_continue.clone(), output));
    let (report, error) = match import.await {
        Ok(report) => (report, None),
        Err(stopped) => {
            let (report, error) = stopped.into_parts();
            (report, Some(error))
        }
    };
    clear_progress();
    let is_misspelled = maps_topics && error.is_none() && has_failed_for_good(&report);
    let to_continue = to_continue.as_deref();
    options.finish(&report, error.as_ref(), is_misspelled, to_continue, output)
}

/// Adds the topics of the columns, and further ones, to an embedded mock without a seed file. Such a file says which topics
/// there are.
fn add_topics(connection: &Connection, service: &Service, input: &CsvInput, more: &[String]) {
    if let Some(server) = &connection.server
        && service.mock == Some(None)
    {
        let columns = input.columns().map(|(_, column)| column);
        for topic in columns.flat_map(Column::topics).chain(more) {
            server.topic(topic, true);
        }
    }
}

/// Checks that the file that the rejects are to replace has only the rejects of an earlier run, and that a trial with the
/// mock replaces none.
fn check_replaced(rejects: &Path, service: &Service) -> Result<(), Failure> {
    let file = std::fs::metadata(rejects);
    if !file.is_ok_and(|file| file.is_file() && file.len() > 0) {
        return Ok(());
    }
    let problem = match CsvInput::open(rejects) {
        _ if service.mock.is_some() => "--mock replaces no file",
        Ok(file) if file.is_rejects() => return Ok(()),
        _ => "it has no rejects of an earlier run",
    };
    Err(Failure::usage(format!(
        "{} exists, and {problem}; choose another file for --rejects",
        rejects.display()
    )))
}

impl CsvFile {
    fn is_standard_input(&self) -> bool {
        self.file.as_os_str() == "-"
    }

    /// Returns whether it can be read twice, and files can be put beside it.
    fn is_file(&self) -> bool {
        !self.is_standard_input() && (is_regular_file(&self.file) || !self.file.exists())
    }

    /// Opens the input, with the columns mapped as the options say.
    fn open(&self) -> Result<CsvInput, Failure> {
        let input = if self.is_standard_input() {
            CsvInput::new(std::io::stdin())
        } else {
            check_exists(&self.file)?;
            CsvInput::open(&self.file)
        };
        let mut input = input.map_err(|error| {
            Failure::failed(format!("{}: {}", self.file.display(), with_causes(&error)))
        })?;
        for (name, column) in &self.map {
            input = input.map(name, column.clone())?;
        }
        Ok(input)
    }

    /// Says what becomes of the columns that are neither mapped nor known.
    fn with_unmapped(&self, input: CsvInput) -> CsvInput {
        match (self.ignore_unmapped, self.refuse_unmapped) {
            (true, _) => input.ignore_unmapped(),
            (_, true) => input.refuse_unmapped(),
            _ => input,
        }
    }

    /// Checks that the file for the rejects is not the input.
    fn check_rejects(&self, path: &Path) -> Result<(), Failure> {
        if is_same_file(path, &self.file) || is_read_as_standard_input(path) {
            return Err(Failure::usage("--rejects must not be the file to read"));
        }
        Ok(())
    }
}

/// Returns whether two paths are equal, or lead to the same file.
fn is_same_file(one: &Path, other: &Path) -> bool {
    let real = (one.canonicalize(), other.canonicalize());
    one == other || matches!(real, (Ok(one), Ok(other)) if one == other)
}

/// Checks that a file to read exists, as far as that can be known.
fn check_exists(path: &Path) -> Result<(), Failure> {
    match path.try_exists() {
        Ok(false) => Err(Failure::usage(format!(
            "{}: there is no such file",
            path.display()
        ))),
        _ => Ok(()),
    }
}

fn show_columns(path: &Path, input: &CsvInput) {
    let (path, delimiter) = (path.display(), input.delimiter_char());
    say(format_args!("{path} (delimiter {delimiter:?})"));
    for (name, column) in input.columns() {
        say(format_args!("  {} {column}", padded(&printable(name), 24)));
    }
}

/// Returns whether the path leads to the file that standard input comes from, as with `<list.csv`.
#[cfg(unix)]
fn is_read_as_standard_input(path: &Path) -> bool {
    use std::os::fd::AsFd as _;
    use std::os::unix::fs::MetadataExt as _;

    let open = std::io::stdin().as_fd().try_clone_to_owned();
    let open = open.and_then(|open| std::fs::File::from(open).metadata());
    let (Ok(open), Ok(found)) = (open, std::fs::metadata(path)) else {
        return false;
    };
    // A terminal may be both. It loses nothing.
    open.is_file() && (open.dev(), open.ino()) == (found.dev(), found.ino())
}

#[cfg(not(unix))]
fn is_read_as_standard_input(_: &Path) -> bool {
    false
}

impl ImportOptions {
    /// Opens the files, with the columns mapped as the options say.
    fn open(&self) -> Result<Vec<(PathBuf, CsvInput)>, Failure> {
        self.check_opt_out_all()?;
        let opened = if self.more.is_empty() {
            vec![(self.input.file.clone(), self.input.open()?)]
        } else {
            self.suit_several_files()?;
            let map = self.input.map.iter();
            let map: Vec<_> = map
                .map(|(name, column)| (name.as_str(), column.clone()))
                .collect();
            let opened = CsvInput::open_all(self.files().cloned(), &map);
            opened.map_err(|error| Failure::failed(with_causes(&error)))?
        };
        let set_up = |path: &Path, mut input: CsvInput| {
            input = self.input.with_unmapped(input);
            let mut named = self.opt_out_all.iter();
            if named.any(|name| name == ALL_FILES || is_same_file(path, Path::new(name))) {
                input = input.opt_out_all();
            }
            match self.on_conflict {
                Some(choice) => input.on_conflict(choice),
                None => input,
            }
        };
        let opened = opened.into_iter().map(|(path, input)| {
            let input = set_up(&path, input);
            (path, input)
        });
        Ok(opened.collect())
    }

    fn files(&self) -> impl Iterator<Item = &PathBuf> {
        [&self.input.file].into_iter().chain(&self.more)
    }

    /// Checks that --opt-out-all means files of this import, and no file that the caller may not have thought of.
    fn check_opt_out_all(&self) -> Result<(), Failure> {
        for name in &self.opt_out_all {
            if name.is_empty() {
                return Err(Failure::usage(
                    "--opt-out-all= names no file; write --opt-out-all=FILE, or, for a single file, --opt-out-all",
                ));
            }
            if name == ALL_FILES {
                if self.more.is_empty() {
                    continue;
                }
                return Err(Failure::usage(
                    "--opt-out-all would opt out the contacts of all files; write --opt-out-all=FILE for each file whose \
                     contacts must not get mail",
                ));
            }
            let is_named = |file: &PathBuf| is_same_file(file, Path::new(name));
            if !self.files().any(is_named) {
                // Only a file that exists is found under another name.
                for file in self.files().filter(|file| file.as_os_str() != "-") {
                    check_exists(file)?;
                }
                let name = name.display();
                let files = self.files().map(|file| file.display().to_string());
                let files = files.collect::<Vec<_>>().join(", ");
                return Err(Failure::usage(format!(
                    "--opt-out-all={name}: {name} is not one of the files to import ({files})"
                )));
            }
        }
        Ok(())
    }

    /// Checks that the options suit several files.
    fn suit_several_files(&self) -> Result<(), Failure> {
        for file in self.files() {
            if file.as_os_str() == "-" {
                return Err(Failure::usage("- cannot be one of several files"));
            }
            check_exists(file)?;
            // The header is read first, to find the order.
            if file.exists() && !file.is_file() {
                let file = file.display();
                return Err(Failure::usage(format!(
                    "{file} is not a regular file, so it cannot be one of several files"
                )));
            }
        }
        if self.journal.is_some() {
            return Err(Failure::usage(
                "--journal is for one file; of several, each has a journal beside it",
            ));
        }
        // Such as `..`: it cannot be renamed, as the advice for rejects says.
        if self
            .rejects
            .as_ref()
            .is_some_and(|folder| folder.file_name().is_none())
        {
            return Err(Failure::usage("name a folder of its own for --rejects"));
        }
        if self.rejects.as_ref().is_some_and(|folder| !folder.is_dir()) {
            return Err(Failure::usage(
                "with several files, --rejects is an existing folder, in which each file has its rejects",
            ));
        }
        Ok(())
    }

    /// Returns whether it changes something at the service.
    fn sends(&self) -> bool {
        !self.dry_run && !self.verify
    }

    /// Sets the options and the display of the progress.
    fn set_up(&self, mut import: ImportFiles) -> Result<ImportFiles, Failure> {
        let mut line = ProgressLine::new();
        import = import
            .concurrency(self.concurrency)
            .on_progress(move |progress| line.show(|| progress.to_string()));
        if self.dry_run {
            import = import.dry_run();
        }
        if self.verify {
            import = import.verify();
        }
        for folder in &self.corrected {
            import = import.corrected(folder);
        }
        // What the mock has is gone when the program ends, and a pipe cannot be read again.
        let can_resume = self.service.mock.is_none() && self.input.is_file();
        import = match &self.journal {
            Some(path) => import.journal(path),
            None if can_resume => import,
            None if self.resume && self.sends() => {
                return Err(Failure::usage(
                    "--resume needs a service and a FILE that is not a pipe, or --journal FILE",
                ));
            }
            None => import.no_journals(),
        };
        Ok(match &self.rejects {
            Some(path) if path.is_dir() && !self.input.is_standard_input() => {
                import.rejects_folder(path)
            }
            Some(path) => import.rejects_file(path),
            None => import,
        })
    }

    /// Checks that the journal of an earlier import is continued only if the options say so.
    fn check_journal(&self, path: &Path, journal: &Journal) -> Result<(), Failure> {
        if !journal.is_empty() && !self.resume {
            return Err(Failure::failed(format!(
                "{} records an earlier import: add --resume to continue it, also after you have closed a quote in FILE; if you changed other rows, import only these from another file; to send all rows again, which also undoes opt-ins made since, delete the journal",
                path.display()
            )));
        }
        Ok(())
    }

    /// Prints the report, and returns the exit status. If the name of a topic may be misspelled, the same command would fail
    /// again.
    fn finish(
        &self,
        report: &ImportReport,
        error: Option<&Error>,
        is_misspelled: bool,
        to_continue: Option<&str>,
        output: Output,
    ) -> Result<ExitCode, Failure> {
        output.result(report, |report| {
            self.summary(report, error, is_misspelled, to_continue.is_some())
        })?;
        let with_hint = |failure: Failure| match to_continue {
            Some(command) => failure.note(&format!("to continue: {command}")),
            None if !self.sends() => failure,
            None => failure.note("nothing records where it stopped, so it must start again"),
        };
        match (error, report.unfinished_rows(), report.files_left_out()) {
            (Some(error), ..) => {
                let failure = Failure::from(error).after("the import stopped");
                // The same command would fail in the same way, unless the file can be fixed, so that more of it is read.
                let fails_again = is_wrong_input(error) && !report.is_cut_off();
                Err(match fails_again {
                    true => failure,
                    false => with_hint(failure),
                })
            }
            (None, Some(_), _) if is_misspelled => {
                let first = report.first_failure().unwrap_or_default();
                let reason = format!("an opt-out failed; the first failure: {first}");
                let failure = Failure::from(Error::unfinished(reason, false));
                Err(failure.after("the import is not finished"))
            }
            (None, Some(reason), _) => {
                Err(with_hint(Failure::from(&reason).after(match self.verify {
                    true => "the list is not verified",
                    false => "the import is not finished",
                })))
            }
            (None, None, Some(reason)) => Err(reason.into()),
            (None, None, None) if report.refused() > 0 => Ok(REFUSED.into()),
            (None, None, None) => Ok(ExitCode::SUCCESS),
        }
    }

    /// Returns what was not applied and what to do about it, then the summary line.
    fn summary(
        &self,
        report: &ImportReport,
        error: Option<&Error>,
        is_misspelled: bool,
        can_continue: bool,
    ) -> String {
        let mut lines = refused(report, is_misspelled, can_continue);
        let has_folder = self.rejects.as_ref().is_some_and(|path| path.is_dir());
        let has_rejects = match self.verify {
            true => report.opt_out_missing() + report.refused() > 0,
            false => report.refused_by_code().next().is_some() || is_misspelled,
        };
        let is_unfinished = self.sends() && report.unfinished_rows().is_some();
        // A run that continues writes the rejects anew.
        let is_to_continue =
            report.quota_exceeded() || report.is_stopped() || is_unfinished && !is_misspelled;
        // Nothing is left to continue: the mock is gone with all contacts, and has no journals.
        let is_trial = self.service.mock.is_some();
        // The contacts of these rows exist by now.
        let correct_topic = match self.on_conflict {
            Some(OnConflict::Error) => format!("{CORRECT_TOPIC}, set --on-conflict to skip"),
            _ => CORRECT_TOPIC.to_owned(),
        };
        // It may name the original file, which is then not one of the files to import.
        let without_opt_out_all = match self.opt_out_all.is_empty() {
            true => "",
            false => ", and without --opt-out-all: that file has the opt-outs",
        };
        // The journal of this import records the rows of another file.
        let other_files = match &self.journal {
            None => "other --rejects",
            Some(_) => "other --rejects and another --journal",
        };
        match &self.rejects {
            _ if !has_rejects || is_to_continue => {}
            // The error says what to do.
            _ if self.sends() && error.is_some_and(is_wrong_input) => {}
            None => lines.push(SEE_REJECTS.to_owned()),
            Some(_) if self.verify => {}
            Some(path) if self.dry_run || is_trial => {
                if is_misspelled {
                    lines.push(CORRECT_TOPIC.to_owned());
                }
                lines.push(format!(
                    "fix these rows before the import; {} says what is wrong",
                    path.display()
                ));
            }
            Some(path) if !has_folder && is_misspelled => lines.push(format!(
                "{correct_topic}, fix any refused rows in {}, and import that file with {other_files}{without_opt_out_all}",
                path.display()
            )),
            Some(path) if !has_folder => lines.push(format!(
                "fix the rows in {} and import that file with the same options, but {other_files}{without_opt_out_all}",
                path.display()
            )),
            // The rejects may lack rows.
            Some(_) if error.is_some() => {}
            Some(folder) => lines.push(recipe(
                is_misspelled.then_some(&*correct_topic),
                folder,
                self.corrected.len(),
            )),
        }
        if report.quota_exceeded() {
            lines.push(format!(
                "the plan's contact ceiling is reached; raise it, then {}",
                match can_continue {
                    true => "continue with --resume",
                    false => "import all rows again",
                }
            ));
        }
        if report.unknown() > 0 && self.sends() {
            lines.push(format!(
                "{} rows may have been applied or not: no usable response arrived",
                report.unknown()
            ));
        }
        lines.push(if self.dry_run {
            format!(
                "dry run: nothing was sent; {} rows would be sent, {} of them duplicates, and {} would be refused",
                report.valid(),
                report.duplicates(),
                report.refused()
            )
        } else {
            report.to_string()
        });
        below_each_other(&lines)
    }
}

fn is_wrong_input(error: &Error) -> bool {
    error.kind() == ErrorKind::Input
}

/// Returns how to import the rejects of several files, with the command or, if a topic is misspelled, with how to correct
/// it. `earlier` rejects were corrected before.
fn recipe(correct_topic: Option<&str>, folder: &Path, earlier: usize) -> String {
    let name = |number: usize| match number {
        0 => "corrected".to_owned(),
        _ => format!("corrected-{}", number + 1),
    };
    // A folder `corrected` after `corrected-1` would look like the older one.
    let mut number = earlier;
    let mut corrected = folder.with_file_name(name(number));
    while corrected.exists() {
        number += 1;
        corrected.set_file_name(name(number));
    }
    let mut words = words_with(Some("--resume"));
    let end = words.iter().position(|word| word == "--");
    let end = end.unwrap_or(words.len());
    let folder_to_read = corrected.to_string_lossy().into_owned();
    words.splice(end..end, ["--corrected".to_owned(), folder_to_read]);
    let (folder, corrected) = (folder.display(), corrected.display());
    match correct_topic {
        // The command has the misspelled topic.
        Some(correct_topic) => format!(
            "{correct_topic}, rename {folder} to {corrected}, fix any refused rows in it, create an empty folder {folder}, and run this command with --resume --corrected {corrected}"
        ),
        None => format!(
            "rename {folder} to {corrected}, fix the rows in it (delete those that cannot be fixed, but not the first line), create an empty folder {folder}, and run: {}",
            as_shell_line(&words)
        ),
    }
}

/// Returns whether an opt-out has failed that the next run would send in vain, unless something is mended.
fn has_failed_for_good(report: &ImportReport) -> bool {
    let reason = report.unfinished_rows();
    let may_succeed = reason.is_some_and(|reason| reason.is_retryable());
    report.opt_out_failed() > 0 && !report.quota_exceeded() && !may_succeed
}

const CORRECT_TOPIC: &str =
    "correct a misspelled topic in --map (without --map, in the first line of the rejects)";

const SEE_REJECTS: &str = "use --rejects FILE to see these rows";

/// Returns how many rows were refused, by reason, and how many have an opt-out that failed. The next run sends it, unless
/// a topic is misspelled.
fn refused(report: &ImportReport, is_misspelled: bool, can_continue: bool) -> Vec<String> {
    let by_code = report.refused_by_code();
    let mut lines: Vec<_> = by_code
        .map(|(code, count)| format!("refused: {count:>8}  {code}"))
        .collect();
    if report.opt_out_failed() > 0 {
        let count = report.opt_out_failed();
        let next = match can_continue {
            true => "the next run with the same journal or state file sends it",
            false => "only another run with all rows sends it",
        };
        lines.push(match report.is_stopped() {
            _ if is_misspelled => format!("opt-out failed: {count}"),
            true => format!("opt-out not recorded yet: {count}; {next}"),
            false => format!("opt-out failed: {count}; {next} again"),
        });
    }
    lines
}

fn below_each_other(lines: &[String]) -> String {
    lines.iter().fold(String::new(), |mut text, line| {
        let _ = writeln!(text, "{}", printable(line));
        text
    })
}

/// Returns this command line with `--resume`, as a shell reads it.
fn command_to_continue() -> String {
    command_line(Some("--resume"))
}

/// Returns this command line with one more option, as a shell reads it.
fn command_line(option: Option<&str>) -> String {
    as_shell_line(&words_with(option))
}

/// Returns the words of this command line with one more option.
fn words_with(option: Option<&str>) -> Vec<String> {
    let mut words: Vec<String> = std::env::args_os()
        .map(|word| word.to_string_lossy().into_owned())
        .collect();
    if let Some(option) = option
        && !words.iter().any(|word| word == option)
    {
        // After `--`, it would be the name of a file.
        let end = words.iter().position(|word| word == "--");
        words.insert(end.unwrap_or(words.len()), option.to_owned());
    }
    words
}

/// Returns the failure of a program that cannot open a journal or a state, with the exit status of the error: on Windows,
/// another run may use the file.
fn cannot_open(path: &Path, error: &Error) -> Failure {
    let file = path.display();
    Failure::causes(error).after(&file.to_string())
}

fn as_shell_line(words: &[String]) -> String {
    let quoted = words.iter().map(|word| {
        let is_plain = |letter: char| {
            letter.is_alphanumeric()
                || "-_./=,:@%+".contains(letter)
                || cfg!(windows) && letter == '\\'
        };
        match !word.is_empty() && word.chars().all(is_plain) {
            true => word.clone(),
            false if cfg!(windows) => format!("\"{word}\""),
            false => format!("'{}'", word.replace('\'', r"'\''")),
        }
    });
    quoted.collect::<Vec<_>>().join(" ")
}

#[derive(Args)]
#[command(after_help = SYNC_HELP)]
pub(super) struct SyncOptions {
    #[command(flatten)]
    input: CsvFile,
    /// Take the key of each row from this column; a key stays with its person and is never used again
    #[arg(long, value_name = "COLUMN")]
    key: Option<String>,
    /// Remember in this file what was sent [default: FILE.sync, if FILE is a regular file]
    #[arg(long, value_name = "FILE")]
    state: Option<PathBuf>,
    /// Opt out the contacts whose rows are gone; nobody if the key of a row cannot be read, because any row may be that
    /// one
    #[arg(long)]
    deletes_missing: bool,
    /// List all contacts, opt out those that are subscribed although their rows are not, and count the rows that are
    /// subscribed although their contacts are not
    #[arg(long)]
    checks_list: bool,
    /// Do what --checks-list does, and also retrieve each contact and compare its answers for this topic; can be repeated
    #[arg(long, value_name = "NAME")]
    checks_topic: Vec<String>,
    /// Send nothing if more than N contacts would be opted out because their rows are gone or have another address
    /// [default: 100, or a tenth of the rows; at most half of them, or 10; 0 if the file has no rows]
    #[arg(long, value_name = "N")]
    leave_at_most: Option<u64>,
    /// Write the rows that were not applied to this CSV file
    #[arg(long, value_name = "FILE")]
    rejects: Option<PathBuf>,
    /// Count what would be sent, and send nothing that changes a contact
    #[arg(long)]
    dry_run: bool,
    /// Send at most N requests concurrently
    #[arg(long, value_name = "N", default_value_t = 16)]
    concurrency: usize,
    #[command(flatten)]
    confirmation: Confirmation,
    #[command(flatten)]
    service: Service,
}

const SYNC_HELP: &str = "\
The first run sends the whole table. Later runs send what has changed: opt-outs first, and never an opt-in.
After a crash, an outage or Ctrl-C, run the same command again.

Exit status: 0 if everything was sent, 3 if only rows were refused or contacts are opted out although their rows are not,
1 if --deletes-missing opted out nobody because the key of a row could not be read, and otherwise 1, 75 or 143: see audience --help.

Example:
  audience sync users.csv --key id --deletes-missing --rejects rejects.csv";

/// Sends the changes of the table since the last run. Prints the meaning of each column if it asks or in a dry run, and
/// then what was done.
pub(super) async fn sync(options: SyncOptions, output: Output) -> Result<ExitCode, Failure> {
    if let Some(rejects) = &options.rejects {
        options.input.check_rejects(rejects)?;
        check_replaced(rejects, &options.service)?;
    }
    // A mistake is said before the state is created, if the table can be read twice.
    let is_file = options.input.is_file();
    if is_file {
        drop(options.open_checked(output)?.rows()?);
    }
    let connection = options.service.connect().await?;
    // Before the table and the question: the sync notices only what others change after this.
    let state = options.open_state()?;
    let input = match is_file {
        true => options.open()?,
        false => options.open_checked(output)?,
    };
    let checked = &options.checks_topic;
    add_topics(&connection, &options.service, &input, checked);
    let delimiter = input.delimiter_char();
    let rows = input.rows()?.map(sync_row);
    if !options.dry_run {
        let count = || match options.deletes_missing {
            // The rows that are missing are not counted before the run.
            true => Ok(None),
            false => Ok(CsvInput::count_rows(&options.input.file, delimiter)),
        };
        options.confirmation.ask(count, &options.service)?;
    }
    let (path, same_command) = (state.path().to_owned(), command_line(None));

    let mut line = ProgressLine::new();
    let mut sync = connection
        .contacts
        .sync(rows, state)
        .concurrency(options.concurrency)
        .stop_when(interrupt(Some(same_command.clone()), output))
        .on_progress(move |progress| line.show(|| progress.to_string()));
    if options.deletes_missing {
        sync = sync.deletes_missing();
    }
    if options.checks_list {
        sync = sync.checks_list();
    }
    if !options.checks_topic.is_empty() {
        sync = sync.checks_topics(&options.checks_topic);
    }
    if let Some(contacts) = options.leave_at_most {
        sync = sync.leave_at_most(contacts);
    }
    if options.dry_run {
        sync = sync.dry_run();
    }
    if let Some(rejects) = &options.rejects {
        if is_same_file(rejects, &path) {
            return Err(Failure::usage("--rejects must not be the state"));
        }
        sync = sync.rejects_file(rejects);
    }
    let result = sync.await;
    clear_progress();
    if options.service.mock.is_some() && options.state.is_none() {
        let _ = std::fs::remove_file(&path);
    }
    options.finish(&result, &same_command, output)
}

/// Reads the key of a row. The sync refuses a row without one.
fn sync_row(row: ImportRow) -> SyncRow {
    let key = row.key_text().unwrap_or_default().to_owned();
    SyncRow::new(key, row)
}

impl SyncOptions {
    fn open(&self) -> Result<CsvInput, Failure> {
        let input = self.input.with_unmapped(self.input.open()?);
        Ok(match &self.key {
            Some(column) => input.map(column, Column::Key)?,
            None => input,
        })
    }

    /// Opens the table, prints the meaning of each column if somebody reads it, and makes sure that the rows have keys.
    fn open_checked(&self, output: Output) -> Result<CsvInput, Failure> {
        let input = self.open()?;
        if !output.json && (self.dry_run || !self.confirmation.yes) {
            show_columns(&self.input.file, &input);
        }
        let has_key = |(_, column): (&str, &Column)| *column == Column::Key;
        if !input.columns().any(has_key) {
            let problem = "name the column whose value stays with a person: --key COLUMN";
            return Err(Failure::usage(problem));
        }
        Ok(input)
    }

    fn open_state(&self) -> Result<SyncState, Failure> {
        let path = match &self.state {
            Some(path) => path.clone(),
            // What the mock has is gone when the program ends.
            None if self.service.mock.is_some() => {
                std::env::temp_dir().join(format!("audience-mock-{}.sync", std::process::id()))
            }
            None if !self.input.is_file() => {
                let problem = "FILE is standard input or no regular file, so name the --state";
                return Err(Failure::usage(problem));
            }
            None => with_suffix(&self.input.file, ".sync"),
        };
        SyncState::open(&path).map_err(|error| cannot_open(&path, &error))
    }

    /// Prints the report, and returns the exit status.
    fn finish(
        &self,
        result: &Result<SyncReport, SyncError>,
        same_command: &str,
        output: Output,
    ) -> Result<ExitCode, Failure> {
        let report = match result {
            Ok(report) => report,
            Err(error) => error.report(),
        };
        output.result(report, |report| self.summary(report))?;
        let unfinished = report.unfinished().filter(|_| !self.dry_run);
        let to_continue = format!("to continue: {same_command}");
        match (result, unfinished) {
            (Err(error), _) => {
                let failure = Failure::from(error.error()).after("the sync stopped");
                Err(match error.safeguard() {
                    Some(Safeguard::Limit) => failure.note("--leave-at-most N sets another limit"),
                    Some(Safeguard::Service) => failure.note("--state FILE names another one"),
                    // With another state file, the whole table would be sent to the wrong audience.
                    Some(Safeguard::Audience) => failure,
                    // The table is at fault, so the same command would fail in the same way.
                    None if error.error().kind() == ErrorKind::Input => failure,
                    None => failure.note(&to_continue),
                })
            }
            (Ok(_), Some(reason)) => {
                let failure = Failure::from(&reason).after("the sync is not finished");
                Err(failure.note(&to_continue))
            }
            (Ok(_), None) if report.is_whole() => Ok(ExitCode::SUCCESS),
            (Ok(_), None) => Ok(REFUSED.into()),
        }
    }

    fn summary(&self, report: &SyncReport) -> String {
        let mut lines = refused(report.changes(), false, true);
        if report.opt_ins_not_sent() > 0 {
            let count = report.opt_ins_not_sent();
            lines.push(format!(
                "{count} rows are subscribed after an opt-out; `audience contacts subscribe ADDRESS` records an opt-in \
                 when the person asks for it"
            ));
        }
        if !report.opted_out_at_service().is_empty() {
            let count = report.opted_out_at_service().len();
            lines.push(format!(
                "{count} rows are subscribed, but their contacts are opted out at the service; write these opt-outs into the table"
            ));
        }
        for topic in &self.checks_topic {
            let count = report.opted_out_of(topic).len();
            if count > 0 {
                lines.push(format!(
                    "{count} rows are not opted out of the topic {topic}, but their contacts are; unless the topic's default \
                     is `false`, write these opt-outs into the table"
                ));
            }
        }
        if self.rejects.is_none() && !lines.is_empty() {
            lines.push(SEE_REJECTS.to_owned());
        }
        if self.dry_run && report.missing_ignored() {
            lines.push(
                "--deletes-missing would opt out nobody: the key of a row could not be read, and any missing row may be that row"
                    .to_owned(),
            );
        }
        // Otherwise, the error has it.
        if report.unfinished().is_none()
            && let Some(failure) = report.changes().first_failure()
        {
            lines.push(format!("the first request that failed: {failure}"));
        }
        lines.push(match self.dry_run {
            true => {
                let changes = report.changes();
                format!(
                    "dry run: nothing was sent; {} contacts would be opted out, {} rows would be sent, {} are unchanged, {} \
                     would be refused, and {} opt-ins would not be sent",
                    report.opted_out(),
                    changes.not_sent(),
                    report.unchanged(),
                    changes.refused(),
                    report.opt_ins_not_sent()
                )
            }
            false => report.to_string(),
        });
        below_each_other(&lines)
    }
}

#[derive(Args)]
#[command(after_help = EXPORT_HELP)]
pub(super) struct ExportOptions {
    /// Write to this file; until the end, the contacts are in FILE.part and the position in FILE.cursor. - writes to
    /// standard output
    #[arg(value_name = "FILE")]
    file: PathBuf,
    #[command(flatten)]
    filter: Filter,
    /// Retrieve each contact, to export last names, reasons and topics too
    #[arg(long)]
    full: bool,
    /// Set the format [default: from FILE's extension, otherwise csv; jsonl for - with --json]
    #[arg(long, value_name = "FORMAT", value_enum)]
    format: Option<Kind>,
    /// Write these CSV columns, such as `email,first_name,topic:news,plan` [default: all that are found]
    #[arg(long, value_name = "NAMES", value_delimiter = ',', value_parser = parse_column)]
    columns: Vec<ExportColumn>,
    /// Escape text that a spreadsheet would read as a formula
    #[arg(long)]
    escape_formulas: bool,
    /// Fail if fewer than N contacts are found, and leave the earlier FILE as it is
    #[arg(long, value_name = "N", default_value_t = 0)]
    at_least: u64,
    /// Resume an export that was interrupted; an export that finished begins anew
    #[arg(long)]
    resume: bool,
    #[command(flatten)]
    service: Service,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Kind {
    /// Write comma-separated values
    Csv,
    /// Write a JSON object for each contact, which is exact
    Jsonl,
}

const EXPORT_HELP: &str = "\
After a crash or Ctrl-C, run the same command with --resume, on the same day: contacts in FILE.part stay as they were.
Without --full, the opt-outs from topics are missing.

Exit status: 0 if all contacts were written, 3 if some are malformed, 4 if there is no such segment, and otherwise 1, 75
or 143: see audience --help.

Example:
  audience export all.csv --full
  audience export nightly.csv --at-least 1000";

/// Reads the name of a column. A property whose bare name an import reads as something else may be a misspelt column.
fn parse_column(name: &str) -> Result<ExportColumn, String> {
    let name = name.trim();
    let column = ExportColumn::from(name);
    let in_header = column.to_string();
    match &column {
        _ if in_header.is_empty() => Err("a column has no name".to_owned()),
        ExportColumn::Property(_) if in_header != name && !name.starts_with("property:") => {
            Err(format!(
                "write `{in_header}` for a property with this name, and other columns as in `email`, `unsubscribed` and \
                 `topic:news`"
            ))
        }
        _ => Ok(column),
    }
}

/// Exports the list, and shows how far it is.
pub(super) async fn export(
    mut options: ExportOptions,
    output: Output,
) -> Result<ExitCode, Failure> {
    let is_standard_output = options.file.as_os_str() == "-";
    let has_csv_options = !options.columns.is_empty() || options.escape_formulas;
    if is_standard_output && output.json && !has_csv_options {
        options.format.get_or_insert(Kind::Jsonl);
    }
    if options.kind() == Kind::Jsonl && has_csv_options {
        return Err(Failure::usage(
            "--columns and --escape-formulas are for CSV; leave them out, or add --format csv",
        ));
    }
    let format = options.format();
    format
        .check(options.full)
        .map_err(|error| Failure::usage(error.explanation()))?;
    if options.service.mock.is_some() && !is_standard_output {
        options.check_trial()?;
    }
    let connection = options.service.connect().await?;
    if is_standard_output && options.resume {
        return Err(Failure::usage("--resume needs a FILE that is not -"));
    }
    if is_standard_output && options.at_least > 0 {
        return Err(Failure::usage("--at-least needs a FILE that is not -"));
    }
    let list = options.filter.apply(connection.contacts.list()).patient();
    let before = options.last_record();
    if is_standard_output {
        // A write blocks this task until somebody reads, so another one waits for the signal. Nothing has to be finished.
        tokio::spawn(async move {
            shutdown_signal().await;
            let stopped = Failure::interrupted("interrupted");
            output.failure(&stopped);
            std::process::exit(stopped.exit_code().into());
        });
        return options.write_out(list, format, output).await;
    }
    tokio::select! {
        exported = options.write_file(list, format, before, output) => exported,
        () = shutdown_signal() => {
            clear_progress();
            Err(options.with_hint(Failure::interrupted("interrupted"), before))
        }
    }
}

impl ExportOptions {
    /// Checks that a trial with the mock replaces neither an export of the service nor one that was interrupted.
    fn check_trial(&self) -> Result<(), Failure> {
        let unfinished = [".part", ".cursor"].map(|suffix| with_suffix(&self.file, suffix));
        let mut files = [&self.file].into_iter().chain(&unfinished);
        match files.find(|file| file.exists()) {
            Some(file) => Err(Failure::usage(format!(
                "{} exists, and --mock replaces no file; choose another FILE",
                file.display()
            ))),
            None => Ok(()),
        }
    }

    async fn write_file(
        &self,
        list: ListContacts,
        format: Format,
        before: Option<SystemTime>,
        output: Output,
    ) -> Result<ExitCode, Failure> {
        // Counting is cheap, compared with the retrieve calls.
        let total = match self.full {
            true => format!(" of {}", list.clone().count().no_deadline().await?),
            false => String::new(),
        };
        let mut export = list.export(&self.file, format).at_least(self.at_least);
        if self.full {
            export = export.full();
        }
        if self.resume {
            export = export.resume();
        }
        let mut line = ProgressLine::new();
        let report = export
            .on_progress(move |report| {
                line.show(|| format!("{}{total} contacts", report.contacts()));
            })
            .on_malformed(move |error| left_out(error, output))
            .await;
        clear_progress();
        let report = report.map_err(|error| {
            let failure = Failure::from(error.error());
            // The whole list was read. To continue would find no more contacts.
            let has_too_few = error.report().contacts() < self.at_least;
            if has_too_few
                && error.error().kind() == ErrorKind::Config
                && error.error().source().is_none()
            {
                return failure;
            }
            // It may have stopped before it read how many the file has.
            let failure = match error.report().contacts() {
                0 => failure,
                contacts => failure.note(&format!("{contacts} contacts are written")),
            };
            // If the files do not fit, the same command would fail in the same way.
            let has_written = error.report().contacts() > error.report().resumed();
            match error.error().kind() == ErrorKind::Config && !has_written {
                true => failure,
                false => self.with_hint(failure, before),
            }
        })?;
        let json = json!({
            "contacts": report.contacts(),
            "vanished": report.vanished(),
            "malformed": report.malformed(),
        });
        output.result(&json, |_| self.summary(&report))?;
        Ok(report.report())
    }

    /// Returns when an export to the file last recorded how far it is; `None` if it left nothing to continue.
    fn last_record(&self) -> Option<SystemTime> {
        let record = std::fs::metadata(with_suffix(&self.file, ".cursor"));
        record.and_then(|record| record.modified()).ok()
    }

    /// Adds the command that continues the export, if it has recorded something since `before`. What an earlier export has
    /// left is continued only if the command said so: its contacts may have opted out since then.
    fn with_hint(&self, failure: Failure, before: Option<SystemTime>) -> Failure {
        let last = self.last_record();
        let is_of_this_export = last.is_some() && (self.resume || last != before);
        match self.service.mock.is_none() && is_of_this_export {
            true => failure.note(&format!("to continue: {}", command_to_continue())),
            false => failure,
        }
    }

    fn summary(&self, report: &ExportReport) -> String {
        format!(
            "{}\n{report}\n",
            printable(&self.file.display().to_string())
        )
    }

    /// Writes the contacts to standard output, until nobody reads them any more.
    async fn write_out(
        &self,
        list: ListContacts,
        format: Format,
        output: Output,
    ) -> Result<ExitCode, Failure> {
        let lines = Lines {
            format: format.find_columns(list.clone(), self.full).await?,
            is_terminal: std::io::stdout().is_terminal(),
        };
        let malformed = if print(&lines.header())? {
            match self.full {
                true => write_full(list, &lines, output).await?,
                false => write_pages(list, &lines, output).await?,
            }
        } else {
            0
        };
        Ok(match malformed {
            0 => ExitCode::SUCCESS,
            _ => REFUSED.into(),
        })
    }

    fn kind(&self) -> Kind {
        let extension = self.file.extension();
        let is_jsonl = extension.is_some_and(|extension| extension.eq_ignore_ascii_case("jsonl"));
        let by_name = if is_jsonl { Kind::Jsonl } else { Kind::Csv };
        self.format.unwrap_or(by_name)
    }

    /// Returns the format with the columns that were given, or with all.
    fn format(&self) -> Format {
        if self.kind() == Kind::Jsonl {
            return JsonLines.into();
        }
        let csv = match self.columns.is_empty() {
            true => Csv::all_columns(),
            false => Csv::new(self.columns.clone()),
        };
        match self.escape_formulas {
            true => csv.escape_formulas().into(),
            false => csv.into(),
        }
    }
}

/// The lines that standard output gets. On a terminal, the characters that control it are escaped.
struct Lines {
    format: Format,
    is_terminal: bool,
}

impl Lines {
    fn header(&self) -> String {
        self.shown(self.format.header())
    }

    fn line<'a>(&self, contact: impl Into<ExportedContact<'a>>) -> String {
        self.shown(self.format.line(contact))
    }

    fn shown(&self, line: String) -> String {
        let shown: fn(&str) -> String = match self.format {
            _ if !self.is_terminal => return line,
            Format::JsonLines(_) => printable_json,
            Format::Csv(_) => printable,
        };
        // A line break before the end is in a cell.
        match line.strip_suffix('\n') {
            Some(text) => shown(text) + "\n",
            None => shown(&line),
        }
    }
}

/// Writes the contacts to standard output, and returns how many are malformed.
async fn write_pages(list: ListContacts, lines: &Lines, output: Output) -> Result<u64, Failure> {
    let mut malformed = 0;
    let mut pages = list.large_pages().pages();
    while let Some(page) = poll_fn(|context| Pin::new(&mut pages).poll_next(context)).await {
        let page = page?;
        for (_, error) in page.malformed() {
            malformed += 1;
            left_out(&error, output);
        }
        let text = page.data.iter().map(|contact| lines.line(contact));
        if !print(&text.collect::<String>())? {
            break;
        }
    }
    Ok(malformed)
}

/// Writes each contact in full to standard output, and returns how many are malformed.
async fn write_full(list: ListContacts, lines: &Lines, output: Output) -> Result<u64, Failure> {
    let mut malformed = 0;
    let mut contacts = list.large_pages().full();
    while let Some(contact) = poll_fn(|context| Pin::new(&mut contacts).poll_next(context)).await {
        match contact.and_then(|contact| lines.format.check_contact(contact)) {
            Ok(contact) if !print(&lines.line(&contact))? => break,
            Ok(_) => {}
            Err(error) if error.is_malformed_contact() => {
                malformed += 1;
                left_out(&error, output);
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(malformed)
}

fn left_out(error: &Error, output: Output) {
    output.note(format_args!("left out: {}", with_causes(error)));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contacts::ContactSummary;

    #[test]
    fn a_name_cannot_control_the_terminal_of_an_export_and_is_unchanged_in_a_pipe() {
        let mut ada = ContactSummary::new("c_1", "ada@example.com");
        ada.first_name = Some("A\u{1b}[2J\nd\u{9b}a".to_owned());
        ada.properties.insert("\u{1b}]0;x", 1);
        let formats = [
            Format::from(Csv::new(["first_name", "property:\u{1b}]0;x"])),
            JsonLines.into(),
        ];
        for format in formats {
            let lines = |is_terminal| {
                let format = format.clone();
                let lines = Lines {
                    format,
                    is_terminal,
                };
                lines.header() + &lines.line(&ada)
            };

            let (shown, piped) = (lines(true), lines(false));

            assert_eq!(piped, format.header() + &format.line(&ada));
            let controls = shown.chars().filter(|c| c.is_control() && *c != '\n');
            assert_eq!(controls.count(), 0, "{shown}");
            let count = format.header().lines().count() + 1;
            assert_eq!(
                (shown.lines().count(), shown.ends_with('\n')),
                (count, true)
            );
            match format {
                Format::JsonLines(_) => {
                    let read: ContactSummary = serde_json::from_str(&shown).unwrap();
                    assert_eq!(read, ada);
                }
                Format::Csv(_) => {
                    let row = r#""A\u{1b}[2J\nd\u{9b}a",1"#;
                    assert!(shown.ends_with(&format!("{row}\n")), "{shown}");
                }
            }
        }
    }
}
