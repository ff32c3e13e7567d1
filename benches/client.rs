//! What the client adds to a hand-written call, and what the mock takes: `cargo bench --bench client`.
//!
//! - `retrieve/by hand`: reqwest and serde, as one would write it for this one call;
//! - `retrieve/audience`: the same call by the crate, to the same mock, over a kept connection;
//! - `decode/page`: a page of 200 contacts into its types;
//! - `walk/1000`: a stream over 1,000 contacts, pages of 200.

use std::collections::BTreeMap;
use std::hint::black_box;

use audience::contacts::{NewContact, Page};
use audience::mock::MockServer;
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use futures_util::TryStreamExt;
use serde::Deserialize;
use serde_json::json;

/// What a program that knows the document would declare for section 2.1.
#[derive(Deserialize)]
#[expect(dead_code, reason = "decoding it is what is measured")]
struct Contact {
    id: String,
    email: String,
    first_name: Option<String>,
    last_name: Option<String>,
    properties: BTreeMap<String, serde_json::Value>,
    unsubscribed: bool,
    unsubscribe_reason: String,
    created_at: i64,
    topics: BTreeMap<String, bool>,
}

fn retrieve(criterion: &mut Criterion) {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime starts");
    let server = runtime.block_on(populated(1));
    let contacts = server.client().contacts();
    let by_hand = reqwest::Client::builder()
        .gzip(true)
        .no_proxy()
        .build()
        .expect("a client is built");
    let url = format!("{}/contacts/reader0%40example.com", server.url());

    let mut group = criterion.benchmark_group("retrieve");
    group.bench_function("by hand", |bencher| {
        bencher.iter(|| {
            runtime.block_on(async {
                let request = by_hand.get(&url).bearer_auth(server.full_key());
                let answer = request.send().await.expect("an answer comes");
                let answer = answer.error_for_status().expect("the contact is there");
                let body = answer.bytes().await.expect("the answer is whole");
                serde_json::from_slice::<Contact>(&body).expect("the answer is a contact")
            })
        });
    });
    group.bench_function("audience", |bencher| {
        bencher.iter(|| {
            runtime
                .block_on(contacts.retrieve("reader0@example.com").into_future())
                .expect("the contact is there")
        });
    });
    group.finish();
}

fn walk(criterion: &mut Criterion) {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime starts");
    let server = runtime.block_on(populated(1_000));
    let contacts = server.client().contacts();

    let mut group = criterion.benchmark_group("walk");
    group.throughput(Throughput::Elements(1_000));
    group.bench_function("1000", |bencher| {
        bencher.iter(|| {
            runtime.block_on(async {
                let stream = contacts.list().limit(200).stream();
                let walked = stream.try_fold(0, async |count, _| Ok(count + 1)).await;
                assert_eq!(walked.expect("no page fails"), 1_000);
            });
        });
    });
    group.finish();
}

fn decode(criterion: &mut Criterion) {
    let contact = |n| {
        json!({"id": format!("c_{n}"), "email": format!("reader{n}@example.com"), "first_name": "Ada",
            "properties": {"plan": "pro", "seats": n}, "unsubscribed": false, "created_at": 1_700_000_000 + n})
    };
    let data: Vec<_> = (0..200).map(contact).collect();
    let page = json!({"data": data, "next": "c_199"}).to_string();

    let mut group = criterion.benchmark_group("decode");
    group.throughput(Throughput::Bytes(page.len() as u64));
    group.bench_function("page", |bencher| {
        bencher.iter(|| serde_json::from_str::<Page>(black_box(&page)).expect("the page decodes"));
    });
    group.finish();
}

async fn populated(count: u32) -> MockServer {
    let server = MockServer::start().await;
    server.topic("news", true);
    let contacts = server.client().contacts();
    for n in 0..count {
        let address = format!("reader{n}@example.com");
        let contact = NewContact::new(address)
            .first_name("Ada")
            .property("seats", n);
        contacts.create(contact).await.expect("the mock takes it");
    }
    server
}

criterion_group!(benches, retrieve, walk, decode);
criterion_main!(benches);
