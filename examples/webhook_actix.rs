//! A webhook endpoint with actix-web, as a starting point for your own.
//!
//! ```text
//! cargo run --example webhook_actix
//!     starts the endpoint, sends it three deliveries (one of them forged), and exits
//! AUDIENCE_WEBHOOK_SECRET=… cargo run --example webhook_actix -- --port 8080
//!     runs the endpoint until it is stopped; use the example `send_event` to post to it
//! ```
//!
//! The service waits 10 seconds for a response and makes up to ten attempts over about five hours. It may
//! deliver an event more than once (interface section 6.5). `hook` therefore drops duplicates, passes the event
//! on, and responds at once.
#![expect(clippy::print_stdout, reason = "an example prints what it does")]

use std::collections::{HashSet, VecDeque};
use std::error::Error;
use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use actix_web::{App, HttpResponse, HttpServer, web};
use audience::webhooks::actix::SignedEvent;
use audience::webhooks::{Event, EventData, EventId, EventType, Signer, Verifier};
use clap::Parser;
use http::{HeaderMap, StatusCode};
use tokio::sync::mpsc;

/// How many event ids to remember. The service retries an event for about five hours: keep at least as many ids as
/// arrive in that time.
const REMEMBERED_IDS: usize = 100_000;
/// How many events may wait for the worker.
const QUEUED_EVENTS: usize = 1_000;
/// How long a connection may take to send the headers of a request. `SignedEvent` limits the time of the body.
const HEADER_TIMEOUT: Duration = Duration::from_secs(5);
const DEMO_SECRET: &str = "the secret of this demo";

/// A webhook endpoint with actix-web, as a starting point for your own
#[derive(Parser)]
#[command(name = "webhook_actix", after_help = ENVIRONMENT)]
struct Arguments {
    /// Port of 127.0.0.1 to listen on. Without it, the program sends itself three deliveries and exits
    #[arg(long, value_name = "N")]
    port: Option<u16>,
}

const ENVIRONMENT: &str = "\
Environment, needed with --port:
  AUDIENCE_WEBHOOK_SECRET         Signing secret of the endpoint
  AUDIENCE_WEBHOOK_SECRET_<NAME>  Further secrets, while one is replaced";

/// Runs only for verified deliveries: the extractor rejects all others.
async fn hook(inbox: web::Data<Mutex<Inbox>>, delivery: SignedEvent) -> HttpResponse {
    let mut inbox = inbox.lock().unwrap_or_else(PoisonError::into_inner);
    // 1. Drop an event that was received before.
    if inbox.seen.contains(&delivery.id) {
        return HttpResponse::Ok().finish();
    }
    // 2. Queue the event. This queue is in memory and is lost when the process ends. In production, insert
    //    the event into a table whose key is the event's id: that is steps 1 and 2 in one, and durable.
    let id = delivery.id.clone();
    if inbox.queue.try_send(delivery.into_event()).is_err() {
        return HttpResponse::ServiceUnavailable().finish(); // the service retries
    }
    inbox.seen.insert(id);
    // 3. Respond at once. The worker may take as long as it needs.
    HttpResponse::Ok().finish()
}

/// Handles the queued events. Put your own code here.
async fn handle_events(mut events: mpsc::Receiver<Event>) {
    while let Some(event) = events.recv().await {
        match &event.data {
            EventData::Bounced(mail) => println!("{}: mail to {} bounced", event.id, mail.to),
            EventData::Received(mail) => println!("{}: mail received from {}", event.id, mail.from),
            _ => println!("{}: {}", event.id, event.event_type()),
        }
    }
}

struct Inbox {
    seen: SeenIds,
    queue: mpsc::Sender<Event>,
}

/// The ids of the newest events, at most [`REMEMBERED_IDS`].
#[derive(Default)]
struct SeenIds {
    ids: HashSet<EventId>,
    oldest_first: VecDeque<EventId>,
}

impl SeenIds {
    fn contains(&self, id: &EventId) -> bool {
        self.ids.contains(id)
    }

    fn insert(&mut self, id: EventId) {
        if self.oldest_first.len() == REMEMBERED_IDS
            && let Some(oldest) = self.oldest_first.pop_front()
        {
            self.ids.remove(&oldest);
        }
        if self.ids.insert(id.clone()) {
            self.oldest_first.push_back(id);
        }
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let port = Arguments::parse().port;
    let verifier = match port {
        Some(_) => Verifier::from_env()?,
        None => Verifier::new(DEMO_SECRET)?,
    };

    let (sender, events) = mpsc::channel(QUEUED_EVENTS);
    let inbox = web::Data::new(Mutex::new(Inbox {
        seen: SeenIds::default(),
        queue: sender,
    }));
    let verifier = web::Data::new(verifier);
    let server = HttpServer::new(move || {
        App::new()
            .app_data(verifier.clone())
            .app_data(inbox.clone())
            .service(web::resource("/hook").route(web::post().to(hook)))
    })
    .workers(2)
    .client_request_timeout(HEADER_TIMEOUT)
    .bind(("127.0.0.1", port.unwrap_or(0)))?;
    let address = server.addrs()[0];
    println!("listening on http://{address}/hook");

    let worker = tokio::spawn(handle_events(events));
    if port.is_some() {
        server.run().await?;
    } else {
        let running = server.disable_signals().run();
        let handle = running.handle();
        let server = tokio::spawn(running);
        run_demo(address).await?;
        handle.stop(true).await;
        server.await??;
        worker.await?; // ends because the server and its sender are dropped
    }
    Ok(())
}

/// Delivers an event twice, as the service may, and then with a changed body, as an attacker might.
async fn run_demo(address: SocketAddr) -> Result<(), Box<dyn Error>> {
    let body = r#"{"id": "evt_1", "type": "email.bounced", "created_at": 1700000000, "data": {
        "email_id": "email_1", "from": "shop@example.com", "to": "nobody@example.net",
        "subject": "Your receipt", "bounce_type": "Permanent", "detail": "550 5.1.1 User unknown"}}"#;
    let headers = Signer::new(DEMO_SECRET)?.sign(&EventType::Bounced, SystemTime::now(), body);
    let changed = body.replace("nobody", "somebody");
    for (description, body, expected) in [
        ("a genuine delivery", body, StatusCode::OK),
        ("the same delivery again", body, StatusCode::OK),
        (
            "a delivery with a changed body",
            &changed,
            StatusCode::UNAUTHORIZED,
        ),
    ] {
        let status = deliver(address, headers.clone(), body.to_owned()).await?;
        println!("{description}: {status}");
        if status != expected {
            return Err(format!("{description} should get the response {expected}").into());
        }
    }
    Ok(())
}

async fn deliver(
    address: SocketAddr,
    headers: HeaderMap,
    body: String,
) -> Result<StatusCode, reqwest::Error> {
    let request = reqwest::Client::new().post(format!("http://{address}/hook"));
    Ok(request.headers(headers).body(body).send().await?.status())
}
