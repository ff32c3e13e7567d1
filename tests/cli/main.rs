//! The program `audience`. The tests of its import are in `tests/import`.
#![expect(clippy::unwrap_used, reason = "tests")]

mod contacts;
mod export;
mod help;
#[cfg(target_os = "linux")]
mod http2;
mod inbox;
mod service;
mod sync;
#[cfg(unix)]
mod terminal;
mod webhooks;

use std::ffi::OsStr;
use std::path::PathBuf;
use std::process::{Command, Output};

use audience::mock::MockServer;
use serde_json::Value;
use support::examples::program;

/// Returns the program, without the variables of whoever runs the tests.
fn audience<A: AsRef<OsStr>>(arguments: impl IntoIterator<Item = A>) -> Command {
    let mut command = Command::new(program("audience"));
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("AUDIENCE_") {
            command.env_remove(name);
        }
    }
    command.args(arguments);
    command
}

/// Returns the program for the contacts of a mock.
fn audience_at(server: &MockServer, arguments: &[&str]) -> Command {
    let mut command = audience(arguments);
    command
        .env("AUDIENCE_URL", server.url())
        .env("AUDIENCE_KEY", server.full_key());
    command
}

/// What a command that has ended printed, and its exit status.
#[derive(Debug)]
struct Ended {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

impl Ended {
    fn json(&self) -> Vec<Value> {
        let lines = self.stdout.lines();
        lines
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }
}

/// Runs a command without a terminal, to its end.
fn end(command: &mut Command) -> Ended {
    ended(command.output().unwrap())
}

fn ended(output: Output) -> Ended {
    Ended {
        code: output.status.code(),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

/// A folder of its own for a test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        // Not the process id: it comes again, and a run that was killed has left its files.
        let name = format!("audience-cli-{:016x}-{name}", fastrand::u64(..));
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn file(&self, name: &str, text: impl AsRef<[u8]>) -> String {
        std::fs::write(self.0.join(name), text).unwrap();
        self.path(name)
    }

    fn path(&self, name: &str) -> String {
        self.0.join(name).to_str().unwrap().to_owned()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
