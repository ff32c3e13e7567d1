//! Many calls that wait simultaneously share a statement. Each has the result that it would have alone.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use audience::inbox::deadpool_postgres::tokio_postgres::Client;
use audience::inbox::{
    AcceptState, ClaimState, EventKey, Fingerprint, HeldClaim, Inbox, NewClaim, NewDelivery,
    PostgresStore, Store, StoreError, StoreErrorKind, Take, Token,
};
use audience::webhooks::EventId;
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use super::deliveries::id;
use support::postgres::{self, Database};
use support::{PATIENCE, in_time};

const MINUTE: Duration = Duration::from_secs(60);
const FRESH: ClaimState = ClaimState::Fresh { attempt: 1 };
/// More than run a statement of their own.
const CALLS: usize = 100;

async fn set_up() -> Option<(Database, PostgresStore)> {
    let database = postgres::database().await?;
    let store = postgres::connect(&database.url).await.unwrap();
    store.migrate().await.unwrap();
    Some((database, store))
}

fn ids(count: usize) -> Vec<EventId> {
    (0..count).map(|n| id(&format!("evt_{n:03}"))).collect()
}

type Call<T> = JoinHandle<Result<T, StoreError>>;

fn claim(store: &PostgresStore, event: &EventId, token: Token) -> Call<ClaimState> {
    let (store, event) = (store.clone(), event.clone());
    tokio::spawn(async move {
        let claim = NewClaim::new(EventKey::new("main", &event), token, MINUTE, MINUTE);
        store.claim(claim).await
    })
}

fn complete(store: &PostgresStore, event: &EventId, token: Token) -> Call<bool> {
    let (store, event) = (store.clone(), event.clone());
    tokio::spawn(async move {
        let held = HeldClaim::new(EventKey::new("main", &event), token);
        store.complete(held, MINUTE).await
    })
}

async fn all<T>(calls: Vec<Call<T>>) -> Vec<Result<T, StoreError>> {
    let mut results = Vec::new();
    for call in calls {
        results.push(in_time(call).await.unwrap());
    }
    results
}

