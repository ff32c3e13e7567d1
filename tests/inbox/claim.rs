//! Claims by hand.

use std::time::{Duration, SystemTime};

use audience::inbox::{Claim, Inbox, InboxError, Lease, MemoryStore, Receipt, StoreError};

use super::deliveries::{
    FailingStore, delivery, delivery_about, id, store_in_test_time, unavailable,
};

fn inbox() -> Inbox {
    Inbox::builder(store_in_test_time()).build().unwrap()
}

async fn claim(inbox: &Inbox) -> Lease {
    match inbox.claim(&id("evt_1")).await.unwrap() {
        Claim::Fresh(lease) => lease,
        other => panic!("expected a lease, got {other:?}"),
    }
}

/// Lets the lease of 60 s end.
async fn end_of_lease() {
    tokio::time::sleep(Duration::from_secs(61)).await;
}

async fn assert_lost(lease: &Lease) {
    for result in [
        lease.extend().await,
        lease.release().await,
        lease.complete().await,
    ] {
        assert!(matches!(result, Err(InboxError::LeaseLost)), "{result:?}");
    }
}

#[tokio::test]
async fn a_completed_claim_makes_the_event_done() {
    let inbox = inbox();

    let lease = claim(&inbox).await;
    lease.complete().await.unwrap();
    let again = inbox.claim(&id("evt_1")).await.unwrap();

    assert_eq!((lease.id(), lease.attempt()), (&id("evt_1"), 1));
    assert!(matches!(again, Claim::Done));
    assert_eq!(inbox.accept(delivery("evt_1")).await, Receipt::Duplicate);
}

#[tokio::test]
async fn completing_twice_is_no_error_and_counts_once() {
    let inbox = inbox();
    let lease = claim(&inbox).await;

    lease.complete().await.unwrap();
    lease.complete().await.unwrap();

    assert_eq!(inbox.metrics().handled, 1);
}

#[tokio::test]
async fn a_claimed_event_is_in_progress_until_its_lease_ends() {
    let inbox = Inbox::builder(MemoryStore::new()).build().unwrap();
    let before = SystemTime::now();
    let lease = claim(&inbox).await;
    drop(lease); // does not end the claim

    let claimed = inbox.claim(&id("evt_1")).await.unwrap();

    let Claim::InProgress { until } = claimed else {
        panic!("{claimed:?}");
    };
    let latest = SystemTime::now() + Duration::from_secs(61);
    assert!(before < until && until <= latest, "{until:?}");
    assert_eq!(
        inbox
            .handle(delivery("evt_1"), |_, _| async { Ok::<_, String>(()) })
            .await
            .status(),
        503
    );
    assert_eq!(inbox.metrics().in_progress, 2);
}

#[tokio::test]
async fn a_duplicate_of_a_handled_event_is_counted() {
    let inbox = inbox();
    claim(&inbox).await.complete().await.unwrap();

    let claimed = inbox.claim(&id("evt_1")).await.unwrap();

    assert!(matches!(claimed, Claim::Done), "{claimed:?}");
    let handler = |_, _| async { Ok::<_, String>(()) };
    assert_eq!(inbox.handle(delivery("evt_1"), handler).await.status(), 200);
    assert_eq!(
        (inbox.metrics().handled, inbox.metrics().duplicates),
        (1, 2)
    );
}

#[tokio::test]
async fn a_released_event_can_be_claimed_at_once_and_its_old_lease_is_lost() {
    let inbox = inbox();
    let first = claim(&inbox).await;

    first.release().await.unwrap();
    let second = claim(&inbox).await;

    assert_eq!(second.attempt(), 2);
    assert_lost(&first).await;
    second.complete().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_holder_that_was_replaced_has_lost_its_lease_and_counts_once() {
    let inbox = inbox();
    let late = claim(&inbox).await;
    end_of_lease().await;

    let holder = claim(&inbox).await;

    assert_lost(&late).await;
    holder.complete().await.unwrap();
    assert_eq!(holder.attempt(), 2);
    let metrics = inbox.metrics();
    assert_eq!((metrics.handled, metrics.leases_lost), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_late_holder_completes_if_nobody_replaced_it() {
    let inbox = inbox();
    let lease = claim(&inbox).await;

    end_of_lease().await;
    lease.complete().await.unwrap();

    assert!(matches!(inbox.claim(&id("evt_1")).await, Ok(Claim::Done)));
}

#[tokio::test(start_paused = true)]
async fn a_late_holder_has_lost_its_lease_if_the_event_was_accepted_since() {
    let inbox = inbox();
    let late = claim(&inbox).await;
    end_of_lease().await;

    let receipt = inbox.accept(delivery("evt_1")).await;

    assert_eq!(receipt, Receipt::Accepted);
    assert_lost(&late).await;
    assert_eq!(inbox.backlog().await.unwrap().waiting, 1);
}

#[tokio::test(start_paused = true)]
async fn extending_keeps_a_claim_beyond_its_lease() {
    let inbox = inbox();
    let lease = claim(&inbox).await;

    for _ in 0..3 {
        tokio::time::sleep(Duration::from_secs(40)).await;
        lease.extend().await.unwrap();
    }
    tokio::time::sleep(Duration::from_secs(40)).await;

    let claimed = inbox.claim(&id("evt_1")).await.unwrap();
    assert!(matches!(claimed, Claim::InProgress { .. }), "{claimed:?}");
}

#[tokio::test]
async fn a_claim_with_a_delivery_notices_another_body_and_one_by_id_does_not() {
    let inbox = inbox();
    let first = inbox.claim(&delivery("evt_1")).await.unwrap();
    assert!(matches!(first, Claim::Fresh(_)));

    let conflict = inbox.claim(&delivery_about("evt_1", "Other")).await;
    let by_id = inbox.claim(&id("evt_1")).await;

    assert!(
        matches!(conflict, Err(InboxError::Conflict)),
        "{conflict:?}"
    );
    assert!(matches!(by_id, Ok(Claim::InProgress { .. })), "{by_id:?}");
    assert_eq!(inbox.metrics().conflicts, 1);
}

#[tokio::test]
async fn a_parked_event_is_done_for_whoever_claims_it() {
    let inbox = inbox();
    assert!(inbox.accept(delivery("evt_1")).await.is_success());
    let fail = |_, _| async { Err::<(), _>("no") };
    let worker = inbox.worker(fail).max_attempts(1);
    worker.run_until_idle().await.unwrap();

    let claimed = inbox.claim(&id("evt_1")).await.unwrap();

    assert!(matches!(claimed, Claim::Done), "{claimed:?}");
}

#[tokio::test]
async fn a_store_that_fails_is_an_error_and_the_lease_can_be_completed_later() {
    let store = FailingStore::new(MemoryStore::new());
    let inbox = Inbox::builder(store.clone()).build().unwrap();
    let lease = claim(&inbox).await;
    store.fail(&[], unavailable);

    let claimed = inbox.claim(&id("evt_2")).await.map(drop);
    let completed = lease.complete().await;
    store.recover();
    lease.complete().await.unwrap();

    for result in [claimed, completed] {
        let is_temporary =
            matches!(&result, Err(InboxError::Store(error)) if StoreError::is_temporary(error));
        assert!(is_temporary, "{result:?}");
    }
    let metrics = inbox.metrics();
    assert_eq!((metrics.handled, metrics.store_errors), (1, 2));
}
