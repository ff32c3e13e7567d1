//! A limit of requests per second, which all calls of a client and its clones share.

use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use audience::client::ResponseFuture;
use audience::contacts::Page;
use audience::mock::{Fault, MockServer};
use audience::{Client, ErrorKind, Outcome, RetryPolicy};
use futures_util::FutureExt;
use futures_util::future::{join_all, try_join_all};

use support::{PATIENCE, builder, fast_retries, in_time, mock_builder};

fn limited(requests_per_second: u32) -> (MockServer, Client) {
    let server = MockServer::builder().start_blocking();
    let builder = mock_builder(&server).requests_per_second(requests_per_second);
    (server, builder.build().unwrap())
}

fn list(client: &Client) -> ResponseFuture<Page> {
    client.contacts().list().into_future()
}

/// Polls a call once, so that it takes its turn.
fn start(call: &mut ResponseFuture<Page>) -> Option<Result<Page, audience::Error>> {
    call.now_or_never()
}

/// Stops the clock of the runtime until the sender is dropped. `advance` moves it.
fn stop_clock() -> Sender<()> {
    let (keeps_clock, kept) = channel();
    tokio::time::pause();
    // While a blocking task runs, a paused clock does not move by itself.
    tokio::task::spawn_blocking(move || kept.recv().is_err());
    keeps_clock
}

/// Runs the other tasks for a moment, without moving the clock.
async fn moment() {
    let moment = || thread::sleep(Duration::from_millis(20));
    tokio::task::spawn_blocking(moment).await.unwrap();
}

/// Waits, without moving the clock, until the server has received this many requests.
async fn arrive(server: &MockServer, count: usize) {
    let start = Instant::now();
    while server.requests().len() < count {
        assert!(start.elapsed() < PATIENCE, "the request does not arrive");
        moment().await;
    }
}

async fn advance(milliseconds: u64) {
    tokio::time::advance(Duration::from_millis(milliseconds)).await;
    moment().await;
}

#[tokio::test]
async fn simultaneous_calls_of_all_clones_are_sent_one_after_the_other_in_their_order() {
    let (server, client) = limited(5);
    let _clock = stop_clock();

    // The timeout of an attempt is shorter than the wait for a turn.
    let calls = [1, 2, 3].map(|n| {
        let call = client.clone().contacts().list().limit(n);
        tokio::spawn(call.timeout(Duration::from_millis(150)).into_future())
    });
    for (call, sent) in calls.into_iter().zip(1..) {
        arrive(&server, sent).await;
        let requests = server.requests();
        let query = format!("limit={sent}");
        assert_eq!(requests[sent - 1].query.as_deref(), Some(query.as_str()));
        assert!(call.await.unwrap().is_ok());

        advance(190).await;
        assert_eq!(server.requests().len(), sent);
        advance(12).await;
    }
}

#[tokio::test]
async fn each_attempt_and_each_page_counts() {
    let (server, client) = limited(5);
    server.fault(Fault::status(503).times(1));
    let begin = Instant::now();

    list(&client).await.unwrap();
    assert!(begin.elapsed() >= Duration::from_millis(200));
    // A count reads the list to its empty end.
    server.seed_contact("ada@example.com");
    client.contacts().list().count().await.unwrap();

    assert_eq!(server.requests().len(), 4);
    assert!(begin.elapsed() >= Duration::from_millis(600));
}

#[test]
fn a_program_without_an_async_runtime_waits_for_its_turn() {
    let (_server, client) = limited(5);
    let begin = Instant::now();

    for _ in 0..2 {
        client.contacts().list().wait().unwrap();
    }

    assert!(begin.elapsed() >= Duration::from_millis(200));
}

#[tokio::test]
async fn a_call_whose_turn_comes_after_its_deadline_fails_immediately_and_sends_nothing() {
    let (server, client) = limited(1);
    let hurried = client.contacts().list();
    let hurried = hurried.deadline(Duration::from_millis(500));
    let _clock = stop_clock();

    let (first, late) = tokio::join!(list(&client), hurried.into_future());

    let late = late.unwrap_err();
    assert!(first.is_ok());
    assert_eq!(
        late.to_string(),
        "list: the limit of requests per second (1) allows this request only after the deadline of 500ms, so it was not sent"
    );
    assert_eq!(
        (late.kind(), late.outcome(), late.attempts()),
        (ErrorKind::Timeout, Outcome::NotSent, 0)
    );
    assert!(late.is_retryable());
    assert_eq!(server.requests().len(), 1);
}

