//! The commands: most of them control a running mock, and one examines a receiver.

use std::io::{ErrorKind, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::str::FromStr;
use std::time::Duration;

use bytes::Bytes;
use clap::builder::PossibleValuesParser;
use clap::{Args, Subcommand, ValueEnum};
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use http_body_util::Full;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use quick_junit::{NonSuccessKind, Report, TestCase, TestCaseStatus, TestSuite};
use serde_json::{Map, Value, json};

use crate::Timestamp;
use crate::mock::http::{self as client, HttpUrl, error_chain};
use crate::mock::{Check, CheckReport, Examination, Fault, Finding, Verdict};
use crate::webhooks::EventType;

#[derive(Subcommand)]
pub(super) enum Command {
    /// Send an event to every endpoint, and show how each responded
    SendEvent(SendEventOptions),
    /// Show or move the clock
    Clock(ClockOptions),
    /// Make requests to the mock fail
    Fault(FaultOptions),
    /// List the events, oldest first
    Events(Target),
    /// List the attempts to deliver events, oldest first
    Attempts(Target),
    /// List the requests that the mock received, oldest first, and why it refused them
    Requests(Target),
    /// Reset the mock to its initial state
    Reset(Target),
    /// Add the content of a seed file
    Seed(SeedOptions),
    /// Print the JSON Schema of a seed file
    Schema,
    /// Examine a webhook receiver: send it genuine and forged deliveries, and grade the responses
    Examine(ExamineOptions),
}

/// The mock that a command controls, and how it prints the response.
#[derive(Args)]
pub(super) struct Target {
    /// Control the mock at this URL
    #[arg(
        long,
        global = true,
        value_name = "URL",
        default_value = "http://127.0.0.1:4010"
    )]
    #[arg(env = "AUDIENCE_MOCK_URL")]
    url: MockUrl,
    /// Print JSON instead of a table
    #[arg(long, global = true)]
    json: bool,
}

