//! The commands: most of them control a running mock, and one examines a receiver.

use std::future::IntoFuture as _;
use std::io::{IsTerminal as _, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, CommandFactory as _, Subcommand, ValueEnum};
use clap_complete::Shell;
use http::Method;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use quick_junit::{NonSuccessKind, Report, TestCase, TestCaseStatus, TestSuite};
use serde_json::{Map, Value, json};
use tokio::sync::watch;

use super::Options;
use super::lists::{
    self, AttemptsOptions, ContactsOptions, EmailsOptions, EndpointsOptions, EventsOptions,
    RequestsOptions, attempts_table, event_types, show,
};
use super::target::{Output, Target};
use crate::Timestamp;
use crate::mock::{
    Check, CheckReport, DeliveryFault, Examination, ExamineReceiver, Fault, Finding, Verdict,
};
use crate::terminal::{Table, print, printable, printable_json, text};

#[derive(Subcommand)]
pub(super) enum Command {
    /// Send an event to every endpoint, and show how each responded
    SendEvent(SendEventOptions),
    /// Deliver an event once more to every endpoint, and show how each responded
    Resend(ResendOptions),
    /// Show or move the clock
    Clock(ClockOptions),
    /// Make requests to the mock fail
    Fault(FaultOptions),
    /// Make deliveries of events go wrong
    DeliveryFault(DeliveryFaultOptions),
    /// List the contacts, newest first
    Contacts(ContactsOptions),
    /// List the mail that was sent, oldest first
    Emails(EmailsOptions),
    /// List, add or remove the endpoints that events are delivered to
    Endpoints(EndpointsOptions),
    /// List the events, oldest first
    Events(EventsOptions),
    /// List the attempts to deliver events, oldest first
    Attempts(AttemptsOptions),
    /// List the requests that the mock received, oldest first, and why it refused them
    Requests(RequestsOptions),
    /// Reset the mock to its initial state
    Reset(Target),
    /// Add the content of a seed file
    Seed(SeedOptions),
    /// Print the JSON Schema of a seed file
    Schema,
    /// Print a script that completes the commands and options of this program in a shell
    Completions {
        /// Complete for this shell
        #[arg(value_name = "SHELL")]
        shell: Shell,
    },
    /// Examine a webhook receiver: send it genuine and forged deliveries, and grade the responses
    Examine(ExamineOptions),
}

/// Runs a command, and returns the exit status.
///
/// # Errors
///
/// Fails if no mock listens, if it refuses the call, or if the result cannot be printed.
pub(super) async fn run(command: Command) -> Result<ExitCode, String> {
    match command {
        Command::SendEvent(options) => send_event(options).await?,
        Command::Resend(options) => resend(options).await?,
        Command::Clock(options) => clock(options).await?,
        Command::Fault(options) => fault(options).await?,
        Command::DeliveryFault(options) => delivery_fault(options).await?,
        Command::Contacts(options) => lists::contacts(options).await?,
        Command::Emails(options) => lists::emails(options).await?,
        Command::Endpoints(options) => lists::endpoints(options).await?,
        Command::Events(options) => lists::events(options).await?,
        Command::Attempts(options) => lists::attempts(options).await?,
        Command::Requests(options) => lists::requests(options).await?,
        Command::Reset(target) => {
            let response = target.url.call(Method::POST, "reset", None).await?;
            Output::new(target.json).done(&response, "the mock has its initial state")?;
        }
        Command::Seed(options) => seed(options).await?,
        Command::Schema => {
            print(include_str!("../../../fixtures/mock/seed.schema.json"))?;
        }
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Options::command(), "audience-mock", &mut script);
            print(&String::from_utf8_lossy(&script))?;
        }
        Command::Examine(options) => return examine(options).await,
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
    // The call has waited for the first attempts.
    let id = sent["id"].as_str().unwrap_or_default();
    show_attempts(&options.target, id, 0).await
}

