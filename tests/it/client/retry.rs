//! What is sent again, how often and when: every operation against every status.

use std::time::{Duration, Instant, SystemTime};

use audience::contacts::{NewContact, OnConflict};
use audience::{ErrorKind, Outcome, RetryPolicy};
use futures_util::future::join_all;
use serde_json::json;

use crate::support::operation::{Operation, Repeat};
use crate::support::script::{Script, answer, bytes};
use crate::support::{
    ADA, answering, answering_in_turn, builder, client, contact, hurried, ok, received, status,
};

#[tokio::test]
async fn each_status_is_repeated_for_each_operation_as_the_table_says() {
    for code in [
        400, 401, 402, 403, 404, 408, 409, 410, 422, 425, 429, 500, 501, 502, 503, 504, 505,
    ] {
        let server = answering(status(code)).await;
        let mut sent = 0;
        for operation in Operation::ALL {
            let error = operation.run(&client(server.uri())).await.unwrap_err();

            let repeated = match operation.repeat() {
                Repeat::Always => matches!(code, 408 | 429 | 500 | 502 | 503 | 504),
                Repeat::Unapplied => code == 429,
                Repeat::Never => false,
            };
            let attempts = if repeated { 4 } else { 1 };
            assert_eq!(error.attempts(), attempts, "{operation:?} after {code}");
            sent += attempts as usize;
            assert_eq!(
                received(&server).await.len(),
                sent,
                "{operation:?} after {code}"
            );
        }
    }
}

#[tokio::test]
async fn an_attempt_that_times_out_is_repeated_only_where_that_is_safe() {
    join_all(Operation::ALL.map(|operation| async move {
        let good = operation.good_answer().to_string();
        let server = Script::play([bytes("").then_hang(), answer(200, good)]).await;
        let client = builder(server.url())
            .timeout(Duration::from_millis(400))
            .build()
            .unwrap();

        let result = operation.run(&client).await;

        let repeated = operation.repeat() == Repeat::Always;
        assert_eq!(
            server.received().len(),
            1 + usize::from(repeated),
            "{operation:?}"
        );
        match result {
            Ok(()) => assert!(repeated, "{operation:?}"),
            Err(error) => {
                assert!(!repeated, "{operation:?}: {error:?}");
                assert_eq!(
                    (error.kind(), error.outcome()),
                    (ErrorKind::Timeout, Outcome::Unknown)
                );
                let message = format!(
                    "{}: timed out after 400ms waiting for the full response",
                    operation.name()
                );
                assert_eq!(error.to_string(), message);
            }
        }
    }))
    .await;
}

#[tokio::test]
async fn a_body_that_never_ends_runs_into_the_timeout_too() {
    let act = bytes("HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\n{").then_hang();
    let server = Script::play([act]).await;
    let call = client(server.url()).contacts().retrieve(ADA);

    let error = call
        .timeout(Duration::from_millis(100))
        .retry(RetryPolicy::none())
        .await
        .unwrap_err();

    assert_eq!(error.kind(), ErrorKind::Timeout);
}

#[tokio::test]
async fn repeatable_lifts_the_restriction_for_that_call() {
    let answers = || {
        let created = json!({"data": [{"email": ADA, "status": "created"}]});
        let acts = [
            answer(503, ""),
            answer(200, contact().to_string()),
            answer(503, ""),
            answer(200, contact().to_string()),
        ];
        Script::play(
            acts.into_iter()
                .chain([answer(503, ""), answer(200, created.to_string())]),
        )
    };
    let server = answers().await;
    let contacts = client(server.url()).contacts();
    let strict = NewContact::new(ADA).on_conflict(OnConflict::Error);

    contacts.subscribe(ADA).repeatable().await.unwrap();
    let created = contacts.create(strict.clone()).repeatable().await.unwrap();
    let report = contacts.create_batch([strict]).repeatable().await.unwrap();

    assert_eq!(
        (
            created.attempts(),
            report.attempts(),
            server.received().len()
        ),
        (2, 2, 6)
    );
}

#[tokio::test]
async fn a_call_that_comes_through_in_the_end_is_a_success() {
    let server = answering_in_turn([status(503), status(429), status(500), ok(contact())]).await;

    let contact = client(server.uri()).contacts().retrieve(ADA).await.unwrap();

    assert_eq!(
        (contact.email.as_str(), received(&server).await.len()),
        (ADA, 4)
    );
}

#[tokio::test]
async fn every_attempt_sends_the_same_bytes() {
    let acts = [
        answer(503, ""),
        answer(502, ""),
        answer(200, Operation::Create.good_answer().to_string()),
    ];
    let server = Script::play(acts).await;

    Operation::Create.run(&client(server.url())).await.unwrap();

    let received = server.received();
    for request in &received {
        assert_eq!(
            (&request.target, &request.headers, &request.body),
            (&received[0].target, &received[0].headers, &received[0].body)
        );
    }
}

#[tokio::test]
async fn the_last_error_is_told_and_the_worst_outcome() {
    let server = answering_in_turn([status(503), status(422)]).await;

    let error = client(server.uri())
        .contacts()
        .unsubscribe(ADA)
        .await
        .unwrap_err();

    assert_eq!(error.api().unwrap().status().as_u16(), 422);
    assert_eq!(
        (error.attempts(), error.outcome()),
        (2, Outcome::Unknown),
        "the first may have been applied"
    );
    assert_eq!(
        error.to_string(),
        "unsubscribe: the service answered 422 (after 2 attempts)"
    );

    let server = answering_in_turn([status(429), status(422)]).await;

    let error = client(server.uri())
        .contacts()
        .subscribe(ADA)
        .await
        .unwrap_err();

    assert_eq!((error.attempts(), error.outcome()), (2, Outcome::Refused));
}

