//! Runs the tests of the workspace: the unit tests and the doctests of the crate with every feature, and the packages
//! `audience-tests` and `audience-receivers`. Arguments are passed on, so `cargo test NAME` runs the tests with that name.
//!
//! Cargo would build every feature for `cargo run --example quickstart` if these packages were default members.

use std::env;
use std::io::{self, BufRead, BufReader, IsTerminal, Write};
use std::process::{ChildStdout, Command, ExitCode, Stdio};

/// Set for the Cargo that this test runs, since this is one of the tests of the workspace.
const INNER: &str = "AUDIENCE_INNER_CARGO_TEST";

fn main() -> ExitCode {
    if env::var_os(INNER).is_some() {
        return ExitCode::SUCCESS;
    }
    // Cargo prints the name of each binary before it runs.
    let runs = [
        cargo_test(&["--lib", "--bins", "--tests"]),
        cargo_test(&["--doc"]),
    ];
    if runs.iter().all(|run| run.passed) {
        return ExitCode::SUCCESS;
    }
    for run in runs {
        print(run.failures.as_bytes());
    }
    ExitCode::FAILURE
}

struct Run {
    passed: bool,
    /// What the binaries printed about the tests that failed. Empty on a terminal.
    failures: String,
}

fn cargo_test(targets: &[&str]) -> Run {
    let mut command = Command::new(env!("CARGO"));
    command
        .args(["test", "--locked", "--workspace", "--no-fail-fast"])
        .args(targets)
        .arg("--")
        .args(env::args_os().skip(1))
        .env(INNER, "")
        .current_dir(env!("CARGO_MANIFEST_DIR"));
    // On a terminal, the tests print in colors.
    if !io::stdout().is_terminal() {
        command.stdout(Stdio::piped());
    }
    let mut cargo = command.spawn().expect("cargo runs");
    let failures = cargo.stdout.take().map(print_and_keep_failures);
    let status = cargo.wait();
    Run {
        passed: status.is_ok_and(|status| status.success()),
        failures: failures.unwrap_or_default(),
    }
}

/// Prints everything. Returns what each binary prints about its failures: a log of thousands of tests is often cut in its
/// middle, so they are repeated at its end.
fn print_and_keep_failures(output: ChildStdout) -> String {
    let mut failures = String::new();
    let mut failing = false;
    for mut line in BufReader::new(output).split(b'\n').map_while(Result::ok) {
        line.push(b'\n');
        print(&line);
        let line = String::from_utf8_lossy(&line);
        failing |= line == "failures:\n";
        if failing {
            failures.push_str(&line);
        }
        failing &= !line.starts_with("test result:");
    }
    failures
}

fn print(text: &[u8]) {
    // Whoever reads may be gone.
    let _ = io::stdout().write_all(text);
}
