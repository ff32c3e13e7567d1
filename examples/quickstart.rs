//! The whole crate in one run, against the embedded mock: `cargo run --example quickstart`.

use std::error::Error as StdError;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use audience::contacts::{BatchOutcome, Contacts, NewContact, OnConflict, OptOutReason};
use audience::mock::{Fault, MockServer};
use audience::rule::{Condition, Rule};
use audience::webhooks::axum::SignedEvent;
use audience::webhooks::{EventData, Verifier};
use axum::Router;
use axum::extract::{FromRef, State};
use axum::http::StatusCode;
use axum::routing::post;
use futures_util::TryStreamExt;
use serde_json::json;

type Outcome = Result<(), Box<dyn StdError>>;

#[tokio::main]
async fn main() -> Outcome {
    let server = MockServer::builder().clock(1_700_000_000).start().await;
    server.topic("news", true);
    let contacts = server.client().contacts();
    println!("the mock listens on {}", server.url());

    create(&contacts).await?;
    import(&contacts).await?;
    walk(&contacts).await?;
    consent(&contacts).await?;
    complaint(&server, &contacts).await?;
    retry(&server, &contacts).await?;
    webhooks(&server).await
}

async fn create(contacts: &Contacts) -> Outcome {
    heading("create, upsert, skip");
    let ada = || NewContact::new("Ada@Example.com").first_name("Ada");

    let created = contacts.create(ada().property("plan", "free")).await?;
    println!(
        "new: {}, stored as {}",
        created.is_new(),
        created.contact.email
    );

    let updated = contacts
        .create(ada().property("plan", "pro").property("seats", 3))
        .await?;
    println!(
        "new: {}, upserted to plan {:?}",
        updated.is_new(),
        updated.contact.properties["plan"].as_str()
    );

    let skipped = contacts
        .create(ada().property("plan", "gone").on_conflict(OnConflict::Skip))
        .await?;
    println!(
        "new: {}, skipped, still {:?}",
        skipped.is_new(),
        skipped.contact.properties["plan"].as_str()
    );
    Ok(())
}

async fn import(contacts: &Contacts) -> Outcome {
    heading("a batch with one bad entry");
    let report = contacts
        .create_batch(["bob@example.com", "not an address", "eve@example.com"].map(NewContact::new))
        .await?;

    for entry in &report.entries {
        match &entry.outcome {
            BatchOutcome::Failed { code, message } => {
                println!(
                    "{:<16} refused: {code} ({})",
                    entry.email,
                    message.as_deref().unwrap_or("no reason given")
                );
            }
            applied => println!("{:<16} {applied:?}", entry.email),
        }
    }
    Ok(())
}

async fn walk(contacts: &Contacts) -> Outcome {
    heading("250 contacts, page by page");
    let subscribers =
        (1..=250).map(|n| NewContact::new(format!("reader{n}@example.com")).property("seats", n));
    let subscribers: Vec<NewContact> = subscribers.collect();
    for part in subscribers.chunks(audience::contacts::MAX_BATCH) {
        contacts.create_batch(part.to_vec()).await?;
    }

    let everyone = || Rule::all([Condition::property("seats").is_set()]);
    let large = Rule::all([Condition::property("seats").greater_than(200)]);
    let mut stream = contacts.list().rule(everyone()).limit(40).stream();
    let (mut seen, mut newest) = (0, None);
    while let Some(contact) = stream.try_next().await? {
        seen += 1;
        newest.get_or_insert(contact.email);
    }
    println!(
        "walked over {seen}, the newest is {}",
        newest.unwrap_or_default()
    );
    println!(
        "counted {}, of whom {} have more than 200 seats",
        contacts.list().rule(everyone()).count().await?,
        contacts.list().rule(large).count().await?
    );
    Ok(())
}

async fn consent(contacts: &Contacts) -> Outcome {
    heading("two layers of consent");
    let contact = contacts
        .unsubscribe("bob@example.com")
        .topic("news")
        .await?;
    println!(
        "out of one topic: news {:?}, opted out {}",
        contact.topics.get("news"),
        contact.unsubscribed
    );

    let contact = contacts
        .unsubscribe("bob@example.com")
        .reason(OptOutReason::Preferences)
        .await?;
    println!(
        "out of all:       news {:?}, opted out {} ({:?})",
        contact.topics.get("news"),
        contact.unsubscribed,
        contact.unsubscribe_reason
    );

    contacts.subscribe("bob@example.com").topic("news").await?;
    let contact = contacts.subscribe("bob@example.com").await?;
    println!(
        "back again:       news {:?}, opted out {}",
        contact.topics.get("news"),
        contact.unsubscribed
    );
    Ok(())
}

