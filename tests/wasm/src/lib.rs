//! Exports the verifier to `run.mjs`, which plays the service.

use std::sync::atomic::{AtomicU8, Ordering};

use audience::Timestamp;
use audience::webhooks::{EventType, Signer, Verifier};

const SECRET: &str = "6Jm0nFq2pXvZk4Tt";
const CAPACITY: usize = 4096;

/// The signature, the timestamp and the body, one after the other. The script writes it.
static INPUT: [AtomicU8; CAPACITY] = [const { AtomicU8::new(0) }; CAPACITY];

/// Returns the address of the input.
#[unsafe(no_mangle)]
pub extern "C" fn input() -> *const AtomicU8 {
    INPUT.as_ptr()
}

/// Verifies the delivery in the input: 200, or the status to respond with.
#[unsafe(no_mangle)]
pub extern "C" fn verify(signature: usize, timestamp: usize, body: usize) -> u16 {
    let length = signature + timestamp + body;
    let input: Vec<u8> = INPUT[..length]
        .iter()
        .map(|byte| byte.load(Ordering::Relaxed))
        .collect();
    let (signature, rest) = input.split_at(signature);
    let (timestamp, body) = rest.split_at(timestamp);
    let verifier = Verifier::new(SECRET).expect("the secret is valid");

    match verifier.verify_parts(Some(signature), Some(timestamp), body) {
        Ok(_) => 200,
        Err(error) => error.status().as_u16(),
    }
}

/// Signs a delivery with the current time and verifies it: 200, or the status to respond with.
#[unsafe(no_mangle)]
pub extern "C" fn sign_and_verify() -> u16 {
    let body = br#"{"id":"evt_1","type":"email.sent","created_at":1,"data":{}}"#;
    let now = Timestamp::now()
        .to_system_time()
        .expect("the time is valid");
    let signer = Signer::new(SECRET).expect("the secret is valid");
    let verifier = Verifier::new(SECRET).expect("the secret is valid");

    match verifier.verify(&signer.sign(&EventType::Sent, now, body), body) {
        Ok(_) => 200,
        Err(error) => error.status().as_u16(),
    }
}