#[tokio::test]
async fn a_retry_whose_turn_comes_after_the_deadline_leaves_the_error_of_the_attempt() {
    let (server, client) = limited(1);
    server.fault(Fault::status(503));
    let mut call = list(&client);
    assert!(start(&mut call).is_none());
    // They have the turns of the next minute. The deadline is 45 s.
    let other = || client.contacts().list().no_deadline().into_future();
    let mut others: Vec<_> = (0..60).map(|_| other()).collect();
    assert!(others.iter_mut().all(|other| start(other).is_none()));

    let error = in_time(call).await.unwrap_err();

    assert_eq!(error.status().unwrap(), 503);
    assert_eq!((error.attempts(), server.requests().len()), (1, 1));
}

#[tokio::test]
async fn a_call_that_is_dropped_gives_its_turn_to_another_call() {
    let (_server, client) = limited(1);
    let _clock = stop_clock();
    let [mut first, mut dropped, mut next] = [(); 3].map(|()| list(&client));
    assert!(start(&mut first).is_none());
    assert!(start(&mut dropped).is_none());
    drop(dropped);

    // The turn of the dropped call comes in a second, and the one after it in two.
    assert!(start(&mut next).is_none());
    let late = client
        .contacts()
        .list()
        .deadline(Duration::from_millis(1_500));
    let late = late.into_future().now_or_never().unwrap();

    assert_eq!(late.unwrap_err().kind(), ErrorKind::Timeout);
    advance(1_001).await;
    assert!(next.await.is_ok());
}

#[tokio::test]
async fn a_429_also_holds_back_the_calls_that_wait_for_their_turn() {
    let (server, client) = limited(1);
    let policy = fast_retries().max_retry_after(Duration::from_secs(60));
    server.fault(Fault::status(429).retry_after(3).times(1));
    let _clock = stop_clock();
    let limited = client.contacts().list().retry(RetryPolicy::none());
    let limited = tokio::spawn(limited.into_future());
    let waiting = client.contacts().list().retry(policy);
    let waiting = tokio::spawn(waiting.into_future());

    let limited = limited.await.unwrap().unwrap_err();
    // Its turn comes, and the hold has not ended.
    advance(1_001).await;

    assert!(limited.is_rate_limited());
    assert_eq!(server.requests().len(), 1);
    advance(3_000).await;
    assert!(waiting.await.unwrap().is_ok());
}

#[tokio::test]
async fn the_calls_after_a_hold_take_turns() {
    let (server, client) = limited(5);
    server.fault(Fault::status(429).retry_after(1).times(1));
    let begin = Instant::now();
    let limited = client.contacts().list().retry(RetryPolicy::none()).await;
    assert!(limited.unwrap_err().is_rate_limited());

    let policy = fast_retries().max_retry_after(Duration::from_secs(60));
    let calls = [(); 4].map(|()| client.contacts().list().retry(policy.clone()).into_future());
    in_time(try_join_all(calls)).await.unwrap();

    // Without turns, all would be sent within 100 ms of the end of the hold.
    assert!(begin.elapsed() >= Duration::from_millis(1_590));
}

#[tokio::test]
async fn without_a_limit_no_call_waits() {
    let server = MockServer::builder().start_blocking();
    let client = mock_builder(&server).build().unwrap();
    let _clock = stop_clock();

    let results = join_all((0..50).map(|_| list(&client))).await;

    assert!(results.iter().all(Result::is_ok));
}

#[test]
fn a_limit_of_zero_is_refused() {
    let error = builder("http://localhost").requests_per_second(0).build();

    let error = error.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Config);
    assert_eq!(
        error.to_string(),
        "the limit of requests per second is 0; without `requests_per_second`, there is no limit"
    );
}

#[test]
fn a_client_and_its_builder_show_the_limit() {
    let builder = builder("http://localhost").requests_per_second(7);
    let shown = "requests_per_second: Some(7)";

    assert!(format!("{builder:?}").contains(shown));
    assert!(format!("{:?}", builder.build().unwrap()).contains(shown));
}
