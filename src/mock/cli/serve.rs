//! Starts the mock and runs it until it is interrupted.

use std::cmp::Reverse;
use std::io::{IsTerminal as _, Write as _};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;

use percent_encoding::percent_decode_str;
use serde_json::json;

use super::{LogFormat, ServeOptions, Signing};
use crate::mock::{HandledRequest, MockServer, MockServerBuilder, SigningClock};
use crate::signals::interrupt;
use crate::terminal::printable;

/// Starts the mock, prints its URL, and serves until an interrupt.
///
/// # Errors
///
/// Fails if the mock cannot be started or its URL cannot be printed. The message has the reason.
pub(super) async fn serve(options: ServeOptions) -> Result<(), String> {
    // Before the URL is printed: from then on, a caller may send a signal.
    let interrupt =
        interrupt().map_err(|error| format!("could not listen for signals: {error}"))?;
    let log = match log_format(options.log) {
        LogFormat::Off => None,
        format => Some(RequestLog::start(format)),
    };
    let mut builder = configure(options);
    if let Some(log) = &log {
        builder = builder.on_request(log.observer());
    }
    let server = builder
        .try_start()
        .await
        .map_err(|error| format!("could not start: {error}"))?;
    if let Some(log) = &log {
        log.hide([server.full_key(), server.sending_key()]);
    }

    writeln!(std::io::stdout(), "listening on {}", server.url())
        .map_err(|error| format!("could not print the URL: {error}"))?;
    interrupt.await;
    drop(server);
    if let Some(log) = log {
        log.finish();
    }
    Ok(())
}

fn configure(options: ServeOptions) -> MockServerBuilder {
    let mut builder = MockServer::builder().port(options.port).host(options.host);
    if let Some(key) = options.full_key {
        builder = builder.full_key(key);
    }
    if let Some(key) = options.sending_key {
        builder = builder.sending_key(key);
    }
    if let Some(name) = options.auth_header {
        builder = builder.auth_header(name.as_str());
    }
    if let Some(contacts) = options.contact_ceiling {
        builder = builder.contact_ceiling(contacts);
    }
    if let Some(at) = options.clock {
        builder = builder.clock(at);
    }
    builder = builder.signing_clock(match options.signing_clock {
        Signing::Mock => SigningClock::Mock,
        Signing::Wall => SigningClock::Wall,
    });
    for host in options.allowed_hosts {
        builder = builder.allowed_host(host);
    }
    // The contacts of the files can have answers to these topics.
    for (name, default) in &options.topics {
        builder = builder.topic(name, *default);
    }
    for file in options.seeds {
        builder = builder.seed_file(file);
    }
    // Separate seeds, added last: the command line overrides the topics and the choices of the files.
    for (name, default) in options.topics {
        builder = builder.seed(json!({"topics": {name: default}}));
    }
    for (name, choice) in options.dialect {
        builder = builder.seed(json!({"dialect": {name: choice}}));
    }
    for webhook in options.webhooks {
        builder = builder.webhook_endpoint(webhook.url, webhook.secret);
    }
    builder
}

/// Without `--log`, the lines may have no reader: a program that started the mock could leave its pipe unread.
fn log_format(chosen: Option<LogFormat>) -> LogFormat {
    chosen.unwrap_or_else(|| {
        if std::io::stderr().is_terminal() {
            LogFormat::Pretty
        } else {
            LogFormat::Off
        }
    })
}

/// Lines that wait to be printed. Further ones are counted, not kept.
const MAX_LINES: usize = 1_000;

/// Shorter keys are no secret, and replacing every `k` would leave nothing to read.
const MIN_KEY_LENGTH: usize = 4;

/// How long the end of the program waits for the last lines to be printed.
const END_TIMEOUT: Duration = Duration::from_secs(1);

/// A log that a thread of its own prints: a reader that stops reading must not stop the mock.
struct RequestLog {
    format: LogFormat,
    lines: SyncSender<String>,
    shared: Arc<Shared>,
    /// Fails when the thread has printed everything.
    end: Receiver<()>,
}

#[derive(Default)]
struct Shared {
    /// The keys, which are never printed.
    keys: OnceLock<Vec<String>>,
    /// Lines that were not read in time.
    dropped: AtomicU64,
}

