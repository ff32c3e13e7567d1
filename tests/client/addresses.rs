//! Addresses in paths: every call either refuses an address or sends it as one path segment. The calls of contacts trim
//! it and convert its ASCII letters to lower case; a raw request sends it unchanged.

use std::sync::LazyLock;

use audience::contacts::{NewContact, normalized_address};
use audience::{Client, Error, ErrorKind, Method, Outcome};
use percent_encoding::percent_decode_str;
use proptest::prelude::*;
use serde_json::{Value, json};
use tokio::runtime::Runtime;
use wiremock::{MockServer, Request};

use support::operation::Operation;
use support::{client, contact, ok, received, respond_with, status, with};

/// A call with an address in its path.
#[derive(Clone, Copy, Debug)]
enum AddressCall {
    Typed(Operation),
    Raw,
}

const ADDRESS: &str = "{address}";

fn calls() -> Vec<AddressCall> {
    let operations = Operation::ALL.into_iter();
    operations
        .filter(|operation| operation.template().contains(ADDRESS))
        .map(AddressCall::Typed)
        .chain([AddressCall::Raw])
        .collect()
}

impl AddressCall {
    /// The method, and what follows the address in the path.
    fn method_and_verb(self) -> (&'static str, &'static str) {
        match self {
            Self::Typed(operation) => {
                let (_, verb) = operation.template().split_once(ADDRESS).unwrap();
                (operation.method(), verb)
            }
            Self::Raw => ("DELETE", ""),
        }
    }

    /// The address as it should stand in the path.
    fn expected(self, address: &str) -> String {
        match self {
            Self::Typed(_) => address.trim().to_ascii_lowercase(),
            Self::Raw => address.to_owned(),
        }
    }

    async fn run(self, client: &Client, address: &str) -> Result<(), Error> {
        match self {
            Self::Typed(operation) => operation.call(client, address).future.await,
            Self::Raw => {
                let request = client.request(Method::DELETE, ["contacts", address]);
                request.await.map(drop)
            }
        }
    }
}

static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| Runtime::new().unwrap());

static MOCK: LazyLock<audience::mock::MockServer> =
    LazyLock::new(|| audience::mock::MockServer::builder().start_blocking());

/// Makes the call with this address; returns its result and the requests the server received.
fn run_and_receive(call: AddressCall, address: &str) -> (Result<(), Error>, Vec<Request>) {
    RUNTIME.block_on(async {
        // The contact has the address of the request, and no topic that an opt-out would have to change.
        let server = respond_with(|request: &Request| {
            let segment = request.url.path_segments().unwrap().nth(1);
            let address = percent_decode_str(segment.unwrap_or_default()).decode_utf8_lossy();
            let contact = with(contact(), "email", address.into_owned());
            ok(with(contact, "topics", json!({})))
        })
        .await;
        let result = call.run(&client(server.uri()), address).await;
        (result, received(&server).await)
    })
}

fn check(call: AddressCall, address: &str) {
    let (result, requests) = run_and_receive(call, address);
    let (method, verb) = call.method_and_verb();
    let expected = call.expected(address);
    if matches!(expected.as_str(), "" | "." | "..") {
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
    assert_eq!(percent_decode_str(segment).decode_utf8().unwrap(), expected);
    assert_eq!(request.url.query(), None);
}

#[test]
fn every_call_refuses_addresses_that_would_reach_another_endpoint() {
    for call in calls() {
        for address in ["", ".", "..", " ", "\t..\n"] {
            check(call, address);
        }
    }
}

#[tokio::test]
async fn a_service_that_compares_addresses_exactly_finds_a_contact_in_any_spelling() {
    for operation in Operation::ALL {
        if !operation.template().contains(ADDRESS) {
            continue;
        }
        let good = operation.good_response();
        let server = respond_with(move |request: &Request| {
            let segment = request.url.path_segments().unwrap().nth(1);
            match segment {
                Some("ada%40example.com") => ok(&good),
                _ => status(404),
            }
        })
        .await;

        let call = operation.call(&client(server.uri()), " Ada@Example.COM\n");

        assert!(call.future.await.is_ok(), "{operation:?}");
    }
}

#[test]
fn unusual_addresses_arrive_as_one_segment_with_every_call() {
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
        for call in calls() {
            check(call, address);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn any_string_is_refused_or_arrives_as_one_segment(
        address in prop_oneof![any::<String>(), "[.]{0,3}", "[./%@+ ?#&=;\\\\a2eEfF\u{0}\n\u{e9}]{0,12}"],
        call in prop::sample::select(calls()),
    ) {
        check(call, &address);
    }

    #[test]
    fn any_string_arrives_unchanged_in_a_query_and_in_a_body(text in any::<String>(), topic in any::<String>()) {
        RUNTIME.block_on(async {
            let server: MockServer = respond_with(|request: &Request| match request.method.as_str() {
                "GET" => ok(json!({"data": []})),
                _ => ok(contact()),
            }).await;
            let contacts = client(server.uri()).contacts();

            let segment = format!("seg_{text}");
            contacts.list().query(&text).after(&topic).segment(&segment).await.unwrap();
            contacts.create(NewContact::new(&text).property(&topic, text.as_str())).await.unwrap();
            let subscribed = contacts.subscribe("ada@example.com").topic(&topic).await;
            assert_eq!(subscribed.is_err(), topic.is_empty());

            let requests = received(&server).await;
            let pairs: Vec<(String, String)> = requests[0].url.query_pairs().into_owned().collect();
            assert_eq!(pairs, [("after".to_owned(), topic.clone()), ("query".to_owned(), text.clone()), ("segment_id".to_owned(), segment)]);
            assert_eq!(requests[1].body_json::<Value>().unwrap(), json!({"email": text, "properties": {&topic: &text}}));
            for request in &requests[2..] {
                assert_eq!(request.body_json::<Value>().unwrap(), json!({"topic": topic}));
            }
            assert_eq!(requests.len(), if topic.is_empty() { 2 } else { 3 });
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

#[tokio::test]
async fn a_normalized_address_is_the_address_that_is_stored() {
    let server = audience::mock::MockServer::start().await;
    let contacts = server.client().contacts();

    for address in [
        "ada@x.io",
        "\t Bob@X.IO ",
        "ÄDA@Bücher.Example",
        "Eve+News@x.io",
    ] {
        let created = contacts.create(address).await.unwrap();

        assert_eq!(created.contact.email, normalized_address(address));
    }
}
