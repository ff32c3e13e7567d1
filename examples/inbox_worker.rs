//! Events accepted by one process and handled by another, over one Postgres.
//!
//! ```text
//! cargo run -p audience-receivers --example inbox_worker
//!     accepts and handles a few events in memory, and exits
//! AUDIENCE_WEBHOOK_SECRET=… cargo run -p audience-receivers --example inbox_worker -- receive --port 8080 --postgres URL
//!     accepts events until SIGTERM or Ctrl-C: a response takes as long as one insert
//! cargo run -p audience-receivers --example inbox_worker -- work --postgres URL
//!     handles them until SIGTERM or Ctrl-C; run as many as you like, on as many machines
//! cargo run -p audience-receivers --example inbox_worker -- parked --postgres URL [--replay]
//!     lists the events that failed too often, and hands them to the workers again
//! ```
#![expect(clippy::print_stdout, reason = "an example prints what it does")]

mod inbox_store;
mod support;

use std::error::Error;
use std::time::SystemTime;

use audience::inbox::{Attempt, Inbox, Receipt};
use audience::webhooks::{Event, EventType, Signer, VerifiedEvent, Verifier};
use axum::Router;
use axum::extract::{FromRef, State};
use axum::routing::post;
use clap::{Parser, Subcommand};
use inbox_store::StoreArguments;
use support::ENVIRONMENT;
use tokio::net::TcpListener;

/// Accept events in one process, and handle them in another
#[derive(Parser)]
#[command(name = "inbox_worker", after_help = ENVIRONMENT)]
struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Subcommand)]
enum Command {
    /// Accept events until SIGTERM or Ctrl-C
    Receive {
        /// Port of 127.0.0.1 to listen on
        #[arg(long, value_name = "N")]
        port: u16,
        #[command(flatten)]
        store: StoreArguments,
    },
    /// Handle accepted events until SIGTERM or Ctrl-C
    Work {
        /// How many events to handle simultaneously
        #[arg(long, value_name = "N", default_value_t = 8)]
        concurrency: usize,
        #[command(flatten)]
        store: StoreArguments,
    },
    /// List the events that failed too often
    Parked {
        /// Hand them to the workers again
        #[arg(long)]
        replay: bool,
        #[command(flatten)]
        store: StoreArguments,
    },
}

#[derive(Clone, FromRef)]
struct App {
    verifier: Verifier,
    inbox: Inbox,
}

/// Stores a verified delivery. The service need not deliver it again, even if this process crashes.
async fn hook(State(app): State<App>, delivery: VerifiedEvent) -> Receipt {
    app.inbox.accept(delivery).await
}

/// Handles an event. Put your own code here; after an error it is called again, later and later.
async fn handle(event: Event, attempt: Attempt) -> Result<(), std::io::Error> {
    println!(
        "{}: {}, attempt {}",
        event.id,
        event.event_type(),
        attempt.number()
    );
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    match Arguments::parse().command {
        Some(Command::Receive { port, store }) => {
            let app = App {
                verifier: Verifier::from_env()?,
                inbox: store.open(false).await?.build()?,
            };
            receive(port, app).await
        }
        Some(Command::Work { concurrency, store }) => {
            let inbox = store.open(false).await?.build()?;
            let worker = inbox.worker(handle).concurrency(concurrency);
            let report = worker.run_until(audience::shutdown_signal()).await?;
            println!("{} handled, {} parked", report.handled, report.parked);
            Ok(())
        }
        Some(Command::Parked { replay, store }) => {
            let inbox = store.open(false).await?.build()?;
            list_parked(&inbox, replay).await
        }
        None => run_demo().await,
    }
}

async fn receive(port: u16, app: App) -> Result<(), Box<dyn Error>> {
    let router = Router::new().route("/hook", post(hook)).with_state(app);
    let listener = TcpListener::bind(("127.0.0.1", port)).await?;
    println!("listening on http://{}/hook", listener.local_addr()?);
    audience::serve(listener, router).await?;
    Ok(())
}

async fn list_parked(inbox: &Inbox, replay: bool) -> Result<(), Box<dyn Error>> {
    let mut page = inbox.parked().await?;
    while let Some(last) = page.last() {
        for event in &page {
            println!(
                "{}: {} attempts, {}",
                event.id, event.attempts, event.reason
            );
            if replay {
                inbox.replay(&event.id).await?;
            }
        }
        page = inbox.parked_after(&last.id).await?;
    }
    Ok(())
}

/// Accepts three events, one of them twice, and handles them.
async fn run_demo() -> Result<(), Box<dyn Error>> {
    let secret = "the secret of this demo";
    let (signer, verifier) = (Signer::new(secret)?, Verifier::new(secret)?);
    // Only for this demo: it forgets everything when the process ends, and refuses more than 100,000 events in 72 hours.
    let inbox = Inbox::builder(audience::inbox::MemoryStore::new()).build()?;
    for id in ["evt_1", "evt_2", "evt_1", "evt_3"] {
        let body = format!(
            r#"{{"id": "{id}", "type": "email.sent", "created_at": 1700000000, "data": {{}}}}"#
        );
        let headers = signer.sign(&EventType::Sent, SystemTime::now(), &body);

        let receipt = inbox.accept(verifier.verify_event(&headers, body)?).await;

        println!("{id}: {} {}", receipt.status(), receipt.name());
    }

    let report = inbox.worker(handle).run_until_idle().await?;

    println!("{} handled, {} parked", report.handled, report.parked);
    Ok(())
}
