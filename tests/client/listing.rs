//! Lists over several pages, from services that behave well and services that do not.

use std::sync::atomic::{AtomicUsize, Ordering};

use audience::rule::Rule;
use audience::{ErrorKind, Outcome};
use futures_util::stream::FusedStream;
use futures_util::{Stream, StreamExt, TryStreamExt};
use serde_json::{Value, json};

use super::paged_service::{PagedService, ids, page, requested_cursors};
use support::{contacts, in_time, ok, received, respond_in_turn, respond_with, status};

/// Three pages, the second of them short.
fn three_pages() -> PagedService {
    let service = PagedService::default();
    service.put(None, &["c9", "c8", "c7"], json!("c7"));
    service.put(Some("c7"), &["c6"], json!("c6"));
    service.put(Some("c6"), &["c5", "c4", "c3"], json!("c3"));
    service.put(Some("c3"), &[], json!(""));
    service
}

#[tokio::test]
async fn a_list_continues_past_a_short_page_and_ends_only_with_an_empty_one() {
    let server = three_pages().serve().await;
    let contacts = contacts(server.uri());

    assert_eq!(
        ids(&contacts).await,
        ["c9", "c8", "c7", "c6", "c5", "c4", "c3"]
    );

    let asked = requested_cursors(&server).await;
    assert_eq!(
        asked,
        [
            None,
            Some("c7".into()),
            Some("c6".into()),
            Some("c3".into())
        ]
    );
    assert_eq!(contacts.list().count().await.unwrap(), 7);
    let pages: Vec<_> = contacts
        .list()
        .pages()
        .map_ok(|page| page.data.len())
        .try_collect()
        .await
        .unwrap();
    assert_eq!(
        pages,
        [3, 1, 3],
        "the empty page ends the list and is not returned"
    );
}

#[tokio::test]
async fn the_cursor_is_next_if_present_and_the_last_id_otherwise() {
    let service = PagedService::default();
    service.put(None, &["c9"], json!("opaque"));
    service.put(Some("opaque"), &["c8"], json!("missing"));
    service.put(Some("c8"), &["c7"], Value::Null);
    service.put(Some("c7"), &["c6"], json!(""));
    service.put(Some("c6"), &[], json!("ignored"));
    let server = service.serve().await;

    assert_eq!(ids(&contacts(server.uri())).await, ["c9", "c8", "c7", "c6"]);
    assert_eq!(contacts(server.uri()).list().count().await.unwrap(), 4);
}

#[tokio::test]
async fn every_request_of_a_list_has_the_filters() {
    let server = three_pages().serve().await;
    let list = contacts(server.uri()).list().limit(7).query("a b");

    list.clone()
        .rule(Rule::everyone())
        .stream()
        .try_collect::<Vec<_>>()
        .await
        .unwrap();
    list.segment("seg_1").count().await.unwrap();
    contacts(server.uri()).list().count().await.unwrap();

    let queries: Vec<_> = received(&server)
        .await
        .iter()
        .map(|request| request.url.query().unwrap_or("").to_owned())
        .collect();
    let rules = "query=a%20b&rules=%7B%22match_%22%3A%22all%22%2C%22conditions%22%3A%5B%5D%7D";
    for (index, cursor) in ["", "&after=c7", "&after=c6", "&after=c3"]
        .iter()
        .enumerate()
    {
        assert_eq!(queries[index], format!("limit=7{cursor}&{rules}"));
        assert_eq!(
            queries[4 + index],
            format!("limit=7{cursor}&query=a%20b&segment_id=seg_1")
        );
        assert_eq!(
            queries[8 + index],
            format!("limit=200{cursor}"),
            "a count requests the largest pages"
        );
    }
}

#[tokio::test]
async fn awaiting_a_list_requests_one_page() {
    let server = three_pages().serve().await;

    let page = contacts(server.uri()).list().after("c7").await.unwrap();

    assert_eq!(
        (page.data[0].id.as_str(), page.next.as_deref()),
        ("c6", Some("c6"))
    );
    assert_eq!(received(&server).await.len(), 1);
}

