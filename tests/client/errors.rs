//! Responses that are errors, or that do not have the form the document shows.

use audience::contacts::{NewContact, OnConflict};
use audience::mock::MockServer;
use audience::{ApiError, Client, Error, ErrorCode, ErrorKind, Method, Outcome, RetryPolicy};
use futures_util::StreamExt;
use serde_json::{Value, json};

use super::paged_service::PagedService;
use support::operation::Operation;
use support::scripted_server::{ScriptedServer, bytes, close_connection, response};
use support::{
    ADA, KEY, TIMEOUT, builder, client, closed_url, contact, contacts, in_time, ok, printed,
    respond_with, status, summary, text, with, without,
};

/// The error of a retrieve, without retries, after this response.
pub(super) async fn refusal(code: u16, body: impl AsRef<[u8]>) -> Error {
    let server = respond_with(status(code).set_body_bytes(body.as_ref())).await;
    contacts(server.uri())
        .retrieve(ADA)
        .retry(RetryPolicy::none())
        .await
        .unwrap_err()
}

/// The shapes an error body may have; section 7 does not show any.
fn shapes(slug: &str) -> Vec<Value> {
    vec![
        json!({"code": slug, "message": "in words"}),
        json!({"slug": slug, "message": "in words"}),
        json!({"error": slug, "message": "in words"}),
        json!({"error": slug, "detail": "in words"}),
        json!({"error": {"code": slug, "message": "in words"}}),
        json!({"error": {"slug": slug, "message": "in words"}}),
        json!({"error": {"type": slug, "message": "in words"}}),
        json!({"error": {"name": slug, "reason": "in words"}}),
        json!({"type": slug, "message": "in words"}),
        json!({"name": slug, "message": "in words", "statusCode": 422}),
        json!({"error_code": slug, "message": "in words"}),
        json!({"status": slug, "message": "in words"}),
        json!({"status": "error", "code": slug, "message": "in words"}),
        json!({"errors": [{"code": slug, "message": "in words"}]}),
        json!({"detail": {"code": slug, "message": "in words"}}),
        json!({"error": {"error": slug, "message": "in words"}}),
        json!({"error": {"code": 404, "status": slug, "message": "in words"}}),
    ]
}

#[tokio::test]
async fn slug_message_and_body_are_found_in_every_shape() {
    for (code, slug, expected) in [
        (422, "validation_error", ErrorCode::ValidationError),
        (409, "already_exists", ErrorCode::AlreadyExists),
        (402, "quota_exceeded", ErrorCode::QuotaExceeded),
        (403, "key_not_permitted", ErrorCode::KeyNotPermitted),
        (404, "not_found", ErrorCode::NotFound),
        (422, "failed_precondition", ErrorCode::FailedPrecondition),
        (
            418,
            "i_am_a_teapot",
            ErrorCode::Other("i_am_a_teapot".into()),
        ),
    ] {
        for shape in shapes(slug) {
            let error = refusal(code, shape.to_string()).await;

            let api = error.api().unwrap();
            assert_eq!(
                (error.kind(), api.status().as_u16()),
                (ErrorKind::Api, code)
            );
            assert_eq!(
                (error.code(), api.code()),
                (Some(&expected), Some(&expected)),
                "{shape}"
            );
            assert_eq!(api.message(), Some("in words"), "{shape}");
            assert_eq!(api.body(), shape.to_string().as_bytes());
            assert_eq!(
                [
                    error.is_validation_error(),
                    error.is_already_exists(),
                    error.is_quota_exceeded(),
                    error.is_key_not_permitted(),
                    error.is_not_found(),
                    error.is_complaint_locked(),
                ],
                [
                    expected == ErrorCode::ValidationError,
                    expected == ErrorCode::AlreadyExists,
                    expected == ErrorCode::QuotaExceeded,
                    expected == ErrorCode::KeyNotPermitted,
                    expected == ErrorCode::NotFound,
                    expected == ErrorCode::FailedPrecondition,
                ],
                "{shape}"
            );
            let hint = match code {
                422 => "; its message says why",
                _ if expected == ErrorCode::NotFound => ": no such contact",
                _ => "",
            };
            assert_eq!(
                error.to_string(),
                format!("retrieve: the service responded {code} {slug}{hint}")
            );
        }
    }
}

#[tokio::test]
async fn slugs_are_recognized_without_regard_to_case_and_with_hyphens() {
    for slug in ["not-found", "NOT_FOUND", "Not-Found"] {
        let error = refusal(400, json!({ "code": slug }).to_string()).await;

        assert_eq!(error.code(), Some(&ErrorCode::NotFound), "{slug}");
        assert!(error.is_not_found());
    }
}

#[tokio::test]
async fn a_slug_with_the_words_of_the_status_is_the_code() {
    for (status, slug) in [
        (401, "unauthorized"),
        (403, "forbidden"),
        (409, "conflict"),
        (410, "gone"),
        (423, "locked"),
    ] {
        for shape in shapes(slug) {
            let error = refusal(status, shape.to_string()).await;

            assert_eq!(error.code().map(ErrorCode::as_str), Some(slug), "{shape}");
        }
    }
    for body in [r#"{"code": "Conflict"}"#, r#"{"error": "CONFLICT"}"#] {
        assert!(refusal(409, body).await.code().is_some(), "{body}");
    }
    let server = MockServer::start().await;
    let unknown_key = Client::new(server.url(), "unknown").unwrap();

    let error = unknown_key.contacts().list().await.unwrap_err();

    assert_eq!(error.code().map(ErrorCode::as_str), Some("unauthorized"));
}

