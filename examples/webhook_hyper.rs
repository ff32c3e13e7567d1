//! A webhook endpoint with bare hyper, as a starting point for your own.
//!
//! ```text
//! cargo run --example webhook_hyper
//!     starts the endpoint, sends it three deliveries (one of them forged), and exits
//! AUDIENCE_WEBHOOK_SECRET=… cargo run --example webhook_hyper -- --port 8080
//!     runs the endpoint until Ctrl-C; use the example `send_event` to post to it
//! ```
//!
//! The service waits 10 seconds for a response and makes up to ten attempts over about five hours. It may
//! deliver an event more than once (interface section 6.5). The hook therefore stores the event in the inbox and
//! responds at once, and the worker handles each event once.
#![expect(clippy::print_stdout, reason = "an example prints what it does")]

mod support;

use std::convert::Infallible;
use std::error::Error;
use std::net::SocketAddr;
use std::pin::pin;
use std::time::{Duration, SystemTime};

use audience::inbox::{Attempt, Inbox, MemoryStore};
use audience::webhooks::tower::{BytesBody, VerifyLayer};
use audience::webhooks::{Event, EventType, Signer, VerifiedEvent, Verifier};
use clap::Parser;
use http::{HeaderMap, Method, Request, Response, StatusCode};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use support::{ENVIRONMENT, verifier_from_env};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tower::{Service, ServiceExt, service_fn};

/// How long a connection may take to send the headers of a request. The layer limits the time of the body.
const HEADER_TIMEOUT: Duration = Duration::from_secs(5);
const DEMO_SECRET: &str = "the secret of this demo";

/// A webhook endpoint with bare hyper, as a starting point for your own
#[derive(Parser)]
#[command(name = "webhook_hyper", after_help = ENVIRONMENT)]
struct Arguments {
    /// Port of 127.0.0.1 to listen on. Without it, the program sends itself three deliveries and exits
    #[arg(long, value_name = "N")]
    port: Option<u16>,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let port = Arguments::parse().port;
    let verifier = match port {
        Some(_) => verifier_from_env()?,
        None => Verifier::new(DEMO_SECRET)?,
    };
    let listener = TcpListener::bind(("127.0.0.1", port.unwrap_or(0))).await?;
    let address = listener.local_addr()?;
    println!("listening on http://{address}/hook");

    // This store is in memory and is lost when the process ends. In production, use a file or a database.
    let inbox = Inbox::builder(MemoryStore::new()).build()?;
    let (done, stop) = oneshot::channel::<()>();
    let stopped = async { stop.await.unwrap_or_default() };
    let worker = tokio::spawn(inbox.worker(handle).run_until(stopped));
    let accepting = inbox.clone();
    let hook = VerifyLayer::new(verifier).handler(move |delivery: VerifiedEvent| {
        let inbox = accepting.clone();
        async move { inbox.accept(delivery).await }
    });
    if port.is_some() {
        serve(listener, hook, tokio::signal::ctrl_c()).await?;
    } else {
        serve(listener, hook, run_demo(address)).await?;
    }
    drop(done);
    worker.await??;
    inbox.worker(handle).run_until_idle().await?; // what was accepted last; a file or a database would keep it
    Ok(())
}

/// Runs once for each event. Put your own code here; after an error the worker tries again.
async fn handle(event: Event, _attempt: Attempt) -> Result<(), Infallible> {
    match event.mail() {
        Some(mail) if mail.is_permanent_bounce() => {
            println!("{}: stop sending to {}", event.id, mail.to);
        }
        _ => println!("{}: {}", event.id, event.event_type()),
    }
    Ok(())
}

/// Serves the hook until `end` is ready, lets running requests finish, and returns the output of `end`.
async fn serve<S, T>(listener: TcpListener, hook: S, end: impl Future<Output = T>) -> T
where
    S: Service<Request<Incoming>, Response = Response<BytesBody>, Error = Infallible>,
    S: Clone + Send + 'static,
    S::Future: Send,
{
    let mut server = http1::Builder::new();
    server
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT);
    let connections = GracefulShutdown::new();
    let mut end = pin!(end);
    let output = loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            output = &mut end => break output,
        };
        let Ok((stream, _)) = accepted else {
            tokio::time::sleep(Duration::from_millis(100)).await; // too many open files, for example
            continue;
        };
        let hook = hook.clone();
        let router = service_fn(move |request: Request<Incoming>| route(request, hook.clone()));
        let service = TowerToHyperService::new(router);
        let connection = server.serve_connection(TokioIo::new(stream), service);
        tokio::spawn(connections.watch(connection));
    };
    drop((listener, hook));
    connections.shutdown().await; // ends soon: headers and bodies have time limits
    output
}

async fn route<S>(request: Request<Incoming>, hook: S) -> Result<Response<BytesBody>, Infallible>
where
    S: Service<Request<Incoming>, Response = Response<BytesBody>, Error = Infallible>,
{
    let status = match (request.method(), request.uri().path()) {
        (&Method::POST, "/hook") => return hook.oneshot(request).await,
        (_, "/hook") => StatusCode::METHOD_NOT_ALLOWED,
        _ => StatusCode::NOT_FOUND,
    };
    let mut response = Response::new(BytesBody::default());
    *response.status_mut() = status;
    Ok(response)
}

/// Delivers an event twice, as the service may, and then with a changed body, as an attacker might.
async fn run_demo(address: SocketAddr) -> Result<(), Box<dyn Error>> {
    let body = r#"{"id": "evt_1", "type": "email.bounced", "created_at": 1700000000, "data": {
        "email_id": "email_1", "from": "shop@example.com", "to": "nobody@example.net",
        "subject": "Your receipt", "bounce_type": "Permanent", "detail": "550 5.1.1 User unknown"}}"#;
    let headers = Signer::new(DEMO_SECRET)?.sign(&EventType::Bounced, SystemTime::now(), body);
    let changed = body.replace("nobody", "somebody");
    for (description, body, expected) in [
        ("a genuine delivery", body, StatusCode::OK),
        ("the same delivery again", body, StatusCode::OK),
        (
            "a delivery with a changed body",
            &changed,
            StatusCode::UNAUTHORIZED,
        ),
    ] {
        let status = deliver(address, headers.clone(), body.to_owned()).await?;
        println!("{description}: {status}");
        if status != expected {
            return Err(format!("{description} should get the response {expected}").into());
        }
    }
    Ok(())
}

async fn deliver(
    address: SocketAddr,
    headers: HeaderMap,
    body: String,
) -> Result<StatusCode, reqwest::Error> {
    let request = reqwest::Client::new().post(format!("http://{address}/hook"));
    Ok(request.headers(headers).body(body).send().await?.status())
}
