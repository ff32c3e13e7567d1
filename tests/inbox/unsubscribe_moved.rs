//! Links in mail to an address that a person had before.

use std::future::ready;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use audience::Timestamp;
use audience::inbox::{MemoryStore, Store, StoreError};
use audience::mock::{Fault, MockServer};
use audience::unsubscribe::{ConsentError, OfferedTopic, UnsubscribeService};
use audience::webhooks::{BounceType, Event, EventData, EventId, MailEvent};
use futures_util::FutureExt;
use http::StatusCode;
use support::{in_time, steady_time};

use super::faulty_store::FaultyStore;
use super::memory_conformance::TestClock;
use super::unsubscribe::{FORM, ONE_CLICK, get, links, one_click_url, post, store_opt_out};

const OLD: &str = "ada@example.com";
const NEW: &str = "ada@example.net";
const OTHER: &str = "bob@example.com";

async fn mock() -> MockServer {
    steady_time::begin();
    MockServer::builder()
        .topic("news", true)
        .topic("offers", false)
        .seed_contact(OLD)
        .seed_contact(NEW)
        .seed_contact(OTHER)
        .start()
        .await
}

/// How the application's function fails.
#[derive(Clone, Copy)]
enum Failure {
    Error,
    Panic,
    Silence,
}

/// A service of an application that knows that `OLD` has become `NEW`.
fn service(server: &MockServer, store: impl Store) -> UnsubscribeService {
    failing(server, store, Failure::Error, &Arc::default())
}

/// The same, whose function fails in this way while it is told to.
fn failing(
    server: &MockServer,
    store: impl Store,
    failure: Failure,
    fails: &Arc<AtomicBool>,
) -> UnsubscribeService {
    let fails = Arc::clone(fails);
    UnsubscribeService::builder(links(), server.client().contacts(), store)
        .topic(OfferedTopic::new("news", "Newsletter").default_answer(true))
        .topic(OfferedTopic::new("offers", "Offers"))
        .current_address(move |old| {
            let fails = fails.load(Ordering::SeqCst);
            async move {
                match failure {
                    _ if !fails => Ok((old == OLD).then(|| format!(" {} ", NEW.to_uppercase()))),
                    Failure::Error => Err("the database is down"),
                    Failure::Panic => panic!("a bug of the application"),
                    Failure::Silence => std::future::pending().await,
                }
            }
        })
        .build()
}

async fn run_worker(service: &UnsubscribeService) {
    let worker = service.worker().backoff(Duration::ZERO, Duration::ZERO);
    worker.run_until_idle().await.unwrap();
}

fn gets_news(server: &MockServer, address: &str) -> bool {
    let contact = server.contact(address).unwrap();
    contact.topics["news"] && !contact.unsubscribed
}

#[tokio::test]
async fn one_click_in_old_mail_opts_out_both_addresses() {
    for (url, topic) in [
        (one_click_url(OLD, "news"), Some("news")),
        (links().link(OLD), None),
    ] {
        let server = mock().await;
        let service = service(&server, MemoryStore::new());

        let reply = post(&service, &url, FORM, ONE_CLICK).await;

        assert_eq!(reply.status, StatusCode::OK);
        assert_eq!(service.pending().await.unwrap(), 2);
        assert!(service.has_pending(NEW, topic).await.unwrap());
        assert!(service.has_pending(OLD, topic).await.unwrap());
        assert!(!service.may_send(NEW, "news").await.unwrap());
        let subscribed = service.subscribe(NEW, ["news"]).await;
        assert!(matches!(subscribed, Err(ConsentError::OptedOut)));

        run_worker(&service).await;

        assert!(!gets_news(&server, OLD) && !gets_news(&server, NEW));
        assert_eq!(server.contact(NEW).unwrap().unsubscribed, topic.is_none());
        assert_eq!(service.pending().await.unwrap(), 0);
    }
}

#[tokio::test]
async fn a_link_of_somebody_with_one_address_concerns_only_this_address() {
    let server = mock().await;
    let service = service(&server, MemoryStore::new());

    for address in [NEW, OTHER] {
        post(&service, &one_click_url(address, "news"), FORM, ONE_CLICK).await;
        assert_eq!(service.pending().await.unwrap(), 1);
        run_worker(&service).await;
        assert!(!gets_news(&server, address));
    }

    assert!(gets_news(&server, OLD));
}

