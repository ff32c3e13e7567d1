//! Receipts as the responses of axum, actix-web and tower, and what is traced of them.

use std::collections::BTreeSet;
use std::time::SystemTime;

use actix_web::test as actix_test;
use actix_web::{App, web};
use audience::inbox::{Inbox, MemoryStore, Receipt};
use audience::webhooks::tower::{BytesBody, VerifyLayer};
use audience::webhooks::{EventType, Signer, VerifiedEvent, Verifier};
use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{FromRef, State};
use axum::routing::post;
use http::{HeaderMap, Request, Response, StatusCode};
use tower::ServiceExt;
use tracing::Instrument;

use super::deliveries::{ADDRESS, SECRET, body, delivery};
use support::trace_log::{Entry, Log};

#[derive(Clone)]
struct Application {
    verifier: Verifier,
    inbox: Inbox,
}

impl FromRef<Application> for Verifier {
    fn from_ref(application: &Application) -> Self {
        application.verifier.clone()
    }
}

fn application() -> Application {
    Application {
        verifier: Verifier::new(SECRET).unwrap(),
        inbox: Inbox::builder(MemoryStore::new()).build().unwrap(),
    }
}

fn signed(body: &str) -> HeaderMap {
    let signer = Signer::new(SECRET).unwrap();
    signer.sign(&EventType::Bounced, SystemTime::now(), body)
}

/// Handles an event of the subject `Hi`; anything else fails.
async fn receive(inbox: &Inbox, delivery: VerifiedEvent) -> Receipt {
    let handler = |event: audience::webhooks::Event, _| async move {
        match event.mail() {
            Some(mail) if mail.subject == "Hi" => Ok(()),
            _ => Err("unexpected subject"),
        }
    };
    inbox.handle(delivery, handler).await
}

/// The deliveries of the tests below, in turn: what to post, and the status of the response.
fn deliveries() -> [(String, u16); 5] {
    [
        (body("evt_1", "Hi"), 200),
        (body("evt_1", "Hi"), 200),
        (body("evt_1", "Other"), 409),
        (body("evt_2", "Other"), 500),
        (body("evt_3", "Hi"), 503),
    ]
}

/// Claims the third event, so that its delivery is one too many.
async fn claim_the_third(inbox: &Inbox) {
    let claim = inbox.claim(&delivery("evt_3").id).await.unwrap();
    assert!(matches!(claim, audience::inbox::Claim::Fresh(_)));
}

fn request<B: From<Bytes>>(body: &str) -> Request<B> {
    let mut request = Request::post("/hook")
        .body(B::from(Bytes::copy_from_slice(body.as_bytes())))
        .unwrap();
    *request.headers_mut() = signed(body);
    request
}

fn assert_retry_after<B>(response: &Response<B>) {
    let is_busy = response.status() == StatusCode::SERVICE_UNAVAILABLE;
    let retry_after = response.headers().get("retry-after");
    assert_eq!(retry_after.is_some(), is_busy);
    if let Some(seconds) = retry_after {
        let seconds: u64 = seconds.to_str().unwrap().parse().unwrap();
        assert!((1..=60).contains(&seconds), "{seconds}");
    }
}

#[tokio::test]
async fn a_receipt_is_a_response_of_axum() {
    async fn hook(State(application): State<Application>, delivery: VerifiedEvent) -> Receipt {
        receive(&application.inbox, delivery).await
    }
    let application = application();
    claim_the_third(&application.inbox).await;
    let router = Router::new()
        .route("/hook", post(hook))
        .with_state(application);
    for (body, status) in deliveries() {
        let response = router
            .clone()
            .oneshot(request::<Body>(&body))
            .await
            .unwrap();

        assert_eq!(response.status(), status);
        assert_retry_after(&response);
        assert!(response.extensions().get::<Receipt>().is_some());
    }
}

