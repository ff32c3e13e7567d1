//! `contacts.find`: which responses prove that an address is no contact.

use std::collections::HashMap;
use std::time::Duration;

use audience::contacts::Contacts;
use audience::mock::dialect::PathAddress;
use audience::mock::{Dialect, Fault, MockServer};
use audience::{ErrorKind, Missing, Outcome};
use serde_json::json;
use wiremock::Request;

use support::{ADA, contacts, in_time, mock_builder, ok, received, respond_with, text, with};

use crate::dialects::{dialects, patient_settings};

const NOBODY: &str = "nobody@example.com";
const PATH: &str = "/contacts/ada%40example.com";
const GONE: &str = r#"{"code": "not_found"}"#;

/// Starts a mock with Ada, and a contact whose address contains that of nobody.
async fn start() -> (MockServer, Contacts) {
    let server = MockServer::builder().seed_contact(ADA);
    let server = server.seed_contact("long-nobody@example.com").start().await;
    let contacts = mock_builder(&server).build().unwrap().contacts();
    (server, contacts)
}

#[tokio::test]
async fn a_contact_is_found_and_an_unknown_address_is_none_in_every_dialect() {
    for dialect in dialects() {
        let server = MockServer::builder().dialect(dialect).seed_contact(ADA);
        let server = server.seed_contact("long-nobody@example.com").start().await;
        let client = patient_settings(&server, dialect, server.full_key()).build();
        let contacts = client.unwrap().contacts();

        let ada = contacts.find(" Ada@Example.com").await.unwrap();
        let nobody = contacts.find(NOBODY).await.unwrap();

        assert_eq!(ada.unwrap().email, ADA, "{dialect}");
        assert_eq!(nobody, None, "{dialect}");
    }
}

#[tokio::test]
async fn the_code_of_the_service_needs_no_second_request() {
    let (server, contacts) = start().await;

    assert_eq!(contacts.find(NOBODY).await.unwrap(), None);

    assert_eq!(server.requests().len(), 1);
}

#[tokio::test]
async fn a_404_without_the_code_counts_only_if_the_contact_is_not_listed() {
    for body in ["", "{}", "<html>", r#"{"code": "no_such_route"}"#] {
        let (server, contacts) = start().await;
        server.fault(Fault::status(404).body(body).method("GET").times(1));
        let nobody = contacts.find(NOBODY).await.unwrap();
        server.fault(Fault::status(404).body(body).path(PATH));

        let error = contacts.find(ADA).await.unwrap_err();

        assert_eq!(nobody, None, "{body}");
        assert_eq!(error.status().unwrap(), 404);
        assert!(!error.is_not_found() && error.missing().is_none());
        let text = error.to_string();
        assert!(
            text.starts_with("find: the service responded 404"),
            "{text}"
        );
        assert!(text.ends_with("; check the base URL"), "{text}");
        let words = error.explanation();
        assert!(
            words.starts_with("the response does not come from the service: tell your developers"),
            "{words}"
        );
    }
}

#[tokio::test]
async fn the_code_in_a_response_with_a_status_that_may_pass_is_no_proof() {
    let (server, contacts) = start().await;
    server.fault(Fault::status(503).body(GONE).path(PATH));
    server.fault(Fault::status(503).body(GONE).method("POST"));

    let found = contacts.find(ADA).await.unwrap_err();
    let retrieved = contacts.retrieve(ADA).await.unwrap_err();
    let opted_out = contacts.unsubscribe(ADA).topic("news").await.unwrap_err();

    assert_eq!(retrieved.visitor_status(), 503);
    for error in [found, retrieved, opted_out] {
        assert_eq!(error.status().unwrap(), 503);
        assert!(error.is_retryable() && !error.is_not_found(), "{error}");
        assert_eq!(error.missing(), None, "{error}");
    }
    assert!(
        server
            .requests()
            .iter()
            .all(|request| request.path != "/contacts")
    );
}

