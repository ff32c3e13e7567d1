//! The tower layer with servers other than hyper, and around services that are not always ready.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use audience::webhooks::tower::{BytesBody, Verify, VerifyLayer};
use audience::webhooks::{Rejection, VerifiedEvent, Verifier, VerifyError};
use axum::routing::post;
use axum::{Extension, Router};
use bytes::{Buf, Bytes};
use futures_util::{FutureExt, stream};
use http::{HeaderMap, Request, Response, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use static_assertions::assert_impl_all;
use tower::{Layer, Service, ServiceBuilder, ServiceExt, service_fn};

use super::{BODY, NOW, SECRET, at, signed, verifier};

assert_impl_all!(VerifyLayer: Clone, Send, Sync, std::fmt::Debug);
assert_impl_all!(Verify<()>: Clone, Send, Sync, std::fmt::Debug);

type Frames = Vec<Result<Frame<Bytes>, Infallible>>;

/// Returns a request with this body in one piece.
fn request(headers: HeaderMap, body: &str) -> Request<BytesBody> {
    let body = BytesBody::from(Bytes::copy_from_slice(body.as_bytes()));
    let mut request = post_of(body);
    *request.headers_mut() = headers;
    request
}

fn post_of<B>(body: B) -> Request<B> {
    Request::post("/").body(body).unwrap()
}

fn genuine() -> Request<BytesBody> {
    request(signed(BODY), BODY)
}

fn forged() -> Request<BytesBody> {
    request(signed(BODY), &BODY.replace("evt_1", "evt_2"))
}

/// A service that panics if it is called before it is ready, and counts its calls.
#[derive(Default)]
struct Strict {
    is_ready: bool,
    polls_until_ready: usize,
    calls: Arc<AtomicUsize>,
}

impl Clone for Strict {
    /// A clone is not ready, even if its original is.
    fn clone(&self) -> Self {
        Self {
            is_ready: false,
            polls_until_ready: 2,
            calls: Arc::clone(&self.calls),
        }
    }
}

impl Service<Request<BytesBody>> for Strict {
    type Response = Response<String>;
    type Error = &'static str;
    type Future = Ready<Result<Response<String>, &'static str>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), &'static str>> {
        self.is_ready = self.polls_until_ready == 0;
        if self.is_ready {
            return Poll::Ready(Ok(()));
        }
        self.polls_until_ready -= 1;
        context.waker().wake_by_ref();
        Poll::Pending
    }

    fn call(&mut self, _: Request<BytesBody>) -> Self::Future {
        assert!(
            std::mem::take(&mut self.is_ready),
            "called before it was ready"
        );
        self.calls.fetch_add(1, Ordering::SeqCst);
        ready(Ok(Response::new("called".to_owned())))
    }
}

#[tokio::test]
async fn the_inner_service_is_called_only_when_it_is_ready_and_only_for_genuine_deliveries() {
    let inner = Strict::default();
    let calls = Arc::clone(&inner.calls);
    let mut service = VerifyLayer::new(verifier()).layer(inner);

    for _ in 0..3 {
        let accepted = service.call(genuine()).await.unwrap();
        let refused = service.call(forged()).await.unwrap();

        assert_eq!(
            (accepted.status(), accepted.body().as_str()),
            (StatusCode::OK, "called")
        );
        assert_eq!(
            (refused.status(), refused.body().as_str()),
            (StatusCode::UNAUTHORIZED, "")
        );
    }
    assert_eq!(calls.load(Ordering::SeqCst), 3);
}

#[tokio::test]
async fn a_stranger_who_sends_slowly_takes_no_place_of_a_limit_inside() {
    let places = Arc::new(tokio::sync::Semaphore::new(1));
    let inner = Limited {
        places,
        place: None,
    };
    let service = VerifyLayer::new(verifier()).layer(inner);
    let mut slow = post_of(StreamBody::new(stream::pending::<
        Result<Frame<Bytes>, Infallible>,
    >()));
    *slow.headers_mut() = signed(BODY);
    let mut stranger = Box::pin(service.clone().oneshot(slow));

    assert!((&mut stranger).now_or_never().is_none());
    let response = service.oneshot(genuine()).now_or_never();

    assert_eq!(response.unwrap().unwrap().status(), 200);
}

/// A service with places, one of which it takes when it becomes ready.
struct Limited {
    places: Arc<tokio::sync::Semaphore>,
    place: Option<tokio::sync::OwnedSemaphorePermit>,
}

impl Clone for Limited {
    fn clone(&self) -> Self {
        Self {
            places: Arc::clone(&self.places),
            place: None,
        }
    }
}

impl Service<Request<BytesBody>> for Limited {
    type Response = Response<String>;
    type Error = Infallible;
    type Future = Ready<Result<Response<String>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        if self.place.is_none() {
            self.place = Arc::clone(&self.places).try_acquire_owned().ok();
        }
        self.place
            .as_ref()
            .map_or(Poll::Pending, |_| Poll::Ready(Ok(())))
    }

    fn call(&mut self, _: Request<BytesBody>) -> Self::Future {
        drop(self.place.take().expect("it was ready"));
        ready(Ok(Response::default()))
    }
}

