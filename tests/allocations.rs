//! A forged delivery does not make the receiver allocate, and a call allocates no more than it must. This is a separate
//! binary because counting them replaces the allocator of the whole process. Each thread is counted for itself.
#![cfg(test)]

use std::io::{self, BufRead as _, BufReader, Write as _};
use std::net::TcpListener;
use std::thread;
use std::time::{Duration, SystemTime};

use allocation_counter::measure;
use audience::webhooks::{EventType, Signer, Verifier};
use audience::{Client, ErrorKind};
use futures_util::FutureExt;
use http::{HeaderMap, HeaderValue};

const BODY: &[u8] = br#"{"id":"evt_1","type":"email.sent","created_at":1,"data":{}}"#;

fn verifier() -> Verifier {
    Verifier::builder()
        .secret("new", "6Jm0nFq2pXvZk4Tt")
        .secret("old", "Wb8cQe1sLr5uYh7o")
        .body_limit(1000)
        .build()
        .unwrap()
}

fn signed(body: &[u8]) -> HeaderMap {
    let signer = Signer::new("6Jm0nFq2pXvZk4Tt").unwrap();
    signer.sign(&EventType::Sent, SystemTime::now(), body)
}

fn with(header: &'static str, value: &'static str) -> HeaderMap {
    let mut headers = signed(BODY);
    headers.insert(header, HeaderValue::from_static(value));
    headers
}

#[test]
fn a_refused_delivery_allocates_nothing() {
    let verifier = verifier();
    let mut twice = signed(BODY);
    twice.append("webhook-timestamp", HeaderValue::from_static("1"));
    let mut missing = signed(BODY);
    missing.remove("webhook-signature");

    for (headers, body) in [
        (signed(b"other"), BODY),
        (signed(BODY), [b' '; 1001].as_slice()),
        (with("webhook-signature", "v1,abc="), BODY),
        (with("webhook-timestamp", "99999999999999999999999"), BODY),
        (with("webhook-timestamp", "1"), BODY),
        (twice, BODY),
        (missing, BODY),
    ] {
        let mut refused = false;

        let allocations = measure(|| refused = verifier.verify(&headers, body).is_err());

        assert!(refused);
        assert_eq!(allocations.count_total, 0);
    }
}

#[test]
fn authenticating_a_delivery_allocates_nothing() {
    let verifier = verifier();
    let headers = signed(BODY);
    let mut accepted = false;

    let allocations = measure(|| accepted = verifier.authenticate(&headers, BODY).is_ok());

    assert!(accepted);
    assert_eq!(allocations.count_total, 0);
}

#[test]
fn parsing_an_event_allocates_once_for_each_text_in_it() {
    let body = br#"{"id":"evt_1","type":"email.sent","created_at":1,"data":{"email_id":"e","from":"f","to":"t","subject":"s","bounce_type":"","detail":""}}"#;
    let verifier = verifier();
    let headers = signed(body);
    let mut event = None;

    let allocations = measure(|| event = verifier.verify(&headers, body).ok());

    assert!(event.is_some());
    assert_eq!(allocations.count_total, 5);
}

#[test]
fn a_builder_that_is_not_sent_allocates_only_for_its_arguments() {
    let contacts = Client::new("http://localhost:1", "key").unwrap().contacts();
    let mut builders = None;

    let allocations = measure(|| {
        let retrieve = contacts
            .retrieve("ada@x.io")
            .timeout(Duration::from_secs(1));
        builders = Some((retrieve, contacts.list().limit(9), contacts.list().count()));
    });

    assert_eq!(allocations.count_total, 1);
}

#[test]
fn polling_a_builder_allocates_its_work_once() {
    let contacts = Client::new("http://localhost:1", "key").unwrap().contacts();
    let empty = contacts.create_batch(Vec::<audience::contacts::NewContact>::new());
    let mut refused = false;

    let allocations = measure(|| {
        let ended = empty.into_future().now_or_never();
        refused = ended.is_some_and(|call| call.is_err());
    });

    // The future that sends the request, the error, and its message.
    assert!(refused);
    assert_eq!(allocations.count_total, 3);
}

/// Sends a response with this body to one request, in another thread, which is not counted. Returns the base URL.
fn serve(body: &str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let length = body.len();
    let response = format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n{body}");
    thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let head = BufReader::new(&stream).lines();
        head.map_while(Result::ok)
            .take_while(|line| !line.is_empty())
            .for_each(drop);
        stream.write_all(response.as_bytes()).unwrap();
        // A connection that is closed too early could lose a part of the response.
        let _closed = io::copy(&mut stream, &mut io::sink());
    });
    url
}

#[test]
fn a_long_broken_response_takes_only_a_few_times_as_much_memory_as_its_body() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let ones = "1,".repeat(500_000);
    let body = format!(r#"{{"data":[{ones}1],"next":"c_1"}}"#);
    for is_batch in [false, true] {
        let client = Client::new(serve(&body), "key").unwrap();
        let contacts = client.contacts();
        let mut failure = None;

        let allocations = measure(|| {
            let called = runtime.block_on(async {
                match is_batch {
                    true => contacts.create_batch(["ada@x.io"]).await.map(drop),
                    false => contacts.list().await.map(drop),
                }
            });
            failure = called.err().map(|error| error.kind());
        });

        assert_eq!(failure, Some(ErrorKind::Decode));
        let most = 25 * body.len() as u64;
        assert!(allocations.bytes_max < most, "{allocations:?}");
    }
}
