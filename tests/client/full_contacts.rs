//! Lists whose contacts are retrieved in full.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use audience::contacts::{Contact, Contacts};
use audience::mock::{Fault, MockServer, Reason, SeedContact};
use audience::{ErrorKind, RetryPolicy};
use futures_util::stream::FusedStream;
use futures_util::{StreamExt, TryStreamExt};
use serde_json::json;
use wiremock::Request;

use super::paged_service::page;
use support::cancellation::until;
use support::{contact, contacts, in_time, ok, respond_with, with};

const GONE: &str = r#"{"code": "not_found", "message": "no such contact"}"#;

/// A mock with contacts 0 to 4, of which 4 is the newest.
async fn five_contacts() -> (MockServer, Contacts) {
    let mut builder = MockServer::builder().topic("news", true);
    for n in 0..5 {
        let contact = SeedContact::new(format!("{n}@x.io")).last_name(n.to_string());
        builder = builder.seed_contact(contact);
    }
    let server = builder.start().await;
    let client = support::mock_builder(&server).build().unwrap();
    (server, client.contacts())
}

fn addresses(contacts: &[Contact]) -> Vec<&str> {
    contacts
        .iter()
        .map(|contact| contact.email.as_str())
        .collect()
}

#[tokio::test]
async fn every_contact_of_a_list_is_returned_in_full_and_in_its_order() {
    let (server, contacts) = five_contacts().await;
    server.seed_contact(
        SeedContact::new("ada@x.io")
            .unsubscribed(Reason::Preferences)
            .answer("news", false),
    );

    let full: Vec<Contact> = contacts.list().limit(2).full().try_collect().await.unwrap();

    assert_eq!(
        addresses(&full),
        ["ada@x.io", "4@x.io", "3@x.io", "2@x.io", "1@x.io", "0@x.io"]
    );
    assert_eq!(
        full[0].unsubscribe_reason.as_ref().unwrap().as_str(),
        "preferences"
    );
    assert_eq!(
        (full[0].topics["news"], full[1].topics["news"]),
        (false, true)
    );
    assert_eq!(full[1].last_name.as_deref(), Some("4"));
}

#[test]
fn a_blocking_list_returns_contacts_in_full() {
    let server = MockServer::builder()
        .topic("news", true)
        .seed_contact("ada@x.io")
        .seed_contact("bob@x.io")
        .start_blocking();
    let client = server.client();
    server.fault(Fault::status(404).body(GONE).path("/contacts/ada%40x.io"));

    let mut iter = client.contacts().list().full().concurrency(2).wait();
    let bob = iter.next().unwrap().unwrap();

    assert_eq!((bob.email.as_str(), bob.topics["news"]), ("bob@x.io", true));
    assert_eq!(iter.stream().cursor(), Some(&*bob.id));
    assert!(iter.next().is_none());
    let stream = iter.into_stream();
    assert_eq!(stream.vanished(), 1);
}

#[tokio::test]
async fn a_contact_that_vanished_is_skipped_and_counted() {
    let (server, contacts) = five_contacts().await;
    for n in [4, 2, 0] {
        let fault = Fault::status(404).body(GONE);
        server.fault(fault.path(format!("/contacts/{n}%40x.io")));
    }

    let mut stream = contacts.list().limit(2).full();
    let full: Vec<Contact> = stream.by_ref().try_collect().await.unwrap();

    assert_eq!(addresses(&full), ["3@x.io", "1@x.io"]);
    assert_eq!(stream.vanished(), 3);
    let oldest = &server.contact("0@x.io").unwrap().id;
    assert_eq!(stream.cursor(), Some(&**oldest));
}

#[tokio::test]
async fn a_404_that_is_not_from_the_service_is_an_error() {
    let (server, contacts) = five_contacts().await;
    let fault = Fault::status(404).body("<html>").path("/contacts/3%40x.io");
    server.fault(fault.times(1));

    let items: Vec<_> = contacts.list().full().collect().await;

    assert_eq!(items[1].as_ref().unwrap_err().status().unwrap(), 404);
    assert_eq!(items[2].as_ref().unwrap().email, "3@x.io");
    assert_eq!(items.len(), 6);
}

#[tokio::test]
async fn a_503_with_the_code_of_a_missing_contact_leaves_out_no_contact() {
    let (server, contacts) = five_contacts().await;
    let fault = Fault::status(503).body(GONE).path("/contacts/3%40x.io");
    server.fault(fault.times(1));

    let mut stream = contacts.list().retry(RetryPolicy::none()).full();
    let items: Vec<_> = stream.by_ref().collect().await;

    assert_eq!(items[1].as_ref().unwrap_err().status().unwrap(), 503);
    assert_eq!(items[2].as_ref().unwrap().email, "3@x.io");
    assert_eq!((items.len(), stream.vanished()), (6, 0));
}

#[tokio::test]
async fn a_contact_that_could_not_be_retrieved_is_retrieved_again() {
    let (server, contacts) = five_contacts().await;
    server.fault(Fault::status(500).path("/contacts/3%40x.io").times(2));

    let mut stream = contacts.list().retry(RetryPolicy::none()).full();
    let mut seen = Vec::new();
    let mut cursors = Vec::new();
    while let Some(item) = stream.next().await {
        seen.push(item.map_or_else(|error| error.kind().to_string(), |contact| contact.email));
        cursors.push(stream.cursor().map(str::to_owned));
    }

    assert_eq!(
        seen,
        [
            "4@x.io", "api", "api", "3@x.io", "2@x.io", "1@x.io", "0@x.io"
        ]
    );
    let id = |address: &str| Some(server.contact(address).unwrap().id);
    assert_eq!(cursors[0], id("4@x.io"));
    assert_eq!(cursors[2], id("4@x.io"));
    assert_eq!(cursors[3], id("3@x.io"));
}

