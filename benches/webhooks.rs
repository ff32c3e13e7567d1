//! The cost of verifying a delivery, compared with a lower bound: the same MAC over the same bytes
//! with a prepared key, with and without deserializing into the same structs.
//!
//! `audience` verifies the same delivery again and again, so that the processor learns to predict its
//! branches. `audience-varying` verifies deliveries that differ in timestamp and signature, as a receiver
//! does.

use std::hint::black_box;
use std::time::{Duration, UNIX_EPOCH};

use audience::webhooks::{EventType, MailEvent, Signer, Verifier};
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use hmac::{Hmac, KeyInit, Mac};
use http::HeaderMap;
use serde::Deserialize;
use serde_json::json;
use sha2::Sha256;

const SECRET: &str = "6Jm0nFq2pXvZk4Tt";
const NOW: u64 = 1_700_000_000;
/// Too many for the processor to remember their digits, and few enough to stay in its cache.
const ATTEMPTS: u64 = 1024;

/// A minimal envelope for a single event type.
#[derive(Deserialize)]
struct Envelope {
    id: String,
    #[serde(rename = "type")]
    event_type: String,
    created_at: i64,
    data: MailEvent,
}

/// Returns a bounce of `size` bytes; the diagnostic text fills it.
fn bounce(size: usize) -> Vec<u8> {
    let body = |detail: &str| {
        format!(
            r#"{{"id":"evt_0123456789abcdef","type":"email.bounced","created_at":{NOW},"data":{}}}"#,
            json!({"email_id": "em_0123456789abcdef", "from": "us@example.com",
                "to": "ada@example.com", "subject": "Your order",
                "bounce_type": "Permanent", "detail": detail})
        )
    };
    let detail = "550 5.1.1 no such user ".repeat(size / 23 + 1);
    body(&detail[..size - body("").len()]).into_bytes()
}

/// Returns the headers of each attempt to deliver `body`, one attempt a second.
fn attempts(body: &[u8]) -> Vec<HeaderMap> {
    let signer = Signer::new(SECRET).expect("the secret is valid");
    (NOW..NOW + ATTEMPTS)
        .map(|seconds| UNIX_EPOCH + Duration::from_secs(seconds))
        .map(|time| signer.sign(&EventType::Bounced, time, body))
        .collect()
}

fn compare(criterion: &mut Criterion) {
    // The deliveries are old, and the verifier uses the system clock as a program would.
    let verifier = Verifier::builder()
        .secret("main", SECRET)
        .tolerance(Duration::MAX)
        .build()
        .expect("the secret is valid");
    let key =
        Hmac::<Sha256>::new_from_slice(SECRET.as_bytes()).expect("HMAC takes keys of any length");

    for size in [300, 1024, 4096, 65_536] {
        let body = bounce(size);
        let attempts = attempts(&body);
        let repeated_and_varying = [
            ("audience", &attempts[..1]),
            ("audience-varying", &attempts[..]),
        ];
        let timestamp = attempts[0]["webhook-timestamp"].as_bytes();
        let mac = |body: &[u8]| {
            key.clone()
                .chain_update(timestamp)
                .chain_update(b".")
                .chain_update(body)
        };
        let tag = mac(&body).finalize().into_bytes();
        let floor = |body: &[u8]| mac(body).verify_slice(&tag).is_ok();

        let mut group = criterion.benchmark_group("verify");
        group.throughput(Throughput::Bytes(size as u64));
        group.bench_function(BenchmarkId::new("floor", size), |bencher| {
            bencher.iter(|| assert!(floor(black_box(&body))));
        });
        for (name, attempts) in repeated_and_varying {
            let mut attempts = attempts.iter().cycle();
            group.bench_function(BenchmarkId::new(name, size), |bencher| {
                bencher.iter(|| {
                    let headers = attempts.next().expect("there are attempts");
                    let delivery = verifier.authenticate(black_box(headers), black_box(&body));
                    assert!(delivery.is_ok());
                });
            });
        }
        group.finish();

        let mut group = criterion.benchmark_group("verify_and_parse");
        group.throughput(Throughput::Bytes(size as u64));
        group.bench_function(BenchmarkId::new("floor", size), |bencher| {
            bencher.iter(|| {
                assert!(floor(black_box(&body)));
                let event: Envelope =
                    serde_json::from_slice(&body).expect("the body is an envelope");
                black_box((event.id, event.event_type, event.created_at, event.data))
            });
        });
        for (name, attempts) in repeated_and_varying {
            let mut attempts = attempts.iter().cycle();
            group.bench_function(BenchmarkId::new(name, size), |bencher| {
                bencher.iter(|| {
                    let headers = attempts.next().expect("there are attempts");
                    verifier.verify(black_box(headers), black_box(&body))
                });
            });
        }
        group.finish();
    }
}

criterion_group!(benches, compare);
criterion_main!(benches);
