//! A receiver in Python, with its standard library alone.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use audience::mock::Verdict;

use super::examine;
use crate::receiver::SECRET;
use support::skip;

/// Runs the example until it is dropped.
pub(super) struct PythonReceiver {
    process: Child,
    pub(super) url: String,
}

impl PythonReceiver {
    /// Returns `None`, and says so, if Python is not installed.
    pub(super) fn start() -> Option<Self> {
        let file = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
            .join("examples/other-languages/python/receiver.py");
        let process = Command::new("python3")
            .arg(file)
            .arg("0")
            .env("AUDIENCE_WEBHOOK_SECRET", SECRET)
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
