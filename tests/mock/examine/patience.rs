//! Receivers that need patience: they are busy, limit the rate, or are slow.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, UNIX_EPOCH};

use audience::mock::{Check, Verdict};
use axum::Json;
use axum::body::Bytes;
use axum::extract::RawQuery;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use serde_json::json;

use super::{examine, found, text, verifier};
use support::PATIENCE;

/// Serves a handler that gets the id and the type of each verified event.
async fn serve<F, R>(handle: F) -> String
where
    F: Fn(String, String) -> R + Clone + Send + Sync + 'static,
    R: Future<Output = Response> + Send + 'static,
{
    let verifier = verifier();
    let hook = async move |headers: HeaderMap, body: Bytes| match verifier.verify(&headers, &body) {
        Ok(event) => handle(event.id.to_string(), event.event_type().to_string()).await,
        Err(error) => error.status().into_response(),
    };
    let router = axum::Router::new().route("/hook", post(hook));
    format!("http://{}/hook", support::serve(router).await)
}

fn try_later(status: StatusCode) -> Response {
    (status, [("retry-after", "1")]).into_response()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_receiver_may_respond_503_while_another_attempt_is_at_the_event() {
    let done: Arc<Mutex<HashMap<String, bool>>> = Arc::default();
    let url = serve(move |id, _| {
        let done = Arc::clone(&done);
        async move {
            let state = done.lock().unwrap().get(&id).copied();
            match state {
                Some(true) => return StatusCode::OK.into_response(),
                Some(false) => return try_later(StatusCode::SERVICE_UNAVAILABLE),
                None => done.lock().unwrap().insert(id.clone(), false),
            };
            tokio::time::sleep(Duration::from_millis(300)).await;
            done.lock().unwrap().insert(id, true);
            StatusCode::OK.into_response()
        }
    })
    .await;

    // On a busy machine, the first duplicate may be handled before the next one arrives.
    for attempt in 1.. {
        let checks = [Check::Duplicate, Check::ConcurrentDuplicates];
        let examination = examine(&url).only(checks).await;

        assert_eq!(found(&examination), [], "{examination}");
        if text(&examination).contains("× 503") {
            return;
        }
        assert!(attempt < 5, "{examination}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_receiver_that_limits_the_rate_is_given_the_time_that_it_asks_for() {
    let last = Arc::new(Mutex::new((Instant::now(), 0)));
    let url = serve(move |_, _| {
        let mut last = last.lock().unwrap();
        if last.0.elapsed() > Duration::from_millis(900) {
            *last = (Instant::now(), 0);
        }
        last.1 += 1;
        let response = match last.1 {
            ..=6 => StatusCode::NO_CONTENT.into_response(),
            _ => try_later(StatusCode::TOO_MANY_REQUESTS),
        };
        std::future::ready(response)
    })
    .await;

    let checks = [Check::Genuine, Check::UnknownType, Check::RawBody];
    let examination = examine(url).only(checks).await;

    assert_eq!(found(&examination), [], "{examination}");
}

/// Serves a handler that gets the headers and the body of each delivery that the verifier rejects.
async fn serve_forged(
    handle: impl Fn(&HeaderMap, Bytes) -> Response + Clone + Send + Sync + 'static,
) -> String {
    let verifier = verifier();
    let hook = async move |headers: HeaderMap, body: Bytes| match verifier.verify(&headers, &body) {
        Ok(_) => StatusCode::OK.into_response(),
        Err(_) => handle(&headers, body),
    };
    let router = axum::Router::new().route("/hook", post(hook));
    format!("http://{}/hook", support::serve(router).await)
}

fn too_many() -> Response {
    (StatusCode::TOO_MANY_REQUESTS, [("retry-after", "0")]).into_response()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rate_limit_hides_no_receiver_that_accepts_forgeries() {
    let delivered: Arc<Mutex<HashSet<Bytes>>> = Arc::default();
    let url = serve_forged(
        move |_, body| match delivered.lock().unwrap().insert(body) {
            true => too_many(),
            false => StatusCode::OK.into_response(),
        },
    )
    .await;

    for check in [Check::CutSignature, Check::OtherSecret] {
        let examination = examine(&url).only([check]).await;

        let verdict = examination.verdict(check);
        assert_eq!(verdict, Some(Verdict::Failed), "{examination}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rate_limit_rejects_no_forgery_by_itself() {
    let url = serve_forged(|_, _| too_many()).await;
    let checks = [
        Check::OtherSecret,
        Check::ForgedId,
        Check::TamperedBody,
        Check::CutSignature,
        Check::UppercaseSignature,
        Check::TwoSignatures,
        Check::MissingTimestamp,
        Check::MalformedTimestamp,
        Check::NotJson,
    ];

    let examination = examine(url).only(checks).await;

    for check in checks {
        let verdict = examination.verdict(check);
        assert_eq!(verdict, Some(Verdict::NotSeen), "{check}: {examination}");
    }
    let words = "the receiver responds 429, or 503 with Retry-After";
    assert!(text(&examination).contains(words), "{examination}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rate_limit_does_not_make_the_window_narrow() {
    let verifier = verifier();
    let hook = async move |headers: HeaderMap, body: Bytes| {
        let now = UNIX_EPOCH.elapsed().unwrap().as_secs();
        let timestamp = headers["webhook-timestamp"].to_str().unwrap();
        match verifier.verify(&headers, &body) {
            Ok(_) if now.abs_diff(timestamp.parse().unwrap()) > 200 => {
                StatusCode::TOO_MANY_REQUESTS
            }
            Ok(_) => StatusCode::OK,
            Err(error) => error.status(),
        }
    };
    let router = axum::Router::new().route("/hook", post(hook));
    let url = format!("http://{}/hook", support::serve(router).await);

    let examination = examine(url).only([Check::WindowEdge]).await;

    let edge = examination.verdict(Check::WindowEdge);
    assert_eq!(edge, Some(Verdict::NotSeen), "{examination}");
    let words = "the receiver responds 429";
    assert!(text(&examination).contains(words), "{examination}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_response_after_more_than_half_of_the_time_is_a_warning() {
    let url = serve(|_, event_type| async move {
        if event_type == "email.sent" {
            tokio::time::sleep(Duration::from_millis(5_200)).await;
        }
        StatusCode::OK.into_response()
    })
    .await;

    // On a busy machine, it may be more than all of the time.
    for attempt in 1.. {
        let examination = examine(&url)
            .timeout(Duration::from_secs(10))
            .only([Check::ResponseTime])
            .await;

        if examination.verdict(Check::ResponseTime) == Some(Verdict::Warning) {
            assert!(examination.passed(), "{examination}");
            return;
        }
        assert!(attempt < 5, "{examination}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_application_may_act_as_long_after_its_receiver_has_responded_as_the_caller_allows() {
    let examine = async |work, settle| {
        let url = act_when_asked_for_the_third_time(work).await;
        examine(format!("{url}/hook"))
            .probe(format!("{url}/count"))
            .settle(settle)
            .only([Check::Genuine, Check::Probe])
            .await
    };

    // Longer than the default.
    let in_time = examine(Duration::from_secs(6), PATIENCE).await;
    // Without that time, the examiner asks twice.
    let too_late = examine(Duration::ZERO, Duration::ZERO).await;

    let verdict = in_time.verdict(Check::Genuine);
    assert_eq!(verdict, Some(Verdict::Passed), "{in_time}");
    assert_eq!(found(&in_time), [], "{in_time}");
    assert_eq!(found(&too_late), [Check::Genuine], "{too_late}");
    let words = "the application did not act on it in time";
    assert!(text(&too_late).contains(words), "{too_late}");
}

/// Serves `/hook`, and `/count` of an application that has acted on the first event when the examiner asks for the third
/// time, so long after the first time or later. Returns the URL.
async fn act_when_asked_for_the_third_time(work: Duration) -> String {
    let verifier = verifier();
    let hook = async move |headers: HeaderMap, body: Bytes| match verifier.verify(&headers, &body) {
        Ok(_) => StatusCode::OK,
        Err(error) => error.status(),
    };
    let first = Arc::new(Mutex::new(None));
    let count = async move |RawQuery(query): RawQuery| {
        let mut first = first.lock().unwrap();
        let (event, times, began) = first.get_or_insert_with(|| (query.clone(), 0, Instant::now()));
        let is_first = *event == query;
        *times += u32::from(is_first);
        let is_early = is_first && (*times < 3 || began.elapsed() < work);
        Json(json!({"count": u32::from(!is_early)}))
    };
    let router = axum::Router::new()
        .route("/hook", post(hook))
        .route("/count", get(count));
    format!("http://{}", support::serve(router).await)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_body_alone_needs_no_other_delivery_beside_it() {
    let events = Arc::new(Mutex::new(Vec::new()));
    let received = Arc::clone(&events);
    let url = serve(move |id, _| {
        received.lock().unwrap().push(id);
        async { StatusCode::OK.into_response() }
    })
    .await;

    let examination = examine(url).only([Check::SlowBody]).await;

    assert_eq!(
        examination.verdict(Check::SlowBody),
        Some(Verdict::Passed),
        "{examination}"
    );
    // One of each of the ten types, then the slow one.
    assert_eq!(events.lock().unwrap().len(), 11);
}
