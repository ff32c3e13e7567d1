//! A program dies between the creation of a contact and its first opt-out: the person gets no topic that they did not
//! choose.

use std::collections::HashSet;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use audience::RetryPolicy;
use audience::inbox::{MemoryStore, SqliteStore, Store};
use audience::mock::{Fault, MockServer};
use audience::unsubscribe::{ConsentError, UnsubscribeService};
use support::cancellation::Program;
use support::{ADA, DatabaseFile, PATIENCE, steady_time};
use tokio::runtime::Runtime;

use super::faulty_store::FaultyStore;
use super::memory_conformance::TestClock;
use super::unsubscribe::links;
use super::unsubscribe_outage::end_leases;

const BOB: &str = "bob@example.com";
const LEASE: Duration = Duration::from_secs(30);
const MINUTE: Duration = Duration::from_secs(60);
/// Longer than the worker looks for a contact that does not exist yet.
const FEW_MINUTES: Duration = Duration::from_secs(6 * 60);
/// How long `subscribe` may take.
const CLICK_LIMIT: Duration = Duration::from_secs(5);

async fn mock() -> MockServer {
    steady_time::begin();
    let server = MockServer::builder()
        .topic("news", true)
        .topic("offers", false);
    server.start().await
}

fn service(server: &MockServer, store: impl Store) -> UnsubscribeService {
    UnsubscribeService::builder(links(), server.client().contacts(), store).build()
}

/// A request that the service never sees, and that has no response.
fn lost() -> Fault {
    Fault::close_before().delayed_by(Duration::from_secs(60))
}

