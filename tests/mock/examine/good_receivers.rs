//! Receivers without a fault.

use std::collections::HashMap;
use std::future::IntoFuture;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Duration;

use audience::mock::{Check, Verdict};
use audience::webhooks::{EventData, VerifiedEvent, Verifier};
use axum::Json;
use axum::body::Bytes;
use axum::extract::{FromRef, RawQuery, State};
use axum::http::{HeaderMap, StatusCode};
use axum::routing::{get, post};
use futures_util::future::join_all;
use serde_json::{Value, json};

use super::faulty_receiver::FaultyReceiver;
use super::{assert_all_passed, event_of, examine, found, verifier};
use support::receivers::{Framework, Receiver};

#[tokio::test(flavor = "multi_thread")]
async fn a_receiver_written_by_hand_passes_every_check() {
    let receiver = FaultyReceiver::start(None).await;

    let examination = examine(&receiver.url).probe(&receiver.probe).await;

    assert_all_passed(&examination);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_longest_timeout_is_no_fault() {
    let receiver = FaultyReceiver::start(None).await;

    let examination = examine(&receiver.url)
        .probe(&receiver.probe)
        .timeout(Duration::MAX)
        .only([Check::DuplicateAfterMany])
        .await;

    let verdict = examination.verdict(Check::DuplicateAfterMany);
    assert_eq!(verdict, Some(Verdict::Passed), "{examination}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_receiver_with_the_extractor_of_this_crate_passes_every_check() {
    let (url, probe) = axum_receiver().await;

    let examination = examine(url).probe(probe).await;

    assert_all_passed(&examination);
}

#[test]
fn every_framework_of_this_crate_passes_and_only_doubles_are_not_seen() {
    for framework in Framework::ALL {
        let receiver = Receiver::start(framework, Some(verifier()));
        let url = format!("http://{}/hook", receiver.address);

        let examination = block_on(examine(url).into_future());

        assert!(examination.passed(), "{framework:?}: {examination}");
        assert_eq!(
            examination.with_verdict(Verdict::Warning).count(),
            0,
            "{examination}"
        );
    }
}

/// Waits for a future on a plain thread, without a runtime.
fn block_on<T>(future: impl Future<Output = T>) -> T {
    struct Unpark(Thread);

    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }

    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut context = Context::from_waker(&waker);
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(value) = future.as_mut().poll(&mut context) {
            return value;
        }
        thread::park();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_run_of_many_has_a_wrong_verdict() {
    let batches = if super::is_long() { 25 } else { 1 };

    for batch in 1..=batches {
        let (url, probe) = axum_receiver().await;
        let receiver = FaultyReceiver::start(None).await;
        let of_axum = || examine(&url).probe(&probe).into_future();
        let by_hand = || examine(&receiver.url).probe(&receiver.probe).into_future();

        // Two at a time examine the same receiver.
        let examinations = join_all([of_axum(), of_axum(), by_hand(), by_hand()]).await;

        println!("{} examinations", 4 * batch);
        for examination in &examinations {
            assert_all_passed(examination);
        }
    }
}

#[derive(Clone)]
struct App {
    verifier: Verifier,
    counts: Arc<Mutex<HashMap<String, Value>>>,
}

impl FromRef<App> for Verifier {
    fn from_ref(app: &App) -> Self {
        app.verifier.clone()
    }
}

async fn axum_receiver() -> (String, String) {
    async fn hook(State(app): State<App>, event: VerifiedEvent) -> StatusCode {
        let mut counts = app.counts.lock().unwrap();
        let answer = json!({"count": 1, "type": event.event_type()});
        counts.entry(event.id.to_string()).or_insert(answer);
        StatusCode::OK
    }

    async fn count(State(app): State<App>, RawQuery(query): RawQuery) -> Json<Value> {
        let counts = app.counts.lock().unwrap();
        Json(
            counts
                .get(event_of(query.as_deref()))
                .cloned()
                .unwrap_or(json!({"count": 0})),
        )
    }

    let app = App {
        verifier: verifier(),
        counts: Arc::default(),
    };
    let router = axum::Router::new()
        .route("/hook", post(hook))
        .route("/count", get(count))
        .with_state(app);
    let address = support::serve(router).await;
    (
        format!("http://{address}/hook"),
        format!("http://{address}/count"),
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn a_receiver_may_have_the_id_of_a_received_mail_as_a_key() {
    let mails: Arc<Mutex<HashMap<String, String>>> = Arc::default();
    let (hook_mails, verifier) = (Arc::clone(&mails), verifier());
    let hook = async move |headers: HeaderMap, body: Bytes| {
        let event = match verifier.verify_event(&headers, body) {
            Ok(event) => event,
            Err(error) => return error.status(),
        };
        let EventData::Received(mail) = &event.data else {
            return StatusCode::OK;
        };
        let mut mails = hook_mails.lock().unwrap();
        let id = event.id.to_string();
        let of_mail = mails.entry(mail.inbound_id.clone()).or_insert(id.clone());
        match *of_mail == id {
            true => StatusCode::OK,
            false => StatusCode::INTERNAL_SERVER_ERROR,
        }
    };
    let router = axum::Router::new().route("/hook", post(hook));
    let url = format!("http://{}/hook", support::serve(router).await);

    let examination = examine(url).await;

    assert_eq!(found(&examination), [], "{examination}");
    assert!(mails.lock().unwrap().len() > 1);
}
