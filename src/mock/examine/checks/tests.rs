use std::cell::Cell;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock};

use http::header::RETRY_AFTER;
use http::{Response, StatusCode};
use tokio::net::{TcpListener, TcpSocket};

use super::*;
use crate::mock::examine::tests::{response, run_at, run_with};

#[test]
fn a_genuine_delivery_needs_a_2xx_in_time() {
    let verdict = |outcome: &Outcome| {
        let grade = accepted(outcome, "It", "do", Duration::from_secs(10));
        assert_eq!(grade.findings.is_empty(), grade.verdict == Verdict::Passed);
        grade.verdict
    };

    for status in [200, 202, 204, 299] {
        assert_eq!(verdict(&response(status)), Verdict::Passed, "{status}");
    }
    for status in [100, 199, 301, 400, 401, 404, 410, 429, 500, 503, 999] {
        assert_eq!(verdict(&response(status)), Verdict::Failed, "{status}");
    }
    assert_eq!(verdict(&Outcome::TimedOut), Verdict::Failed);
    assert_eq!(verdict(&Outcome::Broken("x".into())), Verdict::Failed);
}

#[test]
fn a_redirect_and_a_410_have_a_reason_and_a_remedy_of_their_own() {
    for (status, reason, remedy) in [
        (299, LOST, "do"),
        (429, LOST, "Raise the rate limit"),
        (300, "a redirected POST", "final URL"),
        (399, "a redirected POST", "final URL"),
        (400, LOST, "do"),
        (410, "gone permanently", "other than 410"),
        (503, LOST, "do"),
    ] {
        let timeout = Duration::from_secs(10);

        let finding = not_accepted(&response(status), "It", "do", timeout);

        let problem = format!("It got the response {status}.");
        assert_eq!(finding.problem, problem);
        assert!(finding.reason.contains(reason), "{status}: {finding:?}");
        assert!(finding.remedy.contains(remedy), "{status}: {finding:?}");
    }
}

#[test]
fn a_forged_delivery_needs_a_4xx_and_an_error_of_the_server_is_a_warning() {
    let event = SampleEvent::new("evt_1".into(), EventType::Sent, 0);
    let grade = |outcome: &Outcome| refused(outcome, &event, "it", "why", "do");

    for (status, verdict) in [
        (200, Verdict::Failed),
        (204, Verdict::Failed),
        (302, Verdict::Warning),
        (400, Verdict::Passed),
        (401, Verdict::Passed),
        (410, Verdict::Warning),
        (422, Verdict::Passed),
        (429, Verdict::NotSeen),
        (500, Verdict::Warning),
        (503, Verdict::Warning),
    ] {
        let grade = grade(&response(status));

        assert_eq!(grade.verdict, verdict, "{status}");
        let is_refused = verdict != Verdict::Failed;
        assert_eq!(grade.expected.len(), usize::from(is_refused), "{status}");
    }
    assert_eq!(grade(&Outcome::TimedOut).verdict, Verdict::Warning);
    assert_eq!(
        grade(&Outcome::Broken("x".into())).verdict,
        Verdict::Warning
    );
    let refused = io::ErrorKind::ConnectionRefused;
    let not_connected = Outcome::NotConnected(refused, "x".into());
    assert_eq!(grade(&not_connected).verdict, Verdict::Failed);
    let problem = |status| grade(&response(status)).findings.remove(0).problem;
    assert!(problem(304).contains("304"), "{}", problem(304));
    assert!(problem(307).contains("a redirect"), "{}", problem(307));
}

#[test]
fn a_503_with_a_date_to_retry_after_is_no_server_error() {
    let event = SampleEvent::new("evt_1".into(), EventType::Sent, 0);
    for (retry_after, verdict) in [
        (Some("Fri, 31 Dec 2027 23:59:59 GMT"), Verdict::NotSeen),
        (Some("120"), Verdict::NotSeen),
        (None, Verdict::Warning),
    ] {
        let mut response = Response::builder().status(503);
        if let Some(value) = retry_after {
            response = response.header(RETRY_AFTER, value);
        }
        let response = response.body(Bytes::new()).unwrap();
        let outcome = Outcome::Response(exchange::received(response, Duration::ZERO));

        let grade = refused(&outcome, &event, "it", "why", "do");

        assert_eq!(grade.verdict, verdict, "{retry_after:?}");
        let is_limited = verdict == Verdict::NotSeen;
        assert_eq!(grade.findings.is_empty(), is_limited, "{retry_after:?}");
    }
}

