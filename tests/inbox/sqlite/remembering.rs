//! Done events are kept in periods, which are closed with time. These tests move the clock.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, UNIX_EPOCH};

use audience::inbox::{
    AcceptState, ClaimState, Fingerprint, HeldClaim, NewClaim, Receipt, SqliteStore, Store,
    Synchronous, Token,
};

use super::{BOUNCES, Folder, HOUR, accept, bounce, claim, complete, count_bounce, id, key};

/// A clock that several stores share.
#[derive(Clone, Default)]
struct Hours(Arc<AtomicU64>);

impl Hours {
    fn open(&self, folder: &Folder) -> SqliteStore {
        let hours = Arc::clone(&self.0);
        SqliteStore::builder()
            .synchronous(Synchronous::Normal)
            .busy_timeout(support::PATIENCE)
            .clock(move || UNIX_EPOCH + HOUR * u32::try_from(hours.load(Ordering::SeqCst)).unwrap())
            .open(folder.file())
            .unwrap()
    }

    fn pass(&self, hours: u64) {
        self.0.fetch_add(hours, Ordering::SeqCst);
    }

    fn turn_back(&self, hours: u64) {
        self.0.fetch_sub(hours, Ordering::SeqCst);
    }
}

async fn handle(store: &SqliteStore, name: &str) -> Token {
    let (id, token) = (id(name), Token::random());
    let claim = NewClaim::new(key(&id), token, HOUR, HOUR).fingerprint(fingerprint(name));
    let state = store.claim(claim).await.unwrap();
    assert_eq!(state, ClaimState::Fresh { attempt: 1 }, "{name}");
    assert!(complete(store, &id, token).await);
    token
}

fn fingerprint(name: &str) -> Fingerprint {
    Fingerprint::of(name.as_bytes())
}

async fn expect_done(store: &SqliteStore, name: &str, token: Token) {
    let id = id(name);
    let state = claim(store, &id, Token::random()).await.unwrap();
    assert_eq!(state, ClaimState::Done, "{name}");
    let accepted = accept(store, &id, name.as_bytes()).await.unwrap();
    assert_eq!(accepted, AcceptState::Duplicate, "{name}");
    let other = accept(store, &id, b"another body").await.unwrap();
    assert_eq!(other, AcceptState::Conflict, "{name}");
    assert!(complete(store, &id, token).await, "{name}");
    assert!(!complete(store, &id, Token::random()).await, "{name}");
}

#[tokio::test]
async fn stores_that_share_a_file_remember_what_each_of_them_did_for_as_long_as_they_should() {
    let (folder, hours) = (Folder::new("periods"), Hours::default());
    let (one, other) = (hours.open(&folder), hours.open(&folder));

    let mut done = Vec::new();
    for round in 0..30 {
        for (who, store) in [("one", &one), ("other", &other)] {
            let name = format!("{who}_{round}");
            let token = handle(store, &name).await;
            done.push((round, name, token));
        }
        // Of the last 72 hours, that is.
        for (_, name, token) in done.iter().rev().take(2 * 72 / 7) {
            for store in [&one, &other] {
                expect_done(store, name, *token).await;
            }
        }
        hours.pass(7);
    }
    let late = hours.open(&folder);
    for (round, name, token) in done {
        if (30 - round) * 7 < 72 {
            expect_done(&late, &name, token).await;
        } else {
            handle(&late, &name).await;
        }
    }
}

#[tokio::test]
async fn what_may_be_forgotten_is_deleted() {
    let (folder, hours) = (Folder::new("periods-purged"), Hours::default());
    let store = hours.open(&folder);
    for n in 0..20 {
        for of in 0..3 {
            handle(&store, &format!("evt_{n}_{of}")).await;
        }
        hours.pass(5);
    }

    // A while later: the events of one period are deleted together.
    hours.pass(73 + 7);
    let mut portions = Vec::new();
    while portions.last() != Some(&0) {
        portions.push(store.purge(16).await.unwrap());
    }

    assert_eq!(portions, [16, 16, 16, 12, 0]);
    let left =
        "SELECT (SELECT count(*) FROM audience_inbox_done), count(*) FROM audience_inbox_period";
    let left: (i64, i64) = folder
        .connect()
        .query_row(left, (), |row| Ok((row.get(0)?, row.get(1)?)))
        .unwrap();
    assert_eq!(left, (0, 1));
}

