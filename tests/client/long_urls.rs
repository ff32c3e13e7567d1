//! URLs that get too long to be sent.

use audience::{Error, ErrorKind, Outcome, RetryPolicy};
use futures_util::{StreamExt, TryStreamExt};
use wiremock::Request;

use super::paged_service::page;
use support::{ADA, client, contact, ok, received, respond_in_turn, respond_with, status};

/// The longest URL that the HTTP library accepts, in bytes.
const LONGEST_URL: usize = 65_534;

fn assert_not_sent(error: &Error, kind: ErrorKind) {
    assert_eq!(
        (error.kind(), error.outcome(), error.attempts()),
        (kind, Outcome::NotSent, 0),
        "{error}"
    );
}

#[tokio::test]
async fn a_url_of_the_longest_length_is_sent_and_a_longer_one_is_refused_with_its_length() {
    let server = respond_with(ok(contact())).await;
    let contacts = client(server.uri()).contacts();
    let prefix = format!("{}/contacts/", server.uri()).len();
    let longest = "a".repeat(LONGEST_URL - prefix);

    contacts.retrieve(&longest).await.unwrap();
    let error = contacts.retrieve(longest + "a").await.unwrap_err();

    assert_not_sent(&error, ErrorKind::Input);
    assert_eq!(
        error.to_string(),
        "retrieve: the URL would have 65535 bytes; at most 65534 can be sent"
    );
    assert_eq!(received(&server).await.len(), 1);
}

#[tokio::test]
async fn a_cursor_of_the_service_that_is_too_long_is_not_the_callers_input() {
    let long = "c".repeat(LONGEST_URL);
    let responses = || [ok(page(&["c1"], &*long)), ok(page(&["c1"], &*long))];
    let server = respond_in_turn(responses()).await;
    let list = client(server.uri()).contacts().list();

    let streamed: Vec<_> = list.clone().stream().take(9).collect().await;
    let counted = list.clone().count().await.unwrap_err();

    assert_eq!(streamed.len(), 2, "another request would not help");
    for error in [streamed[1].as_ref().unwrap_err(), &counted] {
        assert_not_sent(error, ErrorKind::Pagination);
        assert!(
            error.to_string().starts_with(
                "list: the service sent a cursor that is too long: the URL would have 65"
            ),
            "{error}"
        );
    }
    assert_eq!(received(&server).await.len(), 2);
}

#[tokio::test]
async fn a_cursor_or_a_filter_of_the_caller_that_is_too_long_is_input() {
    let long = "c".repeat(LONGEST_URL);
    let server = respond_in_turn([ok(page(&["c1"], "c1"))]).await;
    let list = client(server.uri())
        .contacts()
        .list()
        .retry(RetryPolicy::none());

    let first = list.clone().after(&long).stream().try_next().await;
    let page = list.clone().query(&long).await;

    assert_not_sent(&first.unwrap_err(), ErrorKind::Input);
    assert_not_sent(&page.unwrap_err(), ErrorKind::Input);
    assert!(received(&server).await.is_empty());
}

#[tokio::test]
async fn a_redirect_is_followed_to_a_url_of_the_longest_length_and_to_no_longer_one() {
    for more in [0, 1] {
        let server = respond_with(move |request: &Request| {
            if request.url.path().starts_with("/moved/") {
                return ok(contact());
            }
            let prefix = "http:///moved/".len() + request.headers["host"].len();
            let long = "m".repeat(LONGEST_URL + more - prefix);
            status(308).insert_header("location", format!("/moved/{long}"))
        })
        .await;

        let retrieved = client(server.uri()).contacts().retrieve(ADA).await;

        match more {
            0 => assert_eq!(retrieved.unwrap().email, ADA),
            _ => assert_eq!(
                retrieved.unwrap_err().to_string(),
                "retrieve: the service responded 308, a redirect to 127.0.0.1, which is not followed (its URL is longer \
                 than 65534 bytes); check the base URL"
            ),
        }
    }
}
