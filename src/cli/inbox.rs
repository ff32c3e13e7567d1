//! The commands for the parked events of an inbox.

use std::fmt;
use std::process::ExitCode;
use std::time::Duration;

#[cfg(feature = "inbox-postgres")]
use clap::Arg;
use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::output::{Failure, NOT_FOUND, Output, ask, json_line, warn};
use crate::ConfigError;
#[cfg(feature = "inbox-postgres")]
use crate::inbox::PostgresStore;
use crate::inbox::from_env::StoreAddress;
use crate::inbox::{Inbox, InboxError, ParkedEvent, StoreError};
use crate::terminal::{Table, print, printable, text};
use crate::webhooks::{Event, EventData, EventId, MailEvent};

#[derive(Args)]
#[command(after_help = "\
The store is the one of the receiver. AUDIENCE_INBOX_URL is its address, or AUDIENCE_INBOX_URL_FILE names a file that
contains the address:
  sqlite:inbox.db, sqlite:/var/lib/app/inbox.db
  postgres://USER:PASSWORD@HOST/DATABASE
  redis://USER:PASSWORD@HOST

Example:
  audience inbox parked --endpoint main")]
pub(super) struct InboxOptions {
    #[command(subcommand)]
    command: InboxCommand,
    /// Name of the endpoint that received the events
    #[arg(long, global = true, value_name = "NAME", default_value = "main")]
    endpoint: String,
}

#[derive(Subcommand)]
enum InboxCommand {
    /// List the events that failed too often: whom they are about, and the reason of the last failure
    #[command(after_help = "\
The address is that of the recipient, or of the sender of a received mail. With --json, each event has its whole body.

Example:
  audience inbox parked --endpoint main")]
    Parked,
    /// Hand parked events to the workers again, after their cause is fixed
    #[command(after_help = "\
Exit status: 4 if an event is not parked.

Example:
  audience inbox replay evt_1 evt_2")]
    Replay(Selection),
    /// Give up parked events: their bodies are deleted, and no worker handles them
    #[command(after_help = "\
Exit status: 4 if an event is not parked.

Example:
  audience inbox discard evt_1")]
    Discard {
        #[command(flatten)]
        events: Selection,
        /// Do not ask before discarding
        #[arg(long, short)]
        yes: bool,
    },
    /// Print the SQL that creates the tables in Postgres and grants the rights, for an administrator
    #[cfg(feature = "inbox-postgres")]
    #[command(after_help = "\
Connects to no database.

Example:
  audience inbox schema --role receiver | psql app")]
    // All endpoints share the tables. As a global option, it would be listed here, too.
    #[command(arg = Arg::new("endpoint").long("endpoint").hide(true))]
    Schema {
        /// Schema for the tables
        #[arg(long, value_name = "NAME", default_value = "public")]
        schema: String,
        /// Role that the receiver connects with
        #[arg(long, value_name = "NAME")]
        role: String,
    },
}

#[derive(Args)]
#[group(required = true, multiple = false)]
struct Selection {
    /// The events with these ids
    #[arg(value_name = "ID")]
    ids: Vec<EventId>,
    /// All parked events of the endpoint
    #[arg(long)]
    all: bool,
}

