//! Receivers in Python, with its standard library alone: the example and the two handlers of a guide.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use audience::mock::Verdict;

use super::{examine, found};
use crate::receiver::SECRET;
use support::skip;

/// Runs the example until it is dropped.
pub(super) struct PythonReceiver {
    process: Child,
    pub(super) url: String,
}

impl PythonReceiver {
    /// Starts the example. Returns `None`, and says so, if Python is not installed.
    pub(super) fn start() -> Option<Self> {
        let file = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
            .join("examples/other-languages/python/receiver.py");
        Self::start_program(Command::new("python3").arg(file).arg("0"))
    }

    /// Starts a handler of the guide to other languages: a class in the code before `end`.
    fn start_handler(language: &str, class: &str, end: &str) -> Option<Self> {
        let guide = include_str!("../../../docs/other-languages.md");
        let (_, block) = guide.split_once(&format!("```{language}\n")).unwrap();
        let (code, _) = block.split_once(end).unwrap();
        let code = code.replace("a-secret-of-the-test", SECRET);
        let serve = format!(
            "server = http.server.ThreadingHTTPServer(('127.0.0.1', 0), {class})\n\
             print(f'listening on http://127.0.0.1:{{server.server_port}}', flush=True)\n\
             server.serve_forever()\n"
        );
        Self::start_program(Command::new("python3").args(["-I", "-c", &(code + &serve)]))
    }

    fn start_program(program: &mut Command) -> Option<Self> {
        let process = program
            .env("AUDIENCE_WEBHOOK_SECRET", SECRET)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn();
        let Ok(mut process) = process else {
            skip("the receiver in Python: python3 is not installed");
            return None;
        };
        let mut line = String::new();
        let mut output = BufReader::new(process.stdout.take().unwrap());
        output.read_line(&mut line).unwrap();
        let url = line
            .trim()
            .strip_prefix("listening on ")
            .unwrap()
            .to_owned();
        // A program that prints what it does stops at a pipe that nobody reads.
        std::thread::spawn(move || std::io::copy(&mut output, &mut std::io::sink()));
        Some(Self { process, url })
    }
}

impl Drop for PythonReceiver {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[tokio::test]
async fn the_python_receiver_passes_every_check() {
    let Some(receiver) = PythonReceiver::start() else {
        return;
    };

    let examination = examine(format!("{}/hook", receiver.url))
        .probe(format!("{}/count", receiver.url))
        .await;

    for report in examination.checks() {
        assert_eq!(report.verdict, Verdict::Passed, "{examination}");
    }
}

#[tokio::test]
async fn the_handlers_of_the_guide_pass_as_far_as_it_can_be_seen_without_a_probe() {
    for (language, class, end) in [
        ("py", "Handler", "http.server.ThreadingHTTPServer"),
        ("python", "Receiver", "class AudienceTest"),
    ] {
        let Some(receiver) = PythonReceiver::start_handler(language, class, end) else {
            return;
        };

        let examination = examine(&receiver.url).await;

        assert_eq!(found(&examination), [], "{class}: {examination}");
    }
}

#[test]
fn the_handlers_of_the_guide_and_the_example_respond_411_to_a_request_without_a_length() {
    expect_of_each_handler("", "411");
}

#[test]
fn the_handlers_of_the_guide_and_the_example_respond_413_before_they_read_a_body_over_2_mib() {
    expect_of_each_handler("content-length: 2097153\r\n", "413");
}

/// Sends a request without a body to each handler, which must respond with this status.
fn expect_of_each_handler(header: &str, status: &str) {
    for receiver in [
        PythonReceiver::start(),
        PythonReceiver::start_handler("py", "Handler", "http.server.ThreadingHTTPServer"),
        PythonReceiver::start_handler("python", "Receiver", "class AudienceTest"),
    ] {
        let Some(receiver) = receiver else { return };
        let host = receiver.url.trim_start_matches("http://");
        let mut connection = TcpStream::connect(host).unwrap();
        write!(
            connection,
            "POST /hook HTTP/1.1\r\nhost: {host}\r\n{header}\r\n"
        )
        .unwrap();

        let mut response = String::new();
        connection.read_to_string(&mut response).unwrap();

        assert_eq!(response.split(' ').nth(1), Some(status), "{response}");
    }
}
