//! Response bodies: compressed ones, and the limit on their length.

use audience::{ErrorKind, Outcome};

use support::scripted_server::{ScriptedServer, bytes, gzipped_response, response, retrieve_once};
use support::{ADA, builder, contact, contacts, respond_with, status};

#[tokio::test]
async fn a_compressed_response_is_read() {
    let contact = retrieve_once(gzipped_response(contact().to_string().as_bytes()))
        .await
        .unwrap();

    assert_eq!(contact.email, ADA);
}

#[tokio::test]
async fn a_body_that_does_not_decompress_is_a_decode_error_and_not_a_transport_error() {
    let response = bytes(
        "HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: 12\r\n\r\nno gzip here",
    );

    let error = retrieve_once(response).await.unwrap_err();

    assert_eq!(
        error.to_string(),
        "retrieve: could not decompress the response body"
    );
    assert_eq!(
        (error.kind(), error.outcome()),
        (ErrorKind::Decode, Outcome::Unchanged)
    );
}

#[tokio::test]
async fn a_body_one_byte_over_the_limit_is_an_error() {
    let body = contact().to_string();
    let chunked = |body: &str| {
        let (one, two) = body.split_at(10);
        format!(
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\na\r\n{one}\r\n{:x}\r\n{two}\r\n0\r\n\r\n",
            two.len()
        )
    };
    for prepared in [
        response(200, &body),
        bytes(chunked(&body)),
        gzipped_response(body.as_bytes()),
    ] {
        for (limit, fits) in [(body.len(), true), (body.len() - 1, false), (0, false)] {
            let server = ScriptedServer::start([prepared.clone()]).await;
            let client = builder(server.url()).body_limit(limit).build().unwrap();

            let result = client.contacts().retrieve(ADA).await;

            assert_eq!(result.is_ok(), fits, "{result:?}");
            if let Err(error) = result {
                let message =
                    format!("retrieve: the response body exceeds the limit of {limit} bytes");
                assert_eq!(
                    (error.kind(), error.to_string()),
                    (ErrorKind::Decode, message)
                );
                assert_eq!(server.received().len(), 1, "a retry would not help");
            }
        }
    }
}

#[tokio::test]
async fn a_refusal_with_a_body_over_the_limit_is_a_refusal_without_a_body() {
    let server = respond_with(status(404).set_body_string("x".repeat(2_000))).await;
    let client = builder(server.uri()).body_limit(1_000).build().unwrap();

    let error = client.contacts().retrieve(ADA).await.unwrap_err();

    assert_eq!(
        (error.kind(), error.outcome()),
        (ErrorKind::Api, Outcome::Refused)
    );
    assert_eq!(error.api().unwrap().status(), 404);
    assert!(!error.is_not_found(), "the body may be a proxy's page");
    assert!(error.api().unwrap().body().is_empty());
}

#[tokio::test]
async fn a_5xx_with_a_body_that_does_not_decompress_is_retried_like_any_other() {
    let page = status(503).insert_header("content-encoding", "gzip");
    let server = respond_with(page.set_body_string("<html>busy</html>")).await;

    let error = contacts(server.uri()).retrieve(ADA).await.unwrap_err();

    assert_eq!(
        (error.api().unwrap().status().as_u16(), error.attempts()),
        (503, 4)
    );
}

#[tokio::test]
async fn a_small_body_that_decompresses_to_a_huge_one_is_stopped_at_the_limit() {
    let bomb = gzipped_response(&vec![b' '; 16 * 1024 * 1024]);
    assert!(bomb.length() < 20 * 1024);
    let server = ScriptedServer::start([bomb]).await;
    let client = builder(server.url()).body_limit(100_000).build().unwrap();

    let error = client.contacts().retrieve(ADA).await.unwrap_err();

    assert!(
        error
            .to_string()
            .contains("exceeds the limit of 100000 bytes"),
        "{error}"
    );
}

#[tokio::test]
async fn the_limit_is_32_mib_by_default() {
    let error = retrieve_once(response(200, vec![b' '; 32 * 1024 * 1024 + 1]))
        .await
        .unwrap_err();

    assert!(
        error
            .to_string()
            .contains("exceeds the limit of 33554432 bytes"),
        "{error}"
    );
}
