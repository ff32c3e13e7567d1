//! A webhook endpoint that marks bounces and complaints in a SQLite database, exactly once each.
//!
//! ```text
//! cargo run -p audience-receivers --example webhook_exactly_once
//!     starts the endpoint with a database in memory, sends it some deliveries, and exits
//! AUDIENCE_WEBHOOK_SECRET=… cargo run -p audience-receivers --example webhook_exactly_once -- --port 8080 --database mail.db
//!     runs the endpoint until it is stopped; `audience webhooks send` posts to it
//! ```
//!
//! The event's id and its effect are committed in one transaction. Whatever crashes when, and however often the
//! service repeats a delivery (interface section 6.5), each event is counted once.
#![expect(clippy::print_stdout, reason = "an example prints what it does")]

mod support;

use std::error::Error;
use std::future::IntoFuture;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::SystemTime;

use audience::Timestamp;
use audience::inbox::SqliteStore;
use audience::inbox::rusqlite::{self, Transaction};
use audience::webhooks::{
    BounceType, Event, EventData, EventType, MailEvent, Signer, VerifiedEvent, Verifier,
};
use axum::Router;
use axum::extract::{FromRef, State};
use axum::http::StatusCode;
use axum::routing::post;
use clap::Parser;
use support::ENVIRONMENT;
use tokio::net::TcpListener;

const DEMO_SECRET: &str = "the secret of this demo";

/// The table of the application.
const SUPPRESSED: &str = "\
CREATE TABLE IF NOT EXISTS suppressed (
    address TEXT PRIMARY KEY,
    bounces INTEGER NOT NULL DEFAULT 0,
    complaints INTEGER NOT NULL DEFAULT 0
) STRICT";

#[derive(Clone, FromRef)]
struct App {
    verifier: Verifier,
    store: SqliteStore,
}

/// Runs only for verified deliveries: the extractor rejects all others.
async fn hook(State(store): State<SqliteStore>, delivery: VerifiedEvent) -> StatusCode {
    // No inbox has this name. With an inbox, this would be its `handle` with the store's `handler_in`.
    store.handle_in("suppressed", delivery, mark).await.status()
}

/// Runs for each event once. What it writes is committed with the event's id, or not at all.
fn mark(
    transaction: &mut Transaction<'_>,
    event: Event,
) -> Result<(), Box<dyn Error + Send + Sync>> {
    let (address, bounces, complaints) = match event.data {
        EventData::Bounced(mail) if mail.is_permanent_bounce() => (mail.address(), 1, 0),
        EventData::Complained(mail) => (mail.address(), 0, 1),
        // A complaint without its address must not be acknowledged.
        data if data.is_incomplete() => return Err("incomplete data".into()),
        _ => return Ok(()),
    };
    transaction.execute(
        "INSERT INTO suppressed VALUES (?1, ?2, ?3) ON CONFLICT DO UPDATE SET
         bounces = bounces + excluded.bounces, complaints = complaints + excluded.complaints",
        (address, bounces, complaints),
    )?;
    Ok(())
}

/// A webhook endpoint that marks bounces and complaints in a SQLite database, exactly once each
#[derive(Parser)]
#[command(name = "webhook_exactly_once", after_help = ENVIRONMENT)]
struct Arguments {
    /// Port of 127.0.0.1 to listen on. Without it, the program sends itself some deliveries and exits
    #[arg(long, value_name = "N", requires = "database")]
    port: Option<u16>,
    /// Database file. Without it, the database is in memory
    #[arg(long, value_name = "FILE")]
    database: Option<PathBuf>,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let Arguments { port, database } = Arguments::parse();
    let verifier = match port {
        Some(_) => Verifier::from_env()?,
        None => Verifier::new(DEMO_SECRET)?,
    };
    let store = match database {
        Some(file) => SqliteStore::open(file)?,
        None => SqliteStore::in_memory()?,
    };
    store
        .transaction(|transaction| transaction.execute_batch(SUPPRESSED))
        .await?;

    let app = App {
        verifier,
        store: store.clone(),
    };
    let router = Router::new().route("/hook", post(hook)).with_state(app);
    let listener = TcpListener::bind(("127.0.0.1", port.unwrap_or(0))).await?;
    let address = listener.local_addr()?;
    println!("listening on http://{address}/hook");
    // In production, `webhook_axum` shows how to limit the time of a request's headers, too.
    let server = tokio::spawn(axum::serve(listener, router).into_future());
    if port.is_none() {
        run_demo(address, &store).await?;
    } else {
        server.await??; // runs until the process is stopped
    }
    Ok(())
}

/// Delivers a bounce three times and a complaint twice, as the service may.
async fn run_demo(address: SocketAddr, store: &SqliteStore) -> Result<(), Box<dyn Error>> {
    for (id, event_type) in [
        ("evt_1", EventType::Bounced),
        ("evt_1", EventType::Bounced),
        ("evt_2", EventType::Complained),
        ("evt_1", EventType::Bounced),
        ("evt_2", EventType::Complained),
    ] {
        let status = deliver(address, id, &event_type).await?;
        println!("{id} ({event_type}): {status}");
    }
    let marks = store.transaction(marks_of_ada).await?;
    println!("ada@example.com: {} bounce, {} complaint", marks.0, marks.1);
    if marks != (1, 1) {
        return Err("each event should be counted once".into());
    }
    Ok(())
}

fn marks_of_ada(transaction: &mut Transaction<'_>) -> rusqlite::Result<(u32, u32)> {
    let marks = "SELECT bounces, complaints FROM suppressed WHERE address = 'ada@example.com'";
    transaction.query_row(marks, (), |row| Ok((row.get(0)?, row.get(1)?)))
}

async fn deliver(
    address: SocketAddr,
    id: &str,
    event_type: &EventType,
) -> Result<StatusCode, Box<dyn Error>> {
    let mut mail = MailEvent::new(
        "email_1",
        "shop@example.com",
        "Ada@Example.com",
        "Your receipt",
    );
    let data = if *event_type == EventType::Bounced {
        mail.bounce_type = Some(BounceType::Permanent);
        EventData::Bounced(mail)
    } else {
        EventData::Complained(mail)
    };
    let created_at = Timestamp::from_unix(1_700_000_000);
    let body = serde_json::to_string(&Event::new(id.try_into()?, created_at, data))?;
    let headers = Signer::new(DEMO_SECRET)?.sign(event_type, SystemTime::now(), &body);
    let request = reqwest::Client::new().post(format!("http://{address}/hook"));
    Ok(request.headers(headers).body(body).send().await?.status())
}
