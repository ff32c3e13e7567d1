//! The commands that talk to a running mock.

use std::io::{ErrorKind, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use audience::Timestamp;
use audience::mock::Fault;
use bytes::Bytes;
use clap::{Args, Subcommand};
use http::Method;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Map, Value, json};

use crate::control_plane::MockUrl;
use crate::examine::{ExamineOptions, examine};

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Send an event to every endpoint, and show how each responded
    SendEvent(SendEventOptions),
    /// Show the clock, or move it
    Clock(ClockOptions),
    /// Let the next requests to the mock fail
    Fault(FaultOptions),
    /// List the events, oldest first
    Events(Target),
    /// List the attempts to deliver events, oldest first
    Attempts(Target),
    /// List the requests that the mock received, oldest first, and why it refused some
    Requests(Target),
    /// Go back to the state that the mock was started with
    Reset(Target),
    /// Add the content of a seed file
    Seed(SeedOptions),
    /// Print the JSON Schema of a seed file
    Schema,
    /// Examine a receiver of webhooks: send it deliveries, genuine and forged, and grade the responses
    Examine(ExamineOptions),
}

/// The mock that a command talks to, and how it prints the response.
#[derive(Args)]
pub(crate) struct Target {
    /// URL of the mock
    #[arg(
        long,
        global = true,
        value_name = "URL",
        default_value = "http://127.0.0.1:4010"
    )]
    #[arg(env = "AUDIENCE_MOCK_URL")]
    url: MockUrl,
    /// Print JSON
    #[arg(long, global = true)]
    json: bool,
}

/// Runs a command, and returns the exit status.
///
/// # Errors
///
/// Fails if no mock listens, if it refuses the call, or if the result cannot be printed.
pub(crate) async fn run(command: Command) -> Result<ExitCode, String> {
    match command {
        Command::SendEvent(options) => send_event(options).await?,
        Command::Clock(options) => clock(options).await?,
        Command::Fault(options) => fault(options).await?,
        Command::Events(target) => events(&target).await?,
        Command::Attempts(target) => attempts(&target).await?,
        Command::Requests(target) => requests(&target).await?,
        Command::Reset(target) => {
            let response = target.url.call(Method::POST, "reset", None).await?;
            Output::new(target.json).done(&response, "the mock is as it was started")?;
        }
        Command::Seed(options) => seed(options).await?,
        Command::Schema => {
            print(include_str!("../../../fixtures/mock/seed.schema.json"))?;
        }
        Command::Examine(options) => return Ok(examine(options).await),
    }
    Ok(ExitCode::SUCCESS)
}

#[derive(Args)]
pub(crate) struct SendEventOptions {
    /// Type of the event, such as email.bounced
    #[arg(value_name = "TYPE")]
    event_type: String,
    /// Recipient of the mail that the event is about
    #[arg(long, value_name = "ADDRESS")]
    to: Option<String>,
    /// A mail that was sent through this mock: the event happens to it, as if the mailbox provider had reported it
    #[arg(long, value_name = "ID")]
    email_id: Option<String>,
    /// Members of `data`, as a JSON object; the others get plausible values
    #[arg(long, value_name = "JSON", value_parser = object)]
    data: Option<Map<String, Value>>,
    #[command(flatten)]
    target: Target,
}

/// Sends an event, and prints its first attempts.
async fn send_event(options: SendEventOptions) -> Result<(), String> {
    let url = &options.target.url;
    let (path, body) = options.call();
    let sent = url
        .call(Method::POST, &path, Some(body.to_string().into()))
        .await?;
    let id = sent["id"].as_str().unwrap_or_default().to_owned();
    let log = url.call(Method::GET, "attempts", None).await?;
    let all = log["data"].as_array().map_or(&[][..], Vec::as_slice);
    let attempts: Vec<&Value> = all
        .iter()
        .filter(|attempt| attempt["event_id"] == id.as_str())
        .collect();

    let result = json!({"id": id, "attempts": attempts});
    Output::new(options.target.json).result(&result, |_| {
        if attempts.is_empty() {
            return format!("{id} was sent to no endpoint; add one with --webhook, a seed, or PUT /_mock/endpoints/NAME\n");
        }
        attempts_table(attempts.iter().copied()).text()
    })
}

