//! Faults of webhook deliveries, as a receiver sees them and as the attempt log shows them.

use std::time::Duration;

use audience::mock::{DeliveryAttempt, DeliveryFault, MockServer};
use audience::webhooks::{EventType, Verifier, VerifyError};
use serde_json::{Value, json};

use super::control::{NO_CONTENT, call};
use super::{FIVE_HOURS, START, offsets, post, running_server, stopped_server};
use crate::receiver::{Receiver, SECRET};

const ONE_MINUTE: Duration = Duration::from_secs(60);

/// The number of each attempt, its status and its fault.
fn log(server: &MockServer) -> Vec<(u32, Option<u16>, Option<&'static str>)> {
    server
        .attempts()
        .iter()
        .map(|attempt| (attempt.attempt, attempt.status, attempt.fault))
        .collect()
}

fn verifier(server: &MockServer) -> Verifier {
    Verifier::builder()
        .secret("2026", SECRET)
        .clock(server.clock())
        .build()
        .unwrap()
}

/// Delivers one event under a fault. Returns why a receiver refuses the first attempt, which it answers with 401, and
/// asserts that the second is genuine and made 35 seconds later.
async fn refusal_of(fault: DeliveryFault) -> VerifyError {
    let server = stopped_server().await;
    let receiver = Receiver::start([401]).await;
    server.webhook_endpoint(&receiver.url, SECRET);
    server.delivery_fault(fault);

    server.send_event(json!({"type": "email.opened"})).await;
    let first = receiver.received_unchecked().remove(0);
    let error = verifier(&server)
        .verify(&first.headers, &first.body)
        .unwrap_err();
    server.advance(Duration::from_secs(35)).await;

    let second = receiver.received_unchecked().remove(1);
    assert!(
        verifier(&server)
            .verify(&second.headers, &second.body)
            .is_ok()
    );
    assert_eq!(first.json()["id"], second.json()["id"]);
    assert_eq!(offsets(&server.attempts()), [0, 35]);
    assert_eq!(log(&server)[1], (2, Some(200), None));
    error
}

#[tokio::test]
async fn a_delivery_that_is_not_genuine_is_refused_and_retried_genuinely() {
    let stale = refusal_of(DeliveryFault::stale()).await;
    assert!(matches!(stale, VerifyError::TooLate { .. }), "{stale:?}");
    for fault in [DeliveryFault::tampered(), DeliveryFault::other_secret()] {
        let error = refusal_of(fault).await;
        assert_eq!(error, VerifyError::SignatureMismatch);
    }
    for name in ["webhook-signature", "Webhook-Timestamp"] {
        let error = refusal_of(DeliveryFault::missing_header(name)).await;
        assert!(
            matches!(error, VerifyError::MissingHeader { .. }),
            "{error:?}"
        );
    }
}

#[tokio::test]
async fn an_event_without_its_unsigned_header_is_genuine() {
    let server = stopped_server().await;
    let receiver = Receiver::start([]).await;
    server.webhook_endpoint(&receiver.url, SECRET);
    server.delivery_fault(DeliveryFault::missing_header("webhook-event"));

    server.send_event(json!({"type": "email.opened"})).await;

    let received = receiver.received_unchecked().remove(0);
    assert!(!received.headers.contains_key("webhook-event"));
    assert!(
        verifier(&server)
            .verify(&received.headers, &received.body)
            .is_ok()
    );
}

#[tokio::test]
async fn a_careless_receiver_shows_in_the_attempt_log() {
    let server = stopped_server().await;
    let receiver = Receiver::start([]).await;
    server.webhook_endpoint(&receiver.url, SECRET);
    server.delivery_fault(DeliveryFault::tampered());

    server.send_event(json!({"type": "email.opened"})).await;
    server.advance(FIVE_HOURS).await;

    assert_eq!(receiver.received_unchecked()[0].json()["tampered"], true);
    assert_eq!(log(&server), [(1, Some(200), Some("tampered"))]);
}

#[tokio::test]
async fn a_duplicate_has_the_same_id_and_is_genuine() {
    let server = stopped_server().await;
    let receiver = Receiver::start([500, 200, 500]).await;
    server.webhook_endpoint(&receiver.url, SECRET);
    server.delivery_fault(DeliveryFault::duplicate());

    server.send_event(json!({"type": "email.opened"})).await;
    assert_eq!(receiver.ids().len(), 1, "a failed attempt is not repeated");
    server.advance(FIVE_HOURS).await;

    assert_eq!(receiver.ids(), ["evt_1"; 3]);
    assert_eq!(
        log(&server),
        [
            (1, Some(500), None),
            (2, Some(200), None),
            (3, Some(500), Some("duplicate"))
        ]
    );
    assert_eq!(offsets(&server.attempts()), [0, 35, 35]);
}