#[tokio::test]
async fn the_words_of_the_status_as_a_framework_adds_them_are_not_a_slug() {
    for (status, body) in [
        (401, json!({"error": "Unauthorized"})),
        (
            403,
            json!({"statusCode": 403, "message": "no", "error": "Forbidden"}),
        ),
        (409, json!({"error": {"code": 409, "type": "Conflict"}})),
        (410, json!({"status": "Gone"})),
        (
            404,
            json!({"status": 404, "error": "Not Found", "path": "/contacts"}),
        ),
    ] {
        let error = refusal(status, body.to_string()).await;

        assert_eq!(error.code(), None, "{body}");
    }
}

/// Shapes of an error body in which the slug is in none of the usual places.
fn odd_shapes(slug: &str) -> Vec<Value> {
    let hyphens = slug.replace('_', "-");
    vec![
        json!(slug),
        json!([slug]),
        json!([{"code": slug}]),
        json!({"err": slug}),
        json!({"errors": [slug]}),
        json!({"errors": {"email": [{"kind": slug}]}}),
        json!({"errors": [{"message": "in words", "extensions": {"code": slug.to_uppercase()}}]}),
        json!({"error": {"errors": [{"domain": "global", "reason": slug}]}}),
        json!({"error": [slug]}),
        json!({"fault": {"faultstring": "in words", "detail": {"errorcode": slug}}}),
        json!({"errorCode": slug, "errorMessage": "in words"}),
        json!({"Error": {"Code": slug, "Message": "in words"}}),
        json!({"message": slug}),
        json!({"title": slug, "status": 400}),
        json!({"result": {"status": 400, "reason": hyphens}}),
        json!({"status": "fail", "data": {"why": slug}}),
        json!({"type": format!("https://example.com/errors/{hyphens}"), "title": "in words"}),
        json!({"type": format!("https://example.com/errors/{hyphens}/")}),
        json!({"type": format!("https://example.com/errors#{hyphens}")}),
        json!({"type": format!("urn:problem-type:{slug}"), "detail": "in words"}),
        json!({"code": format!("contacts.{slug}")}),
        json!({"code": format!("contacts/{slug}"), "message": "in words"}),
        json!({"error": {"code": format!("audience.contacts.{slug}")}}),
        json!({"type": "invalid_request", "code": format!("errors/{slug}")}),
        json!({"links": {"about": format!("https://example.com/errors/{slug}")}}),
    ]
}

#[tokio::test]
async fn a_documented_slug_is_found_wherever_it_stands_alone() {
    for (slug, expected) in [
        ("validation_error", ErrorCode::ValidationError),
        ("already_exists", ErrorCode::AlreadyExists),
        ("quota_exceeded", ErrorCode::QuotaExceeded),
        ("key_not_permitted", ErrorCode::KeyNotPermitted),
        ("not_found", ErrorCode::NotFound),
        ("failed_precondition", ErrorCode::FailedPrecondition),
    ] {
        for shape in odd_shapes(slug) {
            let error = refusal(400, shape.to_string()).await;

            assert_eq!(error.code(), Some(&expected), "{shape}");
        }
        let plain = refusal(400, format!("{slug}\n")).await;
        assert_eq!(plain.code(), Some(&expected), "plain text");
    }
}

#[tokio::test]
async fn a_documented_slug_in_a_sentence_in_a_hint_or_beside_another_slug_is_not_the_code() {
    for (body, expected) in [
        (
            json!({"message": "see https://example.com/not_found"}),
            None,
        ),
        (json!({"message": "the code not_found means this"}), None),
        (json!({"codes": ["not_found", "validation_error"]}), None),
        (
            json!({"code": "no_such_route", "hint": "not_found"}),
            Some("no_such_route"),
        ),
        (json!({"not_found": "x"}), None),
        (json!({"code": "was_not_found"}), Some("was_not_found")),
    ] {
        let error = refusal(404, body.to_string()).await;

        assert_eq!(error.code().map(ErrorCode::as_str), expected, "{body}");
    }
}

#[tokio::test]
async fn a_slug_in_an_unusual_place_counts_only_if_the_status_can_mean_it() {
    let member = json!({"fault": "not_found"}).to_string();
    for status in [301, 401, 407, 408, 425, 429, 500, 501, 503] {
        for body in [member.as_str(), "not_found", r#"["not_found"]"#] {
            let error = refusal(status, body).await;

            assert_eq!(error.code(), None, "{status} {body}");
            assert!(!error.is_not_found(), "{status} {body}");
        }
    }
    for status in [400, 402, 403, 404, 409, 422] {
        assert!(refusal(status, &member).await.is_not_found(), "{status}");
    }
}

#[tokio::test]
async fn a_code_proves_nothing_while_the_service_is_not_available() {
    for (status, counts) in [
        (400, true),
        (404, true),
        (501, true),
        (408, false),
        (429, false),
        (500, false),
        (503, false),
    ] {
        for (code, predicate) in [
            ("not_found", Error::is_not_found as fn(&Error) -> bool),
            ("quota_exceeded", Error::is_quota_exceeded),
            ("failed_precondition", Error::is_complaint_locked),
            ("validation_error", Error::is_validation_error),
        ] {
            let error = refusal(status, json!({ "code": code }).to_string()).await;

            assert_eq!(predicate(&error), counts, "{status} {code}");
            assert_eq!(error.code().map(ErrorCode::as_str), Some(code));
            assert_eq!(error.is_retryable(), status != 501 && !counts, "{status}");
        }
    }
}

#[tokio::test]
async fn a_redirect_or_a_refusal_of_the_key_never_means_that_a_contact_is_missing() {
    for status in [304, 401, 407] {
        let body = json!({"code": "not_found", "message": "API key not found"});
        let error = refusal(status, body.to_string()).await;

        assert!(!error.is_not_found(), "{status}");
        assert_eq!(error.missing(), None, "{status}");
        let server = respond_with(self::status(status).set_body_json(body)).await;
        let found = contacts(server.uri()).find(ADA).await;
        assert_eq!(found.unwrap_err().status().unwrap(), status);
    }
}

