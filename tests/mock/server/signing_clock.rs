//! The clock that deliveries are signed by.

use audience::mock::SigningClock;
use audience::webhooks::{Verifier, VerifyError};
use serde_json::{Value, json};

use super::control::{NO_CONTENT, call};
use super::{FIVE_HOURS, START, offsets, patient, stopped_server};
use crate::receiver::{Received, Receiver, SECRET};

/// Verifies a delivery by the system's clock, as a receiver in another process does.
fn verify(received: &Received) -> Result<(), VerifyError> {
    let verifier = Verifier::new(SECRET).unwrap();
    verifier
        .verify(&received.headers, &received.body)
        .map(|_| ())
}

#[tokio::test]
async fn a_receiver_with_the_wall_clock_accepts_every_attempt_of_five_hours() {
    let server = patient()
        .clock(START)
        .signing_clock(SigningClock::Wall)
        .start()
        .await;
    let receiver = Receiver::start([500; 9]).await;
    server.webhook_endpoint(&receiver.url, SECRET);

    server.send_event(json!({"type": "email.opened"})).await;
    server.advance(FIVE_HOURS).await;

    let received = receiver.received();
    assert_eq!(received.len(), 10);
    for delivery in &received {
        assert_eq!(verify(delivery), Ok(()));
        assert_eq!(delivery.json()["created_at"], START);
    }
    assert_eq!(offsets(&server.attempts())[9], 17_885);
}

#[tokio::test]
async fn the_signing_clock_can_be_changed_and_a_reset_restores_it() {
    let server = stopped_server().await;
    let receiver = Receiver::start([]).await;
    let deliver = async || {
        server.webhook_endpoint(&receiver.url, SECRET);
        server.send_event(json!({"type": "email.opened"})).await;
        verify(receiver.received().last().unwrap())
    };
    let put = async |clock: Value| call(&server, "PUT", "signing-clock", clock).await;

    let by_default = deliver().await;
    assert!(matches!(by_default, Err(VerifyError::TooLate { .. })));
    assert_eq!(put(json!({"clock": "wall"})).await, NO_CONTENT);
    assert_eq!(deliver().await, Ok(()));
    assert_eq!(put(json!({"clock": "mock"})).await, NO_CONTENT);
    assert!(deliver().await.is_err());
    assert_eq!(put(json!({"clock": "wall"})).await, NO_CONTENT);
    server.reset();
    assert!(deliver().await.is_err());
    for bad in [
        json!({}),
        json!({"clock": "sun"}),
        json!({"clock": "wall", "at": 1}),
    ] {
        assert_eq!(put(bad).await.0, 422);
    }
}
