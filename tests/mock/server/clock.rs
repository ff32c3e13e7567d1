//! The clock: running, advanced and set.

use std::sync::Arc;
use std::time::Duration;

use audience::Timestamp;
use audience::mock::MockServer;
use serde_json::json;
use tokio::io::AsyncReadExt;
use tokio::sync::Semaphore;

use support::cancellation::{for_each_number_of_polls, poll_times, until};
use support::in_time;

use super::raw_receiver::{blocked_receiver, raw_receiver};
use super::{FIVE_HOURS, START, offsets, stopped_server};
use crate::receiver::{Receiver, SECRET};

/// Returns a server, whose receiver counts the deliveries and responds to each with a permit.
async fn server_with_blocked_receiver() -> (MockServer, Arc<Semaphore>, Arc<Semaphore>) {
    let server = stopped_server().await;
    let (url, received, permits) = blocked_receiver().await;
    server.webhook_endpoint(&url, SECRET);
    (server, received, permits)
}

#[tokio::test]
async fn a_running_clock_follows_the_system_clock() {
    let server = MockServer::start().await;
    // A busy machine may need seconds to read one clock after the other.
    let assert_ahead = |seconds: i64| {
        let before = Timestamp::now().as_unix();
        let now = server.now().as_unix() - seconds;
        let after = Timestamp::now().as_unix();
        assert!(
            (before - 1..=after + 1).contains(&now),
            "{before} {now} {after}"
        );
    };

    assert_ahead(0);
    server.advance(Duration::from_secs(3_600));
    assert_ahead(3_600);
    server.reset();
    assert_ahead(0);
}

#[tokio::test]
async fn the_clock_can_be_set_forward_and_backward() {
    let server = MockServer::builder().clock(1_000).start().await;

    server.set_clock(5_000).await;
    assert_eq!(server.now().as_unix(), 5_000);
    server.set_clock(2_000).await;
    assert_eq!(server.now().as_unix(), 2_000);
}

#[tokio::test]
async fn the_clock_moves_without_being_awaited() {
    let server = stopped_server().await;
    let receiver = Receiver::start([500, 500]).await;
    server.webhook_endpoint(&receiver.url, SECRET);
    server.send_event(json!({"type": "email.opened"})).await;

    // The second advance continues where the first ends.
    server.advance(Duration::from_secs(60));
    server.advance(Duration::from_secs(60));

    // The receiver runs on this thread, which must not block.
    while server.attempts().len() < 3 || server.now().as_unix() < START + 120 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(server.now().as_unix(), START + 120);
    assert_eq!(offsets(&server.attempts()), [0, 35, 105]);
}

#[tokio::test]
async fn a_clock_set_during_an_advance_ends_at_the_set_time() {
    let (server, received, permits) = server_with_blocked_receiver().await;
    let sent = server.send_event(json!({"type": "email.opened"}));

    let moved = async {
        received.acquire().await.unwrap().forget();
        server.advance(Duration::from_secs(100));
        let set = server.set_clock(START + 1_000);
        permits.add_permits(1);
        set.await;
    };
    tokio::join!(sent, moved);

    assert_eq!(server.now().as_unix(), START + 1_000);
}

#[tokio::test]
async fn send_event_waits_for_the_attempt_even_if_the_clock_is_set_back() {
    let (server, received, permits) = server_with_blocked_receiver().await;
    let sent = async {
        server.send_event(json!({"type": "email.opened"})).await;
        server.attempts().len()
    };

    let set_back = async {
        received.acquire().await.unwrap().forget();
        server.set_clock(START - 100).await;
        // Enough time for `send_event` to return too early.
        tokio::time::sleep(Duration::from_millis(50)).await;
        permits.add_permits(1);
    };
    let (attempts, ()) = tokio::join!(sent, set_back);

    assert_eq!(attempts, 1);
    assert_eq!(server.now().as_unix(), START - 100);
}