#[tokio::test]
async fn a_member_that_repeats_the_request_or_leads_to_documentation_has_no_slug() {
    for name in [
        "email",
        "address",
        "topic",
        "segment",
        "segment_id",
        "input",
        "value",
        "path",
        "requestPath",
        "instance",
        "url",
        "documentation_url",
        "help",
        "docs",
    ] {
        for text in ["not_found", "/contacts/not_found"] {
            for body in [json!({name: text}), json!({"error": {name: text}})] {
                let error = refusal(422, body.to_string()).await;

                assert_eq!(error.code(), None, "{body}");
            }
        }
    }
    for body in [
        json!({"input": {"properties": {"plan": ["not_found"]}}}),
        json!({"detail": [{"loc": ["body", "not_found"], "input": {"x": "not_found"}}]}),
        json!({"recipient": "ada@example.not-found"}),
    ] {
        let error = refusal(422, body.to_string()).await;

        assert_eq!(error.code(), None, "{body}");
    }
}

#[tokio::test]
async fn a_documented_slug_elsewhere_takes_precedence_over_an_undocumented_word() {
    let reason = "failed_precondition";
    for body in [
        json!({"status": "KO", "reason": reason}),
        json!({"code": "E1042", "reason": reason}),
        json!({"type": "invalid_request", "errorCode": reason}),
        json!({"name": "ClientFault", "data": {"why": reason}}),
        json!({"type": "https://example.com/errors/conflict", "title": reason}),
    ] {
        let error = refusal(422, body.to_string()).await;

        assert!(error.is_complaint_locked(), "{body}");
    }
    let two = json!({"code": "E1042", "reasons": [reason, "not_found"]});
    let error = refusal(422, two.to_string()).await;
    assert_eq!(error.code().map(ErrorCode::as_str), Some("E1042"));
}

#[tokio::test]
async fn the_last_part_of_a_problem_type_is_a_code_unless_it_is_a_page() {
    for (problem, expected) in [
        (
            "https://example.com/errors/rate-limited",
            Some("rate-limited"),
        ),
        (
            "https://example.com/errors/rate_limited/",
            Some("rate_limited"),
        ),
        (
            "https://example.com/errors#rate_limited",
            Some("rate_limited"),
        ),
        ("urn:problem-type:rate_limited", Some("rate_limited")),
        ("about:blank", None),
        ("https://example.com/errors/rate-limited.html", None),
        ("https://example.com", None),
        ("https://localhost/", None),
        ("https://tools.ietf.org/html/rfc9110#section-15.5.5", None),
        (
            "https://datatracker.ietf.org/doc/html/rfc6585#section-4",
            None,
        ),
        ("https://httpstatuses.com/429", None),
        ("https://example.com/see/this page", None),
    ] {
        for body in [
            json!({"type": problem}),
            json!({"error": {"type": problem}}),
        ] {
            let error = refusal(429, body.to_string()).await;

            assert_eq!(error.code().map(ErrorCode::as_str), expected, "{body}");
        }
    }
}