#[tokio::test]
async fn a_receiver_that_removes_white_space_has_one_finding_about_the_raw_body() {
    let run = run_with(|_, body| match body.iter().any(u8::is_ascii_control) {
        true => StatusCode::UNAUTHORIZED,
        false => StatusCode::OK,
    })
    .await;

    let grade = raw_body(&run).await;

    assert_eq!(grade.verdict, Verdict::Failed);
    assert_eq!(grade.findings, [serialized_again()]);
}

#[tokio::test]
async fn a_receiver_that_rejects_only_line_breaks_changes_line_endings() {
    let run = run_with(|_, body| match body.contains(&b'\r') {
        true => StatusCode::UNAUTHORIZED,
        false => StatusCode::OK,
    })
    .await;

    let grade = raw_body(&run).await;

    assert_eq!(grade.verdict, Verdict::Failed);
    assert_eq!(grade.findings, [line_endings()]);
}

#[tokio::test]
async fn a_receiver_that_rejects_only_white_space_around_the_body_removes_it() {
    let run = run_with(|_, body| match body.trim_ascii() == body {
        true => StatusCode::OK,
        false => StatusCode::UNAUTHORIZED,
    })
    .await;

    let grade = raw_body(&run).await;

    assert_eq!(grade.verdict, Verdict::Failed);
    assert_eq!(grade.findings, [trimmed()]);
}

#[tokio::test]
async fn a_rate_limit_is_no_sign_of_json_that_is_serialized_again() {
    let run = run_with(|_, _| StatusCode::TOO_MANY_REQUESTS).await;

    let grade = raw_body(&run).await;

    let [finding] = &grade.findings[..] else {
        panic!("it is the same for every spelling: {grade:?}");
    };
    assert!(finding.problem.ends_with("got the response 429."));
    assert!(finding.remedy.contains("rate limit"), "{finding:?}");
}

#[tokio::test]
async fn a_rate_limit_does_not_reject_a_wrong_event_header() {
    let run = run_with(|_, _| StatusCode::TOO_MANY_REQUESTS).await;

    let grade = event_header(&run).await;

    assert_eq!(grade.verdict, Verdict::Failed);
    for finding in grade.findings {
        assert_eq!(finding.reason, LOST);
    }
}

#[tokio::test]
async fn a_rejected_event_header_has_the_reason_that_the_header_is_not_signed() {
    let run = run_with(|_, _| StatusCode::BAD_REQUEST).await;

    let grade = event_header(&run).await;

    assert_eq!(grade.verdict, Verdict::Warning);
    assert_eq!(grade.findings.len(), 2);
    for finding in grade.findings {
        assert!(finding.reason.starts_with("The header is not signed"));
    }
}

#[tokio::test]
async fn a_server_error_for_a_body_that_is_not_json_has_a_reason_and_a_remedy_of_its_own() {
    let run = run_with(|_, _| StatusCode::INTERNAL_SERVER_ERROR).await;

    let grade = not_json(&run).await;

    assert_eq!(grade.verdict, Verdict::Warning);
    let [finding] = &grade.findings[..] else {
        panic!("it is the same for every body: {grade:?}");
    };
    assert!(finding.reason.contains("the same body ten times"));
    assert!(finding.remedy.contains("store the body for a person"));
}

/// Returns a run to which each connection is refused. The socket is bound and does not listen, so nothing else gets
/// its port.
fn run_without_a_receiver() -> (TcpSocket, Run) {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let run = run_at(&format!("http://{}/hook", socket.local_addr().unwrap()));
    (socket, run)
}

#[tokio::test]
async fn a_receiver_that_is_gone_fails_the_check_of_bodies_that_are_not_json() {
    let (_socket, run) = run_without_a_receiver();

    let grade = not_json(&run).await;

    assert_eq!(grade.verdict, Verdict::Failed);
    let [finding] = &grade.findings[..] else {
        panic!("it is the same for every body: {grade:?}");
    };
    assert!(finding.reason.contains("no longer accepts connections"));
    assert!(finding.remedy.contains("a crash"));
}

#[tokio::test]
async fn a_receiver_that_is_gone_fails_the_check_of_a_signature_in_upper_case() {
    let (_socket, run) = run_without_a_receiver();

    let grade = uppercase_signature(&run).await;

    assert_eq!(grade.verdict, Verdict::Failed);
    let reason = &grade.findings[0].reason;
    assert!(reason.contains("no longer accepts connections"), "{reason}");
}