#[tokio::test]
async fn a_receipt_is_a_response_of_tower() {
    let application = application();
    claim_the_third(&application.inbox).await;
    let inbox = application.inbox.clone();
    let service = VerifyLayer::new(application.verifier).handler(move |delivery| {
        let inbox = inbox.clone();
        async move { receive(&inbox, delivery).await }
    });
    for (body, status) in deliveries() {
        let response = service
            .clone()
            .oneshot(request::<BytesBody>(&body))
            .await
            .unwrap();

        assert_eq!(response.status(), status);
        assert_retry_after(&response);
    }
}

#[tokio::test]
async fn a_receipt_is_a_response_of_actix() {
    async fn hook(application: web::Data<Application>, delivery: VerifiedEvent) -> Receipt {
        receive(&application.inbox, delivery).await
    }
    let application = application();
    claim_the_third(&application.inbox).await;
    let service = actix_test::init_service(
        App::new()
            .app_data(web::Data::new(application.verifier.clone()))
            .app_data(web::Data::new(application))
            .route("/hook", web::post().to(hook)),
    )
    .await;
    for (body, status) in deliveries() {
        let mut request = actix_test::TestRequest::post().uri("/hook");
        for (name, value) in &signed(&body) {
            request = request.insert_header((name.as_str(), value.as_bytes()));
        }
        let request = request.set_payload(body).to_request();

        let response = actix_test::call_service(&service, request).await;

        assert_eq!(response.status().as_u16(), status);
        assert_eq!(
            response.headers().contains_key("retry-after"),
            status == 503
        );
    }
}

#[tokio::test]
async fn a_handler_that_waits_is_in_the_span_of_its_request() {
    let log = Log::start();
    let inbox = application().inbox;
    let request = tracing::info_span!(target: "audience_test", "request");

    let handler = |_, _| async {
        tokio::task::yield_now().await;
        tracing::info!(target: "audience_test", "handled");
        Ok::<_, std::io::Error>(())
    };
    let handling = inbox.handle(delivery("evt_1"), handler);
    let receipt = handling.instrument(request.clone()).await;

    assert_eq!(receipt, Receipt::Handled);
    let events = log.events();
    let message = |event: &&Entry| event.fields["message"].contains("handled");
    let handled = events.iter().find(message).unwrap();
    assert_eq!(handled.parent, request.id());
}

#[tokio::test]
async fn what_becomes_of_an_event_is_traced_with_its_id_and_without_its_body() {
    let log = Log::start();
    let inbox = application().inbox;
    let fail = |_, _| async { Err::<(), _>("the database is down") };

    assert!(receive(&inbox, delivery("evt_1")).await.is_success());
    let failed = inbox.handle(delivery("evt_2"), fail).await;
    assert_eq!(failed, Receipt::Failed);
    assert!(inbox.accept(delivery("evt_3")).await.is_success());
    inbox
        .worker(fail)
        .max_attempts(1)
        .run_until_idle()
        .await
        .unwrap();

    let events: Vec<_> = log.events();
    let messages: BTreeSet<_> = events
        .iter()
        .filter_map(|event| event.fields.get("message").cloned())
        .collect();
    let expected = [
        "handler of a webhook event failed",
        "webhook event parked",
        "webhook event received",
    ];
    assert!(
        expected.iter().all(|message| messages.contains(*message)),
        "{messages:?}"
    );
    let text = log.text();
    assert!(text.contains("the database is down"));
    assert!(!text.contains(ADDRESS), "{text}");
    for (message, ids) in [
        (
            "handler of a webhook event failed",
            ["evt_2", "evt_3"].as_slice(),
        ),
        ("webhook event parked", &["evt_3"]),
        ("webhook event received", &["evt_1", "evt_2", "evt_3"]),
    ] {
        let named = events.iter().filter(|event| {
            event
                .fields
                .get("message")
                .is_some_and(|text| text == message)
        });
        let logged: Vec<_> = named.map(|event| event.fields["id"].as_str()).collect();
        assert_eq!(logged, ids, "{message}");
    }
    assert!(!format!("{inbox:?} {:?}", inbox.parked().await.unwrap()).contains(ADDRESS));
}
