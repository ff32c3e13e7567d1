//! The status, the headers and the attempts of a response, beside its value.

use std::fmt::Debug;

use audience::client::{Response, ResponseFuture};
use audience::contacts::NewContact;
use audience::{Error, ErrorKind, RetryPolicy};
use serde_json::json;

use support::operation::Operation;
use support::{ADA, contacts, ok, received, respond_in_turn, respond_with, status, with};

/// Sends a call to a server that fails once and then responds as it should, and checks the response.
macro_rules! assert_full_response {
    ($operation:ident, |$contacts:ident| $call:expr) => {{
        let good = Operation::$operation.good_response();
        let server = respond_in_turn([
            status(429),
            status(202)
                .insert_header("x-request-id", "req-7")
                .set_body_json(good),
        ])
        .await;
        let $contacts = contacts(server.uri());

        let response = $call.response().await.unwrap();

        assert_eq!((response.status().as_u16(), response.attempts()), (202, 2));
        assert_eq!(response.headers()["x-request-id"], "req-7");
        assert!(!format!("{response:?}").contains("req-7"));
        response.into_inner()
    }};
}

#[tokio::test]
async fn every_call_returns_status_headers_and_attempts_with_its_value() {
    let ada = || NewContact::new(ADA);

    let created = assert_full_response!(Create, |contacts| contacts.create(ada()));
    assert!(!created.is_new());
    let report = assert_full_response!(Batch, |contacts| contacts.create_batch([ada()]));
    assert_eq!(report.entries[0].email, ADA);
    let contact = assert_full_response!(Retrieve, |contacts| contacts.retrieve(ADA));
    assert_eq!(contact.email, ADA);
    let page = assert_full_response!(List, |contacts| contacts.list().limit(1));
    assert_eq!(page.data[0].email, ADA);
    let contact = assert_full_response!(Subscribe, |contacts| contacts.subscribe(ADA));
    assert_eq!(contact.email, ADA);
    let contact = assert_full_response!(Unsubscribe, |contacts| contacts.unsubscribe(ADA));
    assert_eq!(contact.email, ADA);
    let answer = assert_full_response!(AnswerNo, |contacts| contacts.set_topic(ADA, "news", false));
    assert_eq!(answer.email, ADA);
}

#[tokio::test]
async fn a_raw_response_has_its_status_headers_and_attempts_and_can_be_cloned() {
    let merged = status(202).insert_header("x-request-id", "req-7");
    let server = respond_in_turn([status(429), merged.set_body_json(json!({"seats": 3}))]).await;

    let merge = contacts(server.uri()).merge_properties(ADA, [("seats", 3)]);
    let raw = merge.await.unwrap();
    let copy = raw.clone();

    assert_eq!((raw.status().as_u16(), raw.attempts()), (202, 2));
    assert_eq!(raw.headers()["x-request-id"], "req-7");
    assert_eq!((copy.bytes(), copy.attempts()), (raw.bytes(), 2));
}

#[tokio::test]
async fn a_response_lends_its_value() {
    let server = respond_with(ok(Operation::Retrieve.good_response())).await;

    let response = contacts(server.uri())
        .retrieve(ADA)
        .response()
        .await
        .unwrap();

    assert_eq!(
        (
            response.value().email.as_str(),
            response.value().unsubscribed
        ),
        (ADA, true)
    );
}

#[tokio::test]
async fn a_call_for_the_full_response_is_sent_when_it_is_awaited_and_fails_as_usual() {
    let good = Operation::Retrieve.good_response();
    let bodies = [with(good, "id", 5.5), json!([])];
    let server = respond_in_turn([status(503), ok(&bodies[0]), ok(&bodies[1])]).await;
    let call = || {
        contacts(server.uri())
            .retrieve(ADA)
            .retry(RetryPolicy::none())
    };

    drop(call().response());
    assert!(received(&server).await.is_empty());
    assert_eq!(kind_of(call().response()).await, ErrorKind::Api);
    assert_eq!(kind_of(call().response()).await, ErrorKind::Decode);
    assert_eq!(kind_of(call().response()).await, ErrorKind::Decode);
}

async fn kind_of<T: Debug>(call: ResponseFuture<Response<T>>) -> ErrorKind {
    let failed: Result<_, Error> = call.await;
    failed.unwrap_err().kind()
}
