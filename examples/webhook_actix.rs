//! A webhook endpoint with actix-web, as a starting point for your own.
//!
//! ```text
//! cargo run -p audience-receivers --example webhook_actix
//!     starts the endpoint, sends it three deliveries (one of them forged), and exits
//! AUDIENCE_WEBHOOK_SECRET=… cargo run -p audience-receivers --example webhook_actix -- --port 8080
//!     runs the endpoint until it is stopped; `audience webhooks send` posts to it
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

use actix_web::{App, HttpServer, web};
use audience::inbox::{Inbox, Receipt};
use audience::webhooks::{Event, EventData, VerifiedEvent, Verifier};
use clap::Parser;
use inbox_store::StoreArguments;
use support::ENVIRONMENT;

/// How long a connection may take to send the headers of a request. `VerifiedEvent` limits the time of the body.
const HEADER_TIMEOUT: Duration = Duration::from_secs(5);

/// How long handlers may continue after the last response, which takes up to 8 s. Kubernetes kills a program 30 s after
/// SIGTERM.
const HANDLER_TIMEOUT: Duration = Duration::from_secs(20);

/// A webhook endpoint with actix-web, as a starting point for your own
#[derive(Parser)]
#[command(name = "webhook_actix", after_help = ENVIRONMENT)]
struct Arguments {
    /// Port of 127.0.0.1 to listen on. Without it, the program sends itself three deliveries and exits
    #[arg(long, value_name = "N")]
    port: Option<u16>,
    #[command(flatten)]
    store: StoreArguments,
}

/// Runs only for verified deliveries: the extractor rejects all others.
async fn hook(inbox: web::Data<Inbox>, delivery: VerifiedEvent) -> Receipt {
    let handler = |event, _attempt| async move { handle(&event) };
    inbox.handle(delivery, handler).await
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

// Not `#[actix_web::main]`: a handler that takes long must outlive the server, see `wait_idle` below.
#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let Arguments { port, store } = Arguments::parse();
    let verifier = match port {
        Some(_) => Verifier::from_env()?,
        None => Verifier::new(demo::SECRET)?,
    };
    let inbox = store.open(port.is_none()).await?.build()?;

    let (verifier, state) = (web::Data::new(verifier), web::Data::new(inbox.clone()));
    let server = HttpServer::new(move || {
        App::new()
            .app_data(verifier.clone())
            .app_data(state.clone())
            .service(web::resource("/hook").route(web::post().to(hook)))
    })
    .workers(2)
    .client_request_timeout(HEADER_TIMEOUT)
    .keep_alive(Duration::from_secs(620)) // longer than a proxy's
    .bind(("127.0.0.1", port.unwrap_or(0)))?;
    let address = server.addrs()[0];
    println!("listening on http://{address}/hook");

    if port.is_some() {
        server.run().await?;
    } else {
        let running = server.disable_signals().run();
        let handle = running.handle();
        let server = tokio::spawn(running);
        demo::run_demo(address).await?;
        handle.stop(true).await;
        server.await??;
    }
    // A handler continues when its connection is closed. One that hangs must not keep the program running.
    let _ = tokio::time::timeout(HANDLER_TIMEOUT, inbox.wait_idle()).await;
    Ok(())
}
