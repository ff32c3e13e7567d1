//! Builders convert to futures, which go wherever a future goes, and are sent once.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use audience::contacts::NewContact;
use audience::mock::MockServer;
use audience::{Client, Error, ErrorKind, Method};
use futures_util::future::{join_all, try_join_all};
use futures_util::stream::{FuturesUnordered, StreamExt, TryStreamExt, iter};

use support::{PATIENCE, client, in_time, mock_builder};

const ADDRESSES: [&str; 3] = ["ada@x.io", "bob@x.io", "cy@x.io"];

async fn mock() -> (MockServer, Client) {
    let server = MockServer::start().await;
    let client = mock_builder(&server).build().unwrap();
    let entries = ADDRESSES.map(NewContact::new);
    let report = client.contacts().create_batch(entries).await.unwrap();
    assert_eq!(report.failures().count(), 0);
    (server, client)
}

fn poll_once<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    Pin::new(future).poll(&mut Context::from_waker(Waker::noop()))
}

#[tokio::test]
async fn a_call_is_spawned_joined_selected_and_timed() {
    let (_server, client) = mock().await;
    let contacts = client.contacts();
    let retrieve = |address: &str| contacts.retrieve(address).into_future();

    let spawned = tokio::spawn(retrieve("ada@x.io")).await.unwrap().unwrap();
    let (ada, page) = tokio::join!(retrieve("ada@x.io"), contacts.list().into_future());
    let timed = tokio::time::timeout(PATIENCE, contacts.list().count()).await;
    let selected = tokio::select! {
        contact = retrieve("ada@x.io") => contact.unwrap(),
        () = tokio::time::sleep(PATIENCE) => panic!("the call hangs"),
    };
    let raw = tokio::spawn(client.request(Method::GET, ["contacts"]).into_future());

    assert_eq!(spawned, ada.unwrap());
    assert_eq!(spawned, selected);
    assert_eq!(page.unwrap().data.len(), 3);
    assert_eq!(timed.unwrap().unwrap(), 3);
    assert_eq!(raw.await.unwrap().unwrap().status(), 200);
}

#[tokio::test]
async fn many_calls_run_side_by_side() {
    let (_server, client) = mock().await;
    let contacts = client.contacts();
    let calls = || ADDRESSES.map(|address| contacts.retrieve(address).into_future());

    let joined = try_join_all(calls()).await.unwrap();
    let results = join_all(calls()).await;
    let buffered: Vec<_> = iter(calls()).buffered(2).try_collect().await.unwrap();
    let unordered = iter(calls()).buffer_unordered(2).count().await;
    let unordered_too: FuturesUnordered<_> = calls().into_iter().collect();

    let addresses: Vec<_> = joined
        .iter()
        .map(|contact| contact.email.as_str())
        .collect();
    assert_eq!(addresses, ADDRESSES);
    assert!(results.iter().all(Result::is_ok));
    assert_eq!(buffered, joined);
    assert_eq!((unordered, unordered_too.count().await), (3, 3));
}

#[tokio::test]
async fn a_call_sends_nothing_before_its_first_poll_and_one_request_after_many() {
    let (server, client) = mock().await;
    server.clear_requests();
    let mut call = client.contacts().retrieve("ada@x.io").into_future();
    assert!(server.requests().is_empty());

    let contact = in_time(poll_fn(|context| Pin::new(&mut call).poll(context))).await;

    assert_eq!(contact.unwrap().email, "ada@x.io");
    assert_eq!(server.requests().len(), 1);
}

#[tokio::test]
async fn a_clone_of_a_builder_is_a_call_of_its_own() {
    let (server, client) = mock().await;
    let call = client.contacts().unsubscribe("ada@x.io");
    let count = client.contacts().list().count();
    let (again, count_again) = (call.clone(), count.clone());
    server.clear_requests();

    in_time(call.into_future()).await.unwrap();

    assert!(in_time(again.into_future()).await.unwrap().unsubscribed);
    assert_eq!(in_time(count_again.into_future()).await.unwrap(), 3);
    assert_eq!(in_time(count.into_future()).await.unwrap(), 3);
    assert_eq!(server.requests().len(), 6);
}

#[tokio::test]
async fn an_argument_that_cannot_be_sent_fails_at_the_first_poll() {
    let client = client("http://localhost:1");

    let call = client.contacts().retrieve("");
    let raw = client.request(Method::GET, [""]);
    let failed: [Result<(), Error>; 2] = [call.await.map(drop), raw.await.map(drop)];

    for result in failed {
        assert_eq!(result.unwrap_err().kind(), ErrorKind::Input);
    }
}

#[tokio::test]
#[should_panic(expected = "resumed after completion")]
async fn a_call_polled_after_its_result_panics_as_an_async_function_does() {
    let mut call = client("http://localhost:1")
        .contacts()
        .retrieve("")
        .into_future();
    assert!(poll_once(&mut call).is_ready());

    let _ = poll_once(&mut call);
}

#[tokio::test]
async fn a_raw_request_and_the_settings_of_a_client_can_be_cloned() {
    let (server, _) = mock().await;
    let settings = mock_builder(&server);

    let client = settings.clone().user_agent("first/1").build().unwrap();
    let request = client
        .request(Method::GET, ["contacts"])
        .query("limit", "1");
    let invalid = client.request(Method::GET, [".."]).header("x", "y");
    server.clear_requests();
    request.clone().await.unwrap();
    request.await.unwrap();
    settings.build().unwrap().contacts().list().await.unwrap();

    let requests = server.requests();
    assert_eq!(requests[0].query, requests[1].query);
    let agents = requests.iter().map(|request| request.header("user-agent"));
    let names: Vec<_> = agents
        .map(|agent| agent.unwrap().starts_with("first/1"))
        .collect();
    assert_eq!(names, [true, true, false]);
    for error in [
        invalid.clone().await.unwrap_err(),
        invalid.await.unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::Input);
        assert!(error.to_string().contains("would reach another endpoint"));
    }
}