#[tokio::test]
async fn sending_an_event_waits_for_its_duplicate() {
    for server in [stopped_server().await, running_server().await] {
        let receiver = Receiver::start([]).await;
        server.webhook_endpoint(&receiver.url, SECRET);
        server.delivery_fault(DeliveryFault::duplicate().times(2));

        for _ in 0..3 {
            server.send_event(json!({"type": "email.opened"})).await;
        }

        assert_eq!(
            receiver.ids(),
            ["evt_1", "evt_1", "evt_2", "evt_2", "evt_3"]
        );
    }
}

#[tokio::test]
async fn two_events_arrive_in_the_opposite_order() {
    let server = stopped_server().await;
    let receiver = Receiver::start([]).await;
    server.webhook_endpoint(&receiver.url, SECRET);
    server.delivery_fault(DeliveryFault::reorder().times(2));

    let to = json!(["ada@example.com", "bob@example.com", "carol@example.com"]);
    let mail = json!({"from": "me@example.com", "to": to});
    post(&server, "/emails", &mail).await.unwrap();
    server.advance(Duration::ZERO).await;

    let order = ["evt_2", "evt_1", "evt_4", "evt_3", "evt_5", "evt_6"];
    assert_eq!(receiver.ids(), order);
    let faults: Vec<_> = log(&server)
        .into_iter()
        .map(|(_, _, fault)| fault)
        .collect();
    let reorder = Some("reorder");
    assert_eq!(faults, [None, reorder, None, reorder, None, None]);
}

#[tokio::test]
async fn sending_an_event_does_not_wait_while_it_is_held_back() {
    for server in [stopped_server().await, running_server().await] {
        let receiver = Receiver::start([]).await;
        server.webhook_endpoint(&receiver.url, SECRET);
        server.delivery_fault(DeliveryFault::reorder());

        server.send_event(json!({"type": "email.sent"})).await;
        assert!(receiver.ids().is_empty());
        server.send_event(json!({"type": "email.opened"})).await;

        assert_eq!(receiver.ids(), ["evt_2", "evt_1"]);
    }
}

#[tokio::test]
async fn an_event_that_no_other_follows_is_held_back_for_35_seconds() {
    let server = stopped_server().await;
    let receiver = Receiver::start([500]).await;
    server.webhook_endpoint(&receiver.url, SECRET);
    server.delivery_fault(DeliveryFault::reorder());
    server.send_event(json!({"type": "email.sent"})).await;

    server.advance(FIVE_HOURS).await;

    assert_eq!(offsets(&server.attempts()), [35, 70]);
    assert_eq!(
        log(&server),
        [(1, Some(500), Some("reorder")), (2, Some(200), None)]
    );
}

#[tokio::test]
async fn a_fault_is_limited_to_its_endpoint_and_type() {
    let server = stopped_server().await;
    let receiver = Receiver::start([]).await;
    let other = Receiver::start([]).await;
    server.webhook_endpoint(&other.url, SECRET);
    server.webhook_endpoint(&receiver.url, SECRET);
    let fault = DeliveryFault::stale().times(5);
    server.delivery_fault(fault.endpoint(&receiver.url).event_type(EventType::Bounced));

    for event_type in ["email.sent", "email.bounced"] {
        server.send_event(json!({"type": event_type})).await;
    }

    let faulty: Vec<DeliveryAttempt> = server
        .attempts()
        .into_iter()
        .filter(|attempt| attempt.fault.is_some())
        .collect();
    assert_eq!(faulty.len(), 1);
    assert_eq!(
        (&*faulty[0].event_id, &faulty[0].endpoint),
        ("evt_2", &receiver.url)
    );
}

#[tokio::test]
async fn a_redelivery_can_be_faulty() {
    let server = stopped_server().await;
    let receiver = Receiver::start([]).await;
    server.webhook_endpoint(&receiver.url, SECRET);
    let id = server.send_event(json!({"type": "email.sent"})).await;

    server.delivery_fault(DeliveryFault::stale());
    server.redeliver(&id).await;

    assert_eq!(receiver.received()[1].timestamp(), START - 301);
}

