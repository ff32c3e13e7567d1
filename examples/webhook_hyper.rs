//! A webhook endpoint without a framework, as a starting point for your own.
//!
//! ```text
//! cargo run -p audience-receivers --example webhook_hyper
//!     starts the endpoint, sends it three deliveries (one of them forged), and exits
//! AUDIENCE_WEBHOOK_SECRET=… cargo run -p audience-receivers --example webhook_hyper -- --port 8080
//!     runs the endpoint until SIGTERM or Ctrl-C; `audience webhooks send` posts to it
//! ```
//!
//! The service waits 10 seconds for a response and makes up to ten attempts over about five hours. It may
//! deliver an event more than once (interface section 6.5). The hook therefore stores the event in the inbox and
//! responds immediately, and the worker handles each event once.
#![expect(clippy::print_stdout, reason = "an example prints what it does")]

#[path = "support/demo.rs"]
mod demo;
mod support;

use std::convert::Infallible;
use std::error::Error;

use audience::inbox::{Attempt, Inbox, MemoryStore};
use audience::webhooks::tower::{BytesBody, VerifyLayer};
use audience::webhooks::{Event, VerifiedEvent, Verifier};
use clap::Parser;
use http::{Method, Request, Response, StatusCode};
use hyper::body::Incoming;
use support::ENVIRONMENT;
use tokio::net::TcpListener;
use tower::{Service, ServiceExt, service_fn};

/// A webhook endpoint without a framework, as a starting point for your own
#[derive(Parser)]
#[command(name = "webhook_hyper", after_help = ENVIRONMENT)]
struct Arguments {
    /// Port of 127.0.0.1 to listen on. Without it, the program sends itself three deliveries and exits
    #[arg(long, value_name = "N")]
    port: Option<u16>,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let port = Arguments::parse().port;
    let verifier = match port {
        Some(_) => Verifier::from_env()?,
        None => Verifier::new(demo::SECRET)?,
    };
    let listener = TcpListener::bind(("127.0.0.1", port.unwrap_or(0))).await?;
    let address = listener.local_addr()?;
    println!("listening on http://{address}/hook");

    // This store is in memory and is lost when the process ends. It holds 100,000 events of the last 72 hours, and
    // refuses more. In production, use a file or a database.
    let inbox = Inbox::builder(MemoryStore::new()).build()?;
    let accepting = inbox.clone();
    let hook = VerifyLayer::new(verifier).handler(move |delivery: VerifiedEvent| {
        let inbox = accepting.clone();
        async move { inbox.accept(delivery).await }
    });
    let router = service_fn(move |request: Request<Incoming>| route(request, hook.clone()));
    let server = audience::serve(listener, router).worker(inbox.worker(handle));
    let mut outcome = Ok(());
    match port {
        Some(_) => server.await?,
        None => {
            let demo = async { outcome = demo::run_demo(address).await };
            server.run_until(demo).await?;
        }
    }
    inbox.worker(handle).run_until_idle().await?; // what was accepted last; a file or a database would keep it
    outcome
}

/// Runs once for each event. Put your own code here; after an error the worker tries again.
async fn handle(event: Event, _attempt: Attempt) -> Result<(), &'static str> {
    match event.mail() {
        Some(mail) if mail.is_permanent_bounce() => {
            println!("{}: stop sending to {}", event.id, mail.to);
        }
        // A bounce without its address is parked after ten attempts, so that a person looks at it.
        None if event.data.is_incomplete() => return Err("incomplete data"),
        _ => println!("{}: {}", event.id, event.event_type()),
    }
    Ok(())
}

async fn route<S>(request: Request<Incoming>, hook: S) -> Result<Response<BytesBody>, Infallible>
where
    S: Service<Request<Incoming>, Response = Response<BytesBody>, Error = Infallible>,
{
    let status = match (request.method(), request.uri().path()) {
        (&Method::POST, "/hook") => return hook.oneshot(request).await,
        (_, "/hook") => StatusCode::METHOD_NOT_ALLOWED,
        _ => StatusCode::NOT_FOUND,
    };
    let mut response = Response::new(BytesBody::default());
    *response.status_mut() = status;
    Ok(response)
}
