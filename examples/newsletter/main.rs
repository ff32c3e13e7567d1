//! A newsletter in one program: signup with a double opt-in, a preference page, one click, and webhooks.
//!
//! ```text
//! cargo run -p audience-receivers --example newsletter -- --port 8080
//!     runs until SIGTERM or Ctrl-C
//! cargo run -p audience-receivers --example newsletter -- --send news --issue 2026-11 --subject "Hello" <news.txt
//!     sends an issue to everybody who subscribed to the topic `news`
//! ```
//!
//! In a package of your own, with this file as `src/main.rs`, it is `cargo run -- --port 8080`.
//!
//! | route | for |
//! |---|---|
//! | `/` | the form, which sends a mail with a link to confirm |
//! | `/preferences/TOKEN` | the button that confirms, the preference page, and one click of mailbox providers |
//! | `POST /hook` | webhooks of the service |
//! | `/health`, `/ready` | probes |
#![expect(clippy::print_stdout, reason = "an example prints what it does")]

use std::env;
use std::error::Error;
use std::io;
use std::process::ExitCode;
use std::time::Duration;

use audience::Client;
use audience::emails::Email;
use audience::inbox::{Inbox, PostgresStore, Receipt};
use audience::unsubscribe::{IssueError, OfferedTopic, UnsubscribeLinks, UnsubscribeService};
use audience::webhooks::{Event, EventData, VerifiedEvent, Verifier};
use axum::Router;
use axum::extract::{Form, FromRef, State};
use axum::http::StatusCode;
use axum::response::Html;
use axum::routing::{get, post};
use clap::Parser;
use tokio::net::TcpListener;
use tower_http::timeout::TimeoutLayer;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::prelude::*;

/// The topics that the form offers, with their labels.
const TOPICS: [(&str, &str); 2] = [
    ("news", "News, once a month"),
    ("offers", "Offers, every week"),
];
const SENDER: &str = "Shop <news@shop.example.com>";

const ENVIRONMENT: &str = "\
Environment:
  AUDIENCE_URL, AUDIENCE_KEY  The service and its key
  AUDIENCE_WEBHOOK_SECRET     Signing secret of the endpoint
  AUDIENCE_INBOX_URL          Postgres database, postgres://USER@HOST/NAME
  PUBLIC_URL                  URL of this program in links, such as https://shop.example.com
  AUDIENCE_UNSUBSCRIBE_SECRET 32 or more random bytes, for the tokens in links";

/// Signup, preference page, one click and webhooks in one program
#[derive(Parser)]
#[command(name = "newsletter", after_help = ENVIRONMENT)]
struct Arguments {
    /// Port of 127.0.0.1 to listen on
    #[arg(long, value_name = "N", default_value_t = 8080)]
    port: u16,
    /// Send the text on standard input to everybody who subscribed to this topic, and exit
    #[arg(long, value_name = "TOPIC", requires_all = ["issue", "subject"])]
    send: Option<String>,
    /// Name of the issue: nobody gets the same one twice
    #[arg(long, value_name = "NAME", requires = "send")]
    issue: Option<String>,
    /// Subject of its mail
    #[arg(long, value_name = "TEXT", requires = "send")]
    subject: Option<String>,
}

#[derive(Clone, FromRef)]
struct App {
    inbox: Inbox,
    verifier: Verifier,
    preferences: UnsubscribeService,
}

impl App {
    fn new(store: PostgresStore) -> Result<Self, Box<dyn Error>> {
        let client = Client::from_env()?;
        let public_url = variable("PUBLIC_URL")?;
        let base_url = format!("{}/preferences", public_url.trim_end_matches('/'));
        let links = UnsubscribeLinks::from_env(base_url)?;
        let mut preferences = UnsubscribeService::builder(links, client.contacts(), store.clone());
        for (name, label) in TOPICS {
            preferences = preferences.topic(OfferedTopic::new(name, label));
        }
        Ok(Self {
            inbox: Inbox::builder(store).build()?,
            verifier: Verifier::from_env()?,
            preferences: preferences.build(),
        })
    }
}

fn variable(name: &str) -> Result<String, String> {
    env::var(name).map_err(|_| format!("set {name}"))
}

async fn form() -> Html<String> {
    let boxes = TOPICS.map(|(name, label)| {
        format!(
            r#"<p><label><input type="checkbox" name="topic" value="{name}"> {label}</label></p>"#
        )
    });
    page(&format!(
        r#"<form method="post">
        <p><label>Your address <input type="email" name="address" required></label></p>
        {}<p><button>Sign up</button></p></form>"#,
        boxes.concat()
    ))
}

