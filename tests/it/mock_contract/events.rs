//! Sections 6.1 to 6.4: the events, as far as the mock emits them.

use std::time::Duration;

use audience::mock::MockServer;
use serde_json::{Value, json};

use super::receiver::Receiver;
use super::{Api, NOW, members};

const TYPES: [&str; 10] = [
    "email.sent",
    "email.delivered",
    "email.bounced",
    "email.complained",
    "email.delivery_delayed",
    "email.opened",
    "email.clicked",
    "email.failed",
    "email.refused",
    "email.received",
];
const MAIL: [&str; 6] = ["bounce_type", "detail", "email_id", "from", "subject", "to"];
const SECRET: &str = "whsec_contract";

/// A mock that delivers to this receiver.
pub(super) async fn api_delivering_to(receiver: &Receiver) -> Api {
    let server = MockServer::builder()
        .clock(NOW)
        .delivery_timeout(Duration::from_millis(300))
        .start()
        .await;
    server.webhook_endpoint(receiver.url(), SECRET);
    Api { server }
}

/// What `POST /emails` to these recipients gives rise to: its id, and type and recipient of each event.
async fn mailed(to: Value, prepare: impl FnOnce(&Api)) -> (String, Vec<Value>) {
    let receiver = Receiver::answering(&[200]);
    let api = api_delivering_to(&receiver).await;
    prepare(&api);
    let answer = api.post(
        "/emails",
        json!({"from": "me@example.org", "to": to, "subject": "Hello"}),
    );
    assert!((200..300).contains(&answer.status), "{}", answer.status);
    let status = answer.status;
    let answer = answer.expect(status);
    assert_eq!(members(&answer), ["id"]);
    api.server.advance(Duration::from_secs(1)).await;
    (answer["id"].as_str().unwrap().to_owned(), receiver.events())
}

fn types(events: &[Value], to: &str) -> Vec<String> {
    events
        .iter()
        .filter(|event| event["data"]["to"] == to)
        .map(|event| event["type"].as_str().unwrap().to_owned())
        .collect()
}

#[tokio::test]
async fn section_6_delivered_by_post_to_every_configured_endpoint() {
    let (one, two) = (Receiver::answering(&[200]), Receiver::answering(&[200]));
    let api = api_delivering_to(&one).await;
    api.server.webhook_endpoint(two.url(), "another secret");

    let id = api
        .server
        .send_event(json!({"type": "email.opened", "data": {}}))
        .await;

    for receiver in [one, two] {
        let deliveries = receiver.deliveries();
        assert_eq!(deliveries.len(), 1);
        assert!(
            deliveries[0].head.starts_with("POST /hook HTTP/1.1\r\n"),
            "{}",
            deliveries[0].head
        );
        assert_eq!(deliveries[0].json()["id"], id.as_str());
    }
}

#[tokio::test]
async fn section_6_1_each_event_type() {
    let receiver = Receiver::answering(&[200]);
    let api = api_delivering_to(&receiver).await;

    for name in TYPES {
        api.server
            .send_event(json!({"type": name, "data": {}}))
            .await;
    }

    let sent: Vec<Value> = receiver
        .events()
        .iter()
        .map(|event| event["type"].clone())
        .collect();
    assert_eq!(sent, TYPES);
}

#[tokio::test]
async fn section_6_2_envelope_has_these_members_and_no_others() {
    let receiver = Receiver::answering(&[200]);
    let api = api_delivering_to(&receiver).await;

    for name in TYPES {
        api.server
            .send_event(json!({"type": name, "data": {}}))
            .await;
    }

    for event in receiver.events() {
        assert_eq!(members(&event), ["created_at", "data", "id", "type"]);
        assert!(event["id"].as_str().is_some_and(|id| !id.is_empty()));
        assert_eq!(event["created_at"], json!(NOW));
        assert!(event["data"].is_object());
    }
}

