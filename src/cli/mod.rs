//! Contacts, lists and webhooks from a shell.
//!
//! ```text
//! audience contacts show ada@example.com
//! audience import list.csv --rejects rejects.csv
//! ```

mod contacts;
#[cfg(any(
    feature = "inbox-sqlite",
    feature = "inbox-postgres",
    feature = "inbox-redis"
))]
mod inbox;
mod lists;
mod output;
mod webhooks;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{Args, CommandFactory as _, Parser, Subcommand};
use clap_complete::Shell;

use self::contacts::ContactsOptions;
#[cfg(any(
    feature = "inbox-sqlite",
    feature = "inbox-postgres",
    feature = "inbox-redis"
))]
use self::inbox::InboxOptions;
use self::lists::{ExportOptions, ImportOptions, SyncOptions};
use self::output::{Failure, Output};
use self::webhooks::WebhooksOptions;
use crate::client::key_from_env;
use crate::contacts::Contacts;
use crate::mock::MockServer;
use crate::terminal::print;
use crate::{Auth, Client, Error};

/// Runs the program `audience` with the arguments and variables of this process.
#[must_use]
pub fn main() -> ExitCode {
    let options = match Options::try_parse() {
        Ok(options) => options,
        Err(error) if error.use_stderr() && asks_for_json() => {
            let failure = misuse(error.kind());
            Output::new(true).failure(&failure);
            return failure.exit_code().into();
        }
        Err(error) => error.exit(),
    };
    let output = Output::new(options.json);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build();
    let result = match runtime {
        Ok(runtime) => {
            let result = runtime.block_on(run(options.command, output));
            // To drop it would wait for each look-up of a host name that has timed out, before the error is printed.
            runtime.shutdown_background();
            result
        }
        Err(error) => Err(Failure::failed(format!(
            "could not start a runtime: {error}"
        ))),
    };
    result.unwrap_or_else(|failure| {
        output.failure(&failure);
        failure.exit_code().into()
    })
}

/// Returns whether the arguments have `--json`, although they could not be read.
fn asks_for_json() -> bool {
    let mut options = std::env::args_os().take_while(|word| word != "--");
    options.any(|word| word == "--json")
}

/// Returns the failure for arguments that could not be read. It quotes none of them, because it may be kept in a log.
fn misuse(kind: ErrorKind) -> Failure {
    let problem = kind.as_str().unwrap_or("a subcommand is missing");
    Failure::usage(problem).note("without --json, the message names the argument")
}

async fn run(command: Command, output: Output) -> Result<ExitCode, Failure> {
    match command {
        Command::Contacts(options) => contacts::run(options, output).await,
        Command::Import(options) => lists::import(options, output).await,
        Command::Sync(options) => lists::sync(options, output).await,
        Command::Export(options) => lists::export(options, output).await,
        Command::Webhooks(options) => webhooks::run(options, output).await,
        #[cfg(any(
            feature = "inbox-sqlite",
            feature = "inbox-postgres",
            feature = "inbox-redis"
        ))]
        Command::Inbox(options) => inbox::run(options, output).await,
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Options::command(), NAME, &mut script);
            print(&String::from_utf8_lossy(&script))?;
            Ok(ExitCode::SUCCESS)
        }
        Command::Man { folder } => man(folder.as_deref()),
    }
}

const NAME: &str = "audience";

/// Manage contacts and lists, and test webhooks
#[derive(Parser)]
#[command(name = NAME, version, after_help = AFTER_HELP, arg_required_else_help = true)]
struct Options {
    #[command(subcommand)]
    command: Command,
    /// Print one JSON object per line instead of a table, and errors and notes as JSON objects; a note has the member
    /// `note`
    #[arg(long, global = true)]
    json: bool,
}

