use std::net::TcpListener;
use std::sync::atomic::AtomicU32;

use axum::routing::post;
use bytes::Bytes;
use http::StatusCode;

use super::exchange::Received;
use super::*;

/// Starts a receiver that responds with what `status` returns, and returns a run that examines it.
///
/// A response that asks for patience asks for no time.
pub(super) async fn run_with(
    status: impl Fn(&HeaderMap, &[u8]) -> StatusCode + Send + Sync + 'static,
) -> Run {
    let status = Arc::new(status);
    let hook = async move |headers: HeaderMap, body: Bytes| {
        (status(&headers, &body), [("retry-after", "0")])
    };
    let router = axum::Router::new().route("/hook", post(hook));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async { axum::serve(listener, router).await });
    run_at(&format!("http://{address}/hook"))
}

pub(super) fn run_at(url: &str) -> Run {
    let examination = examine(url, "6Jm0nFq2pXvZk4Tt").timeout(Duration::from_secs(60));
    prepare(&examination.0).unwrap().0
}

/// Returns a run whose receiver gets no request.
fn run() -> Run {
    run_at("http://127.0.0.1:9/hook")
}

pub(super) fn response(status: u16) -> Outcome {
    Outcome::Response(Received {
        status,
        elapsed: Duration::ZERO,
        has_retry_after: false,
        retry_after: None,
        date: None,
        body: Bytes::new(),
    })
}

#[test]
fn a_response_may_take_ten_seconds_by_default_and_what_follows_five() {
    let examination = examine("http://127.0.0.1:9/hook", "6Jm0nFq2pXvZk4Tt");

    assert_eq!(examination.0.timeout, Duration::from_secs(10));
    assert_eq!(examination.0.settle, Duration::from_secs(5));
}

#[tokio::test]
async fn an_examination_that_panics_says_so() {
    let mut examination = examine("http://127.0.0.1:9/hook", "6Jm0nFq2pXvZk4Tt");
    examination.0.on_start = Some(Arc::new(|_| panic!("as the test wants it")));

    let report = examination.await;

    let problem = &report.checks()[0].findings[0].problem;
    assert!(problem.contains("the examination panicked"), "{problem}");
}

#[tokio::test]
async fn a_receiver_that_always_asks_for_patience_gets_few_retries() {
    let requests = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&requests);
    let run = run_with(move |_, _| {
        counted.fetch_add(1, Ordering::SeqCst);
        StatusCode::SERVICE_UNAVAILABLE
    })
    .await;

    let mut of_each = Vec::new();
    for waited in [Duration::ZERO, Duration::from_secs(119), ALL_WAITS] {
        run.waited.set(waited);
        run.deliver(&run.event()).await;
        of_each.push(requests.swap(0, Ordering::SeqCst));
    }

    assert_eq!(of_each, [4, 4, 1]);
}

#[tokio::test]
async fn an_examination_stops_after_three_responses_that_did_not_arrive() {
    // Nothing accepts the connections, so the requests wait.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut run = run_at(&format!("http://{}/", listener.local_addr().unwrap()));
    run.timeout = Duration::from_millis(50);

    let mut missing = 0;
    while missing < PATIENCE {
        assert_eq!(run.stop_reason(), None);
        let outcome = run.deliver(&run.event()).await;
        missing += u32::from(matches!(outcome, Outcome::TimedOut));
    }

    let reason = run.stop_reason().unwrap();
    assert!(reason.contains("3 responses did not arrive"), "{reason}");
}

#[test]
fn two_deliveries_without_a_response_end_an_examination_and_one_does_not() {
    for outcome in [Outcome::TimedOut, Outcome::Broken("x".into())] {
        let refused = [EventType::Delivered, EventType::Sent];
        let refused = refused.map(|event_type| (event_type, outcome.clone()));

        assert!(hopeless(&refused[..1], &run()).is_none(), "{outcome}");
        assert!(hopeless(&refused, &run()).is_some(), "{outcome}");
    }
}

