//! A webhook endpoint with axum, as a starting point for your own.
//!
//! ```text
//! cargo run -p audience-receivers --example webhook_axum
//!     starts the endpoint, sends it three deliveries (one of them forged), and exits
//! AUDIENCE_WEBHOOK_SECRET=… cargo run -p audience-receivers --example webhook_axum -- --port 8080
//!     runs the endpoint until SIGTERM or Ctrl-C; `audience webhooks send` posts to it
//! ```
//!
//! The service waits 10 seconds for a response and makes up to ten attempts over about five hours. It may
//! deliver an event more than once (interface section 6.5). The inbox therefore remembers the events, in a SQLite
//! file unless `--postgres` or `--redis` names a server, and `hook` runs once for each.
#![expect(clippy::print_stdout, reason = "an example prints what it does")]

#[path = "support/demo.rs"]
mod demo;
mod inbox_store;
mod support;

use std::error::Error;
use std::time::Duration;

use audience::inbox::{Inbox, Receipt};
use audience::webhooks::{Event, EventData, VerifiedEvent, Verifier};
use axum::Router;
use axum::extract::{FromRef, State};
use axum::routing::post;
use clap::Parser;
use inbox_store::StoreArguments;
use support::ENVIRONMENT;
use tokio::net::TcpListener;

/// How long handlers may continue after the last response, which takes up to 8 s. Kubernetes kills a program 30 s after
/// SIGTERM.
const HANDLER_TIMEOUT: Duration = Duration::from_secs(20);

/// A webhook endpoint with axum, as a starting point for your own
#[derive(Parser)]
#[command(name = "webhook_axum", after_help = ENVIRONMENT)]
struct Arguments {
    /// Port of 127.0.0.1 to listen on. Without it, the program sends itself three deliveries and exits
    #[arg(long, value_name = "N")]
    port: Option<u16>,
    #[command(flatten)]
    store: StoreArguments,
}

#[derive(Clone, FromRef)]
struct App {
    verifier: Verifier,
    inbox: Inbox,
}

/// Runs only for verified deliveries: the extractor rejects all others.
async fn hook(State(app): State<App>, delivery: VerifiedEvent) -> Receipt {
    let handler = |event, _attempt| async move { handle(&event) };
    app.inbox.handle(delivery, handler).await
}

/// Runs once for each event. Put your own code here; after an error the service delivers the event again.
fn handle(event: &Event) -> Result<(), std::io::Error> {
    match &event.data {
        EventData::Bounced(mail) => println!("{}: mail to {} bounced", event.id, mail.to),
        EventData::Received(mail) => println!("{}: mail received from {}", event.id, mail.from),
        // A bounce without its address must not be acknowledged.
        data if data.is_incomplete() => return Err(std::io::Error::other("incomplete data")),
        _ => println!("{}: {}", event.id, event.event_type()),
    }
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let Arguments { port, store } = Arguments::parse();
    let verifier = match port {
        Some(_) => Verifier::from_env()?,
        None => Verifier::new(demo::SECRET)?,
    };
    let inbox = store.open(port.is_none()).await?.build()?;

    let app = App {
        verifier,
        inbox: inbox.clone(),
    };
    let router = Router::new().route("/hook", post(hook)).with_state(app);
    let listener = TcpListener::bind(("127.0.0.1", port.unwrap_or(0))).await?;
    let address = listener.local_addr()?;
    println!("listening on http://{address}/hook");

    let server = audience::serve(listener, router);
    let mut outcome = Ok(());
    match port {
        Some(_) => server.await?,
        None => {
            let demo = async { outcome = demo::run_demo(address).await };
            server.run_until(demo).await?;
        }
    }
    // A handler continues when its connection is closed. One that hangs must not keep the program running.
    let _ = tokio::time::timeout(HANDLER_TIMEOUT, inbox.wait_idle()).await;
    outcome
}