/// Waits until a request has arrived whose path ends with this.
async fn arrival(server: &MockServer, path: &str) {
    let has_arrived = || {
        let requests = server.requests();
        requests
            .iter()
            .any(|request| request.method == "POST" && request.path.ends_with(path))
    };
    while !has_arrived() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// Confirms an address with a program that dies while it waits for the response to a request.
async fn crash(server: &MockServer, store: impl Store, address: &'static str, path: &str) {
    server.fault(lost().path(format!("*{path}")).method("POST").times(1));
    let service = service(server, store);
    let program = Program::start(async move { service.subscribe(address, ["offers"]).await });
    arrival(server, path).await;
    program.kill();
}

/// Runs the worker for this long.
async fn work_for(time: Duration, service: &UnsubscribeService, clock: &TestClock) {
    let step = Duration::from_secs(1);
    for _ in 0..time.as_secs() {
        service.worker().run_until_idle().await.unwrap();
        clock.advance(step);
    }
}

#[tokio::test]
async fn after_a_crash_the_worker_opts_a_new_contact_out_and_the_next_click_subscribes_it() {
    let server = mock().await;
    let clock = TestClock::new();
    let store = clock.store();
    crash(&server, store.clone(), BOB, "/unsubscribe").await;
    let service = service(&server, store);

    // Nobody chose the newsletter, so it is not sent even before the worker knows of the crash.
    let bob = server.contact(BOB).unwrap();
    assert!(!bob.unsubscribed && bob.topics["news"]);
    assert!(!service.may_send(BOB, "news").await.unwrap());
    service.worker().run_until_idle().await.unwrap();
    let again = service.subscribe(BOB, ["offers"]).await;
    assert!(matches!(again, Err(ConsentError::Unfinished)), "{again:?}");
    clock.advance(LEASE);
    let again = service.subscribe(BOB, ["offers"]).await;
    assert!(matches!(again, Err(ConsentError::OptedOut)), "{again:?}");
    service.worker().run_until_idle().await.unwrap();

    assert!(server.contact(BOB).unwrap().unsubscribed);
    let bob = service.subscribe(BOB, ["offers"]).await.unwrap();
    assert!(!bob.unsubscribed && bob.topics["offers"] && !bob.topics["news"]);
    // The opt-out does not come back.
    clock.advance(LEASE * 100);
    service.worker().run_until_idle().await.unwrap();
    assert!(!server.contact(BOB).unwrap().unsubscribed);
}

#[tokio::test]
async fn after_a_crash_before_the_creation_the_opt_out_ends() {
    let server = mock().await;
    let clock = TestClock::new();
    let store = clock.store();
    crash(&server, store.clone(), BOB, "/contacts").await;
    let service = service(&server, store);
    clock.advance(LEASE);

    work_for(FEW_MINUTES, &service, &clock).await;

    assert_eq!(service.pending().await.unwrap(), 0);
    assert!(server.contact(BOB).is_none());
    service.subscribe(BOB, ["offers"]).await.unwrap();
}

/// Confirms an address while the service is so slow that the create request has no response.
async fn give_up_creation(server: &MockServer, store: impl Store) -> UnsubscribeService {
    server.fault(Fault::status(504).path("/contacts").method("POST").times(1));
    let client = server.client_builder().retry(RetryPolicy::none());
    let contacts = client.build().unwrap().contacts();
    let service = UnsubscribeService::builder(links(), contacts, store).build();
    let confirmed = service.subscribe(BOB, ["offers"]).await;
    assert!(matches!(confirmed, Err(ConsentError::Service(_))));
    assert!(server.contact(BOB).is_none());
    service
}

#[tokio::test]
async fn a_contact_that_is_created_after_its_confirmation_failed_gets_no_topic_that_nobody_chose() {
    for response in [
        None,
        Some(Fault::status(204)),
        Some(Fault::status(410)),
        Some(Fault::status(422)),
    ] {
        let described = format!("{response:?}");
        let server = mock().await;
        let clock = TestClock::new();
        let service = give_up_creation(&server, clock.store()).await;
        if let Some(response) = response {
            server.fault(response.path("*/unsubscribe"));
        }
        work_for(MINUTE, &service, &clock).await;
        assert!(!service.may_send(BOB, "news").await.unwrap());
        let again = service.subscribe(BOB, ["offers"]).await;
        assert!(matches!(again, Err(ConsentError::OptedOut)), "{again:?}");
        server.clear_faults();

        // The service applies the request now.
        server.client().contacts().create(BOB).await.unwrap();
        work_for(FEW_MINUTES, &service, &clock).await;

        assert!(server.contact(BOB).unwrap().unsubscribed, "{described}");
        assert_eq!(service.pending().await.unwrap(), 0, "{described}");
        let bob = service.subscribe(BOB, ["offers"]).await.unwrap();
        assert!(!bob.unsubscribed && bob.topics["offers"] && !bob.topics["news"]);
    }
}

#[tokio::test]
async fn the_worker_looks_for_a_contact_that_was_never_created_for_a_few_minutes_only() {
    let server = mock().await;
    let clock = TestClock::new();
    let service = give_up_creation(&server, clock.store()).await;

    work_for(3 * MINUTE, &service, &clock).await;
    let waiting = service.pending().await.unwrap();
    work_for(3 * MINUTE, &service, &clock).await;

    assert_eq!((waiting, service.pending().await.unwrap()), (1, 0));
    let bob = service.subscribe(BOB, ["offers"]).await.unwrap();
    assert!(bob.topics["offers"] && !bob.topics["news"]);
}

#[tokio::test]
async fn a_crash_during_the_confirmation_of_a_contact_opts_it_out_of_nothing() {
    let server = mock().await;
    server.seed_contact(ADA);
    let clock = TestClock::new();
    let store = clock.store();
    crash(&server, store.clone(), ADA, "/subscribe").await;
    let service = service(&server, store);
    assert_eq!(service.pending().await.unwrap(), 0);
    clock.advance(LEASE);

    service.worker().run_until_idle().await.unwrap();

    let ada = server.contact(ADA).unwrap();
    assert!(!ada.unsubscribed && ada.topics["news"]);
}

/// A new contact whose opt-out of everything was recorded needs no other one.
#[tokio::test]
async fn after_a_crash_behind_the_first_opt_out_nothing_waits() {
    let server = mock().await;
    let store = MemoryStore::new();
    crash(&server, store.clone(), BOB, "/subscribe").await;

    let service = service(&server, store);

    assert_eq!(service.pending().await.unwrap(), 0);
    assert!(server.contact(BOB).unwrap().unsubscribed);
}

#[tokio::test]
async fn no_opt_in_is_sent_before_the_opt_out_of_a_new_contact_has_left_the_store() {
    let server = mock().await;
    let (clock, is_down) = (TestClock::new(), Arc::new(AtomicBool::new(false)));
    let store = FaultyStore::down_while(clock.store(), is_down.clone());
    let service = service(&server, store);
    // On a slow machine, the store must be down before the response is there.
    let delay = Duration::from_secs(3);
    server.fault(Fault::delay(delay).path("*/unsubscribe").times(1));
    let subscribing = {
        let service = service.clone();
        tokio::spawn(async move { service.subscribe(BOB, ["offers"]).await })
    };
    arrival(&server, "/unsubscribe").await;

    is_down.store(true, Ordering::SeqCst);
    let first = subscribing.await.unwrap();

    assert!(matches!(first, Err(ConsentError::Unfinished)), "{first:?}");
    assert!(server.contact(BOB).unwrap().unsubscribed);
    is_down.store(false, Ordering::SeqCst);
    clock.advance(LEASE);
    service.worker().run_until_idle().await.unwrap();
    let bob = service.subscribe(BOB, ["offers"]).await.unwrap();
    assert!(!bob.unsubscribed && bob.topics["offers"]);
}

/// The worker may take what is stored for a crash before the confirmation has claimed it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hasty_worker_does_not_opt_out_whoever_confirms() {
    let server = mock().await;
    let file = DatabaseFile::new();
    let service = service(&server, SqliteStore::open(&file.0).unwrap());
    let worker = service.worker().poll_interval(Duration::from_millis(1));
    let worker = tokio::spawn(worker.run_until(std::future::pending()));

    let mut repeated = HashSet::new();
    for number in 0..20 {
        let address = format!("reader{number}@example.com");
        let end = Instant::now() + PATIENCE;
        let path = format!("/contacts/reader{number}%40example.com/unsubscribe");
        loop {
            let began = Instant::now();
            let confirmed = service.subscribe(&address, ["offers"]).await;
            let took = began.elapsed();
            // On a busy machine, the requests can take longer than the limit. Then the person clicks once more, and the
            // opt-out of the first click may still wait.
            let may_fail = match confirmed {
                Err(ConsentError::Unfinished) => took >= CLICK_LIMIT || repeated.contains(&path),
                Err(ConsentError::OptedOut) => repeated.contains(&path),
                _ => false,
            };
            if may_fail && Instant::now() < end {
                repeated.insert(path.clone());
                continue;
            }
            assert!(confirmed.is_ok(), "{number}: {confirmed:?} after {took:?}");
            break;
        }
    }

    while service.pending().await.unwrap() > 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    worker.abort();
    let requests = server.requests();
    let opt_outs = requests
        .iter()
        .filter(|request| request.path.ends_with("/unsubscribe"))
        .filter(|request| !repeated.contains(&request.path));
    // Those of the confirmations: from everything, and from the topic that was not chosen.
    assert_eq!(opt_outs.count(), 40 - 2 * repeated.len());
    println!(
        "the worker was faster {} times",
        service.inbox().metrics().handled
    );
    for number in 0..20 {
        let reader = server.contact(format!("reader{number}@example.com"));
        assert!(!reader.unwrap().unsubscribed, "{number}");
    }
}

