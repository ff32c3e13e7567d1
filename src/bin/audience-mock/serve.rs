//! Starts the mock and runs it until it is interrupted.

use std::io::{IsTerminal as _, Write as _};

use audience::mock::{MockServer, MockServerBuilder, SigningClock};
use serde_json::json;

use crate::options::{LogFormat, ServeOptions, Signing};
use crate::request_log::RequestLog;

/// Starts the mock, prints its URL, and serves until an interrupt.
///
/// # Errors
///
/// Fails if the mock cannot be started or its URL cannot be printed. The message has the reason.
pub(crate) async fn serve(options: ServeOptions) -> Result<(), String> {
    // Before the URL is printed: from then on, a caller may send a signal.
    let interrupt = interrupt()?;
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
        builder = builder.allowed_host(host.as_str());
    }
    for (name, default) in options.topics {
        builder = builder.topic(name, default);
    }
    for file in options.seeds {
        builder = builder.seed_file(file);
    }
    // A seed of its own, the last one: the choices of the command line win over those of the files.
    for (name, choice) in options.dialect {
        builder = builder.seed(json!({"dialect": {name: choice}}));
    }
    for webhook in options.webhooks {
        builder = builder.webhook_endpoint(webhook.url, webhook.secret);
    }
    builder
}

/// Without `--log`, nobody may read the lines: a program that started the mock could leave its pipe unread.
fn log_format(chosen: Option<LogFormat>) -> LogFormat {
    chosen.unwrap_or_else(|| {
        if std::io::stderr().is_terminal() {
            LogFormat::Pretty
        } else {
            LogFormat::Off
        }
    })
}

/// Listens for Ctrl-C and SIGTERM from now on. The future ends when one arrives.
#[cfg(unix)]
fn interrupt() -> Result<impl Future<Output = ()>, String> {
    use tokio::signal::unix::{SignalKind, signal};

    let listen =
        |kind| signal(kind).map_err(|error| format!("could not listen for signals: {error}"));
    let mut interrupted = listen(SignalKind::interrupt())?;
    let mut terminated = listen(SignalKind::terminate())?;
    Ok(async move {
        tokio::select! {
            _ = interrupted.recv() => {}
            _ = terminated.recv() => {}
        }
    })
}

#[cfg(not(unix))]
fn interrupt() -> Result<impl Future<Output = ()>, String> {
    Ok(async {
        if tokio::signal::ctrl_c().await.is_err() {
            // Ctrl-C ends the program anyway.
            std::future::pending::<()>().await;
        }
    })
}
