//! The predicates of an error, and its outcome.

use audience::contacts::{NewContact, OnConflict};
use audience::{Error, ErrorCode, Missing, Outcome, RetryPolicy};
use serde_json::json;

use super::errors::refusal;
use support::operation::Operation;
use support::scripted_server::{ScriptedServer, bytes, close_connection};
use support::{
    ADA, PATIENCE, TIMEOUT, builder, client, closed_url, printed, respond_with, status, text,
};

/// Bodies of proxies, of other services, and of no service.
const FOREIGN_BODIES: [&str; 7] = [
    "",
    "[]",
    "null",
    "not json",
    "<html><title>nginx</title></html>",
    "\"not found\"",
    "\u{1}\u{2}",
];

#[tokio::test]
async fn without_a_slug_only_an_unambiguous_status_matches_a_predicate() {
    for body in [
        "{}",
        r#"{"error": {}}"#,
        r#"{"error": 7, "code": null}"#,
        r#" {"message": "in words"} "#,
    ] {
        let bare_404 = refusal(404, body).await;
        let bare_409 = refused_create(409, body).await;
        let bare_402 = refused_create(402, body).await;
        let bare_422 = refusal(422, body).await;
        let bare_403 = refusal(403, body).await;

        assert!(
            bare_404.is_not_found() && !bare_404.is_already_exists(),
            "{body}"
        );
        assert!(
            bare_409.is_already_exists() && !bare_409.is_quota_exceeded(),
            "{body}"
        );
        assert!(
            bare_402.is_quota_exceeded() && !bare_402.is_not_found(),
            "{body}"
        );
        assert!(
            !bare_422.is_complaint_locked() && !bare_422.is_validation_error(),
            "{body}"
        );
        assert!(!bare_403.is_key_not_permitted(), "{body}");
        for error in [bare_404, bare_409, bare_402, bare_422, bare_403] {
            assert_eq!(error.code(), None, "a code is never guessed");
            assert_eq!(error.api().unwrap().body(), body.as_bytes());
            assert_eq!(error.outcome(), Outcome::Refused);
        }
    }
}

#[tokio::test]
async fn a_404_409_or_402_that_is_not_from_the_service_matches_no_predicate() {
    for body in FOREIGN_BODIES {
        let bare_404 = refusal(404, body).await;

        assert!(!bare_404.is_not_found(), "{body}");
        assert_eq!(
            bare_404.to_string(),
            "retrieve: the service responded 404; check the base URL"
        );
        assert!(
            !refused_create(409, body).await.is_already_exists(),
            "{body}"
        );
        assert!(
            !refused_create(402, body).await.is_quota_exceeded(),
            "{body}"
        );
    }
}

/// The error of a create that must be new, after this response.
async fn refused_create(code: u16, body: &str) -> Error {
    let server = respond_with(text(code, body)).await;
    let ada = NewContact::new(ADA).on_conflict(OnConflict::Error);
    client(server.uri())
        .contacts()
        .create(ada)
        .await
        .unwrap_err()
}