#[tokio::test]
async fn a_transaction_that_is_rolled_back_makes_nothing_forgotten() {
    let (folder, hours) = (Folder::new("periods-rollback"), Hours::default());
    let store = hours.open(&folder);
    let mut done = vec![("evt_0".to_owned(), handle(&store, "evt_0").await)];
    for n in 1..5 {
        hours.pass(7);
        // This closes a period.
        let mut connection = folder.connect();
        let transaction = connection.transaction().unwrap();
        let undone = id(format!("undone_{n}"));
        assert!(store.claim_in(&transaction, "main", &undone).await.unwrap());
        assert!(!store.claim_in(&transaction, "main", &undone).await.unwrap());
        transaction.rollback().unwrap();
        // So that the period, which is not closed, gets another event before it is.
        hours.turn_back(7);
        for name in [format!("undone_{n}"), format!("evt_{n}")] {
            let token = handle(&store, &name).await;
            done.push((name, token));
        }
        hours.pass(7);

        for (name, token) in &done {
            expect_done(&store, name, *token).await;
            let transaction = connection.transaction().unwrap();
            let claimed = store.claim_in(&transaction, "main", &id(name)).await;
            assert!(!claimed.unwrap(), "{name}");
        }
    }
}

#[tokio::test]
async fn a_period_that_a_transaction_of_the_store_begins_is_known_to_its_other_operations() {
    support::steady_time::begin_slow();
    let (folder, hours) = (Folder::new("own-transaction"), Hours::default());
    let store = hours.open(&folder);
    store
        .transaction(|transaction| transaction.execute_batch(BOUNCES))
        .await
        .unwrap();
    handle(&store, "before").await;

    hours.pass(7);
    let receipt = count_bounce(&store, bounce("evt_1", "ada@example.com")).await;
    let again = claim(&store, &id("evt_1"), Token::random()).await.unwrap();

    assert_eq!((receipt, again), (Receipt::Handled, ClaimState::Done));
}

#[tokio::test]
async fn a_copy_that_is_restored_into_the_file_is_what_the_store_remembers() {
    let (folder, hours) = (Folder::new("periods-restored"), Hours::default());
    let store = hours.open(&folder);
    let both = handle(&store, "both").await;
    let connection = folder.connect();
    let copy = Folder::new("periods-copy");
    let file = copy.file();
    connection
        .execute("VACUUM INTO ?1", [file.to_str().unwrap()])
        .unwrap();
    let in_copy = handle(&hours.open(&copy), "copy").await;
    handle(&store, "lost").await;
    // Each closes the period that they have in common, with another event in it.
    hours.pass(7);
    let last_in_copy = handle(&hours.open(&copy), "copy, later").await;
    handle(&store, "lost, too").await;
    expect_done(&store, "both", both).await;

    let restore = "BEGIN;
        DELETE FROM audience_inbox_done; INSERT INTO audience_inbox_done SELECT * FROM copy.audience_inbox_done;
        DELETE FROM audience_inbox_period; INSERT INTO audience_inbox_period SELECT * FROM copy.audience_inbox_period;
        COMMIT";
    let attach = "ATTACH ?1 AS copy";
    connection
        .execute(attach, [file.to_str().unwrap()])
        .unwrap();
    connection.execute_batch(restore).unwrap();

    expect_done(&store, "both", both).await;
    expect_done(&store, "copy", in_copy).await;
    expect_done(&store, "copy, later", last_in_copy).await;
    handle(&store, "lost").await;
}

/// A completion closes the period, and then fails. Another one shares its transaction.
#[tokio::test]
async fn a_failed_operation_does_not_make_the_store_forget_the_others_of_its_commit() {
    let (folder, hours) = (Folder::new("periods-failed"), Hours::default());
    let store = hours.open(&folder);
    handle(&store, "evt_0").await;
    let (fails, succeeds) = (Token::from_bytes([7; 16]), Token::random());
    claim(&store, &id("fails"), fails).await.unwrap();
    claim(&store, &id("succeeds"), succeeds).await.unwrap();
    folder
        .connect()
        .execute_batch(
            "CREATE TRIGGER failing AFTER INSERT ON audience_inbox_done WHEN new.token = x'0707070707070707'
            BEGIN SELECT RAISE(ABORT, 'it fails'); END",
        )
        .unwrap();
    hours.pass(7);
    let (release, held) = std::sync::mpsc::channel::<()>();
    let (begin, begun) = tokio::sync::oneshot::channel();
    let wait = move |_: &mut rusqlite::Transaction<'_>| {
        begin.send(()).ok();
        held.recv().ok();
        Ok::<_, String>(())
    };
    let blocker = store.clone();
    let blocking = tokio::spawn(async move { blocker.transaction(wait).await.unwrap() });
    begun.await.unwrap();

    // Both wait while the transaction lasts, so they are committed together.
    let (id_fails, id_succeeds) = (id("fails"), id("succeeds"));
    let (failed, succeeded, ()) = tokio::join!(
        store.complete(HeldClaim::new(key(&id_fails), fails), HOUR),
        store.complete(HeldClaim::new(key(&id_succeeds), succeeds), HOUR),
        async {
            tokio::time::sleep(Duration::from_millis(50)).await;
            release.send(()).unwrap();
        },
    );

    blocking.await.unwrap();
    assert!(failed.is_err() && succeeded.unwrap());
    let state = claim(&store, &id_succeeds, Token::random()).await.unwrap();
    assert_eq!(state, ClaimState::Done);
}

