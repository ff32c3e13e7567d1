//! A new address for a person: the opt-outs that were not sent yet go along, and those of older mail follow.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, UNIX_EPOCH};

use audience::contacts::{Contact, Erasure};
use audience::inbox::{MemoryStore, SqliteStore, Store};
use audience::mock::dialect::ContactDeletion;
use audience::mock::{Dialect, Fault, MockServer};
use audience::unsubscribe::{ConsentError, OfferedTopic, UnsubscribeService};
use audience::{Error, ErrorKind, Outcome, RetryPolicy};
use futures_util::{FutureExt, future};
use http::StatusCode;
use support::{DatabaseFile, in_time, steady_time};
use tokio::task::JoinHandle;

use super::deliveries::{FailingStore, unavailable};
use super::faulty_store::FaultyStore;
use super::memory_conformance::TestClock;
use super::unsubscribe::{
    FORM, ONE_CLICK, get, links, one_click_url, post, store_opt_out, with_each_store,
};

const OLD: &str = "ada@example.com";
const NEW: &str = "ada@example.net";
const TYPO: &str = "ada@exmaple.net";
const WAITS: &str = "an opt-out of the old address waits to be sent; call again in a few minutes";
/// The page offers the first one only.
const TOPICS: [&str; 2] = ["news", "internal"];
/// How long the last response of a slow change takes. No click takes as long.
const SLOW: Duration = Duration::from_secs(10);

async fn mock() -> MockServer {
    steady_time::begin();
    let server = MockServer::builder().topic("news", true);
    let server = server.topic("internal", true).seed_contact(OLD);
    server.start().await
}

/// A service that does not retry, so that a fault fails a call.
fn service(server: &MockServer, store: impl Store) -> UnsubscribeService {
    let client = server.client_builder().retry(RetryPolicy::none());
    UnsubscribeService::builder(links(), client.build().unwrap().contacts(), store)
        .topic(OfferedTopic::new("news", "Newsletter").default_answer(true))
        .build()
}

/// Clicks on a link in mail to the old address: for a topic, or for everything.
async fn click(service: &UnsubscribeService, topic: Option<&str>) {
    let url = match topic {
        Some(topic) => one_click_url(OLD, topic),
        None => links().link(OLD),
    };
    let reply = post(service, &url, FORM, ONE_CLICK).await;
    assert_eq!(reply.status, StatusCode::OK);
}

async fn run_worker(service: &UnsubscribeService) {
    let worker = service.worker().backoff(Duration::ZERO, Duration::ZERO);
    worker.run_until_idle().await.unwrap();
    assert_eq!(service.pending().await.unwrap(), 0);
}

/// Starts a call, and returns when the service has its last request, which opts out the old contact. Its response comes
/// later because of a fault.
async fn change_until_last_request(
    server: &MockServer,
    service: &UnsubscribeService,
    fault: Fault,
) -> JoinHandle<Result<Contact, ConsentError>> {
    change_until_request(server, service, "/unsubscribe", fault).await
}

/// The same for the first request to a path that ends so.
async fn change_until_request(
    server: &MockServer,
    service: &UnsubscribeService,
    path: &str,
    fault: Fault,
) -> JoinHandle<Result<Contact, ConsentError>> {
    let fault = fault.method("POST").path(format!("*{path}"));
    server.fault(fault.times(1));
    let call = tokio::spawn(service.change_address(OLD, NEW).into_future());
    while !server
        .requests()
        .iter()
        .any(|request| request.method == "POST" && request.path.ends_with(path))
    {
        assert!(!call.is_finished(), "the call ended earlier");
        tokio::task::yield_now().await;
    }
    call
}

/// Changes the address with a call after which nobody knows whether the change was made.
async fn change_maybe(server: &MockServer, service: &UnsubscribeService, old: &str, new: &str) {
    server.fault(Fault::status(503).path("*/unsubscribe").times(1));
    let failed = service.change_address(old, new).await;
    assert_eq!(of_call(failed.unwrap_err()).outcome(), Outcome::Unknown);
}

