//! Spans and events: a span for each call, one for each attempt below it, an event for each wait. None of
//! them contains an address, the key or a cursor.

use std::time::Duration;

use audience::contacts::NewContact;
use audience::mock::MockServer;
use audience::{Client, RetryPolicy};
use futures_util::{FutureExt, StreamExt};
use serde_json::json;
use tracing::{Instrument, Level};

use support::operation::Operation;
use support::scripted_server::{ScriptedServer, bytes, close_connection, response};
use support::trace_log::{Entry, Log};
use support::{
    ADA, KEY, PATIENCE, TIMEOUT, builder, client, contact, mock_builder, ok, respond_with, status,
    summary,
};

const CALL: &str = "audience.call";
const ATTEMPT: &str = "http.client.request";

fn fields(entry: &Entry) -> Vec<(&str, &str)> {
    let fields = entry.fields.iter();
    fields
        .map(|(name, value)| (name.as_str(), value.as_str()))
        .collect()
}

#[tokio::test]
async fn each_call_is_a_span_with_its_operation_its_attempts_and_its_outcome() {
    let log = Log::start();
    for operation in Operation::ALL {
        let server =
            ScriptedServer::start([response(200, operation.good_response().to_string())]).await;

        operation.run(&client(server.url())).await.unwrap();

        let span = log.spans_named(CALL).pop().unwrap();
        let name = operation.name();
        let expected = [
            ("attempts", "1"),
            ("operation", name),
            ("otel.name", &format!("audience.{name}")),
            ("outcome", "ok"),
            ("url.template", operation.template()),
        ];
        assert_eq!((span.level, span.is_closed), (Level::INFO, true));
        assert_eq!(fields(&span), expected, "{operation:?}");
    }
    assert_eq!(log.spans_named(CALL).len(), Operation::ALL.len());
    assert!(log.events().is_empty());
}

#[tokio::test]
async fn each_attempt_is_a_span_with_the_opentelemetry_names() {
    let log = Log::start();
    for operation in Operation::ALL {
        let server =
            ScriptedServer::start([response(200, operation.good_response().to_string())]).await;
        let port = server.url().rsplit(':').next().unwrap().to_owned();

        operation.run(&client(server.url())).await.unwrap();

        let span = log.spans_named(ATTEMPT).pop().unwrap();
        let (method, template) = (operation.method(), operation.template());
        let expected = [
            ("http.request.method", method),
            ("http.response.status_code", "200"),
            ("otel.kind", "client"),
            ("otel.name", &format!("{method} {template}")),
            ("server.address", "127.0.0.1"),
            ("server.port", &port),
            ("url.template", template),
        ];
        assert_eq!((span.level, span.is_closed), (Level::INFO, true));
        assert_eq!(fields(&span), expected, "{operation:?}");
    }
    assert_eq!(log.spans_named(ATTEMPT).len(), Operation::ALL.len());
}

async fn server_that_fails_twice() -> ScriptedServer {
    ScriptedServer::start([
        response(503, ""),
        close_connection(),
        response(200, contact().to_string()),
    ])
    .await
}

#[tokio::test]
async fn the_attempts_and_the_retries_of_a_call_are_below_its_span() {
    let log = Log::start();
    let server = server_that_fails_twice().await;
    let handler = tracing::info_span!(target: "audience_test", "handler");

    let call = client(server.url()).contacts().retrieve(ADA);
    call.into_future()
        .instrument(handler.clone())
        .await
        .unwrap();

    let calls = log.spans_named(CALL);
    assert_eq!(
        (calls.len(), calls[0].fields["attempts"].as_str()),
        (1, "3")
    );
    assert_eq!(calls[0].parent, handler.id());
    assert!(calls[0].is_closed);
    let below = [log.spans_named(ATTEMPT), log.events()].concat();
    assert_eq!(below.len(), 3 + 2);
    assert!(below.iter().all(|entry| entry.parent == calls[0].id));
}

#[tokio::test]
async fn calls_that_run_ahead_are_below_the_span_of_the_caller() {
    let log = Log::start();
    let server = MockServer::builder()
        .seed_contact("0@x.io")
        .seed_contact("1@x.io")
        .start()
        .await;
    let contacts = mock_builder(&server).build().unwrap().contacts();
    let handler = tracing::info_span!(target: "audience_test", "handler");

    let prefetched = contacts.list().limit(1).stream().prefetch();
    let work = async { prefetched.count().await + contacts.list().full().count().await };
    assert_eq!(work.instrument(handler.clone()).await, 4);

    let calls = log.spans_named(CALL);
    assert_eq!(calls.len(), 3 + 2 + 2);
    assert!(calls.iter().all(|call| call.parent == handler.id()));
}

