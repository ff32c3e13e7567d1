//! Signs an event and posts it to a webhook endpoint, as the service does.
//!
//! ```text
//! cargo run -p audience-receivers --example send_event -- http://127.0.0.1:8080/hook "$SECRET" email.bounced
//! cargo run -p audience-receivers --example send_event -- --help
//! cargo run -p audience-receivers --example send_event
//!     starts an endpoint, sends it one event of each type, and exits
//! ```
//!
//! Like the service, it waits 10 seconds for the response and does not follow redirects (interface section 6.5). It
//! exits with an error if the service would retry.
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "an example prints what it does"
)]

use std::env;
use std::error::Error;
use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use audience::Timestamp;
use audience::webhooks::{EventType, Signer, VerifiedEvent, Verifier};
use axum::Router;
use axum::routing::post;
use clap::{Args, CommandFactory, Parser};
use reqwest::redirect;
use serde_json::{Value, json};
use tokio::net::TcpListener;

/// Signs an event and posts it to a webhook endpoint, as the service does
#[derive(Parser)]
#[command(name = "send_event", override_usage = USAGE, after_help = ENVIRONMENT)]
struct Arguments {
    /// URL of the endpoint. Without it, the example starts an endpoint, sends it one event of each type, and exits
    url: Option<String>,
    /// Signing secret of the endpoint [default: see below]
    secret: Option<String>,
    /// Type of the event, for example email.bounced. It may be one that does not exist yet, for example email.seen
    #[arg(value_name = "TYPE")]
    event_type: Option<String>,
    #[command(flatten)]
    options: Options,
}

#[derive(Args, Default)]
struct Options {
    /// Recipient of the mail
    #[arg(long, value_name = "ADDRESS")]
    to: Option<String>,
    /// Id of the event [default: a new one]. Send an id twice to test how an endpoint handles a duplicate
    #[arg(long)]
    id: Option<String>,
    /// Data of the event [default: sample data of the type]
    #[arg(long, value_name = "JSON", value_parser = json)]
    data: Option<Value>,
}

const USAGE: &str = "\
send_event [OPTIONS] <URL> [SECRET] <TYPE>
       send_event";

const ENVIRONMENT: &str = "\
Environment:
  AUDIENCE_WEBHOOK_SECRET  Signing secret of the endpoint, if SECRET is left out

The program waits 10 seconds for the response and does not follow redirects. It exits with 1 if the service would retry
the event.";

#[tokio::main]
async fn main() -> ExitCode {
    let Err(error) = run(Arguments::parse()).await else {
        return ExitCode::SUCCESS;
    };
    eprint!("send_event: {error}");
    let mut source = error.source();
    while let Some(cause) = source {
        eprint!(": {cause}");
        source = cause.source();
    }
    eprintln!();
    ExitCode::FAILURE
}

async fn run(arguments: Arguments) -> Result<(), Box<dyn Error>> {
    let Arguments {
        url,
        secret,
        event_type,
        options,
    } = arguments;
    let Some(url) = url else {
        return run_demo().await;
    };
    // With two arguments, the second is the type.
    let (secret, event_type) = match (secret, event_type) {
        (Some(event_type), None) => (None, event_type),
        (secret, Some(event_type)) => (secret, event_type),
        (None, None) => usage_error("pass the TYPE of the event"),
    };
    if !is_event_type(&event_type) {
        // It may be the secret, so it is not printed.
        usage_error("TYPE is not an event type such as email.bounced; it is the last argument");
    }
    let secret = secret
        .or_else(|| env::var("AUDIENCE_WEBHOOK_SECRET").ok())
        .unwrap_or_else(|| usage_error("pass SECRET, or set AUDIENCE_WEBHOOK_SECRET"));
    post_event(&url, &secret, &EventType::from(event_type), &options).await
}

/// Returns whether the text consists of lowercase words with periods between them.
fn is_event_type(text: &str) -> bool {
    let is_letter = |letter: u8| letter.is_ascii_lowercase() || letter == b'_';
    text.contains('.')
        && text
            .split('.')
            .all(|word| !word.is_empty() && word.bytes().all(is_letter))
}

// A parser of its own: by default, clap would take any text as a JSON string.
fn json(text: &str) -> serde_json::Result<Value> {
    text.parse()
}

fn usage_error(problem: &str) -> ! {
    let kind = clap::error::ErrorKind::MissingRequiredArgument;
    Arguments::command().error(kind, problem).exit()
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
    async fn hook(event: VerifiedEvent) {
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