#[tokio::test]
async fn three_failures_in_a_row_end_the_stream_and_the_cursor_continues_it() {
    let (server, contacts) = five_contacts().await;
    server.fault(Fault::status(500).path("/contacts/2%40x.io").times(3));

    let mut stream = contacts.list().limit(2).retry(RetryPolicy::none()).full();
    let items: Vec<_> = stream.by_ref().collect().await;
    let cursor = stream.cursor().unwrap().to_owned();
    let rest: Vec<Contact> = contacts
        .list()
        .after(cursor)
        .full()
        .try_collect()
        .await
        .unwrap();

    assert!(stream.is_terminated());
    let failed: Vec<_> = items.iter().map(Result::is_err).collect();
    assert_eq!(failed, [false, false, true, true, true]);
    assert_eq!(addresses(&rest), ["2@x.io", "1@x.io", "0@x.io"]);
}

#[tokio::test]
async fn a_page_that_fails_is_an_error_after_the_contacts_before_it() {
    let (server, contacts) = five_contacts().await;
    server.fault(Fault::status(500).path("/contacts").after(1).times(1));
    server.fault(Fault::delay(Duration::from_millis(50)).path("/contacts/4%40x.io"));

    let stream = contacts.list().limit(2).retry(RetryPolicy::none()).full();
    let failed: Vec<_> = stream.map(|item| item.is_err()).collect().await;

    assert_eq!(failed, [false, false, true, false, false, false]);
}

#[tokio::test]
async fn malformed_contacts_are_errors_in_their_place_and_do_not_end_the_stream() {
    let server = respond_with(|request: &Request| match request.url.path() {
        "/contacts" if request.url.query().is_none() => {
            let mut page = page(&["c9", "c8", "c7", "c6"], "c1");
            for (index, email) in ["a", ".", "b", "b"].iter().enumerate() {
                page["data"][index]["email"] = (*email).into();
            }
            page["data"]
                .as_array_mut()
                .unwrap()
                .push(json!({"id": "c1"}));
            ok(page)
        }
        "/contacts" => ok(page(&[], "")),
        "/contacts/a" => ok(with(contact(), "email", "a")),
        _ => ok(json!({"id": "c2"})),
    })
    .await;

    let mut stream = contacts(server.uri()).list().full();
    let items: Vec<_> = in_time(stream.by_ref().collect()).await;

    let kinds: Vec<_> = items
        .iter()
        .map(|item: &Result<Contact, _>| item.as_ref().err().map(audience::Error::kind))
        .collect();
    let decode = Some(ErrorKind::Decode);
    assert_eq!(
        kinds,
        [None, Some(ErrorKind::Input), decode, decode, decode]
    );
    let mut errors = items.iter().filter_map(|item| item.as_ref().err());
    assert!(errors.all(audience::Error::is_malformed_contact));
    assert_eq!(stream.vanished(), 0);
    assert_eq!(stream.cursor(), Some("c1"));
}

/// Counts how many retrieve calls are open simultaneously.
#[derive(Clone, Default)]
struct Gauge {
    open: Arc<AtomicUsize>,
    most: Arc<AtomicUsize>,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn as_many_contacts_as_allowed_are_retrieved_at_once() {
    for allowed in [1, 3] {
        let gauge = Gauge::default();
        let url = serve_slowly(gauge.clone(), allowed > 1).await;

        let stream = contacts(url).list().full().concurrency(allowed);
        let count = in_time(stream.try_fold(0, |count, _| async move { Ok(count + 1) }));

        assert_eq!(count.await.unwrap(), 6);
        let most = gauge.most.load(Ordering::SeqCst);
        assert!(most <= allowed && (most > 1 || allowed == 1), "{most}");
    }
}

/// Serves six contacts. A retrieve call takes so long that most likely, one too many would be open meanwhile. If two are
/// expected, it takes until there were two.
async fn serve_slowly(gauge: Gauge, expects_two: bool) -> String {
    use axum::extract::RawQuery;
    use axum::routing::get;

    let list = async |RawQuery(query): RawQuery| {
        let ids = ["c9", "c8", "c7", "c6", "c5", "c4"];
        let ids = if query.is_none() { &ids[..] } else { &[] };
        axum::Json(page(ids, "c4"))
    };
    let retrieve = move || {
        let Gauge { open, most } = gauge.clone();
        async move {
            let now = open.fetch_add(1, Ordering::SeqCst) + 1;
            most.fetch_max(now, Ordering::SeqCst);
            tokio::time::sleep(Duration::from_millis(150)).await;
            until(|| !expects_two || most.load(Ordering::SeqCst) > 1).await;
            open.fetch_sub(1, Ordering::SeqCst);
            axum::Json(contact())
        }
    };
    let router = axum::Router::new()
        .route("/contacts", get(list))
        .route("/contacts/{address}", get(retrieve));
    format!("http://{}", support::serve(router).await)
}

#[test]
fn a_stream_outlives_the_runtime_that_retrieved_ahead() {
    let first = tokio::runtime::Runtime::new().unwrap();
    let server = MockServer::builder()
        .seed_contact("0@x.io")
        .seed_contact("1@x.io")
        .seed_contact("2@x.io")
        .start_blocking();
    server.fault(Fault::delay(Duration::from_millis(200)).path("/contacts/1%40x.io"));
    let mut stream = server.client().contacts().list().full();

    first.block_on(stream.try_next()).unwrap().unwrap();
    drop(first);
    let rest: Vec<Contact> = tokio::runtime::Runtime::new()
        .unwrap()
        .block_on(stream.try_collect())
        .unwrap();

    assert_eq!(addresses(&rest), ["1@x.io", "0@x.io"]);
}