#[tokio::test]
async fn after_a_kill_between_the_creation_and_the_first_opt_out_no_topic_stays() {
    let server = mock().await;
    server.fault(lost().path("*/unsubscribe"));
    let file = DatabaseFile::new();
    let mut process = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "unsubscribe_crash::process", "--ignored"])
        .env("AUDIENCE_CRASH_FILE", &file.0)
        .env("AUDIENCE_URL", server.url())
        .env("AUDIENCE_KEY", server.full_key())
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    arrival(&server, "/unsubscribe").await;
    process.kill().unwrap();
    process.wait().unwrap();
    server.clear_faults();
    assert!(!server.contact(BOB).unwrap().unsubscribed);
    end_leases(&file);

    let service = service(&server, SqliteStore::open(&file.0).unwrap());
    service.worker().run_until_idle().await.unwrap();

    assert!(server.contact(BOB).unwrap().unsubscribed);
    assert_eq!(service.pending().await.unwrap(), 0);
}

#[test]
#[ignore = "the test of a kill runs it in a process of its own"]
fn process() {
    let file = std::env::var("AUDIENCE_CRASH_FILE").unwrap();
    // If the test dies, its end of the pipe is closed.
    std::thread::spawn(|| {
        let _ = std::io::stdin().read_line(&mut String::new());
        std::process::exit(0);
    });
    Runtime::new().unwrap().block_on(async {
        let contacts = audience::Client::from_env().unwrap().contacts();
        let store = SqliteStore::open(file).unwrap();
        let service = UnsubscribeService::builder(links(), contacts, store).build();
        let _ = service.subscribe(BOB, ["offers"]).await;
    });
}