impl SendEventOptions {
    /// Returns the path and the body of the call.
    fn call(&self) -> (String, Value) {
        let mut data = self.data.clone().unwrap_or_default();
        if let Some(id) = &self.email_id {
            let id = utf8_percent_encode(id, NON_ALPHANUMERIC);
            let mut body = json!({"type": self.event_type, "data": data});
            if let Some(to) = &self.to {
                body["to"] = to.as_str().into();
            }
            return (format!("emails/{id}/outcome"), body);
        }
        if let Some(to) = &self.to {
            // Mail that was received can have several recipients (interface section 6.4).
            let to = match self.event_type.as_str() {
                "email.received" => json!([to]),
                _ => json!(to),
            };
            data.insert("to".to_owned(), to);
        }
        (
            "events".to_owned(),
            json!({"type": self.event_type, "data": data}),
        )
    }
}

fn object(text: &str) -> Result<Map<String, Value>, String> {
    match serde_json::from_str(text) {
        Ok(Value::Object(members)) => Ok(members),
        Ok(_) => Err("it is not a JSON object".into()),
        Err(error) => Err(format!("it is not JSON: {error}")),
    }
}

#[derive(Args)]
pub(crate) struct ClockOptions {
    #[command(subcommand)]
    to: Option<Move>,
    #[command(flatten)]
    target: Target,
}

#[derive(Subcommand)]
enum Move {
    /// Move the clock forward; what is due on the way happens in order
    Advance {
        /// How far, such as 90s, 5h, 1h30m or 2d
        #[arg(value_name = "DURATION", value_parser = seconds)]
        by: u64,
    },
    /// Set the clock
    Set {
        /// Unix time in seconds, or a time such as 2030-01-31T12:00:00Z
        #[arg(value_name = "TIME", value_parser = time, allow_negative_numbers = true)]
        to: i64,
    },
}

/// Shows the clock, or moves it and shows it when everything due on the way has happened.
async fn clock(options: ClockOptions) -> Result<(), String> {
    let url = &options.target.url;
    let response = match options.to {
        None => url.call(Method::GET, "clock", None).await?,
        Some(to) => {
            let body = match to {
                Move::Advance { by } => json!({"advance": by}),
                Move::Set { to } => json!({"set": to}),
            };
            url.call(Method::POST, "clock", Some(body.to_string().into()))
                .await?
        }
    };
    Output::new(options.target.json).result(&response, |response| {
        let now = response["now"].as_i64().unwrap_or_default();
        format!("{now}  {}\n", Timestamp::from_unix(now))
    })
}

fn time(text: &str) -> Result<i64, String> {
    if let Ok(seconds) = text.parse() {
        return Ok(seconds);
    }
    let time: Timestamp = text.parse().map_err(|error| {
        format!("it is neither Unix seconds nor a time such as 2030-01-31T12:00:00Z: {error}")
    })?;
    Ok(time.as_unix())
}

/// The units and their seconds.
const UNITS: [(&str, u64); 5] = [
    ("w", 604_800),
    ("d", 86_400),
    ("h", 3_600),
    ("m", 60),
    ("s", 1),
];

/// Parses a duration and returns its seconds.
///
/// # Errors
///
/// Fails if the text has another form, or if the duration is too long. The message names the form.
fn seconds(text: &str) -> Result<u64, String> {
    let form = "it is not a duration such as 90s, 5h, 1h30m or 2d";
    if let Ok(seconds) = text.parse() {
        return Ok(seconds);
    }
    let mut rest = text;
    let mut total = 0_u64;
    while !rest.is_empty() {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let (number, after) = rest.split_at(digits);
        let number: u64 = number.parse().map_err(|_| form)?;
        let (unit, length) = UNITS
            .iter()
            .find(|(unit, _)| after.starts_with(unit))
            .ok_or(form)?;
        total = number
            .checked_mul(*length)
            .and_then(|seconds| total.checked_add(seconds))
            .ok_or("it is too long")?;
        rest = &after[unit.len()..];
    }
    if text.is_empty() {
        Err(form.into())
    } else {
        Ok(total)
    }
}