#[tokio::test]
async fn the_function_gets_an_address_as_the_service_stores_it_and_its_result_may_have_any_spelling()
 {
    const JUERGEN: &str = "jürgen@example.com";
    steady_time::begin();
    let server = MockServer::builder().topic("news", true);
    let server = server.seed_contact(JUERGEN).seed_contact(NEW).start().await;
    let knows = |current: &'static str| {
        UnsubscribeService::builder(links(), server.client().contacts(), MemoryStore::new())
            .topic(OfferedTopic::new("news", "Newsletter"))
            .current_address(move |old| async move {
                Ok::<_, std::io::Error>((old == JUERGEN).then(|| current.to_owned()))
            })
            .build()
    };

    let same = get(
        &knows("JÜRGEN@example.com"),
        &links().link("JÜRGEN@example.com"),
    )
    .await;
    let moved = knows(NEW);
    moved.opt_out("JÜRGEN@example.com", None).await.unwrap();
    run_worker(&moved).await;

    assert!(same.is_checked("news"));
    assert!(server.contact(JUERGEN).unwrap().unsubscribed);
    assert!(server.contact(NEW).unwrap().unsubscribed);
}

#[tokio::test]
async fn an_opt_out_is_stored_although_the_visitor_leaves_while_the_address_is_looked_up() {
    let server = mock().await;
    let contacts = server.client().contacts();
    let service = UnsubscribeService::builder(links(), contacts, MemoryStore::new())
        .current_address(|_| async {
            tokio::time::sleep(Duration::from_millis(100)).await;
            Ok::<_, String>(None)
        })
        .build();

    let left = service.opt_out(OTHER, Some("news")).now_or_never();
    in_time(service.inbox().wait_idle()).await;

    assert!(left.is_none());
    assert!(service.has_pending(OTHER, ["news"]).await.unwrap());
}

#[tokio::test]
async fn an_address_is_looked_up_after_its_opt_out_is_stored_so_that_no_change_meanwhile_is_missed()
{
    let server = mock().await;
    let (store, seen) = (MemoryStore::new(), Arc::new(Mutex::new(Vec::new())));
    let (of_function, all_seen) = (store.clone(), Arc::clone(&seen));
    let service = UnsubscribeService::builder(links(), server.client().contacts(), store)
        .current_address(move |_| {
            let (store, seen) = (of_function.clone(), Arc::clone(&seen));
            async move {
                let backlog = store.backlog("unsubscribe").await?;
                seen.lock().unwrap().push(backlog.waiting);
                Ok::<_, StoreError>(None)
            }
        })
        .build();

    service.opt_out(OTHER, Some("news")).await.unwrap();
    post(&service, &one_click_url(NEW, "news"), FORM, ONE_CLICK).await;

    assert_eq!(*all_seen.lock().unwrap(), [1, 2]);
}

#[tokio::test]
async fn an_opt_out_is_not_acknowledged_if_it_cannot_be_stored() {
    let server = mock().await;
    let is_down = Arc::new(AtomicBool::new(true));
    let store = FaultyStore::down_while(MemoryStore::new(), is_down);
    let service = service(&server, store);

    let reply = post(&service, &one_click_url(OLD, "news"), FORM, ONE_CLICK).await;

    assert_eq!(reply.status, StatusCode::SERVICE_UNAVAILABLE);
}

