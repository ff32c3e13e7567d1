//! Extractors that are polled some times and then dropped, for every number of polls: the memory of the body is free again.

use std::convert::Infallible;

use ::tower::{Layer, Service};
use audience::webhooks::tower::VerifyLayer;
use audience::webhooks::{VerifiedEvent, Verifier};
use axum::extract::FromRequest;
use bytes::Bytes;
use futures_util::{Stream, StreamExt, stream};
use http::{Request, StatusCode};
use http_body::Frame;
use http_body_util::StreamBody;

use super::{BODY, NOW, SECRET, at, signed};
use support::cancellation::{for_each_number_of_polls, poll_times};
use support::in_time;

/// A verifier with memory for one body at a time.
fn verifier() -> Verifier {
    Verifier::builder()
        .secret("main", SECRET)
        .clock(|| at(NOW))
        .body_limit(BODY.len())
        .body_memory(BODY.len())
        .build()
        .unwrap()
}

/// The body in parts, each of which arrives some time after the one before.
fn parts() -> impl Stream<Item = Bytes> + Send + 'static {
    stream::iter(BODY.as_bytes().chunks(40).map(Bytes::from_static)).then(|part| async {
        tokio::task::yield_now().await;
        part
    })
}

fn request() -> Request<StreamBody<impl Stream<Item = Result<Frame<Bytes>, Infallible>> + Send>> {
    let frames = parts().map(|part| Ok(Frame::data(part)));
    let mut request = Request::post("/").body(StreamBody::new(frames)).unwrap();
    *request.headers_mut() = signed(BODY);
    request
}

/// Drops an extractor after each number of polls. Each time, the next one has memory for its body.
async fn check_dropped<F, E>(extract: impl Fn() -> F)
where
    F: Future<Output = Result<VerifiedEvent, E>>,
    E: std::fmt::Debug,
{
    let polls = for_each_number_of_polls(async |polls| {
        let ended = poll_times(polls, extract()).await;
        assert_eq!(in_time(extract()).await.unwrap().id.as_str(), "evt_1");
        ended.is_some()
    })
    .await;

    assert!(polls > 3, "{polls}");
}

#[tokio::test]
async fn a_dropped_axum_extractor_leaves_its_memory_to_the_next() {
    let verifier = verifier();
    let extract = || {
        let (head, body) = request().into_parts();
        let request = Request::from_parts(head, axum::body::Body::new(body));
        <VerifiedEvent as FromRequest<_>>::from_request(request, &verifier)
    };

    check_dropped(extract).await;
}

#[tokio::test]
async fn a_dropped_request_of_the_tower_layer_leaves_its_memory_to_the_next() {
    let inner = ::tower::service_fn(async |_| {
        tokio::task::yield_now().await;
        Ok::<_, Infallible>(http::Response::new(http_body_util::Empty::<Bytes>::new()))
    });
    let mut service = VerifyLayer::new(verifier()).layer(inner);

    let polls = for_each_number_of_polls(async |polls| {
        let ended = poll_times(polls, service.call(request())).await;
        let response = in_time(service.call(request())).await.unwrap();
        assert_eq!(response.status(), StatusCode::OK);
        ended.is_some()
    })
    .await;

    assert!(polls > 3, "{polls}");
}

#[tokio::test]
async fn a_dropped_actix_extractor_leaves_its_memory_to_the_next() {
    use actix_web::dev::Payload;
    use actix_web::{test::TestRequest, web};

    let verifier = web::Data::new(verifier());
    let extract = || {
        let mut request = TestRequest::post().app_data(verifier.clone());
        for (name, value) in &signed(BODY) {
            request = request.insert_header((name.as_str(), value.as_bytes()));
        }
        let payload = parts().map(Ok).boxed_local();
        let (request, mut payload) = (request.to_http_request(), Payload::Stream { payload });
        <VerifiedEvent as actix_web::FromRequest>::from_request(&request, &mut payload)
    };

    check_dropped(extract).await;
}
