//! Claims as a part of a transaction of the user's.

use std::time::Duration;

use audience::inbox::deadpool_postgres::tokio_postgres::{Client, IsolationLevel, Transaction};
use audience::inbox::{
    ClaimState, EventKey, Fingerprint, HeldClaim, InboxError, NewClaim, NewDelivery, PostgresStore,
    Release, Store, StoreErrorKind, Take, Token,
};
use audience::webhooks::EventId;

use support::postgres::{self, Database};

const DAYS: Duration = Duration::from_secs(3 * 86_400);

async fn set_up() -> Option<(Database, PostgresStore)> {
    let database = postgres::database().await?;
    let store = postgres::connect(&database.url).await.unwrap();
    store.migrate().await.unwrap();
    let effects = "CREATE TABLE effects (event_id text)";
    let client = postgres::client(&database.url).await;
    client.batch_execute(effects).await.unwrap();
    Some((database, store))
}

fn id(text: &str) -> EventId {
    EventId::try_from(text).unwrap()
}

fn new_claim(id: &EventId, lease: Duration) -> NewClaim<'_> {
    NewClaim::new(key(id), Token::random(), lease, DAYS)
}

fn key(id: &EventId) -> EventKey<'_> {
    EventKey::new("main", id)
}

async fn claim(store: &PostgresStore, id: &EventId) -> ClaimState {
    let lease = Duration::from_secs(60);
    store.claim(new_claim(id, lease)).await.unwrap()
}

async fn apply_effect(transaction: &Transaction<'_>, id: &EventId) {
    let effect = "INSERT INTO effects VALUES ($1)";
    let rows = transaction.execute(effect, &[&id.as_str()]).await.unwrap();
    assert_eq!(rows, 1);
}

/// Runs the published statement in a transaction of its own.
async fn outcome(client: &mut Client, id: &str, body: &str) -> String {
    let fingerprint = Fingerprint::of(body.as_bytes());
    let fingerprint = fingerprint.as_bytes().as_slice();
    let transaction = client.transaction().await.unwrap();
    let row = transaction
        .query_one(
            PostgresStore::CLAIM_IN,
            &[&"main", &id, &fingerprint, &259_200.0_f64],
        )
        .await
        .unwrap();
    transaction.commit().await.unwrap();
    row.get(0)
}

async fn effects(client: &Client) -> i64 {
    let count = "SELECT count(*) FROM effects";
    client.query_one(count, &[]).await.unwrap().get(0)
}

#[tokio::test]
async fn an_event_is_claimed_in_one_transaction_only() {
    let Some((database, store)) = set_up().await else {
        return;
    };
    let mut client = postgres::client(&database.url).await;
    let id = id("evt_1");

    for expected in [true, false] {
        let mut transaction = client.transaction().await.unwrap();
        let claimed = store.claim_in(&mut transaction, "main", &id).await;
        let again = store.claim_in(&mut transaction, "main", &id).await;
        let elsewhere = store.claim_in(&mut transaction, "other", &id).await;
        transaction.commit().await.unwrap();

        assert_eq!(claimed.unwrap(), expected);
        assert!(!again.unwrap());
        assert_eq!(elsewhere.unwrap(), expected);
    }
    assert_eq!(claim(&store, &id).await, ClaimState::Done);
}

