//! Exports the verifier to `run.mjs`, which runs the corpus of `fixtures/webhooks` and plays the service.

#[path = "../../support/deliveries.rs"]
#[expect(dead_code, reason = "this target reads no files and sets no clock")]
mod deliveries;

use std::sync::Mutex;
use std::sync::atomic::{AtomicU8, Ordering};

use audience::Timestamp;
use audience::webhooks::{EventType, Signer, Verifier};
use deliveries::Delivery;

const SECRET: &str = "6Jm0nFq2pXvZk4Tt";
const CAPACITY: usize = 1024 * 1024;

/// What the script passes to a function, and the text that the function returns.
static BUFFER: [AtomicU8; CAPACITY] = [const { AtomicU8::new(0) }; CAPACITY];

/// The deliveries of the file that was loaded last.
static DELIVERIES: Mutex<Vec<Delivery>> = Mutex::new(Vec::new());

/// Returns the address of the buffer.
#[unsafe(no_mangle)]
pub extern "C" fn buffer() -> *const AtomicU8 {
    BUFFER.as_ptr()
}

/// Returns the size of the buffer.
#[unsafe(no_mangle)]
pub extern "C" fn capacity() -> usize {
    CAPACITY
}

/// Loads the file of the corpus whose text is in the buffer. Returns the number of its deliveries.
#[unsafe(no_mangle)]
pub extern "C" fn load(length: usize) -> usize {
    let deliveries = deliveries::read(&read_buffer(length));
    let count = deliveries.len();
    *DELIVERIES.lock().expect("no holder panics") = deliveries;
    count
}

/// Returns the time at which a delivery is verified, in Unix seconds.
#[unsafe(no_mangle)]
pub extern "C" fn now(index: usize) -> i64 {
    DELIVERIES.lock().expect("no holder panics")[index].now
}

/// Verifies a delivery with the clock of JavaScript. Returns the length of the text in the buffer that says how the
/// verdict differs from the expected one: 0 if it does not.
#[unsafe(no_mangle)]
pub extern "C" fn check(index: usize) -> usize {
    let deliveries = DELIVERIES.lock().expect("no holder panics");
    let delivery = &deliveries[index];
    let verifier = delivery.verifier_builder().build();
    let outcome = delivery.check(&verifier.expect("the secrets are valid"));
    let difference = outcome.err().unwrap_or_default();
    for (byte, slot) in difference.bytes().zip(&BUFFER) {
        slot.store(byte, Ordering::Relaxed);
    }
    difference.len().min(CAPACITY)
}

/// Verifies the delivery in the buffer: 200, or the status to respond with.
#[unsafe(no_mangle)]
pub extern "C" fn verify(signature: usize, timestamp: usize, body: usize) -> u16 {
    let delivery = read_buffer(signature + timestamp + body);
    let (signature, rest) = delivery.split_at(signature);
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
    let now = Timestamp::now().try_into().expect("the time is valid");
    let signer = Signer::new(SECRET).expect("the secret is valid");
    let verifier = Verifier::new(SECRET).expect("the secret is valid");

    match verifier.verify(&signer.sign(&EventType::Sent, now, body), body) {
        Ok(_) => 200,
        Err(error) => error.status().as_u16(),
    }
}

fn read_buffer(length: usize) -> Vec<u8> {
    BUFFER[..length]
        .iter()
        .map(|byte| byte.load(Ordering::Relaxed))
        .collect()
}
