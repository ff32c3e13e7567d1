//! Responses that are valid JSON but not of the documented shape.

use std::fmt::Debug;

use audience::{Client, Error, ErrorKind, Outcome};
use futures_util::TryStreamExt;
use serde_json::{Value, json};

use crate::support::operation::Operation;
use crate::support::{ADA, client, contact, ok, record, respond_with};

/// The members of an object as an array, in the order of the document.
fn as_array(object: &Value, members: &[&str]) -> Value {
    members.iter().map(|name| object[name].clone()).collect()
}

fn record_as_array() -> Value {
    let members = [
        "id",
        "email",
        "first_name",
        "last_name",
        "properties",
        "unsubscribed",
        "created_at",
    ];
    as_array(&record(), &members)
}

fn contact_as_array() -> Value {
    let members = [
        "id",
        "email",
        "first_name",
        "last_name",
        "properties",
        "unsubscribed",
        "unsubscribe_reason",
        "created_at",
        "topics",
    ];
    as_array(&contact(), &members)
}

/// The client of a server that always sends this body.
async fn client_of(body: &Value) -> (wiremock::MockServer, Client) {
    let server = respond_with(ok(body)).await;
    let client = client(server.uri());
    (server, client)
}

fn assert_decode_error<T: Debug>(result: Result<T, Error>, place: &str) {
    let error = result.unwrap_err();
    assert_eq!(
        (error.kind(), error.outcome()),
        (ErrorKind::Decode, Outcome::Unknown)
    );
    assert!(error.to_string().contains(place), "{error}");
}

#[tokio::test]
async fn an_array_is_not_accepted_in_place_of_the_object_of_a_response() {
    for operation in Operation::ALL {
        use Operation::*;
        let body = match operation {
            Merge | Request | IdempotentRequest => continue,
            Create | CreateOrSkip | CreateOrFail => record_as_array(),
            Batch | BatchOrFail => json!([[{"email": ADA, "status": "created"}]]),
            List => json!([[]]),
            Retrieve | Unsubscribe | UnsubscribeTopic | Subscribe | SubscribeTopic => {
                contact_as_array()
            }
        };
        let (_server, client) = client_of(&body).await;

        let result = operation.run(&client).await;

        assert_decode_error(result, "invalid response at $: expected an object");
    }
}

#[tokio::test]
async fn a_list_does_not_end_with_an_array_in_place_of_a_page() {
    let (_server, client) = client_of(&json!([[]])).await;
    let list = client.contacts().list();

    let counted = list.clone().count().await;
    let paged = list.pages().try_next().await;

    let place = "invalid response at $: expected an object";
    assert_decode_error(counted, place);
    assert_decode_error(paged, place);
}