#[tokio::test]
async fn tables_of_version_1_are_converted_with_what_they_remember() {
    let folder = Folder::new("version-1");
    let connection = folder.connect();
    connection
        .execute_batch(include_str!("version_1.sql"))
        .unwrap();

    let store = folder.open();

    let states = ["claimed", "done", "parked"].map(|name| {
        let (store, id) = (store.clone(), id(name));
        async move { claim(&store, &id, Token::random()).await.unwrap() }
    });
    let [claimed, done, parked] = states;
    assert!(matches!(claimed.await, ClaimState::InProgress { .. }));
    assert_eq!(done.await, ClaimState::Done);
    assert_eq!(parked.await, ClaimState::Parked);
    let taken = audience::inbox::Take::new("main", Token::random(), Duration::from_secs(60), 10);
    let taken = store.take(taken).await.unwrap();
    assert_eq!(taken[0].body, "body");
    let token = Token::from_bytes(*b"0123456789abcdef");
    assert!(complete(&store, &id("done"), token).await);
    let conflict = accept(&store, &id("done"), b"another body").await.unwrap();
    assert_eq!(conflict, AcceptState::Conflict);
    // A program that knows only version 1, and still runs.
    let old = connection.execute("UPDATE audience_inbox SET attempts = 1", ());
    assert!(old.unwrap_err().to_string().contains("no such table"));
}

fn number(folder: &Folder, sql: &str) -> i64 {
    let connection = folder.connect();
    connection.query_row(sql, (), |row| row.get(0)).unwrap()
}

const PERIODS: &str = "SELECT count(*) FROM audience_inbox_period";

#[tokio::test]
async fn what_is_remembered_for_a_month_is_in_few_periods_and_then_deleted() {
    let (folder, hours) = (Folder::new("periods-month"), Hours::default());
    let store = hours.open(&folder);
    let month = 30 * 24 * HOUR;
    let mut ids = Vec::new();
    for n in 0..119 {
        let (id, token) = (id(format!("evt_{n}")), Token::random());
        claim(&store, &id, token).await.unwrap();
        let held = HeldClaim::new(key(&id), token);
        assert!(store.complete(held, month).await.unwrap());
        ids.push(id);
        hours.pass(6);
    }

    for id in &ids {
        let state = claim(&store, id, Token::random()).await.unwrap();
        assert!(matches!(state, ClaimState::Done), "{id:?}");
    }
    assert_eq!(number(&folder, PERIODS), 12);
    hours.pass(30 * 24 + 60);
    while store.purge(500).await.unwrap() > 0 {}
    assert_eq!(number(&folder, PERIODS), 1);
}

#[tokio::test]
async fn purging_closes_a_period_that_transactions_filled() {
    let (folder, hours) = (Folder::new("periods-full"), Hours::default());
    let store = hours.open(&folder);
    let fill =
        "WITH RECURSIVE event (n) AS (VALUES (1) UNION ALL SELECT n + 1 FROM event WHERE n < 70000)
        INSERT INTO audience_inbox_claim (endpoint, id, hash, now, forget_at, outcome)
        SELECT 'main', n, randomblob(16), 0, 72 * 3600000, 'claimed' FROM event";
    folder.connect().execute_batch(fill).unwrap();
    assert_eq!(number(&folder, PERIODS), 1);

    store.purge(500).await.unwrap();

    assert!(claim_in(&store, &folder, "evt_1").await);
    assert_eq!(number(&folder, PERIODS), 2);
    let newest = "SELECT count(*) FROM audience_inbox_done WHERE period = 2";
    assert_eq!(number(&folder, newest), 1);
}

/// Claims an event in a transaction of its own.
async fn claim_in(store: &SqliteStore, folder: &Folder, name: &str) -> bool {
    let mut connection = folder.connect();
    let transaction = connection.transaction().unwrap();
    let claimed = store.claim_in(&transaction, "main", &id(name)).await;
    transaction.commit().unwrap();
    claimed.unwrap()
}

#[tokio::test]
async fn what_only_transactions_claim_is_in_periods_too_and_then_deleted() {
    let (folder, hours) = (Folder::new("periods-claimed"), Hours::default());
    let store = hours.open(&folder);
    let last = hours.open(&folder);

    for n in 0..24 {
        assert!(claim_in(&store, &folder, &format!("evt_{n}")).await);
        hours.pass(2);
    }

    assert_eq!(number(&folder, PERIODS), 8);
    for n in 0..24 {
        assert!(!claim_in(&last, &folder, &format!("evt_{n}")).await);
    }
    let done = "SELECT count(*) FROM audience_inbox_done";
    assert!(number(&folder, done) > 20);
    hours.pass(72 + 6);
    // The first claim of a store starts a purge of its own, which may be late.
    while last.purge(500).await.unwrap() > 0 {}
    assert!(number(&folder, done) < 4);
    assert_eq!(number(&folder, PERIODS), 1);
}
