//! Runs the tests of the workspace: the unit tests and the doctests of the crate with every feature, and the packages
//! `audience-tests` and `audience-receivers`. Arguments are passed on, so `cargo test NAME` runs the tests with that name.
//!
//! Cargo would build every feature for `cargo run --example quickstart` if these packages were default members.

use std::env;
use std::process::{Command, ExitCode};

/// Set for the Cargo that this test runs, since this is one of the tests of the workspace.
const INNER: &str = "AUDIENCE_INNER_CARGO_TEST";

fn main() -> ExitCode {
    if env::var_os(INNER).is_some() {
        return ExitCode::SUCCESS;
    }
    // Cargo prints the name of each binary before it runs.
    let passed = cargo_test(&["--lib", "--bins", "--tests"]) & cargo_test(&["--doc"]);
    if passed {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

fn cargo_test(targets: &[&str]) -> bool {
    let status = Command::new(env!("CARGO"))
        .args(["test", "--locked", "--workspace", "--no-fail-fast"])
        .args(targets)
        .arg("--")
        .args(env::args_os().skip(1))
        .env(INNER, "")
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .status();
    status.is_ok_and(|status| status.success())
}
