//! A whole service in one program: an endpoint that accepts events, and a worker that handles them.
//!
//! ```text
//! cargo run -p audience-receivers --example webhook_service
//!     starts the service with SQLite in memory, sends it three deliveries (one of them forged), and exits
//! AUDIENCE_INBOX_URL=sqlite:inbox.db AUDIENCE_WEBHOOK_SECRET=… cargo run -p audience-receivers --example webhook_service -- --port 8080
//!     runs it until SIGTERM or Ctrl-C; `audience webhooks send` posts to it
//! ```
//!
//! Events are stored where `AUDIENCE_INBOX_URL` says: in a SQLite file, in Postgres or in Redis.
//!
//! On SIGTERM the program accepts no more deliveries, waits up to `--grace` seconds for the handlers that run, cuts the
//! others off, and releases their claims, so that another process handles these events immediately. It ends in the same
//! way if the server or the worker ends by itself: a supervisor restarts it then.
//!
//! | route | status | for |
//! |---|---|---|
//! | `POST /hook` | see `audience::inbox` | the service |
//! | `GET /health` | 200 while the program runs | a liveness probe. It does not look at the database: to restart this program does not repair that |
//! | `GET /ready` | 200 if deliveries can be stored, otherwise 503 | a readiness probe |
#![expect(clippy::print_stdout, reason = "an example prints what it does")]

#[path = "support/demo.rs"]
mod demo;
mod support;

use std::collections::BTreeSet;
use std::env;
use std::error::Error;
use std::io;
use std::process::ExitCode;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use audience::inbox::{Inbox, Receipt, SqliteStore, store_from_env};
use audience::webhooks::{Event, EventData, VerifiedEvent, Verifier};
use axum::Router;
use axum::extract::{FromRef, State};
use axum::http::StatusCode;
use axum::routing::{get, post};
use clap::Parser;
use support::ENVIRONMENT;
use tokio::net::TcpListener;
use tracing::info;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::prelude::*;

const STORE: &str = "  AUDIENCE_INBOX_URL       Store of the inbox, such as sqlite:inbox.db or postgres://USER@HOST/NAME";

/// An endpoint that accepts events and a worker that handles them, in one program
#[derive(Parser)]
#[command(name = "webhook_service", after_help = format!("{ENVIRONMENT}\n{STORE}"))]
struct Arguments {
    /// Port of 127.0.0.1 to listen on. Without it, the program sends itself three deliveries and exits
    #[arg(long, value_name = "N")]
    port: Option<u16>,
    /// How long a shutdown waits for running handlers. Kubernetes kills the program 30 s after SIGTERM
    #[arg(long, value_name = "SECONDS", default_value_t = 25)]
    grace: u64,
    /// How long each handler takes, to try a shutdown with work in progress
    #[arg(long, value_name = "SECONDS", default_value_t = 0)]
    work: u64,
}

/// What the handlers work with. In your program, a connection pool and the clients of other services.
struct Suppressions {
    addresses: Mutex<BTreeSet<String>>,
    work: Duration,
}

impl Suppressions {
    /// Handles an event. Put your own code here; after an error it is called again, later and later.
    async fn handle(&self, event: &Event) -> Result<(), io::Error> {
        info!(id = %event.id, kind = %event.event_type(), "handling an event");
        tokio::time::sleep(self.work).await;
        match &event.data {
            // After another bounce, such as one from a full mailbox, a later mail may arrive.
            EventData::Bounced(mail) if mail.is_permanent_bounce() => {
                let mut addresses = self
                    .addresses
                    .lock()
                    .map_err(|_| io::Error::other("poisoned"))?;
                addresses.insert(mail.address());
                info!(id = %event.id, "suppressed its recipient");
            }
            // A bounce without its address is parked after ten attempts, so that a person looks at it.
            data if data.is_incomplete() => return Err(io::Error::other("incomplete data")),
            _ => {}
        }
        Ok(())
    }
}

#[derive(Clone, FromRef)]
struct App {
    verifier: Verifier,
    inbox: Inbox,
}

/// Stores a verified delivery. The service need not deliver it again, even if this process is killed.
async fn hook(State(inbox): State<Inbox>, delivery: VerifiedEvent) -> Receipt {
    inbox.accept(delivery).await
}

async fn ready(State(inbox): State<Inbox>) -> Result<(), Receipt> {
    Ok(inbox.ready().await?)
}

#[tokio::main]
async fn main() -> ExitCode {
    audience::exit_code(run(Arguments::parse()).await)
}

/// Logs to standard error what `RUST_LOG` asks for, such as `debug,tokio_postgres=info`. Default: `info`.
fn start_logging() -> Result<(), Box<dyn Error>> {
    let filter = env::var("RUST_LOG").map(|filter| filter.replace(' ', ""));
    let filter = filter.ok().filter(|filter| !filter.is_empty());
    let filter = filter.as_deref().unwrap_or("info").parse::<Targets>();
    let filter = filter.map_err(|error| format!("RUST_LOG: {error}"))?;
    tracing_subscriber::registry()
        .with(tracing_subscriber::fmt::layer().with_writer(io::stderr))
        .with(filter)
        .init();
    Ok(())
}

async fn run(arguments: Arguments) -> Result<(), Box<dyn Error>> {
    start_logging()?;
    let verifier = match arguments.port {
        Some(_) => Verifier::from_env()?,
        None => Verifier::new(demo::SECRET)?,
    };
    // A database that does not respond must not keep the program from ending.
    let inbox = tokio::select! {
        opened = open_inbox(arguments.port.is_none()) => opened?,
        () = audience::shutdown_signal() => return Ok(()),
    };

    // The handler is called for many events, so it clones what each call keeps.
    let suppressions = Arc::new(Suppressions {
        addresses: Mutex::default(),
        work: Duration::from_secs(arguments.work),
    });
    let worker = inbox.worker(move |event, _attempt| {
        let suppressions = Arc::clone(&suppressions);
        async move { suppressions.handle(&event).await }
    });

    let app = App { verifier, inbox };
    let router = Router::new()
        .route("/hook", post(hook))
        .route("/health", get(StatusCode::OK))
        .route("/ready", get(ready))
        .with_state(app);
    let listener = TcpListener::bind(("127.0.0.1", arguments.port.unwrap_or(0))).await?;
    let address = listener.local_addr()?;
    println!("listening on http://{address}/hook");

    let server = audience::serve(listener, router)
        .worker(worker)
        .shutdown_timeout(Duration::from_secs(arguments.grace));
    let mut outcome = Ok(());
    match arguments.port {
        Some(_) => server.await?,
        None => {
            let demo = async { outcome = demo::run_demo(address).await };
            server.run_until(demo).await?;
        }
    }
    outcome
}

async fn open_inbox(is_demo: bool) -> Result<Inbox, Box<dyn Error>> {
    let builder = match is_demo {
        true => Inbox::builder(SqliteStore::in_memory()?),
        false => Inbox::builder(store_from_env().await?),
    };
    Ok(builder.build()?)
}