const AFTER_HELP: &str = "\
Environment:
  AUDIENCE_URL                      Base URL of the service
  AUDIENCE_KEY                      Full-access key
  AUDIENCE_KEY_FILE                 File that contains the key, instead of AUDIENCE_KEY
  AUDIENCE_AUTH_HEADER              Header for the bare key, instead of `Authorization: Bearer`
  AUDIENCE_WEBHOOK_SECRET           Signing secret of a webhook endpoint
  AUDIENCE_WEBHOOK_SECRET_FILE      File that contains the secret, instead of AUDIENCE_WEBHOOK_SECRET
  AUDIENCE_WEBHOOK_SECRET_OLD       Old signing secret while it is changed, which is accepted, too
  AUDIENCE_WEBHOOK_SECRET_OLD_FILE  File that contains the old secret, instead of AUDIENCE_WEBHOOK_SECRET_OLD
  AUDIENCE_INBOX_URL                Address of the store of an inbox, if this program was built with a store
  AUDIENCE_INBOX_URL_FILE           File that contains the address, instead of AUDIENCE_INBOX_URL

A key or a secret is never an argument, because other users of the machine can see arguments.

Exit status:
  0    Everything was done
  1    It failed, and somebody has to look at it, also if a file does not fit the options
  2    The command line or a variable is invalid
  3    It is done, but rows or contacts were refused or left out, or an erased contact was only emptied
  4    The contact, topic or segment does not exist, or the event is not parked
  75   It failed, and running it again may help
  130  Ctrl-C ended it at a question, before the work began, or in a command for one contact
  143  SIGTERM or Ctrl-C stopped it

Example:
  audience contacts list --mock";

#[derive(Subcommand)]
enum Command {
    /// Show, create, change, list, unsubscribe and erase contacts
    Contacts(ContactsOptions),
    /// Import contacts from a CSV file of any size
    Import(ImportOptions),
    /// Keep contacts in step with a table, from a CSV file
    Sync(SyncOptions),
    /// Export contacts to a file, as CSV or JSON lines
    Export(ExportOptions),
    /// Verify, diagnose and send webhook deliveries
    Webhooks(WebhooksOptions),
    /// List, replay and discard the webhook events that failed too often
    #[cfg(any(
        feature = "inbox-sqlite",
        feature = "inbox-postgres",
        feature = "inbox-redis"
    ))]
    Inbox(InboxOptions),
    /// Print a script that completes the commands and options of this program in a shell
    #[command(after_help = "\
Example:
  audience completions bash > ~/.local/share/bash-completion/completions/audience")]
    Completions {
        /// Complete for this shell
        #[arg(value_name = "SHELL")]
        shell: Shell,
    },
    /// Print the manual page of this program, or write the pages of all commands to a folder
    #[command(after_help = "Example:\n  audience man | man -l -")]
    Man {
        /// Write a page for each command to this folder
        #[arg(value_name = "FOLDER")]
        folder: Option<PathBuf>,
    },
}

fn man(folder: Option<&Path>) -> Result<ExitCode, Failure> {
    if let Some(folder) = folder {
        clap_mangen::generate_to(Options::command(), folder).map_err(|error| {
            Failure::failed(format!("could not write to {}: {error}", folder.display()))
        })?;
    } else {
        let mut page = Vec::new();
        clap_mangen::Man::new(Options::command())
            .render(&mut page)
            .map_err(|error| Failure::failed(format!("could not write the page: {error}")))?;
        print(&String::from_utf8_lossy(&page))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The service that a command calls.
#[derive(Args)]
struct Service {
    /// Call the service at this base URL
    #[arg(
        long,
        global = true,
        value_name = "URL",
        env = "AUDIENCE_URL",
        hide_env_values = true
    )]
    url: Option<String>,
    /// Send the bare key in this header [default: `Authorization: Bearer`]
    #[arg(long, global = true, value_name = "NAME", env = "AUDIENCE_AUTH_HEADER")]
    auth_header: Option<String>,
    /// Call a service at `http://` on another machine, although the key travels in clear text
    #[arg(long, global = true)]
    allow_http: bool,
    /// Call a mock in this program instead of the service; it starts with a seed file, or without contacts
    #[arg(long, global = true, value_name = "SEED", num_args = 0..=1, require_equals = true)]
    mock: Option<Option<PathBuf>>,
}

/// The contacts of a service. The mock lives as long as this value.
struct Connection {
    contacts: Contacts,
    server: Option<MockServer>,
}