impl RequestLog {
    fn start(format: LogFormat) -> Self {
        let (lines, waiting) = mpsc::sync_channel::<String>(MAX_LINES);
        let (alive, end) = mpsc::channel::<()>();
        let shared = Arc::new(Shared::default());
        let counters = Arc::clone(&shared);
        thread::spawn(move || {
            let _alive = alive;
            for line in waiting {
                print(&line);
                let dropped = counters.dropped.swap(0, Ordering::Relaxed);
                if dropped > 0 {
                    print(&format!(
                        "audience-mock: {dropped} lines were left out because the log was not read in time"
                    ));
                }
            }
        });
        Self {
            format,
            lines,
            shared,
            end,
        }
    }

    /// Sets the keys, which are replaced by `<key>` in every line from now on.
    fn hide<'k>(&self, keys: impl IntoIterator<Item = &'k str>) {
        let keys = keys.into_iter().filter(|key| key.len() >= MIN_KEY_LENGTH);
        let mut keys: Vec<String> = keys.map(str::to_owned).collect();
        // The longest first: a shorter key can be a part of it.
        keys.sort_by_key(|key| Reverse(key.len()));
        // Set once: the keys of a running mock do not change.
        let _ = self.shared.keys.set(keys);
    }

    /// Returns the function that prints a request. It waits for the keys.
    fn observer(&self) -> impl Fn(&HandledRequest) + Send + Sync + 'static {
        let (format, lines, shared) = (self.format, self.lines.clone(), Arc::clone(&self.shared));
        move |request| {
            // Set as soon as the mock has started, which may be a moment after the first request.
            let keys = shared.keys.wait();
            let line = match format {
                LogFormat::Pretty => pretty(request, keys),
                LogFormat::Json => json_line(request, keys),
                LogFormat::Off => return,
            };
            if lines.try_send(line).is_err() {
                shared.dropped.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// Waits until all lines are printed, but not long. Call it when the mock has stopped.
    fn finish(self) {
        drop(self.lines);
        let _ = self.end.recv_timeout(END_TIMEOUT);
    }
}

fn print(line: &str) {
    // If standard error is closed, there is no place to report it.
    let _ = writeln!(std::io::stderr().lock(), "{line}");
}

/// `POST /contacts 422 0.3 ms: "email" is missing`
fn pretty(request: &HandledRequest, keys: &[String]) -> String {
    let status = request
        .status
        .map_or("---".to_owned(), |status| status.to_string());
    let target = match &request.query {
        None => request.path.clone(),
        Some(query) => format!("{}?{query}", request.path),
    };
    let milliseconds = request.duration.as_secs_f64() * 1_000.0;
    let reason = request
        .reason
        .as_deref()
        .map(|reason| format!(": {reason}"));
    let line = format!(
        "{} {target} {status} {milliseconds:.1} ms{}",
        request.method,
        reason.unwrap_or_default()
    );
    // A control character could move the cursor of the terminal.
    printable(&without_keys(line, keys))
}

fn json_line(request: &HandledRequest, keys: &[String]) -> String {
    let text = |text: &str| without_keys(text.to_owned(), keys);
    let milliseconds = request.duration.as_secs_f64() * 1_000.0;
    json!({
        "method": text(&request.method),
        "path": text(&request.path),
        "query": request.query.as_deref().map(text),
        "status": request.status,
        "duration_ms": (milliseconds * 1_000.0).round() / 1_000.0,
        "reason": request.reason.as_deref().map(text),
    })
    .to_string()
}

/// Replaces each key, which a request may have sent in a place where it does not belong.
///
/// If a key is percent-encoded, all of the text is decoded.
fn without_keys(text: String, keys: &[String]) -> String {
    let text = with_keys_replaced(text, keys);
    let decoded = percent_decode_str(&text).decode_utf8_lossy().into_owned();
    if keys.iter().any(|key| decoded.contains(key.as_str())) {
        with_keys_replaced(decoded, keys)
    } else {
        text
    }
}

fn with_keys_replaced(text: String, keys: &[String]) -> String {
    keys.iter().fold(text, |text, key| {
        if text.contains(key.as_str()) {
            text.replace(key.as_str(), "<key>")
        } else {
            text
        }
    })
}
