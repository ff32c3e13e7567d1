//! The service is down for an hour, people unsubscribe meanwhile, and programs are killed: every opt-out arrives.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use audience::inbox::rusqlite::Connection;
use audience::inbox::{MemoryStore, SqliteStore};
use audience::mock::{Fault, MockServer};
use audience::unsubscribe::UnsubscribeService;
use axum::Router;
use http::StatusCode;
use support::{DatabaseFile, PATIENCE, steady_time};

use super::memory_conformance::TestClock;
use super::unsubscribe::{FORM, ONE_CLICK, links, one_click_url, post};

const CLICKS: usize = 1_000;

fn address(number: usize) -> String {
    format!("reader{number}@example.com")
}

/// Half of the clicks are about a topic, and half about everything.
fn url(number: usize) -> String {
    match number % 2 {
        0 => one_click_url(&address(number), "news"),
        _ => links().link(address(number)),
    }
}

async fn mock() -> MockServer {
    steady_time::begin();
    let server = MockServer::builder().topic("news", true).start().await;
    for number in 0..CLICKS {
        server.seed_contact(address(number));
    }
    server
}

/// Returns the clicks that the service does not have.
fn lost(server: &MockServer, clicks: impl IntoIterator<Item = usize>) -> Vec<usize> {
    let is_lost = |number: &usize| {
        let contact = server.contact(address(*number)).unwrap();
        match number % 2 {
            0 => contact.topics["news"],
            _ => !contact.unsubscribed,
        }
    };
    clicks.into_iter().filter(is_lost).collect()
}

/// In a time that the test moves.
#[tokio::test]
async fn of_1_000_clicks_in_an_outage_of_an_hour_with_kills_none_is_lost() {
    let server = mock().await;
    let clock = TestClock::new();
    let store: MemoryStore = clock.builder().build();
    // Each call is a program of its own, on the store that survives.
    let start = || {
        let contacts = server.client().contacts();
        UnsubscribeService::builder(links(), contacts, store.clone()).build()
    };
    let mut random = fastrand::Rng::with_seed(1815);
    server.fault(Fault::status(503));
    let (mut clicks, mut kills) = (0, 0);

    for minute in (0..60).step_by(4) {
        let service = start();
        while clicks < CLICKS * (minute + 4) / 60 {
            let reply = post(&service, &url(clicks), FORM, ONE_CLICK).await;
            assert_eq!(reply.status, StatusCode::OK);
            clicks += 1;
        }
        // Some runs end early, with claims that nobody releases.
        let run = Box::pin(service.worker().run_until_idle());
        let patience = Duration::from_millis(random.u64(1..60));
        if minute % 8 == 0 {
            kills += usize::from(tokio::time::timeout(patience, run).await.is_err());
        } else {
            run.await.unwrap();
        }
        clock.advance(Duration::from_secs(240));
    }
    assert_eq!((clicks, lost(&server, 0..CLICKS).len()), (CLICKS, CLICKS));
    assert_eq!(start().pending().await.unwrap(), 1_000);
    server.clear_faults();
    // The longest wait is five minutes, and one more may begin at the end of the outage.
    for _ in 0..3 {
        start().worker().run_until_idle().await.unwrap();
        clock.advance(Duration::from_secs(300));
    }

    println!("{clicks} clicks, {kills} kills");
    assert!(kills > 0);
    assert_eq!(lost(&server, 0..CLICKS), Vec::<usize>::new());
    assert_eq!(start().pending().await.unwrap(), 0);
}

