//! Runs the tests of the workspace: the unit tests and the doctests of the crate with every feature, and the packages
//! `audience-tests` and `audience-receivers`. Arguments are passed on, so `cargo test NAME` runs the tests with that name.
//!
//! Cargo would build every feature for `cargo run --example quickstart` if these packages were default members.

use std::process::{Command, ExitCode};

const BINARIES: [&str; 7] = [
    "allocations",
    "client",
    "docs",
    "import",
    "inbox",
    "mock",
    "webhooks",
];

fn main() -> ExitCode {
    let binaries = BINARIES.iter().flat_map(|name| ["--test", name]);
    let tests: Vec<_> = ["--lib", "--bins"].into_iter().chain(binaries).collect();
    let passed = cargo_test(&tests) & cargo_test(&["--doc"]);
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
        .args(std::env::args_os().skip(1))
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .status();
    status.is_ok_and(|status| status.success())
}
