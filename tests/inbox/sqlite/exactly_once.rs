use std::time::{Duration, Instant};

use audience::inbox::rusqlite::{self, TransactionBehavior};
use audience::inbox::{
    AcceptState, ClaimState, Fingerprint, HeldClaim, InboxError, NewClaim, Receipt, Release,
    SqliteStore, Store, StoreErrorKind, Take, Token, TransactionError,
};
use audience::webhooks::EventId;
use support::{PATIENCE, steady_time};

use super::{
    BOUNCES, Folder, HOUR, accept, bounce, bounces, claim, complete, count_bounce, id, key,
};

#[tokio::test]
async fn a_repeated_delivery_has_its_effect_once() {
    steady_time::begin_slow();
    let folder = Folder::new("once");
    let store = folder.open();
    folder.connect().execute_batch(BOUNCES).unwrap();

    let receipts = [
        count_bounce(&store, bounce("evt_1", "ada@x.io")).await,
        count_bounce(&store, bounce("evt_1", "ada@x.io")).await,
        count_bounce(&store, bounce("evt_2", "ada@x.io")).await,
    ];

    assert_eq!(
        receipts,
        [Receipt::Handled, Receipt::Duplicate, Receipt::Handled]
    );
    assert_eq!(bounces(&folder.connect()), 2);
}

#[tokio::test]
async fn of_64_deliveries_of_one_event_at_once_one_is_handled() {
    steady_time::begin_slow();
    let folder = Folder::new("once-race");
    let store = folder.open();
    folder.connect().execute_batch(BOUNCES).unwrap();

    let deliveries = (0..64).map(|_| {
        let store = store.clone();
        tokio::spawn(async move { count_bounce(&store, bounce("evt_1", "ada@x.io")).await })
    });
    let receipts = futures_util::future::join_all(deliveries).await;

    let handled = receipts
        .iter()
        .filter(|receipt| *receipt.as_ref().unwrap() == Receipt::Handled);
    assert_eq!(handled.count(), 1);
    assert_eq!(bounces(&folder.connect()), 1);
}

#[tokio::test]
async fn an_error_and_a_panic_of_the_handler_undo_its_changes_and_the_claim() {
    steady_time::begin_slow();
    let folder = Folder::new("once-failed");
    let store = folder.open();
    folder.connect().execute_batch(BOUNCES).unwrap();
    let write = "INSERT INTO bounces VALUES ('ada@x.io', 1)";

    let failed = store
        .handle_in(
            "main",
            bounce("evt_1", "ada@x.io"),
            move |transaction, _| {
                transaction.execute(write, ()).unwrap();
                Err("no such customer")
            },
        )
        .await;
    let panicked = store
        .handle_in(
            "main",
            bounce("evt_1", "ada@x.io"),
            move |transaction, _| {
                transaction.execute(write, ()).unwrap();
                if transaction.changes() > 0 {
                    panic!("a bug");
                }
                Ok::<_, String>(())
            },
        )
        .await;

    assert_eq!([failed, panicked], [Receipt::Failed, Receipt::Failed]);
    assert_eq!(bounces(&folder.connect()), 0);
    let again = count_bounce(&store, bounce("evt_1", "ada@x.io")).await;
    assert_eq!(again, Receipt::Handled);
}

#[tokio::test]
async fn an_event_id_with_another_body_is_not_handled() {
    steady_time::begin_slow();
    let folder = Folder::new("once-conflict");
    let store = folder.open();
    folder.connect().execute_batch(BOUNCES).unwrap();
    let first = count_bounce(&store, bounce("evt_1", "ada@x.io")).await;
    assert_eq!(first, Receipt::Handled);

    let receipt = count_bounce(&store, bounce("evt_1", "bob@x.io")).await;

    assert_eq!(receipt, Receipt::Conflict);
    assert_eq!(bounces(&folder.connect()), 1);
}

#[tokio::test]
async fn an_event_that_a_lease_holds_is_in_progress_for_a_transaction() {
    steady_time::begin_slow();
    let folder = Folder::new("once-lease");
    let (store, id) = (folder.open(), id("evt_1"));
    let token = Token::random();
    claim(&store, &id, token).await.unwrap();

    let receipt = count_bounce(&store, bounce("evt_1", "ada@x.io")).await;
    let mut connection = folder.connect();
    let transaction = connection.transaction().unwrap();
    let claimed = store.claim_in(&transaction, "main", &id).await;
    drop(transaction);

    assert!(matches!(receipt, Receipt::InProgress { .. }), "{receipt:?}");
    assert!(
        matches!(claimed, Err(InboxError::InProgress)),
        "{claimed:?}"
    );
    assert!(complete(&store, &id, token).await);
    let receipt = count_bounce(&store, bounce("evt_1", "ada@x.io")).await;
    assert_eq!(receipt, Receipt::Duplicate);
}

