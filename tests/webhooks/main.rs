//! Tests of interface sections 5 and 6, from the receiver's side.
#![cfg(test)]

mod cancellation;
mod corpus;
mod envelope;
mod handlers;
mod history;
mod lambda;
mod mail;
mod rejections;
mod runners;
mod secrecy;
mod slow_senders;
mod tampering;
mod tower;
mod tracing;
mod verification;
mod wasm;

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use audience::webhooks::{EventType, Signer, Verifier};
use http::HeaderMap;

const SECRET: &str = "6Jm0nFq2pXvZk4Tt";
const NOW: u64 = 1_700_000_000;
const BODY: &str = r#"{"id":"evt_1","type":"email.bounced","created_at":1699999990,"data":{"email_id":"em_1","from":"us@example.com","to":"ada@example.com","subject":"Hi","bounce_type":"Permanent","detail":"550 no such user"}}"#;

fn at(seconds: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(seconds)
}

fn verifier() -> Verifier {
    Verifier::builder()
        .secret("main", SECRET)
        .clock(|| at(NOW))
        .build()
        .unwrap()
}

fn signed_at(seconds: u64, body: impl AsRef<[u8]>) -> HeaderMap {
    Signer::new(SECRET)
        .unwrap()
        .sign(&EventType::Bounced, at(seconds), body)
}

fn signed(body: impl AsRef<[u8]>) -> HeaderMap {
    signed_at(NOW, body)
}
