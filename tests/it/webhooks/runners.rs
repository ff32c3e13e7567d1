//! The programs beside the corpus, for other languages than Rust. Each has a verifier of its own.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use super::deliveries::{self, fixtures};
use crate::support::skip;

#[test]
fn the_python_verifier_has_the_expected_verdict_for_every_delivery() {
    has_every_verdict("python3", "verify.py");
}

#[test]
fn the_python_runner_fails_and_names_the_delivery_if_a_verdict_differs() {
    names_a_verdict_that_differs("python3", "verify.py");
}

#[test]
fn the_javascript_verifier_has_the_expected_verdict_for_every_delivery() {
    has_every_verdict("node", "verify.mjs");
}

#[test]
fn the_javascript_runner_fails_and_names_the_delivery_if_a_verdict_differs() {
    names_a_verdict_that_differs("node", "verify.mjs");
}

fn has_every_verdict(interpreter: &str, program: &str) {
    let Some(output) = run(interpreter, program, &[]) else {
        return;
    };

    let stdout = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{stdout}");
    let count = deliveries::all().len();
    let summary = format!("{count} deliveries, 0 with another verdict than expected\n");
    assert_eq!(stdout, summary);
}

fn names_a_verdict_that_differs(interpreter: &str, program: &str) {
    let text = fs::read_to_string(corpus().join("window.json")).unwrap();
    let expected = r#"{"status": 401, "error": "TooLate", "seconds_apart": 301}"#;
    let wrong = r#"{"status": 401, "error": "TooEarly", "seconds_apart": 301}"#;
    let changed = scratch_file(program, &text.replacen(expected, wrong, 1));

    let Some(output) = run(interpreter, program, &[&changed]) else {
        return;
    };

    let stdout = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(1), "{stdout}");
    assert!(stdout.contains(": 301 s old is late"), "{stdout}");
    assert!(stdout.contains(", 1 with another verdict"), "{stdout}");
}

/// Runs a program of the corpus, or says that it cannot.
fn run(interpreter: &str, program: &str, arguments: &[&Path]) -> Option<Output> {
    let run = Command::new(interpreter)
        .arg(corpus().join(program))
        .args(arguments)
        .output();
    if run.is_err() {
        skip(&format!("{program}: {interpreter} is not installed"));
    }
    run.ok()
}

fn corpus() -> PathBuf {
    let file = fixtures("webhooks").pop().unwrap();
    file.parent().unwrap().to_owned()
}

fn scratch_file(program: &str, text: &str) -> PathBuf {
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{program}-window.json"));
    fs::write(&file, text).unwrap();
    file
}