#[tokio::test]
async fn a_segment_with_a_rule_is_refused_once_and_nothing_is_sent() {
    let server = three_pages().serve().await;
    let list = contacts(server.uri())
        .list()
        .segment("seg_1")
        .rule(Rule::everyone());

    let page = list.clone().await.unwrap_err();
    let count = list.clone().count().await.unwrap_err();
    let streamed: Vec<_> = list.stream().collect().await;

    for error in [page, count] {
        assert_eq!(
            (error.kind(), error.outcome()),
            (ErrorKind::Input, Outcome::NotSent)
        );
    }
    assert_eq!(streamed.len(), 1, "a retry would not help");
    assert!(received(&server).await.is_empty());
}

#[tokio::test]
async fn a_cycle_of_cursors_is_an_error_and_not_an_endless_loop() {
    for tail in [0, 1, 5] {
        for length in [1, 2, 3, 7] {
            let service = PagedService::default();
            let name = |n: usize| {
                format!(
                    "p{}",
                    if n < tail {
                        n
                    } else {
                        tail + (n - tail) % length
                    }
                )
            };
            for n in 0..tail + length {
                let after = n.checked_sub(1).map(name);
                service.put(after.as_deref(), &[&format!("c{n}")], json!(name(n)));
            }
            let last = name(tail + length - 1);
            service.put(Some(&last), &["c0"], json!(name(tail + length)));
            let server = service.serve().await;
            let contacts = contacts(server.uri());

            let streamed: Vec<_> = contacts.list().stream().take(100).collect().await;
            let sent = received(&server).await.len();
            let counted = in_time(contacts.list().count()).await.unwrap_err();

            let error = streamed.last().unwrap().as_ref().unwrap_err();
            for error in [error, &counted] {
                assert_eq!(
                    error.kind(),
                    ErrorKind::Pagination,
                    "tail {tail}, length {length}"
                );
                assert_eq!(
                    error.to_string(),
                    "list: the service repeated a cursor or a page; listing stopped to avoid an endless loop"
                );
                assert_eq!(error.attempts(), 1, "{error}");
            }
            assert_eq!(
                streamed.iter().filter(|item| item.is_err()).count(),
                1,
                "the error is returned once"
            );
            assert!(
                sent <= 3 * (tail + length) + 3,
                "{sent} requests for tail {tail}, length {length}"
            );
        }
    }
}

#[tokio::test]
async fn a_repeated_page_is_a_cycle_even_if_next_is_missing() {
    for next in [json!("missing"), json!(""), json!(null), json!("c9")] {
        let service = PagedService::default();
        service.put(None, &["c9"], next.clone());
        service.put(Some("c9"), &["c9"], next);
        let server = service.serve().await;

        let items: Vec<_> = contacts(server.uri())
            .list()
            .stream()
            .take(100)
            .collect()
            .await;

        assert_eq!(items.len(), 2);
        assert_eq!(items[1].as_ref().unwrap_err().kind(), ErrorKind::Pagination);
        assert_eq!(received(&server).await.len(), 2);
    }
}

#[tokio::test]
async fn a_page_that_is_repeated_with_ever_new_cursors_is_an_error_and_not_an_endless_loop() {
    let sent = AtomicUsize::new(0);
    let server = respond_with(move |_: &wiremock::Request| {
        let number = sent.fetch_add(1, Ordering::Relaxed);
        ok(page(&["c9", "c8"], format!("p{number}")))
    })
    .await;
    let list = contacts(server.uri()).list();

    let pages: Vec<_> = list.clone().pages().take(100).collect().await;
    let streamed: Vec<_> = list.clone().stream().prefetch().take(100).collect().await;
    let counted = in_time(list.count()).await.unwrap_err();

    assert_eq!((pages.len(), streamed.len()), (2, 3));
    let errors = [pages[1].as_ref().err(), streamed[2].as_ref().err()];
    for error in errors.into_iter().chain([Some(&counted)]) {
        assert_eq!(error.unwrap().kind(), ErrorKind::Pagination);
    }
    assert_eq!(received(&server).await.len(), 6);
}

