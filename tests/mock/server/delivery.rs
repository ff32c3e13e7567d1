//! Webhook deliveries: what is sent, when, and what counts as a success.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use audience::mock::{DeliveryAttempt, MockServer, SegmentKind};
use audience::webhooks::Verifier;
use serde_json::{Value, json};
use support::cancellation::until;
use support::{PATIENCE, in_time};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::Semaphore;

use super::control::call;
use super::raw_receiver::raw_receiver;
use super::{FIVE_HOURS, START, ada, get, json_of, offsets, post, running_server, stopped_server};
use crate::receiver::{NO_RESPONSE, Receiver, SECRET};

/// The seconds from the first attempt to each of the ten.
const SCHEDULE: [i64; 10] = [0, 35, 105, 245, 525, 1_085, 2_205, 4_445, 8_925, 17_885];

#[tokio::test]
async fn an_event_is_delivered_signed_and_in_its_envelope() {
    let server = stopped_server().await;
    let receiver = Receiver::start([]).await;
    server.webhook_endpoint(&receiver.url, SECRET);
    let verifier = Verifier::builder()
        .secret("2026", SECRET)
        .clock(server.clock())
        .build()
        .unwrap();

    let id = server
        .send_event(json!({"type": "email.bounced", "data": {"to": "ada@example.com"}}))
        .await;

    let [received] = &receiver.received()[..] else {
        panic!("expected one delivery");
    };
    let event = verifier.verify(&received.headers, &received.body).unwrap();
    assert_eq!(event.id.as_str(), id);
    assert_eq!(event.mail().unwrap().to, "ada@example.com");
    assert_eq!(received.header("webhook-event"), "email.bounced");
    assert_eq!(received.header("webhook-timestamp"), START.to_string());
    assert_eq!(received.header("content-type"), "application/json");
    assert_eq!(received.json()["created_at"], START);
    let [attempt] = &server.attempts()[..] else {
        panic!("expected one attempt");
    };
    assert!(attempt.is_success());
    assert_eq!((attempt.attempt, attempt.next_at), (1, None));
    assert_eq!(attempt.endpoint, receiver.url);
}

#[tokio::test]
async fn ten_attempts_are_made_over_about_five_hours_each_at_its_due_time() {
    let server = stopped_server().await;
    let receiver = Receiver::with_clock([500; 10], server.clock()).await;
    server.webhook_endpoint(&receiver.url, SECRET);

    server.send_event(json!({"type": "email.opened"})).await;
    server.advance(2 * FIVE_HOURS).await;

    let attempts = server.attempts();
    assert_eq!(offsets(&attempts), SCHEDULE);
    assert_eq!(
        attempts.iter().map(|a| a.attempt).collect::<Vec<_>>(),
        (1..=10).collect::<Vec<_>>()
    );
    assert!(
        attempts
            .iter()
            .all(|attempt| attempt.status == Some(500) && !attempt.is_success())
    );
    for pair in attempts.windows(2) {
        assert_eq!(pair[0].next_at, Some(pair[1].at));
    }
    assert_eq!(attempts[9].next_at, None);
    let seen: Vec<_> = receiver
        .received()
        .iter()
        .map(|r| r.at.unwrap().as_unix() - START)
        .collect();
    assert_eq!(seen, SCHEDULE);
    assert_eq!(server.now().as_unix() - START, 2 * 5 * 3_600);
}

#[tokio::test]
async fn every_attempt_sends_the_same_bytes_with_a_new_signature() {
    let server = stopped_server().await;
    let receiver = Receiver::start([500, 500]).await;
    server.webhook_endpoint(&receiver.url, SECRET);

    server.send_event(json!({"type": "email.opened"})).await;
    server.advance(FIVE_HOURS).await;

    let [first, second, third] = &receiver.received()[..] else {
        panic!("expected two failures and a success");
    };
    assert_eq!((&first.body, &second.body), (&second.body, &third.body));
    assert_ne!(
        first.header("webhook-signature"),
        second.header("webhook-signature")
    );
    assert_eq!(second.header("webhook-timestamp"), (START + 35).to_string());
    assert_eq!(third.header("webhook-timestamp"), (START + 105).to_string());
    // Five hours later, all of them are too late but correctly signed.
    let verifier = Verifier::builder()
        .secret("2026", SECRET)
        .clock(server.clock())
        .build()
        .unwrap();
    for received in receiver.received() {
        let error = verifier
            .verify(&received.headers, &received.body)
            .unwrap_err();
        assert!(
            matches!(error, audience::webhooks::VerifyError::TooLate { .. }),
            "{error:?}"
        );
    }
}

