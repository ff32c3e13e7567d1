//! Receivers with the inbox of this crate, and with a probe.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use audience::inbox::{Inbox, MemoryStore, Receipt};
use audience::mock::{Check, Verdict};
use audience::webhooks::{Event, EventType, Signer, VerifiedEvent, Verifier};
use axum::Json;
use axum::extract::{FromRef, RawQuery, State};
use axum::routing::{get, post};
use http::StatusCode;
use serde_json::{Value, json};

use super::{assert_all_passed, event_of, examine, text, verifier};
use crate::receiver::SECRET;
use support::PATIENCE;

#[derive(Clone)]
struct App {
    verifier: Verifier,
    inbox: Inbox,
    effects: Effects,
    /// How long the handler takes.
    work: Duration,
}

impl FromRef<App> for Verifier {
    fn from_ref(app: &App) -> Self {
        app.verifier.clone()
    }
}

/// How often the application acted on each event, and the type that it acted on.
#[derive(Clone, Default)]
struct Effects(Arc<Mutex<HashMap<String, (u64, EventType)>>>);

impl Effects {
    async fn act(self, event: Event, work: Duration) -> Result<(), Infallible> {
        tokio::time::sleep(work).await;
        let mut effects = self.0.lock().unwrap();
        let new = (0, event.event_type().clone());
        effects.entry(event.id.to_string()).or_insert(new).0 += 1;
        Ok(())
    }
}

async fn handle(State(app): State<App>, delivery: VerifiedEvent) -> Receipt {
    let (effects, work) = (app.effects, app.work);
    let handler = move |event, _| effects.act(event, work);
    app.inbox.handle(delivery, handler).await
}

async fn accept(State(app): State<App>, delivery: VerifiedEvent) -> Receipt {
    app.inbox.accept(delivery).await
}

async fn count(State(app): State<App>, RawQuery(query): RawQuery) -> Json<Value> {
    let effects = app.effects.0.lock().unwrap();
    match effects.get(event_of(query.as_deref())) {
        Some((count, event_type)) => Json(json!({"count": count, "type": event_type})),
        None => Json(json!({"count": 0})),
    }
}

/// Serves `/handle`, `/accept` and `/count`, and works on what was accepted. Returns the URL.
async fn start(work: Duration) -> String {
    let app = App {
        verifier: verifier(),
        inbox: Inbox::builder(MemoryStore::new()).build().unwrap(),
        effects: Effects::default(),
        work,
    };
    let effects = app.effects.clone();
    let worker = app
        .inbox
        .worker(move |event, _| effects.clone().act(event, work));
    tokio::spawn(worker.run_until(std::future::pending()));
    let router = axum::Router::new()
        .route("/handle", post(handle))
        .route("/accept", post(accept))
        .route("/count", get(count))
        .with_state(app);
    format!("http://{}", support::serve(router).await)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_inbox_that_handles_at_once_passes_every_check() {
    let url = start(Duration::ZERO).await;

    let examination = examine(format!("{url}/handle"))
        .probe(format!("{url}/count"))
        .await;

    assert_all_passed(&examination);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_inbox_that_handles_slowly_passes_although_it_responds_503_to_simultaneous_duplicates() {
    let url = start(Duration::from_millis(300)).await;

    // On a busy machine, the first duplicate may be handled before the next one arrives.
    for attempt in 1.. {
        let examination = examine(format!("{url}/handle"))
            .probe(format!("{url}/count"))
            .await;

        assert_all_passed(&examination);
        if text(&examination).contains("× 503") {
            return;
        }
        assert!(attempt < 5, "{examination}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_inbox_that_accepts_for_a_worker_passes_every_check() {
    for work in [0, 50] {
        let url = start(Duration::from_millis(work)).await;

        let examination = examine(format!("{url}/accept"))
            .probe(format!("{url}/count"))
            .settle(PATIENCE)
            .await;

        assert_all_passed(&examination);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_inbox_that_responds_409_to_a_known_id_with_another_body_passes() {
    let url = start(Duration::ZERO).await;
    let url = format!("{url}/handle");
    let body = |subject: &str| {
        let data = json!({"subject": subject});
        json!({"id": "evt_1", "type": "email.sent", "created_at": 1, "data": data}).to_string()
    };
    let mut statuses = Vec::new();
    for subject in ["one", "one", "other"] {
        let signer = Signer::new(SECRET).unwrap();
        let now = std::time::SystemTime::now();
        let headers = signer.sign(&EventType::Sent, now, body(subject));
        let request = reqwest::Client::new().post(&url).headers(headers);
        statuses.push(request.body(body(subject)).send().await.unwrap().status());
    }
    assert_eq!(
        statuses,
        [StatusCode::OK, StatusCode::OK, StatusCode::CONFLICT]
    );

    let checks = [Check::TamperedBody, Check::DistinctIds];
    let examination = examine(url).only(checks).await;

    assert_eq!(
        examination.verdict(Check::TamperedBody),
        Some(Verdict::Passed)
    );
    assert!(examination.passed(), "{examination}");
}
