//! The programs beside the corpus, for other languages than Rust. Each has a verifier of its own.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use support::deliveries::{self, fixtures};
use support::skip;

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

#[test]
fn the_python_verifier_explains_what_it_cannot_use_and_misses_a_header_without_a_value() {
    let script = r#"
import sys
sys.path.insert(0, sys.argv[1])
from verify import Refused, verify
for secrets, body in [("key", b""), ({"a": b"k"}, b""), ({"a": "k"}, ""), ({}, b""), ({"a": "k\n"}, b"")]:
    try:
        verify(secrets, [], body)
    except (TypeError, ValueError) as error:
        print(error)
try:
    verify({"a": "k"}, {"webhook-signature": None, "webhook-timestamp": None}, b"")
except Refused as refused:
    print(refused.reason)
"#;
    explains_mistakes(Command::new("python3").args(["-B", "-c", script]));
}

#[test]
fn the_javascript_verifier_explains_what_it_cannot_use_and_misses_a_header_without_a_value() {
    let script = r#"
import { pathToFileURL } from "node:url";
const { Refused, verify } = await import(pathToFileURL(`${process.argv[1]}/verify.mjs`));
const bytes = Buffer.from("");
for (const [secrets, body] of [["key", bytes], [{ a: bytes }, bytes], [{ a: "k" }, ""], [{}, bytes], [{ a: "k\n" }, bytes]]) {
  try {
    verify(secrets, [], body);
  } catch (error) {
    if (!(error instanceof Refused)) console.log(error.message);
  }
}
try {
  verify({ a: "k" }, [["webhook-signature", undefined], ["webhook-timestamp", null]], bytes);
} catch (error) {
  if (error instanceof Refused) console.log(error.reason);
}
"#;
    explains_mistakes(Command::new("node").args(["--input-type=module", "--eval", script]));
}

fn explains_mistakes(command: &mut Command) {
    let Ok(output) = command.arg(corpus()).output() else {
        return skip("the mistakes of a caller: the interpreter is not installed");
    };

    let stdout = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<&str> = stdout.lines().collect();
    assert_eq!(lines.len(), 6, "{stdout}{:?}", output.stderr);
    let starts = [
        "the signing secrets must be",
        "the signing secrets must be",
        "the body must be the bytes",
        "there is no signing secret",
        "there is no signing secret",
        "MissingHeader",
    ];
    for (line, start) in lines.iter().zip(starts) {
        assert!(line.starts_with(start), "{stdout}");
    }
}

fn has_every_verdict(interpreter: &str, program: &str) {
    let Some(output) = run(interpreter, program, &[]) else {
        return;
    };

    let stdout = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{stdout}");
    let count = deliveries::all().len();
    let summary = format!("{count} deliveries, 0 with another verdict than expected");
    // Python ends a line with CRLF on Windows.
    assert_eq!(stdout.lines().collect::<Vec<_>>(), [summary]);
}

fn names_a_verdict_that_differs(interpreter: &str, program: &str) {
    let text = fs::read_to_string(corpus().join("window.json")).unwrap();
    let expected = r#"{"status": 401, "error": "TooLate", "seconds_apart": 301}"#;
    let wrong = r#"{"status": 401, "error": "TooEarly", "seconds_apart": 301}"#;
    let changed = scratch_file(program, &text.replacen(expected, wrong, 1));

    let output = run(interpreter, program, &[&changed]);
    fs::remove_file(&changed).unwrap();
    let Some(output) = output else {
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
    // Another run of the tests may read its own at the same time.
    let name = format!("{program}-window-{:016x}.json", fastrand::u64(..));
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    fs::write(&file, text).unwrap();
    file
}