#[tokio::test]
async fn a_cycle_back_to_the_starting_cursor_is_found() {
    let service = PagedService::default();
    service.put(Some("start"), &["c1"], json!("start"));
    let server = service.serve().await;

    let items: Vec<_> = contacts(server.uri())
        .list()
        .after("start")
        .pages()
        .take(100)
        .collect()
        .await;

    assert_eq!(items.len(), 1);
    assert_eq!(items[0].as_ref().unwrap_err().kind(), ErrorKind::Pagination);
}

#[tokio::test]
async fn the_cursor_of_a_page_leads_to_the_next_until_a_page_is_empty() {
    let responses = [
        ok(page(&["c9", "c8"], "opaque")),
        ok(page(&["c7"], Value::Null)),
        ok(page(&[], "")),
    ];
    let server = respond_in_turn(responses).await;
    let contacts = contacts(server.uri());

    let first = contacts.list().await.unwrap();
    let second = contacts
        .list()
        .after(first.cursor().unwrap())
        .await
        .unwrap();
    let third = contacts
        .list()
        .after(second.cursor().unwrap())
        .await
        .unwrap();

    assert_eq!(
        (first.cursor(), second.cursor(), third.cursor()),
        (Some("opaque"), Some("c7"), None)
    );
}

#[tokio::test]
async fn a_list_retries_a_page_like_any_other_call() {
    let (first, last) = (page(&["c1"], ""), page(&[], ""));
    let server =
        respond_in_turn([status(503), ok(first), status(429), status(500), ok(last)]).await;

    assert_eq!(ids(&contacts(server.uri())).await, ["c1"]);
}

#[tokio::test]
async fn a_list_that_has_ended_stays_ended() {
    let server = three_pages().serve().await;
    let list = contacts(server.uri()).list();
    let (mut stream, mut pages) = (list.clone().stream(), list.pages());

    while stream.next().await.is_some() {}
    while pages.next().await.is_some() {}
    let sent = received(&server).await.len();

    for _ in 0..3 {
        assert!(stream.next().await.is_none() && pages.next().await.is_none());
        assert!(stream.is_terminated() && pages.is_terminated());
    }
    assert_eq!(received(&server).await.len(), sent);
    assert_eq!(stream.size_hint(), (0, Some(0)));
    assert_eq!(
        (stream.cursor(), pages.cursor()),
        (Some("c3"), Some("c3")),
        "the cursor of the last page is kept"
    );
}

#[tokio::test]
async fn a_page_is_requested_only_when_it_is_polled() {
    let server = three_pages().serve().await;
    let mut stream = contacts(server.uri()).list().stream();
    assert!(received(&server).await.is_empty());

    for _ in 0..3 {
        stream.next().await.unwrap().unwrap();
    }

    assert_eq!(received(&server).await.len(), 1);
}

#[tokio::test]
async fn a_list_has_a_cursor_at_every_contact() {
    let server = three_pages().serve().await;
    let contacts = contacts(server.uri());
    let mut stream = contacts.list().stream();
    assert_eq!(stream.cursor(), None);
    assert_eq!(contacts.list().after("c7").stream().cursor(), Some("c7"));

    let mut cursors = Vec::new();
    while let Some(contact) = stream.try_next().await.unwrap() {
        cursors.push((contact.id, stream.cursor().map(str::to_owned)));
    }

    for (id, cursor) in cursors {
        assert_eq!(cursor, Some(id), "every id is a cursor");
    }
}

#[tokio::test]
async fn after_a_whole_page_the_cursor_is_the_services_next() {
    let service = PagedService::default();
    service.put(None, &["c9", "c8"], json!("opaque"));
    let server = service.serve().await;
    let list = contacts(server.uri()).list();
    let (mut stream, mut pages) = (list.clone().stream(), list.pages());

    stream.next().await.unwrap().unwrap();
    let within = stream.cursor().map(str::to_owned);
    stream.next().await.unwrap().unwrap();
    pages.next().await.unwrap().unwrap();

    assert_eq!(within.as_deref(), Some("c9"));
    assert_eq!(
        (stream.cursor(), pages.cursor()),
        (Some("opaque"), Some("opaque"))
    );
}
