//! Sections 6.1 to 6.4: the events that the mock sends.

use std::time::Duration;

use audience::mock::MockServer;
use axum::http::Version;
use serde_json::{Value, json};
use support::PATIENCE;

use super::{Api, NOW, members};
use crate::receiver::{Receiver, SECRET};

/// The types of events about sent mail.
const MAIL_TYPES: &[&str] = &[
    "email.sent",
    "email.delivered",
    "email.bounced",
    "email.complained",
    "email.delivery_delayed",
    "email.opened",
    "email.clicked",
    "email.failed",
    "email.refused",
];
pub(super) const MAIL: [&str; 6] = ["bounce_type", "detail", "email_id", "from", "subject", "to"];

/// All types of events.
fn all_types() -> Vec<&'static str> {
    [MAIL_TYPES, &["email.received"]].concat()
}

/// A mock that delivers to this receiver, and waits for its responses as long as a test may take.
pub(super) async fn api_delivering_to(receiver: &Receiver) -> Api {
    api_with_timeout(receiver, 2 * PATIENCE).await
}

/// A mock that delivers to this receiver, and waits this long for each response.
pub(super) async fn api_with_timeout(receiver: &Receiver, timeout: Duration) -> Api {
    let server = MockServer::builder()
        .clock(NOW)
        .delivery_timeout(timeout)
        .start()
        .await;
    server.webhook_endpoint(&receiver.url, SECRET);
    Api {
        server,
        dialect: audience::mock::Dialect::default(),
    }
}

/// A mock, and the receiver it delivers to. The receiver responds with these statuses in turn, then with 200.
pub(super) async fn api_and_receiver(statuses: impl IntoIterator<Item = u16>) -> (Api, Receiver) {
    let receiver = Receiver::start(statuses).await;
    (api_delivering_to(&receiver).await, receiver)
}

impl Api {
    /// Sends an event of this type with empty `data` and returns its id.
    pub(super) async fn send_empty_event(&self, name: &str) -> String {
        self.server
            .send_event(json!({"type": name, "data": {}}))
            .await
    }
}

/// Sends mail to these recipients through `POST /emails`; returns the mail's id and its events.
async fn send_mail(to: Value, prepare: impl FnOnce(&Api)) -> (String, Vec<Value>) {
    let (api, receiver) = api_and_receiver([]).await;
    prepare(&api);
    let response = api.post(
        "/emails",
        json!({"from": "me@example.org", "to": to, "subject": "Hello"}),
    );
    let status = response.status;
    assert!((200..300).contains(&status), "{status}");
    let body = response.expect(status);
    assert_eq!(members(&body), ["id"]);
    api.server.advance(Duration::from_secs(1)).await;
    (body["id"].as_str().unwrap().to_owned(), receiver.events())
}

/// The types of the events about this recipient.
fn types(events: &[Value], to: &str) -> Vec<String> {
    events
        .iter()
        .filter(|event| event["data"]["to"] == to)
        .map(|event| event["type"].as_str().unwrap().to_owned())
        .collect()
}

#[tokio::test]
async fn section_6_events_are_posted_to_every_configured_endpoint() {
    let (api, one) = api_and_receiver([]).await;
    let two = Receiver::start([]).await;
    api.server.webhook_endpoint(&two.url, "another secret");

    let id = api.send_empty_event("email.opened").await;

    for receiver in [one, two] {
        let deliveries = receiver.received();
        assert_eq!(deliveries.len(), 1);
        assert_eq!(
            (
                deliveries[0].method.as_str(),
                deliveries[0].uri.to_string().as_str(),
                deliveries[0].version
            ),
            ("POST", "/hook", Version::HTTP_11)
        );
        assert_eq!(deliveries[0].json()["id"], id.as_str());
    }
}

#[tokio::test]
async fn section_6_1_the_mock_sends_each_event_type() {
    let (api, receiver) = api_and_receiver([]).await;

    for name in all_types() {
        api.send_empty_event(name).await;
    }

    let sent: Vec<Value> = receiver
        .events()
        .iter()
        .map(|event| event["type"].clone())
        .collect();
    assert_eq!(sent, all_types());
}

