//! What the program prints, and what it asks.

use std::error::Error as StdError;
use std::fmt::Display;
use std::io::{IsTerminal as _, Write as _};
use std::time::{Duration, Instant};

use serde::Serialize;
use serde_json::{Map, Value, json};
use tokio::task::JoinSet;

use crate::any_error::STOPPED;
pub(super) use crate::any_error::{NOT_FOUND, REFUSED};
use crate::causes::with_causes;
use crate::contacts::TopicsError;
use crate::terminal::{print, printable, printable_json};
use crate::{Error, ErrorCode, ErrorKind, Outcome, exit_status, signals};

/// Why the program could not do what it was asked to.
#[derive(Debug)]
pub(super) struct Failure {
    code: String,
    status: Option<u16>,
    message: String,
    /// The address of the contact that the failure is about.
    email: Option<String>,
    /// What is known about the changes of the call that failed.
    outcome: Option<Outcome>,
    exit_code: u8,
}

impl Failure {
    /// A failure of the program itself, such as a file that cannot be read.
    pub(super) fn failed(message: impl Into<String>) -> Self {
        Self {
            code: "failed".to_owned(),
            status: None,
            message: message.into(),
            email: None,
            outcome: None,
            exit_code: 1,
        }
    }

    /// SIGTERM or Ctrl-C ended the program.
    pub(super) fn interrupted(message: impl Into<String>) -> Self {
        Self {
            code: ErrorKind::Stopped.to_string(),
            exit_code: STOPPED,
            ..Self::failed(message)
        }
    }

    /// The command line or a variable is invalid.
    pub(super) fn usage(message: impl Into<String>) -> Self {
        Self {
            code: "usage".to_owned(),
            exit_code: 2,
            ..Self::failed(message)
        }
    }

    pub(super) fn causes(error: &(dyn StdError + 'static)) -> Self {
        Self {
            exit_code: exit_status(error),
            ..Self::failed(with_causes(error))
        }
    }

    pub(super) fn about(self, email: impl Into<String>) -> Self {
        Self {
            email: Some(email.into()),
            ..self
        }
    }

    /// Adds a sentence to the message.
    pub(super) fn note(self, note: &str) -> Self {
        Self {
            message: format!("{}; {note}", self.message),
            ..self
        }
    }

    pub(super) fn status(self, status: u16) -> Self {
        Self {
            status: Some(status),
            ..self
        }
    }

    pub(super) fn code(self, code: impl Into<String>) -> Self {
        Self {
            code: code.into(),
            ..self
        }
    }

    /// Puts a text before the message, such as the job that ended. What it has changed is not the outcome of its last
    /// call.
    pub(super) fn after(self, what: &str) -> Self {
        Self {
            message: format!("{what}: {}", self.message),
            outcome: None,
            ..self
        }
    }

    pub(super) fn exit_code(&self) -> u8 {
        self.exit_code
    }

    fn to_json(&self) -> Value {
        let mut members = Map::new();
        members.insert("code".to_owned(), json!(self.code));
        members.insert("message".to_owned(), json!(self.message));
        if let Some(status) = self.status {
            members.insert("status".to_owned(), json!(status));
        }
        if let Some(email) = &self.email {
            members.insert("email".to_owned(), json!(email));
        }
        if let Some(outcome) = self.outcome {
            members.insert("outcome".to_owned(), json!(outcome.as_str()));
        }
        members.into()
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::from(&error)
    }
}

impl From<&Error> for Failure {
    fn from(error: &Error) -> Self {
        let mut message = error.explanation();
        if let Some(cause) = error.source() {
            message += &format!(" ({})", with_causes(cause));
        }
        if let Some(reason) = error.api().and_then(|refusal| refusal.message()) {
            message += &format!(": {reason}");
        }
        if error.is_unauthorized() {
            message += "; --auth-header NAME sends it in another header";
        }
        let code = error.code().map(ErrorCode::as_str);
        let failure = Self::failed(message);
        Self {
            code: code.map_or_else(|| error.kind().to_string(), str::to_owned),
            status: error.status().map(|status| status.as_u16()),
            outcome: (!error.is_of_report()).then(|| error.outcome()),
            exit_code: exit_status(error),
            ..failure
        }
    }
}

impl From<&TopicsError> for Failure {
    fn from(error: &TopicsError) -> Self {
        let failure = Self::from(error.error());
        Self {
            outcome: Some(error.form_outcome()),
            ..failure
        }
    }
}

impl From<String> for Failure {
    fn from(message: String) -> Self {
        Self::failed(message)
    }
}

/// How results and errors are printed.
#[derive(Clone, Copy)]
pub(super) struct Output {
    pub(super) json: bool,
}

impl Output {
    pub(super) fn new(json: bool) -> Self {
        Self { json }
    }

    /// Prints a result: its JSON as one line, or its text. Returns `false` if nobody reads it any more.
    ///
    /// # Errors
    ///
    /// Fails if standard output cannot be written.
    pub(super) fn result<T: Serialize>(
        self,
        result: &T,
        text: impl FnOnce(&T) -> String,
    ) -> Result<bool, Failure> {
        let text = if self.json {
            json_line(result)
        } else {
            text(result)
        };
        Ok(print(&text)?)
    }

