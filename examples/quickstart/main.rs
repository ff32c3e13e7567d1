//! A tour of the crate against the embedded mock: `cargo run --example quickstart`.
#![expect(clippy::print_stdout, reason = "an example prints what it does")]

mod receiver;

use std::error::Error as StdError;
use std::time::Duration;

use audience::contacts::{Contact, Contacts, MAX_BATCH, NewContact, OnConflict, OptOutReason};
use audience::mock::{Fault, MockServer};
use audience::rule::{Condition, Rule};
use clap::Parser;
use futures_util::TryStreamExt;
use serde_json::json;

use receiver::Receiver;

/// A tour of the crate against the embedded mock
#[derive(Parser)]
#[command(name = "quickstart")]
struct Arguments {}

type Result = std::result::Result<(), Box<dyn StdError>>;

/// The time at which the clock of the mock starts, in Unix seconds.
const START: i64 = 1_700_000_000;

#[tokio::main]
async fn main() -> Result {
    Arguments::parse();
    let server = MockServer::builder().clock(START).start().await;
    server.topic("news", true);
    let contacts = server.client().contacts();
    println!("A mock of the service listens on {}", server.url());

    create_a_contact(&contacts).await?;
    create_a_batch(&contacts).await?;
    list_contacts(&contacts).await?;
    change_consent(&contacts).await?;
    subscribe_after_a_spam_report(&server, &contacts).await?;
    create_despite_failures(&server, &contacts).await?;
    receive_webhooks(&server).await
}

async fn create_a_contact(contacts: &Contacts) -> Result {
    heading("Create a contact, create it again, and merge a property into it");
    let ada = || NewContact::new("Ada@Example.com").first_name("Ada");

    let created = contacts.create(ada().property("plan", "free")).await?;
    let contact = &created.contact;
    println!(
        "  {} was created (is_new: {})",
        contact.email,
        created.is_new()
    );

    let updated = contacts.create(ada().property("plan", "pro")).await?;
    let plan = &updated.contact.properties["plan"];
    println!("  by default an existing contact is updated: the plan is now {plan}");

    let skip = ada().property("plan", "none").on_conflict(OnConflict::Skip);
    let skipped = contacts.create(skip).await?;
    let plan = &skipped.contact.properties["plan"];
    println!("  with OnConflict::Skip it is not changed: the plan is still {plan}");

    let city = [("city", "London")];
    contacts.merge_properties("ada@example.com", city).await?;
    let merged = contacts.retrieve("ada@example.com").await?.properties;
    let (plan, city) = (&merged["plan"], &merged["city"]);
    println!("  merging keeps the other properties: the plan is {plan}, the city {city}");
    Ok(())
}

async fn create_a_batch(contacts: &Contacts) -> Result {
    heading("Create three contacts in one batch, one of them invalid");
    let addresses = ["bob@example.com", "no address", "eve@example.com"];

    let report = contacts.create_batch(addresses).await?;

    for entry in &report.entries {
        println!("  {:<16} {}", entry.email, entry.outcome);
    }
    Ok(())
}

async fn list_contacts(contacts: &Contacts) -> Result {
    heading("List 250 contacts, newest first");
    let reader = |n| NewContact::new(format!("reader{n}@example.com")).property("seats", n);
    let readers: Vec<_> = (1..=250).map(reader).collect();
    for batch in readers.chunks(MAX_BATCH) {
        let report = contacts.create_batch(batch).await?;
        assert_eq!(report.failures().count(), 0);
    }

    let has_seats = Rule::all([Condition::property("seats").is_set()]);
    let mut stream = contacts.list().rule(has_seats).limit(40).stream();
    let mut listed = 0;
    while let Some(contact) = stream.try_next().await? {
        listed += 1;
        if listed % 100 == 1 {
            println!("  number {listed}: {}", contact.email);
        }
    }
    println!("  listed {listed} contacts in pages of 40");

    let large = Rule::all([Condition::property("seats").greater_than(200)]);
    let count = contacts.list().rule(large).count().await?;
    println!("  {count} of them have more than 200 seats");
    Ok(())
}

async fn change_consent(contacts: &Contacts) -> Result {
    heading("Unsubscribe from one topic, from all mail, and subscribe again");
    let bob = "bob@example.com";

    let contact = contacts.unsubscribe(bob).topic("news").await?;
    println!("  after leaving one topic: {}", consent(&contact));

    let opt_out = contacts.unsubscribe(bob).reason(OptOutReason::Preferences);
    println!("  after leaving all mail:  {}", consent(&opt_out.await?));

    contacts.subscribe(bob).topic("news").await?;
    let contact = contacts.subscribe(bob).await?;
    println!("  after subscribing again: {}", consent(&contact));
    Ok(())
}

fn consent(contact: &Contact) -> String {
    let yes_or_no = |yes| if yes { "yes" } else { "no" };
    let news = yes_or_no(contact.topics.get("news") == Some(&true));
    let unsubscribed = yes_or_no(contact.unsubscribed);
    format!("news: {news:<3}  unsubscribed from all: {unsubscribed}")
}

async fn subscribe_after_a_spam_report(server: &MockServer, contacts: &Contacts) -> Result {
    heading("Subscribe a contact who reported spam: the service refuses");
    server.report_spam("eve@example.com");

    match contacts.subscribe("eve@example.com").await {
        Err(error) if error.is_complaint_locked() => println!("  {error}"),
        Err(error) => return Err(error.into()),
        Ok(_) => return Err("the service should refuse to subscribe this contact".into()),
    }
    Ok(())
}

async fn create_despite_failures(server: &MockServer, contacts: &Contacts) -> Result {
    heading("Create a contact while the service fails twice: the client retries");
    server.fault(Fault::status(503).times(2).path("/contacts"));

    let created = contacts.create(NewContact::new("zoe@example.com")).await?;

    let (email, attempts) = (&created.contact.email, created.attempts());
    println!("  {email} was created after {attempts} attempts");
    Ok(())
}

async fn receive_webhooks(server: &MockServer) -> Result {
    heading("Receive webhooks: the endpoint fails twice, and the service retries");
    let secret = "a signing secret";
    // The endpoint uses the mock's clock: `advance` moves both five hours ahead.
    let receiver = Receiver::start(secret, server.clock()).await?;
    server.webhook_endpoint(receiver.url(), secret);

    let bounced =
        json!({"to": "zoe@example.com", "bounce_type": "Permanent", "detail": "550 no such user"});
    let opened = json!({"to": "bob@example.com", "subject": "Hello"});
    let received = json!({"from": "bob@example.com", "subject": "Re: Hello", "text": "Thanks!"});
    for (name, data) in [
        ("email.bounced", bounced),
        ("email.opened", opened),
        ("email.received", received),
    ] {
        server.send_event(json!({"type": name, "data": data})).await;
    }
    server.advance(Duration::from_secs(5 * 3600)).await;

    for attempt in server.attempts() {
        let seconds = attempt.at.as_unix() - START;
        let status = attempt
            .status
            .map_or("no response".to_owned(), |status| status.to_string());
        println!(
            "  {} attempt {} after {seconds:>3} s: {status}",
            attempt.event_id, attempt.attempt
        );
    }
    for line in receiver.log() {
        println!("  {line}");
    }
    Ok(())
}

fn heading(text: &str) {
    println!("\n{text}");
}
