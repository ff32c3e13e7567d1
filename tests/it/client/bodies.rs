//! Bodies of answers: compressed, and longer than one wants to read.

use audience::{ErrorKind, Outcome};

use crate::support::script::{Script, answer, bytes, gzipped, retrieve_once};
use crate::support::{ADA, answering, builder, contact, contacts, status};

#[tokio::test]
async fn a_compressed_answer_is_read() {
    let contact = retrieve_once(gzipped(contact().to_string().as_bytes()))
        .await
        .unwrap();

    assert_eq!(contact.email, ADA);
}

#[tokio::test]
async fn what_does_not_decompress_is_the_answer_s_fault_and_not_the_connection_s() {
    let act = bytes(
        "HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: 12\r\n\r\nno gzip here",
    );

    let error = retrieve_once(act).await.unwrap_err();

    assert_eq!(
        error.to_string(),
        "retrieve: could not decompress the response body"
    );
    assert_eq!(
        (error.kind(), error.outcome()),
        (ErrorKind::Decode, Outcome::Unknown)
    );
}

#[tokio::test]
async fn a_body_up_to_the_limit_is_read_and_one_byte_more_is_not() {
    let body = contact().to_string();
    let chunked = |body: &str| {
        let (one, two) = body.split_at(10);
        format!(
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\na\r\n{one}\r\n{:x}\r\n{two}\r\n0\r\n\r\n",
            two.len()
        )
    };
    for act in [
        answer(200, &body),
        bytes(chunked(&body)),
        gzipped(body.as_bytes()),
    ] {
        for (limit, fits) in [(body.len(), true), (body.len() - 1, false), (0, false)] {
            let server = Script::play([act.clone()]).await;
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
                assert_eq!(server.received().len(), 1, "asking again would not help");
            }
        }
    }
}

#[tokio::test]
async fn a_refusal_whose_words_are_beyond_the_limit_is_a_refusal_without_words() {
    let server = answering(status(404).set_body_string("x".repeat(2_000))).await;
    let client = builder(server.uri()).body_limit(1_000).build().unwrap();

    let error = client.contacts().retrieve(ADA).await.unwrap_err();

    assert_eq!(
        (error.kind(), error.outcome()),
        (ErrorKind::Api, Outcome::Refused)
    );
    assert!(error.is_not_found());
    assert!(error.api().unwrap().body().is_empty());
}

#[tokio::test]
async fn a_5xx_whose_words_do_not_decompress_is_repeated_like_any_other() {
    let page = status(503).insert_header("content-encoding", "gzip");
    let server = answering(page.set_body_string("<html>busy</html>")).await;

    let error = contacts(server.uri()).retrieve(ADA).await.unwrap_err();

    assert_eq!(
        (error.api().unwrap().status().as_u16(), error.attempts()),
        (503, 4)
    );
}

#[tokio::test]
async fn a_small_body_that_swells_to_a_huge_one_is_stopped_at_the_limit() {
    let bomb = gzipped(&vec![b' '; 16 * 1024 * 1024]);
    assert!(bomb.len() < 20 * 1024);
    let server = Script::play([bomb]).await;
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
async fn the_limit_is_32_mib_unless_set() {
    let error = retrieve_once(answer(200, vec![b' '; 32 * 1024 * 1024 + 1]))
        .await
        .unwrap_err();

    assert!(
        error
            .to_string()
            .contains("exceeds the limit of 33554432 bytes"),
        "{error}"
    );
}