/// A server in a process of its own, with its store in a file.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_1_000_clicks_on_a_server_that_is_killed_none_is_lost() {
    let mock = mock().await;
    mock.fault(Fault::status(503));
    let file = DatabaseFile::new();
    let acknowledged = Arc::new(Mutex::new(BTreeSet::new()));
    let mut server = Server::start(&file, &mock);
    let mut kills = 0;

    let mut waiting: Vec<usize> = (0..CLICKS).collect();
    while !waiting.is_empty() {
        // If this thread notices late how many clicks succeeded, some must be left for the next server.
        let part = if kills < 6 { 150 } else { CLICKS };
        let later = waiting.split_off(waiting.len().min(part));
        let running = tokio::spawn(click(server.port, waiting, Arc::clone(&acknowledged)));
        if kills < 6 {
            let before = acknowledged.lock().unwrap().len();
            // On a busy machine, so many clicks may fail that the others are fewer.
            while acknowledged.lock().unwrap().len() < before + 130 && !running.is_finished() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            drop(server);
            kills += 1;
            server = Server::start(&file, &mock);
        }
        waiting = running.await.unwrap();
        waiting.extend(later);
    }
    assert_eq!(lost(&mock, 0..CLICKS).len(), CLICKS);
    mock.clear_faults();

    // As if the leases of the killed processes had ended, and the waits after the outage.
    end_leases(&file);
    let (mut left, mut last_sent) = (CLICKS, Instant::now());
    while left > 0 && last_sent.elapsed() < PATIENCE {
        tokio::time::sleep(Duration::from_millis(200)).await;
        let now_left = lost(&mock, 0..CLICKS).len();
        if now_left < left {
            (left, last_sent) = (now_left, Instant::now());
        } else if last_sent.elapsed() > Duration::from_secs(10) {
            // What failed during the outage may have been released only now.
            end_leases(&file);
        }
    }
    println!(
        "{} clicks acknowledged, {kills} kills",
        acknowledged.lock().unwrap().len()
    );
    let acknowledged = acknowledged.lock().unwrap().clone();
    assert_eq!((acknowledged.len(), kills), (CLICKS, 6));
    assert_eq!(lost(&mock, acknowledged), Vec::<usize>::new());
}

/// Makes clicks, and returns those that were not acknowledged.
async fn click(
    port: u16,
    clicks: Vec<usize>,
    acknowledged: Arc<Mutex<BTreeSet<usize>>>,
) -> Vec<usize> {
    let http = reqwest::Client::new();
    let mut failed = Vec::new();
    let mut clicks = clicks.into_iter();
    let mut running = tokio::task::JoinSet::new();
    loop {
        while running.len() < 8
            && let Some(number) = clicks.next()
        {
            let (_, token) = url(number)
                .rsplit_once('/')
                .map(|(a, b)| (a.to_owned(), b.to_owned()))
                .unwrap();
            let request = http.post(format!("http://127.0.0.1:{port}/unsubscribe/{token}"));
            let request = request.header("content-type", FORM).body(ONE_CLICK).send();
            running.spawn(async move { (number, request.await) });
        }
        let Some(ended) = running.join_next().await else {
            return failed;
        };
        match ended.unwrap() {
            (number, Ok(response)) if response.status() == 200 => {
                acknowledged.lock().unwrap().insert(number);
            }
            (number, _) => failed.push(number),
        }
    }
}

/// A running server. It is killed with SIGKILL when it is dropped.
struct Server {
    process: Child,
    port: u16,
}

impl Server {
    fn start(file: &DatabaseFile, mock: &MockServer) -> Self {
        let mut process = Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "unsubscribe_outage::process",
                "--ignored",
                "--nocapture",
            ])
            .env("AUDIENCE_OUTAGE_FILE", &file.0)
            .env("AUDIENCE_URL", mock.url())
            .env("AUDIENCE_KEY", mock.full_key())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let output = BufReader::new(process.stdout.take().unwrap());
        let port = output
            .lines()
            .map_while(Result::ok)
            .find_map(|line| line.strip_prefix("port ")?.parse().ok())
            .expect("a server prints its port");
        Self { process, port }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
#[ignore = "the test of an outage runs it in a process of its own"]
fn process() {
    let file = std::env::var("AUDIENCE_OUTAGE_FILE").unwrap();
    // If the test dies, its end of the pipe is closed.
    std::thread::spawn(|| {
        let _ = std::io::stdin().read_line(&mut String::new());
        std::process::exit(0);
    });
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build();
    runtime.unwrap().block_on(async {
        let contacts = audience::Client::from_env().unwrap().contacts();
        let store = SqliteStore::open(file).unwrap();
        let service = UnsubscribeService::builder(links(), contacts, store).build();
        let (soon, later) = (Duration::from_millis(100), Duration::from_millis(400));
        let worker = service.worker().backoff(soon, later);
        tokio::spawn(worker.run_until(std::future::pending()));
        let router: Router = Router::new().nest_service("/unsubscribe", service);
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        // On a machine with one core, the line begins with the name of the test.
        writeln!(std::io::stdout().lock(), "\nport {port}").unwrap();
        axum::serve(listener, router).await.unwrap();
    });
}

/// Ends all leases, as if time had passed.
pub(super) fn end_leases(file: &DatabaseFile) {
    let connection = Connection::open(&file.0).unwrap();
    connection.busy_timeout(Duration::from_secs(30)).unwrap();
    let now = "CAST(unixepoch('subsec') * 1000 AS INTEGER)";
    let end = format!("UPDATE audience_inbox_pending SET due = {now} WHERE due > {now} + 5000");
    connection.execute(&end, ()).unwrap();
}