/// Runs a command, and returns the exit status.
///
/// # Errors
///
/// Fails if no mock listens, if it refuses the call, or if the result cannot be printed.
pub(super) async fn run(command: Command) -> Result<ExitCode, String> {
    match command {
        Command::SendEvent(options) => send_event(options).await?,
        Command::Clock(options) => clock(options).await?,
        Command::Fault(options) => fault(options).await?,
        Command::Events(target) => events(&target).await?,
        Command::Attempts(target) => attempts(&target).await?,
        Command::Requests(target) => requests(&target).await?,
        Command::Reset(target) => {
            let response = target.url.call(Method::POST, "reset", None).await?;
            Output::new(target.json).done(&response, "the mock has its initial state")?;
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
pub(super) struct SendEventOptions {
    /// Send an event of this type; POST /_mock/events also sends other types
    #[arg(value_name = "TYPE", value_parser = event_types())]
    event_type: String,
    /// Set the recipient of the mail that the event is about
    #[arg(long, value_name = "ADDRESS")]
    to: Option<String>,
    /// Report the event for this mail, which was sent through the mock
    #[arg(long, value_name = "ID")]
    email_id: Option<String>,
    /// Set members of `data` from this JSON object; the mock fills in the others
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
    // The call before this one has waited for the first attempts.
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

/// Accepts the types of the interface: a misspelled type would be delivered, but nothing would handle it.
fn event_types() -> PossibleValuesParser {
    EventType::KNOWN.iter().map(EventType::as_str).into()
}

fn object(text: &str) -> Result<Map<String, Value>, String> {
    match serde_json::from_str(text) {
        Ok(Value::Object(members)) => Ok(members),
        Ok(_) => Err("the value is not a JSON object".into()),
        Err(error) => Err(format!("the value is not JSON: {error}")),
    }
}

#[derive(Args)]
pub(super) struct ClockOptions {
    #[command(subcommand)]
    to: Option<Move>,
    #[command(flatten)]
    target: Target,
}

#[derive(Subcommand)]
enum Move {
    /// Move the clock forward; everything that becomes due happens in order
    Advance {
        /// Move it by this duration, such as 90s, 5h, 1h30m or 2d
        #[arg(value_name = "DURATION", value_parser = seconds)]
        by: u64,
    },
    /// Set the clock
    Set {
        /// Set it to this time: Unix seconds, or a time such as 2030-01-31T12:00:00Z
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
        format!(
            "the value is neither Unix seconds nor a time such as 2030-01-31T12:00:00Z: {error}"
        )
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
    let form = "the value is not a duration such as 90s, 5h, 1h30m or 2d";
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
            .ok_or("the duration is too long")?;
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
pub(super) struct FaultOptions {
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
pub(super) struct SeedOptions {
    /// Read topics, contacts and more from this JSON file; - reads standard input
    #[arg(value_name = "FILE")]
    file: PathBuf,
    #[command(flatten)]
    target: Target,
}

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

async fn attempts(target: &Target) -> Result<(), String> {
    list(target, "attempts", "there are no attempts", |attempts| {
        attempts_table(attempts)
    })
    .await
}

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

/// The exit status if nothing could be examined, or the report could not be written.
const UNUSABLE: u8 = 2;

#[derive(Args)]
#[command(after_help = EXPLANATION)]
pub(super) struct ExamineOptions {
    /// Examine the receiver at this URL, which must start with `http://`
    #[arg(value_name = "URL")]
    url: String,
    /// Sign deliveries with this secret
    #[arg(long, value_name = "SECRET", allow_hyphen_values = true)]
    #[arg(env = "AUDIENCE_WEBHOOK_SECRET", hide_env_values = true)]
    secret: String,
    /// Read from this URL how often the application acted on an event: GET URL?event=ID returns {"count": 1}
    #[arg(long, value_name = "URL")]
    probe: Option<String>,
    /// Set the response timeout, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=600))]
    timeout: u64,
    /// Run only these checks; can be repeated
    #[arg(long, value_name = "CHECK", value_delimiter = ',')]
    only: Vec<Check>,
    /// Set the report format
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
    /// Write the report to this file, and the table to standard output
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
}

const EXPLANATION: &str = "\
Sends about 70 genuine and forged deliveries to the receiver, and explains for each mistake why it matters and how to
fix it. Run it only against a test system: the receiver acts on the genuine events. Their ids start with evt_examine_
and are new in each run. The report cites sections of docs/interface.md.

Exit status: 0 if no check failed, 1 if a check failed, 2 if the receiver could not be examined.";

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// Print a table, then each mistake and how to fix it
    Table,
    /// Print one JSON object
    Json,
    /// Print JUnit XML, for CI servers
    Junit,
}

/// Examines the receiver, writes the report, and returns the exit status.
async fn examine(options: ExamineOptions) -> ExitCode {
    let mut examination = crate::mock::examine(&options.url, &options.secret)
        .timeout(Duration::from_secs(options.timeout))
        .only(options.only.iter().copied());
    if let Some(probe) = &options.probe {
        examination = examination.probe(probe);
    }
    let examination = examination.await;

    if let Err(problem) = write_report(&options, &examination) {
        // Fails only if standard error is closed. Then the exit status is all that is left.
        let _ = writeln!(std::io::stderr(), "audience-mock: {problem}");
        return UNUSABLE.into();
    }
    if !examination.reached() {
        UNUSABLE.into()
    } else if examination.passed() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

fn write_report(options: &ExamineOptions, examination: &Examination) -> Result<(), String> {
    let report = match options.format {
        Format::Table => format!("{examination}\n"),
        Format::Json => {
            let json = serde_json::to_string_pretty(examination);
            json.map_err(|error| format!("could not write the report as JSON: {error}"))? + "\n"
        }
        Format::Junit => junit(examination)
            .to_string()
            .map_err(|error| format!("could not write the report as JUnit XML: {error}"))?,
    };
    let Some(file) = &options.output else {
        return print(&report);
    };
    std::fs::write(file, report)
        .map_err(|error| format!("could not write {}: {error}", file.display()))?;
    print(&format!("{examination}\n"))
}

/// Turns the report into a test suite with a test case for each check.
fn junit(examination: &Examination) -> Report {
    let mut suite = TestSuite::new(format!("receiver {}", examination.url()));
    for report in examination.checks() {
        let mut case = TestCase::new(report.check.name(), status(report));
        case.set_classname("audience-mock.examine");
        let mut text = format!("{}: {}", report.check.title(), report.observed);
        for finding in &report.findings {
            text.push_str("\n\n");
            text.push_str(&explain(finding));
        }
        case.set_system_out(text);
        suite.add_test_case(case);
    }
    let mut report = Report::new("audience-mock examine");
    report.add_test_suite(suite);
    report
}

/// JUnit XML has no warnings, so a warning becomes a success with its text in the output of the case.
fn status(report: &CheckReport) -> TestCaseStatus {
    match report.verdict {
        Verdict::Failed => {
            let mut status = TestCaseStatus::non_success(NonSuccessKind::Failure);
            if let Some(finding) = report.findings.first() {
                status.set_message(finding.problem.as_str());
                let all: Vec<_> = report.findings.iter().map(explain).collect();
                status.set_description(all.join("\n\n"));
            }
            status
        }
        Verdict::NotSeen => {
            let mut status = TestCaseStatus::skipped();
            status.set_message(report.observed.as_str());
            status
        }
        _ => TestCaseStatus::success(),
    }
}

fn explain(finding: &Finding) -> String {
    format!(
        "{}\nWhy it matters: {}\nWhat to do: {}",
        finding.problem, finding.reason, finding.remedy
    )
}

/// The URL of a mock, such as `http://127.0.0.1:4010`.
#[derive(Clone, Debug)]
struct MockUrl(HttpUrl);

impl FromStr for MockUrl {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let url = HttpUrl::parse(text)?;
        if url.path_and_query != "/" {
            return Err("the URL has a path; leave it out".into());
        }
        Ok(Self(url))
    }
}

impl MockUrl {
    /// Calls a path below `/_mock/`, and returns the JSON of the response. `Null` if it has none.
    ///
    /// # Errors
    ///
    /// Fails if no mock listens there, or if it refuses the call. The message has the reason.
    async fn call(&self, method: Method, path: &str, body: Option<Bytes>) -> Result<Value, String> {
        let response = self.send(method, path, body).await?;
        let status = response.status();
        if status == StatusCode::NO_CONTENT {
            return Ok(Value::Null);
        }
        let json = serde_json::from_slice::<Value>(response.body()).ok();
        let refusal = json
            .as_ref()
            .and_then(|json| json.pointer("/error/message"))
            .and_then(Value::as_str);
        match (status.is_success(), json.as_ref(), refusal) {
            (true, Some(json), _) => Ok(json.clone()),
            (false, _, Some(refusal)) => Err(format!("the mock refused this: {refusal}")),
            _ => Err(format!(
                "http://{} responded with status {status}, but not as a mock does; is it another program?",
                self.0.authority
            )),
        }
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        body: Option<Bytes>,
    ) -> Result<http::Response<Bytes>, String> {
        let mut headers = HeaderMap::new();
        if body.is_some() {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        }
        let url = HttpUrl {
            path_and_query: format!("/_mock/{path}"),
            ..self.0.clone()
        };
        let request = url
            .request(method, headers, Full::new(body.unwrap_or_default()))
            .map_err(|error| format!("could not send the request: {error}"))?;
        let authority = &url.authority;
        let stream = url.connect().await.map_err(|error| {
            format!(
                "no mock listens at http://{authority}: {error}; start one with `audience-mock`, or choose another with --url"
            )
        })?;
        client::exchange(stream, request, usize::MAX, usize::MAX)
            .await
            .map_err(|error| {
                format!(
                    "http://{authority} did not respond as a mock does: {}",
                    error_chain(&*error)
                )
            })
    }
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
