//! URLs that get too long to be sent.

use audience::{Error, ErrorKind, Outcome, RetryPolicy};
use futures_util::{StreamExt, TryStreamExt};

use super::paged_service::page;
use support::{client, contact, ok, received, respond_in_turn, respond_with};

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