/// Sends the mail with the link to confirm. The page does not tell whether the address is a contact.
async fn sign_up(
    State(app): State<App>,
    Form(fields): Form<Vec<(String, String)>>,
) -> (StatusCode, Html<String>) {
    let values = |name| fields.iter().filter(move |field| field.0 == name);
    let address = values("address").next().map_or("", |field| &field.1);
    let topics = values("topic").map(|field| &field.1);
    let sending = app.preferences.send_confirmation(address, topics, |link| {
        let mail = Email::new()
            .from(SENDER)
            .subject("Please confirm your address");
        mail.member("text", format!("To get our newsletters, open {link}\n"))
    });
    let status = match sending.await {
        Ok(()) => StatusCode::OK,
        Err(error) => {
            tracing::warn!(%error, "no confirmation mail was sent");
            error.visitor_status() // 200 if the service refuses this mail: strangers must not learn that
        }
    };
    let text = match status {
        StatusCode::OK => "Thank you. Please open the link in our mail.",
        StatusCode::UNPROCESSABLE_ENTITY => "Enter your address, and choose a newsletter.",
        StatusCode::SERVICE_UNAVAILABLE => "That did not work. Please try again in a minute.",
        _ => "Something is wrong on our side. Please try again tomorrow.",
    };
    (status, page(&format!("<p>{text}</p>")))
}

fn page(content: &str) -> Html<String> {
    Html(format!(
        r#"<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
        <title>Newsletters</title><h1>Newsletters</h1>{content}</html>"#
    ))
}

/// Handles an event. After an error it is called again, later and later.
async fn handle(
    preferences: &UnsubscribeService,
    event: &Event,
) -> Result<(), Box<dyn Error + Send + Sync>> {
    preferences.record_bounce(event).await?;
    match &event.data {
        EventData::Bounced(mail) | EventData::Failed(mail) | EventData::Refused(mail) => {
            tracing::warn!(email_id = %mail.email_id, "a mail did not arrive");
            Ok(())
        }
        data if data.is_incomplete() => Err("incomplete data".into()),
        _ => Ok(()),
    }
}

async fn hook(State(inbox): State<Inbox>, delivery: VerifiedEvent) -> Receipt {
    inbox.accept(delivery).await
}

async fn ready(State(inbox): State<Inbox>) -> Result<(), Receipt> {
    Ok(inbox.ready().await?)
}

#[tokio::main]
async fn main() -> ExitCode {
    audience::exit_code(run(Arguments::parse()).await) // 75 if running it again may help
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
    let store = PostgresStore::from_env()?;
    if arguments.send.is_none() {
        store.migrate().await?; // an issue must not begin with an empty store, in a wrong database
    }
    let app = App::new(store)?;
    match (&arguments.send, &arguments.issue, &arguments.subject) {
        (Some(topic), Some(issue), Some(subject)) => send(&app, topic, issue, subject).await,
        _ => serve(app, arguments.port).await,
    }
}

/// Sends an issue to every contact that wants mail about its topic. If it is stopped, run it again: nobody gets a second
/// mail.
async fn send(app: &App, topic: &str, issue: &str, subject: &str) -> Result<(), Box<dyn Error>> {
    let text = io::read_to_string(io::stdin())?;
    let sending = app.preferences.send_issue(issue, topic, |_contact, link| {
        let mail = Email::new().from(SENDER).subject(subject);
        mail.member("text", format!("{text}\n-- \nYour newsletters: {link}\n"))
    });
    let result = sending.stop_when(audience::shutdown_signal()).await;
    let report = result.as_ref().unwrap_or_else(IssueError::report);
    println!("{report}");
    for failure in report.failures() {
        let reader = failure.address.as_deref().unwrap_or("a page of the list");
        let end = match failure.maybe_sent() {
            true => "maybe sent, and not sent again",
            false => "failed",
        };
        println!("{end}: {reader:?}: {}", failure.error);
    }
    for address in report.maybe_not_sent() {
        println!("maybe not sent, and not sent again: {address:?}");
    }
    drop(result?.finished()?);
    Ok(())
}

/// Runs the server and both workers until SIGTERM or Ctrl-C.
async fn serve(app: App, port: u16) -> Result<(), Box<dyn Error>> {
    let preferences = app.preferences.clone();
    let bounces = app.preferences.clone();
    let events = app.inbox.worker(move |event, _attempt| {
        let bounces = bounces.clone();
        async move { handle(&bounces, &event).await }
    });
    let router = Router::new()
        .route("/", get(form).post(sign_up))
        // For the body of the form, which arrives while the handler runs, and the mail, which takes up to 8 s. If the
        // handler is cut off, `send_confirmation` continues.
        .layer(TimeoutLayer::with_status_code(
            StatusCode::REQUEST_TIMEOUT,
            Duration::from_secs(20),
        ))
        .nest_service("/preferences", preferences.clone())
        .route("/hook", post(hook))
        .route("/health", get(StatusCode::OK))
        .route("/ready", get(ready))
        .with_state(app);
    let listener = TcpListener::bind(("127.0.0.1", port)).await?;
    println!("listening on http://{}", listener.local_addr()?);
    audience::serve(listener, router)
        .worker(events)
        .worker(preferences.worker())
        .await?;
    Ok(())
}
