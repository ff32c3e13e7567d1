//! Exports contacts to a file: `cargo run --example export_csv -- FILE [--full] [--resume]`.
//!
//! Set `AUDIENCE_URL` and `AUDIENCE_KEY` to use a service. Without them, the example uses the embedded mock.
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a command-line program prints its messages"
)]

use std::env;
use std::error::Error as StdError;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use audience::Client;
use audience::contacts::{ListContacts, PropertyValue};
use audience::export::{Csv, ExportReport, Format, JsonLines};
use audience::mock::{MockServer, Reason, SeedContact};
use audience::rule::{Condition, Rule};
use clap::{Parser, ValueEnum};
use indicatif::{ProgressBar, ProgressStyle};

/// Exports contacts to a file, as CSV or JSON lines
#[derive(Parser)]
#[command(name = "export_csv", after_help = AFTER_HELP)]
struct Arguments {
    /// Write to this file; until the end, the position is saved in FILE.cursor
    #[arg(default_value_os_t = env::temp_dir().join("audience-export.csv"), hide_default_value = true)]
    file: PathBuf,
    /// Export only contacts in this segment
    #[arg(long, value_name = "ID", conflicts_with = "properties")]
    segment: Option<String>,
    /// Export only contacts with this text in the address or a name
    #[arg(long, value_name = "TEXT")]
    query: Option<String>,
    /// Export only contacts with this property; if given several times, all must match
    #[arg(long = "property", value_name = "NAME=VALUE", value_parser = property)]
    properties: Vec<(String, PropertyValue)>,
    /// Retrieve each contact, to export last names, reasons and topics too
    #[arg(long)]
    full: bool,
    /// Set the format [default: from FILE's extension, otherwise csv]
    #[arg(long, value_name = "FORMAT", value_enum)]
    format: Option<Kind>,
    /// Write these CSV columns, such as `email,first_name,topic:news,plan` [default: all that are found]
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    columns: Vec<String>,
    /// Escape text that a spreadsheet would read as a formula
    #[arg(long)]
    escape_formulas: bool,
    /// Resume an export that was interrupted; an export that finished begins anew
    #[arg(long)]
    resume: bool,
    /// Create N contacts in the embedded mock
    #[arg(long, value_name = "N", default_value_t = 1_000)]
    generate: u32,
    /// Set the port of the embedded mock; 0 chooses a free port
    #[arg(long, value_name = "N", default_value_t = 0)]
    port: u16,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Kind {
    Csv,
    Jsonl,
}

const AFTER_HELP: &str = "\
Environment:
  AUDIENCE_URL  Base URL of the service
  AUDIENCE_KEY  Full-access key

Without the two variables, the example uses the embedded mock. Without FILE, it writes to the folder for temporary files.

Exit status: 0 if all contacts were written, 2 if some are malformed, 1 if the export could not finish.";

#[tokio::main]
async fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => {
            // 2 means that some contacts are malformed.
            error.print().ok();
            return ExitCode::from(u8::from(error.use_stderr()));
        }
    };
    match run(arguments).await {
        Ok(report) if report.is_complete() => ExitCode::SUCCESS,
        Ok(_) => ExitCode::from(2),
        Err(error) => {
            eprint!("export_csv: {error}");
            let mut source = error.source();
            while let Some(error) = source {
                eprint!(": {error}");
                source = error.source();
            }
            eprintln!();
            ExitCode::FAILURE
        }
    }
}

async fn run(arguments: Arguments) -> Result<ExportReport, Box<dyn StdError>> {
    let (client, server) = match (env::var("AUDIENCE_URL"), env::var("AUDIENCE_KEY")) {
        (Ok(url), Ok(key)) => (Client::new(url, key)?, None),
        (Err(_), Err(_)) => {
            let server = start_mock(&arguments).await?;
            eprintln!("AUDIENCE_URL and AUDIENCE_KEY are not set: using the embedded mock");
            (server.client(), Some(server))
        }
        _ => return Err("set both AUDIENCE_URL and AUDIENCE_KEY, or neither".into()),
    };
    tokio::select! {
        exported = export(&client, &arguments) => exported,
        signal = tokio::signal::ctrl_c() => {
            signal?;
            let command = command_to_continue(server.as_ref());
            Err(format!("interrupted; to continue: {command}").into())
        }
    }
}

/// Exports the list, and shows how far it is.
async fn export(client: &Client, arguments: &Arguments) -> Result<ExportReport, Box<dyn StdError>> {
    let list = filtered(client, arguments);
    let format = format(&list, arguments).await?;
    let bar = match arguments.full {
        // Next to the retrieve calls, counting is cheap.
        true => bar(Some(list.clone().count().await?)),
        false => bar(None),
    };

    let mut export = list.export(&arguments.file, format);
    if arguments.full {
        export = export.full();
    }
    if arguments.resume {
        export = export.resume();
    }
    let shown = bar.clone();
    let report = export
        .on_progress(move |report| shown.set_position(report.contacts()))
        .on_malformed(|error| eprintln!("left out: {error}"))
        .await?;

    bar.finish_and_clear();
    println!("{}", arguments.file.display());
    println!(
        "{} exported, {} vanished, {} malformed",
        report.contacts(),
        report.vanished(),
        report.malformed()
    );
    Ok(report)
}