pub(super) async fn run(options: InboxOptions, output: Output) -> Result<ExitCode, Failure> {
    let open = open(options.endpoint);
    match options.command {
        InboxCommand::Parked => list(&open.await?, output).await,
        InboxCommand::Replay(events) => {
            let inbox = open.await?;
            let ids = events.ids(&inbox, output).await?;
            change(&inbox, &ids, Change::Replay, output).await
        }
        InboxCommand::Discard { events, yes } => {
            let inbox = open.await?;
            let ids = events.ids(&inbox, output).await?;
            if !yes && !ids.is_empty() {
                let what = match &*ids {
                    [id] => format!("discard {id}"),
                    ids => format!("discard {} events", ids.len()),
                };
                ask(
                    &format!("{what}? No worker handles a discarded event."),
                    &format!(
                        "this would {what}; pass --yes, because there is no terminal to ask on"
                    ),
                )?;
            }
            change(&inbox, &ids, Change::Discard, output).await
        }
        #[cfg(feature = "inbox-postgres")]
        InboxCommand::Schema { schema, role } => {
            print(&PostgresStore::schema_for(&schema, &role))?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

/// Opens the inbox of an endpoint, with the store that the environment names.
async fn open(endpoint: String) -> Result<Inbox, Failure> {
    let invalid = |error: ConfigError| Failure::usage(error.to_string());
    let address = StoreAddress::from_env().map_err(invalid)?;
    #[cfg(feature = "inbox-sqlite")]
    if let StoreAddress::Sqlite(file) = &address
        && !std::path::Path::new(file).is_file()
    {
        // To open a file that does not exist would create it.
        return Err(Failure::usage(format!("there is no file {file}")));
    }
    let builder = Inbox::builder(address.open_existing().await?);
    builder.endpoint(endpoint).build().map_err(invalid)
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        Self::causes(&error).code("store")
    }
}

impl From<InboxError> for Failure {
    fn from(error: InboxError) -> Self {
        Self::causes(&error).code("store")
    }
}

async fn list(inbox: &Inbox, output: Output) -> Result<ExitCode, Failure> {
    let mut table = Table::new(&["id", "type", "address", "attempts", "parked_for", "reason"]);
    let mut print_page = |page: &[ParkedEvent]| {
        let mut lines = String::new();
        for event in page {
            let (kind, address) = type_and_address(event).unzip();
            if output.json {
                lines += &json_line(&json!({
                    "id": event.id,
                    "type": kind,
                    "attempts": event.attempts,
                    "parked_for": event.parked_for.as_secs(),
                    "reason": event.reason,
                    "body": event.body.as_deref().map(body),
                }));
            } else {
                table.row([
                    event.id.to_string(),
                    kind.unwrap_or_default(),
                    address.unwrap_or_default(),
                    event.attempts.to_string(),
                    Age(event.parked_for).to_string(),
                    event.reason.clone(),
                ]);
            }
        }
        if !output.json {
            // If there is no event, this is the heading.
            lines = table.take_text();
        }
        Ok(print(&lines)?)
    };
    let mut count = 0;
    let count_and_print = |page: &[ParkedEvent]| {
        count += page.len();
        print_page(page)
    };
    each_page(inbox, count_and_print).await?;
    note_if_none(count, inbox, output);
    Ok(ExitCode::SUCCESS)
}

/// Without it, an empty list would look as if nothing were parked at any endpoint.
fn note_if_none(parked: usize, inbox: &Inbox, output: Output) {
    if parked == 0 && !output.json {
        warn(format_args!(
            "no event is parked at the endpoint {:?}; --endpoint names another one",
            inbox.endpoint()
        ));
    }
}

/// Visits the pages of parked events until a visit returns `false`. The last page is empty.
async fn each_page(
    inbox: &Inbox,
    mut visit: impl FnMut(&[ParkedEvent]) -> Result<bool, Failure>,
) -> Result<(), Failure> {
    let mut page = inbox.parked().await?;
    while visit(&page)?
        && let Some(last) = page.last()
    {
        page = inbox.parked_after(&last.id).await?;
    }
    Ok(())
}

/// Returns the type of an event that was parked with its body, and the address of the person that it is about.
fn type_and_address(event: &ParkedEvent) -> Option<(String, String)> {
    let event = Event::from_unverified_json(event.body.as_ref()?).ok()?;
    let address = match &event.data {
        EventData::Received(mail) => mail.from.clone(),
        EventData::Unknown { data, .. } => text(&data["to"]),
        data => data.mail().map(MailEvent::address).unwrap_or_default(),
    };
    Some((event.event_type().to_string(), address))
}

/// Returns a body as JSON, or as text if it is no JSON.
fn body(bytes: &[u8]) -> Value {
    serde_json::from_slice(bytes).unwrap_or_else(|_| String::from_utf8_lossy(bytes).into())
}

/// How long an event has been parked, for people.
struct Age(Duration);

impl fmt::Display for Age {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0.as_secs();
        match seconds {
            0..60 => write!(f, "{seconds} s"),
            60..3_600 => write!(f, "{} min", seconds / 60),
            3_600..172_800 => write!(f, "{} h", seconds / 3_600),
            _ => write!(f, "{} days", seconds / 86_400),
        }
    }
}

impl Selection {
    /// Returns the ids of the events.
    async fn ids(self, inbox: &Inbox, output: Output) -> Result<Vec<EventId>, Failure> {
        if !self.all {
            return Ok(self.ids);
        }
        let mut ids = Vec::new();
        let add = |page: &[ParkedEvent]| {
            ids.extend(page.iter().map(|event| event.id.clone()));
            Ok(true)
        };
        each_page(inbox, add).await?;
        note_if_none(ids.len(), inbox, output);
        Ok(ids)
    }
}

#[derive(Clone, Copy)]
enum Change {
    Replay,
    Discard,
}

/// Replays or discards events, and prints a line for each.
async fn change(
    inbox: &Inbox,
    ids: &[EventId],
    change: Change,
    output: Output,
) -> Result<ExitCode, Failure> {
    let mut exit_code = ExitCode::SUCCESS;
    for id in ids {
        let (changed, done) = match change {
            Change::Replay => (inbox.replay(id).await, "replayed"),
            Change::Discard => (inbox.discard(id).await, "discarded"),
        };
        let changed = changed.map_err(|error| Failure::from(error).after(id.as_str()))?;
        let status = if changed { done } else { "not parked" };
        output.result(
            &json!({"id": id, "status": status.replace(' ', "_")}),
            |_| printable(&format!("{id}: {status}")) + "\n",
        )?;
        if !changed {
            exit_code = NOT_FOUND.into();
        }
    }
    Ok(exit_code)
}
