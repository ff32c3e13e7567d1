//! What the tests of the client share: a client in a hurry, and servers that answer as they are told.

use std::sync::Mutex;
use std::time::Duration;

use audience::contacts::Contacts;
use audience::{Client, ClientBuilder, Error, RetryPolicy};
use serde_json::{Value, json};
use wiremock::matchers::any;
use wiremock::{Mock, MockServer, Request, Respond, ResponseTemplate};

pub(crate) mod operation;
pub(crate) mod receiver;
pub(crate) mod script;

pub(crate) const ADA: &str = "ada@example.com";
/// A word that occurs nowhere else, so that a leak is found by looking for it.
pub(crate) const KEY: &str = "key-hunter2";

/// A client that repeats as always, but hardly waits.
pub(crate) fn client(url: impl AsRef<str>) -> Client {
    builder(url).build().expect("a loopback address will do")
}

pub(crate) fn contacts(url: impl AsRef<str>) -> Contacts {
    client(url).contacts()
}

pub(crate) fn builder(url: impl AsRef<str>) -> ClientBuilder {
    Client::builder(url, KEY).retry(hurried())
}

pub(crate) fn hurried() -> RetryPolicy {
    let moment = Duration::from_millis(1);
    RetryPolicy::exponential()
        .base_delay(moment)
        .max_delay(moment)
        .max_retry_after(moment)
}

/// A server that gives every request the same answer.
pub(crate) async fn answering(answer: impl Respond + 'static) -> MockServer {
    let server = MockServer::start().await;
    Mock::given(any()).respond_with(answer).mount(&server).await;
    server
}

/// A server that gives these answers one after the other, and 599 when they are used up.
pub(crate) async fn answering_in_turn(
    answers: impl IntoIterator<Item = ResponseTemplate>,
) -> MockServer {
    let mut answers = answers.into_iter().collect::<Vec<_>>();
    answers.reverse();
    let answers = Mutex::new(answers);
    answering(move |_: &Request| {
        let next = answers.lock().expect("no answer panics").pop();
        next.unwrap_or_else(|| status(599))
    })
    .await
}

pub(crate) fn status(code: u16) -> ResponseTemplate {
    ResponseTemplate::new(code)
}

pub(crate) fn ok(body: impl serde::Serialize) -> ResponseTemplate {
    status(200).set_body_json(body)
}

/// An answer with this body, word for word.
pub(crate) fn text(code: u16, body: impl Into<String>) -> ResponseTemplate {
    status(code).set_body_raw(body.into(), "application/json")
}

/// How many requests came, and what they were.
pub(crate) async fn received(server: &MockServer) -> Vec<Request> {
    server
        .received_requests()
        .await
        .expect("recording is on unless switched off")
}

/// Section 2.1, with something in every member.
pub(crate) fn contact() -> Value {
    json!({
        "id": "con_1", "email": ADA, "first_name": "Ada", "last_name": "Lovelace",
        "properties": {"plan": "pro", "seats": 3}, "unsubscribed": true, "unsubscribe_reason": "preferences",
        "created_at": 1_700_000_000, "topics": {"news": true, "offers": false},
    })
}

/// Section 2.2.
pub(crate) fn record() -> Value {
    without(contact(), &["unsubscribe_reason", "topics"])
}

/// Section 2.3, of the contact with this id.
pub(crate) fn summary(id: &str) -> Value {
    let mut summary = without(record(), &["last_name"]);
    summary["id"] = id.into();
    summary
}

/// An object short of some members.
pub(crate) fn without(mut object: Value, members: &[&str]) -> Value {
    let map = object.as_object_mut().expect("it is an object");
    for member in members {
        map.remove(*member)
            .expect("the member is there to be left out");
    }
    object
}

/// An object with one member replaced or added.
pub(crate) fn with(mut object: Value, member: &str, value: impl Into<Value>) -> Value {
    object[member] = value.into();
    object
}

/// Everything that a log could show of an error: both forms of it, and of all it was caused by.
pub(crate) fn printed(error: &Error) -> String {
    let mut text = format!("{error} {error:?} {error:#?} {:?}", error.api());
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        text += &format!(" {error} {error:?}");
        cause = error.source();
    }
    text
}
