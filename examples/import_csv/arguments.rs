//! The command line.

use std::path::PathBuf;

use audience::Error;
use audience::import::Column;
use clap::{Parser, ValueEnum};

/// Imports contacts from a CSV file
#[derive(Parser)]
#[command(name = "import_csv", after_help = AFTER_HELP)]
pub(crate) struct Arguments {
    /// Read this CSV file; its first line names the columns
    pub(crate) file: Option<PathBuf>,
    /// Resume from the journal
    #[arg(long)]
    pub(crate) resume: bool,
    /// Record the finished rows in this file [default: FILE.journal; no journal for a pipe, for the sample file and with
    /// the mock]
    #[arg(long, value_name = "FILE")]
    pub(crate) journal: Option<PathBuf>,
    /// Write the rows that were not applied to this CSV file, so that you can fix and import them
    #[arg(long, value_name = "FILE")]
    pub(crate) rejects: Option<PathBuf>,
    /// Check every row without sending anything
    #[arg(long)]
    pub(crate) dry_run: bool,
    #[arg(long, value_name = "COLUMN=MEMBER", value_parser = parse_map, help = MAP_HELP)]
    pub(crate) map: Vec<(String, Column)>,
    /// Send at most N batches concurrently
    #[arg(long, value_name = "N", default_value_t = 16)]
    pub(crate) concurrency: usize,
    /// Choose what happens if an address already exists [default: upsert]
    #[arg(long)]
    pub(crate) on_conflict: Option<Choice>,
    /// Import N generated contacts instead of a file
    #[arg(long, value_name = "N", conflicts_with = "file")]
    pub(crate) generate: Option<u64>,
}

const MAP_HELP: &str = "\
Map a column to email, first_name, last_name, property:NAME, properties, unsubscribed, subscribed, \
unsubscribe_reason, topic:NAME, topics, on_conflict, key or ignore";

const AFTER_HELP: &str = "\
Environment:
  AUDIENCE_URL  Base URL of the service
  AUDIENCE_KEY  Full-access key

Without FILE, the example imports the sample fixtures/contacts.csv. Without the two variables, it uses the embedded mock.

Exit status: 0 if every row was applied, 2 if some were rejected, 1 if the import could not start or finish.";

#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum Choice {
    Upsert,
    Skip,
    Error,
}

fn parse_map(text: &str) -> Result<(String, Column), String> {
    let (name, member) = text.rsplit_once('=').ok_or("write COLUMN=MEMBER")?;
    let column = member.parse().map_err(|error: Error| error.to_string())?;
    Ok((name.to_owned(), column))
}