impl Service {
    /// # Errors
    ///
    /// Fails if a variable is missing or invalid, or if the mock does not start.
    async fn connect(&self) -> Result<Connection, Failure> {
        if let Some(seed) = &self.mock {
            let mut builder = MockServer::builder();
            if let Some(seed) = seed {
                builder = builder.seed_file(seed);
            }
            let server = builder.try_start().await;
            let server = server.map_err(|error| Failure::causes(&error))?;
            let contacts = server.client().contacts();
            let server = Some(server);
            return Ok(Connection { contacts, server });
        }
        let is_set = |text: &str| !text.trim().is_empty();
        let url = self.url.as_deref().filter(|url| is_set(url));
        let url = url.ok_or_else(|| {
            Failure::usage(
                "set AUDIENCE_URL to the base URL of the service and AUDIENCE_KEY to its key, or try --mock",
            )
        })?;
        let invalid = |error: Error| Failure::usage(crate::causes::with_causes(&error));
        let mut builder = Client::builder(url, key_from_env().map_err(invalid)?);
        if let Some(name) = self.auth_header.as_deref().filter(|name| is_set(name)) {
            builder = builder.auth(Auth::header(name));
        }
        if self.allow_http {
            builder = builder.allow_http();
        }
        let client = builder.clone().build().map_err(|error| {
            let failure = invalid(error);
            match builder.allow_http().build() {
                Ok(_) => failure.note("--allow-http allows it"),
                Err(_) => failure,
            }
        })?;
        Ok(Connection {
            contacts: client.contacts(),
            server: None,
        })
    }

    /// Returns the name of the service whose contacts would be changed, for a question.
    fn name(&self) -> &str {
        self.url.as_deref().unwrap_or("the service")
    }
}

/// The question that is asked before more than one contact is changed.
#[derive(Args)]
struct Confirmation {
    /// Do not ask before changing more than one contact
    #[arg(long, short)]
    yes: bool,
}

impl Confirmation {
    /// Returns whether a question is asked.
    fn asks(&self, service: &Service) -> bool {
        !self.yes && service.mock.is_none()
    }

    /// Asks whether to continue, if more than one contact would be changed. `None` is a number that is not known yet.
    ///
    /// # Errors
    ///
    /// Fails if the person says no, or if there is no terminal to ask on.
    fn ask(
        &self,
        count: impl FnOnce() -> Result<Option<u64>, Failure>,
        service: &Service,
    ) -> Result<(), Failure> {
        self.ask_with_opt_outs(count, || None, service)
    }

    /// Asks as [`ask`](Self::ask) does, and says how many of the changes are opt-outs of everything: a number or `all`.
    fn ask_with_opt_outs(
        &self,
        count: impl FnOnce() -> Result<Option<u64>, Failure>,
        opt_outs: impl FnOnce() -> Option<String>,
        service: &Service,
    ) -> Result<(), Failure> {
        if !self.asks(service) {
            return Ok(());
        }
        let count = count()?;
        if count.is_some_and(|count| count <= 1) {
            return Ok(());
        }
        let contacts = count.map_or_else(
            || "an unknown number of contacts".to_owned(),
            |count| format!("{count} contacts"),
        );
        let mut change = format!("change {contacts} at {}", service.name());
        if let Some(opt_outs) = opt_outs() {
            change = format!("{change}, and opt {opt_outs} of them out of everything");
        }
        output::ask(
            &format!("{change}?"),
            &format!("this would {change}; pass --yes, because there is no terminal to ask on"),
        )
    }
}

/// The question that is asked before an opt-in is recorded.
#[derive(Args)]
struct OptInConfirmation {
    /// Do not ask whether the person asked for the opt-in
    #[arg(long, short)]
    yes: bool,
}

impl OptInConfirmation {
    /// Returns whether a question is asked.
    fn asks(&self, service: &Service) -> bool {
        !self.yes && service.mock.is_none()
    }

    /// Asks whether the person asked for the opt-in.
    ///
    /// # Errors
    ///
    /// Fails if the person says no, or if there is no terminal to ask on.
    fn ask(&self, address: &str, topic: Option<&str>, service: &Service) -> Result<(), Failure> {
        if !self.asks(service) {
            return Ok(());
        }
        let topic = topic.map_or_else(String::new, |topic| format!(" to {topic}"));
        let change = format!("subscribe {address}{topic} at {}", service.name());
        output::ask(
            &format!("{change}: did they ask for it?"),
            &format!(
                "this would {change}; if they asked for it, pass --yes, because there is no terminal to ask on"
            ),
        )
    }
}