#[tokio::test]
async fn a_receiver_that_does_not_verify_one_content_type_is_told_which() {
    for (unverified, words) in [
        (Some("text/plain"), "with the content type text/plain"),
        (None, "without a content type"),
        (Some("application/x-www-form-urlencoded"), "that is a form"),
    ] {
        let run = run_with(move |headers, _| {
            let content_type = headers.get("content-type");
            match content_type.map(|value| value.to_str().unwrap()) == unverified {
                true => StatusCode::OK,
                false => StatusCode::UNAUTHORIZED,
            }
        })
        .await;

        let grade = other_content_type(&run).await;

        assert_eq!(grade.verdict, Verdict::Failed);
        let [finding] = &grade.findings[..] else {
            panic!("the others are rejected: {grade:?}");
        };
        assert!(finding.problem.contains(words), "{finding:?}");
        assert_eq!(grade.expected.len(), 2);
    }
}

#[tokio::test]
async fn a_rate_limit_hides_whether_the_headers_of_an_accepted_delivery_pass_for_another_body() {
    let requests = AtomicUsize::new(0);
    let run = run_with(move |_, _| match requests.fetch_add(1, Ordering::SeqCst) {
        0 => StatusCode::UNAUTHORIZED,
        _ => StatusCode::TOO_MANY_REQUESTS,
    })
    .await;

    let grade = tampered_body(&run).await;

    assert_eq!(grade.verdict, Verdict::NotSeen, "{grade:?}");
    assert!(grade.findings.is_empty(), "{grade:?}");
}

#[tokio::test]
async fn one_server_error_among_simultaneous_duplicates_is_a_failure() {
    let requests = AtomicUsize::new(0);
    let run = run_with(move |_, _| match requests.fetch_add(1, Ordering::SeqCst) {
        4 => StatusCode::INTERNAL_SERVER_ERROR,
        _ => StatusCode::OK,
    })
    .await;

    let grade = concurrent_duplicates(&run).await;

    assert_eq!(grade.verdict, Verdict::Failed);
    assert_eq!(grade.observed, "19 × 200, 1 × 500");
}

#[tokio::test]
async fn a_receiver_without_a_window_is_told_if_it_measures_the_age_of_the_event() {
    for (status, is_told) in [
        (StatusCode::OK, false),
        (StatusCode::UNAUTHORIZED, true),
        (StatusCode::TOO_MANY_REQUESTS, false),
        (StatusCode::INTERNAL_SERVER_ERROR, false),
    ] {
        let run = run_with(move |_, _| status).await;
        let finding = Finding::new("The receiver accepted it.", REPLAY, CHECK);
        let grade = Grade::failed("200", finding);

        let grade = without_window(&run, grade, &response(200), "it").await;

        assert_eq!(grade.verdict, Verdict::Failed);
        let problem = &grade.findings[0].problem;
        assert_eq!(problem.contains("by `created_at`"), is_told, "{problem}");
    }
}

/// Returns the time that a delivery was signed for.
fn timestamp_of(headers: &HeaderMap) -> i64 {
    let timestamp = headers[TIMESTAMP_HEADER].to_str().unwrap();
    timestamp.parse().unwrap()
}

#[tokio::test]
async fn a_wide_window_is_graded_by_a_delivery_that_is_far_outside_on_the_same_side() {
    for (far, verdict) in [
        (StatusCode::OK, Verdict::Failed),
        (StatusCode::UNAUTHORIZED, Verdict::Warning),
        (StatusCode::TOO_MANY_REQUESTS, Verdict::NotSeen),
    ] {
        let run = run_with(move |headers, _| match now() - timestamp_of(headers) {
            ..0 => StatusCode::UNAUTHORIZED,
            0..=800 => StatusCode::OK,
            _ => far,
        })
        .await;

        let grade = stale(&run).await;

        assert_eq!(grade.verdict, verdict, "{far}: {grade:?}");
    }
}

#[tokio::test]
async fn a_window_that_ends_a_few_seconds_before_300_s_is_not_narrow() {
    let first = OnceLock::new();
    let run = run_with(move |headers, _| {
        // The first delivery is 299 s old. The next one is 5 s closer, on any machine.
        let timestamp = timestamp_of(headers);
        match timestamp < first.get_or_init(|| timestamp) + TOLERANCE {
            true => StatusCode::UNAUTHORIZED,
            false => StatusCode::OK,
        }
    })
    .await;

    let grade = edge(&run).await;

    assert!(grade.findings.is_empty(), "{grade:?}");
}

