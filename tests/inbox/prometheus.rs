//! The metrics as Prometheus scrapes them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use audience::inbox::{
    AcceptState, Backlog, ClaimState, EventKey, HeldClaim, Inbox, MemoryStore, NewClaim,
    NewDelivery, ParkedEvent, Receipt, Release, Store, StoreError, Take, TakenEvent, prometheus,
};
use audience::mock::MockServer;
use audience::unsubscribe::UnsubscribeService;
use audience::webhooks::EventId;
use support::ADA;

use super::deliveries::{delivery, with_store_methods};
use super::faulty_store::FaultyStore;
use super::unsubscribe::{FORM, ONE_CLICK, links, post};

#[tokio::test]
async fn the_text_has_the_counters_and_the_backlog_of_an_inbox_and_of_the_opt_outs() {
    let server = MockServer::start().await;
    let store = MemoryStore::new();
    let inbox = Inbox::builder(store.clone()).build().unwrap();
    let service = UnsubscribeService::builder(links(), server.client().contacts(), store).build();
    assert_eq!(inbox.accept(delivery("evt_1")).await, Receipt::Accepted);
    assert_eq!(inbox.accept(delivery("evt_1")).await, Receipt::Duplicate);
    post(&service, &links().link(ADA), FORM, ONE_CLICK).await;
    post(
        &service,
        &links().headers(ADA, "news")[0].1[1..].replace('>', ""),
        FORM,
        ONE_CLICK,
    )
    .await;

    let text = prometheus([&inbox, service.inbox()]).await;

    for line in [
        "# TYPE audience_inbox_accepted_total counter",
        "audience_inbox_accepted_total{endpoint=\"main\"} 1",
        "audience_inbox_duplicates_total{endpoint=\"main\"} 1",
        "# TYPE audience_inbox_backlog gauge",
        "audience_inbox_backlog{endpoint=\"main\",state=\"waiting\"} 1",
        "audience_inbox_backlog{endpoint=\"unsubscribe\",state=\"waiting\"} 2",
    ] {
        assert!(text.lines().any(|each| each == line), "{line}\n{text}");
    }
    assert!(text.contains("audience_inbox_lag_seconds{endpoint=\"main\"} "));
}

#[tokio::test]
async fn if_the_store_is_down_the_counters_say_so_and_there_are_no_gauges() {
    let is_down = Arc::new(AtomicBool::new(true));
    let store = FaultyStore::down_while(MemoryStore::new(), Arc::clone(&is_down));
    let inbox = Inbox::builder(store).build().unwrap();

    let down = prometheus([&inbox]).await;
    is_down.store(false, Ordering::SeqCst);
    let up = prometheus([&inbox]).await;

    assert!(down.contains("audience_inbox_store_errors_total{endpoint=\"main\"} 1\n"));
    assert!(!down.contains("audience_inbox_backlog{"), "{down}");
    assert!(up.contains("audience_inbox_backlog{"), "{up}");
}

/// A store that never responds.
struct SilentStore;

macro_rules! silently {
    ($($method:ident($($name:ident: $type:ty),*) -> $output:ty;)+) => {
        $(async fn $method(&self, $(_: $type),*) -> Result<$output, StoreError> {
            std::future::pending().await
        })+
    };
}

impl Store for SilentStore {
    silently! { complete(held: HeldClaim<'_>, retention: Duration) -> bool; }
    with_store_methods! { silently }
}

#[tokio::test(start_paused = true)]
async fn stores_that_never_respond_delay_the_text_for_5_seconds_together() {
    let silent = || Inbox::builder(SilentStore).build().unwrap();
    let start = tokio::time::Instant::now();

    let text = prometheus([&silent(), &silent()]).await;

    assert_eq!(start.elapsed().as_secs(), 5);
    let errors = "audience_inbox_store_errors_total{endpoint=\"main\"} 1\n";
    assert_eq!(text.matches(errors).count(), 2, "{text}");
    assert!(!text.contains("audience_inbox_backlog{"), "{text}");
}

/// A store that responds after 4 s.
struct SlowStore(MemoryStore);

macro_rules! slowly {
    ($($method:ident($($name:ident: $type:ty),*) -> $output:ty;)+) => {
        $(async fn $method(&self, $($name: $type),*) -> Result<$output, StoreError> {
            tokio::time::sleep(Duration::from_secs(4)).await;
            self.0.$method($($name),*).await
        })+
    };
}

impl Store for SlowStore {
    slowly! { complete(held: HeldClaim<'_>, retention: Duration) -> bool; }
    with_store_methods! { slowly }
}

#[tokio::test(start_paused = true)]
async fn a_store_that_never_responds_hides_no_numbers_of_the_others() {
    let silent = Inbox::builder(SilentStore).build().unwrap();
    let slow = Inbox::builder(SlowStore(MemoryStore::new()));
    let slow = slow.endpoint("slow").build().unwrap();

    let text = prometheus([&silent, &slow]).await;

    let gauge = "audience_inbox_backlog{endpoint=\"slow\",state=\"waiting\"} 0\n";
    assert!(text.contains(gauge), "{text}");
    assert!(
        !text.contains("audience_inbox_backlog{endpoint=\"main\""),
        "{text}"
    );
}
