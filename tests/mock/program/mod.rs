//! The program `audience-mock`: its options, its log, its commands and its seed files.

mod commands;
mod log;
mod options;
mod other_languages;
mod seed_schema;
mod serving;

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use serde_json::Value;
use support::PATIENCE;

use crate::server::seed_files::file;

const SECRET: &str = "6Jm0nFq2pXvZk4Tt";

/// Returns the program, without the variables of whoever runs the tests.
fn program() -> Command {
    let mut command = Command::new(support::examples::program("audience-mock"));
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("AUDIENCE_MOCK_") {
            command.env_remove(name);
        }
    }
    command
}

/// Runs the program to its end.
fn run(arguments: &[&str]) -> Output {
    program()
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

/// Runs the program, which must end with this exit status. Returns what it printed to standard error.
fn fails_with(code: i32, arguments: &[&str]) -> String {
    let output = run(arguments);
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {error}");
    assert!(output.stdout.is_empty(), "{arguments:?}");
    error
}

/// A mock that runs until it is dropped.
struct RunningMock {
    child: Child,
    url: String,
    client: reqwest::Client,
}

impl RunningMock {
    /// Starts a mock on a free port.
    fn start(arguments: &[&str]) -> Self {
        Self::spawn(program().args(["--port", "0"]).args(arguments))
    }

    fn spawn(command: &mut Command) -> Self {
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        stdout.read_line(&mut line).unwrap();
        let Some(url) = line.strip_prefix("listening on ") else {
            let mut error = String::new();
            child
                .stderr
                .take()
                .unwrap()
                .read_to_string(&mut error)
                .unwrap();
            panic!("the mock did not start: {line:?} {error:?}");
        };
        let url = url.trim_end().to_owned();
        // A mock that does not respond fails its test.
        let client = reqwest::Client::builder()
            .timeout(PATIENCE)
            .build()
            .unwrap();
        Self { child, url, client }
    }

    /// Runs a command of the program against this mock. It must succeed. Returns what it printed.
    fn command(&self, arguments: &[&str]) -> String {
        let output = program()
            .args(arguments)
            .args(["--url", &self.url])
            .output()
            .unwrap();
        let error = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success(), "{arguments:?}: {error}");
        assert_eq!(error, "", "{arguments:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// Like [`command`](Self::command), with JSON.
    fn json(&self, arguments: &[&str]) -> Value {
        let text = self.command(&[arguments, &["--json"]].concat());
        serde_json::from_str(&text).unwrap()
    }

    /// Requests a path with a key, and returns the status and the body.
    async fn get(&self, path: &str, key: &str) -> (u16, Value) {
        let request = self.client.get(format!("{}{path}", self.url));
        let response = request.bearer_auth(key).send().await.unwrap();
        let status = response.status().as_u16();
        let body = response.bytes().await.unwrap();
        (status, serde_json::from_slice(&body).unwrap_or(Value::Null))
    }

    /// Sends a signal, and returns how the program ended and what it printed to standard error.
    #[cfg(unix)]
    fn end_by(self, signal: &str) -> (ExitStatus, String) {
        self.end_after_lines(0, signal)
    }

    /// Like [`end_by`](Self::end_by), but first waits until the program has printed this many lines to standard error. At
    /// its end, the program waits only 1 s until they are printed.
    #[cfg(unix)]
    fn end_after_lines(mut self, count: usize, signal: &str) -> (ExitStatus, String) {
        let (read, lines) = mpsc::channel();
        let error = BufReader::new(self.child.stderr.take().unwrap());
        std::thread::spawn(move || {
            for line in error.lines().map_while(Result::ok) {
                let _ = read.send(line + "\n");
            }
        });
        let mut printed = String::new();
        for _ in 0..count {
            printed += &lines.recv_timeout(PATIENCE).unwrap_or_default();
        }
        let id = self.child.id().to_string();
        let sent = Command::new("kill").args([signal, &id]).status().unwrap();
        assert!(sent.success());
        let deadline = Instant::now() + PATIENCE;
        while self.child.try_wait().unwrap().is_none() {
            assert!(Instant::now() < deadline, "{signal} does not end the mock");
            std::thread::sleep(Duration::from_millis(5));
        }
        printed.extend(lines);
        (self.child.wait().unwrap(), printed)
    }
}

impl Drop for RunningMock {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