fn filtered(client: &Client, arguments: &Arguments) -> ListContacts {
    let is = |(name, value): &(String, PropertyValue)| Condition::property(name).is(value.clone());
    let mut list = client.contacts().list();
    if let Some(segment) = &arguments.segment {
        list = list.segment(segment);
    }
    if let Some(text) = &arguments.query {
        list = list.query(text);
    }
    if !arguments.properties.is_empty() {
        list = list.rule(Rule::all(arguments.properties.iter().map(is)));
    }
    list
}

/// Returns the format with its columns: those that were given, those of the file to continue, or all that are found.
async fn format(list: &ListContacts, arguments: &Arguments) -> Result<Format, Box<dyn StdError>> {
    let is_jsonl = arguments
        .file
        .extension()
        .is_some_and(|extension| extension == "jsonl");
    let by_name = if is_jsonl { Kind::Jsonl } else { Kind::Csv };
    if arguments.format.unwrap_or(by_name) == Kind::Jsonl {
        return Ok(JsonLines.into());
    }
    let csv = if !arguments.columns.is_empty() {
        Csv::new(&arguments.columns)
    } else if arguments.resume
        && cursor_file(&arguments.file).exists()
        && let Some(csv) = columns_of(&arguments.file, arguments.escape_formulas)
    {
        csv
    } else if arguments.full {
        Csv::find_full_columns(list.clone()).await?
    } else {
        Csv::find_columns(list.clone()).await?
    };
    // The names of properties must not control the terminal.
    let header = csv
        .header()
        .trim_end()
        .replace(char::is_control, "\u{fffd}");
    eprintln!("columns: {header}");
    Ok(match arguments.escape_formulas {
        true => csv.escape_formulas().into(),
        false => csv.into(),
    })
}

/// Returns the path of the cursor file, which exists while the export of the file has not finished.
fn cursor_file(file: &Path) -> PathBuf {
    let mut path = file.as_os_str().to_owned();
    path.push(".cursor");
    path.into()
}

/// Returns the columns that the first line of the file names.
fn columns_of(file: &Path, escape_formulas: bool) -> Option<Csv> {
    let mut reader = csv::Reader::from_path(file).ok()?;
    let header = reader.headers().ok().filter(|header| !header.is_empty())?;
    Some(Csv::new(header.iter().map(|name| {
        let rest = name.strip_prefix('\'').filter(|_| escape_formulas);
        let is_escaped = |rest: &&str| {
            let text = rest.trim_start_matches('\'');
            text.starts_with(['=', '+', '-', '@', '\t', '\r', '\n'])
        };
        rest.filter(is_escaped).unwrap_or(name)
    })))
}

fn bar(total: Option<u64>) -> ProgressBar {
    let (bar, template) = match total {
        Some(total) => (
            ProgressBar::new(total),
            "{wide_bar} {pos}/{len} contacts, {per_sec}, {eta} left",
        ),
        None => (
            ProgressBar::new_spinner(),
            "{spinner} {pos} contacts, {per_sec}",
        ),
    };
    match ProgressStyle::with_template(template) {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}

/// Starts a mock with contacts that differ in everything that an export shows.
async fn start_mock(arguments: &Arguments) -> Result<MockServer, Box<dyn StdError>> {
    let mut builder = MockServer::builder()
        .port(arguments.port)
        .topic("news", true);
    for n in 0..arguments.generate {
        let mut contact = SeedContact::new(format!("contact{n}@example.com"))
            .first_name(format!("Contact {n}"))
            .last_name(format!("of {}", arguments.generate))
            .property("plan", if n % 3 == 0 { "pro" } else { "free" })
            .property("seats", n % 7)
            .created_at(1_600_000_000 + i64::from(n));
        if n % 11 == 0 {
            contact = contact.unsubscribed(Reason::Preferences);
        }
        if n % 5 == 0 {
            contact = contact.answer("news", false);
        }
        builder = builder.seed_contact(contact);
    }
    Ok(builder.try_start().await?)
}

/// Returns the command that continues this export. The embedded mock must have the same port again.
fn command_to_continue(server: Option<&MockServer>) -> String {
    let mut words: Vec<String> = env::args().collect();
    if !words.iter().any(|word| word == "--resume") {
        words.push("--resume".to_owned());
    }
    if let Some(server) = server
        && !words.iter().any(|word| word.starts_with("--port"))
    {
        let url = server.url();
        let port = url.rsplit(':').next().unwrap_or_default();
        words.extend(["--port".to_owned(), port.to_owned()]);
    }
    let quoted = words.iter().map(|word| {
        let is_plain = |letter: char| letter.is_alphanumeric() || "-_./=,:@%+".contains(letter);
        match !word.is_empty() && word.chars().all(is_plain) {
            true => word.clone(),
            false => format!("'{}'", word.replace('\'', r"'\''")),
        }
    });
    quoted.collect::<Vec<_>>().join(" ")
}

/// Parses `NAME=VALUE`. A number is compared as a number.
fn property(text: &str) -> Result<(String, PropertyValue), String> {
    let (name, value) = text.split_once('=').ok_or("write it as NAME=VALUE")?;
    let number = serde_json::from_str::<serde_json::Number>(value).ok();
    let number = number.filter(|number| number.to_string() == value);
    let value = number.map_or_else(|| value.into(), PropertyValue::from);
    Ok((name.to_owned(), value))
}