#[tokio::test]
async fn nothing_waits_for_an_attempt_that_is_no_longer_due_because_the_clock_was_set_back() {
    let (server, received, permits) = server_with_blocked_receiver().await;
    let opened = json!({"type": "email.opened"});

    let set_back = async {
        received.acquire().await.unwrap().forget();
        server.set_clock(START - 100).await;
        permits.add_permits(1);
    };
    // The second waits for the first: an endpoint gets one event at a time.
    let sends =
        async { tokio::join!(server.send_event(opened.clone()), server.send_event(opened)) };
    let (sent, ()) = in_time(async { tokio::join!(sends, set_back) }).await;

    assert_eq!(sent, ("evt_1".to_owned(), "evt_2".to_owned()));
    let attempted = || {
        let attempts = server.attempts().into_iter();
        attempts.map(|attempt| attempt.event_id).collect::<Vec<_>>()
    };
    assert_eq!(attempted(), ["evt_1"]);
    permits.add_permits(1);
    server.advance(Duration::from_secs(100)).await;
    assert_eq!(attempted(), ["evt_1", "evt_2"]);
}

#[tokio::test]
async fn an_awaited_advance_ends_when_the_clock_is_set_back() {
    let (server, received, permits) = server_with_blocked_receiver().await;
    let sent = server.send_event(json!({"type": "email.opened"}));

    let set_back = async {
        received.acquire().await.unwrap().forget();
        let advance = server.advance(FIVE_HOURS);
        server.set_clock(START - 100);
        advance.await;
        permits.add_permits(1);
    };
    tokio::join!(sent, set_back);

    assert_eq!(server.now().as_unix(), START - 100);
}

#[tokio::test]
async fn an_awaited_advance_goes_on_when_the_clock_is_set_to_where_it_ends() {
    let (server, received, permits) = server_with_blocked_receiver().await;
    let sent = server.send_event(json!({"type": "email.opened"}));

    let moved = async {
        received.acquire().await.unwrap().forget();
        let advance = server.advance(Duration::from_secs(100));
        server.set_clock(START + 100);
        permits.add_permits(1);
        advance.await;
        server.now().as_unix()
    };
    let (_, now) = tokio::join!(sent, moved);

    assert_eq!(now, START + 100);
}

#[tokio::test]
async fn an_awaited_advance_ends_when_the_server_is_dropped() {
    let silent = raw_receiver(|mut stream| async move {
        let _ = stream.read_to_end(&mut Vec::new()).await;
    })
    .await;
    let server = stopped_server().await;
    server.webhook_endpoint(&silent, SECRET);
    tokio::select! {
        biased;
        _ = server.send_event(json!({"type": "email.sent"})) => panic!("the silent endpoint has responded"),
        () = tokio::task::yield_now() => {}
    }
    let advance = server.advance(FIVE_HOURS);

    drop(server);

    in_time(advance).await;
}

#[tokio::test]
async fn an_awaited_advance_ends_with_a_reset_even_if_the_clock_is_advanced_again() {
    let silent = raw_receiver(|mut stream| async move {
        let _ = stream.read_to_end(&mut Vec::new()).await;
    })
    .await;
    let server = stopped_server().await;
    let advance_without_end = async || {
        server.webhook_endpoint(&silent, SECRET);
        tokio::select! {
            biased;
            _ = server.send_event(json!({"type": "email.sent"})) => panic!("the silent endpoint has responded"),
            () = tokio::task::yield_now() => {}
        }
        server.advance(FIVE_HOURS)
    };

    let before = advance_without_end().await;
    server.reset();
    let _after = advance_without_end().await;

    in_time(before).await;
}

#[tokio::test]
async fn an_event_is_delivered_and_the_clock_moves_if_their_futures_are_dropped_after_any_number_of_polls()
 {
    let polls = for_each_number_of_polls(async |polls| {
        let receiver = Receiver::start([]).await;
        let server = stopped_server().await;
        server.webhook_endpoint(&receiver.url, SECRET);
        let event = || json!({"type": "email.opened"});
        let received = || receiver.received().len();
        let start = server.now().as_unix();

        let ended = poll_times(polls, server.send_event(event())).await;
        let sent = usize::from(polls > 0);
        until(|| received() >= sent).await;
        let id = in_time(server.send_event(event())).await;
        poll_times(polls, server.redeliver(&id)).await;
        until(|| received() > 2 * sent).await;
        let an_hour = Duration::from_secs(3_600);
        poll_times(polls, server.advance(an_hour).into_future()).await;
        in_time(server.advance(an_hour)).await;

        assert_eq!(server.now().as_unix() - start, 2 * 3_600);
        assert_eq!(received(), 1 + 2 * sent, "{polls}");
        ended.is_some()
    })
    .await;

    assert!(polls > 1, "{polls}");
}
