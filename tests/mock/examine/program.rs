//! `audience-mock examine`.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use audience::mock::Check;
use serde_json::Value;

use super::faulty_receiver::FaultyReceiver;
use super::planted::Planted;
use crate::receiver::SECRET;
use support::{closed_url, has_script, skip};

/// In seconds.
const TIMEOUT: &str = "600";

/// Runs `audience-mock examine` with these arguments and the secret in the environment.
async fn examine(arguments: &[&str]) -> Output {
    let mut command = Command::new(support::examples::program("audience-mock"));
    command
        .arg("examine")
        .args(arguments)
        .env("AUDIENCE_WEBHOOK_SECRET", SECRET)
        // A receiver may be slow, because the machine of the tests is busy.
        .args(["--timeout", TIMEOUT, "--settle", TIMEOUT]);
    tokio::task::spawn_blocking(move || command.output())
        .await
        .unwrap()
        .unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_exit_status_says_whether_the_receiver_passed() {
    let good = FaultyReceiver::start(None).await;
    let bad = FaultyReceiver::start(Some(Planted::IgnoresTheTimestamp)).await;

    let passed = examine(&[&good.url, "--probe", &good.probe]).await;
    let failed = examine(&[&bad.url, "--only", "stale,early"]).await;
    let unreachable = examine(&[&closed_url()]).await;
    let unusable = examine(&["ftp://localhost"]).await;
    let unknown = examine(&[&good.url, "--only", "no-such-check"]).await;

    assert_eq!(passed.status.code(), Some(0), "{}", stdout(&passed));
    assert!(stdout(&passed).contains("PASSED: 35 checks, 35 passed, 0 failed"));
    assert_eq!(failed.status.code(), Some(1), "{}", stdout(&failed));
    assert!(stdout(&failed).contains("accepted a delivery that was signed 301 s ago"));
    assert_eq!(unreachable.status.code(), Some(2));
    assert!(stdout(&unreachable).contains("Nothing listens at"));
    assert_eq!(unusable.status.code(), Some(2));
    assert_eq!(unknown.status.code(), Some(2));
    assert!(stderr(&unknown).contains("invalid value 'no-such-check'"));
    assert!(stderr(&unknown).contains("not-json, slow-body"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_warning_fails_a_strict_examination_and_no_other() {
    let receiver = FaultyReceiver::start(Some(Planted::HasAWideWindow)).await;
    let arguments = [&*receiver.url, "--only", "stale", "--format", "junit"];

    let lenient = examine(&arguments).await;
    let strict = examine(&[&arguments[..], &["--strict"]].concat()).await;

    assert_eq!(lenient.status.code(), Some(0), "{}", stdout(&lenient));
    assert!(stdout(&lenient).contains(r#"failures="0""#));
    assert_eq!(strict.status.code(), Some(1), "{}", stdout(&strict));
    assert!(stdout(&strict).contains(r#"failures="1""#));
    assert!(stderr(&strict).contains("with --strict, a warning is a failure; warnings: 1"));
}

#[tokio::test]
async fn the_checks_are_listed_without_a_receiver_and_without_a_secret() {
    let mut command = Command::new(support::examples::program("audience-mock"));
    command
        .args(["examine", "--list-checks"])
        .env_remove("AUDIENCE_WEBHOOK_SECRET");

    let output = command.output().unwrap();

    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let listed = stdout(&output);
    for (check, line) in Check::ALL.iter().zip(listed.lines()) {
        assert!(line.starts_with(check.name()), "{line}");
        assert!(line.ends_with(check.title()), "{line}");
    }
    assert_eq!(listed.lines().count(), Check::ALL.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn progress_is_shown_on_a_terminal_and_never_in_a_pipe() {
    let receiver = FaultyReceiver::start(None).await;
    let in_a_pipe = examine(&[&receiver.url, "--only", "slow-body"]).await;
    assert_eq!(stderr(&in_a_pipe), "");
    if !has_script() {
        return;
    }
    let program = support::examples::program("audience-mock");
    // On a busy machine, the program may have no time to show its progress.
    for attempt in 1.. {
        let on_a_terminal = Command::new("script")
            .args(["--quiet", "--return", "--command"])
            .arg(format!(
                "{} examine {} --only slow-body --timeout {TIMEOUT}",
                program.display(),
                receiver.url
            ))
            .arg("/dev/null")
            .env("AUDIENCE_WEBHOOK_SECRET", SECRET)
            .stdin(Stdio::null())
            .output()
            .unwrap();

        let shown = stdout(&on_a_terminal);
        assert_eq!(on_a_terminal.status.code(), Some(0), "{shown}");
        // The report stands on a line of its own.
        assert!(shown.contains("\rThe receiver at http://"), "{shown}");
        if shown.contains(" s  slow-body              a body in pieces over 3 s") {
            return;
        }
        assert!(attempt < 5, "{shown}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_report_file_is_written_beside_the_table() {
    let receiver = FaultyReceiver::start(Some(Planted::IgnoresTheTimestamp)).await;
    let junit = file("junit.xml");
    let json = file("report.json");
    let only = "stale,duplicate,not-json";

    for (format, file) in [("junit", &junit), ("json", &json)] {
        let file = file.to_str().unwrap();
        let arguments = ["--only", only, "--format", format, "--output", file];
        let output = examine(&[&[&*receiver.url], &arguments[..]].concat()).await;
        assert_eq!(output.status.code(), Some(1));
        assert!(stdout(&output).starts_with("The receiver at http://127.0.0.1:"));
    }

    let xml = fs::read_to_string(&junit).unwrap();
    assert!(
        xml.contains(r#"tests="4" skipped="1" errors="0" failures="1""#),
        "{xml}"
    );
    assert!(
        xml.contains(r#"<failure message="The receiver accepted a delivery"#),
        "{xml}"
    );
    let report: Value = serde_json::from_slice(&fs::read(&json).unwrap()).unwrap();
    assert_eq!(report["passed"], false);
    for file in [junit, json] {
        fs::remove_file(file).unwrap();
    }
}

#[tokio::test]
async fn a_report_that_cannot_be_written_is_an_error_and_is_printed() {
    let output = examine(&[&closed_url(), "--output", "/no-such-directory/report"]).await;

    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("could not write /no-such-directory"));
    assert!(stdout(&output).starts_with("The receiver at http://"));
}

#[tokio::test]
async fn a_missing_secret_is_a_usage_error() {
    let output = tokio::task::spawn_blocking(|| {
        Command::new(support::examples::program("audience-mock"))
            .args(["examine", "http://127.0.0.1:9/hook"])
            .env_remove("AUDIENCE_WEBHOOK_SECRET")
            .output()
    });
    let output = output.await.unwrap().unwrap();

    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("--secret"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_parser_of_another_language_reads_the_reports() {
    const SCRIPT: &str = r#"
import json, sys, xml.etree.ElementTree as ElementTree
root = ElementTree.parse(sys.argv[1]).getroot()
suite = root.find("testsuite")
cases = suite.findall("testcase")
count = lambda name: sum(case.find(name) is not None for case in cases)
assert root.tag == "testsuites" and root.get("tests") == suite.get("tests") == str(len(cases))
assert root.get("failures") == suite.get("failures") == str(count("failure")) == "2"
assert root.get("errors") == suite.get("errors") == str(count("error")) == "0"
assert suite.get("skipped") == str(count("skipped"))
assert all(case.get("name") and case.get("classname") for case in cases)
report = json.load(open(sys.argv[2]))
assert [case.get("name") for case in cases] == [check["check"] for check in report["checks"]]
verdicts = [check["verdict"] for check in report["checks"]]
assert (verdicts.count("failed"), verdicts.count("not_seen")) == (count("failure"), count("skipped"))
print(len(cases), count("skipped"))
"#;
    let receiver = FaultyReceiver::start(Some(Planted::IgnoresTheTimestamp)).await;
    let files = [file("parsed.xml"), file("parsed.json")];
    for (format, file) in ["junit", "json"].into_iter().zip(&files) {
        let file = file.to_str().unwrap();
        examine(&[&receiver.url, "--format", format, "--output", file]).await;
    }

    let python = Command::new("python3")
        .args(["-c", SCRIPT])
        .args(&files)
        .output();

    let Ok(output) = python else {
        return skip("the reports in Python: python3 is not installed");
    };
    for file in files {
        fs::remove_file(file).unwrap();
    }
    let stderr = String::from_utf8_lossy(&output.stderr);
    // On Windows, it ends with CRLF.
    assert_eq!(stdout(&output).trim_end(), "35 8", "{stderr}");
}

fn file(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("audience-examine-{}-{name}", std::process::id()))
}