/// Starts a service that converts only ASCII letters to lower case, with this contact. It finds no other spelling.
async fn service_of_ascii(address: &'static str, refusal: &'static str) -> wiremock::MockServer {
    let stored = with(support::contact(), "email", address);
    respond_with(move |request: &Request| {
        if request.url.path() != "/contacts" {
            return text(404, refusal);
        }
        let parameters: HashMap<_, _> = request.url.query_pairs().collect();
        let text = parameters["query"].to_ascii_lowercase();
        let is_found = address.to_ascii_lowercase().contains(&text);
        match is_found && !parameters.contains_key("after") {
            true => ok(json!({"data": [&stored], "next": "c_1"})),
            false => ok(json!({"data": [], "next": ""})),
        }
    })
    .await
}

#[tokio::test]
async fn a_contact_is_not_missing_because_the_service_keeps_a_capital_letter_outside_ascii() {
    let coded = r#"{"code": "not_found", "message": "no"}"#;
    for (stored, spellings, refusals) in [
        ("Äda@x.io", ["äda@x.io", "ÄDA@X.IO"], &["{}", coded][..]),
        (
            "Иван@почта.рф",
            ["иван@почта.рф", "ИВАН@ПОЧТА.РФ"],
            &["{}", coded],
        ),
        (
            "jörg.Öztürk@x.io",
            ["jörg.öztürk@x.io", "JÖRG.ÖZTÜRK@X.IO"],
            &["{}", coded],
        ),
        // After the code, `find` lists no whole domain.
        ("Я@Почта.Рф", ["я@почта.рф", " Я@почта.рФ"], &["{}"]),
        ("я@Я.Я", ["Я@Я.Я", "я@я.я"], &["{}"]),
    ] {
        for refusal in refusals {
            let service = service_of_ascii(stored, refusal).await;
            let contacts = contacts(service.uri());
            for address in spellings {
                let found = contacts.find(address).await.unwrap_err();
                let opt_out = contacts.unsubscribe(address).await.unwrap_err();
                let deleted = contacts.delete(address).await.unwrap_err();

                assert!(found.missing().is_none(), "{address} {refusal}: {found}");
                assert!(
                    opt_out.missing().is_none(),
                    "{address} {refusal}: {opt_out}"
                );
                assert_eq!(deleted.kind(), ErrorKind::Unsupported);
            }
            for address in ["öda@x.io", "eda@x.io", "ю@ю.ю", "ваня@почта.рф"] {
                assert_eq!(contacts.find(address).await.unwrap(), None, "{address}");
            }
        }
    }
}

#[tokio::test]
async fn a_contact_is_found_by_another_spelling_than_the_one_that_the_service_stores() {
    let dialect = Dialect {
        path_address: PathAddress::Exact,
        ..Dialect::default()
    };
    let server = MockServer::builder().dialect(dialect);
    let server = server.seed_contact("jürgen@x.io").start().await;
    let contacts = server.client().contacts();

    let found = contacts.find("JÜRGEN@x.io").await.unwrap().unwrap();

    assert_eq!(found.email, "jürgen@x.io");
    assert_eq!(contacts.find("JÖRGEN@x.io").await.unwrap(), None);
}

#[tokio::test]
async fn after_the_code_of_the_service_no_whole_domain_is_listed() {
    let service = service_of_ascii("bob@x.io", GONE).await;
    let contacts = contacts(service.uri());

    assert_eq!(contacts.find("ю@x.io").await.unwrap(), None);

    let requests = received(&service).await;
    let parameters = requests.iter().flat_map(|sent| sent.url.query_pairs());
    let queries = parameters.filter(|(name, _)| name == "query");
    let texts: Vec<_> = queries.map(|(_, text)| text).collect();
    assert!(
        !texts.is_empty() && texts.iter().all(|text| !text.starts_with('@')),
        "{texts:?}"
    );
}

#[tokio::test]
async fn a_letter_outside_ascii_does_not_make_a_search_of_all_contacts_of_a_mail_service() {
    let server = MockServer::start().await;
    for number in 0..1_000 {
        server.seed_contact(format!("{number}a@gmail.com"));
    }
    let contacts = mock_builder(&server).build().unwrap().contacts();
    for address in ["josé@gmail.com", "andré@gmail.com", "sofía@gmail.com"] {
        for body in [GONE, "{}"] {
            server.clear_requests();
            server.fault(Fault::status(404).body(body).path("/contacts/*"));

            let found = contacts.find(address).await.unwrap();
            let opted_out = contacts.unsubscribe(address).await.unwrap_err();

            assert_eq!(found, None);
            assert_eq!(opted_out.missing(), Some(Missing::Contact), "{address}");
            assert!(server.requests().len() < 10, "{:?}", server.requests());
            server.clear_faults();
        }
    }
}

