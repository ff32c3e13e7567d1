//! Sent mail, what happens to it, and received mail.

use std::time::Duration;

use audience::mock::{InboundMailSeed, MailOutcome, MockServer, SegmentKind};
use audience::webhooks::{BounceType, CheckResult, Event, EventData, Verifier};
use serde_json::{Value, json};

use super::control::call;
use super::{FIVE_HOURS, START, ada, get, json_of, post, running_server, stopped_server};
use crate::receiver::{Receiver, SECRET};
use support::in_time;

const FIVE_MINUTES: Duration = Duration::from_secs(300);

/// A server with a stopped clock, and a receiver of its events.
async fn server_and_receiver() -> (MockServer, Receiver) {
    let server = stopped_server().await;
    let receiver = Receiver::start([]).await;
    server.webhook_endpoint(&receiver.url, SECRET);
    (server, receiver)
}

/// Sends a mail and returns its id.
async fn send(server: &MockServer, to: impl Into<Value>) -> String {
    let to: Value = to.into();
    let mail = json!({"from": "Me <me@example.com>", "to": to, "subject": "Hi", "html": "<p>"});
    let response = post(server, "/emails", &mail).await.unwrap();
    server.advance(Duration::ZERO).await;
    json_of(response).await["id"].as_str().unwrap().to_owned()
}

/// The type of each event without `email.`, and its `created_at` in seconds after `START`.
fn timeline(receiver: &Receiver) -> Vec<(String, i64)> {
    receiver
        .events()
        .iter()
        .map(|event| {
            let event_type = event["type"].as_str().unwrap().trim_start_matches("email.");
            (
                event_type.to_owned(),
                event["created_at"].as_i64().unwrap() - START,
            )
        })
        .collect()
}

fn types(receiver: &Receiver) -> Vec<String> {
    timeline(receiver)
        .into_iter()
        .map(|(name, _)| name)
        .collect()
}

#[tokio::test]
async fn the_address_decides_what_happens_to_a_mail() {
    let (server, receiver) = server_and_receiver().await;

    let id = send(&server, "Soft-Bounce+7@example.com").await;

    assert_eq!(types(&receiver), ["sent", "bounced"]);
    let data = &receiver.events()[1]["data"];
    assert_eq!(
        *data,
        json!({"email_id": id, "from": "me@example.com", "to": "soft-bounce+7@example.com", "subject": "Hi",
            "bounce_type": "Transient", "detail": "452 4.2.2 mailbox full"})
    );
}

#[tokio::test]
async fn a_delayed_mail_is_delivered_when_the_clock_gets_there() {
    let (server, receiver) = server_and_receiver().await;
    let receiver_of_times = Receiver::with_clock([], server.clock()).await;
    server.webhook_endpoint(&receiver_of_times.url, SECRET);
    send(&server, "delay@example.com").await;

    server.advance(FIVE_MINUTES - Duration::from_secs(1)).await;
    assert_eq!(types(&receiver), ["sent", "delivery_delayed"]);
    server.advance(FIVE_HOURS).await;

    let last = timeline(&receiver).pop().unwrap();
    assert_eq!(last, ("delivered".into(), 300));
    let arrived = receiver_of_times.received().pop().unwrap().at.unwrap();
    assert_eq!(arrived.as_unix() - START, 300);
}