#[tokio::test]
async fn a_claim_in_a_users_transaction_commits_and_rolls_back_with_it() {
    let folder = Folder::new("claim-in");
    let (store, id) = (folder.open(), id("evt_1"));
    let mut connection = folder.connect();

    let mut transaction = connection.transaction().unwrap();
    let unique = &mut transaction;
    let rolled_back = store.claim_in(unique, "main", &id).await.unwrap();
    drop(transaction);
    let transaction = connection.transaction().unwrap();
    let committed = store.claim_in(&transaction, "main", &id).await.unwrap();
    let again = store.claim_in(&transaction, "main", &id).into_inner();
    transaction.commit().unwrap();

    assert!(rolled_back && committed && !again.unwrap());
    let state = claim(&store, &id, Token::random()).await.unwrap();
    assert_eq!(state, ClaimState::Done);
}

#[tokio::test]
async fn a_claim_in_a_transaction_finishes_an_accepted_event_and_deletes_its_body() {
    let folder = Folder::new("claim-in-accepted");
    let (store, id) = (folder.open(), id("evt_1"));
    accept(&store, &id, b"body").await.unwrap();
    let mut connection = folder.connect();

    let transaction = connection.transaction().unwrap();
    let claimed = store.claim_in(&transaction, "main", &id).await.unwrap();
    transaction.commit().unwrap();

    assert!(claimed);
    let bodies: i64 = connection
        .query_row("SELECT count(*) FROM audience_inbox_body", (), |row| {
            row.get(0)
        })
        .unwrap();
    assert_eq!(bodies, 0);
    let accepted = accept(&store, &id, b"body").await.unwrap();
    assert_eq!(accepted, AcceptState::Duplicate);
}

#[tokio::test]
async fn a_claim_without_a_transaction_is_refused() {
    let folder = Folder::new("claim-in-none");
    let (store, id) = (folder.open(), id("evt_1"));

    let claimed = store.claim_in(&folder.connect(), "main", &id).await;

    let Err(InboxError::Store(error)) = claimed else {
        panic!("{claimed:?}");
    };
    assert_eq!(error.kind(), StoreErrorKind::Unusable);
    let source = std::error::Error::source(&error).unwrap().to_string();
    assert!(source.contains("begin one"), "{source}");
    let state = claim(&store, &id, Token::random()).await.unwrap();
    assert_eq!(state, ClaimState::Fresh { attempt: 1 });
}

#[tokio::test]
async fn a_claim_in_a_transaction_that_may_only_read_is_refused() {
    let folder = Folder::new("claim-in-read-only");
    let (store, id) = (folder.open(), id("evt_1"));
    let mut connection = folder.connect();
    connection.pragma_update(None, "query_only", true).unwrap();

    let transaction = connection.transaction().unwrap();
    let claimed = store.claim_in(&transaction, "main", &id).await;
    drop(transaction);

    let Err(InboxError::Store(error)) = claimed else {
        panic!("{claimed:?}");
    };
    assert_eq!(error.kind(), StoreErrorKind::Unusable);
    let state = claim(&store, &id, Token::random()).await.unwrap();
    assert_eq!(state, ClaimState::Fresh { attempt: 1 });
}

#[tokio::test]
async fn a_claim_after_reading_what_another_changed_since_is_unavailable() {
    let folder = Folder::new("claim-in-stale");
    let (store, id) = (folder.open(), id("evt_1"));
    let mut connection = folder.connect();

    let transaction = connection.transaction().unwrap();
    let count = "SELECT count(*) FROM audience_inbox_pending";
    let _: i64 = transaction.query_row(count, (), |row| row.get(0)).unwrap();
    claim(&store, &super::id("evt_2"), Token::random())
        .await
        .unwrap();
    let claimed = store.claim_in(&transaction, "main", &id).await;

    let Err(InboxError::Store(error)) = claimed else {
        panic!("{claimed:?}");
    };
    assert!(error.is_temporary(), "{error:?}");
}

