//! Addresses in paths: every call either refuses an address or sends it unchanged as one path segment.

use std::sync::LazyLock;

use audience::contacts::{Contacts, NewContact};
use audience::{Error, ErrorKind, Method, Outcome};
use percent_encoding::percent_decode_str;
use proptest::prelude::*;
use serde_json::{Value, json};
use tokio::runtime::Runtime;
use wiremock::{MockServer, Request};

use crate::support::{client, contact, ok, received, respond_with};

/// The method of each call with an address in its path, and what follows the address there.
const CALLS: [(&str, &str); 5] = [
    ("GET", ""),
    ("POST", "/subscribe"),
    ("POST", "/unsubscribe"),
    ("PATCH", ""),
    ("DELETE", ""),
];

async fn call(
    contacts: &Contacts,
    client: &audience::Client,
    index: usize,
    address: &str,
) -> Result<(), Error> {
    match index {
        0 => contacts.retrieve(address).await.map(drop),
        1 => contacts.subscribe(address).await.map(drop),
        2 => contacts.unsubscribe(address).await.map(drop),
        3 => contacts
            .merge_properties(address, [("a", 1)])
            .await
            .map(drop),
        _ => client
            .request(Method::DELETE, ["contacts", address])
            .await
            .map(drop),
    }
}

static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| Runtime::new().unwrap());

static MOCK: LazyLock<audience::mock::MockServer> =
    LazyLock::new(|| audience::mock::MockServer::builder().start_blocking());

/// Makes one of the [`CALLS`] with this address; returns its result and the requests the server received.
fn call_and_receive(index: usize, address: &str) -> (Result<(), Error>, Vec<Request>) {
    RUNTIME.block_on(async {
        let server = respond_with(ok(contact())).await;
        let client = client(server.uri());
        let result = call(&client.contacts(), &client, index, address).await;
        (result, received(&server).await)
    })
}

fn check(index: usize, address: &str) {
    let (result, requests) = call_and_receive(index, address);
    let (method, verb) = CALLS[index];
    if matches!(address, "" | "." | "..") {
        let error = result.unwrap_err();
        assert_eq!(
            (error.kind(), error.outcome(), error.attempts()),
            (ErrorKind::Input, Outcome::NotSent, 0)
        );
        assert!(requests.is_empty());
        return;
    }
    result.unwrap();
    let [request] = &requests[..] else {
        panic!("expected one request for {address:?}")
    };
    let path = request.url.path();
    let segment = path
        .strip_prefix("/contacts/")
        .and_then(|path| path.strip_suffix(verb))
        .unwrap();
    assert_eq!(request.method.as_str(), method);
    assert!(!segment.contains(['/', '?', '#']), "{path}");
    assert_eq!(percent_decode_str(segment).decode_utf8().unwrap(), address);
    assert_eq!(request.url.query(), None);
}

#[test]
fn every_call_refuses_addresses_that_would_reach_another_endpoint() {
    for index in 0..CALLS.len() {
        for address in ["", ".", ".."] {
            check(index, address);
        }
    }
}

#[test]
fn unusual_addresses_arrive_unchanged_with_every_call() {
    for address in [
        "ada@example.com",
        "ada+tag@example.com",
        " ada@example.com ",
        "a/b@x.io",
        "../batch",
        "../..",
        "./.",
        "a/../b",
        "batch",
        "%2e%2e",
        "%2E",
        "..%2f",
        "a%20b",
        "a b",
        "a?b=c#d",
        "\"quoted @ local\"@x.io",
        "jürgen@exämple.de",
        "例え@例え.jp",
        "\u{0}",
        "\r\nx: y",
        "a\tb",
        "\u{202e}",
        "...",
        "....",
        "~-_.",
        "a;b,c:d&e=f$g!h*i'j(k)",
        "[]{}|\\^`<>",
        "\u{10ffff}",
        "é\u{301}",
    ] {
        for index in 0..CALLS.len() {
            check(index, address);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn any_string_is_refused_or_arrives_unchanged(
        address in prop_oneof![any::<String>(), "[.]{0,3}", "[./%@+ ?#&=;\\\\a2eEfF\u{0}\n\u{e9}]{0,12}"],
        index in 0..CALLS.len(),
    ) {
        check(index, &address);
    }

    #[test]
    fn any_string_arrives_unchanged_in_a_query_and_in_a_body(text in any::<String>(), topic in any::<String>()) {
        RUNTIME.block_on(async {
            let server: MockServer = respond_with(|request: &Request| match request.method.as_str() {
                "GET" => ok(json!({"data": []})),
                _ => ok(contact()),
            }).await;
            let contacts = client(server.uri()).contacts();

            contacts.list().query(&text).after(&topic).segment(&text).await.unwrap();
            contacts.create(NewContact::new(&text).property(&topic, text.as_str())).await.unwrap();
            contacts.subscribe("ada@example.com").topic(&topic).await.unwrap();

            let requests = received(&server).await;
            let pairs: Vec<(String, String)> = requests[0].url.query_pairs().into_owned().collect();
            assert_eq!(pairs, [("after".to_owned(), topic.clone()), ("query".to_owned(), text.clone()), ("segment_id".to_owned(), text.clone())]);
            assert_eq!(requests[1].body_json::<Value>().unwrap(), json!({"email": text, "properties": {&topic: &text}}));
            assert_eq!(requests[2].body_json::<Value>().unwrap(), json!({"topic": topic}));
        });
    }

    #[test]
    fn the_mock_finds_a_contact_again_by_any_valid_address(
        local in "[^@\\s\\p{Cc}<>()\\[\\],:\\\\\"\\p{Default_Ignorable_Code_Point}\u{2800}\u{fff0}-\u{fffb}]{1,12}",
    ) {
        let address = format!("{local}@x.io");
        let (created, retrieved) = RUNTIME.block_on(async {
            let contacts = MOCK.client().contacts();
            let created = contacts.create(NewContact::new(&address)).await.unwrap();
            (created, contacts.retrieve(&address).await.unwrap())
        });

        prop_assert_eq!(&created.contact.id, &retrieved.id);
        prop_assert_eq!(&created.contact.email, &retrieved.email);
    }
}
