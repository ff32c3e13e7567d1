//! The cost of verifying a delivery, compared with a lower bound: the same MAC over the same bytes
//! with a prepared key, with and without deserializing into the same structs.

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

/// A minimal envelope for a single event type.
#[derive(Deserialize)]
struct Envelope {
    id: String,
    #[serde(rename = "type")]
    event_type: String,
    created_at: i64,
    data: MailEvent,
}

struct Delivery {
    headers: HeaderMap,
    body: Vec<u8>,
}

/// Returns a signed bounce of `size` bytes; the diagnostic text fills it.
fn delivery(size: usize) -> Delivery {
    let body = |detail: &str| {
        format!(
            r#"{{"id":"evt_0123456789abcdef","type":"email.bounced","created_at":{NOW},"data":{}}}"#,
            json!({"email_id": "em_0123456789abcdef", "from": "us@example.com",
                "to": "ada@example.com", "subject": "Your order",
                "bounce_type": "Permanent", "detail": detail})
        )
    };
    let detail = "550 5.1.1 no such user ".repeat(size / 23 + 1);
    let body = body(&detail[..size - body("").len()]).into_bytes();
    let headers = Signer::new(SECRET).expect("the secret is valid").sign(
        &EventType::Bounced,
        UNIX_EPOCH + Duration::from_secs(NOW),
        &body,
    );
    Delivery { headers, body }
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
        let Delivery { headers, body } = delivery(size);
        let timestamp = headers["webhook-timestamp"].as_bytes();
        let tag = key
            .clone()
            .chain_update(timestamp)
            .chain_update(b".")
            .chain_update(&body);
        let tag = tag.finalize().into_bytes();
        let floor = |body: &[u8]| {
            let mac = key
                .clone()
                .chain_update(timestamp)
                .chain_update(b".")
                .chain_update(body);
            mac.verify_slice(&tag).is_ok()
        };

        let mut group = criterion.benchmark_group("verify");
        group.throughput(Throughput::Bytes(size as u64));
        group.bench_with_input(BenchmarkId::new("floor", size), &body, |bencher, body| {
            bencher.iter(|| assert!(floor(black_box(body))));
        });
        group.bench_with_input(
            BenchmarkId::new("audience", size),
            &body,
            |bencher, body| {
                bencher.iter(|| {
                    let delivery = verifier.authenticate(black_box(&headers), black_box(body));
                    assert!(delivery.is_ok());
                });
            },
        );
        group.finish();

        let mut group = criterion.benchmark_group("verify_and_parse");
        group.throughput(Throughput::Bytes(size as u64));
        group.bench_with_input(BenchmarkId::new("floor", size), &body, |bencher, body| {
            bencher.iter(|| {
                assert!(floor(black_box(body)));
                let event: Envelope =
                    serde_json::from_slice(body).expect("the body is an envelope");
                black_box((event.id, event.event_type, event.created_at, event.data))
            });
        });
        group.bench_with_input(
            BenchmarkId::new("audience", size),
            &body,
            |bencher, body| {
                bencher.iter(|| verifier.verify(black_box(&headers), black_box(body)));
            },
        );
        group.finish();
    }
}

criterion_group!(benches, compare);
criterion_main!(benches);