#[derive(Args)]
#[command(subcommand_negates_reqs = true)]
pub(crate) struct FaultOptions {
    #[command(subcommand)]
    clear: Option<Clear>,
    #[command(flatten)]
    fault: Fault,
    #[command(flatten)]
    target: Target,
}

#[derive(Subcommand)]
enum Clear {
    /// Remove all faults
    Clear,
}

/// Adds a fault, or removes all.
async fn fault(options: FaultOptions) -> Result<(), String> {
    let target = &options.target;
    let output = Output::new(target.json);
    let fault = json!(options.fault);
    if let Some(Clear::Clear) = options.clear {
        if fault != json!({}) {
            return Err("`fault clear` removes all faults; leave out the other options".into());
        }
        let response = target.url.call(Method::DELETE, "faults", None).await?;
        return output.done(&response, "there are no faults");
    }
    let body = fault.to_string().into();
    let response = target.url.call(Method::POST, "faults", Some(body)).await?;
    output.done(&response, "the fault was added")
}

/// Some editors and shells begin a file with it.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

#[derive(Args)]
pub(crate) struct SeedOptions {
    /// JSON file with topics, contacts and more; - reads standard input
    #[arg(value_name = "FILE")]
    file: PathBuf,
    #[command(flatten)]
    target: Target,
}

/// Sends a seed to the mock.
async fn seed(options: SeedOptions) -> Result<(), String> {
    let seed = read(&options.file)
        .map_err(|error| format!("could not read the seed {:?}: {error}", options.file))?;
    let seed = Bytes::from(seed);
    let seed = match seed.strip_prefix(BYTE_ORDER_MARK) {
        Some(json) => seed.slice_ref(json),
        None => seed,
    };
    let url = &options.target.url;
    let response = url.call(Method::POST, "seed", Some(seed)).await?;
    Output::new(options.target.json).done(&response, "the mock has the seed")
}

fn read(file: &Path) -> std::io::Result<Vec<u8>> {
    if file.as_os_str() != "-" {
        return std::fs::read(file);
    }
    let mut seed = Vec::new();
    std::io::stdin().lock().read_to_end(&mut seed)?;
    Ok(seed)
}

/// Lists the events.
async fn events(target: &Target) -> Result<(), String> {
    list(target, "events", "there are no events", |events| {
        let mut table = Table::new(&["id", "type", "created", "to"]);
        for event in events {
            let to = event.pointer("/data/to").unwrap_or(&Value::Null);
            table.row([
                text(&event["id"]),
                text(&event["type"]),
                readable(&event["created_at"]),
                text(to),
            ]);
        }
        table
    })
    .await
}

/// Lists the delivery attempts.
async fn attempts(target: &Target) -> Result<(), String> {
    list(target, "attempts", "there are no attempts", |attempts| {
        attempts_table(attempts)
    })
    .await
}

/// Returns a table of delivery attempts.
fn attempts_table<'a>(attempts: impl IntoIterator<Item = &'a Value>) -> Table {
    let mut table = Table::new(&[
        "event", "attempt", "at", "result", "next", "fault", "endpoint",
    ]);
    for attempt in attempts {
        let result = match &attempt["status"] {
            Value::Null => text(&attempt["error"]),
            status => text(status),
        };
        table.row([
            text(&attempt["event_id"]),
            text(&attempt["attempt"]),
            readable(&attempt["at"]),
            result,
            readable(&attempt["next_at"]),
            text(&attempt["fault"]),
            text(&attempt["endpoint"]),
        ]);
    }
    table
}

/// Lists the requests.
async fn requests(target: &Target) -> Result<(), String> {
    list(target, "requests", "there are no requests", |requests| {
        let mut table = Table::new(&["method", "path", "status", "reason"]);
        for request in requests {
            let path = match request["query"].as_str() {
                None => text(&request["path"]),
                Some(query) => format!("{}?{query}", text(&request["path"])),
            };
            table.row([
                text(&request["method"]),
                path,
                text(&request["status"]),
                text(&request["reason"]),
            ]);
        }
        table
    })
    .await
}