#[tokio::test]
async fn an_empty_code_that_a_program_returns_is_no_code() {
    let server = respond_with(text(403, r#"{"code": "odd"}"#)).await;
    let read = |_: &ApiError| Some((ErrorCode::from(""), "in words".to_owned()));
    let client = builder(server.uri()).read_errors(read).build().unwrap();

    let received = client.contacts().retrieve(ADA).await.unwrap_err();
    let created = Error::refused(ApiError::new(
        received.status().unwrap(),
        ErrorCode::from(""),
        "in words",
    ));

    assert_eq!(received.to_string(), "retrieve: the service responded 403");
    assert_eq!(created.to_string(), "the service responded 403");
    for error in [received, created] {
        assert_eq!(error.code(), None);
        assert_eq!(error.api().unwrap().message(), Some("in words"));
    }
}

#[tokio::test]
async fn a_program_can_read_error_responses_itself() {
    let body = r#"{"failure": ["E17", "reported spam"], "code": "client_fault"}"#;
    let refusal = status(422)
        .insert_header("x-error", "E17")
        .set_body_string(body);
    let server = respond_with(refusal).await;
    let read_errors = builder(server.uri()).read_errors(|refusal| {
        assert_eq!(refusal.status().as_u16(), 422);
        assert_eq!(refusal.code().map(ErrorCode::as_str), Some("client_fault"));
        let body: Value = serde_json::from_slice(refusal.body()).ok()?;
        let number = refusal.headers().get("x-error")?.to_str().ok()?;
        let text = body["failure"][1].as_str()?.to_owned();
        (number == "E17").then(|| (ErrorCode::from("Failed-Precondition"), text))
    });

    let error = read_errors
        .build()
        .unwrap()
        .contacts()
        .subscribe(ADA)
        .await
        .unwrap_err();

    assert!(error.is_complaint_locked(), "{error:?}");
    assert_eq!(error.api().unwrap().message(), Some("reported spam"));
    assert_eq!(error.body(), Some(body.as_bytes()));
}

#[tokio::test]
async fn an_error_response_that_a_program_does_not_recognize_is_read_as_usual() {
    let server = respond_with(text(404, r#"{"code": "not_found", "message": "m"}"#)).await;
    let client = builder(server.uri()).read_errors(|_| None).build().unwrap();

    let error = client.contacts().retrieve(ADA).await.unwrap_err();

    assert!(error.is_not_found());
    assert_eq!(error.api().unwrap().message(), Some("m"));
}

#[tokio::test]
async fn a_panic_while_a_program_reads_an_error_ends_only_that_call() {
    let server = respond_with(|request: &wiremock::Request| match request.url.path() {
        "/contacts" => ok(json!({"data": [summary("c1")], "next": "c1"})),
        _ => text(404, "{}"),
    })
    .await;
    let panics = |_: &ApiError| panic!("a mistake of the program");
    let client = builder(server.uri()).read_errors(panics).build().unwrap();

    // The stream retrieves each contact in a task of its own.
    let mut full = client.contacts().list().full();
    let streamed = tokio::spawn(async move { full.next().await.is_some() });
    let retrieved = tokio::spawn(client.contacts().retrieve(ADA).into_future());

    assert!(in_time(streamed).await.unwrap_err().is_panic());
    assert!(in_time(retrieved).await.unwrap_err().is_panic());
    assert_eq!(client.contacts().list().await.unwrap().data.len(), 1);
}

#[tokio::test]
async fn a_word_that_only_says_error_is_not_a_slug() {
    let error = refusal(404, r#"{"status": "error", "message": "no such contact"}"#).await;

    assert_eq!(error.code(), None);
    assert!(error.is_not_found());
}

/// The text for a 200 without a body.
fn without_body(operation: Operation) -> &'static str {
    match operation {
        Operation::Retrieve | Operation::List => {
            "the response has the status 200 and no body, so it most likely comes from a proxy or another server; check the base URL"
        }
        _ => "the response has no body; expected JSON",
    }
}

#[tokio::test]
async fn a_decode_error_names_the_operation_and_the_place() {
    let secret = "hunter2@example.com";
    for operation in Operation::ALL {
        if !operation.decodes_response() {
            continue;
        }
        for (body, place) in [
            (String::new(), without_body(operation)),
            (" \r\n".to_owned(), without_body(operation)),
            (
                format!("<html>{secret}</html>"),
                "the response is an HTML or XML page, not JSON; check the base URL",
            ),
            (
                format!(r#"{{"{secret}"#),
                "the response is not valid JSON, at line 1, column ",
            ),
            (format!(r#""{secret}""#), "invalid response"),
            ("null".to_owned(), "invalid response"),
            (format!(r#"{{"{secret}": "{secret}"}}"#), "invalid response"),
        ] {
            let server = ScriptedServer::start([response(200, &body)]).await;

            let error = operation.run(&client(server.url())).await.unwrap_err();

            let message = format!("{}: {place}", operation.name());
            assert!(!printed(&error).contains("hunter2"), "{error:?}");
            if operation.template().ends_with("subscribe") && !body.starts_with('<') {
                // The contact is retrieved then.
                continue;
            }
            assert_eq!(error.kind(), ErrorKind::Decode);
            assert!(error.to_string().starts_with(&message), "{body}: {error}");
            assert_eq!(error.attempts(), 1);
            assert_eq!(server.received().len(), 1, "a retry would not help");
        }
    }
}

#[tokio::test]
async fn a_decode_error_has_the_json_path_of_a_wrong_type_and_no_value() {
    let good = contact();
    for (member, value, message) in [
        ("id", json!(7.5), "$.id"),
        ("email", json!(null), "$.email"),
        ("first_name", json!(["hunter2"]), "$.first_name"),
        ("last_name", json!({"hunter2": 1}), "$.last_name"),
        ("properties", json!("hunter2"), "$.properties"),
        ("unsubscribed", json!("hunter2"), "$.unsubscribed"),
        ("unsubscribe_reason", json!(true), "$.unsubscribe_reason"),
        ("created_at", json!("hunter2"), "$.created_at"),
        ("created_at", json!(1.5), "$.created_at"),
        ("topics", json!(["hunter2"]), "$.topics"),
        ("topics", json!({"hunter2@x.io": "hunter2"}), "$.topics.*"),
    ] {
        let server = respond_with(ok(with(good.clone(), member, value))).await;

        let error = contacts(server.uri()).retrieve(ADA).await.unwrap_err();

        assert!(error.to_string().contains(message), "{error}");
        assert!(!printed(&error).contains("hunter2"), "{error:?}");
    }
    for member in ["id", "email", "unsubscribed", "created_at"] {
        let server = respond_with(ok(without(good.clone(), &[member]))).await;

        let error = contacts(server.uri()).retrieve(ADA).await.unwrap_err();

        assert_eq!(
            error.to_string(),
            "retrieve: invalid response",
            "without {member}"
        );
    }
}

#[tokio::test]
async fn a_decode_error_has_the_index_of_an_invalid_contact_in_a_page() {
    let data = [
        summary("c1"),
        with(summary("c2"), "created_at", "yesterday"),
        summary("c3"),
    ];
    let server = respond_with(ok(json!({"data": data, "next": "c3"}))).await;

    let page = contacts(server.uri()).list().await.unwrap();

    let (_, error) = page.malformed().next().unwrap();
    assert_eq!(
        error.to_string(),
        "list: invalid response at $.data[1].created_at"
    );
}

/// Runs an operation. Returns `None` if it takes the response for success.
async fn decode_error(operation: Operation, client: &Client) -> Option<Error> {
    match (operation.run(client).await, operation) {
        (Err(error), _) => Some(error),
        // The caller decodes the response.
        (Ok(()), Operation::Request | Operation::IdempotentRequest) => {
            let raw = client.request(Method::POST, ["emails"]).await.unwrap();
            Some(raw.json::<Vec<u8>>().unwrap_err())
        }
        (Ok(()), _) => None,
    }
}

#[tokio::test]
async fn a_2xx_response_that_cannot_be_decoded_means_applied_unless_it_is_a_page_or_a_batch() {
    for (body, is_page) in [("", false), ("{}", false), ("[", false), ("<html>", true)] {
        let server = respond_with(text(200, body)).await;
        for operation in Operation::ALL {
            let client = client(server.uri());
            let Some(error) = decode_error(operation, &client).await else {
                assert!(operation == Operation::Merge && !is_page, "{operation:?}");
                continue;
            };

            let expected = match operation {
                Operation::Retrieve | Operation::List => Outcome::Unchanged,
                Operation::Batch | Operation::BatchOrFail => Outcome::Unknown,
                _ if is_page => Outcome::Unknown,
                // The retrieved contact cannot be read either, so both responses may come from elsewhere.
                _ if operation.template().ends_with("subscribe") => Outcome::Unknown,
                _ => Outcome::Applied,
            };
            assert_eq!(
                (error.kind(), error.outcome()),
                (ErrorKind::Decode, expected),
                "{operation:?} {body}"
            );
        }
    }
}

#[tokio::test]
async fn a_read_that_fails_has_changed_nothing() {
    let silent = ScriptedServer::start([bytes("").then_hang(), bytes("").then_hang()]).await;
    let broken = ScriptedServer::start([close_connection(), close_connection()]).await;
    let too_long = respond_with(ok(contact())).await;
    let contacts = |url: &str| {
        let builder = builder(url).retry(RetryPolicy::none()).body_limit(9);
        let client = builder.timeout(TIMEOUT).build();
        client.unwrap().contacts()
    };
    for url in [silent.url(), broken.url(), &too_long.uri()] {
        let read = contacts(url).retrieve(ADA).await.unwrap_err();
        let written = contacts(url).unsubscribe(ADA).await.unwrap_err();

        assert_eq!(read.outcome(), Outcome::Unchanged, "{read}");
        assert_eq!(written.outcome(), Outcome::Unknown, "{written}");
    }
    let never_sent = contacts(&closed_url()).retrieve(ADA).await.unwrap_err();
    assert_eq!(never_sent.outcome(), Outcome::NotSent);

    let service = PagedService::default();
    service.put_items(None, &json!([summary("c1"), 5]), "again");
    service.put_items(Some("again"), &json!([summary("c2")]), "again");
    let server = service.serve().await;
    let items = client(server.uri()).contacts().list().stream();
    let errors: Vec<_> = items
        .filter_map(|item| async { item.err() })
        .collect()
        .await;
    assert!(errors.len() > 1);
    for error in errors {
        assert_eq!(error.outcome(), Outcome::Unchanged, "{error}");
    }
}

#[tokio::test]
async fn the_services_message_is_available_and_never_printed() {
    let body = json!({"error": {"code": "hunter2@example.com", "message": "hunter2@example.com is no contact"}});

    let error = refusal(404, body.to_string()).await;

    assert_eq!(
        error.api().unwrap().message(),
        Some("hunter2@example.com is no contact")
    );
    assert!(!printed(&error).contains("hunter2"), "{error:?}");
    assert!(
        error.is_not_found(),
        "the status decides, because the code is not a slug"
    );
}

#[tokio::test]
async fn an_html_error_page_keeps_the_status() {
    let page = "<!doctype html><h1>502 Bad Gateway</h1>hunter2";
    let server = respond_with(text(502, page).insert_header("content-type", "text/html")).await;

    let error = contacts(server.uri()).retrieve(ADA).await.unwrap_err();

    assert_eq!(
        error.to_string(),
        "retrieve: the service responded 502 (after 4 attempts)"
    );
    assert_eq!(error.api().unwrap().body(), page.as_bytes());
    assert_eq!((error.code(), error.attempts()), (None, 4));
    assert!(!printed(&error).contains("hunter2"));
}

#[tokio::test]
async fn a_write_whose_2xx_response_reports_an_error_may_not_have_been_applied() {
    for body in [
        r#"{"errors": ["quota"]}"#,
        r#"{"ok": false}"#,
        r#"{"status": 422}"#,
    ] {
        let server = respond_with(text(201, body)).await;
        for operation in Operation::ALL {
            let client = client(server.uri());
            let error = decode_error(operation, &client).await;
            let error = error.unwrap_or_else(|| panic!("{operation:?} took {body} for success"));

            let expected = match operation {
                Operation::Retrieve | Operation::List => Outcome::Unchanged,
                _ => Outcome::Unknown,
            };
            assert_eq!(
                (error.kind(), error.outcome()),
                (ErrorKind::Decode, expected),
                "{operation:?} {body}"
            );
            let text = "the response has the status 201, but reports an error";
            assert!(error.to_string().contains(text), "{operation:?}: {error}");
        }
    }
    let merged = respond_with(ok(with(contact(), "error", "of the contact"))).await;
    let merge = client(merged.uri())
        .contacts()
        .merge_properties(ADA, [("seats", 3)]);
    assert!(merge.await.is_ok(), "it is a contact");
}

#[tokio::test]
async fn only_a_404_that_is_not_from_the_endpoint_advises_to_check_the_base_url() {
    for (body, is_foreign) in [
        ("<html>not here</html>", true),
        (r#"{"message": "no such contact"}"#, false),
        (r#"{"error": "not_found"}"#, false),
    ] {
        let error = refusal(404, body.to_owned()).await;

        let advice = error.to_string().contains("check the base URL");
        assert_eq!(advice, is_foreign, "{body}: {error}");
    }
}

#[test]
fn each_refusal_is_explained_in_its_own_words() {
    for (refusal, words) in [
        (
            "404 not_found",
            "there is no such contact or topic: check the address and the name of the topic (",
        ),
        ("404", "there is no such contact or topic"),
        ("404 no_such_route", "the service refused the request"),
        (
            "422 validation_error",
            "the service does not accept the input (",
        ),
        (
            "409 already_exists",
            "a contact with this address exists already",
        ),
        (
            "422 failed_precondition",
            "the contact reported mail as spam, so",
        ),
        (
            "402 quota_exceeded",
            "the plan has no room for another contact",
        ),
        ("403 key_not_permitted", "the key may only send mail"),
        ("401", "the service does not accept the key"),
        ("403", "the service does not allow this with this key"),
        ("429", "the service allows no more requests for the moment"),
        ("422", "the service does not accept the input, or refuses"),
        ("402", "the plan does not allow this"),
        ("418", "the service refused the request"),
        ("503", "the service is not available"),
        ("503 not_found", "the service is not available"),
    ] {
        let (status, code) = refusal.split_once(' ').unwrap_or((refusal, ""));
        let code = Some(ErrorCode::from(code)).filter(|code| *code != ErrorCode::from(""));
        let api = ApiError::new(status.parse().unwrap(), code, "in words");

        let explanation = Error::refused(api).explanation();

        let (_, end) = explanation.split_once(" (").unwrap();
        assert!(explanation.starts_with(words), "{refusal}: {explanation}");
        assert!(end.starts_with(&format!("{refusal})")), "{explanation}");
    }
}

#[tokio::test]
async fn the_explanation_of_a_call_that_was_not_sent_says_so_and_an_opt_in_is_asked_for_again() {
    let unreachable = contacts(closed_url());
    let create = unreachable.create(ADA).await.unwrap_err().explanation();
    let subscribe = unreachable.subscribe(ADA).await.unwrap_err().explanation();

    let unchanged = "; nothing was changed; try again later";
    assert!(create.ends_with(unchanged), "{create}");
    let again = "; nothing was changed; ask the person again before you repeat an opt-in";
    assert!(subscribe.ends_with(again), "{subscribe}");

    let server = respond_with(status(422)).await;
    let refused = contacts(server.uri()).subscribe(ADA).await.unwrap_err();
    let refused = refused.explanation();
    assert!(!refused.contains("ask the person"), "{refused}");
}

#[tokio::test]
async fn the_explanation_of_a_lost_opt_in_says_to_look_at_the_contact() {
    let server = respond_with(status(500)).await;

    let error = contacts(server.uri()).subscribe(ADA).await.unwrap_err();

    let explanation = error.explanation();
    let lost = "; the opt-in may have been recorded or not: look at the contact";
    assert!(explanation.contains(lost), "{explanation}");
}

#[tokio::test]
async fn the_explanation_of_a_lost_write_says_whether_it_is_safe_to_repeat() {
    let server = respond_with(status(500)).await;
    let client = client(server.uri());
    let post = || client.request(Method::POST, ["emails"]);
    let strict = NewContact::new(ADA).on_conflict(OnConflict::Error);

    let upsert = client.contacts().create(ADA).await.unwrap_err();
    let strict = client.contacts().create(strict).await.unwrap_err();
    let raw = post().await.unwrap_err();
    let idempotent = post().idempotent().await.unwrap_err();

    let safe = "; the change may have been made or not, and it is safe to repeat it";
    let not_safe = "; the change may have been made or not: check before you repeat it";
    for (error, advice) in [
        (upsert, safe),
        (strict, not_safe),
        (raw, not_safe),
        (idempotent, safe),
    ] {
        let explanation = error.explanation();
        assert!(explanation.contains(advice), "{explanation}");
    }
}

#[tokio::test]
async fn the_alternate_form_of_an_error_has_its_causes() {
    let contacts = Client::new("http://127.0.0.1:1", "key").unwrap().contacts();
    let error = contacts.retrieve(ADA).await.unwrap_err();
    let cause = std::error::Error::source(&error).unwrap();

    let text = format!("{error:#}");

    assert!(text.starts_with(&format!("{error}: {cause}")), "{text}");
    assert!(!error.to_string().contains(&cause.to_string()));
}

/// An error of a program, caused by one of this crate.
#[derive(Debug)]
struct JobFailed(Box<dyn std::error::Error>);

impl std::fmt::Display for JobFailed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the job failed")
    }
}

impl std::error::Error for JobFailed {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&*self.0)
    }
}

#[tokio::test]
async fn the_exit_status_of_a_job_says_whether_running_it_again_may_help_and_does_no_harm() {
    use audience::emails::Email;
    use audience::export::{Csv, JsonLines};
    use audience::inbox::{InboxError, StoreError, TransactionError};
    use audience::mock::Fault;
    use audience::unsubscribe::ConsentError;

    let server = MockServer::builder().seed_contact(ADA).topic("news", true);
    let server = server.start().await;
    let contacts = server.client_builder().retry(RetryPolicy::none());
    let client = contacts.build().unwrap();
    let contacts = client.contacts();
    let folder = std::env::temp_dir().join(format!("audience-exit-{:016x}", fastrand::u64(..)));
    std::fs::create_dir(&folder).unwrap();
    let file = folder.join("all");
    let export = || contacts.list().export(&file, JsonLines);
    type AnyError = Box<dyn std::error::Error>;
    let mut found: Vec<(&str, AnyError, u8)> = Vec::new();

    server.fault(Fault::status(503));
    let opt_out = contacts.unsubscribe(ADA).await.unwrap_err();
    let opt_in = contacts.subscribe(ADA).await.unwrap_err();
    let yes = contacts
        .set_topics(ADA, [("news", true)])
        .await
        .unwrap_err();
    found.push(("an opt-out", opt_out.into(), 75));
    let of_visitor = contacts.unsubscribe(ADA).await.unwrap_err();
    found.push((
        "an opt-out of a visitor",
        ConsentError::Service(of_visitor).into(),
        75,
    ));
    found.push(("an opt-in that may be recorded", opt_in.into(), 1));
    found.push(("a form with a yes that was not sent", yes.into(), 1));
    found.push(("an export", export().await.unwrap_err().into(), 75));
    server.clear_faults();
    server.fault(Fault::status(429));
    let opt_in = contacts.subscribe(ADA).await.unwrap_err();
    found.push(("an opt-in that was refused for now", opt_in.into(), 1));
    let mail = Email::new().from("us@x.io").to(ADA).subject("News");
    let mail = client.emails().send(mail).await.unwrap_err();
    found.push(("a mail that was refused for now", mail.into(), 75));
    server.clear_faults();
    server.fault(Fault::status(503).path("*/subscribe"));
    let yes = contacts.set_topics(ADA, [("news", true)]).await;
    found.push((
        "a form with a yes",
        yes.map(drop).map_or_else(Into::into, |()| "none".into()),
        1,
    ));
    let stopped = export().stop_when(async {}).await.unwrap_err();
    found.push(("a stopped export", stopped.into(), 143));
    let stopped = contacts.list().export(&file, Csv::all_columns());
    let stopped = stopped.stop_when(async {}).await.unwrap_err();
    found.push(("a stopped search for columns", stopped.into(), 143));
    let import = contacts.import([ADA]).stop_when(async {}).await.unwrap();
    found.push((
        "a stopped import",
        import.finished().unwrap_err().into(),
        143,
    ));
    let missing = contacts.retrieve("bob@example.com").await.unwrap_err();
    found.push(("no contact", missing.into(), 4));
    let missing = contacts.unsubscribe("bob@example.com").await.unwrap_err();
    let missing = ConsentError::Service(missing);
    found.push(("no contact of a visitor", missing.into(), 4));
    let unnamed = contacts.retrieve(" ").await.unwrap_err();
    found.push(("an address that no request can name", unnamed.into(), 2));
    let down = || InboxError::Store(StoreError::unavailable("down"));
    let unusable = || InboxError::Store(StoreError::unusable("no table"));
    found.push(("a store that is down", down().into(), 75));
    found.push(("a store without a table", unusable().into(), 1));
    found.push((
        "its error for a visitor",
        ConsentError::from(down()).into(),
        75,
    ));
    found.push(("a store alone", StoreError::full("9").into(), 75));
    found.push((
        "a transaction of a store that is down",
        TransactionError::Store(StoreError::unavailable("9")).into(),
        75,
    ));
    found.push((
        "a transaction of a store that is not set up",
        TransactionError::Store(StoreError::unusable("9")).into(),
        1,
    ));
    found.push(("an event in work", InboxError::InProgress.into(), 75));
    found.push(("a lost lease", InboxError::LeaseLost.into(), 1));
    found.push(("a click is needed", ConsentError::OptedOut.into(), 1));
    found.push(("of another crate", std::io::Error::other("disk").into(), 1));

    for (what, error, expected) in found {
        assert_eq!(
            audience::exit_status(&*error),
            expected,
            "{what}: {error:?}"
        );
        let caused = JobFailed(error);
        assert_eq!(
            audience::exit_status(&caused),
            expected,
            "{what}: {caused:?}"
        );
    }
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn an_error_or_a_box_of_it_ends_a_program_with_its_exit_status() {
    use std::error::Error as StdError;
    use std::process::ExitCode;

    let error = || Client::new("", KEY).unwrap_err();
    let boxed: Result<(), Box<dyn StdError + Send + Sync>> = Err(error().into());

    let codes = [
        audience::exit_code(Err::<(), _>(error())),
        audience::exit_code(boxed.map_err(|error| -> Box<dyn StdError> { error })),
    ];

    let status = audience::exit_status(&error());
    assert_eq!(codes, [ExitCode::from(status); 2]);
}

#[tokio::test]
async fn the_status_for_a_visitor_the_exit_status_and_the_explanation_know_the_same_errors() {
    use audience::emails::Email;
    use audience::export::JsonLines;
    use audience::import::{SyncRow, SyncState};
    use audience::inbox::{InboxError, MemoryStore, StoreError, TransactionError};
    use audience::mock::Fault;
    use audience::unsubscribe::{ConsentError, OfferedTopic, UnsubscribeLinks, UnsubscribeService};

    let server = MockServer::builder().seed_contact(ADA).topic("news", true);
    let server = server.start().await;
    let contacts = server.client().contacts();
    let links = UnsubscribeLinks::new(["0123456789abcdef0123456789abcdef"], "https://a.b/c");
    let service = UnsubscribeService::builder(links.unwrap(), contacts.clone(), MemoryStore::new());
    let service = service.topic(OfferedTopic::new("news", "News")).build();
    let folder = std::env::temp_dir().join(format!("audience-three-{:016x}", fastrand::u64(..)));
    std::fs::create_dir(&folder).unwrap();
    let state = SyncState::open(folder.join("state")).unwrap();
    server.fault(Fault::status(401));
    let call = contacts.retrieve(ADA).await.unwrap_err();
    let form = contacts.set_topics(ADA, [("news", false)]).await;
    let import = contacts.import([ADA]).await.unwrap_err();
    let sync = contacts.sync([SyncRow::new("1", ADA)], state).await;
    let export = contacts.list().export(folder.join("all"), JsonLines).await;
    let issue = service
        .send_issue("1", "news", |_, _| -> Email { panic!("no mail") })
        .await;
    let issue = issue.unwrap_err();
    let click = service.subscribe(ADA, ["news"]).await.unwrap_err();
    std::fs::remove_dir_all(folder).unwrap();

    let key = "the service does not accept the key";
    let store = "the store of the inbox";
    let down = || StoreError::unavailable("down");
    let unusable = || StoreError::unusable("no table");
    type AnyError = Box<dyn std::error::Error>;
    let found: Vec<(AnyError, u16, u8, &str, &str)> = vec![
        (call.into(), 500, 1, key, ""),
        (
            form.unwrap_err().into(),
            500,
            1,
            key,
            "; not sent: news (no)",
        ),
        (import.into(), 500, 1, key, ""),
        (sync.unwrap_err().into(), 500, 1, key, ""),
        (export.unwrap_err().into(), 500, 1, key, ""),
        (issue.into(), 500, 1, key, ""),
        (click.into(), 500, 1, key, ""),
        (
            down().into(),
            503,
            75,
            store,
            "; try again in a few minutes",
        ),
        (
            StoreError::full("9").into(),
            503,
            75,
            store,
            "; try again in a few minutes",
        ),
        (unusable().into(), 500, 1, store, "; tell your developers"),
        (
            InboxError::Store(down()).into(),
            503,
            75,
            store,
            "; try again in a few minutes",
        ),
        (
            InboxError::Store(unusable()).into(),
            500,
            1,
            store,
            "; tell your developers",
        ),
        (
            TransactionError::Store(down()).into(),
            503,
            75,
            store,
            "; try again in a few minutes",
        ),
        (
            TransactionError::Store(unusable()).into(),
            500,
            1,
            store,
            "; tell your developers",
        ),
        (
            InboxError::InProgress.into(),
            503,
            75,
            "another attempt",
            "; try again in a few minutes",
        ),
        (
            InboxError::LeaseLost.into(),
            500,
            1,
            "the lease",
            "; tell your developers",
        ),
        (
            InboxError::Conflict.into(),
            500,
            1,
            "the event id",
            "; tell your developers",
        ),
        (
            ConsentError::OptedOut.into(),
            503,
            1,
            "an opt-out of the address",
            "repeat an opt-in",
        ),
        (
            ConsentError::Unfinished.into(),
            503,
            1,
            "the requests did not end",
            "repeat an opt-in",
        ),
        (
            ConsentError::NoTopic.into(),
            422,
            1,
            "no topic was chosen",
            "",
        ),
        (
            ConsentError::UnknownTopic.into(),
            500,
            1,
            "there is no topic",
            "; tell your developers",
        ),
        (
            ConsentError::Store(InboxError::Store(down())).into(),
            503,
            75,
            store,
            "an opt-in only after another click of the person",
        ),
        (
            ConsentError::Store(InboxError::Store(unusable())).into(),
            500,
            1,
            store,
            "nothing was sent; tell your developers",
        ),
    ];
    for (error, for_visitor, exit, start, end) in found {
        let caused = JobFailed(error);
        for error in [&*caused.0, &caused] {
            assert_eq!(
                audience::visitor_status(error).map(|status| status.as_u16()),
                Some(for_visitor),
                "{error:?}"
            );
            assert_eq!(audience::exit_status(error), exit, "{error:?}");
            let is_unauthorized = audience::find_error(error).map(Error::is_unauthorized);
            assert_eq!(is_unauthorized, (start == key).then_some(true), "{error:?}");
            let text = audience::explanation(error).unwrap();
            assert!(text.starts_with(start) && text.ends_with(end), "{text}");
            assert!(!text.contains('@'), "{text}");
        }
    }
    let foreign = std::io::Error::other("disk");
    assert_eq!(audience::visitor_status(&foreign), None);
    assert_eq!(audience::explanation(&foreign), None);
    assert!(audience::find_error(&foreign).is_none());
    let rolled_back = TransactionError::RolledBack(Box::new(unusable()));
    assert_eq!(
        audience::explanation(&rolled_back),
        audience::explanation(&unusable())
    );
}

#[tokio::test]
async fn no_error_that_says_to_ask_the_person_again_tells_a_script_to_run_the_command_again() {
    use audience::inbox::MemoryStore;
    use audience::mock::Fault;
    use audience::unsubscribe::{ConsentError, OfferedTopic, UnsubscribeLinks, UnsubscribeService};

    let yes = [("news", true)];
    let both = [("news", true), ("offers", false)];
    for fault in [
        Fault::status(429),
        Fault::status(503),
        Fault::close_before(),
        Fault::close_after(),
    ] {
        let server = MockServer::builder().topic("news", false);
        let server = server.topic("offers", true).seed_contact(ADA).start().await;
        let client = server.client_builder().retry(RetryPolicy::none());
        let contacts = client.build().unwrap().contacts();
        let links = UnsubscribeLinks::new(["0123456789abcdef0123456789abcdef"], "https://a.b/c");
        let service =
            UnsubscribeService::builder(links.unwrap(), contacts.clone(), MemoryStore::new());
        let service = service.topic(OfferedTopic::new("news", "News")).build();
        server.fault(fault.clone());

        let mut opt_ins = vec![
            contacts.subscribe(ADA).await.unwrap_err(),
            contacts.set_topic(ADA, "news", true).await.unwrap_err(),
            contacts.confirm_opt_in(ADA, ["news"]).await.unwrap_err(),
        ];
        let form = contacts.set_topics(ADA, yes).await.unwrap_err();
        opt_ins.push(form.into_error());
        let calls = [
            service.subscribe(ADA, ["news"]).await.map(drop),
            service.set_topics(ADA, yes).await,
        ];
        for call in calls {
            let Err(ConsentError::Service(error)) = call else {
                panic!("{call:?}")
            };
            opt_ins.push(error);
        }
        server.clear_faults();
        server.fault(fault.path("*/unsubscribe"));
        let form = contacts.set_topics(ADA, both).await.unwrap_err();
        assert_eq!(form.failed(), Some(("offers", false)));
        assert_eq!(audience::exit_status(&form), 1, "{form}");
        opt_ins.push(form.into_error());
        let opt_outs = [
            contacts.unsubscribe(ADA).await.unwrap_err(),
            contacts.set_topic(ADA, "news", false).await.unwrap_err(),
        ];

        let again = "ask the person again before you repeat an opt-in";
        for error in opt_ins {
            let (text, status) = (error.explanation(), audience::exit_status(&error));
            assert!(text.contains(again) && status == 1, "{text}: {status}");
            assert!(!text.contains("safe to repeat"), "{text}");
            let of_visitor = ConsentError::Service(error);
            assert_eq!(audience::exit_status(&of_visitor), 1, "{of_visitor}");
        }
        for error in opt_outs {
            let (text, status) = (error.explanation(), audience::exit_status(&error));
            assert!(!text.contains(again) && status == 75, "{text}: {status}");
        }
    }
}