#[tokio::test]
async fn the_errors_of_the_inner_service_are_passed_on() {
    let failing = service_fn(async |_: Request<BytesBody>| Err::<Response<String>, _>("broken"));
    let service = VerifyLayer::new(verifier()).layer(failing);

    assert_eq!(
        service.clone().oneshot(genuine()).await.unwrap_err(),
        "broken"
    );
    assert_eq!(service.oneshot(forged()).await.unwrap().status(), 401);
}

#[tokio::test]
async fn the_inner_service_receives_the_head_the_event_and_the_verified_bytes() {
    let inner = service_fn(async |request: Request<BytesBody>| {
        assert_eq!(request.method(), "POST");
        assert_eq!(request.uri(), "/hook?tenant=7");
        assert_eq!(request.headers()["x-request-id"], "r1");
        assert_eq!(request.extensions().get::<u8>(), Some(&7));
        let event: &VerifiedEvent = request.extensions().get().unwrap();
        assert_eq!((event.id.as_str(), event.secret_name()), ("evt_1", "main"));
        let body = request.into_body().collect().await.unwrap().to_bytes();
        Ok::<_, Infallible>(Response::new(body))
    });
    let mut request = genuine();
    *request.uri_mut() = "/hook?tenant=7".parse().unwrap();
    request
        .headers_mut()
        .insert("x-request-id", "r1".parse().unwrap());
    request.extensions_mut().insert(7_u8);

    let response = VerifyLayer::new(verifier())
        .layer(inner)
        .oneshot(request)
        .await;

    assert_eq!(response.unwrap().into_body(), BODY);
}

#[tokio::test]
async fn a_body_in_pieces_with_trailers_is_verified_as_a_whole() {
    let mut frames: Frames = Vec::new();
    frames.push(Ok(Frame::data(Bytes::new())));
    for piece in BODY.as_bytes().chunks(9) {
        frames.push(Ok(Frame::data(Bytes::copy_from_slice(piece))));
    }
    frames.push(Ok(Frame::trailers(signed("{}"))));
    let pieces = StreamBody::new(stream::iter(frames));
    // Its data is not `Bytes`, and it is not contiguous.
    let body = pieces.map_frame(|frame| {
        frame.map_data(|data| {
            data.slice(..data.len().min(4))
                .chain(data.slice(data.len().min(4)..))
        })
    });
    let mut request = post_of(body);
    *request.headers_mut() = signed(BODY);
    let service = VerifyLayer::new(verifier()).handler(async |event: VerifiedEvent| {
        assert_eq!(event.body(), BODY);
        StatusCode::NO_CONTENT
    });

    let response = service.oneshot(request).await.unwrap();

    assert_eq!(response.status(), 204);
}

#[tokio::test]
async fn a_body_of_empty_frames_without_an_end_times_out() {
    let verifier = Verifier::builder()
        .secret("main", SECRET)
        .body_timeout(Duration::from_millis(50))
        .build();
    let hook = async |_: VerifiedEvent| StatusCode::OK;
    let service = VerifyLayer::new(verifier.unwrap()).handler(hook);
    let empty = || Ok::<_, Infallible>(Frame::data(Bytes::new()));
    let trailers = || Ok::<_, Infallible>(Frame::<Bytes>::trailers(HeaderMap::new()));

    let mut data = post_of(StreamBody::new(stream::repeat_with(empty)));
    let mut other = post_of(StreamBody::new(stream::repeat_with(trailers)));
    *data.headers_mut() = signed(BODY);
    *other.headers_mut() = signed(BODY);

    assert_eq!(service.clone().oneshot(data).await.unwrap().status(), 408);
    assert_eq!(service.oneshot(other).await.unwrap().status(), 408);
}

