//! Invalid responses and broken connections.

use std::time::Duration;

use audience::{ErrorKind, Outcome, RetryPolicy};
use serde_json::json;

use support::operation::{Operation, RetrySafety};
use support::scripted_server::{
    ScriptedServer, bytes, close_connection, gzip, response, retrieve_once,
};
use support::{
    ADA, KEY, builder, client, closed_url, contact, in_time, ok, printed, received, respond_with,
    time_out,
};

const HOUR: Duration = Duration::from_secs(3_600);

#[tokio::test]
async fn interim_responses_are_ignored() {
    let body = contact().to_string();
    let last = format!(
        "HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    for interim in [
        "HTTP/1.1 100 Continue\r\n\r\n",
        "HTTP/1.1 103 Early Hints\r\nlink: </style.css>\r\n\r\n",
        "HTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\n\r\n",
    ] {
        let contact = retrieve_once(bytes(format!("{interim}{last}")))
            .await
            .unwrap();

        assert_eq!(contact.email, ADA);
    }
}

#[tokio::test]
async fn an_unrequested_protocol_switch_is_an_error() {
    let response = bytes(
        "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n",
    );

    let error = retrieve_once(response.then_close()).await.unwrap_err();

    assert!(
        matches!(error.kind(), ErrorKind::Transport | ErrorKind::Api),
        "{error:?}"
    );
    assert_eq!(error.attempts(), 1);
}

#[tokio::test]
async fn a_huge_content_length_reserves_no_memory_and_is_a_transport_error() {
    let response = bytes(format!(
        "HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{{}}",
        1_u64 << 60
    ));

    let error = retrieve_once(response.then_close()).await.unwrap_err();

    assert_eq!(
        (error.kind(), error.outcome()),
        (ErrorKind::Transport, Outcome::Unchanged)
    );
}

