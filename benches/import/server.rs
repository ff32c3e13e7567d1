//! A server that responds with prepared bytes, in a process of its own.

use std::convert::Infallible;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::rc::Rc;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use audience::{Client, contacts::Contacts};
use bytes::Bytes;
use clap::Args;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Collected, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;

use crate::sampling::one_thread;

pub(crate) const KEY: &str = "benchmark-key";

/// How many contacts a page has.
pub(crate) const PAGE: u64 = 200;

#[derive(Args, Default)]
pub(crate) struct ServerSettings {
    /// How long the server waits before each response, in milliseconds.
    #[arg(long, default_value_t)]
    delay: u64,
    /// How many contacts the list has.
    #[arg(long, default_value_t)]
    contacts: u64,
    /// How many batches a second are allowed. The same number may arrive simultaneously. 0: no limit.
    #[arg(long, default_value_t)]
    limit: u32,
}

/// A server that ends when this is dropped.
pub(crate) struct Server {
    process: Child,
    url: String,
}

impl Server {
    pub(crate) fn start(settings: &[(&str, u64)]) -> Self {
        let program = std::env::current_exe().expect("the benchmark knows its own file");
        let settings = settings
            .iter()
            .map(|(name, value)| format!("--{name}={value}"));
        let mut process = Command::new(program)
            .arg("serve")
            .args(settings)
            .stdout(Stdio::piped())
            .spawn()
            .expect("the server starts");
        let output = process.stdout.take().expect("the output is piped");
        let mut url = String::new();
        let read = BufReader::new(output).read_line(&mut url);
        read.expect("the server prints its URL");
        let url = url.trim().to_owned();
        Self { process, url }
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    pub(crate) fn contacts(&self) -> Contacts {
        contacts(&self.url)
    }

    /// Returns how many entries of batches were applied so far.
    pub(crate) async fn applied_entries(&self) -> u64 {
        let response = reqwest::get(format!("{}/applied", self.url)).await;
        let text = response.expect("the server responds").text().await;
        let text = text.expect("the body is complete");
        text.parse().expect("the body is a number")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended already, and there is nobody to tell.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Returns this crate's handle for a server.
pub(crate) fn contacts(url: &str) -> Contacts {
    let client = Client::new(url, KEY).expect("the client is valid");
    client.contacts()
}

/// Serves until the process is killed.
pub(crate) fn serve(settings: ServerSettings) {
    let runtime = one_thread();
    let local = tokio::task::LocalSet::new();
    local.block_on(&runtime, async {
        let address = SocketAddr::from(([127, 0, 0, 1], 0));
        let listener = TcpListener::bind(address).await.expect("a port is free");
        let address = listener.local_addr().expect("the listener is bound");
        println!("http://{address}");
        let service = Rc::new(Service::new(settings));
        loop {
            let (stream, _) = listener.accept().await.expect("a connection is accepted");
            stream.set_nodelay(true).expect("the option exists");
            let service = service.clone();
            let respond = service_fn(move |request| respond(service.clone(), request));
            let connection = http1::Builder::new().serve_connection(TokioIo::new(stream), respond);
            tokio::task::spawn_local(connection);
        }
    });
}

/// The prepared responses.
struct Service {
    settings: ServerSettings,
    pages: Vec<Bytes>,
    contact: Bytes,
    bucket: Mutex<Bucket>,
    applied: std::cell::Cell<u64>,
}

async fn respond(
    service: Rc<Service>,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    if request.uri().path() == "/applied" {
        let applied = service.applied.get().to_string();
        return Ok(Response::new(Full::from(applied)));
    }
    let (head, body) = request.into_parts();
    let body = body.collect().await.map(Collected::to_bytes);
    let body = body.unwrap_or_default();
    if service.settings.delay > 0 {
        tokio::time::sleep(Duration::from_millis(service.settings.delay)).await;
    }
    let (status, body) = match (&head.method, head.uri.path()) {
        (&Method::POST, "/contacts/batch") => service.create_batch(&body),
        (&Method::POST, "/contacts") => (StatusCode::CREATED, service.contact.clone()),
        (&Method::GET, "/contacts") => (StatusCode::OK, service.page(head.uri.query())),
        _ => (StatusCode::OK, service.contact.clone()),
    };
    let mut response = Response::new(Full::new(body));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(
        "content-type",
        http::HeaderValue::from_static("application/json"),
    );
    if status == StatusCode::TOO_MANY_REQUESTS {
        headers.insert("retry-after", http::HeaderValue::from_static("1"));
    }
    Ok(response)
}

impl Service {
    fn new(settings: ServerSettings) -> Self {
        let ids: Vec<u64> = (0..settings.contacts).collect();
        let page_size = usize::try_from(PAGE).expect("a page is small");
        let mut pages: Vec<Bytes> = ids.chunks(page_size).map(page).collect();
        pages.push(page(&[]));
        Self {
            pages,
            contact: contact(),
            bucket: Mutex::new(Bucket::new(settings.limit)),
            applied: std::cell::Cell::new(0),
            settings,
        }
    }

    fn create_batch(&self, body: &[u8]) -> (StatusCode, Bytes) {
        let mut bucket = self.bucket.lock().expect("no other request panicked");
        if self.settings.limit > 0 && !bucket.take(Instant::now()) {
            let error = Bytes::from_static(br#"{"error":{"code":"rate_limited"}}"#);
            return (StatusCode::TOO_MANY_REQUESTS, error);
        }
        let (count, results) = results(body);
        self.applied.set(self.applied.get() + count);
        (StatusCode::OK, results)
    }

    fn page(&self, query: Option<&str>) -> Bytes {
        let last = query
            .unwrap_or_default()
            .split('&')
            .find_map(|pair| pair.strip_prefix("after=c_"));
        let index = last.map_or(0, |id| {
            (id.parse::<u64>().unwrap_or_default() + 1).div_ceil(PAGE)
        });
        let index = usize::try_from(index).expect("an index of a page");
        self.pages[index.min(self.pages.len() - 1)].clone()
    }
}

/// A bucket of tokens. It holds as many as one second brings.
struct Bucket {
    per_second: f64,
    tokens: f64,
    filled: Instant,
}

impl Bucket {
    fn new(per_second: u32) -> Self {
        Self {
            per_second: per_second.into(),
            tokens: per_second.into(),
            filled: Instant::now(),
        }
    }

    fn take(&mut self, now: Instant) -> bool {
        let seconds = now.duration_since(self.filled).as_secs_f64();
        self.tokens = (self.tokens + seconds * self.per_second).min(self.per_second);
        self.filled = now;
        let is_allowed = self.tokens >= 1.0;
        if is_allowed {
            self.tokens -= 1.0;
        }
        is_allowed
    }
}

/// Returns how many entries a batch has, and a result for each with its address. It looks only for the addresses:
/// reading the JSON would take longer than what is measured.
fn results(batch: &[u8]) -> (u64, Bytes) {
    const MEMBER: &[u8] = br#""email":""#;
    let mut results = Vec::with_capacity(batch.len());
    results.extend_from_slice(br#"{"data":["#);
    let (mut count, mut rest) = (0, batch);
    while let Some(start) = rest.windows(MEMBER.len()).position(|part| part == MEMBER) {
        let end = start + MEMBER.len();
        let end = end
            + rest[end..]
                .iter()
                .position(|byte| *byte == b'"')
                .expect("the text ends");
        let separator: &[u8] = if count == 0 { b"{" } else { b",{" };
        results.extend_from_slice(separator);
        results.extend_from_slice(&rest[start..end]);
        results.extend_from_slice(br#"","status":"created"}"#);
        (count, rest) = (count + 1, &rest[end..]);
    }
    results.extend_from_slice(b"]}");
    (count, results.into())
}

fn page(ids: &[u64]) -> Bytes {
    let contact = |n| {
        serde_json::json!({"id": format!("c_{n}"), "email": format!("reader{n:07}@example.com"), "first_name": "Ada",
            "properties": {"plan": "pro", "seats": 3}, "unsubscribed": false, "created_at": 1_700_000_000 + n})
    };
    let data: Vec<_> = ids.iter().map(contact).collect();
    let next = ids.last().map(|id| format!("c_{id}"));
    serde_json::json!({"data": data, "next": next.unwrap_or_default()})
        .to_string()
        .into()
}

fn contact() -> Bytes {
    serde_json::json!({"id": "c_1", "email": "reader0000000@example.com", "first_name": "Ada", "last_name": "Lovelace",
        "properties": {"plan": "pro", "seats": 3}, "unsubscribed": false, "unsubscribe_reason": "",
        "created_at": 1_700_000_000, "topics": {"news": true, "offers": false}})
    .to_string()
    .into()
}
