//! The whole crate in one run, against the embedded mock: `cargo run --example quickstart`.
#![expect(clippy::print_stdout, reason = "an example is there to be read")]

mod receiver;

use std::error::Error as StdError;
use std::time::Duration;

use audience::contacts::{
    BatchOutcome, Contact, Contacts, MAX_BATCH, NewContact, OnConflict, OptOutReason,
};
use audience::mock::{Fault, MockServer};
use audience::rule::{Condition, Rule};
use futures_util::TryStreamExt;
use serde_json::json;

use receiver::Receiver;

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
    heading("Create, upsert, skip");
    let ada = || NewContact::new("Ada@Example.com").first_name("Ada");

    let created = contacts.create(ada().property("plan", "free")).await?;
    let contact = &created.contact;
    println!("  created {}: {}", contact.email, created.is_new());

    let upserted = contacts.create(ada().property("plan", "pro")).await?;
    let plan = &upserted.contact.properties["plan"];
    println!("  upserted, the plan is now {plan}");

    let skip = ada().property("plan", "none").on_conflict(OnConflict::Skip);
    let skipped = contacts.create(skip).await?;
    let plan = &skipped.contact.properties["plan"];
    println!("  skipped, the plan is still {plan}");
    Ok(())
}

async fn import(contacts: &Contacts) -> Outcome {
    heading("A batch with one bad entry");
    let people = ["bob@example.com", "no address", "eve@example.com"];

    let report = contacts.create_batch(people.map(NewContact::new)).await?;

    for entry in &report.entries {
        match &entry.outcome {
            BatchOutcome::Failed { code, message } => {
                let message = message.as_deref().unwrap_or("no reason given");
                println!("  {:<16} {code}: {message}", entry.email);
            }
            applied => println!("  {:<16} {applied:?}", entry.email),
        }
    }
    Ok(())
}

async fn walk(contacts: &Contacts) -> Outcome {
    heading("250 contacts, page by page");
    let reader = |n| NewContact::new(format!("reader{n}@example.com")).property("seats", n);
    let readers: Vec<_> = (1..=250).map(reader).collect();
    for part in readers.chunks(MAX_BATCH) {
        contacts.create_batch(part.to_vec()).await?;
    }

    let everyone = Rule::all([Condition::property("seats").is_set()]);
    let mut stream = contacts.list().rule(everyone).limit(40).stream();
    let mut walked = 0;
    while let Some(contact) = stream.try_next().await? {
        if walked % 100 == 0 {
            println!("  number {walked}, newest first: {}", contact.email);
        }
        walked += 1;
    }
    println!("  walked over {walked}");

    let large = Rule::all([Condition::property("seats").greater_than(200)]);
    let count = contacts.list().rule(large).count().await?;
    println!("  {count} of them have more than 200 seats");
    Ok(())
}

async fn consent(contacts: &Contacts) -> Outcome {
    heading("Two layers of consent");
    let bob = "bob@example.com";

    let contact = contacts.unsubscribe(bob).topic("news").await?;
    println!("  out of one topic: {}", answers(&contact));

    let opt_out = contacts.unsubscribe(bob).reason(OptOutReason::Preferences);
    println!("  out of all mail:  {}", answers(&opt_out.await?));

    contacts.subscribe(bob).topic("news").await?;
    let contact = contacts.subscribe(bob).await?;
    println!("  back in both:     {}", answers(&contact));
    Ok(())
}

fn answers(contact: &Contact) -> String {
    let news = contact.topics.get("news") == Some(&true);
    format!("news {news}, opted out {}", contact.unsubscribed)
}

async fn complaint(server: &MockServer, contacts: &Contacts) -> Outcome {
    heading("A complaint that cannot be undone");
    server.report_spam("eve@example.com");

    match contacts.subscribe("eve@example.com").await {
        Err(error) if error.is_complaint_locked() => println!("  {error}"),
        Err(error) => return Err(error.into()),
        Ok(_) => return Err("a complaint was undone".into()),
    }
    Ok(())
}

async fn retry(server: &MockServer, contacts: &Contacts) -> Outcome {
    heading("A retry that saved a call");
    server.fault(Fault::status(503).times(2).path("/contacts"));

    let created = contacts.create(NewContact::new("zoe@example.com")).await?;

    let (email, attempts) = (&created.contact.email, created.attempts());
    println!("  503, 503, and {email} was created with attempt {attempts}");
    Ok(())
}

async fn webhooks(server: &MockServer) -> Outcome {
    heading("Webhooks, verified");
    // The receiver lives in the mock's time, so that retries over hours take no time at all.
    let receiver = Receiver::start("a signing secret", server.clock()).await?;
    server.webhook_endpoint(receiver.url(), "a signing secret");

    let bob = json!({"to": "bob@example.com", "subject": "Hello"});
    let bounced =
        json!({"to": "zoe@example.com", "bounce_type": "Permanent", "detail": "550 no such user"});
    let reply = json!({"from": "bob@example.com", "subject": "Re: Hello", "text": "Thanks!"});
    for (name, data) in [
        ("email.bounced", bounced),
        ("email.opened", bob),
        ("email.received", reply),
    ] {
        server.send_event(json!({"type": name, "data": data})).await;
    }
    server.advance(Duration::from_secs(5 * 3600)).await;

    for attempt in server.attempts() {
        let answer = attempt
            .status
            .map_or("none".to_owned(), |status| status.to_string());
        println!(
            "  {} attempt {} at {}: {answer}",
            attempt.event_id, attempt.attempt, attempt.at
        );
    }
    for line in receiver.verified() {
        println!("  {line}");
    }
    Ok(())
}

fn heading(text: &str) {
    println!("\n{text}");
}