#[tokio::test]
async fn no_fault_is_left_after_a_clear_or_a_reset() {
    let server = stopped_server().await;
    let receiver = Receiver::start([]).await;
    server.webhook_endpoint(&receiver.url, SECRET);
    let deliver = async || server.send_event(json!({"type": "email.sent"})).await;

    deliver().await;
    server.delivery_fault(DeliveryFault::tampered().times(u64::MAX));
    server.delivery_fault(DeliveryFault::duplicate());
    server.clear_delivery_faults();
    deliver().await;
    assert_eq!(log(&server), [(1, Some(200), None); 2]);

    server.delivery_fault(DeliveryFault::reorder());
    deliver().await;
    server.delivery_fault(DeliveryFault::stale());
    server.reset();
    server.webhook_endpoint(&receiver.url, SECRET);
    deliver().await;
    server.advance(ONE_MINUTE).await;
    assert_eq!(log(&server), [(1, Some(200), None)]);
    assert_eq!(receiver.ids(), ["evt_1", "evt_2", "evt_4"]);
}

#[tokio::test]
async fn a_fault_after_a_reset_has_another_number_than_each_before_it() {
    let server = stopped_server().await;

    for number in 1..=2 {
        server.delivery_fault(DeliveryFault::stale());

        let (_, faults) = call(&server, "GET", "delivery-faults", Value::Null).await;
        assert_eq!(faults["data"][0]["number"], number);
        server.reset();
    }
}

#[tokio::test]
async fn an_event_that_is_held_back_disappears_with_its_endpoint() {
    let server = stopped_server().await;
    let receiver = Receiver::start([]).await;
    let endpoint = json!({"url": receiver.url, "secret": SECRET});
    let put = async || call(&server, "PUT", "endpoints/crm", endpoint.clone()).await;
    put().await;
    server.delivery_fault(DeliveryFault::reorder().times(2));
    server.send_event(json!({"type": "email.sent"})).await;

    call(&server, "DELETE", "endpoints/crm", Value::Null).await;
    put().await;
    server.send_event(json!({"type": "email.sent"})).await;
    server.send_event(json!({"type": "email.sent"})).await;
    server.advance(FIVE_HOURS).await;

    assert_eq!(receiver.ids(), ["evt_3", "evt_2"]);
}

#[tokio::test]
async fn the_control_plane_adds_and_removes_faults() {
    let server = stopped_server().await;
    let receiver = Receiver::start([]).await;
    let endpoint = json!({"url": receiver.url, "secret": SECRET});
    call(&server, "PUT", "endpoints/crm", endpoint).await;
    let add = async |fault: Value| call(&server, "POST", "delivery-faults", fault).await;
    let send = async || server.send_event(json!({"type": "email.sent"})).await;

    for fault in [
        json!({"kind": "stale", "endpoint": "crm", "event_type": "email.sent"}),
        json!({"kind": "tampered", "times": 1}),
        json!({"kind": "other_secret"}),
        json!({"kind": "missing_header"}),
        json!({"kind": "missing_header", "header": "webhook-timestamp"}),
        json!({"kind": "reorder"}),
        json!({"kind": "stale", "event_type": "email.bounced"}),
    ] {
        assert_eq!(add(fault).await, NO_CONTENT);
    }
    for _ in 0..7 {
        send().await;
    }
    assert_eq!(
        add(json!({"kind": "duplicate", "times": 9})).await,
        NO_CONTENT
    );
    send().await;
    assert_eq!(
        call(&server, "DELETE", "delivery-faults", Value::Null).await,
        NO_CONTENT
    );
    send().await;

    let (_, attempts) = call(&server, "GET", "attempts", Value::Null).await;
    let faults: Vec<_> = attempts["data"]
        .as_array()
        .unwrap()
        .iter()
        .map(|attempt| attempt["fault"].as_str().unwrap_or("none"))
        .collect();
    assert_eq!(
        faults,
        [
            "stale",
            "tampered",
            "other_secret",
            "missing_header",
            "missing_header",
            "none",
            "reorder",
            "none",
            "duplicate",
            "none"
        ]
    );
    let received = receiver.received_unchecked();
    assert!(!received[3].headers.contains_key("webhook-signature"));
    assert!(!received[4].headers.contains_key("webhook-timestamp"));
    for bad in [
        json!({}),
        json!({"kind": "late"}),
        json!({"kind": "stale", "times": -1}),
        json!({"kind": "stale", "header": "webhook-event"}),
        json!({"kind": "missing_header", "header": "content-type"}),
        json!({"kind": "stale", "path": "/"}),
        json!({"kind": "stale", "times": 0}),
        json!({"kind": "stale", "endpoint": "log"}),
        json!({"kind": "stale", "event_type": "email.bouncd"}),
    ] {
        let (status, error) = add(bad.clone()).await;
        assert_eq!(status, 422, "{bad}");
        assert!(error["error"]["message"].is_string(), "{bad}");
    }
}
