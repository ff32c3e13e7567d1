//! Shared by the tests: a client with fast retries, servers with prepared responses, and sample JSON.
#![expect(
    missing_docs,
    missing_debug_implementations,
    clippy::missing_errors_doc,
    clippy::missing_panics_doc,
    clippy::must_use_candidate,
    clippy::unwrap_used,
    reason = "only the tests of this package use it"
)]

use std::collections::VecDeque;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::pin::pin;
use std::process::{Child, Command};
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};

use audience::contacts::Contacts;
use audience::{Client, ClientBuilder, Error, RetryPolicy};
use serde_json::{Value, json};
use wiremock::matchers::any;
use wiremock::{Mock, MockServer, Request, Respond, ResponseTemplate};

pub mod cancellation;
pub mod deliveries;
pub mod examples;
pub mod operation;
pub mod postgres;
pub mod receivers;
pub mod redis;
pub mod requests;
pub mod scripted_server;
pub mod steady_time;
pub mod trace_log;

/// Defines an enum and its `ALL`, an array of every variant.
#[macro_export]
macro_rules! enum_with_all {
    ($visibility:vis enum $name:ident { $($variant:ident),+ $(,)? }) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        $visibility enum $name { $($variant),+ }

        impl $name {
            $visibility const ALL: [Self; [$(Self::$variant),+].len()] = [$(Self::$variant),+];
        }
    };
}

/// How long a test waits for what must happen. It is long, so that a slow machine fails no test.
pub const PATIENCE: Duration = Duration::from_secs(300);

/// The path of a SQLite file, which is deleted in the end.
pub struct DatabaseFile(pub PathBuf);

impl DatabaseFile {
    #[expect(clippy::new_without_default, reason = "each one is another file")]
    pub fn new() -> Self {
        let name = format!("audience-{:016x}.db", fastrand::u64(..));
        Self(std::env::temp_dir().join(name))
    }
}

impl Drop for DatabaseFile {
    fn drop(&mut self) {
        for suffix in ["", "-wal", "-shm", "-reserve"] {
            let _ = std::fs::remove_file(format!("{}{suffix}", self.0.display()));
        }
    }
}

/// A timeout that passes in a test, of a call that never gets a response. A slow machine may not even send its request
/// in that time. If that matters, or if another attempt must get a response, use [`time_out`].
pub const TIMEOUT: Duration = Duration::from_secs(5);

pub const ADA: &str = "ada@example.com";
/// An API key that occurs nowhere else, so a test finds a leak by searching for it.
pub const KEY: &str = "key-hunter2";

/// A client that retries as usual but waits at most 1 ms between attempts.
pub fn client(url: impl AsRef<str>) -> Client {
    builder(url).build().expect("a loopback URL is valid")
}

pub fn contacts(url: impl AsRef<str>) -> Contacts {
    client(url).contacts()
}

pub fn builder(url: impl AsRef<str>) -> ClientBuilder {
    Client::builder(url, KEY).retry(fast_retries())
}

/// A builder for a client of this mock, with fast retries.
pub fn mock_builder(server: &audience::mock::MockServer) -> ClientBuilder {
    Client::builder(server.url(), server.full_key()).retry(fast_retries())
}

pub fn fast_retries() -> RetryPolicy {
    let delay = Duration::from_millis(1);
    RetryPolicy::exponential()
        .base_delay(delay)
        .max_delay(delay)
        .max_retry_after(delay)
}

/// Starts a server that responds to every request in the same way.
pub async fn respond_with(response: impl Respond + 'static) -> MockServer {
    let server = MockServer::start().await;
    let mock = Mock::given(any()).respond_with(response);
    mock.mount(&server).await;
    server
}

/// Starts a server that sends these responses in turn, then 501, which no call retries.
pub async fn respond_in_turn(responses: impl IntoIterator<Item = ResponseTemplate>) -> MockServer {
    let responses: VecDeque<_> = responses.into_iter().collect();
    let responses = Mutex::new(responses);
    respond_with(move |_: &Request| {
        let next = responses.lock().expect("no holder panics").pop_front();
        next.unwrap_or_else(|| status(501))
    })
    .await
}