async fn list(
    target: &Target,
    path: &str,
    empty: &str,
    table: impl FnOnce(&[Value]) -> Table,
) -> Result<(), String> {
    let response = target.url.call(Method::GET, path, None).await?;
    Output::new(target.json).result(&response, |response| {
        match response["data"].as_array().map(Vec::as_slice) {
            None | Some([]) => format!("{empty}\n"),
            Some(data) => table(data).text(),
        }
    })
}

/// Returns a JSON value as a cell: text without quotation marks, and nothing for `null`.
fn text(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        Value::Array(values) => values.iter().map(text).collect::<Vec<_>>().join(", "),
        other => other.to_string(),
    }
}

/// Returns Unix seconds as a readable time.
fn readable(value: &Value) -> String {
    value.as_i64().map_or_else(String::new, |seconds| {
        Timestamp::from_unix(seconds).to_string()
    })
}

/// How results are printed.
#[derive(Clone, Copy)]
struct Output {
    json: bool,
}

impl Output {
    fn new(json: bool) -> Self {
        Self { json }
    }

    /// Prints a result: its JSON, or its text.
    ///
    /// # Errors
    ///
    /// Fails if standard output cannot be written.
    fn result(self, json: &Value, text: impl FnOnce(&Value) -> String) -> Result<(), String> {
        if self.json {
            print(&format!("{json:#}\n"))
        } else {
            print(&text(json))
        }
    }

    /// Prints that something was done. As JSON, that is an empty object unless the response has more.
    ///
    /// # Errors
    ///
    /// Fails if standard output cannot be written.
    fn done(self, response: &Value, text: &str) -> Result<(), String> {
        let empty = Value::Object(Map::new());
        let json = if response.is_null() { &empty } else { response };
        self.result(json, |_| format!("{text}\n"))
    }
}

/// Prints text to standard output. A reader that stops reading, such as `head`, is not an error.
///
/// # Errors
///
/// Fails if standard output cannot be written.
fn print(text: &str) -> Result<(), String> {
    let mut stdout = std::io::stdout().lock();
    match stdout
        .write_all(text.as_bytes())
        .and_then(|()| stdout.flush())
    {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(format!("could not print the result: {error}"))
        }
        _ => Ok(()),
    }
}

/// Rows with the same number of cells, under a heading.
struct Table {
    /// The widest cell of each column, in characters.
    widths: Vec<usize>,
    rows: Vec<Vec<String>>,
}

impl Table {
    fn new(heading: &[&str]) -> Self {
        let mut table = Self {
            widths: vec![0; heading.len()],
            rows: Vec::new(),
        };
        table.row(heading.iter().map(|name| (*name).to_owned()));
        table
    }

    /// Adds a row. An empty cell is shown as `-`.
    fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        let cells: Vec<String> = cells.into_iter().map(|cell| shown(&cell)).collect();
        for (width, cell) in self.widths.iter_mut().zip(&cells) {
            *width = (*width).max(cell.chars().count());
        }
        self.rows.push(cells);
    }

    /// Returns the lines. The last column is not padded.
    fn text(&self) -> String {
        let mut text = String::new();
        for row in &self.rows {
            let mut line = String::new();
            for (width, cell) in self.widths.iter().zip(row) {
                line += cell;
                let padding = width - cell.chars().count() + 2;
                line.extend(std::iter::repeat_n(' ', padding));
            }
            text += line.trim_end();
            text.push('\n');
        }
        text
    }
}

/// Returns a cell as a terminal can show it: one line without control characters, not too long.
fn shown(cell: &str) -> String {
    const MAX_CHARACTERS: usize = 100;
    let mut shown = String::new();
    for (index, character) in cell.chars().enumerate() {
        if index == MAX_CHARACTERS {
            shown.push('…');
            break;
        }
        if character.is_control() {
            shown.extend(character.escape_debug());
        } else {
            shown.push(character);
        }
    }
    if shown.is_empty() {
        "-".to_owned()
    } else {
        shown
    }
}
