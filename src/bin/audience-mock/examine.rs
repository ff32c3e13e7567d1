//! `audience-mock examine`: examines a receiver of webhooks.

use std::fs;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use audience::mock::{Check, CheckReport, Examination, Finding, Verdict};
use clap::{Args, ValueEnum};
use quick_junit::{NonSuccessKind, Report, TestCase, TestCaseStatus, TestSuite};

/// The exit status if nothing could be examined, or the report could not be written.
const UNUSABLE: u8 = 2;

#[derive(Args)]
#[command(after_help = EXPLANATION)]
pub(crate) struct ExamineOptions {
    /// URL of the receiver; it has to start with `http://`
    #[arg(value_name = "URL")]
    url: String,
    /// Signing secret of the receiver
    #[arg(long, value_name = "SECRET", allow_hyphen_values = true)]
    #[arg(env = "AUDIENCE_WEBHOOK_SECRET", hide_env_values = true)]
    secret: String,
    /// URL that says how often the application acted on an event: GET URL?event=ID responds with {"count": 1}
    #[arg(long, value_name = "URL")]
    probe: Option<String>,
    /// Seconds that the receiver may take for a response
    #[arg(long, value_name = "SECONDS", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=600))]
    timeout: u64,
    /// Make these checks only; can be repeated
    #[arg(long, value_name = "CHECK", value_delimiter = ',')]
    only: Vec<Check>,
    /// Form of the report
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
    /// Write the report to this file, and the table to standard output
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
}

const EXPLANATION: &str = "\
Sends the receiver about 70 deliveries, genuine and forged, and grades the responses. Examine a receiver of a test system
only: it acts on the genuine events. Their ids start with evt_examine_ and are new each time.

Exit status: 0 if no check failed, 1 if one failed, 2 if the receiver could not be examined.";

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// A table for people, followed by what is wrong and what to do
    Table,
    /// One JSON object
    Json,
    /// JUnit XML, for CI servers
    Junit,
}

/// Examines the receiver, writes the report, and returns the exit status.
pub(crate) async fn examine(options: ExamineOptions) -> ExitCode {
    let mut examination = audience::mock::examine(&options.url, &options.secret)
        .timeout(Duration::from_secs(options.timeout))
        .only(options.only.iter().copied());
    if let Some(probe) = &options.probe {
        examination = examination.probe(probe);
    }
    let examination = examination.await;

    if let Err(problem) = write(&options, &examination) {
        // Nobody reads it if standard error is closed.
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

fn write(options: &ExamineOptions, examination: &Examination) -> Result<(), String> {
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
    fs::write(file, report)
        .map_err(|error| format!("could not write {}: {error}", file.display()))?;
    print(&format!("{examination}\n"))
}

fn print(text: &str) -> Result<(), String> {
    let mut output = std::io::stdout().lock();
    output
        .write_all(text.as_bytes())
        .and_then(|()| output.flush())
        .map_err(|error| format!("could not print the report: {error}"))
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

/// This form has no warnings: they are successes, and their text is in the output of the case.
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