pub fn status(code: u16) -> ResponseTemplate {
    ResponseTemplate::new(code)
}

pub fn ok(body: impl serde::Serialize) -> ResponseTemplate {
    status(200).set_body_json(body)
}

/// A JSON response with exactly this body.
pub fn text(code: u16, body: impl Into<String>) -> ResponseTemplate {
    status(code).set_body_raw(body.into(), "application/json")
}

/// Serves this router on a free port, and returns its address.
pub async fn serve(router: axum::Router) -> SocketAddr {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await;
    let listener = listener.expect("a free port");
    let address = listener.local_addr();
    tokio::spawn(async { axum::serve(listener, router).await });
    address.expect("a bound socket has an address")
}

/// A loopback URL that nothing listens on, until the test process ends.
pub fn closed_url() -> String {
    // The socket is bound and does not listen, so no other program gets its port.
    let socket = tokio::net::TcpSocket::new_v4().expect("a socket");
    let any_port = SocketAddr::from(([127, 0, 0, 1], 0));
    socket.bind(any_port).expect("a free port");
    let address = socket.local_addr();
    std::mem::forget(socket);
    let address = address.expect("a bound socket has an address");
    format!("http://{address}")
}

/// Returns a loopback port that nothing listens on. Meanwhile, no system gives it to a program that asks for any port, as it
/// would do with the port of a listener that was closed. Another test program does not choose it either.
///
/// It is below 20,000: the port of a Redis server plus 10,000 is its second one.
pub fn free_port() -> u16 {
    const BLOCK: u16 = 500;
    static FIRST: OnceLock<(TcpListener, u16)> = OnceLock::new();
    static NEXT: AtomicU16 = AtomicU16::new(0);

    // The process listens on the first port of a block for as long as it runs. So the others of the block are its own.
    let (_listener, first) = FIRST.get_or_init(|| {
        for _ in 0..1_000 {
            let block = (RandomState::new().build_hasher().finish() % 19) as u16;
            // From 10,100 on: a browser connects to no port 10080.
            let first = 10_100 + block * BLOCK;
            if let Ok(listener) = TcpListener::bind(("127.0.0.1", first)) {
                return (listener, first);
            }
        }
        panic!("nineteen test programs run already, and each has a block of ports");
    });
    loop {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let port = first + 1 + number % (BLOCK - 1);
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

/// Awaits a call. Panics after [`PATIENCE`], so that a call that hangs fails its test. If tokio's time passes more slowly
/// than the system's, this is the system's time.
pub async fn in_time<T>(call: impl IntoFuture<Output = T>) -> T {
    // In a box, because some calls are too large for several copies on the stack of a test.
    within(PATIENCE, Box::pin(call.into_future())).await
}

/// As [`in_time`], with another limit.
pub async fn within<T>(limit: Duration, call: impl IntoFuture<Output = T>) -> T {
    const STEPS: u32 = 300;
    let start = Instant::now();
    let mut call = pin!(call.into_future());
    for _ in 0..STEPS {
        if let Ok(result) = tokio::time::timeout(limit / STEPS, &mut call).await {
            return result;
        }
        assert!(start.elapsed() < limit, "the call did not end in {limit:?}");
    }
    panic!("the call did not end in {limit:?} of tokio's time");
}

/// Awaits a call. The clock of the runtime stands almost still until the service has the request. Then it moves by `time`,
/// once. So only an attempt whose request was received times out, however slow the machine is. Panics if the call has
/// not ended after [`PATIENCE`] of the system's time.
///
/// The runtime is that of a `tokio::test`, and does nothing else meanwhile that waits for the clock.
pub async fn time_out<T>(
    call: impl IntoFuture<Output = T>,
    time: Duration,
    is_received: impl Fn() -> bool,
) -> T {
    let mut call = pin!(call.into_future());
    let mut has_passed = false;
    tokio::time::pause();
    // While this thread of the runtime waits, the clock does not move by itself.
    let (keeps_clock, kept) = std::sync::mpsc::channel::<()>();
    tokio::task::spawn_blocking(move || kept.recv().is_err());
    // A millisecond of the clock takes at least one of the machine. It ends the wait before a retry.
    let tick = Duration::from_millis(1);
    let start = Instant::now();
    let result = loop {
        assert!(start.elapsed() < PATIENCE, "the call did not time out");
        tokio::select! {
            biased;
            result = &mut call => break result,
            _ = tokio::task::spawn_blocking(move || std::thread::sleep(tick)) => {}
        }
        let passes = !has_passed && is_received();
        has_passed |= passes;
        tokio::time::advance(if passes { time } else { tick }).await;
    };
    drop(keeps_clock);
    tokio::time::resume();
    result
}

/// The requests the server received, in order of arrival.
pub async fn received(server: &MockServer) -> Vec<Request> {
    server
        .received_requests()
        .await
        .expect("wiremock records requests by default")
}

/// A full contact (section 2.1) with a value in every member.
pub fn contact() -> Value {
    json!({
        "id": "con_1", "email": ADA, "first_name": "Ada", "last_name": "Lovelace",
        "properties": {"plan": "pro", "seats": 3}, "unsubscribed": true, "unsubscribe_reason": "preferences",
        "created_at": 1_700_000_000, "topics": {"news": true, "offers": false},
    })
}

/// The response to a create (section 2.2).
pub fn record() -> Value {
    without(contact(), &["unsubscribe_reason", "topics"])
}

/// A list item (section 2.3) with this id.
pub fn summary(id: &str) -> Value {
    let mut summary = without(record(), &["last_name"]);
    summary["id"] = id.into();
    summary
}

/// The object without these members.
pub fn without(mut object: Value, members: &[&str]) -> Value {
    let map = object.as_object_mut().expect("it is an object");
    for member in members {
        map.remove(*member).expect("the member is present");
    }
    object
}

/// The object with one member replaced or added.
pub fn with(mut object: Value, member: &str, value: impl Into<Value>) -> Value {
    object[member] = value.into();
    object
}

/// Everything a log could show of an error: `Display` and `Debug` of it and of each of its sources.
pub fn printed(error: &Error) -> String {
    let mut text = format!("{error} {error:?} {error:#?} {:?}", error.api());
    let mut source = std::error::Error::source(error);
    while let Some(error) = source {
        text += &format!(" {error} {error:?}");
        source = error.source();
    }
    text
}

/// Starts a program in a process group of its own. A signal to the group of the tests, such as Ctrl-C, does not
/// end it, so it can clean up after them.
pub fn spawn_apart(command: &mut Command) -> Child {
    #[cfg(unix)]
    std::os::unix::process::CommandExt::process_group(command, 0);
    command.spawn().expect("the program starts")
}

/// Returns whether the `script` of util-linux is installed. It runs a command on a terminal of its own. Otherwise, says that
/// the test is skipped. The `script` of macOS has other options, and none for its version.
pub fn has_script() -> bool {
    let script = Command::new("script").arg("--version").output();
    let is_installed = script.is_ok_and(|output| output.status.success());
    if !is_installed {
        skip("the terminal: the `script` of util-linux is not installed");
    }
    is_installed
}

/// Says on one line that a test was skipped, because a program is not installed. Fails if the variable
/// `AUDIENCE_REQUIRE_ALL_TESTS` is set.
pub fn skip(reason: &str) {
    assert!(
        std::env::var_os("AUDIENCE_REQUIRE_ALL_TESTS").is_none(),
        "a required test would be skipped: {reason}"
    );
    say_skipped(reason);
}

/// Says on one line that a test was skipped for a reason that no installation changes, such as a missing network.
pub fn say_skipped(reason: &str) {
    use std::io::Write;

    // Written directly: the test harness captures what `eprintln!` writes.
    let _ = writeln!(std::io::stderr(), "skipped: {reason}");
}
