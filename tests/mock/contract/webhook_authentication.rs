//! Section 5, webhook authentication: the headers and the signature of what the mock delivers.
//!
//! These tests compute the signature with a different HMAC implementation than the crate uses.

use std::collections::BTreeSet;
use std::time::Duration;

use audience::mock::{DeliveryFault, MockServer, MockServerBuilder, SigningClock};
use aws_lc_rs::hmac;
use serde_json::json;
use support::PATIENCE;

use super::{DAY, NOW};
use crate::receiver::{Received, Receiver, SECRET};

/// A mock that waits for a receiver as long as a test may take.
fn mock() -> MockServerBuilder {
    MockServer::builder()
        .clock(NOW)
        .delivery_timeout(2 * PATIENCE)
}

/// The deliveries of one event to a receiver that responds with these statuses in turn, then with 200.
async fn deliveries(statuses: impl IntoIterator<Item = u16>) -> Vec<Received> {
    let receiver = Receiver::start(statuses).await;
    let server = mock().start().await;
    server.webhook_endpoint(&receiver.url, SECRET);
    server
        .send_event(json!({"type": "email.bounced", "data": {"subject": "Zoë\u{1F389} </é>"}}))
        .await;
    server.advance(Duration::from_secs(DAY)).await;
    receiver.received()
}

fn signature(delivery: &Received) -> String {
    let key = hmac::Key::new(hmac::HMAC_SHA256, SECRET.as_bytes());
    let signed = [
        delivery.header("webhook-timestamp").as_bytes(),
        b".",
        &delivery.body,
    ]
    .concat();
    hmac::sign(&key, &signed)
        .as_ref()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

#[tokio::test]
async fn section_5_header_webhook_signature_is_lowercase_hex() {
    let delivery = &deliveries([]).await[0];

    let signature = delivery.header("webhook-signature");

    assert_eq!(signature.len(), 64);
    assert!(
        signature
            .bytes()
            .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')),
        "{signature}"
    );
}

#[tokio::test]
async fn section_5_header_webhook_timestamp_is_unix_seconds_as_text() {
    assert_eq!(
        deliveries([]).await[0].header("webhook-timestamp"),
        NOW.to_string()
    );
}

#[tokio::test]
async fn section_5_header_webhook_event_is_the_type() {
    let delivery = &deliveries([]).await[0];

    assert_eq!(delivery.header("webhook-event"), "email.bounced");
    assert_eq!(delivery.json()["type"], "email.bounced");
}

#[tokio::test]
async fn section_5_rule_1_signature_is_hmac_sha256_over_timestamp_period_and_raw_body() {
    let delivery = &deliveries([]).await[0];

    assert_eq!(delivery.header("webhook-signature"), signature(delivery));
}

#[tokio::test]
async fn section_5_rule_3_each_attempt_is_signed_with_its_own_timestamp() {
    for delivery in deliveries([500; 10]).await {
        assert_eq!(delivery.header("webhook-signature"), signature(&delivery));
    }
}

#[tokio::test]
async fn section_5_rule_4_each_attempt_has_a_new_timestamp_and_signature() {
    let deliveries = deliveries([500, 500]).await;

    let mut timestamps: Vec<&str> = deliveries
        .iter()
        .map(|delivery| delivery.header("webhook-timestamp"))
        .collect();
    timestamps.dedup();
    assert_eq!(timestamps.len(), 3);
    let mut signatures: Vec<&str> = deliveries
        .iter()
        .map(|delivery| delivery.header("webhook-signature"))
        .collect();
    signatures.dedup();
    assert_eq!(signatures.len(), 3);
}

#[tokio::test]
async fn section_5_rule_4_holds_when_the_clock_was_set_back_too() {
    let receiver = Receiver::start([]).await;
    let server = mock().start().await;
    server.webhook_endpoint(&receiver.url, SECRET);

    let id = server.send_event(json!({"type": "email.opened"})).await;
    server.set_clock(NOW - 100).await;
    server.redeliver(&id).await;
    server.set_clock(NOW).await;
    server.redeliver(&id).await;

    let deliveries = receiver.received();
    let timestamps: Vec<&str> = deliveries
        .iter()
        .map(|delivery| delivery.header("webhook-timestamp"))
        .collect();
    let expected = [NOW, NOW - 100, NOW + 1].map(|second| second.to_string());
    assert_eq!(timestamps, expected);
}

#[tokio::test]
async fn section_5_rule_4_holds_for_attempts_in_the_same_second_too() {
    for clock in [SigningClock::Wall, SigningClock::Mock] {
        let receiver = Receiver::start([500; 9]).await;
        let server = mock().signing_clock(clock).start().await;
        server.webhook_endpoint(&receiver.url, SECRET);
        server.delivery_fault(DeliveryFault::duplicate());

        let id = server.send_event(json!({"type": "email.opened"})).await;
        server.advance(Duration::from_secs(DAY)).await;
        for _ in 0..3 {
            server.redeliver(&id).await;
        }

        let deliveries = receiver.received();
        assert_eq!(deliveries.len(), 14);
        let mut timestamps = BTreeSet::new();
        for delivery in &deliveries {
            assert_eq!(delivery.header("webhook-signature"), signature(delivery));
            timestamps.insert(delivery.header("webhook-timestamp"));
        }
        assert_eq!(timestamps.len(), 14, "{timestamps:?}");
        assert!(
            server
                .attempts()
                .iter()
                .all(|attempt| attempt.signature_problem.is_none())
        );
    }
}
