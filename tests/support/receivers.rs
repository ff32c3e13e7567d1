//! Webhook endpoints with axum, actix-web and hyper on loopback sockets.

use std::convert::Infallible;
use std::future::ready;
use std::io::Write;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, SystemTime};

use ::tower::{Layer, ServiceExt, service_fn};
use actix_web::dev::Service as _;
use audience::webhooks::tower::{BytesBody, VerifyLayer};
use audience::webhooks::{Rejection, VerifiedEvent, Verifier};
use bytes::Bytes;
use http_body_util::BodyExt;
use http_body_util::combinators::UnsyncBoxBody;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;

use crate::PATIENCE;
use crate::deliveries;
use crate::requests::{Request, Response};

/// The frameworks' body limit, which the extractors must ignore.
const FRAMEWORK_LIMIT: usize = 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framework {
    Axum,
    Actix,
    /// The tower layer around a function, behind hyper.
    Tower,
}

impl Framework {
    pub const ALL: [Self; 3] = [Self::Axum, Self::Actix, Self::Tower];
}

/// What runs before the extractor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Middleware {
    None,
    /// It reads the body, and passes none on.
    ReadsBody,
}

/// A verifier's clock that the test sets, in Unix seconds.
#[derive(Clone, Debug, Default)]
pub struct TestClock(Arc<AtomicI64>);

impl TestClock {
    pub fn set(&self, seconds: i64) {
        self.0.store(seconds, Ordering::SeqCst);
    }

    pub fn as_fn(&self) -> impl Fn() -> SystemTime + Send + Sync + 'static {
        let seconds = Arc::clone(&self.0);
        move || deliveries::moment(seconds.load(Ordering::SeqCst))
    }
}

/// An endpoint at `/hook` for every method, with a log of its deliveries. It runs until the test process ends.
pub struct Receiver {
    pub address: SocketAddr,
    log: Log,
}

/// The deliveries that reached the handler, and the rejections.
#[derive(Clone, Default)]
struct Log {
    accepted: Arc<Mutex<Vec<VerifiedEvent>>>,
    refused: Arc<Mutex<Vec<Rejection>>>,
}

impl Log {
    fn accept(&self, delivery: VerifiedEvent) {
        self.accepted.lock().unwrap().push(delivery);
    }

    fn refuse(&self, rejection: &Rejection) {
        self.refused.lock().unwrap().push(rejection.clone());
    }
}

impl Receiver {
    pub fn start(framework: Framework, verifier: Option<Verifier>) -> Self {
        Self::start_behind(Middleware::None, framework, verifier)
    }

    pub fn start_behind(
        middleware: Middleware,
        framework: Framework,
        verifier: Option<Verifier>,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let log = Log::default();
        let shared = log.clone();
        thread::spawn(move || match framework {
            Framework::Axum => serve_axum(listener, verifier.unwrap(), middleware, shared),
            Framework::Actix => serve_actix(listener, verifier, middleware, shared),
            Framework::Tower => serve_tower(listener, verifier.unwrap(), middleware, shared),
        });
        Self { address, log }
    }

    pub fn take_accepted(&self) -> Vec<VerifiedEvent> {
        std::mem::take(&mut self.log.accepted.lock().unwrap())
    }

    pub fn take_refused(&self) -> Vec<Rejection> {
        std::mem::take(&mut self.log.refused.lock().unwrap())
    }

    pub fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    pub fn send(&self, request: &Request) -> Response {
        let mut stream = self.connect();
        let mut reader = stream.try_clone().unwrap();
        // The response may arrive before the body is sent; the rest of the body is then discarded.
        let writer = {
            let bytes = request.bytes();
            let cut = request.cut;
            thread::spawn(move || {
                let _ = stream.write_all(&bytes);
                if cut {
                    let _ = stream.shutdown(Shutdown::Write);
                }
            })
        };
        let response = Response::read(&mut reader);
        let _ = reader.shutdown(Shutdown::Both);
        writer.join().unwrap();
        response
    }
}

