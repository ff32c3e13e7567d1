//! The command line.

use std::path::PathBuf;

use audience::Error;
use audience::import::Column;
use clap::{Parser, ValueEnum};

/// Imports the contacts of a CSV file
#[derive(Parser)]
#[command(name = "import_csv", after_help = AFTER_HELP)]
pub(crate) struct Arguments {
    /// CSV file whose first line names the columns
    pub(crate) file: Option<PathBuf>,
    /// Go on where the journal ends
    #[arg(long)]
    pub(crate) resume: bool,
    /// File that records what is finished [default: FILE.journal; none if FILE is a pipe]
    #[arg(long, value_name = "FILE")]
    pub(crate) journal: Option<PathBuf>,
    /// Write the rows that were not applied to this CSV file, to mend and import it
    #[arg(long, value_name = "FILE")]
    pub(crate) rejects: Option<PathBuf>,
    /// Check every row and send nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    #[arg(long, value_name = "COLUMN=MEMBER", value_parser = parse_map, help = MAP_HELP)]
    pub(crate) map: Vec<(String, Column)>,
    /// Batches in flight at the most
    #[arg(long, value_name = "N", default_value_t = 16)]
    pub(crate) concurrency: usize,
    /// What happens if an address already exists [default: upsert]
    #[arg(long)]
    pub(crate) on_conflict: Option<Choice>,
    /// Import N generated contacts instead of a file
    #[arg(long, value_name = "N", conflicts_with = "file")]
    pub(crate) generate: Option<u64>,
}

const MAP_HELP: &str = "\
Set what a column means: email, first_name, last_name, property:NAME, properties, unsubscribed, subscribed, \
unsubscribe_reason, topic:NAME, topics, on_conflict, key or ignore";

const AFTER_HELP: &str = "\
Environment:
  AUDIENCE_URL  Base URL of the service
  AUDIENCE_KEY  Full-access key

Without FILE, the example uses fixtures/contacts.csv. Without the two variables, it uses the embedded mock. In either
case it writes a journal only for --journal.

Exit status: 0 if every row was applied, 2 if some were refused, 1 if the import could not begin or finish.";

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