#[tokio::test]
async fn a_409_or_402_without_a_slug_counts_only_for_the_calls_that_may_cause_it() {
    let conflict = respond_with(text(409, r#"{"message": "in words"}"#)).await;
    let payment = respond_with(text(402, r#"{"message": "in words"}"#)).await;

    for operation in Operation::ALL {
        let conflict = operation.run(&client(conflict.uri())).await.unwrap_err();
        let payment = operation.run(&client(payment.uri())).await.unwrap_err();

        let must_be_new = operation == Operation::CreateOrFail;
        assert_eq!(conflict.is_already_exists(), must_be_new, "{operation:?}");
        let stores = operation.method() == "POST"
            && matches!(operation.template(), "/contacts" | "/contacts/batch");
        assert_eq!(payment.is_quota_exceeded(), stores, "{operation:?}");
    }
}

#[tokio::test]
async fn a_code_counts_for_every_call_and_another_code_for_none() {
    let coded = |status, code| text(status, json!({ "code": code }).to_string());
    let exists = respond_with(coded(400, "already_exists")).await;
    let conflict = respond_with(coded(409, "conflict")).await;
    let quota = respond_with(coded(400, "quota_exceeded")).await;

    for operation in Operation::ALL {
        let error = operation.run(&client(exists.uri())).await.unwrap_err();
        assert!(error.is_already_exists(), "{operation:?}");
        let error = operation.run(&client(conflict.uri())).await.unwrap_err();
        assert!(!error.is_already_exists(), "{operation:?}");
        let error = operation.run(&client(quota.uri())).await.unwrap_err();
        assert!(error.is_quota_exceeded(), "{operation:?}");
    }
}

#[tokio::test]
async fn a_404_on_a_call_that_names_no_contact_topic_or_segment_is_not_not_found() {
    let server = respond_with(status(404).set_body_json(json!({"code": "not_found"}))).await;
    let client = client(server.uri());
    for operation in Operation::ALL {
        let error = operation.run(&client).await.unwrap_err();

        // An opt-out lists after a 404, and that request names no contact, either.
        let names_nothing = matches!(
            operation.template(),
            "/contacts" | "/contacts/batch" | "/contacts/{address}/unsubscribe"
        );
        assert_eq!(error.is_not_found(), !names_nothing, "{operation:?}");
        assert_eq!(error.code(), Some(&ErrorCode::NotFound), "{operation:?}");
        let text = error.to_string();
        assert_eq!(
            text.contains("404 not_found; check the base URL"),
            names_nothing,
            "{text}"
        );
    }

    let segment = client.contacts().list().segment("seg_1").await;
    let count = client.contacts().list().count().await;
    assert!(segment.unwrap_err().is_not_found());
    assert!(!count.unwrap_err().is_not_found());
}

#[tokio::test]
async fn an_error_says_whether_the_contact_the_topic_or_the_segment_is_missing() {
    let not_found = |message: &str| json!({"error": {"code": "not_found", "message": message}});
    let bare = json!({"message": "nothing here"});
    let server = respond_with(status(404).set_body_json(&bare)).await;
    let contacts_of_server = client(server.uri()).contacts();
    let merged = contacts_of_server
        .merge_properties(ADA, [("seats", 3)])
        .await;
    for (error, expected) in [
        (
            contacts_of_server.retrieve(ADA).await.unwrap_err(),
            Some(Missing::Contact),
        ),
        (
            contacts_of_server.subscribe(ADA).await.unwrap_err(),
            Some(Missing::Contact),
        ),
        (merged.unwrap_err(), Some(Missing::Contact)),
        (
            contacts_of_server.list().segment("s").await.unwrap_err(),
            Some(Missing::Segment),
        ),
        (contacts_of_server.list().await.unwrap_err(), None),
        (
            contacts_of_server
                .subscribe(ADA)
                .topic("news")
                .await
                .unwrap_err(),
            None,
        ),
    ] {
        assert_eq!(error.missing(), expected, "{error}");
    }

    for (body, topic, expected) in [
        (
            not_found("there is no topic `news`"),
            "news",
            Some(Missing::Topic),
        ),
        (
            not_found("no such topic: News."),
            "news",
            Some(Missing::Topic),
        ),
        (
            json!({"code": "not_found", "topic": "the \"best\" offers"}),
            "the \"best\" offers",
            Some(Missing::Topic),
        ),
        (
            not_found("no contact ada@example.com"),
            "news",
            Some(Missing::Contact),
        ),
        (
            not_found("no contact Ada@example.com"),
            "ada",
            Some(Missing::Contact),
        ),
        (
            not_found("no contact <ada@example.com>"),
            "example",
            Some(Missing::Contact),
        ),
        (not_found("no newsletter"), "news", None),
        (
            not_found("cannot POST /contacts/ada@example.com/subscribe"),
            "news",
            None,
        ),
        (not_found("no such contact"), "", None),
        (
            json!({"code": "validation_error", "message": "topic news"}),
            "news",
            None,
        ),
    ] {
        let server = respond_with(status(404).set_body_json(&body)).await;

        let call = client(server.uri())
            .contacts()
            .subscribe("Ada@Example.com ")
            .topic(topic);
        let error = call.await.unwrap_err();

        assert_eq!(error.missing(), expected, "{body}");
    }
}

#[tokio::test]
async fn a_response_that_names_both_or_only_has_the_word_does_not_say_what_is_missing() {
    let said = |message: &str| json!({"code": "not_found", "message": message});
    let path = "/v1/contacts/ada@example.com/unsubscribe";
    for (body, topic, expected) in [
        (
            said("no contact ada@example.com for topic `news`"),
            "news",
            None,
        ),
        (
            json!({"code": "not_found", "topic": "news", "email": ADA}),
            "news",
            None,
        ),
        (said(&format!("no route {path}")), "unsubscribe", None),
        (said(&format!("no route {path}")), "v1", None),
        (json!({"code": "not_found", "path": path}), "contacts", None),
        (said("there is no such contact"), "contact", None),
        (said("there is no such contact"), "there", None),
        (said("there is no topic newsletter"), "news", None),
        (said("\"news-letter\" is unknown"), "news", None),
        (
            json!({"code": "not_found", "resource": "contact"}),
            "contact",
            None,
        ),
        (
            json!({"code": "not_found", "message": "no contact", "request": {"topic": "news"}}),
            "news",
            None,
        ),
        (
            said("there is no contact ada@example.com"),
            "is",
            Some(Missing::Contact),
        ),
        (
            said("topic \"news\" is unknown"),
            "news",
            Some(Missing::Topic),
        ),
        (said("Topic news not found"), "news", Some(Missing::Topic)),
        (
            json!({"message": "no topic 'news'", "path": path}),
            "news",
            Some(Missing::Topic),
        ),
    ] {
        let server = respond_with(status(404).set_body_json(&body)).await;

        let call = client(server.uri()).contacts().subscribe(ADA).topic(topic);
        let error = call.await.unwrap_err();

        assert_eq!(error.missing(), expected, "{topic} {body}");
    }
}

#[tokio::test]
async fn a_body_that_is_not_utf_8_is_kept_unchanged() {
    let error = refusal(404, [0xff, 0x00, 0xfe]).await;

    assert_eq!(error.api().unwrap().body(), [0xff, 0x00, 0xfe]);
}

#[tokio::test]
async fn a_code_is_read_even_if_the_message_beside_it_is_not_valid_unicode() {
    for (message, read) in [
        (&b"gesch\xfctzt"[..], "gesch\u{fffd}tzt"),
        // The first half of an emoji, after a letter that is escaped, too.
        (&br"\u00e9\ud83d"[..], "\u{e9}\u{fffd}"),
    ] {
        let start = &b"{\"code\": \"failed_precondition\", \"message\": \""[..];
        let body = [start, message, &b"\"}"[..]].concat();

        let error = refusal(422, body).await;

        assert!(error.is_complaint_locked(), "{read}");
        assert_eq!(error.api().unwrap().message(), Some(read));
    }
}

#[tokio::test]
async fn a_byte_order_mark_does_not_hide_which_topic_is_missing() {
    let body = json!({"code": "not_found", "message": "there is no topic \"news\""});
    let server = respond_with(text(404, format!("\u{feff}{body}"))).await;

    let call = client(server.uri()).contacts().subscribe(ADA).topic("news");
    let error = call.await.unwrap_err();

    assert_eq!(error.missing(), Some(Missing::Topic));
}

#[tokio::test]
async fn a_predicate_does_not_match_a_different_slug_with_the_same_status() {
    let error = refusal(404, r#"{"code": "no_such_route"}"#).await;

    assert!(!error.is_not_found());
    assert_eq!(error.code().map(ErrorCode::as_str), Some("no_such_route"));
}

#[tokio::test]
async fn the_outcome_follows_from_the_status() {
    for code in [
        400, 401, 402, 403, 404, 405, 409, 410, 413, 415, 422, 423, 425, 429, 451, 501,
    ] {
        assert_eq!(
            refusal(code, "").await.outcome(),
            Outcome::Refused,
            "{code}"
        );
    }
    let server = respond_with(status(501)).await;
    let client = builder(server.uri()).build().unwrap();
    let raw = client.request(audience::Method::POST, ["emails"]).await;
    let written = client.contacts().unsubscribe(ADA).await;
    for error in [raw.unwrap_err(), written.unwrap_err()] {
        assert_eq!(error.outcome(), Outcome::Refused, "{error}");
    }
    for code in [408, 500, 502, 503, 504, 507, 520, 599] {
        let server = respond_with(status(code)).await;
        let contacts = builder(server.uri())
            .retry(RetryPolicy::none())
            .build()
            .unwrap()
            .contacts();
        let written = contacts.unsubscribe(ADA).await.unwrap_err();
        let read = refusal(code, "").await;

        assert_eq!(written.outcome(), Outcome::Unknown, "{code}");
        assert_eq!(read.outcome(), Outcome::Unchanged, "{code}");
    }
}

/// The predicates that say what kind of failure it is, by name.
fn classes(error: &Error) -> Vec<&'static str> {
    [
        (error.is_timeout(), "timeout"),
        (error.is_rate_limited(), "rate limited"),
        (error.is_unauthorized(), "unauthorized"),
        (error.is_forbidden(), "forbidden"),
        (error.is_retryable(), "retryable"),
    ]
    .iter()
    .filter_map(|(is, name)| is.then_some(*name))
    .collect()
}

#[tokio::test]
async fn an_error_has_its_status_and_its_class() {
    for (code, expected) in [
        (302, &[][..]),
        (400, &[]),
        (401, &["unauthorized"]),
        (402, &[]),
        (403, &["forbidden"]),
        (404, &[]),
        (408, &["retryable"]),
        (409, &[]),
        (422, &[]),
        (429, &["rate limited", "retryable"]),
        (500, &["retryable"]),
        (425, &["retryable"]),
        (501, &[]),
        (505, &[]),
        (522, &["retryable"]),
        (502, &["retryable"]),
        (503, &["retryable"]),
        (504, &["retryable"]),
    ] {
        let error = refusal(code, "").await;

        assert_eq!(error.status().unwrap().as_u16(), code);
        assert_eq!(classes(&error), expected, "{code}");
    }
}

#[tokio::test]
async fn a_failure_without_a_response_has_no_status_but_a_class() {
    let once = |url: &str, timeout| {
        let builder = builder(url).retry(RetryPolicy::none());
        let client = builder.timeout(timeout).no_deadline().build();
        client.unwrap().contacts().retrieve(ADA)
    };
    let silent = ScriptedServer::start([bytes("").then_hang()]).await;
    let broken = ScriptedServer::start([close_connection()]).await;
    let malformed = respond_with(text(200, "{")).await;

    for (call, expected) in [
        (once(&closed_url(), PATIENCE), &["retryable"][..]),
        (once(silent.url(), TIMEOUT), &["timeout", "retryable"]),
        (once(broken.url(), PATIENCE), &["retryable"]),
        (once(&malformed.uri(), PATIENCE), &[]),
        (client(closed_url()).contacts().retrieve(""), &[]),
    ] {
        let error = call.await.unwrap_err();

        assert_eq!(error.status(), None);
        assert_eq!(classes(&error), expected, "{error}");
    }
}

#[tokio::test]
async fn a_redirect_that_the_http_client_followed_is_not_retryable() {
    let elsewhere = respond_with(status(200)).await;
    let server = respond_with(status(302).insert_header("location", elsewhere.uri())).await;
    let client = builder(server.uri()).http_client(reqwest::Client::new());

    let call = client.build().unwrap().contacts().retrieve(ADA);

    assert!(!call.await.unwrap_err().is_retryable());
}

#[tokio::test]
async fn a_refusal_has_its_headers_and_its_request_id() {
    let response = status(429)
        .insert_header("X-Request-Id", "req_1")
        .insert_header("RateLimit-Remaining", "0")
        .insert_header("x-other", "hunter2");
    let server = respond_with(response).await;

    let error = client(server.uri()).contacts().retrieve(ADA).await;

    let error = error.unwrap_err();
    let refusal = error.api().unwrap();
    assert_eq!(refusal.request_id(), Some("req_1"));
    assert_eq!(refusal.headers()["x-other"], "hunter2");
    assert_eq!(refusal.headers()["ratelimit-remaining"], "0");
    assert!(!printed(&error).contains("hunter2"), "{error:?}");
}

#[tokio::test]
async fn a_request_id_is_found_under_each_common_name() {
    for name in [
        "x-request-id",
        "request-id",
        "x-correlation-id",
        "x-amzn-requestid",
        "x-trace-id",
    ] {
        let server = respond_with(status(422).insert_header(name, "req_1")).await;

        let error = client(server.uri()).contacts().retrieve(ADA).await;

        assert_eq!(
            error.unwrap_err().api().unwrap().request_id(),
            Some("req_1"),
            "{name}"
        );
    }
    assert_eq!(refusal(422, "").await.api().unwrap().request_id(), None);
}