#[tokio::test]
async fn a_truncated_body_is_a_transport_error() {
    let truncated = [
        "HTTP/1.1 200 OK\r\ncontent-length: 500\r\n\r\n{\"id\": \"con_1\""
            .as_bytes()
            .to_vec(),
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\n{\"id\"\r\n".to_vec(),
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\n{\"id\"\r\nzz\r\n".to_vec(),
        [
            b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: 500\r\n\r\n",
            &gzip(&[b'x'; 999])[..15],
        ]
        .concat(),
        b"HTTP/1.1 422 X\r\ncontent-length: 500\r\n\r\n{\"code\"".to_vec(),
    ];
    for truncated in truncated {
        for response in [
            bytes(truncated.clone()).then_close(),
            bytes(truncated.clone()).then_reset(),
        ] {
            let error = retrieve_once(response).await.unwrap_err();

            let shown = String::from_utf8_lossy(&truncated).into_owned();
            assert_eq!(error.kind(), ErrorKind::Transport, "{shown}: {error:?}");
            assert_eq!(
                error.to_string(),
                "retrieve: the connection broke while reading the response"
            );
            assert_eq!(error.outcome(), Outcome::Unchanged);
        }
    }
}

#[tokio::test]
async fn a_truncated_response_is_retried_only_if_that_is_safe() {
    let truncated = || bytes("HTTP/1.1 200 OK\r\ncontent-length: 500\r\n\r\n{\"id\"").then_close();
    for operation in Operation::ALL {
        let good = operation.good_response().to_string();
        let server = ScriptedServer::start([truncated(), response(200, good)]).await;

        let result = operation.run(&client(server.url())).await;

        let retried = operation.retry_safety() == RetrySafety::Safe;
        assert_eq!(
            (result.is_ok(), server.received().len()),
            (retried, 1 + usize::from(retried)),
            "{operation:?}"
        );
    }
}

#[tokio::test]
async fn a_response_that_is_not_http_is_a_transport_error() {
    for garbage in [
        "hunter2 hello\r\n\r\n",
        "\0\0\0\0\0\0\0\0",
        "HTTP/1.1 abc\r\n\r\n",
        "HTTP/9.9 200 OK\r\n\r\n",
        "HTTP/1.1 200 OK\r\nbad header hunter2\r\n\r\n",
        "SSH-2.0-OpenSSH_9.6\r\n",
    ] {
        let error = retrieve_once(bytes(garbage).then_close())
            .await
            .unwrap_err();

        assert_eq!(
            (error.kind(), error.outcome()),
            (ErrorKind::Transport, Outcome::Unchanged),
            "{garbage}"
        );
        assert_eq!(
            error.to_string(),
            "retrieve: the response is not valid HTTP; check the base URL"
        );
        assert!(!printed(&error).contains("hunter2"), "{error:?}");
    }
}

#[tokio::test]
async fn a_refused_connection_is_a_connect_error_and_nothing_was_sent() {
    let url = closed_url();

    for operation in Operation::ALL {
        let error = operation.run(&client(&url)).await.unwrap_err();

        assert_eq!(
            (error.kind(), error.outcome()),
            (ErrorKind::Connect, Outcome::NotSent),
            "{operation:?}"
        );
        let attempts = if operation.retry_safety() == RetrySafety::Never {
            1
        } else {
            4
        };
        assert_eq!(error.attempts(), attempts, "{operation:?}");
        assert!(std::error::Error::source(&error).is_some());
        let host = url.trim_start_matches("http://");
        assert!(
            error
                .to_string()
                .contains(&format!("could not connect to {host}")),
            "{error}"
        );
        assert!(
            !printed(&error).contains("ada"),
            "the path is not in the error: {error:?}"
        );
    }
}

#[tokio::test]
async fn a_host_that_is_not_found_is_named_with_its_port() {
    for (url, named) in [
        ("http://no-such-host.invalid/v1", "no-such-host.invalid:80"),
        (
            "https://no-such-host.invalid/v1",
            "no-such-host.invalid:443",
        ),
        (
            "http://no-such-host.invalid:8080",
            "no-such-host.invalid:8080",
        ),
    ] {
        let builder = builder(url).allow_http().retry(RetryPolicy::none());
        let call = builder.build().unwrap().contacts().retrieve(ADA);

        let error = in_time(call).await.unwrap_err();

        assert_eq!(
            error.to_string(),
            format!("retrieve: could not connect to {named}; check the base URL and the network")
        );
        assert_eq!(error.outcome(), Outcome::NotSent);
    }
}

#[tokio::test]
async fn a_closed_pooled_connection_is_replaced_at_once_if_a_retry_is_safe() {
    for operation in Operation::ALL {
        for closed in [close_connection(), bytes("").then_reset()] {
            let good = operation.good_response().to_string();
            let responses = [
                response(200, contact().to_string()),
                closed,
                response(200, good),
            ];
            let server = ScriptedServer::start(responses).await;
            // With waits of an hour, only an immediate retry finishes in time.
            let hourly = RetryPolicy::exponential().base_delay(HOUR).max_delay(HOUR);
            let client = builder(server.url()).retry(hourly).build().unwrap();
            client.contacts().retrieve(ADA).await.unwrap();

            let result = in_time(operation.run(&client)).await;

            let received = server.received();
            let connections: Vec<_> = received.iter().map(|request| request.connection).collect();
            if operation.retry_safety() == RetrySafety::Safe {
                assert!(result.is_ok(), "{operation:?}: {result:?}");
                assert_eq!(connections, [0, 0, 1], "{operation:?}");
            } else {
                let error = result.unwrap_err();
                assert_eq!(
                    (error.kind(), error.outcome(), error.attempts()),
                    (ErrorKind::Transport, Outcome::Unknown, 1)
                );
                assert_eq!(
                    connections,
                    [0, 0],
                    "{operation:?} may have been applied and is not retried"
                );
            }
        }
    }
}

#[tokio::test]
async fn reads_succeed_from_a_server_that_closes_each_connection_unannounced() {
    let responses = vec![response(200, contact().to_string()).then_close(); 20];
    let server = ScriptedServer::start(responses).await;
    let contacts = client(server.url()).contacts();

    for _ in 0..20 {
        assert_eq!(contacts.retrieve(ADA).await.unwrap().email, ADA);
    }

    assert_eq!(server.received().len(), 20);
}

#[tokio::test]
async fn no_error_message_contains_an_address() {
    let server = ScriptedServer::start([
        close_connection(),
        bytes("garbage\r\n\r\n").then_close(),
        response(404, r#"{"message": "ada@example.com"}"#),
        response(200, r#"{"id": "ada@example.com", "email": 1}"#),
        bytes("HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nada").then_close(),
        bytes("").then_hang(),
    ])
    .await;
    let contacts = builder(server.url())
        .retry(RetryPolicy::none())
        .build()
        .unwrap()
        .contacts();

    for _ in 0..6 {
        let call = contacts.retrieve(ADA).timeout(HOUR).no_deadline();
        // The last one gets no response.
        let is_last_received = || server.received().len() == 6;
        let error = time_out(call, HOUR, is_last_received).await.unwrap_err();

        let printed = printed(&error);
        for word in ["ada", "example.com", KEY, "127.0.0.1"] {
            assert!(!printed.contains(word), "{word} in {printed}");
        }
    }
    assert_eq!(server.received().len(), 6);
}

#[tokio::test]
async fn a_batch_of_a_hundred_large_entries_arrives_completely() {
    let text = "ü".repeat(4_000);
    let entries: Vec<_> = (0..100)
        .map(|n| {
            audience::contacts::NewContact::new(format!("{n}@x.io")).property("note", text.clone())
        })
        .collect();
    let results: Vec<_> = (0..100)
        .map(|n| json!({"email": format!("{n}@x.io"), "status": "created"}))
        .collect();
    let server = respond_with(ok(json!({"data": results}))).await;

    let report = client(server.uri())
        .contacts()
        .create_batch(entries)
        .await
        .unwrap();

    assert_eq!((report.entries.len(), report.failures().count()), (100, 0));
    let body: Vec<serde_json::Value> = received(&server).await[0].body_json().unwrap();
    assert_eq!(body[99]["properties"]["note"], text);
}