#[tokio::test]
async fn a_delivery_that_was_slow_does_not_show_that_the_window_is_narrow() {
    let first = OnceLock::new();
    let closer = AtomicUsize::new(0);
    let run = run_with(move |headers, _| {
        let timestamp = timestamp_of(headers);
        if timestamp < first.get_or_init(|| timestamp) + TOLERANCE {
            return StatusCode::UNAUTHORIZED;
        }
        if closer.fetch_add(1, Ordering::SeqCst) > 0 {
            return StatusCode::OK;
        }
        // Meanwhile, it crosses the edge by the clock of a receiver that is 4 s ahead.
        std::thread::sleep(2 * ENTIRE_SECOND);
        StatusCode::UNAUTHORIZED
    })
    .await;

    let grade = edge(&run).await;

    assert!(grade.findings.is_empty(), "{grade:?}");
}

#[tokio::test]
async fn a_delivery_that_was_slow_does_not_show_that_the_window_is_wide() {
    let first = OnceLock::new();
    let further = AtomicUsize::new(0);
    let run = run_with(move |headers, _| {
        let timestamp = timestamp_of(headers);
        // The first delivery is dated 301 s ahead, and the next one 306 s, a moment later.
        if timestamp < first.get_or_init(|| timestamp) + TOLERANCE {
            return StatusCode::OK;
        }
        if further.fetch_add(1, Ordering::SeqCst) > 0 {
            return StatusCode::UNAUTHORIZED;
        }
        std::thread::sleep(2 * ENTIRE_SECOND);
        StatusCode::OK
    })
    .await;

    let grade = early(&run).await;

    assert!(grade.findings.is_empty(), "{grade:?}");
}

#[tokio::test]
async fn the_events_with_one_timestamp_are_fresh_and_share_it_with_no_other_delivery() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let timestamps = Arc::clone(&seen);
    let run = run_with(move |headers, _| {
        timestamps.lock().unwrap().push(timestamp_of(headers));
        StatusCode::OK
    })
    .await;

    run.deliver(&run.event()).await;
    let grade = distinct_ids(&run).await;
    run.deliver(&run.event()).await;

    assert_eq!(grade.verdict, Verdict::Passed, "{grade:?}");
    let seen = seen.lock().unwrap().clone();
    let [before, first, second, third, fourth, after] = seen[..] else {
        panic!("expected six deliveries: {seen:?}");
    };
    assert_eq!([second, third, fourth], [first; 3], "{seen:?}");
    // It is later than that of the delivery before, so a narrow window accepts it however long the examination has run.
    assert!(before < first && first < after, "{seen:?}");
}

