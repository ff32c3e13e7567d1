//! The program on a terminal of its own, which `script` makes.

use std::io::{Read as _, Write as _};
use std::process::{Child, ChildStdout, Command, Stdio};

use audience::mock::MockServer;
use support::examples::program;

use super::{Ended, ended};

/// The program on a terminal of its own, when it waits for an answer.
pub(super) struct Asked {
    child: Child,
    terminal: ChildStdout,
    shown: Vec<u8>,
}

/// Returns the program for a mock on a terminal of its own.
fn on_terminal(server: &MockServer, arguments: &str) -> Command {
    let program = format!("{} {arguments}", program("audience").display());
    let mut command = Command::new("script");
    command
        .args(["-qec", &program, "/dev/null"])
        .env("AUDIENCE_URL", server.url())
        .env("AUDIENCE_KEY", server.full_key());
    command
}

/// Runs the program for a mock on a terminal to its end. The result has everything that the terminal has shown as its
/// standard output.
pub(super) fn shown(server: &MockServer, arguments: &str) -> Ended {
    let mut command = on_terminal(server, arguments);
    ended(command.stdin(Stdio::null()).output().unwrap())
}

/// Runs the program for a mock on a terminal until it asks whether to continue.
pub(super) fn ask(server: &MockServer, arguments: &str) -> Asked {
    let mut child = on_terminal(server, arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    // The terminal shows what is typed, so an early answer would be in the middle of the question.
    let mut terminal = child.stdout.take().unwrap();
    let mut shown = Vec::new();
    while !shown.ends_with(b"[y/N] ") {
        let mut byte = [0];
        let read = terminal.read(&mut byte).unwrap();
        assert_eq!(read, 1, "{}", String::from_utf8_lossy(&shown));
        shown.extend(byte);
    }
    Asked {
        child,
        terminal,
        shown,
    }
}

impl Asked {
    /// Types the answer. The result has everything that the terminal has shown as its standard output.
    pub(super) fn answer(mut self, answer: &str) -> Ended {
        let mut input = self.child.stdin.take().unwrap();
        input.write_all(answer.as_bytes()).unwrap();
        drop(input);
        self.terminal.read_to_end(&mut self.shown).unwrap();
        let mut output = self.child.wait_with_output().unwrap();
        output.stdout = self.shown;
        ended(output)
    }
}