/// Prints the attempts to deliver an event whose number is above `earlier`.
async fn show_attempts(target: &Target, id: &str, earlier: u64) -> Result<(), String> {
    let log = target.url.call(Method::GET, "attempts", None).await?;
    let all = log["data"].as_array().map_or(&[][..], Vec::as_slice);
    let attempts: Vec<&Value> = all
        .iter()
        .filter(|attempt| attempt["event_id"] == id && attempt["number"].as_u64() > Some(earlier))
        .collect();

    let text = if attempts.is_empty() {
        without_attempt(target, id).await?
    } else {
        attempts_table(attempts.iter().copied()).text()
    };
    Output::new(target.json).result(&json!({"id": id, "attempts": attempts}), |_| text)
}

/// Returns why no attempt to deliver an event has been made.
async fn without_attempt(target: &Target, id: &str) -> Result<String, String> {
    let endpoints = target.url.call(Method::GET, "endpoints", None).await?;
    let has_endpoint = endpoints["data"]
        .as_array()
        .is_some_and(|list| !list.is_empty());
    Ok(if has_endpoint {
        format!("no attempt to deliver {id} has been made yet; a delivery fault may hold it back\n")
    } else {
        format!(
            "{id} was sent to no endpoint; add one with --webhook, a seed, or `audience-mock endpoints add`\n"
        )
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
        Ok(_) => Err("the value is not a JSON object".into()),
        Err(error) => Err(format!("the value is not JSON: {error}")),
    }
}

#[derive(Args)]
pub(super) struct ResendOptions {
    /// Deliver the event with this id
    #[arg(value_name = "EVENT")]
    event: String,
    #[command(flatten)]
    target: Target,
}

async fn resend(options: ResendOptions) -> Result<(), String> {
    let url = &options.target.url;
    let log = url.call(Method::GET, "attempts", None).await?;
    let numbers = log["data"].as_array().into_iter().flatten();
    let last = numbers
        .filter_map(|attempt| attempt["number"].as_u64())
        .max();
    let id = utf8_percent_encode(&options.event, NON_ALPHANUMERIC);
    let path = format!("events/{id}/redeliver");
    url.call(Method::POST, &path, None).await?;
    // The call has waited for its attempts. The earlier ones would look like its result.
    show_attempts(&options.target, &options.event, last.unwrap_or_default()).await
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

/// Parses Unix seconds, or a time of RFC 3339, and returns Unix seconds.
///
/// # Errors
///
/// Fails if the text has neither form. The message names both.
pub(super) fn time(text: &str) -> Result<i64, String> {
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
    change: Option<FaultChange>,
    #[command(flatten)]
    fault: Fault,
    #[command(flatten)]
    target: Target,
}

#[derive(Args)]
#[command(subcommand_negates_reqs = true)]
pub(super) struct DeliveryFaultOptions {
    #[command(subcommand)]
    change: Option<FaultChange>,
    #[command(flatten)]
    fault: Option<DeliveryFault>,
    #[command(flatten)]
    target: Target,
}

/// The commands for faults that were added before.
#[derive(Subcommand)]
enum FaultChange {
    /// List the faults, oldest first, with their numbers
    List,
    /// Remove one fault
    Remove {
        /// Remove the fault with this number, which the list shows
        #[arg(value_name = "NUMBER")]
        number: u64,
    },
    /// Remove all faults
    Clear,
}

async fn fault(options: FaultOptions) -> Result<(), String> {
    let fault = Some(json!(options.fault)).filter(|fault| *fault != json!({}));
    change_faults(&options.target, "faults", options.change, fault).await
}

async fn delivery_fault(options: DeliveryFaultOptions) -> Result<(), String> {
    let fault = options.fault.map(|fault| json!(fault));
    change_faults(&options.target, "delivery-faults", options.change, fault).await
}

/// Adds a fault, or lists or removes the faults that were added.
async fn change_faults(
    target: &Target,
    list: &str,
    change: Option<FaultChange>,
    fault: Option<Value>,
) -> Result<(), String> {
    let output = Output::new(target.json);
    let Some(change) = change else {
        let fault = fault.unwrap_or_default().to_string();
        let added = target.url.call(Method::POST, list, Some(fault.into()));
        return output.done(&added.await?, "the fault was added");
    };
    if fault.is_some() {
        return Err(
            "`list`, `remove` and `clear` add no fault; leave out the other options".into(),
        );
    }
    match change {
        FaultChange::List => {
            let faults = target.url.call(Method::GET, list, None).await?;
            show(target, &faults, "there are no faults", faults_table)
        }
        FaultChange::Remove { number } => {
            let path = format!("{list}/{number}");
            let removed = target.url.call(Method::DELETE, &path, None).await?;
            output.done(&removed, "the fault was removed")
        }
        FaultChange::Clear => {
            let cleared = target.url.call(Method::DELETE, list, None).await?;
            output.done(&cleared, "there are no faults")
        }
    }
}

fn faults_table(faults: &[Value]) -> Table {
    let mut table = Table::new(&["number", "fault"]);
    for fault in faults {
        let mut members = fault.clone();
        let number = members["number"].take();
        if let Some(members) = members.as_object_mut() {
            members.remove("number");
        }
        table.row([text(&number), members.to_string()]);
    }
    table
}

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
    let url = &options.target.url;
    let response = url.call(Method::POST, "seed", Some(seed.into())).await?;
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

/// The exit status if nothing could be examined, or the report could not be written.
const UNUSABLE: u8 = 2;

#[derive(Args)]
#[command(after_help = EXPLANATION)]
pub(super) struct ExamineOptions {
    /// Examine the receiver at this URL, which must start with `http://`
    #[arg(value_name = "URL", required_unless_present = "list_checks")]
    url: Option<String>,
    /// Sign deliveries with this secret of a test; other users of the machine can see arguments, but not the variable
    #[arg(long, value_name = "SECRET", allow_hyphen_values = true)]
    #[arg(required_unless_present = "list_checks")]
    #[arg(env = "AUDIENCE_WEBHOOK_SECRET", hide_env_values = true)]
    secret: Option<String>,
    /// Read from this URL how often the application acted on an event: GET URL?event=ID returns {"count": 1}
    #[arg(long, value_name = "URL")]
    probe: Option<String>,
    /// Set the response timeout, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=600))]
    timeout: u64,
    /// Set how long the application may take, after the last delivery, to act on what it accepted, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 5, value_parser = clap::value_parser!(u64).range(..=86_400))]
    settle: u64,
    /// Run only these checks; can be repeated, and --list-checks prints their names
    #[arg(long, value_name = "CHECK", value_delimiter = ',', value_parser = check_parser())]
    #[arg(hide_possible_values = true)]
    only: Vec<Check>,
    /// Print the name and the meaning of each check, and examine nothing
    #[arg(long)]
    list_checks: bool,
    /// Let a warning fail the examination
    #[arg(long)]
    strict: bool,
    /// Set the report format
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
    /// Write the report to this file, and the table to standard output
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
}

const EXPLANATION: &str = "\
Sends about 90 genuine and forged deliveries to the receiver, and explains for each mistake why it matters and how to
fix it. With --probe, it sends 130 more. Run it only against a test system: the receiver acts on the genuine events.
Their ids start with evt_examine_ and are new in each run. The report cites sections of docs/interface.md.

Exit status: 0 if no check failed, 1 if a check failed, 2 if the receiver could not be examined. With --strict, a
warning counts as a failure. A check that was not seen never does.";

/// Parses the name of a check. An error lists all names.
fn check_parser() -> impl TypedValueParser<Value = Check> {
    PossibleValuesParser::new(Check::ALL.iter().map(|check| check.name()))
        .try_map(|name| name.parse::<Check>())
}

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
async fn examine(options: ExamineOptions) -> Result<ExitCode, String> {
    if options.list_checks {
        let checks = Check::ALL.iter();
        let lines = checks.map(|check| format!("{check:<CHECK_WIDTH$}  {}\n", check.title()));
        return print(&lines.collect::<String>()).map(|_| ExitCode::SUCCESS);
    }
    let url = options.url.as_deref().unwrap_or_default();
    let secret = options.secret.as_deref().unwrap_or_default();
    let mut examination = crate::mock::examine(url, secret)
        .timeout(Duration::from_secs(options.timeout))
        .settle(Duration::from_secs(options.settle))
        .only(options.only.iter().copied());
    if let Some(probe) = &options.probe {
        examination = examination.probe(probe);
    }
    let examination = if std::io::stderr().is_terminal() {
        with_progress(examination).await
    } else {
        examination.await
    };

    if let Err(problem) = write_report(&options, &examination) {
        complain(&problem);
        return Ok(UNUSABLE.into());
    }
    if !examination.reached() {
        return Ok(UNUSABLE.into());
    }
    let warnings = examination.with_verdict(Verdict::Warning).count();
    Ok(if !examination.passed() {
        ExitCode::FAILURE
    } else if options.strict && warnings > 0 {
        complain(&format!(
            "with --strict, a warning is a failure; warnings: {warnings}"
        ));
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    })
}

fn complain(problem: &str) {
    // Fails only if standard error is closed. Then the exit status is all that is left.
    let problem = printable(problem);
    let _ = writeln!(std::io::stderr(), "audience-mock: {problem}");
}

/// The longest name of a check.
const CHECK_WIDTH: usize = 21;
/// How often the progress is written.
const REDRAW: Duration = Duration::from_millis(200);
/// The width of the line of the progress. A character is left for the cursor.
const LINE: usize = 79;

/// Runs an examination. Shows on standard error for how long it has run, and which check started last.
async fn with_progress(examination: ExamineReceiver) -> Examination {
    let (sender, current) = watch::channel(Check::Genuine);
    let examination = examination.on_start(move |check| {
        sender.send_replace(check);
    });
    let started = Instant::now();
    let show = |line: &str| {
        // It is not important enough to fail.
        let _ = write!(std::io::stderr(), "\r{line:<LINE$}\r");
    };
    let mut examination = pin!(examination.into_future());
    let mut redraw = tokio::time::interval(REDRAW);
    loop {
        tokio::select! {
            examination = &mut examination => {
                show("");
                return examination;
            }
            _ = redraw.tick() => {
                let (check, seconds) = (*current.borrow(), started.elapsed().as_secs());
                show(&format!("{seconds:>3} s  {check:<CHECK_WIDTH$}  {}", check.title()));
            }
        }
    }
}

fn write_report(options: &ExamineOptions, examination: &Examination) -> Result<(), String> {
    let report = match options.format {
        Format::Table => format!("{examination}\n"),
        Format::Json => {
            let json = serde_json::to_string_pretty(examination);
            json.map_err(|error| format!("could not write the report as JSON: {error}"))? + "\n"
        }
        Format::Junit => junit(examination, options.strict)
            .to_string()
            .map_err(|error| format!("could not write the report as JUnit XML: {error}"))?,
    };
    let Some(file) = &options.output else {
        let report = match options.format {
            Format::Json => printable_json(&report),
            Format::Table | Format::Junit => report,
        };
        return print(&report).map(drop);
    };
    let written = std::fs::write(file, report);
    // First, so that a file that cannot be written loses nothing.
    print(&format!("{examination}\n"))?;
    written.map_err(|error| format!("could not write {}: {error}", file.display()))
}

/// Turns the report into a test suite with a test case for each check.
fn junit(examination: &Examination, strict: bool) -> Report {
    let mut suite = TestSuite::new(format!("receiver {}", examination.url()));
    for report in examination.checks() {
        let mut case = TestCase::new(report.check.name(), status(report, strict));
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

/// JUnit XML has no warnings, so a warning becomes a success with its text in the output of the case, or a failure.
fn status(report: &CheckReport, strict: bool) -> TestCaseStatus {
    let is_failure = |verdict| verdict == Verdict::Failed || strict && verdict == Verdict::Warning;
    match report.verdict {
        verdict if is_failure(verdict) => {
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
