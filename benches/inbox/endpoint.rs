//! How long an axum endpoint takes to accept a delivery, at a constant rate.

use std::time::Duration;

use audience::inbox::{Inbox, Receipt};
use audience::webhooks::{VerifiedEvent, Verifier};
use axum::Router;
use axum::extract::{FromRef, State};
use axum::http::StatusCode;
use axum::routing::post;
use tokio::net::TcpListener;
use tokio::time::{Instant, MissedTickBehavior};

use crate::deliveries::{SECRET, request};
use crate::place::{Places, with_store};

const REQUESTS_PER_SECOND: u64 = 250;
const REQUESTS: usize = 1_000;
const WARM_UP: usize = 50;

#[derive(Clone, FromRef)]
struct App {
    verifier: Verifier,
    inbox: Inbox,
}

pub(crate) async fn measure(places: &mut Places) {
    println!("## An axum endpoint that accepts, {REQUESTS_PER_SECOND} deliveries a second\n");
    println!(
        "{REQUESTS} deliveries over loopback, sender and receiver in one process. The time counts from when a \
         delivery was due.\n"
    );
    println!("| store | p50 ms | p99 ms | longest ms |\n|---|--:|--:|--:|");
    let verifier = Verifier::new(SECRET).unwrap();
    let only_verified = Router::new()
        .route("/hook", post(async |_: VerifiedEvent| StatusCode::OK))
        .with_state(verifier.clone());
    print_row("none, verified only", only_verified).await;
    for kind in places.kinds() {
        let place = match places.empty(kind).await {
            Ok(place) => place,
            Err(reason) => {
                println!("| {}: skipped, {reason} ||||", kind.name());
                continue;
            }
        };
        let builder = with_store!(place.store, store => Inbox::builder(store));
        let app = App {
            verifier: verifier.clone(),
            inbox: builder.build().unwrap(),
        };
        let router = Router::new().route("/hook", post(hook)).with_state(app);
        print_row(kind.name(), router).await;
    }
    println!();
}

async fn hook(State(inbox): State<Inbox>, delivery: VerifiedEvent) -> Receipt {
    inbox.accept(delivery).await
}

async fn print_row(name: &str, router: Router) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/hook", listener.local_addr().unwrap());
    let server = tokio::spawn(axum::serve(listener, router).into_future());
    let mut times = send_all(&url).await;
    server.abort();
    times.sort_unstable();
    let at = |part: f64| times[index(part)].as_secs_f64() * 1e3;
    let (median, most, longest) = (at(0.5), at(0.99), at(1.0));
    println!("| {name} | {median:.2} | {most:.2} | {longest:.2} |");
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "a part of a small number"
)]
fn index(part: f64) -> usize {
    (((REQUESTS as f64) * part).ceil() as usize).clamp(1, REQUESTS) - 1
}

/// Sends all deliveries, each when it is due, and returns how long each took.
async fn send_all(url: &str) -> Vec<Duration> {
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let requests: Vec<_> = (0..WARM_UP + REQUESTS)
        .map(|_| {
            let (headers, body) = request();
            client.post(url).headers(headers).body(body)
        })
        .collect();
    let mut due =
        tokio::time::interval(Duration::from_secs(1) / u32::try_from(REQUESTS_PER_SECOND).unwrap());
    due.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let mut sent = Vec::with_capacity(requests.len());
    for request in requests {
        let due = due.tick().await;
        sent.push(tokio::spawn(time(due, request)));
    }
    let mut times = Vec::with_capacity(REQUESTS);
    for (number, time) in sent.into_iter().enumerate() {
        let time = time.await.unwrap();
        if number >= WARM_UP {
            times.push(time);
        }
    }
    times
}

async fn time(due: Instant, request: reqwest::RequestBuilder) -> Duration {
    let response = request.send().await.unwrap();
    assert_eq!(response.status(), StatusCode::OK);
    response.bytes().await.unwrap();
    due.elapsed()
}