#[tokio::test]
async fn the_requests_that_a_confirmation_sends_simultaneously_are_below_the_span_of_its_caller() {
    let log = Log::start();
    let server = MockServer::builder().topic("news", false);
    let server = server.topic("offers", true).start().await;
    let contacts = mock_builder(&server).build().unwrap().contacts();
    let handler = tracing::info_span!(target: "audience_test", "handler");

    let confirm = contacts.confirm_opt_in(ADA, ["news"]).into_future();
    confirm.instrument(handler.clone()).await.unwrap();

    let calls = log.spans_named(CALL);
    assert_eq!(calls.len(), server.requests().len());
    assert!(calls.iter().all(|call| call.parent == handler.id()));
}

#[tokio::test]
async fn the_calls_of_an_import_are_below_the_span_of_its_caller() {
    let log = Log::start();
    let server = MockServer::start().await;
    let contacts = mock_builder(&server).build().unwrap().contacts();
    let handler = tracing::info_span!(target: "audience_test", "handler");
    let rows = (0..250).map(|n| format!("{n}@x.io"));

    let import = contacts.import(rows).into_future();
    let report = import.instrument(handler.clone()).await.unwrap();

    let calls = log.spans_named(CALL);
    assert_eq!((report.created(), calls.len()), (250, 3));
    assert!(calls.iter().all(|call| call.parent == handler.id()));
}

#[tokio::test]
async fn each_retry_is_a_separate_span_and_the_wait_before_it_a_warning() {
    let log = Log::start();
    let server = server_that_fails_twice().await;

    client(server.url()).contacts().retrieve(ADA).await.unwrap();

    let spans = log.spans_named(ATTEMPT);
    let field = |name: &str| {
        spans
            .iter()
            .map(|span| span.fields.get(name).cloned())
            .collect::<Vec<_>>()
    };
    let some = |text: &str| Some(text.to_owned());
    assert_eq!(
        field("http.request.resend_count"),
        [None, some("1"), some("2")]
    );
    assert_eq!(
        field("http.response.status_code"),
        [some("503"), None, some("200")]
    );
    assert_eq!(field("error.type"), [some("503"), some("transport"), None]);
    assert_eq!(
        field("otel.status_code"),
        [some("ERROR"), some("ERROR"), None]
    );
    let events = log.events();
    assert!(events.iter().all(|event| event.level == Level::WARN));
    let mut events: Vec<_> = events.iter().map(fields).collect();
    for fields in &mut events {
        let (name, wait) = fields.pop().unwrap();
        assert!(name == "wait_ms" && wait.parse::<u64>().is_ok());
    }
    let message = ("message", "the attempt failed and will be retried");
    assert_eq!(
        events,
        [
            vec![
                ("attempts", "1"),
                ("error", "the service responded 503"),
                ("error.type", "503"),
                ("http.response.status_code", "503"),
                message,
                ("operation", "retrieve"),
            ],
            vec![
                ("attempts", "2"),
                (
                    "error",
                    "the connection broke before the response arrived (after 2 attempts)"
                ),
                ("error.type", "transport"),
                message,
                ("operation", "retrieve"),
            ],
        ]
    );
}