#[tokio::main(flavor = "current_thread")]
async fn serve_axum(listener: TcpListener, verifier: Verifier, middleware: Middleware, log: Log) {
    let (calls, refusals) = (log.clone(), log);
    let hook = async move |delivery: VerifiedEvent| calls.accept(delivery);
    let watch = move |response: axum::response::Response| {
        if let Some(rejection) = response.extensions().get() {
            refusals.refuse(rejection);
        }
        ready(response)
    };
    let read = move |request: axum::extract::Request| async move {
        if middleware == Middleware::None {
            return request;
        }
        let (head, body) = request.into_parts();
        axum::body::to_bytes(body, usize::MAX).await.unwrap();
        axum::extract::Request::from_parts(head, axum::body::Body::empty())
    };
    let app = axum::Router::new()
        .route("/hook", axum::routing::any(hook))
        .layer(axum::middleware::map_request(read))
        .layer(axum::middleware::map_response(watch))
        .layer(axum::extract::DefaultBodyLimit::max(FRAMEWORK_LIMIT))
        .with_state(verifier);
    listener.set_nonblocking(true).unwrap();
    let listener = tokio::net::TcpListener::from_std(listener).unwrap();
    axum::serve(listener, app).await.unwrap();
}

fn serve_actix(
    listener: TcpListener,
    verifier: Option<Verifier>,
    middleware: Middleware,
    log: Log,
) {
    use actix_web::{App, HttpResponse, HttpServer, web};

    async fn hook(delivery: VerifiedEvent, log: web::Data<Log>) -> HttpResponse {
        log.accept(delivery);
        HttpResponse::Ok().finish()
    }

    async fn hook_of_a_reader(
        _: web::Payload,
        delivery: VerifiedEvent,
        log: web::Data<Log>,
    ) -> HttpResponse {
        hook(delivery, log).await
    }

    let server = HttpServer::new(move || {
        let route = match middleware {
            Middleware::None => web::route().to(hook),
            Middleware::ReadsBody => web::route().to(hook_of_a_reader),
        };
        let refusals = log.clone();
        let app = App::new()
            .app_data(web::Data::new(log.clone()))
            .app_data(web::PayloadConfig::new(FRAMEWORK_LIMIT))
            .wrap_fn(move |request, service| {
                let refusals = refusals.clone();
                let response = service.call(request);
                async move {
                    let response = response.await?;
                    let error = response.response().error();
                    if let Some(rejection) = error.and_then(|error| error.as_error()) {
                        refusals.refuse(rejection);
                    }
                    Ok(response)
                }
            })
            .service(web::resource("/hook").route(route));
        match &verifier {
            Some(verifier) => app.app_data(web::Data::new(verifier.clone())),
            None => app,
        }
    });
    // Its clock is late on a busy machine. A time limit that is over when it begins ends nothing there.
    let server = server
        .client_request_timeout(PATIENCE)
        .client_disconnect_timeout(Duration::from_secs(20))
        .workers(1)
        .disable_signals()
        .listen(listener)
        .unwrap()
        .run();
    actix_web::rt::System::new().block_on(server).unwrap();
}

#[tokio::main(flavor = "current_thread")]
async fn serve_tower(listener: TcpListener, verifier: Verifier, middleware: Middleware, log: Log) {
    type Body = UnsyncBoxBody<Bytes, hyper::Error>;

    let calls = log.clone();
    let hook = VerifyLayer::new(verifier).layer(service_fn(move |request: http::Request<_>| {
        let (head, body): (_, BytesBody) = request.into_parts();
        let delivery: &VerifiedEvent = head.extensions.get().unwrap();
        assert_eq!(delivery.body(), &body.into_bytes());
        calls.accept(delivery.clone());
        ready(Ok::<_, Infallible>(http::Response::new(
            BytesBody::default(),
        )))
    }));
    let service = service_fn(move |request: http::Request<Incoming>| {
        let (hook, log) = (hook.clone(), log.clone());
        async move {
            let (head, body) = request.into_parts();
            let body: Body = match middleware {
                Middleware::None => body.boxed_unsync(),
                Middleware::ReadsBody => {
                    body.collect().await.unwrap();
                    Body::default()
                }
            };
            let response = hook.oneshot(http::Request::from_parts(head, body)).await?;
            if let Some(rejection) = response.extensions().get() {
                log.refuse(rejection);
            }
            Ok::<_, Infallible>(response)
        }
    });
    listener.set_nonblocking(true).unwrap();
    let listener = tokio::net::TcpListener::from_std(listener).unwrap();
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(Duration::from_millis(10)).await;
            continue;
        };
        let service = TowerToHyperService::new(service.clone());
        let connection = http1::Builder::new().serve_connection(TokioIo::new(stream), service);
        tokio::spawn(connection);
    }
}