#[test]
fn a_connection_that_timed_out_hints_at_a_firewall() {
    let finding = not_connected(io::ErrorKind::TimedOut, "timed out", &run());

    let problem = "The connection to 127.0.0.1 port 9 timed out.";
    assert_eq!(finding.problem, problem);
    assert!(finding.remedy.contains("firewall"));
}

#[test]
fn refused_types_are_named_together_if_they_got_the_same_response() {
    let refused = [
        (EventType::Sent, response(422)),
        (EventType::Clicked, response(500)),
        (EventType::Opened, response(422)),
    ];

    let grade = some_refused(Grade::passed(""), &refused, &run());

    let problems: Vec<_> = grade
        .findings
        .iter()
        .map(|finding| &*finding.problem)
        .collect();
    assert_eq!(
        problems,
        [
            "A genuine delivery of email.sent, email.opened got the response 422.",
            "A genuine delivery of email.clicked got the response 500.",
        ]
    );
}

#[test]
fn a_clock_is_wrong_if_it_differs_by_more_than_the_window() {
    for (skew, is_wrong) in [
        (None, false),
        (Some(0), false),
        (Some(300), false),
        (Some(-300), false),
        (Some(301), true),
        (Some(-301), true),
    ] {
        let run = run();
        run.clock_skew.set(skew);

        assert_eq!(wrong_clock(&run).is_some(), is_wrong, "{skew:?}");
    }
}

#[test]
fn the_quickest_response_shows_how_far_the_clocks_differ() {
    let now = SystemTime::now();
    let since = now.duration_since(UNIX_EPOCH).unwrap();
    let date = Some(since.as_secs() - 60);
    let waits = [Duration::from_secs(50), Duration::ZERO];
    for waits in [waits, [waits[1], waits[0]]] {
        let run = run();

        for wait in waits {
            run.note_date(date, now - wait, wait);
        }

        let skew = run.clock_skew.get().unwrap();
        assert!(skew < -50, "{skew}");
    }
}

#[tokio::test]
async fn a_receiver_that_rejects_everything_has_another_secret_or_fails() {
    let run = run_with(|_, _| StatusCode::UNAUTHORIZED).await;
    for (status, remedy) in [
        (400, "Compare the receiver's secret"),
        (401, "Compare the receiver's secret"),
        (403, "Compare the receiver's secret"),
        (413, "an unhandled error"),
        (422, "Compare the receiver's secret"),
        (500, "an unhandled error"),
    ] {
        let opening = explain(&run, &[(EventType::Delivered, response(status))]).await;

        let (check, grade) = &opening.grades[1];
        assert_eq!(*check, Check::Genuine);
        let finding = &grade.findings[0];
        assert!(finding.remedy.contains(remedy), "{status}: {finding:?}");
        assert!(!opening.continues);
    }
}

#[tokio::test]
async fn a_receiver_that_accepts_only_sorted_members_serializes_again() {
    let run = run_with(|_, body| match body.starts_with(b"{\"created_at\":") {
        true => StatusCode::OK,
        false => StatusCode::UNAUTHORIZED,
    })
    .await;

    let opening = explain(&run, &[(EventType::Delivered, response(401))]).await;

    let (check, grade) = &opening.grades[1];
    assert_eq!(*check, Check::RawBody);
    assert_eq!(grade.findings, [checks::serialized_again()]);
    assert!(!opening.continues);
}

#[tokio::test]
async fn a_receiver_that_accepts_only_a_prefix_is_told_so() {
    let run = run_with(|headers, _| {
        let signature = headers["webhook-signature"].to_str().unwrap();
        match signature.starts_with("sha256=") {
            true => StatusCode::OK,
            false => StatusCode::UNAUTHORIZED,
        }
    })
    .await;

    let opening = explain(&run, &[(EventType::Delivered, response(401))]).await;

    let (check, grade) = &opening.grades[1];
    assert_eq!(*check, Check::Genuine);
    let problem = &grade.findings[0].problem;
    assert!(problem.contains("expects `sha256=` before"), "{problem}");
}