#[tokio::test]
async fn a_policy_of_none_sends_once() {
    let server = answering(status(503)).await;
    let client = builder(server.uri())
        .retry(RetryPolicy::none())
        .build()
        .unwrap();

    for operation in Operation::ALL {
        assert_eq!(operation.run(&client).await.unwrap_err().attempts(), 1);
    }
    assert_eq!(received(&server).await.len(), Operation::ALL.len());
}

#[tokio::test]
async fn retry_after_in_seconds_is_waited_for_and_told() {
    let server =
        answering_in_turn([status(429).insert_header("retry-after", "1"), ok(contact())]).await;
    let client = builder(server.uri())
        .retry(hurried().max_retry_after(Duration::from_secs(60)))
        .build()
        .unwrap();
    let start = Instant::now();

    client.contacts().subscribe(ADA).await.unwrap();

    assert!(
        start.elapsed() >= Duration::from_millis(990),
        "{:?}",
        start.elapsed()
    );

    let server = answering(status(429).insert_header("retry-after", "7")).await;
    let call = client_at(&server).contacts().subscribe(ADA);
    let error = call.retry(RetryPolicy::none()).await.unwrap_err();
    assert_eq!(
        error.api().unwrap().retry_after(),
        Some(Duration::from_secs(7))
    );
}

#[tokio::test]
async fn retry_after_as_a_date_is_waited_for() {
    let then = SystemTime::now() + Duration::from_secs(3);
    let date = httpdate::fmt_http_date(then);
    let server = answering_in_turn([
        status(503).insert_header("retry-after", date),
        ok(contact()),
    ])
    .await;
    let client = builder(server.uri())
        .retry(hurried().max_retry_after(Duration::from_secs(60)))
        .build()
        .unwrap();
    let start = Instant::now();

    client.contacts().retrieve(ADA).await.unwrap();

    // A date has no fraction of a second: up to one of the three is cut off.
    assert!(
        start.elapsed() >= Duration::from_millis(1_900),
        "{:?}",
        start.elapsed()
    );
}

#[tokio::test]
async fn retry_after_is_capped_and_one_that_cannot_be_read_or_lies_in_the_past_delays_nothing() {
    for after in [
        "86400",
        "Fri, 31 Dec 9999 23:59:59 GMT",
        "0",
        "Sun, 06 Nov 1994 08:49:37 GMT",
        "soon",
        "-5",
        "1.5",
        "",
    ] {
        let server = answering_in_turn([
            status(503).insert_header("retry-after", after),
            ok(contact()),
        ])
        .await;

        let call = client_at(&server).contacts().retrieve(ADA).into_future();

        let result = tokio::time::timeout(Duration::from_secs(30), call).await;
        assert!(result.expect("the cap is a millisecond").is_ok(), "{after}");
    }
}

#[tokio::test]
async fn a_wait_that_would_outlast_the_deadline_is_not_waited_for() {
    let server = answering(status(503).insert_header("retry-after", "3600")).await;
    let client = builder(server.uri())
        .retry(RetryPolicy::exponential().max_retry_after(Duration::from_secs(3_600)))
        .deadline(Duration::from_secs(1_800))
        .build()
        .unwrap();

    let call = client.contacts().retrieve(ADA).into_future();

    let error = tokio::time::timeout(Duration::from_secs(30), call)
        .await
        .expect("at once")
        .unwrap_err();
    assert_eq!(
        (error.kind(), error.attempts()),
        (ErrorKind::Api, 1),
        "the attempt's own error"
    );
}

#[tokio::test]
async fn the_deadline_ends_an_attempt_before_its_timeout() {
    let server = Script::play([bytes("").then_hang(), bytes("").then_hang()]).await;
    let client = builder(server.url())
        .deadline(Duration::from_millis(150))
        .timeout(Duration::from_secs(3_600))
        .build()
        .unwrap();

    let call = client.contacts().retrieve(ADA).into_future();

    let error = tokio::time::timeout(Duration::from_secs(30), call)
        .await
        .expect("in time")
        .unwrap_err();
    assert_eq!(
        (error.kind(), error.outcome(), error.attempts()),
        (ErrorKind::Timeout, Outcome::Unknown, 1)
    );
    assert_eq!(server.received().len(), 1);
}

#[tokio::test]
async fn a_deadline_that_is_over_sends_nothing() {
    let server = answering(ok(contact())).await;

    let call = client_at(&server).contacts().retrieve(ADA);
    let error = call.deadline(Duration::ZERO).await.unwrap_err();

    assert_eq!(
        (error.kind(), error.outcome(), error.attempts()),
        (ErrorKind::Timeout, Outcome::NotSent, 0)
    );
    assert!(received(&server).await.is_empty());
}

#[tokio::test]
async fn limits_longer_than_any_clock_do_no_harm() {
    let server = answering(ok(contact())).await;

    let forever = client_at(&server)
        .contacts()
        .retrieve(ADA)
        .deadline(Duration::MAX)
        .timeout(Duration::MAX);

    assert_eq!(forever.await.unwrap().email, ADA);
}

fn client_at(server: &wiremock::MockServer) -> audience::Client {
    client(server.uri())
}