async fn complaint(server: &MockServer, contacts: &Contacts) -> Outcome {
    heading("a complaint cannot be undone");
    server.report_spam("eve@example.com");

    match contacts.subscribe("eve@example.com").await {
        Err(error) if error.is_complaint_locked() => println!("{error}"),
        Err(error) => return Err(error.into()),
        Ok(_) => println!("this is never printed"),
    }
    Ok(())
}

async fn retry(server: &MockServer, contacts: &Contacts) -> Outcome {
    heading("a retry that saved a call");
    server.fault(Fault::status(503).times(2).path("/contacts"));

    let created = contacts.create(NewContact::new("zoe@example.com")).await?;

    println!(
        "{} was created with attempt {}",
        created.contact.email,
        created.attempts()
    );
    Ok(())
}

async fn webhooks(server: &MockServer) -> Outcome {
    heading("webhooks, verified");
    let inbox = Inbox::default();
    // The receiver lives in the mock's time, so that retries over hours take no time at all.
    let verifier = Verifier::builder()
        .secret("2026", "a signing secret")
        .clock(server.clock())
        .build()?;
    let address = receive(Receiver {
        verifier,
        inbox: inbox.clone(),
    })
    .await?;
    server.webhook_endpoint(format!("http://{address}/hook"), "a signing secret");

    inbox.refusals.store(2, Ordering::Relaxed);
    let mail = |detail| {
        json!({"email_id": "em_1", "from": "shop@example.com", "to": "bob@example.com", "subject": "Hello",
        "bounce_type": if detail == "" { "" } else { "Permanent" }, "detail": detail})
    };
    server
        .send_event(json!({"type": "email.bounced", "data": mail("550 no such user")}))
        .await;
    server
        .send_event(json!({"type": "email.opened", "data": mail("")}))
        .await;
    let reply = json!({"inbound_id": "in_1", "from": "bob@example.com", "to": ["shop@example.com"], "subject": "Re: Hello",
        "in_reply_to_email_id": "em_1", "text": "Thanks!",
        "authentication_results": "mx.example.com; spf=pass smtp.mailfrom=example.com; dkim=not-evaluated; dmarc=not-evaluated"});
    server
        .send_event(json!({"type": "email.received", "data": reply}))
        .await;
    server.advance(Duration::from_secs(5 * 3600)).await;

    for line in inbox.lines.lock().expect("no handler panics").iter() {
        println!("{line}");
    }
    println!("{} attempts for 3 events", server.attempts().len());
    Ok(())
}

/// What the receiver verified, and how many deliveries it is still to fail.
#[derive(Clone, Default)]
struct Inbox {
    refusals: Arc<AtomicU32>,
    lines: Arc<Mutex<Vec<String>>>,
}

#[derive(Clone, FromRef)]
struct Receiver {
    verifier: Verifier,
    inbox: Inbox,
}

async fn receive(receiver: Receiver) -> Result<SocketAddr, Box<dyn StdError>> {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let router = Router::new()
        .route("/hook", post(hook))
        .with_state(receiver);
    tokio::spawn(async move { axum::serve(listener, router).await });
    Ok(address)
}

/// The extractor has verified the delivery before this runs.
async fn hook(State(inbox): State<Inbox>, event: SignedEvent) -> StatusCode {
    if inbox
        .refusals
        .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| {
            left.checked_sub(1)
        })
        .is_ok()
    {
        return StatusCode::SERVICE_UNAVAILABLE;
    }
    let line = match &event.data {
        EventData::Bounced(mail) => format!(
            "bounced:  {} ({})",
            mail.to,
            mail.detail.as_deref().unwrap_or_default()
        ),
        EventData::Opened(mail) => format!("opened:   {} by {}", mail.subject, mail.to),
        EventData::Received(mail) => format!("received: {:?} from {}", mail.text, mail.from),
        _ => format!("{}", event.event_type()),
    };
    inbox
        .lines
        .lock()
        .expect("no handler panics")
        .push(format!("{} {line}", event.id.as_str()));
    StatusCode::OK
}

fn heading(text: &str) {
    println!("\n{text}");
}