#[tokio::test]
async fn a_claim_that_is_rolled_back_was_never_made() {
    let Some((database, store)) = set_up().await else {
        return;
    };
    let mut client = postgres::client(&database.url).await;
    let id = id("evt_1");

    let mut transaction = client.transaction().await.unwrap();
    let mut savepoint = transaction.transaction().await.unwrap();
    assert!(store.claim_in(&mut savepoint, "main", &id).await.unwrap());
    savepoint.rollback().await.unwrap();
    assert!(store.claim_in(&mut transaction, "main", &id).await.unwrap());
    drop(transaction);

    let state = claim(&store, &id).await;
    assert_eq!(state, ClaimState::Fresh { attempt: 1 });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_64_transactions_at_once_one_has_an_effect() {
    let Some((database, store)) = set_up().await else {
        return;
    };
    let mut tasks = tokio::task::JoinSet::new();

    for number in 0..64 {
        let (store, url) = (store.clone(), database.url.clone());
        tasks.spawn(async move {
            let mut client = postgres::client(&url).await;
            let mut transaction = client.transaction().await.unwrap();
            let id = id("evt_1");
            let claimed = store.claim_in(&mut transaction, "main", &id).await;
            if !claimed.unwrap() {
                return 0;
            }
            apply_effect(&transaction, &id).await;
            // Half of those who win give up.
            if number % 2 == 0 {
                return 0;
            }
            transaction.commit().await.unwrap();
            1
        });
    }
    let committed: i64 = tasks.join_all().await.into_iter().sum();

    assert_eq!(committed, 1);
    let client = postgres::client(&database.url).await;
    assert_eq!(effects(&client).await, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_waits_for_the_end_of_another_transaction() {
    let Some((database, store)) = set_up().await else {
        return;
    };
    for commits in [true, false] {
        let mut client = postgres::client(&database.url).await;
        let id = id(&format!("evt_{commits}"));
        let mut transaction = client.transaction().await.unwrap();
        assert!(store.claim_in(&mut transaction, "main", &id).await.unwrap());
        let waiting = tokio::spawn({
            let (store, url, id) = (store.clone(), database.url.clone(), id.clone());
            async move {
                let mut client = postgres::client(&url).await;
                let mut transaction = client.transaction().await.unwrap();
                let claimed = store.claim_in(&mut transaction, "main", &id).await;
                transaction.commit().await.unwrap();
                claimed.unwrap()
            }
        });
        tokio::time::sleep(Duration::from_millis(200)).await;
        assert!(!waiting.is_finished());

        if commits {
            transaction.commit().await.unwrap();
        } else {
            transaction.rollback().await.unwrap();
        }

        assert_eq!(waiting.await.unwrap(), !commits);
    }
}

#[tokio::test]
async fn a_leased_event_cannot_be_claimed_in_a_transaction_until_its_lease_ends() {
    let Some((database, store)) = set_up().await else {
        return;
    };
    let mut client = postgres::client(&database.url).await;
    let id = id("evt_1");
    let first = new_claim(&id, Duration::from_secs(60));
    let held = HeldClaim::new(first.key, first.token);
    store.claim(first).await.unwrap();

    let mut transaction = client.transaction().await.unwrap();
    let leased = store.claim_in(&mut transaction, "main", &id).await;
    transaction.rollback().await.unwrap();
    assert!(store.extend(held, Duration::ZERO).await.unwrap());
    let mut transaction = client.transaction().await.unwrap();
    let lapsed = store.claim_in(&mut transaction, "main", &id).await;
    transaction.commit().await.unwrap();

    assert!(matches!(leased, Err(InboxError::InProgress)), "{leased:?}");
    assert!(lapsed.unwrap());
    assert!(!store.complete(held, DAYS).await.unwrap());
}

#[tokio::test]
async fn an_accepted_event_that_is_claimed_in_a_transaction_is_taken_by_no_worker() {
    let Some((database, store)) = set_up().await else {
        return;
    };
    let mut client = postgres::client(&database.url).await;
    let id = id("evt_1");
    let delivery = NewDelivery::new(key(&id), b"body", Fingerprint::of(b"body"));
    store.accept(delivery).await.unwrap();

    let mut transaction = client.transaction().await.unwrap();
    assert!(store.claim_in(&mut transaction, "main", &id).await.unwrap());
    transaction.commit().await.unwrap();

    let taken = store.take(Take::new("main", Token::random(), DAYS, 10));
    assert_eq!(taken.await.unwrap().len(), 0);
    let bodies = "SELECT count(*) FROM audience_inbox WHERE body IS NOT NULL";
    let bodies: i64 = client.query_one(bodies, &[]).await.unwrap().get(0);
    assert_eq!(bodies, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_race_of_serializable_transactions_is_a_temporary_error() {
    let Some((database, store)) = set_up().await else {
        return;
    };
    let mut first = postgres::client(&database.url).await;
    let mut second = postgres::client(&database.url).await;
    let id = id("evt_1");
    let serializable = IsolationLevel::Serializable;
    let first = first.build_transaction().isolation_level(serializable);
    let second = second.build_transaction().isolation_level(serializable);
    let mut first = first.start().await.unwrap();
    let mut second = second.start().await.unwrap();
    second.query("SELECT FROM effects", &[]).await.unwrap();

    assert!(store.claim_in(&mut first, "main", &id).await.unwrap());
    first.commit().await.unwrap();
    let late = store.claim_in(&mut second, "main", &id).await;

    let Err(InboxError::Store(error)) = late else {
        panic!("{late:?}");
    };
    assert_eq!(error.kind(), StoreErrorKind::Unavailable);
}

#[tokio::test]
async fn a_claim_in_a_transaction_that_has_failed_is_a_temporary_error() {
    let Some((database, store)) = set_up().await else {
        return;
    };
    let mut client = postgres::client(&database.url).await;
    let id = id("evt_1");

    let mut transaction = client.transaction().await.unwrap();
    assert!(transaction.execute("SELECT 1 / 0", &[]).await.is_err());
    let claimed = store.claim_in(&mut transaction, "main", &id).await;
    transaction.rollback().await.unwrap();

    let Err(InboxError::Store(error)) = claimed else {
        panic!("{claimed:?}");
    };
    assert_eq!(error.kind(), StoreErrorKind::Unavailable);
    let mut transaction = client.transaction().await.unwrap();
    assert!(store.claim_in(&mut transaction, "main", &id).await.unwrap());
}

#[tokio::test]
async fn a_claim_in_a_transaction_that_may_only_read_is_an_error_and_no_claim() {
    let Some((database, store)) = set_up().await else {
        return;
    };
    let id = id("evt_1");
    let mut client = postgres::client(&database.url).await;

    let start = client.build_transaction().read_only(true).start();
    let mut transaction = start.await.unwrap();
    let claimed = store.claim_in(&mut transaction, "main", &id).await;
    drop(transaction);

    assert!(matches!(claimed, Err(InboxError::Store(_))), "{claimed:?}");
    let state = claim(&store, &id).await;
    assert_eq!(state, ClaimState::Fresh { attempt: 1 });
}

#[tokio::test]
async fn the_published_statement_claims_in_a_transaction_of_any_driver() {
    let Some((database, store)) = set_up().await else {
        return;
    };
    let mut client = postgres::client(&database.url).await;
    let mut outcomes = Vec::new();
    claim(&store, &id("evt_leased")).await;

    for (id, body) in [
        ("evt_1", "body"),
        ("evt_1", "body"),
        ("evt_1", "another body"),
        ("evt_leased", "body"),
    ] {
        outcomes.push(outcome(&mut client, id, body).await);
    }

    assert_eq!(outcomes, ["claimed", "done", "conflict", "in_progress"]);
}

#[tokio::test]
async fn an_event_whose_attempt_failed_is_claimed_with_another_body_in_a_transaction() {
    let Some((database, store)) = set_up().await else {
        return;
    };
    let mut client = postgres::client(&database.url).await;
    let id = id("evt_1");
    let first = new_claim(&id, DAYS).fingerprint(Fingerprint::of(b"first"));
    store.claim(first).await.unwrap();

    let mut outcomes = vec![outcome(&mut client, "evt_1", "second").await];
    let release = Release::new(Duration::ZERO, DAYS, "");
    let held = HeldClaim::new(first.key, first.token);
    assert!(store.release(held, release).await.unwrap());
    for body in ["second", "second", "first"] {
        outcomes.push(outcome(&mut client, "evt_1", body).await);
    }

    assert_eq!(outcomes, ["conflict", "claimed", "done", "conflict"]);
}

#[tokio::test]
async fn a_pool_s_transaction_can_be_claimed_in_too() {
    use audience::inbox::deadpool_postgres::tokio_postgres::{Config, NoTls};
    use audience::inbox::deadpool_postgres::{Manager, Pool};

    let Some((database, _)) = set_up().await else {
        return;
    };
    let config: Config = database.url.parse().unwrap();
    let pool = Pool::builder(Manager::new(config, NoTls)).build().unwrap();
    let store = PostgresStore::new(pool.clone());
    let mut client = pool.get().await.unwrap();

    let mut transaction = client.transaction().await.unwrap();
    let claimed = store.claim_in(&mut transaction, "main", &id("evt_1")).await;
    transaction.commit().await.unwrap();

    assert!(claimed.unwrap());
}