#[tokio::test]
async fn with_a_running_clock_a_delayed_mail_is_delivered_in_real_time() {
    let server = running_server().await;
    let receiver = Receiver::start([]).await;
    server.webhook_endpoint(&receiver.url, SECRET);
    send(&server, "delay@example.com").await;

    // About a second remains.
    server.advance(FIVE_MINUTES - Duration::from_secs(1)).await;

    let delivered = async {
        while types(&receiver).last().unwrap() != "delivered" {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    in_time(delivered).await;
}

#[tokio::test]
async fn an_outcome_is_delivered_about_its_mail() {
    let (server, receiver) = server_and_receiver().await;
    let id = send(&server, json!(["pending@example.com", "ada@example.com"])).await;
    let verifier = Verifier::builder()
        .secret("2026", SECRET)
        .clock(server.clock())
        .build()
        .unwrap();

    let outcome = MailOutcome::bounced().bounce_type(BounceType::Undetermined);
    let outcome = outcome.to("Pending@example.com").detail("550 who knows");
    let event_id = server.mail_outcome(&id, outcome).await;

    let received = receiver.received().pop().unwrap();
    let event = verifier.verify(&received.headers, &received.body).unwrap();
    assert_eq!(event.id.as_str(), event_id);
    let mail = event.mail().unwrap();
    assert_eq!((&*mail.email_id, &*mail.to), (&*id, "pending@example.com"));
    assert_eq!((&*mail.from, &*mail.subject), ("me@example.com", "Hi"));
    assert_eq!(mail.detail.as_deref(), Some("550 who knows"));
    assert_eq!(mail.bounce_type, Some(BounceType::Undetermined));
}

#[tokio::test]
async fn outcomes_happen_in_a_sensible_order_and_time() {
    let (server, receiver) = server_and_receiver().await;
    let id = send(&server, "pending@example.com").await;

    for outcome in [
        MailOutcome::delayed(),
        MailOutcome::delivered(),
        MailOutcome::opened(),
        MailOutcome::clicked(),
        MailOutcome::complained(),
    ] {
        server.advance(Duration::from_secs(10)).await;
        server.mail_outcome(&id, outcome).await;
    }

    let expected = [
        ("sent", 0),
        ("delivery_delayed", 10),
        ("delivered", 20),
        ("opened", 30),
        ("clicked", 40),
        ("complained", 50),
    ];
    assert_eq!(
        timeline(&receiver),
        expected.map(|(name, at)| (name.to_owned(), at))
    );
}

#[tokio::test]
async fn an_outcome_counts_as_engagement_and_a_complaint_locks_the_contact() {
    let (server, receiver) = server_and_receiver().await;
    post(&server, "/contacts", &ada()).await.unwrap();
    let opened = json!({"match_": "all", "conditions": [{"field": "engagement", "what": "opened", "op": "ever"}]});
    server.segment("openers", SegmentKind::Rule(opened));
    let id = send(&server, "ada@example.com").await;

    server.mail_outcome(&id, MailOutcome::opened()).await;
    server.mail_outcome(&id, MailOutcome::complained()).await;

    let page = json_of(get(&server, "/contacts?segment_id=openers").await.unwrap()).await;
    assert_eq!(page["data"][0]["email"], "ada@example.com");
    let contact = server.contact("ada@example.com").unwrap();
    assert_eq!(contact.unsubscribe_reason, "complaint");
    send(&server, "ada@example.com").await;
    assert_eq!(types(&receiver).last().unwrap(), "refused");
}

#[tokio::test]
#[should_panic(
    expected = "`email.opened` is not possible because the mail bounced; nothing more can happen to it"
)]
async fn an_open_of_a_mail_that_bounced_panics_with_the_reason() {
    let server = stopped_server().await;
    let id = send(&server, "bounce@example.com").await;

    server.mail_outcome(&id, MailOutcome::opened()).await;
}

#[tokio::test]
#[should_panic(expected = "there is no mail `eml_00000001`")]
async fn a_reply_to_an_unknown_mail_panics() {
    let seed = InboundMailSeed::new("ada@example.com").in_reply_to("eml_00000001");

    stopped_server().await.receive_mail(seed).await;
}

#[tokio::test]
async fn a_received_mail_is_an_event_that_the_verifier_parses() {
    let (server, receiver) = server_and_receiver().await;
    let id = send(&server, "ada@example.com").await;
    let reply = InboundMailSeed::new("ada@example.com")
        .in_reply_to(&id)
        .text("No, thanks")
        .spf("softfail");

    let event_id = server.receive_mail(reply).await;

    let event = Event::from_unverified_json(&receiver.received().pop().unwrap().body).unwrap();
    assert_eq!(event.id.as_str(), event_id);
    let EventData::Received(mail) = &event.data else {
        panic!("{event:?}");
    };
    assert_eq!(mail.in_reply_to_email_id.as_deref(), Some(&*id));
    assert_eq!((&*mail.subject, &*mail.text), ("Re: Hi", "No, thanks"));
    let results = &mail.authentication_results;
    assert_eq!(results.spf(), Some(CheckResult::SoftFail));
    assert_eq!(results.mail_from_domain(), Some("example.com"));
    assert_eq!(results.dkim(), Some(CheckResult::NotEvaluated));
}

#[tokio::test]
async fn the_outbox_holds_what_was_sent_until_a_reset() {
    let (server, _receiver) = server_and_receiver().await;
    let first = send(&server, json!(["Ada <Ada@example.com>", "bob@example.com"])).await;
    server.advance(FIVE_MINUTES).await;
    let second = send(&server, "carol@example.com").await;

    let sent = server.sent_mail();

    assert_eq!((&sent[0].id, &sent[1].id), (&first, &second));
    assert_eq!(
        (&*sent[0].from, &*sent[0].subject),
        ("me@example.com", "Hi")
    );
    assert_eq!(sent[0].to, ["ada@example.com", "bob@example.com"]);
    assert_eq!(sent[1].at.as_unix(), START + 300);
    assert_eq!(sent[0].body["html"], "<p>");
    let (status, listed) = call(&server, "GET", "emails", Value::Null).await;
    assert_eq!(
        (status, &listed["data"]),
        (200, &serde_json::to_value(&sent).unwrap())
    );
    assert_eq!(listed["data"][1]["at"], START + 300);
    server.reset();
    assert!(server.sent_mail().is_empty());
}

