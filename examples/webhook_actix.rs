//! A webhook endpoint under actix-web, ready to be filled with work of your own.
//!
//! ```text
//! cargo run --example webhook_actix
//!     starts it, delivers to it what the service could and what it would not, and ends
//! AUDIENCE_WEBHOOK_SECRET=… cargo run --example webhook_actix -- --port 8080
//!     keeps it running; `send_event` posts to it
//! ```
//!
//! The service waits 10 seconds for an answer, tries up to ten times over about five hours, and may
//! deliver an event more than once even so (interface section 6.5). Hence the three steps in `hook`.
#![expect(clippy::print_stdout, reason = "a program for the terminal")]

use std::collections::{HashSet, VecDeque};
use std::env;
use std::error::Error;
use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

use actix_web::{App, HttpResponse, HttpServer, web};
use audience::webhooks::actix::SignedEvent;
use audience::webhooks::{Event, EventData, EventId, EventType, Signer, Verifier};
use http::{HeaderMap, StatusCode};
use tokio::sync::mpsc;

/// An event is delivered for five hours at most. Keep at least as many ids as come in that time.
const REMEMBERED: usize = 100_000;
const WAITING: usize = 1_000;
const DEMO_SECRET: &str = "a secret for this demonstration";

/// Called for genuine deliveries only; forged ones were answered before.
async fn hook(intake: web::Data<Mutex<Intake>>, delivery: SignedEvent) -> HttpResponse {
    let mut intake = intake.lock().unwrap_or_else(PoisonError::into_inner);
    // 1. Something that came before? Then this delivery is done with.
    if intake.seen.contains(&delivery.id) {
        return HttpResponse::Ok().finish();
    }
    // 2. Hand it over. Here it waits in memory and is lost with the process; a table whose key is
    //    the event's id does steps 1 and 2 in one insert, and keeps them.
    let id = delivery.id.clone();
    if intake.work.try_send(delivery.into_event()).is_err() {
        return HttpResponse::ServiceUnavailable().finish(); // the service will come again
    }
    intake.seen.insert(id);
    // 3. Answer at once; the work itself may take as long as it likes.
    HttpResponse::Ok().finish()
}

/// The work: whatever your program does about an event.
async fn work(mut events: mpsc::Receiver<Event>) {
    while let Some(event) = events.recv().await {
        match &event.data {
            EventData::Bounced(mail) => println!("{}: {} bounced", event.id, mail.to),
            EventData::Received(mail) => println!("{}: mail from {}", event.id, mail.from),
            _ => println!("{}: {}", event.id, event.event_type()),
        }
    }
}

struct Intake {
    seen: Seen,
    work: mpsc::Sender<Event>,
}

/// The newest ids, no more than [`REMEMBERED`].
#[derive(Default)]
struct Seen {
    ids: HashSet<EventId>,
    oldest_first: VecDeque<EventId>,
}

impl Seen {
    fn contains(&self, id: &EventId) -> bool {
        self.ids.contains(id)
    }

    fn insert(&mut self, id: EventId) {
        if self.oldest_first.len() == REMEMBERED
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
    let arguments: Vec<String> = env::args().skip(1).collect();
    let (secret, port) = match &arguments[..] {
        [] => (DEMO_SECRET.to_owned(), None),
        [flag, port] if flag == "--port" => {
            let secret = env::var("AUDIENCE_WEBHOOK_SECRET")
                .map_err(|_| "set AUDIENCE_WEBHOOK_SECRET to the endpoint's signing secret")?;
            (secret, Some(port.parse()?))
        }
        _ => return Err("usage: webhook_actix [--port PORT]".into()),
    };

    let (sender, events) = mpsc::channel(WAITING);
    let intake = web::Data::new(Mutex::new(Intake {
        seen: Seen::default(),
        work: sender,
    }));
    let verifier = web::Data::new(Verifier::new(&secret)?);
    let server = HttpServer::new(move || {
        App::new()
            .app_data(verifier.clone())
            .app_data(intake.clone())
            .service(web::resource("/hook").route(web::post().to(hook)))
    })
    .workers(2)
    .bind(("127.0.0.1", port.unwrap_or(0)))?;
    let address = server.addrs()[0];
    println!("listening on http://{address}/hook");

    let worker = tokio::spawn(work(events));
    if port.is_some() {
        server.run().await?;
    } else {
        let running = server.disable_signals().run();
        let handle = running.handle();
        let server = tokio::spawn(running);
        demonstrate(address, &secret).await?;
        handle.stop(true).await;
        server.await??;
        worker.await?; // the handlers are gone, and the channel's sender with them
    }
    Ok(())
}

/// Delivers an event twice, as the service may, and once changed, as it never does.
async fn demonstrate(address: SocketAddr, secret: &str) -> Result<(), Box<dyn Error>> {
    let body = r#"{"id": "evt_1", "type": "email.bounced", "created_at": 1700000000, "data": {
        "email_id": "email_1", "from": "shop@example.com", "to": "nobody@example.net",
        "subject": "Your receipt", "bounce_type": "Permanent", "detail": "550 5.1.1 User unknown"}}"#;
    let headers = Signer::new(secret)?.sign(&EventType::Bounced, SystemTime::now(), body);
    let changed = body.replace("nobody", "somebody");
    for (what, body, expected) in [
        ("a genuine delivery", body, StatusCode::OK),
        ("the same once more", body, StatusCode::OK),
        ("one that was changed", &changed, StatusCode::UNAUTHORIZED),
    ] {
        let status = deliver(address, headers.clone(), body.to_owned()).await?;
        println!("{what}: {status}");
        if status != expected {
            return Err(format!("{what} should be answered with {expected}").into());
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