#[tokio::test]
async fn the_spans_of_a_failed_call_say_how_it_failed() {
    let invalid = response(200, r#"{"id": 7}"#);
    for (response, attempt_error, call_error, outcome) in [
        (response(404, ""), Some("404"), "404", "refused"),
        (response(500, ""), Some("500"), "500", "unchanged"),
        (
            bytes("garbage\r\n\r\n").then_close(),
            Some("transport"),
            "transport",
            "unchanged",
        ),
        (
            bytes("").then_hang(),
            Some("timeout"),
            "timeout",
            "unchanged",
        ),
        (invalid, None, "decode", "unchanged"),
    ] {
        let log = Log::start();
        let server = ScriptedServer::start([response]).await;
        let call = client(server.url())
            .contacts()
            .retrieve(ADA)
            .retry(RetryPolicy::none());

        let timeout = match attempt_error {
            Some("timeout") => TIMEOUT,
            _ => PATIENCE,
        };
        let call = call.timeout(timeout).no_deadline();
        call.await.unwrap_err();

        let (calls, attempts) = (log.spans_named(CALL), log.spans_named(ATTEMPT));
        assert_eq!((calls.len(), attempts.len()), (1, 1));
        let attempt_field = attempts[0].fields.get("error.type").map(String::as_str);
        assert_eq!(attempt_field, attempt_error);
        assert_eq!(calls[0].fields["error.type"], call_error);
        assert_eq!(calls[0].fields["outcome"], outcome);
        assert_eq!(calls[0].fields["attempts"], "1");
        assert_eq!(calls[0].fields["otel.status_code"], "ERROR");
    }
}

#[tokio::test]
async fn a_call_that_is_not_sent_is_a_span_without_attempts() {
    let log = Log::start();

    let contacts = client("http://localhost:1").contacts();
    contacts.retrieve("").response().await.unwrap_err();

    let spans = log.spans();
    assert_eq!((spans.len(), spans[0].name.as_str()), (1, CALL));
    assert_eq!(spans[0].fields["error.type"], "input");
    assert_eq!(spans[0].fields["outcome"], "not_sent");
    assert_eq!(spans[0].fields["attempts"], "0");
}

#[tokio::test]
async fn a_call_that_is_dropped_has_a_closed_span_without_an_outcome() {
    let log = Log::start();
    let server = ScriptedServer::start([bytes("").then_hang()]).await;

    let call = client(server.url()).contacts().retrieve(ADA);
    let limited = tokio::time::timeout(Duration::from_millis(200), call).await;

    assert!(limited.is_err());
    let span = log.spans_named(CALL).pop().unwrap();
    assert!(span.is_closed && !span.fields.contains_key("outcome"));
}

#[tokio::test]
async fn a_value_that_is_kept_does_not_keep_the_span_of_its_call_open() {
    let log = Log::start();
    let server = ScriptedServer::start([response(200, "{}"), response(200, "{}")]).await;
    let client = client(server.url());

    let raw = client.request(audience::Method::GET, ["topics"]).await;
    let merged = client.contacts().merge_properties(ADA, [("a", 1)]);
    let merged = merged.await;

    assert!(raw.is_ok() && merged.is_ok());
    assert!(log.spans().iter().all(|span| span.is_closed));
}

#[tokio::test]
async fn each_page_of_a_list_is_a_call() {
    let server = MockServer::start().await;
    let client = mock_builder(&server).build().unwrap();
    let entries = ["ada@x.io", "bob@x.io"].map(NewContact::new);
    let report = client.contacts().create_batch(entries).await.unwrap();
    assert_eq!(report.failures().count(), 0);
    let list = client.contacts().list().limit(1);

    let log = Log::start();
    let listed = list.clone().stream().count().await;
    // The last page is empty.
    assert_eq!((listed, log.spans_named(CALL).len()), (2, 3));

    let log = Log::start();
    let counted = list.count().await.unwrap();
    assert_eq!((counted, log.spans_named(CALL).len()), (2, 3));
    let names = log.spans_named(CALL);
    assert!(names.iter().all(|span| span.fields["operation"] == "list"));
}

#[tokio::test]
async fn a_wait_that_a_429_imposes_on_other_calls_is_an_event_of_each() {
    let log = Log::start();
    let limited = "HTTP/1.1 429 Slow\r\nretry-after: 60\r\ncontent-length: 0\r\n\r\n";
    let limited = ScriptedServer::start([bytes(limited)]).await;
    let client = Client::new(limited.url(), KEY).unwrap();
    let refused = client.contacts().retrieve(ADA).retry(RetryPolicy::none());
    refused.await.unwrap_err();

    let call = client.contacts().retrieve(ADA).no_deadline();
    assert!(call.into_future().now_or_never().is_none(), "it waits");

    let events = log.events();
    assert_eq!((events.len(), events[0].level), (1, Level::INFO));
    assert_eq!(events[0].fields["operation"], "retrieve");
    assert!(events[0].fields["wait_ms"].parse::<u64>().is_ok());
    assert_eq!(events[0].parent, log.spans_named(CALL)[1].id);
}

#[tokio::test]
async fn neither_an_address_nor_the_key_is_ever_traced() {
    let log = Log::start();
    for operation in Operation::ALL {
        let refusal = format!(r#"{{"code": "{ADA}", "message": "{ADA} {KEY}"}}"#);
        let responses = [
            response(503, &refusal),
            close_connection(),
            response(429, &refusal),
            response(200, format!(r#"{{"id": "{ADA}"}}"#)),
        ];
        let server = ScriptedServer::start(responses).await;
        let client = builder(format!("{}/v1", server.url()))
            .user_agent("app")
            .build()
            .unwrap();

        let _ = operation.run(&client).await;
    }
    let redirect = status(302).insert_header("location", format!("/contacts/{ADA}?key={KEY}"));
    let server = respond_with(redirect).await;
    let _ = client(server.uri()).contacts().retrieve(ADA).await;

    let text = log.text();
    assert!(log.spans().len() > 2 * Operation::ALL.len());
    for word in ["ada", "%40", "hunter2"] {
        assert!(!text.contains(word), "{word} in {text}");
    }
}

#[tokio::test]
async fn no_cursor_is_ever_traced() {
    let page = json!({"data": [summary("hunter2")], "next": "hunter2"});
    let server = respond_with(ok(page)).await;
    let log = Log::start();

    let contacts = client(server.uri()).contacts();
    let mut pages = contacts.list().after("hunter2").pages();
    let repeated = pages.next().await.unwrap();

    assert!(repeated.is_err());
    assert!(!log.text().contains("hunter2"));
}
