//! Mail to seeded contacts, and seeds while something is still to happen to mail.

use std::time::Duration;

use audience::mock::{MailOutcome, MockServer, Reason, SeedContact};
use serde_json::{Value, json};

use super::{START, json_of, post, stopped_server};
use crate::receiver::{Receiver, SECRET};

/// A server with a stopped clock, and a receiver of its events.
async fn server_and_receiver() -> (MockServer, Receiver) {
    let server = stopped_server().await;
    let receiver = Receiver::start([]).await;
    server.webhook_endpoint(&receiver.url, SECRET);
    (server, receiver)
}

/// Sends a mail, waits until its events are delivered, and returns its id.
async fn send(server: &MockServer, to: &str) -> String {
    let mail = json!({"from": "me@example.com", "to": to});
    let response = post(server, "/emails", &mail).await.unwrap();
    server.advance(Duration::ZERO).await;
    json_of(response).await["id"].as_str().unwrap().to_owned()
}

/// The type of each event without `email.`, and its `created_at` in seconds after `START`.
fn timeline(receiver: &Receiver) -> Vec<(String, i64)> {
    let short = |event: &Value| event["type"].as_str().unwrap()["email.".len()..].to_owned();
    receiver
        .events()
        .iter()
        .map(|event| (short(event), event["created_at"].as_i64().unwrap() - START))
        .collect()
}

fn expected<const N: usize>(timeline: [(&str, i64); N]) -> Vec<(String, i64)> {
    timeline.map(|(name, at)| (name.to_owned(), at)).to_vec()
}

#[tokio::test]
async fn the_events_of_a_mail_stay_in_order_when_a_seed_sets_the_clock_back() {
    let (server, receiver) = server_and_receiver().await;
    server.seed_contact("pending@example.com");
    let id = send(&server, "pending@example.com").await;

    let suppressed = json!({"email": "pending@example.com", "suppressed": true});
    server.seed(json!({"clock": START - 1_000, "contacts": [suppressed]}));
    server.mail_outcome(&id, MailOutcome::delivered()).await;
    server.mail_outcome(&id, MailOutcome::opened()).await;
    send(&server, "pending@example.com").await;

    assert_eq!(
        timeline(&receiver),
        expected([
            ("sent", 0),
            ("delivered", 0),
            ("opened", 0),
            ("refused", -1_000)
        ]),
        "a mail that was sent before its address was suppressed is delivered"
    );
    let contact = server.contact("pending@example.com").unwrap();
    assert_eq!(
        json!(contact.engagement),
        json!({"delivered": START, "opened": START})
    );
}

#[tokio::test]
async fn a_contact_that_reported_spam_gets_mail_again_after_it_is_seeded_again() {
    let (server, receiver) = server_and_receiver().await;
    let contact = || SeedContact::new("complain@example.com");
    server.seed_contact(contact().unsubscribed(Reason::Preferences));

    send(&server, "complain@example.com").await;
    let complained = server.contact("complain@example.com").unwrap();
    send(&server, "complain@example.com").await;
    server.seed_contact(contact());
    let seeded = server.contact("complain@example.com").unwrap();
    send(&server, "complain@example.com").await;

    assert_eq!(
        (
            complained.unsubscribe_reason.as_str(),
            complained.suppressed
        ),
        ("complaint", true)
    );
    assert!(seeded.engagement.is_empty() && !seeded.suppressed && !seeded.unsubscribed);
    let once = [("sent", 0), ("delivered", 0), ("complained", 0)];
    let all = [&once[..], &[("refused", 0)], &once[..]].concat();
    let names = all.into_iter().map(|(name, at)| (name.to_owned(), at));
    assert_eq!(timeline(&receiver), names.collect::<Vec<_>>());
}

#[tokio::test]
async fn delayed_mail_is_delivered_while_a_seed_moves_the_clock_and_not_after_a_reset() {
    let (server, receiver) = server_and_receiver().await;
    send(&server, "delay@example.com").await;

    server.seed(json!({"clock": START + 1_000, "contacts": [{"email": "delay@example.com"}]}));
    server.advance(Duration::ZERO).await;
    send(&server, "delay@example.com").await;
    server.reset();
    server.webhook_endpoint(&receiver.url, SECRET);
    server.advance(Duration::from_secs(10_000)).await;

    assert_eq!(
        timeline(&receiver),
        expected([
            ("sent", 0),
            ("delivery_delayed", 0),
            ("delivered", 300),
            ("sent", 1_000),
            ("delivery_delayed", 1_000),
        ])
    );
    assert_eq!(server.contact_count(), 0);
}