/// Returns when a statement of the store waits for a lock.
async fn wait_for_lock(admin: &Client) {
    let waiting = "SELECT 1 FROM pg_stat_activity
        WHERE application_name = 'audience inbox' AND wait_event_type = 'Lock' AND datname = current_database()";
    let end = Instant::now() + PATIENCE;
    while admin.query(waiting, &[]).await.unwrap().is_empty() {
        assert!(Instant::now() < end, "no statement waits");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_many_calls_for_the_same_events_one_claims_each_and_only_that_one_completes_it() {
    let Some((_database, store)) = set_up().await else {
        return;
    };
    let events = ids(CALLS);
    let mut fresh = 0;
    let mut calls = Vec::new();
    for event in events.iter().chain(&events).chain(&events) {
        let token = Token::random();
        calls.push((event, token, claim(&store, event, token)));
    }
    let mut completions = Vec::new();
    for (event, token, call) in calls {
        match in_time(call).await.unwrap().unwrap() {
            ClaimState::Fresh { attempt } => {
                assert_eq!(attempt, 1);
                fresh += 1;
                completions.push((true, complete(&store, event, token)));
            }
            // Maybe completed meanwhile.
            ClaimState::InProgress { .. } | ClaimState::Done => {
                completions.push((false, complete(&store, event, token)));
            }
            state => panic!("{state:?}"),
        }
    }

    for (is_holder, completion) in completions {
        assert_eq!(in_time(completion).await.unwrap().unwrap(), is_holder);
    }

    assert_eq!(fresh, CALLS);
    let states = all(events
        .iter()
        .map(|event| claim(&store, event, Token::random()))
        .collect());
    for state in states.await {
        assert_eq!(state.unwrap(), ClaimState::Done);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_event_that_another_transaction_claims_holds_up_no_other() {
    let Some((database, store)) = set_up().await else {
        return;
    };
    let events = ids(CALLS);
    let mut other = postgres::client(&database.url).await;
    let mut transaction = other.transaction().await.unwrap();
    let locked = &events[50];
    assert!(
        store
            .claim_in(&mut transaction, "main", locked)
            .await
            .unwrap()
    );
    let token = Token::random();

    let mut calls: Vec<_> = events
        .iter()
        .map(|event| claim(&store, event, token))
        .collect();
    let waiting = calls.remove(50);
    let claimed = all(calls).await;

    assert!(!waiting.is_finished());
    assert!(claimed.into_iter().all(|state| state.unwrap() == FRESH));
    transaction.rollback().await.unwrap();
    assert_eq!(in_time(waiting).await.unwrap().unwrap(), FRESH);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_entry_that_is_locked_holds_up_no_other_completion() {
    let Some((database, store)) = set_up().await else {
        return;
    };
    let events = ids(CALLS);
    let token = Token::random();
    all(events
        .iter()
        .map(|event| claim(&store, event, token))
        .collect())
    .await;
    let mut other = postgres::client(&database.url).await;
    let transaction = other.transaction().await.unwrap();
    let lock = "SELECT FROM audience_inbox WHERE event_id = 'evt_050' FOR UPDATE";
    transaction.batch_execute(lock).await.unwrap();

    let mut calls: Vec<_> = events
        .iter()
        .map(|event| complete(&store, event, token))
        .collect();
    let waiting = calls.remove(50);
    let completed = all(calls).await;

    assert!(!waiting.is_finished());
    assert!(completed.into_iter().all(|is_held| is_held.unwrap()));
    transaction.rollback().await.unwrap();
    assert!(in_time(waiting).await.unwrap().unwrap());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_event_that_the_database_refuses_fails_alone() {
    let Some((database, store)) = set_up().await else {
        return;
    };
    let refuse = "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
            RAISE EXCEPTION 'could not extend file' USING ERRCODE = 'disk_full';
        END $$;
        CREATE TRIGGER refuse BEFORE INSERT ON audience_inbox FOR EACH ROW WHEN (NEW.event_id = 'evt_050')
            EXECUTE FUNCTION refuse()";
    postgres::client(&database.url)
        .await
        .batch_execute(refuse)
        .await
        .unwrap();
    let events = ids(CALLS);

    let calls = events
        .iter()
        .map(|event| claim(&store, event, Token::random()));
    let claimed = all(calls.collect()).await;

    for (event, state) in events.iter().zip(claimed) {
        match state {
            Ok(state) => assert_eq!(state, FRESH),
            Err(error) => {
                assert_eq!(event.as_str(), "evt_050");
                assert_eq!(error.kind(), StoreErrorKind::Full);
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_whose_connection_dies_in_the_middle_are_repeated() {
    let Some((database, store)) = set_up().await else {
        return;
    };
    let mut other = postgres::client(&database.url).await;
    let transaction = other.transaction().await.unwrap();
    transaction
        .batch_execute("LOCK TABLE audience_inbox")
        .await
        .unwrap();
    let events = ids(CALLS);
    let token = Token::random();
    let calls: Vec<_> = events
        .iter()
        .map(|event| claim(&store, event, token))
        .collect();
    let admin = postgres::client(&database.url).await;
    wait_for_lock(&admin).await;
    tokio::time::sleep(Duration::from_millis(100)).await;

    let close = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
        WHERE application_name = 'audience inbox' AND datname = current_database()";
    admin.query(close, &[]).await.unwrap();
    transaction.rollback().await.unwrap();

    for state in all(calls).await {
        assert_eq!(state.unwrap(), FRESH);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_whose_caller_is_gone_is_not_made_or_is_given_back() {
    let Some((database, store)) = set_up().await else {
        return;
    };
    let mut other = postgres::client(&database.url).await;
    let transaction = other.transaction().await.unwrap();
    transaction
        .batch_execute("LOCK TABLE audience_inbox")
        .await
        .unwrap();
    let admin = postgres::client(&database.url).await;
    // These run a statement of their own.
    let first = ids(6);
    let first: Vec<_> = first
        .iter()
        .map(|event| claim(&store, event, Token::random()))
        .collect();
    wait_for_lock(&admin).await;
    let events = &ids(CALLS)[6..];
    let gone: Vec<_> = events
        .iter()
        .map(|event| claim(&store, event, Token::random()))
        .collect();
    tokio::time::sleep(Duration::from_millis(300)).await;

    for call in gone {
        call.abort();
    }
    transaction.rollback().await.unwrap();

    all(first).await;
    let end = Instant::now() + PATIENCE;
    for event in events {
        let token = Token::random();
        while !matches!(
            in_time(claim(&store, event, token)).await.unwrap().unwrap(),
            ClaimState::Fresh { .. }
        ) {
            assert!(Instant::now() < end, "{event} is still claimed");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_completion_whose_caller_is_gone_is_still_made() {
    let Some((database, store)) = set_up().await else {
        return;
    };
    let events = ids(CALLS);
    let token = Token::random();
    all(events
        .iter()
        .map(|event| claim(&store, event, token))
        .collect())
    .await;
    let mut other = postgres::client(&database.url).await;
    let transaction = other.transaction().await.unwrap();
    transaction
        .batch_execute("SELECT 1 FROM audience_inbox WHERE event_id < 'evt_006' FOR UPDATE")
        .await
        .unwrap();
    let admin = postgres::client(&database.url).await;
    // These run a statement of their own, and wait for the other transaction. The next ones share statements.
    let (alone, gone) = events.split_at(6);
    let waiting = Arc::new(AtomicUsize::new(0));
    let alone: Vec<Call<bool>> = alone
        .iter()
        .map(|event| {
            let (store, event, waiting) = (store.clone(), event.clone(), waiting.clone());
            tokio::spawn(async move {
                let held = HeldClaim::new(EventKey::new("main", &event), token);
                let mut completing = pin!(store.complete(held, MINUTE));
                assert!(futures_util::poll!(&mut completing).is_pending());
                waiting.fetch_add(1, Ordering::Relaxed);
                completing.await
            })
        })
        .collect();
    in_time(async {
        while waiting.load(Ordering::Relaxed) < alone.len() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;

    for event in gone {
        let held = HeldClaim::new(EventKey::new("main", event), token);
        let completing = pin!(store.complete(held, MINUTE));
        // Its caller is gone after the first poll.
        let _ = futures_util::poll!(completing);
    }

    let left = "SELECT 1 FROM audience_inbox WHERE state <> 'done' AND event_id >= 'evt_006'";
    let end = Instant::now() + PATIENCE;
    while !admin.query(left, &[]).await.unwrap().is_empty() {
        assert!(Instant::now() < end, "some are not completed");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    transaction.rollback().await.unwrap();
    for completed in all(alone).await {
        assert!(completed.unwrap());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_event_of_a_worker_that_is_locked_holds_up_neither_the_others_nor_new_ones() {
    let Some((database, store)) = set_up().await else {
        return;
    };
    let events = ids(20);
    for event in &events {
        let body = event.as_str().as_bytes();
        let delivery = NewDelivery::new(EventKey::new("main", event), body, Fingerprint::of(body));
        assert_eq!(store.accept(delivery).await.unwrap(), AcceptState::Accepted);
    }
    let token = Token::random();
    let taken = store
        .take(Take::new("main", token, MINUTE, 10))
        .await
        .unwrap();
    let held: Vec<_> = taken
        .iter()
        .map(|event| HeldClaim::new(EventKey::new("main", &event.id), token))
        .collect();
    let mut other = postgres::client(&database.url).await;
    let transaction = other.transaction().await.unwrap();
    let lock = "SELECT FROM audience_inbox WHERE event_id = 'evt_003' FOR UPDATE";
    transaction.batch_execute(lock).await.unwrap();

    let next = Token::random();
    let take = Take::new("main", next, MINUTE, 5);
    let while_locked = in_time(store.complete_and_take(&held, MINUTE, take)).await;
    transaction.rollback().await.unwrap();
    let mut lost = held.clone();
    lost[0].token = Token::random();
    let afterwards = in_time(store.complete_and_take(&lost, MINUTE, take)).await;

    let error = while_locked.completed.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Unavailable);
    let bodies = |taken: &[audience::inbox::TakenEvent]| {
        let ids = taken.iter().map(|event| event.id.as_str().to_owned());
        ids.collect::<Vec<_>>()
    };
    let expected = ["evt_010", "evt_011", "evt_012", "evt_013", "evt_014"];
    assert_eq!(bodies(&while_locked.taken.unwrap()), expected);
    let mut are_held = vec![true; 10];
    are_held[0] = false;
    assert_eq!(afterwards.completed.unwrap(), are_held);
    let expected = ["evt_015", "evt_016", "evt_017", "evt_018", "evt_019"];
    assert_eq!(bodies(&afterwards.taken.unwrap()), expected);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_that_completes_nothing_waits_for_a_slow_database() {
    let Some((database, store)) = set_up().await else {
        return;
    };
    let event = id("evt_1");
    let delivery = NewDelivery::new(EventKey::new("main", &event), b"{}", Fingerprint::of(b"{}"));
    store.accept(delivery).await.unwrap();
    let admin = postgres::client(&database.url).await;
    let trigger = "CREATE FUNCTION wait() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
            PERFORM pg_advisory_xact_lock(1);
            RETURN NEW;
        END $$;
        CREATE TRIGGER wait BEFORE UPDATE ON audience_inbox FOR EACH ROW EXECUTE FUNCTION wait();
        SELECT pg_advisory_lock(1)";
    admin.batch_execute(trigger).await.unwrap();

    let taking = tokio::spawn(async move {
        let take = Take::new("main", Token::random(), MINUTE, 5);
        store.take(take).await
    });
    wait_for_lock(&admin).await;
    tokio::time::sleep(Duration::from_millis(200)).await;
    admin
        .batch_execute("SELECT pg_advisory_unlock(1)")
        .await
        .unwrap();

    let taken = in_time(taking).await.unwrap().unwrap();
    assert_eq!(taken.len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_share_statements_through_a_pooler_in_transaction_mode_too() {
    let Some(server) = postgres::server().await else {
        return;
    };
    let database = server.database().await;
    let Some(pooler) = server.pooler(&database).await else {
        return;
    };
    let direct = postgres::connect(&database.url).await.unwrap();
    direct.migrate().await.unwrap();
    let store = PostgresStore::builder()
        .timeout(PATIENCE)
        .unnamed_statements();
    let store = store.connect(&pooler.url).await.unwrap();
    let admin = postgres::client(&database.url).await;
    count_changes(&admin).await;
    let events = ids(CALLS);
    let token = Token::random();

    let claims = events.iter().map(|event| claim(&store, event, token));
    let claimed = all(claims.collect()).await;
    let completions = events.iter().map(|event| complete(&store, event, token));
    let completed = all(completions.collect()).await;

    assert!(claimed.into_iter().all(|state| state.unwrap() == FRESH));
    assert!(completed.into_iter().all(|is_held| is_held.unwrap()));
    let largest = "SELECT max(claimed), max(completed) FROM changes";
    let largest = admin.query_one(largest, &[]).await.unwrap();
    assert!(largest.get::<_, i64>(0) > 10, "{largest:?}");
    assert!(largest.get::<_, i64>(1) > 10, "{largest:?}");
}

/// Notes how many entries each statement claims or completes.
async fn count_changes(admin: &Client) {
    let triggers = "CREATE TABLE changes (claimed bigint, completed bigint);
        CREATE FUNCTION count_changes() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
            INSERT INTO changes SELECT count(*) FILTER (WHERE state = 'open' AND token IS NOT NULL),
                count(*) FILTER (WHERE state = 'done') FROM changed;
            RETURN NULL;
        END $$;
        CREATE TRIGGER count_inserts AFTER INSERT ON audience_inbox REFERENCING NEW TABLE AS changed
            FOR EACH STATEMENT EXECUTE FUNCTION count_changes();
        CREATE TRIGGER count_updates AFTER UPDATE ON audience_inbox REFERENCING NEW TABLE AS changed
            FOR EACH STATEMENT EXECUTE FUNCTION count_changes()";
    admin.batch_execute(triggers).await.unwrap();
}

#[tokio::test]
async fn a_worker_completes_together_what_was_handled_together() {
    let Some((database, store)) = set_up().await else {
        return;
    };
    let admin = postgres::client(&database.url).await;
    for number in 0..64 {
        let id = id(&format!("evt_{number}"));
        let body = format!(r#"{{"id":"{id}","type":"email.sent","created_at":1,"data":{{}}}}"#);
        let key = EventKey::new("main", &id);
        let delivery = NewDelivery::new(key, body.as_bytes(), Fingerprint::of(body.as_bytes()));
        store.accept(delivery).await.unwrap();
    }
    count_changes(&admin).await;
    let inbox = Inbox::builder(store).endpoint("main").build().unwrap();
    let (handled, all) = (AtomicUsize::new(0), Arc::new(Notify::new()));
    let notify = Arc::clone(&all);
    let worker = inbox.worker(move |_, _| {
        if handled.fetch_add(1, Ordering::Relaxed) == 63 {
            notify.notify_one();
        }
        async { Ok::<_, std::io::Error>(()) }
    });

    let worker = worker.concurrency(8).shutdown_timeout(PATIENCE);
    let report = in_time(worker.run_until(all.notified())).await;

    assert_eq!(report.unwrap().handled, 64);
    let statements = "SELECT count(*) FROM changes WHERE completed > 0";
    let statements: i64 = admin.query_one(statements, &[]).await.unwrap().get(0);
    // 8 each, except for the first and the last ones.
    assert!(statements <= 12, "{statements} statements for 64 events");
}

#[tokio::test]
async fn no_statement_is_planned_for_each_execution() {
    let Some((database, store)) = set_up().await else {
        return;
    };
    drop(store);
    let admin = postgres::client(&database.url).await;
    let version = admin.query_one("SHOW server_version_num", &[]).await;
    let version: String = version.unwrap().get(0);
    if version.parse::<u32>().unwrap() < 140_000 {
        return support::say_skipped("the number of plans: Postgres shows it since version 14");
    }
    // With statistics that make a plan for a certain limit look cheap.
    let waiting = "INSERT INTO audience_inbox (endpoint, event_id, state, attempts, due, queued_at, body)
        SELECT 'main', 'waiting_' || n, 'open', 0, now(), now(), '\\x00' FROM generate_series(1, 50000) AS n;
        INSERT INTO audience_inbox (endpoint, event_id, state, attempts, due, forget_at)
        SELECT 'main', 'done_' || n, 'done', 1, now(), now() + interval '3 days' FROM generate_series(1, 50000) AS n;
        ANALYZE audience_inbox";
    admin.batch_execute(waiting).await.unwrap();
    let store = PostgresStore::builder()
        .timeout(PATIENCE)
        .max_connections(1);
    let store = store.connect(&database.url).await.unwrap();

    let mut held: Vec<(EventId, Token)> = Vec::new();
    for number in 0..20 {
        let ids = ids(20).into_iter();
        let ids = ids.map(|event| id(&format!("{event}_{number}")));
        let ids: Vec<_> = ids.collect();
        let token = Token::random();
        let claims = ids.iter().map(|event| claim(&store, event, token));
        all(claims.collect()).await;
        let completions = ids.iter().map(|event| complete(&store, event, token));
        all(completions.collect()).await;
        let completed: Vec<_> = held
            .iter()
            .map(|(id, token)| HeldClaim::new(EventKey::new("main", id), *token))
            .collect();
        let take = Take::new("main", token, MINUTE, 8);
        let turn = store.complete_and_take(&completed, MINUTE, take).await;
        let taken = turn.taken.unwrap().into_iter();
        held = taken.map(|event| (event.id, token)).collect();
    }

    let plans = "SELECT statement, generic_plans, custom_plans FROM pg_prepared_statements";
    let plans = store.pool().get().await.unwrap().query(plans, &[]).await;
    let plans = plans.unwrap();
    assert!(plans.len() >= 4);
    for row in plans {
        let (statement, custom): (&str, i64) = (row.get(0), row.get(2));
        // The server makes the first five to compare their costs.
        assert!(custom <= 5, "{custom} plans for {statement}");
    }
}
