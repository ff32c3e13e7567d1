use audience::inbox::{
    AcceptState, ClaimState, Receipt, SqliteStore, StoreError, StoreErrorKind, Token,
};

use super::{BOUNCES, Folder, accept, bounce, claim, complete, count_bounce, id};

/// Lets the file have this many pages more.
async fn limit_pages(store: &SqliteStore, more: i64) {
    let limit = move |transaction: &mut rusqlite::Transaction<'_>| {
        let pages: i64 = transaction.query_row("PRAGMA page_count", (), |row| row.get(0))?;
        transaction.pragma_update_and_check(None, "max_page_count", pages + more, |_| Ok(()))
    };
    store.transaction(limit).await.unwrap();
}

/// Accepts events until one is refused. Returns how many were accepted, and the refusal.
async fn fill(store: &SqliteStore) -> (usize, StoreError) {
    for n in 0.. {
        match accept(store, &id(format!("evt_{n}")), &[b'x'; 3_000]).await {
            Ok(state) => assert_eq!(state, AcceptState::Accepted),
            Err(error) => return (n, error),
        }
    }
    unreachable!("the file is limited");
}

#[tokio::test]
async fn a_full_disk_refuses_new_events_forgets_none_and_lets_the_others_be_handled() {
    let folder = Folder::new("full");
    let store = folder.open();
    limit_pages(&store, 20).await;

    let (accepted, error) = fill(&store).await;

    assert!(accepted > 5, "{accepted}");
    assert_eq!(error.kind(), StoreErrorKind::Full);
    assert!(error.is_temporary());
    for n in 0..accepted {
        let (id, token) = (id(format!("evt_{n}")), Token::random());
        let duplicate = accept(&store, &id, &[b'x'; 3_000]).await.unwrap();
        assert_eq!(duplicate, AcceptState::Duplicate);
        let claimed = claim(&store, &id, token).await.unwrap();
        assert_eq!(claimed, ClaimState::Fresh { attempt: 1 });
        assert!(complete(&store, &id, token).await);
    }
    let next = accept(&store, &id("next"), &[b'x'; 3_000]).await.unwrap();
    assert_eq!(next, AcceptState::Accepted);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn an_event_that_does_not_fit_does_not_take_others_of_its_commit_with_it() {
    let folder = Folder::new("full-batch");
    let store = folder.open();
    limit_pages(&store, 60).await;

    let events = (0..64).map(|n| {
        let store = store.clone();
        tokio::spawn(async move {
            let length = if n % 2 == 0 { 10 } else { 1_000_000 };
            accept(&store, &id(format!("evt_{n}")), &vec![0; length]).await
        })
    });
    let results = futures_util::future::join_all(events).await;

    for (n, result) in results.into_iter().enumerate() {
        match result.unwrap() {
            Ok(state) => assert_eq!((state, n % 2), (AcceptState::Accepted, 0)),
            Err(error) => assert_eq!((error.kind(), n % 2), (StoreErrorKind::Full, 1)),
        }
    }
    let check: String = folder
        .connect()
        .query_row("PRAGMA integrity_check", (), |row| row.get(0))
        .unwrap();
    assert_eq!(check, "ok");
    let bodies: i64 = folder
        .connect()
        .query_row("SELECT count(*) FROM audience_inbox_body", (), |row| {
            row.get(0)
        })
        .unwrap();
    assert_eq!(bodies, 32);
}

#[tokio::test]
async fn a_transaction_on_a_full_disk_is_answered_with_a_status_that_asks_for_a_retry() {
    let folder = Folder::new("full-transaction");
    let store = folder.open();
    folder.connect().execute_batch(BOUNCES).unwrap();
    limit_pages(&store, 0).await;

    let mut last = Receipt::Handled;
    for n in 0..10_000 {
        last = count_bounce(&store, bounce(&format!("evt_{n}"), "ada@x.io")).await;
        if last != Receipt::Handled {
            break;
        }
    }

    assert_eq!(last, Receipt::Full);
}