fn of_call(error: ConsentError) -> Error {
    match error {
        ConsentError::Service(error) => error,
        error => panic!("{error}"),
    }
}

/// The topics that a contact has opted out of.
fn opt_outs(server: &MockServer, address: &str) -> Vec<&'static str> {
    let contact = server.contact(address).unwrap();
    let topics = TOPICS.into_iter();
    topics.filter(|topic| !contact.topics[*topic]).collect()
}

async fn a_waiting_opt_out_stops_a_change(store: impl Store + Clone) {
    for topic in [Some("news"), Some("internal"), None] {
        let server = mock().await;
        let service = service(&server, store.clone());
        click(&service, topic).await;

        let stopped = service.change_address(" Ada@Example.com", NEW).await;

        let error = stopped.unwrap_err();
        assert_eq!(error.visitor_status(), StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(audience::exit_status(&error), 75);
        let error = of_call(error);
        assert_eq!(error.to_string(), format!("change_address: {WAITS}"));
        assert_eq!(error.explanation(), WAITS);
        let found = (error.kind(), error.outcome(), error.may_repeat());
        assert_eq!(found, (ErrorKind::Unfinished, Outcome::Unchanged, true));
        let requests = server.requests();
        assert!(requests.iter().all(|request| request.method == "GET"));
        assert!(server.contact(NEW).is_none());

        run_worker(&service).await;
        let moved = service.change_address(OLD, NEW).await.unwrap();

        assert_eq!(moved.email, NEW);
        assert_eq!(moved.unsubscribed, topic.is_none());
        assert_eq!(opt_outs(&server, NEW), Vec::from_iter(topic));
        assert!(server.contact(OLD).unwrap().unsubscribed);
        assert_eq!(service.pending().await.unwrap(), 0);
    }
}

#[tokio::test]
async fn a_waiting_opt_out_stops_a_change_until_it_was_sent_and_then_goes_along() {
    a_waiting_opt_out_stops_a_change(MemoryStore::new()).await;

    let file = DatabaseFile::new();
    a_waiting_opt_out_stops_a_change(SqliteStore::open(&file.0).unwrap()).await;
}

async fn a_click_during_a_change_reaches_the_new_contact(store: impl Store, topic: Option<&str>) {
    let server = mock().await;
    let service = service(&server, store);
    let call = change_until_last_request(&server, &service, Fault::delay(SLOW)).await;

    click(&service, topic).await;
    assert!(!call.is_finished());
    let moved = call.await.unwrap().unwrap();

    assert!(!moved.unsubscribed && moved.topics["news"] && moved.topics["internal"]);
    assert!(service.has_pending(NEW, topic).await.unwrap());
    assert!(
        !service
            .may_send(NEW, topic.unwrap_or("news"))
            .await
            .unwrap()
    );
    run_worker(&service).await;
    // Exactly what the person opted out of.
    assert_eq!(server.contact(NEW).unwrap().unsubscribed, topic.is_none());
    assert_eq!(opt_outs(&server, NEW), Vec::from_iter(topic));
}

#[tokio::test]
async fn a_click_during_a_change_is_stored_for_the_new_address_before_the_call_returns() {
    let topics = [Some("news"), Some("internal"), None];
    let files = topics.map(|_| DatabaseFile::new());
    let in_memory = topics
        .map(|topic| a_click_during_a_change_reaches_the_new_contact(MemoryStore::new(), topic));
    let in_files = topics.iter().zip(&files).map(|(topic, file)| {
        let store = SqliteStore::open(&file.0).unwrap();
        a_click_during_a_change_reaches_the_new_contact(store, *topic)
    });
    future::join(future::join_all(in_memory), future::join_all(in_files)).await;
}

async fn a_click_during_a_change_that_fails_reaches_the_new_contact(is_applied: bool, topic: &str) {
    let server = mock().await;
    let service = service(&server, MemoryStore::new());
    let outage = Fault::status(503).delayed_by(SLOW);
    let outage = if is_applied { outage.applied() } else { outage };
    let call = change_until_last_request(&server, &service, outage).await;

    click(&service, Some(topic)).await;
    assert!(!call.is_finished());
    let failed = of_call(call.await.unwrap().unwrap_err());

    assert_eq!(failed.status(), Some(StatusCode::SERVICE_UNAVAILABLE));
    assert_eq!(failed.outcome(), Outcome::Unknown);
    assert!(failed.may_repeat());
    let waits = service.change_address(OLD, NEW).await.unwrap_err();
    assert_eq!(of_call(waits).kind(), ErrorKind::Unfinished);
    run_worker(&service).await;
    assert_eq!(opt_outs(&server, NEW), [topic]);

    match (service.change_address(OLD, NEW).await, is_applied) {
        (Ok(moved), false) => assert!(!moved.unsubscribed && !moved.topics[topic]),
        // It cannot know that the opt-out of the old contact is its own.
        (Err(error), true) => assert_eq!(of_call(error).kind(), ErrorKind::Ambiguous),
        (result, _) => panic!("{result:?}"),
    }
    assert!(server.contact(OLD).unwrap().unsubscribed);
    assert!(!server.contact(NEW).unwrap().unsubscribed);
}

#[tokio::test]
async fn a_click_during_a_change_that_fails_reaches_the_new_contact_and_the_call_can_be_repeated() {
    let cases = [(false, "news"), (true, "news"), (true, "internal")];
    let cases = cases.map(|(is_applied, topic)| {
        a_click_during_a_change_that_fails_reaches_the_new_contact(is_applied, topic)
    });
    future::join_all(cases).await;
}

/// The request to this path fails, in a service whose application does not know the new address yet.
async fn a_click_during_a_change_that_fails_is_copied(path: &str, status: u16, is_copied: bool) {
    let server = mock().await;
    let client = server.client_builder().retry(RetryPolicy::none());
    let contacts = client.build().unwrap().contacts();
    let service = UnsubscribeService::builder(links(), contacts, MemoryStore::new())
        .topic(OfferedTopic::new("news", "Newsletter").default_answer(true))
        .current_address(|_| future::ready(Ok::<Option<String>, std::io::Error>(None)))
        .build();
    let failure = Fault::status(status).delayed_by(SLOW);
    let call = change_until_request(&server, &service, path, failure).await;

    click(&service, Some("news")).await;
    assert!(!call.is_finished());
    let failed = of_call(call.await.unwrap().unwrap_err());

    assert_eq!(failed.status().unwrap(), status);
    assert_eq!(failed.outcome() == Outcome::Unknown, is_copied);
    assert!(service.has_pending(OLD, ["news"]).await.unwrap());
    let is_stored = service.has_pending(NEW, ["news"]).await;
    assert_eq!(is_stored.unwrap(), is_copied);
}

#[tokio::test]
async fn a_click_during_a_change_that_fails_is_stored_for_the_new_address_unless_nothing_was_changed()
 {
    let cases = [("/unsubscribe", 503, true), ("/contacts", 402, false)];
    let cases = cases.map(|(path, status, is_copied)| {
        a_click_during_a_change_that_fails_is_copied(path, status, is_copied)
    });
    future::join_all(cases).await;
}

#[tokio::test]
async fn a_topic_that_the_service_no_longer_has_is_looked_for_if_the_call_names_it() {
    let server = mock().await;
    let service = service(&server, MemoryStore::new());
    let change = || service.change_address(OLD, NEW).topics(["retired"]);
    click(&service, Some("retired")).await;

    let error = of_call(change().await.unwrap_err());
    assert_eq!(error.kind(), ErrorKind::Unfinished);
    run_worker(&service).await;
    let moved = change().await.unwrap();

    // The worker has sent an opt-out of everything instead.
    assert!(moved.unsubscribed);
}

#[tokio::test]
async fn an_opt_out_of_somebody_else_is_in_nobodys_way() {
    let server = mock().await;
    let service = service(&server, MemoryStore::new());
    service.opt_out("bob@example.com", None).await.unwrap();

    let missing = service.change_address("nobody@example.com", NEW).await;
    let moved = service.change_address(OLD, NEW).await.unwrap();

    let missing = of_call(missing.unwrap_err());
    assert!(missing.is_not_found(), "{missing}");
    assert!(missing.to_string().starts_with("change_address: "));
    assert!(!moved.unsubscribed);
    assert_eq!(service.pending().await.unwrap(), 1);
}

#[tokio::test]
async fn a_change_continues_if_its_future_is_dropped() {
    let server = mock().await;
    let service = service(&server, MemoryStore::new());

    let left = service
        .change_address(OLD, NEW)
        .into_future()
        .now_or_never();
    in_time(service.inbox().wait_idle()).await;

    assert!(left.is_none());
    assert!(server.contact(OLD).unwrap().unsubscribed);
    assert!(!server.contact(NEW).unwrap().unsubscribed);
}

#[tokio::test]
async fn nothing_is_changed_if_the_store_fails_before() {
    let server = mock().await;
    let is_down = Arc::new(AtomicBool::new(true));
    let store = FaultyStore::down_while(MemoryStore::new(), is_down);

    let error = service(&server, store).change_address(OLD, NEW).await;

    assert!(matches!(error, Err(ConsentError::Store(_))), "{error:?}");
    let requests = server.requests();
    assert!(requests.iter().all(|request| request.method == "GET"));
    assert!(server.contact(NEW).is_none());
}

#[tokio::test]
async fn if_the_store_fails_after_the_change_the_error_says_that_the_change_was_made() {
    let server = mock().await;
    let is_down = Arc::new(AtomicBool::new(false));
    let store = FaultyStore::down_while(MemoryStore::new(), Arc::clone(&is_down));
    let service = service(&server, store);
    let call = change_until_last_request(&server, &service, Fault::delay(SLOW)).await;

    is_down.store(true, Ordering::SeqCst);
    let error = of_call(call.await.unwrap().unwrap_err());

    let found = (error.kind(), error.outcome(), error.is_retryable());
    assert_eq!(found, (ErrorKind::Unfinished, Outcome::Applied, false));
    let text = format!("{error:#}");
    assert!(
        text.contains("compare both contacts") && text.contains("the store of the inbox"),
        "{text}"
    );
    assert!(error.explanation().ends_with("; do not repeat it"));
    assert!(server.contact(OLD).unwrap().unsubscribed);
    assert!(!server.contact(NEW).unwrap().unsubscribed);
}

/// A service whose clock is this one.
fn service_at(server: &MockServer, clock: &TestClock, store: impl Store) -> UnsubscribeService {
    let clock = clock.clone();
    let links = links().clock(move || clock.now());
    UnsubscribeService::builder(links, server.client().contacts(), store)
        .topic(OfferedTopic::new("news", "Newsletter").default_answer(true))
        .build()
}

async fn links_in_older_mail_opt_out_each_newer_address(store: impl Store) {
    const NEWEST: &str = "ada@example.org";
    let server = mock().await;
    let service = service(&server, store);
    service.change_address(OLD, NEW).await.unwrap();

    click(&service, Some("news")).await;
    assert!(service.has_pending(OLD, ["news"]).await.unwrap());
    assert!(service.has_pending(NEW, ["news"]).await.unwrap());
    run_worker(&service).await;
    assert_eq!(opt_outs(&server, NEW), ["news"]);
    service.change_address(NEW, NEWEST).await.unwrap();

    for (address, topic) in [(OLD, "internal"), (NEW, "news")] {
        let url = one_click_url(address, topic);
        assert_eq!(
            post(&service, &url, FORM, ONE_CLICK).await.status,
            StatusCode::OK
        );
        assert_eq!(service.pending().await.unwrap(), 2);
        assert!(service.has_pending(NEWEST, [topic]).await.unwrap());
        run_worker(&service).await;
    }

    assert_eq!(opt_outs(&server, NEWEST), TOPICS);
    let earlier = service.earlier_addresses(" ADA@example.org").await;
    assert_eq!(earlier.unwrap(), [NEW, OLD]);
    service.forget_earlier_addresses(NEWEST).await.unwrap();
    assert!(service.earlier_addresses(NEWEST).await.unwrap().is_empty());
    click(&service, None).await;
    assert_eq!(service.pending().await.unwrap(), 1);
}

#[tokio::test]
async fn after_two_changes_a_link_in_mail_to_each_earlier_address_opts_out_the_newest_one() {
    with_each_store!(links_in_older_mail_opt_out_each_newer_address);
}

#[tokio::test]
async fn after_a_mistyped_address_of_another_person_links_to_all_earlier_addresses_opt_out_the_right_one()
 {
    const MALLORY: &str = "adam@example.org";
    const RIGHT: &str = "ada@example.org";
    let server = mock().await;
    server.seed_contact(MALLORY);
    let service = service(&server, MemoryStore::new());
    service.change_address(OLD, NEW).await.unwrap();
    service.change_address(NEW, MALLORY).await.unwrap();

    service
        .forget_change(" Ada@Example.net", MALLORY)
        .await
        .unwrap();
    service.change_address(NEW, RIGHT).await.unwrap();
    click(&service, Some("news")).await;

    assert!(service.has_pending(RIGHT, ["news"]).await.unwrap());
    assert!(!service.has_pending(MALLORY, ["news"]).await.unwrap());
    let earlier = service.earlier_addresses(RIGHT).await.unwrap();
    assert_eq!(earlier, [NEW, OLD]);
}

#[tokio::test]
async fn a_link_to_an_address_that_somebody_else_has_now_concerns_only_this_one() {
    let server = mock().await;
    let clock = TestClock::new();
    let service = service_at(&server, &clock, MemoryStore::new());
    let days = |days: u64| clock.advance(Duration::from_secs(days * 24 * 3_600));
    let link_at_that_time = || {
        let clock = clock.clone();
        let now = clock.now();
        links().clock(move || now).link(OLD)
    };
    let of_first_owner = link_at_that_time();
    days(1);
    service.change_address(OLD, NEW).await.unwrap();
    days(3);
    let of_second_owner = link_at_that_time();
    let pending_after = async |url: &str| {
        post(&service, url, FORM, ONE_CLICK).await;
        let pending = service.pending().await.unwrap();
        run_worker(&service).await;
        pending
    };

    let page = get(&service, &of_second_owner).await;
    assert!(page.body.contains("type=\"checkbox\""));
    let page = get(&service, &of_first_owner).await;
    assert!(!page.body.contains("type=\"checkbox\""));
    assert_eq!(pending_after(&of_second_owner).await, 1);
    assert!(!server.contact(NEW).unwrap().unsubscribed);

    // The second owner moves, too.
    service.subscribe(OLD, ["news"]).await.unwrap();
    service
        .change_address(OLD, "bob@example.com")
        .await
        .unwrap();
    assert_eq!(pending_after(&of_second_owner).await, 2);
    assert!(server.contact("bob@example.com").unwrap().unsubscribed);
    assert!(!server.contact(NEW).unwrap().unsubscribed);
    assert_eq!(pending_after(&of_first_owner).await, 2);
    assert!(server.contact(NEW).unwrap().unsubscribed);

    for address in [NEW, "bob@example.com"] {
        assert_eq!(service.earlier_addresses(address).await.unwrap(), [OLD]);
    }
}

#[tokio::test]
async fn of_two_changes_at_the_same_time_the_second_one_counts() {
    let server = mock().await;
    // The clock stands still.
    let service = service_at(&server, &TestClock::new(), MemoryStore::new());
    service.change_address(OLD, NEW).await.unwrap();
    // Somebody else has the old address now, and moves, too.
    service.subscribe(OLD, ["news"]).await.unwrap();
    let moved = service.change_address(OLD, "bob@example.com").await;
    assert_eq!(moved.unwrap().email, "bob@example.com");

    service.opt_out(OLD, Some("news")).await.unwrap();

    let of_bob = service.has_pending("bob@example.com", ["news"]).await;
    assert!(of_bob.unwrap());
    assert!(!service.has_pending(NEW, ["news"]).await.unwrap());
}

#[tokio::test]
async fn a_change_back_ends_what_was_noted() {
    let server = mock().await;
    let clock = TestClock::new();
    let service = service_at(&server, &clock, MemoryStore::new());
    let url = links().link(OLD);
    for (old, new) in [(OLD, NEW), (NEW, OLD)] {
        clock.advance(Duration::from_secs(1));
        let moved = service.change_address(old, new).await;
        // The old contact is opted out of everything after the first change, and so is the new one.
        assert_eq!(moved.unwrap().email, new);
    }

    let page = get(&service, &url).await;
    click(&service, Some("news")).await;

    assert!(page.body.contains("type=\"checkbox\""));
    assert_eq!(service.pending().await.unwrap(), 1);
    assert_eq!(service.earlier_addresses(OLD).await.unwrap(), [NEW]);
    assert!(service.earlier_addresses(NEW).await.unwrap().is_empty());
}

#[tokio::test]
async fn a_change_that_was_not_made_is_not_noted() {
    let server = mock().await;
    let service = service(&server, MemoryStore::new());

    let missing = service.change_address("nobody@example.com", NEW).await;
    assert!(of_call(missing.unwrap_err()).is_not_found());
    service.opt_out(OLD, Some("internal")).await.unwrap();
    let waits = service.change_address(OLD, NEW).await;
    assert_eq!(of_call(waits.unwrap_err()).outcome(), Outcome::Unchanged);
    click(&service, Some("news")).await;

    assert_eq!(service.pending().await.unwrap(), 2);
    assert!(service.earlier_addresses(NEW).await.unwrap().is_empty());
}

#[tokio::test]
async fn a_change_that_was_maybe_made_stays_noted() {
    let server = mock().await;
    let service = service(&server, MemoryStore::new());

    change_maybe(&server, &service, OLD, NEW).await;
    server.remove_contact(OLD);
    let missing = service.change_address(OLD, NEW).await;
    assert!(of_call(missing.unwrap_err()).is_not_found());

    assert_eq!(service.earlier_addresses(NEW).await.unwrap(), [OLD]);
    click(&service, None).await;
    assert!(service.has_pending(NEW, ["news"]).await.unwrap());
}

#[tokio::test]
async fn if_a_further_call_corrects_the_new_address_old_links_lead_to_the_correct_one() {
    let server = mock().await;
    let service = service(&server, MemoryStore::new());

    change_maybe(&server, &service, OLD, TYPO).await;
    service.change_address(OLD, NEW).await.unwrap();
    click(&service, Some("news")).await;

    assert!(service.has_pending(NEW, ["news"]).await.unwrap());
    assert!(!service.has_pending(TYPO, ["news"]).await.unwrap());
    assert_eq!(service.earlier_addresses(NEW).await.unwrap(), [OLD]);
    assert!(service.earlier_addresses(TYPO).await.unwrap().is_empty());
}

#[tokio::test]
async fn a_change_that_did_not_end_hides_no_earlier_address() {
    let server = mock().await;
    let service = service(&server, MemoryStore::new());
    service.change_address(OLD, NEW).await.unwrap();

    change_maybe(&server, &service, NEW, TYPO).await;

    assert_eq!(service.earlier_addresses(NEW).await.unwrap(), [OLD]);
    let maybe = service.earlier_addresses(TYPO).await;
    assert_eq!(maybe.unwrap(), [NEW, OLD]);
    service.forget_earlier_addresses(NEW).await.unwrap();
    assert!(service.earlier_addresses(TYPO).await.unwrap().is_empty());
}

#[tokio::test]
async fn an_opt_out_whose_current_address_is_found_later_concerns_whoever_got_the_link() {
    let server = mock().await;
    let clock = TestClock::new();
    let store = MemoryStore::new();
    let service = service_at(&server, &clock, store.clone());
    let today = || {
        let since_1970 = clock.now().duration_since(UNIX_EPOCH).unwrap();
        since_1970.as_secs() / (24 * 3_600)
    };
    let of_first_owner = today();
    service.change_address(OLD, NEW).await.unwrap();
    clock.advance(Duration::from_secs(3 * 24 * 3_600));
    let of_second_owner = today();

    for (day, expected) in [(of_second_owner, &[][..]), (of_first_owner, &["news"][..])] {
        let data = format!(
            r#"{{"address": "{OLD}", "topic": "news", "kind": "MovedAddress", "linked_on": {day}}}"#
        );
        store_opt_out(&store, 1_700_000_000, &data).await;
        run_worker(&service).await;
        assert_eq!(opt_outs(&server, NEW), expected);
    }
}

#[tokio::test]
async fn a_click_for_which_the_store_cannot_look_at_once_concerns_whoever_got_the_link() {
    let server = mock().await;
    let clock = TestClock::new();
    let store = FailingStore::new(MemoryStore::new());
    let service = service_at(&server, &clock, store.clone());
    let link_now = || {
        let clock = clock.clone();
        links().clock(move || clock.now()).link(OLD)
    };
    let of_first_owner = link_now();
    service.change_address(OLD, NEW).await.unwrap();
    clock.advance(Duration::from_secs(3 * 24 * 3_600));
    let of_second_owner = link_now();

    for (url, is_of_new) in [(of_second_owner, false), (of_first_owner, true)] {
        store.fail(&["parked"], unavailable);
        let reply = post(&service, &url, FORM, ONE_CLICK).await;
        store.recover();
        assert_eq!(reply.status, StatusCode::OK);
        assert_eq!(service.pending().await.unwrap(), 2);
        run_worker(&service).await;

        assert_eq!(server.contact(NEW).unwrap().unsubscribed, is_of_new);
    }
}

#[tokio::test]
async fn an_opt_out_whose_current_address_the_store_did_not_find_in_time_is_found_later() {
    let server = mock().await;
    let store = MemoryStore::new();
    let service = service(&server, store.clone());
    service.change_address(OLD, NEW).await.unwrap();
    let data = format!(r#"{{"address": "{OLD}", "topic": "news", "kind": "MovedAddress"}}"#);
    store_opt_out(&store, 1_700_000_000, &data).await;

    run_worker(&service).await;

    assert_eq!(opt_outs(&server, NEW), ["news"]);
}

async fn a_person_is_erased_with_each_earlier_address(store: impl Store) {
    const NEWEST: &str = "ada@example.org";
    steady_time::begin();
    let dialect = Dialect {
        contact_deletion: ContactDeletion::NoContent,
        ..Dialect::default()
    };
    let server = MockServer::builder().dialect(dialect).topic("news", true);
    let server = server.seed_contact(OLD).start().await;
    let service = service(&server, store);
    service.change_address(OLD, NEW).await.unwrap();
    service.change_address(NEW, NEWEST).await.unwrap();
    // Another person has this address now.
    service.subscribe(NEW, ["news"]).await.unwrap();

    server.fault(Fault::status(503).path("*/ada@example.org").times(1));
    let failed = service.erase(NEWEST).await;
    let erased = service.erase(" Ada@example.org").await.unwrap();

    assert_eq!(
        of_call(failed.unwrap_err()).status(),
        Some(StatusCode::SERVICE_UNAVAILABLE)
    );
    let erased: Vec<_> = erased
        .iter()
        .map(|(address, erasure)| (&**address, *erasure))
        .collect();
    let expected = [
        (NEW, Erasure::Kept),
        (OLD, Erasure::NoContact),
        (NEWEST, Erasure::Deleted),
    ];
    assert_eq!(erased, expected);
    assert!(!server.contact(NEW).unwrap().unsubscribed);
    assert!(server.contact(OLD).is_none() && server.contact(NEWEST).is_none());
    assert!(service.earlier_addresses(NEWEST).await.unwrap().is_empty());
}

#[tokio::test]
async fn a_person_is_erased_with_each_earlier_address_but_none_that_somebody_else_has() {
    with_each_store!(a_person_is_erased_with_each_earlier_address);
}