#[test]
fn claims_in_transactions_delete_forgotten_ids_without_an_inbox_and_without_a_runtime() {
    let folder = Folder::new("claim-in-purge");
    let store = folder.open();
    let mut connection = folder.connect();
    let old = "INSERT INTO audience_inbox_pending (endpoint, id, state, attempts, due, forget_at)
            SELECT 'main', 'old_' || value, 1, 1, 0, 1 FROM json_each('[1,2]');
        INSERT INTO audience_inbox_period (number, began, first_forget) VALUES (1, 0, 1);
        WITH RECURSIVE old (n) AS (VALUES (1) UNION ALL SELECT n + 1 FROM old WHERE n < 2000)
        INSERT INTO audience_inbox_done (period, hash, forget_at) SELECT 1, randomblob(16), 1 FROM old";
    connection.execute_batch(old).unwrap();

    let transaction = connection
        .transaction_with_behavior(TransactionBehavior::Immediate)
        .unwrap();
    let claimed = store.claim_in(&transaction, "main", &id("evt_1"));
    assert!(claimed.into_inner().unwrap());
    transaction.commit().unwrap();

    let count = "SELECT count(*) FROM (
        SELECT forget_at FROM audience_inbox_pending UNION ALL SELECT forget_at FROM audience_inbox_done)";
    let end = Instant::now() + PATIENCE;
    while connection.query_row(count, (), |row| row.get::<_, i64>(0)) != Ok(1) {
        assert!(Instant::now() < end, "forgotten ids are still there");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[tokio::test]
async fn a_deferred_transaction_that_begins_with_a_claim_waits_for_another_writer() {
    let folder = Folder::new("claim-in-deferred");
    let (store, id) = (folder.open(), id("evt_1"));
    let mut writer = folder.connect();
    let writing = writer
        .transaction_with_behavior(TransactionBehavior::Immediate)
        .unwrap();
    let file = folder.file();
    let claiming = std::thread::spawn(move || {
        let mut connection = rusqlite::Connection::open(file).unwrap();
        connection.busy_timeout(PATIENCE).unwrap();
        let transaction = connection.transaction().unwrap();
        let claimed = store.claim_in(&transaction, "main", &id).into_inner();
        transaction.commit().unwrap();
        claimed
    });
    std::thread::sleep(Duration::from_millis(50));

    writing.commit().unwrap();

    assert!(claiming.join().unwrap().unwrap());
}

#[tokio::test]
async fn the_store_goes_on_after_a_closure_that_panicked_or_ended_the_transaction_itself() {
    let store = SqliteStore::in_memory().unwrap();

    let panicked = store
        .transaction(|transaction| -> Result<(), String> {
            transaction.execute_batch("CREATE TABLE t (x)").unwrap();
            panic!("a bug")
        })
        .await
        .unwrap_err();
    let committed = store
        .transaction(|transaction| transaction.execute_batch("ROLLBACK"))
        .await
        .unwrap_err();
    let state = claim(&store, &id("evt_1"), Token::random()).await.unwrap();

    let TransactionError::RolledBack(error) = &panicked else {
        panic!("{panicked:?}");
    };
    assert!(error.to_string().contains("a bug"), "{error}");
    assert!(
        matches!(committed, TransactionError::Store(_)),
        "{committed:?}"
    );
    assert_eq!(state, ClaimState::Fresh { attempt: 1 });
    let table = store
        .transaction(|transaction| transaction.query_row("SELECT x FROM t", (), |_| Ok(())))
        .await;
    assert!(table.is_err());
}

#[tokio::test]
async fn a_closures_own_error_is_returned_as_it_is() {
    let store = SqliteStore::in_memory().unwrap();

    let error = store
        .transaction(|transaction| transaction.execute("SELECT * FROM nothing", ()))
        .await
        .unwrap_err();

    let TransactionError::RolledBack(error) = error else {
        panic!("{error:?}");
    };
    assert!(error.downcast_ref::<rusqlite::Error>().is_some());
}

#[tokio::test]
async fn a_parked_event_is_no_new_one_for_a_transaction() {
    let folder = Folder::new("claim-in-parked");
    let (store, id) = (folder.open(), id("evt_1"));
    let token = Token::random();
    claim(&store, &id, token).await.unwrap();
    let held = HeldClaim::new(key(&id), token);
    assert!(store.park(held, "no such customer").await.unwrap());
    let mut connection = folder.connect();

    let transaction = connection.transaction().unwrap();
    let claimed = store.claim_in(&transaction, "main", &id).await.unwrap();
    drop(transaction);

    assert!(!claimed);
    assert!(store.discard(key(&id), HOUR).await.unwrap());
}

/// Runs the published statement, as a driver that knows nothing of this crate would.
fn outcome(folder: &Folder, id: &EventId, body: Option<&[u8]>) -> String {
    let fingerprint = body.map(Fingerprint::of);
    let parameters = rusqlite::params![
        "main",
        id.as_str(),
        fingerprint.as_ref().map(Fingerprint::as_bytes),
        259_200,
        SqliteStore::event_hash("main", id),
        None::<i64>,
    ];
    let connection = folder.connect();
    connection
        .query_row(SqliteStore::CLAIM_IN, parameters, |row| row.get(0))
        .unwrap()
}

#[tokio::test]
async fn claims_of_a_store_and_of_the_published_statement_exclude_each_other() {
    let folder = Folder::new("claim-in-published");
    let store = folder.open();
    let [done, late, waits, parked, kept, published] =
        ["done", "late", "waits", "parked", "kept", "published"].map(id);
    let token = Token::random();
    for id in [&done, &late, &parked] {
        claim(&store, id, token).await.unwrap();
    }
    assert!(complete(&store, &done, token).await);
    let held = |id| HeldClaim::new(key(id), token);
    assert!(store.park(held(&parked), "no such customer").await.unwrap());
    accept(&store, &waits, b"body").await.unwrap();

    assert_eq!(outcome(&folder, &done, None), "done");
    assert_eq!(outcome(&folder, &late, None), "in_progress");
    assert_eq!(outcome(&folder, &parked, None), "parked");
    assert_eq!(outcome(&folder, &waits, Some(b"other")), "conflict");
    assert_eq!(outcome(&folder, &waits, None), "claimed");
    assert_eq!(outcome(&folder, &waits, Some(b"other")), "conflict");
    assert_eq!(outcome(&folder, &published, Some(b"body")), "claimed");
    assert_eq!(outcome(&folder, &published, Some(b"body")), "done");
    let held_by_nobody = Release::new(Duration::ZERO, HOUR, "");
    assert!(store.release(held(&late), held_by_nobody).await.unwrap());
    assert_eq!(outcome(&folder, &late, None), "claimed");

    for (id, body) in [(&published, "body"), (&waits, "body"), (&late, "any")] {
        let state = claim(&store, id, Token::random()).await.unwrap();
        assert_eq!(state, ClaimState::Done, "{id:?}");
        let accepted = accept(&store, id, body.as_bytes()).await.unwrap();
        assert_eq!(accepted, AcceptState::Duplicate, "{id:?}");
        assert!(!store.complete(held(id), HOUR).await.unwrap(), "{id:?}");
    }
    let conflict = accept(&store, &published, b"other").await.unwrap();
    assert_eq!(conflict, AcceptState::Conflict);
    let taken = Take::new("main", Token::random(), HOUR, 10);
    assert!(store.take(taken).await.unwrap().is_empty());
    assert!(accept(&store, &kept, b"body").await.is_ok());
}

#[tokio::test]
async fn an_event_whose_attempt_failed_is_claimed_with_another_body_by_the_published_statement() {
    let folder = Folder::new("claim-in-body");
    let (store, id, token) = (folder.open(), id("evt_1"), Token::random());
    let first = NewClaim::new(key(&id), token, HOUR, HOUR).fingerprint(Fingerprint::of(b"first"));
    store.claim(first).await.unwrap();

    assert_eq!(outcome(&folder, &id, Some(b"second")), "conflict");
    let release = Release::new(Duration::ZERO, HOUR, "");
    let held = HeldClaim::new(key(&id), token);
    assert!(store.release(held, release).await.unwrap());

    assert_eq!(outcome(&folder, &id, Some(b"second")), "claimed");
    assert_eq!(outcome(&folder, &id, Some(b"second")), "done");
    assert_eq!(outcome(&folder, &id, Some(b"first")), "conflict");
}

#[test]
fn values_with_which_an_event_would_be_handled_twice_are_refused_by_the_published_statement() {
    let folder = Folder::new("claim-in-values");
    drop(folder.open());
    let hash = Some(vec![7_u8; 16]);
    for (hash, retention, now) in [
        (Some(vec![7_u8; 32]), "259200", Some(1_000.0)),
        (Some(Vec::new()), "259200", Some(1_000.0)),
        (None, "259200", Some(1_000.0)),
        (hash.clone(), "three days", Some(1_000.0)),
        (hash, "259200", Some(1_000.5)),
    ] {
        let parameters = rusqlite::params!["main", "evt_1", None::<i64>, retention, hash, now];
        let claimed = folder
            .connect()
            .query_row(SqliteStore::CLAIM_IN, parameters, |_| Ok(()));

        let error = claimed.unwrap_err().to_string();
        assert!(error.contains("has 16 bytes"), "{error}");
    }
}