#[tokio::test]
async fn a_duplicate_after_many_events_needs_that_many() {
    let run = run_with(|_, _| StatusCode::OK).await;

    for (between, verdict) in [(MANY - 1, Verdict::NotSeen), (MANY, Verdict::Passed)] {
        let Ok(first) = first_attempt(&run).await else {
            panic!("the receiver accepts everything");
        };
        let grade = duplicate_after_many(&run, first, between).await;

        assert_eq!(grade.verdict, verdict, "{between}: {grade:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_duplicate_whose_timestamp_may_be_too_old_is_not_delivered() {
    let (_socket, run) = run_without_a_receiver();
    let event = run.event();
    let first = FirstAttempt {
        headers: run.signed(&event),
        event,
        sent: Instant::now(),
    };
    tokio::time::advance(run.timeout * 3 + Duration::from_millis(1)).await;

    let grade = duplicate_after_many(&run, first, MANY).await;

    assert_eq!(grade.verdict, Verdict::NotSeen, "{grade:?}");
}

#[tokio::test]
async fn the_application_has_to_act_on_the_last_event_as_on_any_genuine_one() {
    let run = run_with(|_, _| StatusCode::OK).await;
    let mut grades = [Check::Reachable, Check::Genuine].map(|check| (check, Grade::passed("")));

    deliver_last(&run, &mut grades).await;

    let expected = grades.map(|(_, grade)| grade.expected.len());
    assert_eq!(expected, [0, 1]);
}

#[test]
fn a_delivery_at_the_edge_is_attempted_four_times_and_until_the_timeout() {
    let timeout = Duration::from_secs(10);
    let later = timeout + Duration::from_millis(1);

    assert!(!is_given_up(3, later, timeout));
    assert!(!is_given_up(4, timeout, timeout));
    assert!(is_given_up(4, later, timeout));
}

#[test]
fn a_slow_body_is_sent_again_only_if_the_receiver_may_have_given_up_on_it() {
    let broken = Outcome::Broken("x".into());

    for outcome in [&response(400), &response(408), &broken] {
        assert!(was_too_slow(outcome, PATIENCE), "{outcome:?}");
        let sooner = PATIENCE.saturating_sub(Duration::from_nanos(1));
        assert!(!was_too_slow(outcome, sooner), "{outcome:?}");
    }
    for outcome in [&response(200), &Outcome::TimedOut] {
        assert!(!was_too_slow(outcome, PATIENCE), "{outcome:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_slow_body_is_sent_three_times_if_the_receiver_gives_up_on_it_each_time() {
    for (status, elapsed, count) in [
        (200, PATIENCE, 1),
        (408, PATIENCE - Duration::from_secs(1), 1),
        (408, PATIENCE, 3),
    ] {
        let attempts = Cell::new(0);

        let outcome = deliver_in_time(async || {
            attempts.set(attempts.get() + 1);
            tokio::time::sleep(elapsed).await;
            response(status)
        })
        .await;

        assert_eq!(outcome.status(), Some(status));
        assert_eq!(attempts.get(), count, "{status} after {elapsed:?}");
    }
}

#[test]
fn a_response_is_judged_only_if_no_edge_was_crossed_on_the_way() {
    let start = UNIX_EPOCH + Duration::from_secs(1_700_000_000);
    for (offset, signed, arrived, is_judged) in [
        (-301, 0, 5_000, true),
        (301, 0, 900, true),
        (301, 0, 1_000, false),
        (301, 500, 600, true),
        (301, 999, 1_001, false),
        (-299, 0, 900, true),
        (-299, 0, 1_000, true),
        (-299, 0, 1_001, false),
        (299, 0, 9_000, true),
        // The clock was set back in between.
        (299, 500, 400, false),
    ] {
        let at = |milliseconds| start + Duration::from_millis(milliseconds);

        let judged = stayed_on_its_side(at(signed), at(arrived), offset);

        assert_eq!(judged, is_judged, "{offset}: {signed} to {arrived}");
    }
}

#[test]
fn times_near_the_ends_of_the_clock_do_not_panic() {
    assert!(!stayed_on_its_side(UNIX_EPOCH, UNIX_EPOCH, -301));
    assert!(until_next_second(UNIX_EPOCH) <= Duration::from_secs(1));
}

/// Responds to two deliveries, the first of which is cut. Returns the URL.
async fn respond_to_a_cut(response: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/hook", listener.local_addr().unwrap());
    tokio::spawn(async move {
        for response in [response, "HTTP/1.1 204 No Content\r\n\r\n"] {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = Vec::new();
            while !request.ends_with(b"}}") {
                if stream.read_buf(&mut request).await.unwrap() == 0 {
                    break;
                }
            }
            stream.write_all(response.as_bytes()).await.unwrap();
        }
    });
    url
}

#[tokio::test]
async fn a_503_to_half_of_a_body_shows_nothing_if_it_has_retry_after() {
    for (response, verdict) in [
        ("HTTP/1.1 429 X\r\n\r\n", Verdict::NotSeen),
        (
            "HTTP/1.1 503 X\r\nRetry-After: 120\r\n\r\n",
            Verdict::NotSeen,
        ),
        (
            "HTTP/1.1 503 X\r\n\r\nretry-after: 120\r\n",
            Verdict::Passed,
        ),
        (
            "HTTP/1.1 400 X\r\nretry-after: 120\r\n\r\n",
            Verdict::Passed,
        ),
        ("HTTP/1.1 200", Verdict::Failed),
        ("", Verdict::Passed),
    ] {
        let run = run_at(&respond_to_a_cut(response).await);

        let grade = cut_connection(&run).await;

        assert_eq!(grade.verdict, verdict, "{response}: {grade:?}");
    }
}

#[test]
fn a_response_is_read_up_to_the_end_of_its_headers() {
    let response = b"HTTP/1.1 503 X\r\nRetry-After: 120\r\n\r\nbody";
    let head = response.len() - b"body".len();

    for length in 0..=response.len() {
        let is_complete = has_headers(&response[..length]);

        assert_eq!(is_complete, length >= head, "{length}");
    }
}

#[test]
fn the_status_is_read_from_a_status_line_and_from_nothing_else() {
    assert_eq!(status_of(b"HTTP/1.1 200 OK\r\n"), Some(200));
    assert_eq!(status_of(b"HTTP/1.0 401"), Some(401));
    for garbage in [
        &b""[..],
        b"HTTP/1.1",
        b"HTTP/1.1 2",
        b"HTTP/1.1 abc",
        b"SSH-2.0",
        b"\xff\xff",
    ] {
        assert_eq!(status_of(garbage), None);
    }
}