#[tokio::test]
async fn section_6_2_the_envelope_has_these_members_and_no_others() {
    let (api, receiver) = api_and_receiver([]).await;

    for name in all_types() {
        api.send_empty_event(name).await;
    }

    for event in receiver.events() {
        assert_eq!(members(&event), ["created_at", "data", "id", "type"]);
        assert!(event["id"].as_str().is_some_and(|id| !id.is_empty()));
        assert_eq!(event["created_at"], json!(NOW));
        assert!(event["data"].is_object());
    }
}

#[tokio::test]
async fn section_6_2_each_event_has_its_own_id() {
    let (api, receiver) = api_and_receiver([]).await;

    for _ in 0..3 {
        api.send_empty_event("email.opened").await;
    }

    let mut ids = receiver.ids();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), 3);
}

#[tokio::test]
async fn section_6_3_the_data_of_sent_mail_has_these_members_and_no_others() {
    let (api, receiver) = api_and_receiver([]).await;

    for name in MAIL_TYPES {
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
async fn section_6_3_bounce_type_is_passed_through_and_is_empty_on_other_events() {
    let (api, receiver) = api_and_receiver([]).await;

    for bounce_type in ["Permanent", "Transient", "Undetermined"] {
        api.server
            .send_event(json!({"type": "email.bounced", "data": {"bounce_type": bounce_type}}))
            .await;
    }
    let mut others: Vec<&str> = MAIL_TYPES.to_vec();
    others.retain(|name| *name != "email.bounced");
    for name in &others {
        api.send_empty_event(name).await;
    }
    api.send_empty_event("email.bounced").await;

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
    assert_eq!(&seen[3..], vec![""; others.len()]);
}

#[tokio::test]
async fn section_6_3_each_recipient_has_separate_events() {
    let (id, events) = send_mail(json!(["ada@example.com", "bob@example.com"]), |_| {}).await;

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
async fn section_6_3_a_single_recipient_may_be_a_string() {
    let (_, events) = send_mail(json!("ada@example.com"), |_| {}).await;

    assert_eq!(
        types(&events, "ada@example.com"),
        ["email.sent", "email.delivered"]
    );
}

#[tokio::test]
async fn section_6_3_email_refused_means_a_message_was_not_sent_and_says_why() {
    let to = json!(["ada@example.com", "stranger@example.com", "bob@example.com"]);
    let (_, events) = send_mail(to, |api| {
        api.create("ada@example.com");
        api.server.report_spam("ada@example.com");
        api.server.report_spam("stranger@example.com");
    })
    .await;

    for suppressed in ["ada@example.com", "stranger@example.com"] {
        assert_eq!(
            types(&events, suppressed),
            ["email.complained", "email.refused"],
            "no other event about the mail"
        );
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
    let (_, events) = send_mail(json!("ada@example.com"), |api| {
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
    let (api, _receiver) = api_and_receiver([]).await;
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
async fn section_6_4_the_data_of_received_mail_has_these_members_and_no_others() {
    let (api, receiver) = api_and_receiver([]).await;

    api.send_empty_event("email.received").await;
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
async fn section_6_2_each_event_that_a_test_sends_is_about_a_mail_of_its_own() {
    let mut runs = Vec::new();
    for _ in 0..2 {
        let (api, receiver) = api_and_receiver([]).await;

        for _ in 0..3 {
            api.send_empty_event("email.received").await;
            api.send_empty_event("email.bounced").await;
        }
        api.server.report_spam("ada@example.com");
        api.server.report_spam("bob@example.com");
        let given = json!({"type": "email.opened", "data": {"email_id": "eml_7"}});
        api.server.send_event(given).await;
        api.server.advance(Duration::ZERO).await;

        let id = |event: &Value| {
            let data = &event["data"];
            let id = data.get("email_id").or_else(|| data.get("inbound_id"));
            id.unwrap().as_str().unwrap().to_owned()
        };
        runs.push(receiver.events().iter().map(id).collect::<Vec<_>>());
    }

    let expected = [
        "inb_1", "em_2", "inb_3", "em_4", "inb_5", "em_6", "em_7", "em_8", "eml_7",
    ];
    assert_eq!(runs, [expected, expected]);
}

#[tokio::test]
async fn section_6_4_authentication_results_report_only_spf() {
    let (api, receiver) = api_and_receiver([]).await;

    api.send_empty_event("email.received").await;

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