    pub(super) fn failure(self, failure: &Failure) {
        if self.json {
            warn_raw(json_line(&failure.to_json()).trim_end());
            return;
        }
        let email = failure.email.as_ref();
        let email = email.map_or_else(String::new, |email| format!("{email}: "));
        warn(format!("audience: {email}{}", failure.message));
    }

    /// Prints a note to standard error.
    pub(super) fn note(self, note: impl Display) {
        if self.json {
            warn_raw(json_line(&json!({"note": note.to_string()})).trim_end());
        } else {
            warn(note);
        }
    }
}

/// Returns a value as one line of JSON. The characters that control a terminal are escaped.
pub(super) fn json_line(value: &impl Serialize) -> String {
    // The types of this crate have only string keys and finite numbers.
    let json = serde_json::to_string(value)
        .unwrap_or_else(|error| json!({"error": error.to_string()}).to_string());
    printable_json(&json) + "\n"
}

/// Prints a line. If nobody reads it, as after `| head`, the work continues.
pub(super) fn say(line: impl Display) {
    let _ = print(&format!("{}\n", printable(&line.to_string())));
}

/// Prints a line to standard error.
pub(super) fn warn(line: impl Display) {
    warn_raw(&printable(&line.to_string()));
}

fn warn_raw(line: &str) {
    clear_progress();
    // Fails only if standard error is closed. Then the exit status is all that is left.
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// Asks a question on the terminal.
///
/// # Errors
///
/// Fails unless the person says yes. `no_terminal` is the message if there is no terminal to ask on.
pub(super) fn ask(question: &str, no_terminal: &str) -> Result<(), Failure> {
    if !std::io::stdin().is_terminal() || !std::io::stderr().is_terminal() {
        return Err(Failure::usage(no_terminal));
    }
    let _ = write!(std::io::stderr(), "{} [y/N] ", printable(question));
    let mut answer = String::new();
    let read = std::io::stdin().read_line(&mut answer);
    let answer = answer.trim().to_lowercase();
    match read {
        Ok(_) if matches!(&*answer, "y" | "yes") => Ok(()),
        _ => Err(Failure::failed("nothing was changed")),
    }
}

/// Ready at the first Ctrl-C or SIGTERM. The second one ends the program. Listens from the first poll on.
pub(super) async fn interrupt(to_continue: Option<String>, output: Output) {
    interrupt_from_now(to_continue, output).await;
}

/// Does what [`interrupt`] does, and listens from now on.
pub(super) fn interrupt_from_now(
    to_continue: Option<String>,
    output: Output,
) -> impl Future<Output = ()> + Send + 'static {
    // Not in the task below, which may begin after the first request was sent.
    let interrupted = signals::shutdown();
    async move {
        // A read of a pipe may block whoever awaits this, so another task waits. It ends when this future is dropped.
        let mut first = JoinSet::new();
        first.spawn(async move {
            match interrupted {
                Ok(interrupted) => interrupted.await,
                // The program cannot listen for the signals, so they end it anyway.
                Err(_) => std::future::pending().await,
            }
            let again = signals::interrupt();
            output.note(
                "stopping: what is in flight is finished first; press Ctrl-C again to stop immediately",
            );
            tokio::spawn(async move {
                match again {
                    Ok(again) => again.await,
                    // The program cannot listen for the signal, so it ends it anyway.
                    Err(_) => std::future::pending().await,
                }
                let in_flight = match to_continue {
                    Some(command) => {
                        format!("what was in flight is sent again if you continue: {command}")
                    }
                    None => "what was in flight may have been applied or not".to_owned(),
                };
                let stopped = Failure::interrupted("stopped").note(&in_flight);
                output.failure(&stopped);
                std::process::exit(stopped.exit_code().into());
            });
        });
        first.join_next().await;
    }
}

/// A line on the terminal that shows how far the work is. It is only shown on a terminal.
pub(super) struct ProgressLine {
    is_shown: bool,
    drawn: Option<Instant>,
}

/// How often the line is written.
const REDRAW: Duration = Duration::from_millis(200);
/// The width of the line. A character is left for the cursor.
const LINE: usize = 79;

impl ProgressLine {
    pub(super) fn new() -> Self {
        Self {
            is_shown: std::io::stderr().is_terminal(),
            drawn: None,
        }
    }

    pub(super) fn show(&mut self, line: impl FnOnce() -> String) {
        let is_due = self.drawn.is_none_or(|drawn| drawn.elapsed() >= REDRAW);
        if self.is_shown && is_due {
            self.drawn = Some(Instant::now());
            draw(&line());
        }
    }
}

pub(super) fn clear_progress() {
    if std::io::stderr().is_terminal() {
        draw("");
    }
}

fn draw(line: &str) {
    // The line is not important enough to fail.
    let _ = write!(std::io::stderr(), "\r{line:<LINE$.LINE$}\r");
}
