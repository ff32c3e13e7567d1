//! Retries: which failures of which operations are retried, how often, and after which wait.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use audience::contacts::{NewContact, OnConflict};
use audience::mock::{Fault, MockServer};
use audience::{Client, ClientBuilder, ErrorKind, Method, Outcome, RetryPolicy};
use serde_json::json;

use support::operation::{Operation, RetrySafety};
use support::scripted_server::{ScriptedServer, bytes, close_connection, response};
use support::{
    ADA, TIMEOUT, builder, client, contact, in_time, mock_builder, ok, received, respond_in_turn,
    respond_with, status, time_out,
};

const HOUR: Duration = Duration::from_secs(3_600);

#[tokio::test]
async fn each_operation_retries_each_status_as_documented() {
    for code in [
        400, 401, 402, 403, 404, 408, 409, 410, 422, 425, 429, 500, 501, 502, 503, 504, 505, 507,
        520, 522, 529, 599,
    ] {
        let server = respond_with(status(code)).await;
        let mut sent = 0;
        for operation in Operation::ALL {
            let error = operation.run(&client(server.uri())).await.unwrap_err();

            let retried = match operation.retry_safety() {
                RetrySafety::Safe => {
                    matches!(code, 408 | 425 | 429 | 500..=599) && !matches!(code, 501 | 505)
                }
                RetrySafety::OnlyIfNotApplied => code == 429,
                RetrySafety::Never => false,
            };
            // After a 404 of an opt-out, a list shows whether the contact is missing.
            let is_checked = code == 404
                && matches!(
                    operation,
                    Operation::Unsubscribe | Operation::UnsubscribeTopic | Operation::AnswerNo
                );
            let attempts = match (retried, is_checked) {
                (true, _) => 4,
                (false, true) => 2,
                (false, false) => 1,
            };
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
async fn an_attempt_that_times_out_is_retried_only_if_that_is_safe() {
    for operation in Operation::ALL {
        let good = operation.good_response().to_string();
        let server = ScriptedServer::start([bytes("").then_hang(), response(200, good)]).await;
        let client = builder(server.url()).timeout(HOUR).no_deadline();
        let client = client.build().unwrap();

        let is_received = || !server.received().is_empty();
        let result = time_out(operation.run(&client), HOUR, is_received).await;

        let retried = operation.retry_safety() == RetrySafety::Safe;
        assert_eq!(
            server.received().len(),
            1 + usize::from(retried),
            "{operation:?}"
        );
        match result {
            Ok(()) => assert!(retried, "{operation:?}"),
            Err(error) => {
                assert!(!retried, "{operation:?}: {error:?}");
                assert_eq!(
                    (error.kind(), error.outcome()),
                    (ErrorKind::Timeout, Outcome::Unknown)
                );
                let message = format!(
                    "{}: timed out after 3600s waiting for the full response",
                    operation.name()
                );
                assert_eq!(error.to_string(), message);
            }
        }
    }
}

#[tokio::test]
async fn the_timeout_includes_the_body() {
    let response = bytes("HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\n{").then_hang();
    let server = ScriptedServer::start([response]).await;
    let call = client(server.url()).contacts().retrieve(ADA);

    let error = call
        .timeout(TIMEOUT)
        .retry(RetryPolicy::none())
        .await
        .unwrap_err();

    assert_eq!(error.kind(), ErrorKind::Timeout);
}

#[tokio::test]
async fn idempotent_allows_retries_of_that_call() {
    let report = json!({"data": [{"email": ADA, "status": "created"}]});
    let server = ScriptedServer::start([
        response(503, ""),
        response(200, contact().to_string()),
        response(503, ""),
        response(200, contact().to_string()),
        response(503, ""),
        response(200, report.to_string()),
    ])
    .await;
    let contacts = client(server.url()).contacts();
    let strict = NewContact::new(ADA).on_conflict(OnConflict::Error);

    contacts.subscribe(ADA).idempotent().await.unwrap();
    let created = contacts.create(strict.clone()).idempotent().await.unwrap();
    let report = contacts.create_batch([strict]).idempotent().await.unwrap();

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
async fn a_call_whose_last_attempt_succeeds_is_a_success() {
    let server = respond_in_turn([status(503), status(429), status(500), ok(contact())]).await;

    let contact = client(server.uri()).contacts().retrieve(ADA).await.unwrap();

    assert_eq!(
        (contact.email.as_str(), received(&server).await.len()),
        (ADA, 4)
    );
}

#[tokio::test]
async fn every_attempt_sends_the_same_bytes() {
    let responses = [
        response(503, ""),
        response(502, ""),
        response(200, Operation::Create.good_response().to_string()),
    ];
    let server = ScriptedServer::start(responses).await;

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
async fn the_error_is_the_last_one_with_the_most_uncertain_outcome() {
    let server = respond_in_turn([status(503), status(422)]).await;

    let error = client(server.uri())
        .contacts()
        .unsubscribe(ADA)
        .await
        .unwrap_err();

    assert_eq!(error.api().unwrap().status().as_u16(), 422);
    assert_eq!(
        (error.attempts(), error.outcome()),
        (2, Outcome::Unknown),
        "the first attempt may have been applied"
    );
    assert_eq!(
        error.to_string(),
        "unsubscribe: the service responded 422 (after 2 attempts)"
    );

    let server = respond_in_turn([status(429), status(422)]).await;

    let error = client(server.uri())
        .contacts()
        .subscribe(ADA)
        .await
        .unwrap_err();

    assert_eq!((error.attempts(), error.outcome()), (2, Outcome::Refused));
}

#[tokio::test]
async fn a_policy_without_retries_sends_once() {
    let server = respond_with(status(503)).await;
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
async fn a_wait_beyond_the_deadline_is_not_started() {
    let server = respond_with(status(503).insert_header("retry-after", "3600")).await;
    let client = builder(server.uri())
        .retry(RetryPolicy::exponential().max_retry_after(Duration::from_secs(3_600)))
        .deadline(Duration::from_secs(1_800))
        .build()
        .unwrap();

    let error = in_time(client.contacts().retrieve(ADA)).await.unwrap_err();

    assert_eq!(
        (error.kind(), error.attempts()),
        (ErrorKind::Api, 1),
        "the error of the attempt"
    );
}

#[tokio::test]
async fn the_deadline_stops_an_attempt_before_its_timeout() {
    let server = ScriptedServer::start([bytes("").then_hang(), bytes("").then_hang()]).await;
    let client = builder(server.url())
        .deadline(HOUR)
        .timeout(HOUR * 2)
        .build()
        .unwrap();

    let call = client.contacts().retrieve(ADA);
    let is_received = || !server.received().is_empty();
    let error = time_out(call, HOUR, is_received).await.unwrap_err();

    assert_eq!(
        (error.kind(), error.outcome(), error.attempts()),
        (ErrorKind::Timeout, Outcome::Unchanged, 1)
    );
    assert_eq!(
        error.to_string(),
        "retrieve: the deadline of 3600s passed before the full response arrived"
    );
    assert_eq!(server.received().len(), 1);
}

#[tokio::test]
async fn a_deadline_of_zero_sends_nothing() {
    let server = respond_with(ok(contact())).await;

    let call = client(server.uri()).contacts().retrieve(ADA);
    let error = call.deadline(Duration::ZERO).await.unwrap_err();

    assert_eq!(
        (error.kind(), error.outcome(), error.attempts()),
        (ErrorKind::Timeout, Outcome::NotSent, 0)
    );
    assert!(received(&server).await.is_empty());
}

#[tokio::test]
async fn the_largest_possible_limits_are_accepted() {
    let server = respond_with(ok(contact())).await;

    let call = client(server.uri())
        .contacts()
        .retrieve(ADA)
        .deadline(Duration::MAX)
        .timeout(Duration::MAX);

    assert_eq!(call.await.unwrap().email, ADA);
}

/// What a function of `on_attempt` has got: number, status, failure.
type Attempts = Arc<Mutex<Vec<(u32, Option<u16>, Option<ErrorKind>)>>>;

fn counting(builder: ClientBuilder) -> (Client, Attempts) {
    let attempts = Attempts::default();
    let seen = attempts.clone();
    let client = builder.on_attempt(move |attempt| {
        let status = attempt.status.map(|status| status.as_u16());
        let mut seen = seen.lock().unwrap();
        seen.push((attempt.number, status, attempt.failure));
        assert_eq!(attempt.operation, "retrieve");
        assert_eq!(attempt.template, "/contacts/{address}");
        assert_eq!(attempt.method, Method::GET);
    });
    (client.build().unwrap(), attempts)
}

#[tokio::test]
async fn a_function_gets_each_attempt_with_its_status_or_its_failure() {
    let responses = [
        response(503, ""),
        close_connection(),
        response(200, contact().to_string()),
        response(404, r#"{"code": "not_found"}"#),
    ];
    let server = ScriptedServer::start(responses).await;
    let (client, attempts) = counting(builder(server.url()));

    client.contacts().retrieve(ADA).await.unwrap();
    client.clone().contacts().retrieve(ADA).await.unwrap_err();

    let seen = std::mem::take(&mut *attempts.lock().unwrap());
    assert_eq!(
        seen,
        [
            (1, Some(503), Some(ErrorKind::Api)),
            (2, None, Some(ErrorKind::Transport)),
            (3, Some(200), None),
            (1, Some(404), Some(ErrorKind::Api)),
        ]
    );
    // What is not sent is no attempt.
    client.contacts().retrieve("").await.unwrap_err();
    assert!(attempts.lock().unwrap().is_empty());
}

#[tokio::test]
async fn a_function_gets_an_attempt_that_timed_out_with_its_duration() {
    let server = MockServer::start().await;
    server.fault(Fault::delay(Duration::from_secs(3600)));
    let attempts = Arc::new(Mutex::new(Vec::new()));
    let seen = attempts.clone();
    let client = mock_builder(&server)
        .retry(RetryPolicy::none())
        .timeout(Duration::from_millis(50))
        .on_attempt(move |attempt| {
            let mut seen = seen.lock().unwrap();
            seen.push((
                attempt.failure,
                attempt.duration >= Duration::from_millis(50),
            ));
        })
        .build()
        .unwrap();

    client.contacts().retrieve(ADA).await.unwrap_err();

    assert_eq!(
        *attempts.lock().unwrap(),
        [(Some(ErrorKind::Timeout), true)]
    );
}