#[tokio::test]
async fn a_refusal_has_the_rejection_as_an_extension() {
    let hook = async |_: VerifiedEvent| StatusCode::OK;
    let service = ServiceBuilder::new()
        .map_response(|response: Response<BytesBody>| {
            let rejection = response.extensions().get::<Rejection>().cloned();
            (response, rejection)
        })
        .service(VerifyLayer::new(verifier()).handler(hook));

    let (response, rejection) = service.clone().oneshot(forged()).await.unwrap();

    assert_eq!(response.status(), 401);
    assert!(response.headers().is_empty() && response.into_body().into_bytes().is_empty());
    let rejection = rejection.unwrap();
    assert_eq!(
        rejection.verify_error(),
        Some(&VerifyError::SignatureMismatch)
    );
    assert!(rejection.diagnose([("main", SECRET)]).is_some());
    assert!(service.oneshot(genuine()).await.unwrap().1.is_none());
}

#[tokio::test]
async fn a_handler_is_a_service_of_an_axum_route() {
    let service =
        VerifyLayer::new(verifier()).handler(async |_: VerifiedEvent| StatusCode::ACCEPTED);
    let router: Router = Router::new().route_service("/", service);
    let send =
        |request: Request<BytesBody>| router.clone().oneshot(request.map(axum::body::Body::new));

    assert_eq!(send(genuine()).await.unwrap().status(), 202);
    assert_eq!(send(forged()).await.unwrap().status(), 401);
}

#[tokio::test]
async fn a_layer_of_an_axum_router_verifies_its_routes_and_no_other() {
    let hook = async |Extension(event): Extension<VerifiedEvent>, body: Bytes| {
        assert_eq!(event.body(), &body);
        event.id.to_string()
    };
    let router = Router::new()
        .route("/hook", post(hook))
        .route_layer(VerifyLayer::new(verifier()))
        .route("/health", axum::routing::get(async || "ok"));
    let to = |mut request: Request<BytesBody>, path: &str, method: http::Method| {
        *request.uri_mut() = path.parse().unwrap();
        *request.method_mut() = method;
        router.clone().oneshot(request.map(axum::body::Body::new))
    };

    let accepted = to(genuine(), "/hook", http::Method::POST).await.unwrap();
    let refused = to(forged(), "/hook", http::Method::POST).await.unwrap();
    let health = to(Request::default(), "/health", http::Method::GET)
        .await
        .unwrap();

    assert_eq!(accepted.status(), 200);
    assert_eq!(
        accepted.into_body().collect().await.unwrap().to_bytes(),
        "evt_1"
    );
    assert_eq!(refused.status(), 401);
    assert!(refused.extensions().get::<Rejection>().is_some());
    assert_eq!(refused.into_body().collect().await.unwrap().to_bytes(), "");
    assert_eq!(health.status(), 200);
}

#[tokio::test]
async fn the_body_of_a_verified_request_says_its_length_and_gives_its_bytes() {
    let body = BytesBody::from(Bytes::from_static(b"{}"));

    assert_eq!(body.as_ref(), b"{}");
    assert_eq!(http_body::Body::size_hint(&body).exact(), Some(2));
    assert_eq!(body.clone().into_bytes(), "{}");
    assert_eq!(body.collect().await.unwrap().to_bytes(), "{}");
}

#[tokio::test]
async fn a_body_at_the_limit_is_accepted_in_any_number_of_parts_and_a_longer_one_is_refused() {
    for (limit, status) in [
        (BODY.len(), StatusCode::OK),
        (BODY.len() - 1, StatusCode::PAYLOAD_TOO_LARGE),
    ] {
        let verifier = Verifier::builder().secret("main", SECRET).clock(|| at(NOW));
        let verifier = verifier.body_limit(limit).build().unwrap();
        let inner = service_fn(async |_: Request<BytesBody>| {
            Ok::<_, Infallible>(Response::new(String::new()))
        });
        let service = VerifyLayer::new(verifier).layer(inner);
        for part in [BODY.len(), BODY.len() - 1, 10] {
            let parts = BODY.as_bytes().chunks(part).map(Bytes::copy_from_slice);
            let frames: Frames = parts.map(|part| Ok(Frame::data(part))).collect();
            let mut request = post_of(StreamBody::new(stream::iter(frames)));
            *request.headers_mut() = signed(BODY);

            let response = service.clone().oneshot(request).await.unwrap();

            assert_eq!(response.status(), status, "{limit} {part}");
        }
    }
}
