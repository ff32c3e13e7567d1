//! Spans and events: they have the OpenTelemetry names for HTTP clients and never contain an address.

use audience::RetryPolicy;
use tracing::Level;

use crate::support::operation::Operation;
use crate::support::scripted_server::{ScriptedServer, bytes, close_connection, response};
use crate::support::trace_log::Log;
use crate::support::{ADA, KEY, builder, client, contact};

#[tokio::test]
async fn each_attempt_is_a_span_with_the_opentelemetry_names() {
    let log = Log::start();
    for operation in Operation::ALL {
        let server =
            ScriptedServer::start([response(200, operation.good_response().to_string())]).await;
        let port = server.url().rsplit(':').next().unwrap().to_owned();

        operation.run(&client(server.url())).await.unwrap();

        let span = log.spans().pop().unwrap();
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
        assert_eq!(
            (span.name.as_str(), span.level),
            ("http.client.request", Level::INFO)
        );
        let fields: Vec<_> = span
            .fields
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()))
            .collect();
        assert_eq!(fields, expected, "{operation:?}");
    }
    assert_eq!(log.spans().len(), Operation::ALL.len());
    assert!(log.events().is_empty());
}

#[tokio::test]
async fn each_retry_is_a_separate_span_and_the_wait_before_it_an_event() {
    let log = Log::start();
    let server = ScriptedServer::start([
        response(503, ""),
        close_connection(),
        response(200, contact().to_string()),
    ])
    .await;

    client(server.url()).contacts().retrieve(ADA).await.unwrap();

    let spans = log.spans();
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
    assert_eq!(field("error.type"), [some("503"), some("Transport"), None]);
    assert_eq!(
        field("otel.status_code"),
        [some("ERROR"), some("ERROR"), None]
    );
    let events = log.events();
    assert_eq!(events.len(), 2);
    for (attempt, event) in ["1", "2"].iter().zip(&events) {
        assert_eq!(event.level, Level::DEBUG);
        assert_eq!(event.fields["operation"], "retrieve");
        assert_eq!(&event.fields["attempt"], attempt);
        assert!(event.fields["wait_ms"].parse::<u128>().is_ok());
    }
}

#[tokio::test]
async fn the_span_of_a_failed_call_names_the_kind_of_error() {
    for (response, expected) in [
        (response(404, ""), "404"),
        (bytes("garbage\r\n\r\n").then_close(), "Transport"),
        (bytes("").then_hang(), "Timeout"),
    ] {
        let log = Log::start();
        let server = ScriptedServer::start([response]).await;
        let call = client(server.url())
            .contacts()
            .retrieve(ADA)
            .retry(RetryPolicy::none());

        call.timeout(std::time::Duration::from_millis(300))
            .await
            .unwrap_err();

        let spans = log.spans();
        assert_eq!(
            (spans.len(), spans[0].fields["error.type"].as_str()),
            (1, expected)
        );
    }
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

    let text = log.text();
    assert!(log.spans().len() > Operation::ALL.len());
    for word in ["ada", "%40", "hunter2"] {
        assert!(!text.contains(word), "{word} in {text}");
    }
}