#[tokio::test]
async fn an_opt_out_is_not_acknowledged_if_only_that_of_the_old_address_is_stored() {
    let server = mock().await;
    let store = MemoryStore::builder().capacity(1).build();
    let service = service(&server, store);
    let url = one_click_url(OLD, "news");

    let reply = post(&service, &url, FORM, ONE_CLICK).await;

    assert_eq!(reply.status, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(service.pending().await.unwrap(), 1);
}

#[tokio::test]
async fn the_page_of_an_old_link_shows_nothing_of_the_current_address_and_opts_out_both() {
    let server = mock().await;
    let service = service(&server, MemoryStore::new());
    let url = links().link(OLD);

    let page = get(&service, &url).await;
    let left = post(&service, &url, FORM, "unsubscribe=all").await;

    for page in [page, left] {
        assert_eq!(page.status, StatusCode::OK);
        assert!(page.body.contains("a…@example.com") && !page.body.contains("example.net"));
        assert!(!page.body.contains("type=\"checkbox\"") && page.body.contains("value=\"all\""));
    }
    run_worker(&service).await;
    assert!(server.contact(OLD).unwrap().unsubscribed);
    assert!(server.contact(NEW).unwrap().unsubscribed);
}

#[tokio::test]
async fn a_form_from_before_the_change_of_address_opts_out_both_and_opts_nobody_in() {
    let server = mock().await;
    let plain =
        UnsubscribeService::builder(links(), server.client().contacts(), MemoryStore::new())
            .topic(OfferedTopic::new("news", "Newsletter").default_answer(true))
            .topic(OfferedTopic::new("offers", "Offers"))
            .build();
    let url = links().link(OLD);
    let form = get(&plain, &url).await.form(&["offers"]);
    let service = service(&server, MemoryStore::new());

    let saved = post(&service, &url, FORM, form).await;
    run_worker(&service).await;

    assert_eq!(saved.status, StatusCode::OK);
    assert!(saved.body.contains("What you unsubscribed from is saved."));
    for address in [OLD, NEW] {
        let topics = server.contact(address).unwrap().topics;
        assert!(!topics["news"] && !topics["offers"], "{address}");
    }
}

#[tokio::test]
async fn if_the_current_address_is_not_found_the_opt_out_is_stored_and_the_worker_looks_again() {
    for failure in [Failure::Error, Failure::Panic, Failure::Silence] {
        let server = mock().await;
        let fails = Arc::new(AtomicBool::new(true));
        let service = failing(&server, MemoryStore::new(), failure, &fails);

        for _ in 0..2 {
            let reply = post(&service, &one_click_url(OLD, "news"), FORM, ONE_CLICK).await;
            assert_eq!(reply.status, StatusCode::OK);
        }
        assert_eq!(service.pending().await.unwrap(), 2);
        let worker = service.worker();
        let report = worker.run_until_idle().await.unwrap();

        // The opt-out of the address in the link need not wait.
        assert_eq!((report.handled, report.failed), (1, 1));
        assert!(!gets_news(&server, OLD) && gets_news(&server, NEW));
        assert_eq!(service.pending().await.unwrap(), 1);
    }
}

#[tokio::test]
async fn the_error_of_a_look_for_the_current_address_is_not_stored() {
    let server = mock().await;
    let contacts = server.client().contacts();
    let service = UnsubscribeService::builder(links(), contacts, MemoryStore::new())
        .current_address(|old| ready(Err(format!("{old} is there twice"))))
        .build();
    service.opt_out(OLD, Some("news")).await.unwrap();

    let worker = service.worker().max_attempts(1);
    let report = worker.run_until_idle().await.unwrap();

    assert_eq!((report.handled, report.parked), (1, 1));
    let parked = service.inbox().parked().await.unwrap();
    assert_eq!(
        parked[0].reason,
        "the current address could not be looked up"
    );
}

fn mail_to(address: &str) -> MailEvent {
    MailEvent::new("em_1", "us@example.com", address, "Hi")
}

fn event(data: EventData) -> Event {
    let id = EventId::try_from("evt_1").unwrap();
    Event::new(id, Timestamp::from_unix(1), data)
}

pub(super) fn spam_report(address: &str) -> Event {
    event(EventData::Complained(mail_to(address)))
}

#[tokio::test]
async fn a_spam_report_about_mail_to_an_old_address_opts_out_the_current_one() {
    let server = mock().await;
    let service = service(&server, MemoryStore::new());
    server.report_spam(OLD);

    // The same event may arrive twice.
    for _ in 0..2 {
        let report = spam_report("Ada@Example.com");
        service.record_bounce(&report).await.unwrap();
    }

    assert_eq!(service.pending().await.unwrap(), 1);
    assert!(!service.may_send(NEW, "news").await.unwrap());
    run_worker(&service).await;
    assert!(server.contact(NEW).unwrap().unsubscribed);
    let old = server.contact(OLD).unwrap();
    assert_eq!(old.unsubscribe_reason, "complaint");
    assert!(gets_news(&server, OTHER));
}

#[tokio::test]
async fn a_spam_report_about_mail_to_a_current_address_and_a_bounce_of_an_old_one_store_no_opt_out()
{
    let server = mock().await;
    let service = service(&server, MemoryStore::new());
    let mut bounced = mail_to(OLD);
    bounced.bounce_type = Some(BounceType::Permanent);

    for report in [spam_report(NEW), spam_report(OTHER)] {
        service.record_bounce(&report).await.unwrap();
    }
    let bounce = event(EventData::Bounced(bounced));
    service.record_bounce(&bounce).await.unwrap();

    assert_eq!(service.pending().await.unwrap(), 0);
    assert!(service.has_bounced(OLD).await.unwrap());
    assert!(service.may_send(NEW, "news").await.unwrap());
}

#[tokio::test]
async fn a_spam_report_that_is_older_than_an_opt_in_of_the_current_address_does_not_count() {
    let server = mock().await;
    let service = service(&server, MemoryStore::new());
    service.subscribe(NEW, ["news"]).await.unwrap();

    service.record_bounce(&spam_report(OLD)).await.unwrap();

    assert_eq!(service.pending().await.unwrap(), 0);
    assert!(service.may_send(NEW, "news").await.unwrap());
}

#[tokio::test]
async fn after_a_spam_report_the_worker_looks_again_for_a_current_address_that_was_not_found() {
    let server = mock().await;
    let fails = Arc::new(AtomicBool::new(true));
    let service = failing(&server, MemoryStore::new(), Failure::Error, &fails);

    service.record_bounce(&spam_report(OLD)).await.unwrap();
    fails.store(false, Ordering::SeqCst);
    run_worker(&service).await;

    assert!(server.contact(NEW).unwrap().unsubscribed);
    // Only the service opts out the address of the mail.
    assert!(!server.contact(OLD).unwrap().unsubscribed);
}

#[tokio::test]
async fn a_spam_report_is_delivered_again_if_the_opt_out_of_the_current_address_cannot_be_stored() {
    let server = mock().await;
    let is_down = Arc::new(AtomicBool::new(true));
    let store = FaultyStore::down_while(MemoryStore::new(), is_down);
    let service = service(&server, store);

    let recorded = service.record_bounce(&spam_report(OLD)).await;

    assert!(recorded.is_err());
}

#[tokio::test]
async fn an_opt_out_whose_current_address_was_found_later_is_sent() {
    let server = mock().await;
    let fails = Arc::new(AtomicBool::new(true));
    let store = MemoryStore::new();
    let service = failing(&server, store.clone(), Failure::Error, &fails);
    post(&service, &one_click_url(OLD, "news"), FORM, ONE_CLICK).await;

    // Of a process that was built without the function.
    let plain = UnsubscribeService::builder(links(), server.client().contacts(), store).build();
    let worker = plain
        .worker()
        .backoff(Duration::from_millis(1), Duration::from_millis(1))
        .max_attempts(u32::MAX);
    let has_failed = async {
        while plain.inbox().metrics().failed == 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    in_time(worker.run_until(has_failed)).await.unwrap();
    assert_eq!(service.pending().await.unwrap(), 1);
    fails.store(false, Ordering::SeqCst);
    // The failed attempt is retried a moment later, and a worker without due events is idle.
    in_time(async {
        while service.pending().await.unwrap() > 0 {
            run_worker(&service).await;
        }
    })
    .await;

    assert!(!gets_news(&server, OLD) && !gets_news(&server, NEW));
    assert_eq!(service.pending().await.unwrap(), 0);
}

#[tokio::test]
async fn an_opt_out_of_somebody_who_moved_is_recorded_for_both_addresses_with_the_time_of_the_click()
 {
    let server = mock().await;
    let records = Arc::new(Mutex::new(Vec::new()));
    let recording = |store: MemoryStore| {
        let got = Arc::clone(&records);
        UnsubscribeService::builder(links(), server.client().contacts(), store)
            .current_address(|old| {
                ready(Ok::<_, std::io::Error>(
                    (old == OLD).then(|| NEW.to_owned()),
                ))
            })
            .record_opt_out(move |opt_out| {
                got.lock().unwrap().push(opt_out);
                ready(Ok::<_, std::io::Error>(()))
            })
            .build()
    };
    let addresses = || {
        let mut records = std::mem::take(&mut *records.lock().unwrap());
        records.sort_by(|one, other| one.address.cmp(&other.address));
        let records = records.into_iter();
        records.map(|record| (record.address, record.made_at))
    };

    let service = recording(MemoryStore::new());
    post(&service, &one_click_url(OLD, "news"), FORM, ONE_CLICK).await;
    run_worker(&service).await;
    assert!(addresses().map(|(address, _)| address).eq([OLD, NEW]));

    // The current address could not be looked up at the time of the click.
    let store = MemoryStore::new();
    let data = format!(r#"{{"address": "{OLD}", "topic": "news", "kind": "CurrentAddress"}}"#);
    store_opt_out(&store, 1_700_000_000, &data).await;
    run_worker(&recording(store)).await;
    let made_at = Timestamp::from_unix(1_700_000_000);
    assert!(addresses().eq([(NEW.to_owned(), made_at)]));
}

#[tokio::test]
async fn a_late_look_for_somebody_with_one_address_leaves_a_newer_opt_in() {
    let server = mock().await;
    let (clock, fails) = (TestClock::new(), Arc::new(AtomicBool::new(true)));
    let service = failing(&server, clock.store(), Failure::Error, &fails);
    post(&service, &one_click_url(OTHER, "news"), FORM, ONE_CLICK).await;
    let report = service.worker().run_until_idle().await.unwrap();
    assert_eq!((report.handled, report.failed), (1, 1));

    service.subscribe(OTHER, ["news"]).await.unwrap();
    fails.store(false, Ordering::SeqCst);
    clock.advance(Duration::from_secs(6));
    run_worker(&service).await;

    assert_eq!(service.pending().await.unwrap(), 0);
    assert!(gets_news(&server, OTHER));
}

#[tokio::test]
async fn while_the_current_address_is_not_known_the_page_has_no_boxes_and_opts_nobody_in() {
    let server = mock().await;
    let fails = Arc::new(AtomicBool::new(false));
    let service = failing(&server, MemoryStore::new(), Failure::Error, &fails);
    let url = links().link(OTHER);
    let form = get(&service, &url).await.form(&["news", "offers"]);
    fails.store(true, Ordering::SeqCst);
    server.clear_requests();

    let page = get(&service, &url).await;
    let saved = post(&service, &url, FORM, form).await;

    assert_eq!(page.status, StatusCode::OK);
    assert!(!page.body.contains("type=\"checkbox\"") && page.body.contains("value=\"all\""));
    assert_eq!(saved.status, StatusCode::SERVICE_UNAVAILABLE);
    assert!(server.requests().is_empty());
}

#[tokio::test]
async fn a_retry_for_the_old_address_leaves_a_newer_opt_in_of_the_current_one() {
    let server = mock().await;
    let clock = TestClock::new();
    let service = service(&server, clock.store());
    post(&service, &one_click_url(OLD, "news"), FORM, ONE_CLICK).await;
    server.fault(Fault::status(503).path(format!("/contacts/{OLD}/unsubscribe")));
    let once = service.worker();
    let report = once.run_until_idle().await.unwrap();
    assert_eq!((report.handled, report.failed), (1, 1));

    service.subscribe(NEW, ["news"]).await.unwrap();
    server.clear_faults();
    clock.advance(Duration::from_secs(6));
    run_worker(&service).await;

    assert!(!gets_news(&server, OLD) && gets_news(&server, NEW));
}

/// The application knows `NEW`, and the service does not yet.
async fn mock_before_the_change() -> MockServer {
    steady_time::begin();
    MockServer::builder()
        .topic("news", true)
        .seed_contact(OLD)
        .start()
        .await
}

#[tokio::test]
async fn an_opt_out_during_a_change_of_address_reaches_the_contact_that_is_created_after_it() {
    for is_found_later in [false, true] {
        let server = mock_before_the_change().await;
        let (clock, fails) = (TestClock::new(), Arc::new(AtomicBool::new(is_found_later)));
        let service = failing(&server, clock.store(), Failure::Error, &fails);
        post(&service, &one_click_url(OLD, "news"), FORM, ONE_CLICK).await;
        fails.store(false, Ordering::SeqCst);
        let unavailable = Fault::status(503).path(format!("/contacts/{OLD}/unsubscribe"));
        server.fault(unavailable.times(1));
        service.worker().run_until_idle().await.unwrap();

        // As `change_address` does, which has retrieved the old contact before the click.
        server.client().contacts().create(NEW).await.unwrap();
        assert!(!service.may_send(NEW, "news").await.unwrap());
        clock.advance(Duration::from_secs(11));
        service.worker().run_until_idle().await.unwrap();

        assert!(!gets_news(&server, NEW) && !gets_news(&server, OLD));
        assert_eq!(service.pending().await.unwrap(), 0);
    }
}

#[tokio::test]
async fn an_opt_out_of_a_current_address_that_stays_no_contact_ends_after_a_few_minutes() {
    let server = mock_before_the_change().await;
    let clock = TestClock::new();
    let service = service(&server, clock.store());
    post(&service, &one_click_url(OLD, "news"), FORM, ONE_CLICK).await;
    let mut minutes = 0;

    while service.pending().await.unwrap() > 0 {
        for _ in 0..60 {
            service.worker().run_until_idle().await.unwrap();
            clock.advance(Duration::from_secs(1));
        }
        minutes += 1;
    }

    assert!((4..=7).contains(&minutes), "{minutes}");
    assert!(!gets_news(&server, OLD));
}

#[tokio::test]
async fn an_opt_out_by_an_old_link_during_an_opt_in_of_the_new_address_is_sent_after_it() {
    let server = mock().await;
    let service = service(&server, MemoryStore::new());
    service.opt_out(NEW, Some("news")).await.unwrap();
    run_worker(&service).await;
    server.clear_requests();
    server.fault(Fault::delay(Duration::from_secs(1)).times(1));
    let url = one_click_url(OLD, "news");
    let click = async {
        while server.requests().is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let reply = post(&service, &url, FORM, ONE_CLICK).await;
        run_worker(&service).await;
        reply
    };

    let (subscribed, reply) = tokio::join!(service.subscribe(NEW, ["news"]), click);

    assert!(subscribed.unwrap().topics["news"]);
    assert_eq!(reply.status, StatusCode::OK);
    assert!(!gets_news(&server, NEW));
}

#[tokio::test]
async fn an_opt_out_at_a_new_address_before_one_at_the_old_address_does_not_end_that_one() {
    let server = mock_before_the_change().await;
    let clock = TestClock::new();
    let service = service(&server, clock.store());
    service.opt_out(NEW, Some("news")).await.unwrap();
    post(&service, &one_click_url(OLD, "news"), FORM, ONE_CLICK).await;
    // The service does not have the new address yet.
    service.worker().run_until_idle().await.unwrap();
    assert!(!service.may_send(NEW, "news").await.unwrap());

    server.client().contacts().create(NEW).await.unwrap();
    clock.advance(Duration::from_secs(5));
    service.worker().run_until_idle().await.unwrap();

    assert!(!gets_news(&server, NEW));
    assert_eq!(service.pending().await.unwrap(), 0);
}

#[tokio::test]
async fn an_outage_does_not_count_for_an_opt_out_of_a_current_address_that_is_no_contact_yet() {
    let server = mock_before_the_change().await;
    let clock = TestClock::new();
    let service = service(&server, clock.store());
    let work = async |attempts: usize| {
        for _ in 0..attempts {
            service.worker().run_until_idle().await.unwrap();
            clock.advance(Duration::from_secs(300));
        }
    };
    post(&service, &one_click_url(OLD, "news"), FORM, ONE_CLICK).await;
    work(5).await;
    server.fault(Fault::status(503));
    work(5).await;
    server.clear_faults();
    // The service works again, and the sync that changes the address has not run yet.
    work(3).await;
    assert_eq!(service.pending().await.unwrap(), 1);

    server.client().contacts().create(NEW).await.unwrap();
    work(1).await;

    assert!(!gets_news(&server, NEW) && !gets_news(&server, OLD));
    assert_eq!(service.pending().await.unwrap(), 0);
}

#[tokio::test]
async fn after_an_outage_an_opt_out_of_a_current_address_that_stays_no_contact_ends() {
    let server = mock_before_the_change().await;
    let clock = TestClock::new();
    let service = service(&server, clock.store());
    post(&service, &one_click_url(OLD, "news"), FORM, ONE_CLICK).await;
    server.fault(Fault::status(503));

    let mut waiting = Vec::new();
    for attempt in 0..14 {
        if attempt == 10 {
            server.clear_faults();
        }
        service.worker().run_until_idle().await.unwrap();
        waiting.push(service.pending().await.unwrap());
        clock.advance(Duration::from_secs(300));
    }

    assert_eq!(waiting[10..], [1, 1, 1, 0]);
}