#[tokio::test]
async fn a_refused_key_is_an_error_that_says_so_also_after_the_list() {
    let dialect = Dialect {
        path_address: PathAddress::Exact,
        ..Dialect::default()
    };
    let server = MockServer::builder().dialect(dialect);
    let server = server.seed_contact("jürgen@x.io").start().await;
    let refusal = Fault::status(403).body(r#"{"error": {"code": "key_not_permitted"}}"#);
    server.fault(refusal.method("GET").path("/contacts/*").after(1));

    let error = server.client().contacts().find("JÜRGEN@x.io").await;

    let error = error.unwrap_err();
    assert!(error.is_key_not_permitted(), "{error}");
    assert!(!error.is_retryable(), "{error}");
}

#[tokio::test]
async fn a_404_for_every_request_is_an_error() {
    for body in ["", "{}", "<html>"] {
        let (server, contacts) = start().await;
        server.fault(Fault::status(404).body(body));

        let error = contacts.find(NOBODY).await.unwrap_err();

        assert!(!error.is_not_found(), "{error}");
        assert_eq!(error.attempts(), 2);
        assert!(error.to_string().starts_with("find: "), "{error}");
    }
}

#[tokio::test]
async fn other_failures_are_errors_and_need_no_list() {
    let (server, contacts) = start().await;
    server.fault(Fault::status(403).times(1));

    let refused = contacts.find(ADA).await.unwrap_err();
    let empty = contacts.find(" ").await.unwrap_err();

    assert_eq!(refused.status().unwrap(), 403);
    assert_eq!(server.requests().len(), 1);
    assert_eq!(
        (empty.kind(), empty.outcome()),
        (ErrorKind::Input, Outcome::NotSent)
    );
}

#[tokio::test]
async fn another_contact_in_the_response_is_an_error_unless_it_may_be_written_otherwise() {
    let (server, contacts) = start().await;
    let other = server
        .client()
        .contacts()
        .retrieve("long-nobody@example.com");
    let mut other = serde_json::to_value(other.await.unwrap()).unwrap();
    server.fault(Fault::status(200).body(other.to_string()));

    let error = contacts.find(ADA).await.unwrap_err();

    assert_eq!(error.kind(), ErrorKind::Decode, "{error}");
    assert!(error.is_malformed_contact(), "{error}");
    assert!(error.to_string().starts_with("find: "), "{error}");
    assert!(error.body().is_some_and(|body| !body.is_empty()));
    for (asked, answered) in [
        (" ADA@Example.com", "Ada@example.COM"),
        ("ada@bücher.de", "ada@xn--bcher-kva.de"),
        ("ada@xn--bcher-kva.de", "ada@bücher.de"),
    ] {
        server.clear_faults();
        other["email"] = answered.into();
        server.fault(Fault::status(200).body(other.to_string()));

        let found = contacts.find(asked).await.unwrap().unwrap();

        assert_eq!(found.email, answered);
    }
}

#[tokio::test]
async fn a_response_without_a_body_names_its_likely_cause() {
    for status in [200, 204] {
        let (server, contacts) = start().await;
        server.fault(Fault::status(status).body(""));

        let found = contacts.find(ADA).await.unwrap_err();
        let listed = contacts.list().await.unwrap_err();

        for (name, error) in [("find", found), ("list", listed)] {
            let text = format!(
                "{name}: the response has the status {status} and no body, so it most likely comes from a proxy or another server; check the base URL"
            );
            assert_eq!(error.to_string(), text);
            assert_eq!(error.kind(), ErrorKind::Decode);
            assert!(error.explanation().contains("comes from a proxy"));
        }
    }
}

#[tokio::test]
async fn both_requests_share_the_deadline() {
    let (server, contacts) = start().await;
    server.fault(Fault::status(404).body("").times(1));
    server.fault(Fault::delay(Duration::from_secs(60)));

    let find = contacts.find(NOBODY).deadline(Duration::from_millis(500));
    let error = in_time(find).await.unwrap_err();

    assert_eq!(error.kind(), ErrorKind::Timeout);
}