#[tokio::test]
async fn section_6_2_id_is_another_for_each_event() {
    let receiver = Receiver::answering(&[200]);
    let api = api_delivering_to(&receiver).await;

    for _ in 0..3 {
        api.server
            .send_event(json!({"type": "email.opened", "data": {}}))
            .await;
    }

    let mut ids: Vec<String> = receiver
        .events()
        .iter()
        .map(|event| event["id"].as_str().unwrap().to_owned())
        .collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), 3);
}

#[tokio::test]
async fn section_6_3_data_of_mail_the_sender_sent_has_these_members_and_no_others() {
    let receiver = Receiver::answering(&[200]);
    let api = api_delivering_to(&receiver).await;

    for name in &TYPES[..9] {
        api.server
            .send_event(json!({"type": name, "data": {"to": "ada@example.com"}}))
            .await;
    }

    for event in receiver.events() {
        assert_eq!(members(&event["data"]), MAIL, "{}", event["type"]);
        for member in MAIL {
            assert!(
                event["data"][member].is_string(),
                "{} of {}",
                member,
                event["type"]
            );
        }
        assert_eq!(event["data"]["to"], "ada@example.com");
    }
}

#[tokio::test]
async fn section_6_3_bounce_type_is_passed_through_and_empty_on_events_that_are_no_bounces() {
    let receiver = Receiver::answering(&[200]);
    let api = api_delivering_to(&receiver).await;

    for bounce_type in ["Permanent", "Transient", "Undetermined"] {
        api.server
            .send_event(json!({"type": "email.bounced", "data": {"bounce_type": bounce_type}}))
            .await;
    }
    for name in TYPES[..9].iter().filter(|name| **name != "email.bounced") {
        api.server
            .send_event(json!({"type": name, "data": {}}))
            .await;
    }
    api.server
        .send_event(json!({"type": "email.bounced", "data": {}}))
        .await;

    let mut seen: Vec<Value> = receiver
        .events()
        .iter()
        .map(|event| event["data"]["bounce_type"].clone())
        .collect();
    let filled_in = seen.pop().unwrap();
    assert!(
        ["Permanent", "Transient", "Undetermined"].contains(&filled_in.as_str().unwrap()),
        "{filled_in}"
    );
    assert_eq!(&seen[..3], ["Permanent", "Transient", "Undetermined"]);
    assert_eq!(&seen[3..], [""; 8]);
}

#[tokio::test]
async fn section_6_3_one_event_per_recipient() {
    let (id, events) = mailed(json!(["ada@example.com", "bob@example.com"]), |_| {}).await;

    assert_eq!(events.len(), 4);
    for to in ["ada@example.com", "bob@example.com"] {
        let mut types = types(&events, to);
        types.sort_unstable();
        assert_eq!(types, ["email.delivered", "email.sent"]);
    }
    for event in &events {
        assert_eq!(members(&event["data"]), MAIL);
        assert_eq!(event["data"]["email_id"], id.as_str());
        assert_eq!(event["data"]["from"], "me@example.org");
        assert_eq!(event["data"]["subject"], "Hello");
        assert_eq!(
            (&event["data"]["bounce_type"], &event["data"]["detail"]),
            (&json!(""), &json!(""))
        );
    }
}

#[tokio::test]
async fn section_6_3_a_single_recipient_may_be_text() {
    let (_, events) = mailed(json!("ada@example.com"), |_| {}).await;

    assert_eq!(
        types(&events, "ada@example.com"),
        ["email.sent", "email.delivered"]
    );
}

