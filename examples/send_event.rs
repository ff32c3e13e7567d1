//! Signs an event and posts it to a webhook endpoint, as the service does.
//!
//! ```text
//! cargo run --example send_event -- URL SECRET TYPE [--to ADDRESS] [--id ID] [--data JSON]
//! cargo run --example send_event -- http://127.0.0.1:8080/hook "$SECRET" email.bounced
//! cargo run --example send_event
//!     starts an endpoint, sends it one event of each type, and exits
//! ```
//!
//! TYPE may be any event type, even one that the interface document does not list.
//!
//! - `--to` sets the recipient.
//! - `--id` sets the event's id. Send the same id twice to test how an endpoint handles a duplicate.
//! - `--data` replaces the event's data.
//!
//! Like the service, it waits 10 seconds for the response and does not follow redirects (interface section 6.5). It
//! exits with an error if the service would retry.
#![expect(clippy::print_stdout, reason = "an example prints what it does")]

use std::env;
use std::error::Error;
use std::time::{Duration, SystemTime};

use audience::Timestamp;
use audience::webhooks::axum::SignedEvent;
use audience::webhooks::{EventType, Signer, Verifier};
use axum::Router;
use axum::routing::post;
use reqwest::redirect;
use serde_json::{Value, json};
use tokio::net::TcpListener;

const USAGE: &str = "usage: send_event URL SECRET TYPE [--to ADDRESS] [--id ID] [--data JSON]";

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    match &arguments[..] {
        [] => run_demo().await,
        [url, secret, event_type, options @ ..] => {
            let event_type = EventType::from(event_type.as_str());
            post_event(url, secret, &event_type, &Options::parse(options)?).await
        }
        _ => Err(USAGE.into()),
    }
}

#[derive(Default)]
struct Options {
    to: Option<String>,
    id: Option<String>,
    data: Option<Value>,
}

impl Options {
    fn parse(arguments: &[String]) -> Result<Self, Box<dyn Error>> {
        let mut options = Self::default();
        for pair in arguments.chunks(2) {
            match pair {
                [flag, to] if flag == "--to" => options.to = Some(to.clone()),
                [flag, id] if flag == "--id" => options.id = Some(id.clone()),
                [flag, data] if flag == "--data" => {
                    options.data = Some(serde_json::from_str(data)?);
                }
                _ => return Err(USAGE.into()),
            }
        }
        Ok(options)
    }
}

/// Posts one event and prints the status of the response.
async fn post_event(
    url: &str,
    secret: &str,
    event_type: &EventType,
    options: &Options,
) -> Result<(), Box<dyn Error>> {
    let now = SystemTime::now();
    let id = options.id.clone().unwrap_or_else(|| new_id(now));
    let body = serde_json::to_vec(&json!({
        "id": id,
        "type": event_type,
        "created_at": Timestamp::from(now),
        "data": data(event_type, options),
    }))?;
    let headers = Signer::new(secret)?.sign(event_type, now, &body);

    let client = reqwest::Client::builder()
        .timeout(Duration::from_secs(10))
        .redirect(redirect::Policy::none())
        .build()?;
    let request = client
        .post(url)
        .header("content-type", "application/json")
        .headers(headers)
        .body(body);
    let status = request.send().await?.status();

    println!("sent {event_type} {id}: {status}");
    if status.is_success() {
        Ok(())
    } else {
        Err("not a success: the service would retry this event".into())
    }
}

/// Returns the data from `--data`, or sample data with the members that the interface document shows for this type.
fn data(event_type: &EventType, options: &Options) -> Value {
    if let Some(data) = &options.data {
        return data.clone();
    }
    let to = options.to.as_deref();
    if *event_type == EventType::Received {
        return json!({
            "inbound_id": "in_1",
            "from": "ada@example.net",
            "to": [to.unwrap_or("support@example.com")],
            "subject": "Where is my parcel?",
            "text": "It should have arrived on Monday.",
            "authentication_results": "mx.example.com; spf=pass smtp.mailfrom=example.net; \
                dkim=not-evaluated; dmarc=not-evaluated",
        });
    }
    let (bounce_type, detail) = match event_type {
        EventType::Bounced => ("Permanent", "550 5.1.1 User unknown"),
        EventType::DeliveryDelayed => ("", "451 4.7.1 Greylisted, try again later"),
        EventType::Failed => ("", "no mail exchanger found"),
        EventType::Refused => ("", "the address is on the suppression list"),
        _ => ("", ""),
    };
    json!({
        "email_id": "email_1",
        "from": "shop@example.com",
        "to": to.unwrap_or("ada@example.net"),
        "subject": "Your receipt",
        "bounce_type": bounce_type,
        "detail": detail,
    })
}

fn new_id(now: SystemTime) -> String {
    let since_epoch = now
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    format!("evt_{:x}", since_epoch.as_nanos())
}

/// Starts an endpoint and posts one event of each type to it.
async fn run_demo() -> Result<(), Box<dyn Error>> {
    async fn hook(event: SignedEvent) {
        println!("the endpoint received {}", event.event_type());
    }

    let secret = "the secret of this demo";
    let verifier = Verifier::new(secret)?;
    let router = Router::new()
        .route("/hook", post(hook))
        .with_state(verifier);
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}/hook", listener.local_addr()?);
    tokio::spawn(async { axum::serve(listener, router).await });

    for event_type in EventType::KNOWN {
        post_event(&url, secret, event_type, &Options::default()).await?;
    }
    Ok(())
}