#[tokio::test]
async fn a_mail_after_a_reset_has_another_id_than_each_before_it() {
    let (server, receiver) = server_and_receiver().await;
    let mut sent = Vec::new();
    for _ in 0..2 {
        server.reset();
        server.webhook_endpoint(&receiver.url, SECRET);

        sent.push(send(&server, "pending@example.com").await);
        let reply = InboundMailSeed::new("ada@example.com").in_reply_to(&sent[sent.len() - 1]);
        server.receive_mail(reply).await;
    }

    assert_eq!(sent, ["eml_00000001", "eml_00000002"]);
    let received: Vec<_> = receiver
        .events()
        .iter()
        .filter(|event| event["type"] == "email.received")
        .map(|event| event["data"]["inbound_id"].clone())
        .collect();
    assert_eq!(received, ["inb_00000001", "inb_00000002"]);
}

#[tokio::test]
async fn the_control_plane_applies_an_outcome_to_a_mail() {
    let (server, receiver) = server_and_receiver().await;
    let id = send(&server, "pending@example.com").await;
    let path = format!("emails/{id}/outcome");
    let outcome = async |body: Value| call(&server, "POST", &path, body).await;

    let delayed =
        outcome(json!({"type": "email.delivery_delayed", "data": {"detail": "451 busy"}})).await;
    let bounced = json!({"type": "email.bounced", "to": "pending@example.com", "data": {"bounce_type": "Transient"}});
    let bounced = outcome(bounced).await;

    assert_eq!(delayed, (200, json!({"id": "evt_2"})));
    assert_eq!(bounced, (200, json!({"id": "evt_3"})));
    let events = receiver.events();
    assert_eq!(events[1]["data"]["detail"], "451 busy");
    assert_eq!(events[2]["data"]["bounce_type"], "Transient");
    assert_eq!(events[2]["data"]["email_id"], *id);
    for bad in [
        json!({}),
        json!({"type": "email.sent"}),
        json!({"type": "email.opened"}),
        json!({"type": "email.bounced", "to": "ada@example.com"}),
        json!({"type": "email.opened", "data": {"bounce_type": "Permanent"}}),
        json!({"type": "email.bounced", "data": {"subject": "Hi"}}),
        json!({"type": "email.bounced", "data": null}),
        json!({"type": "email.bounced", "data": ["Transient", "451 busy"]}),
        json!({"type": "email.bounced", "at": 1}),
    ] {
        let (status, error) = outcome(bad.clone()).await;
        assert_eq!(status, 422, "{bad}");
        let message = error["error"]["message"].as_str().unwrap();
        assert!(!message.contains("struct"), "{message}");
    }
    let opened = json!({"type": "email.opened"});
    let unknown = call(&server, "POST", "emails/eml_00000009/outcome", opened).await;
    assert_eq!(unknown.0, 404);
    assert_eq!(receiver.events().len(), 3);
}

#[tokio::test]
async fn ten_thousand_delayed_mails_are_all_delivered() {
    let server = stopped_server().await;
    let to: Vec<_> = (0..10_000)
        .map(|n| format!("delay+{n}@example.com"))
        .collect();
    let mail = json!({"from": "me@example.com", "to": to});
    let response = post(&server, "/emails", &mail).await.unwrap();
    let id = json_of(response).await["id"].as_str().unwrap().to_owned();

    server.advance(FIVE_MINUTES).await;

    // Only a delivered mail can be opened. Each recipient has three events, and then the open.
    for to in [&to[0], &to[9_999]] {
        server.mail_outcome(&id, MailOutcome::opened().to(to)).await;
    }
    let last = server
        .mail_outcome(&id, MailOutcome::opened().to(&to[0]))
        .await;
    assert_eq!(last, "evt_30003");
}

#[tokio::test]
async fn a_reset_forgets_the_delayed_mail_and_ends_the_move_of_the_clock() {
    let (server, _receiver) = server_and_receiver().await;
    for _ in 0..100 {
        send(&server, "delay@example.com").await;
    }

    let moving = server.advance(FIVE_MINUTES);
    server.reset();
    moving.await;
    let receiver = Receiver::start([]).await;
    server.webhook_endpoint(&receiver.url, SECRET);
    server.advance(FIVE_HOURS).await;

    assert!(receiver.events().is_empty());
}