#[tokio::test]
async fn section_6_3_email_refused_means_a_message_did_not_go_and_says_why() {
    let to = json!(["ada@example.com", "stranger@example.com", "bob@example.com"]);
    let (_, events) = mailed(to, |api| {
        api.create("ada@example.com");
        api.server.report_spam("ada@example.com");
        api.server.report_spam("stranger@example.com");
    })
    .await;

    for suppressed in ["ada@example.com", "stranger@example.com"] {
        assert_eq!(types(&events, suppressed), ["email.refused"], "alone");
    }
    assert_eq!(
        types(&events, "bob@example.com"),
        ["email.sent", "email.delivered"]
    );
    for event in events
        .iter()
        .filter(|event| event["type"] == "email.refused")
    {
        assert_eq!(members(&event["data"]), MAIL);
        assert_ne!(event["data"]["detail"], "");
        assert_eq!(event["data"]["bounce_type"], "");
    }
}

#[tokio::test]
async fn section_1_transactional_mail_is_unaffected_by_the_opt_out_and_topic_answers() {
    let (_, events) = mailed(json!("ada@example.com"), |api| {
        api.server.topic("news", false);
        api.create("ada@example.com");
        api.unsubscribe("ada@example.com", ()).expect(200);
        api.unsubscribe("ada@example.com", json!({"topic": "news"}))
            .expect(200);
    })
    .await;

    assert_eq!(
        types(&events, "ada@example.com"),
        ["email.sent", "email.delivered"]
    );
}

#[tokio::test]
async fn section_6_3_an_event_about_a_contacts_mail_counts_as_engagement() {
    let receiver = Receiver::answering(&[200]);
    let api = api_delivering_to(&receiver).await;
    for name in ["delivered", "bounced", "opened", "clicked", "none"] {
        api.create(&format!("{name}@example.com"));
    }

    for name in ["delivered", "bounced", "opened", "clicked"] {
        let data = json!({"to": format!("{name}@example.com")});
        api.server
            .send_event(json!({"type": format!("email.{name}"), "data": data}))
            .await;
    }

    for name in ["delivered", "bounced", "opened", "clicked"] {
        let matching = api.matching(json!({"field": "engagement", "what": name, "op": "ever"}));
        assert_eq!(matching, [format!("{name}@example.com")]);
    }
}

#[tokio::test]
async fn section_6_4_data_of_received_mail_has_these_members_and_no_others() {
    let receiver = Receiver::answering(&[200]);
    let api = api_delivering_to(&receiver).await;

    api.server
        .send_event(json!({"type": "email.received", "data": {}}))
        .await;
    let reply = json!({"in_reply_to_email_id": "em_1"});
    api.server
        .send_event(json!({"type": "email.received", "data": reply}))
        .await;

    let events = receiver.events();
    assert_eq!(
        members(&events[0]["data"]),
        [
            "authentication_results",
            "from",
            "inbound_id",
            "subject",
            "text",
            "to"
        ],
        "absent when not a reply"
    );
    assert_eq!(events[1]["data"]["in_reply_to_email_id"], "em_1");
    for event in events {
        assert!(
            event["data"]["to"]
                .as_array()
                .unwrap()
                .iter()
                .all(Value::is_string)
        );
        for member in ["inbound_id", "from", "subject", "text"] {
            assert!(event["data"][member].is_string(), "{member}");
        }
    }
}

#[tokio::test]
async fn section_6_4_authentication_results_check_spf_alone() {
    let receiver = Receiver::answering(&[200]);
    let api = api_delivering_to(&receiver).await;

    api.server
        .send_event(json!({"type": "email.received", "data": {}}))
        .await;

    let results = receiver.events()[0]["data"]["authentication_results"]
        .as_str()
        .unwrap()
        .to_owned();
    let parts: Vec<&str> = results.split(';').map(str::trim).collect();
    let [host, spf, dkim, dmarc] = parts[..] else {
        panic!("{results}")
    };
    assert!(!host.is_empty() && !host.contains('='), "{results}");
    let (result, domain) = spf
        .strip_prefix("spf=")
        .and_then(|spf| spf.split_once(" smtp.mailfrom="))
        .expect("spf");
    assert!(!result.is_empty() && !domain.is_empty(), "{results}");
    assert_eq!((dkim, dmarc), ("dkim=not-evaluated", "dmarc=not-evaluated"));
}