#[tokio::test]
async fn nothing_is_retried_before_it_is_due() {
    let server = stopped_server().await;
    let receiver = Receiver::start([500]).await;
    server.webhook_endpoint(&receiver.url, SECRET);
    server.send_event(json!({"type": "email.opened"})).await;

    server.advance(Duration::from_secs(34)).await;
    assert_eq!(receiver.received().len(), 1);

    server.advance(Duration::from_secs(1)).await;
    assert_eq!(receiver.received().len(), 2);
}

#[tokio::test]
async fn a_redirect_is_a_failed_attempt_and_is_not_followed() {
    let server = stopped_server().await;
    let receiver = Receiver::start([302]).await;
    server.webhook_endpoint(&receiver.url, SECRET);

    server.send_event(json!({"type": "email.opened"})).await;

    let attempts = server.attempts();
    assert_eq!(attempts.len(), 1);
    assert_eq!(
        (attempts[0].status, attempts[0].is_success()),
        (Some(302), false)
    );
    assert_eq!(attempts[0].next_at.unwrap().as_unix(), START + 35);
}

#[tokio::test]
async fn an_attempt_without_a_complete_response_in_time_fails() {
    let silent = raw_receiver(|mut stream| async move {
        let _ = stream.read_to_end(&mut Vec::new()).await;
    })
    .await;
    let endless = raw_receiver(|mut stream| async move {
        let _ = stream
            .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 99999999999\r\n\r\n")
            .await;
        while stream.write_all(&[b' '; 65_536]).await.is_ok() {}
    })
    .await;
    let dripping = raw_receiver(|mut stream| async move {
        let _ = stream
            .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 9999\r\n\r\n")
            .await;
        while stream.write_all(b" ").await.is_ok() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
    let garbled = raw_receiver(|mut stream| async move {
        let _ = stream.write_all(b"hello\r\n").await;
    })
    .await;
    let nobody = "http://127.0.0.1:9/hook".to_owned();
    let server = MockServer::builder()
        .clock(START)
        .delivery_timeout(Duration::from_secs(1))
        .start()
        .await;
    for url in [&silent, &endless, &dripping, &garbled, &nobody] {
        server.webhook_endpoint(url, SECRET);
    }

    server.send_event(json!({"type": "email.opened"})).await;

    let attempts = server.attempts();
    let endpoints: Vec<_> = attempts
        .iter()
        .map(|attempt| attempt.endpoint.clone())
        .collect();
    assert_eq!(
        endpoints,
        [&silent, &endless, &dripping, &garbled, &nobody].map(String::clone)
    );
    for attempt in &attempts {
        assert_eq!(attempt.status, None, "{attempt:?}");
        assert_eq!(
            attempt.next_at.unwrap().as_unix(),
            START + 35,
            "{attempt:?}"
        );
    }
    let error = |index: usize| attempts[index].error.as_deref().unwrap();
    assert!(error(0).contains("timed out after 1s"), "{}", error(0));
    assert!(error(1).contains("timed out after 1s"), "{}", error(1));
    assert!(error(2).contains("timed out after 1s"), "{}", error(2));
    assert!(error(4).contains("refused"), "{}", error(4));
}

#[tokio::test]
async fn a_response_of_any_length_is_a_success() {
    let long_response = raw_receiver(|mut stream| async move {
        let _ = stream
            .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 3000000\r\n\r\n")
            .await;
        let _ = stream.write_all(&vec![b' '; 3_000_000]).await;
    })
    .await;
    let server = stopped_server().await;
    server.webhook_endpoint(&long_response, SECRET);

    server.send_event(json!({"type": "email.opened"})).await;

    let attempts = server.attempts();
    assert!(attempts[0].is_success(), "{attempts:?}");
}

#[tokio::test]
async fn with_a_stopped_clock_deliveries_are_made_in_the_same_order_on_every_run() {
    let server = stopped_server().await;
    let receiver = Receiver::start([500, 200, 500]).await;
    let other = Receiver::start([]).await;
    server.webhook_endpoint(&receiver.url, SECRET);
    server.webhook_endpoint(&other.url, SECRET);

    for _ in 0..3 {
        server.send_event(json!({"type": "email.opened"})).await;
    }
    server.advance(FIVE_HOURS).await;

    assert_eq!(
        receiver.ids(),
        ["evt_1", "evt_2", "evt_3", "evt_1", "evt_3"]
    );
    assert_eq!(other.ids(), ["evt_1", "evt_2", "evt_3"]);
    let log: Vec<_> = server
        .attempts()
        .iter()
        .map(|attempt| {
            (
                attempt.event_id.clone(),
                attempt.endpoint == receiver.url,
                attempt.attempt,
            )
        })
        .collect();
    let expected = [
        ("evt_1", true, 1),
        ("evt_1", false, 1),
        ("evt_2", true, 1),
        ("evt_2", false, 1),
        ("evt_3", true, 1),
        ("evt_3", false, 1),
        ("evt_1", true, 2),
        ("evt_3", true, 2),
    ];
    assert_eq!(
        log,
        expected.map(|(id, first, attempt)| (id.to_owned(), first, attempt))
    );
}

#[tokio::test]
async fn a_slow_endpoint_does_not_block_another() {
    let silent = raw_receiver(|mut stream| async move {
        let _ = stream.read_to_end(&mut Vec::new()).await;
    })
    .await;
    let server = MockServer::builder()
        .delivery_timeout(2 * PATIENCE)
        .start()
        .await;
    let receiver = Receiver::start([]).await;
    server.webhook_endpoint(&silent, SECRET);
    server.webhook_endpoint(&receiver.url, SECRET);

    let (first, second) = (
        json!({"type": "email.sent"}),
        json!({"type": "email.opened"}),
    );
    let sent = async { tokio::join!(server.send_event(first), server.send_event(second)) };
    let both_received = async {
        while receiver.received().len() < 2 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };

    tokio::select! {
        _ = sent => panic!("the silent endpoint has responded"),
        () = both_received => {}
        () = tokio::time::sleep(PATIENCE) => panic!("the deliveries are blocked"),
    }
}

#[tokio::test]
async fn with_a_running_clock_the_deliveries_at_once_are_limited() {
    let (open, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (count, peak) = (Arc::clone(&open), Arc::clone(&most));
    let busy = raw_receiver(move |mut stream| {
        let (count, peak) = (Arc::clone(&count), Arc::clone(&peak));
        async move {
            peak.fetch_max(count.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            tokio::time::sleep(Duration::from_millis(5)).await;
            count.fetch_sub(1, Ordering::SeqCst);
            let _ = stream
                .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
                .await;
        }
    })
    .await;
    let builder = MockServer::builder().delivery_timeout(PATIENCE);
    let server = builder.start().await;
    server.webhook_endpoint(&busy, SECRET);
    let to: Vec<_> = (0..150).map(|n| format!("{n}@example.com")).collect();

    let mail = json!({"from": "me@example.com", "to": to, "subject": "Hi"});
    post(&server, "/emails", &mail).await.unwrap();
    while server.attempts().len() < 300 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }

    assert!(server.attempts().iter().all(DeliveryAttempt::is_success));
    let most = most.load(Ordering::SeqCst);
    assert!(most <= 16, "{most} at once");
}

#[tokio::test]
async fn with_a_running_clock_a_retry_is_made_in_real_time() {
    let server = running_server().await;
    let receiver = Receiver::start([500]).await;
    server.webhook_endpoint(&receiver.url, SECRET);
    server.send_event(json!({"type": "email.opened"})).await;

    // About a second remains.
    server.advance(Duration::from_secs(34)).await;

    let before = Instant::now();
    while server.attempts().len() < 2 {
        assert!(before.elapsed() < PATIENCE, "no retry");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let [first, second] = &server.attempts()[..] else {
        panic!("expected two attempts");
    };
    let gap = second.at.as_unix() - first.at.as_unix();
    assert!(gap >= 35, "{gap} s");
}

#[tokio::test]
async fn a_redelivery_sends_the_same_event_and_is_not_retried() {
    let server = stopped_server().await;
    let receiver = Receiver::start([200, 500, 200]).await;
    server.webhook_endpoint(&receiver.url, SECRET);
    let id = server.send_event(json!({"type": "email.opened"})).await;

    server.advance(Duration::from_secs(10)).await;
    server.redeliver(&id).await;
    server.advance(FIVE_HOURS).await;

    let [first, second] = &receiver.received()[..] else {
        panic!("expected two deliveries: a failed redelivery is not retried");
    };
    assert_eq!(first.body, second.body);
    assert_eq!(second.header("webhook-timestamp"), (START + 10).to_string());
    let attempts = server.attempts();
    assert_eq!(
        (attempts[1].attempt, attempts[1].status, attempts[1].next_at),
        (2, Some(500), None)
    );
}

#[tokio::test]
#[should_panic(expected = "there is no event \"evt_9\"")]
async fn redelivering_an_unknown_event_panics() {
    stopped_server().await.redeliver("evt_9").await;
}

#[tokio::test]
#[should_panic(expected = "missing field `type`")]
async fn an_event_without_a_type_panics_with_the_reason() {
    stopped_server().await.send_event(json!({"data": {}})).await;
}

#[tokio::test]
async fn an_event_can_have_a_given_id_and_any_type() {
    let server = stopped_server().await;
    let receiver = Receiver::start([]).await;
    server.webhook_endpoint(&receiver.url, SECRET);
    let event = json!({"id": "evt_mine", "type": "email.teleported", "created_at": 5, "data": {"a": [1.5, null]}});

    let id = server.send_event(event.clone()).await;

    assert_eq!(id, "evt_mine");
    assert_eq!(receiver.received()[0].json(), event);
    assert_eq!(
        receiver.received()[0].header("webhook-event"),
        "email.teleported"
    );
}

#[tokio::test]
async fn sending_mail_causes_events() {
    let server = stopped_server().await;
    let receiver = Receiver::start([]).await;
    server.webhook_endpoint(&receiver.url, SECRET);
    server.report_spam("spam@example.com");

    let mail = json!({"from": "me@example.com", "to": ["ada@example.com", "spam@example.com"], "subject": "Hi"});
    let response = post(&server, "/emails", &mail).await.unwrap();
    assert!(response.status().is_success());
    server.advance(Duration::from_secs(1)).await;

    let seen: Vec<_> = receiver
        .received()
        .iter()
        .map(|received| {
            (
                received.header("webhook-event").to_owned(),
                received.json()["data"]["to"].clone(),
            )
        })
        .collect();
    let expected = [
        ("email.complained", "spam@example.com"),
        ("email.sent", "ada@example.com"),
        ("email.delivered", "ada@example.com"),
        ("email.refused", "spam@example.com"),
    ];
    assert_eq!(
        seen,
        expected.map(|(event, to)| (event.to_owned(), to.into()))
    );
}

#[tokio::test]
async fn of_a_mail_to_very_many_the_newest_ten_thousand_events_are_delivered_in_their_order() {
    // The mock waits for the fourth response as long as the test may take.
    let receiver = Receiver::start([200, 200, 200, NO_RESPONSE]).await;
    let server = MockServer::builder()
        .clock(START)
        .delivery_timeout(2 * PATIENCE)
        .webhook_endpoint(&receiver.url, SECRET)
        .start()
        .await;
    let to: Vec<_> = (0..20_000).map(|n| format!("{n}@example.com")).collect();

    let mail = json!({"from": "me@example.com", "to": to, "subject": "Hi"});
    post(&server, "/emails", &mail).await.unwrap();

    // Each recipient has two events, so that the first of the newest 10,000 are about the recipient 15,000.
    until(|| receiver.received_unchecked().len() == 4).await;
    let shown: Vec<_> = receiver
        .events()
        .iter()
        .map(|event| [&event["id"], &event["type"], &event["data"]["to"]].map(Value::clone))
        .collect();
    let expected = [
        ["evt_30001", "email.sent", "15000@example.com"],
        ["evt_30002", "email.delivered", "15000@example.com"],
        ["evt_30003", "email.sent", "15001@example.com"],
        ["evt_30004", "email.delivered", "15001@example.com"],
    ];
    assert_eq!(shown, expected.map(|event| event.map(Value::from)));
    let (_, waiting) = call(&server, "GET", "events?state=pending", Value::Null).await;
    let waiting = waiting["data"].as_array().unwrap();
    let waiting: Vec<_> = waiting.iter().map(|event| &event["number"]).collect();
    let expected: Vec<_> = (30_004..=40_000_u64).map(Value::from).collect();
    assert_eq!(waiting, expected.iter().collect::<Vec<_>>());
}

#[tokio::test]
async fn a_complained_event_unsubscribes_the_contact() {
    let server = stopped_server().await;
    post(&server, "/contacts", &ada()).await.unwrap();

    server
        .send_event(json!({"type": "email.complained", "data": {"to": "ada@example.com"}}))
        .await;

    let contact = server.contact("ada@example.com").unwrap();
    assert_eq!(contact.unsubscribe_reason, "complaint");
}

#[tokio::test]
async fn an_event_counts_as_engagement_at_its_created_at() {
    let server = stopped_server().await;
    post(&server, "/contacts", &ada()).await.unwrap();
    let opened = |at: i64| json!({"type": "email.opened", "created_at": at, "data": {"to": "ada@example.com"}});
    let opened_this_week = json!({
        "match_": "all",
        "conditions": [{"field": "engagement", "what": "opened", "op": "within_days", "days": 7}],
    });
    server.segment("seg_1", SegmentKind::Rule(opened_this_week));
    let count = async || {
        let response = get(&server, "/contacts?segment_id=seg_1").await.unwrap();
        json_of(response).await["data"].as_array().unwrap().len()
    };

    server.send_event(opened(START - 30 * 86_400)).await;
    let long_ago = count().await;
    server.send_event(opened(START - 86_400)).await;
    let lately = count().await;

    assert_eq!((long_ago, lately), (0, 1));
}

#[tokio::test]
async fn a_reset_aborts_running_attempts() {
    let ended = Arc::new(Semaphore::new(0));
    let (started, count) = (Arc::new(Semaphore::new(0)), Arc::clone(&ended));
    let begun = Arc::clone(&started);
    let silent = raw_receiver(move |mut stream| {
        let (begun, count) = (Arc::clone(&begun), Arc::clone(&count));
        async move {
            begun.add_permits(1);
            let _ = stream.read_to_end(&mut Vec::new()).await;
            count.add_permits(1);
        }
    })
    .await;
    let server = MockServer::builder()
        .clock(START)
        .delivery_timeout(Duration::from_secs(600))
        .start()
        .await;
    server.webhook_endpoint(&silent, SECRET);

    let reset = async {
        started.acquire().await.unwrap().forget();
        server.reset();
    };
    tokio::join!(server.send_event(json!({"type": "email.sent"})), reset);

    // The connection ends with the reset.
    in_time(ended.acquire()).await.unwrap().forget();
    assert!(server.attempts().is_empty());
}

#[tokio::test]
async fn a_new_secret_signs_later_attempts() {
    let server = stopped_server().await;
    let receiver = Receiver::start([500]).await;
    server.webhook_endpoint(&receiver.url, "the-secret-of-2025");
    server.send_event(json!({"type": "email.sent"})).await;

    server.webhook_endpoint(&receiver.url, SECRET);
    server.advance(Duration::from_secs(35)).await;

    let verifier = Verifier::builder()
        .secret("2026", SECRET)
        .clock(server.clock())
        .build()
        .unwrap();
    let received = receiver.received();
    assert!(
        verifier
            .verify(&received[0].headers, &received[0].body)
            .is_err()
    );
    assert!(
        verifier
            .verify(&received[1].headers, &received[1].body)
            .is_ok()
    );
}
