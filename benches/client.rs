//! The cost of the client compared to a hand-written call: `cargo bench --bench client`.
//!
//! - `retrieve/by hand`: a call written with reqwest and serde;
//! - `retrieve/audience`: the same call with this crate. Both use the same mock server and reuse their
//!   connection;
//! - `list/by hand` and `list/audience`: the same for a page of 200 contacts;
//! - `decode/page`: decodes a page of 200 contacts, as the client does it;
//! - `stream/1000`: streams 1,000 contacts in pages of 200.

use std::collections::BTreeMap;
use std::hint::black_box;

use audience::Method;
use audience::contacts::{NewContact, Page};
use audience::mock::{Fault, MockServer};
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use futures_util::TryStreamExt;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::json;

/// The contact of section 2.1, as a hand-written program would declare it.
#[derive(Deserialize)]
#[expect(
    dead_code,
    reason = "the benchmark measures decoding, and reads no field"
)]
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

/// The page of section 4.4, as a hand-written program would declare it.
#[derive(Deserialize)]
#[expect(
    dead_code,
    reason = "the benchmark measures decoding, and reads no field"
)]
struct ContactPage {
    data: Vec<ListItem>,
    next: Option<String>,
}

/// The contact of section 2.3, as a hand-written program would declare it.
#[derive(Deserialize)]
#[expect(
    dead_code,
    reason = "the benchmark measures decoding, and reads no field"
)]
struct ListItem {
    id: String,
    email: String,
    first_name: Option<String>,
    properties: BTreeMap<String, serde_json::Value>,
    unsubscribed: bool,
    created_at: i64,
}

fn retrieve(criterion: &mut Criterion) {
    let runtime = tokio::runtime::Runtime::new().expect("the runtime starts");
    let server = runtime.block_on(server_with_contacts(1));
    let contacts = server.client().contacts();
    let by_hand = client_by_hand();
    let url = format!("{}/contacts/reader0%40example.com", server.url());

    let mut group = criterion.benchmark_group("retrieve");
    group.bench_function("by hand", |bencher| {
        bencher.iter(|| runtime.block_on(get_by_hand::<Contact>(&by_hand, &server, &url)));
    });
    group.bench_function("audience", |bencher| {
        bencher.iter(|| {
            runtime
                .block_on(contacts.retrieve("reader0@example.com").into_future())
                .expect("the contact exists")
        });
    });
    group.finish();
}

fn list(criterion: &mut Criterion) {
    let runtime = tokio::runtime::Runtime::new().expect("the runtime starts");
    let server = runtime.block_on(server_with_page());
    let contacts = server.client().contacts();
    let by_hand = client_by_hand();
    let url = format!("{}/contacts", server.url());

    let mut group = criterion.benchmark_group("list");
    group.bench_function("by hand", |bencher| {
        bencher.iter(|| runtime.block_on(get_by_hand::<ContactPage>(&by_hand, &server, &url)));
    });
    group.bench_function("audience", |bencher| {
        bencher.iter(|| {
            runtime
                .block_on(contacts.list().into_future())
                .expect("the page decodes")
        });
    });
    group.finish();
}

/// Decodes a response that was received once, so that no network is measured.
fn decode(criterion: &mut Criterion) {
    let runtime = tokio::runtime::Runtime::new().expect("the runtime starts");
    let server = runtime.block_on(server_with_page());
    let request = server.client().request(Method::GET, ["contacts"]);
    let response = runtime
        .block_on(request.into_future())
        .expect("the mock responds");

    let mut group = criterion.benchmark_group("decode");
    group.throughput(Throughput::Bytes(response.bytes().len() as u64));
    group.bench_function("page", |bencher| {
        bencher.iter(|| {
            black_box(&response)
                .json::<Page>()
                .expect("the page decodes")
        });
    });
    group.finish();
}

fn stream(criterion: &mut Criterion) {
    let runtime = tokio::runtime::Runtime::new().expect("the runtime starts");
    let server = runtime.block_on(server_with_contacts(1_000));
    let contacts = server.client().contacts();

    let mut group = criterion.benchmark_group("stream");
    group.throughput(Throughput::Elements(1_000));
    group.bench_function("1000", |bencher| {
        bencher.iter(|| {
            runtime.block_on(async {
                let stream = contacts.list().limit(200).stream();
                let count = stream.try_fold(0, async |count, _| Ok(count + 1)).await;
                assert_eq!(count.expect("no page fails"), 1_000);
            });
        });
    });
    group.finish();
}

fn client_by_hand() -> reqwest::Client {
    reqwest::Client::builder()
        .gzip(true)
        .no_proxy()
        .build()
        .expect("the client is valid")
}

async fn get_by_hand<T: DeserializeOwned>(
    client: &reqwest::Client,
    server: &MockServer,
    url: &str,
) -> T {
    let request = client.get(url).bearer_auth(server.full_key());
    let response = request.send().await.expect("the mock responds");
    let response = response.error_for_status().expect("the call succeeds");
    let body = response.bytes().await.expect("the body is complete");
    serde_json::from_slice(&body).expect("the body has the documented form")
}

/// Starts a server that responds with the same page of 200 contacts every time.
async fn server_with_page() -> MockServer {
    let contact = |n| {
        json!({"id": format!("c_{n}"), "email": format!("reader{n}@example.com"), "first_name": "Ada",
            "properties": {"plan": "pro", "seats": n}, "unsubscribed": false, "created_at": 1_700_000_000 + n})
    };
    let data: Vec<_> = (0..200).map(contact).collect();
    let page = json!({"data": data, "next": "c_199"}).to_string();
    let server = MockServer::start().await;
    server.fault(Fault::wrong_body(page));
    server
}

async fn server_with_contacts(count: u32) -> MockServer {
    let server = MockServer::start().await;
    server.topic("news", true);
    let contacts = server.client().contacts();
    for n in 0..count {
        let address = format!("reader{n}@example.com");
        let contact = NewContact::new(address)
            .first_name("Ada")
            .property("seats", n);
        contacts
            .create(contact)
            .await
            .expect("the contact is created");
    }
    server
}

criterion_group!(benches, retrieve, list, decode, stream);
criterion_main!(benches);
