//! The example programs of this package, run as a user runs them.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use audience::mock::Verdict;

use super::examine;
use crate::receiver::SECRET;
use support::examples::EXAMPLES;

/// A program that runs until it is dropped.
struct Program {
    process: Child,
    url: String,
}

impl Program {
    fn start(example: &str, arguments: &[&str]) -> Self {
        let mut process = Command::new(&EXAMPLES[example])
            .args(arguments)
            .env("AUDIENCE_WEBHOOK_SECRET", SECRET)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut output = BufReader::new(process.stdout.take().unwrap());
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        let url = line.trim().strip_prefix("listening on ").unwrap();
        // A program that prints what it does stops at a pipe that nobody reads.
        std::thread::spawn(move || std::io::copy(&mut output, &mut std::io::sink()));
        Self {
            url: url.to_owned(),
            process,
        }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_example_passes_as_far_as_it_can_be_seen_without_a_probe() {
    for (example, takes_a_store) in [
        ("webhook_axum", true),
        ("webhook_actix", true),
        ("webhook_hyper", false),
    ] {
        let file = std::env::temp_dir().join(format!(
            "audience-examine-{}-{example}.db",
            std::process::id()
        ));
        let store = ["--sqlite", file.to_str().unwrap()];
        let mut arguments = vec!["--port", "0"];
        if takes_a_store {
            arguments.extend(store);
        }
        let program = Program::start(example, &arguments);

        let examination = examine(&program.url).await;

        drop(program);
        for suffix in ["", "-wal", "-shm"] {
            let _ = std::fs::remove_file(format!("{}{suffix}", file.display()));
        }
        assert!(examination.passed(), "{example}: {examination}");
        let warnings = examination.with_verdict(Verdict::Warning).count();
        assert_eq!(warnings, 0, "{example}: {examination}");
        let not_seen = examination.with_verdict(Verdict::NotSeen).count();
        assert_eq!(not_seen, 8, "{example}: {examination}");
    }
}
