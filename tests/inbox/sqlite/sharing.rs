//! Several threads, tasks and connections on one file.

use std::time::Duration;

use audience::inbox::rusqlite::TransactionBehavior;
use audience::inbox::{ClaimState, SqliteStore, Store, StoreErrorKind, Token};

use super::{Folder, HOUR, accept, claim, complete, id, key};
use support::in_time;

#[test]
fn any_number_of_stores_may_create_one_file_at_once() {
    let folder = Folder::new("create");

    std::thread::scope(|scope| {
        let opened: Vec<_> = (0..16).map(|_| scope.spawn(|| folder.open())).collect();
        for store in opened {
            store.join().unwrap();
        }
    });
}

#[test]
fn opening_a_database_of_another_program_waits_for_it_until_the_busy_timeout() {
    let folder = Folder::new("open-busy");
    let other = folder.connect();
    other
        .execute_batch("CREATE TABLE other (number INTEGER); BEGIN EXCLUSIVE")
        .unwrap();
    let open = |busy_timeout| {
        let builder = SqliteStore::builder().busy_timeout(busy_timeout);
        builder.open(folder.file())
    };

    let error = open(Duration::from_millis(50)).unwrap_err();
    let opened = std::thread::scope(|scope| {
        let opening = scope.spawn(|| open(HOUR));
        std::thread::sleep(Duration::from_millis(100));
        other.execute_batch("COMMIT").unwrap();
        opening.join().unwrap()
    });

    assert_eq!(error.kind(), StoreErrorKind::Unavailable);
    opened.unwrap();
}

#[tokio::test]
async fn an_operation_waits_for_another_writer_and_is_unavailable_after_the_busy_timeout() {
    let folder = Folder::new("busy");
    let store = SqliteStore::builder()
        .busy_timeout(Duration::from_millis(50))
        .open(folder.file())
        .unwrap();
    let patient = folder.open();
    let (first, second, token) = (id("evt_1"), id("evt_2"), Token::random());
    let mut other = folder.connect();
    let writing = other
        .transaction_with_behavior(TransactionBehavior::Immediate)
        .unwrap();

    let error = claim(&store, &first, token).await.unwrap_err();
    let waited = tokio::join!(claim(&patient, &first, token), async {
        writing.commit().unwrap();
    });
    let again = in_time(async {
        loop {
            // On a busy machine, the file may be locked for longer than 50 ms by the other store.
            match claim(&store, &second, token).await {
                Err(error) if error.kind() == StoreErrorKind::Unavailable => {}
                again => break again,
            }
        }
    });

    assert_eq!(error.kind(), StoreErrorKind::Unavailable);
    assert!(error.is_temporary());
    let source = std::error::Error::source(&error).unwrap();
    assert!(source.to_string().contains("locked"), "{source}");
    assert_eq!(waited.0.unwrap(), ClaimState::Fresh { attempt: 1 });
    assert_eq!(again.await.unwrap(), ClaimState::Fresh { attempt: 1 });
}

#[tokio::test]
async fn a_store_beside_one_that_never_pauses_gets_its_turn() {
    let folder = Folder::new("neighbor");
    // On a busy machine, it may find its turn late. With the waits of SQLite itself, a minute is too short, too.
    let busy_timeout = Duration::from_secs(60);
    let store = SqliteStore::builder().busy_timeout(busy_timeout);
    let store = store.open(folder.file()).unwrap();
    let (mut writes, writing) = folder.neighbor();

    let mut tries = 0;
    for event in 0..20 {
        let id = id(format!("evt_{event}"));
        let state = loop {
            // Each claim waits for a transaction that has just begun.
            writes.borrow_and_update();
            writes.changed().await.unwrap();
            match claim(&store, &id, Token::random()).await {
                Err(error) if error.kind() == StoreErrorKind::Unavailable && tries < 4 => {
                    tries += 1;
                }
                state => break state.unwrap(),
            }
        };
        assert_eq!(state, ClaimState::Fresh { attempt: 1 });
    }

    drop(writes);
    writing.join().unwrap();
}

#[tokio::test]
async fn the_runtime_is_not_blocked_while_an_operation_waits() {
    let folder = Folder::new("not-blocked");
    let (store, id) = (folder.open(), id("evt_1"));
    let mut other = folder.connect();
    let writing = other
        .transaction_with_behavior(TransactionBehavior::Immediate)
        .unwrap();

    // This runtime has one thread: it must go on, or the other writer never commits.
    let (claimed, ()) = tokio::join!(claim(&store, &id, Token::random()), async {
        tokio::time::sleep(Duration::from_millis(20)).await;
        writing.commit().unwrap();
    });

    assert_eq!(claimed.unwrap(), ClaimState::Fresh { attempt: 1 });
}

#[tokio::test]
async fn a_claim_that_nobody_waits_for_any_more_is_not_made() {
    let folder = Folder::new("abandoned");
    let (store, id) = (folder.open(), id("evt_1"));
    let (release, held) = std::sync::mpsc::channel::<()>();
    let (begin, begun) = tokio::sync::oneshot::channel();
    let blocker = store.clone();
    let blocking = tokio::spawn(async move {
        let wait = move |_: &mut rusqlite::Transaction<'_>| {
            begin.send(()).ok();
            held.recv().ok();
            Ok::<_, String>(())
        };
        blocker.transaction(wait).await.unwrap();
    });
    begun.await.unwrap();

    let given_up = tokio::time::timeout(
        Duration::from_millis(20),
        claim(&store, &id, Token::random()),
    );
    assert!(given_up.await.is_err());
    release.send(()).unwrap();
    blocking.await.unwrap();

    let state = claim(&store, &id, Token::random()).await.unwrap();
    assert_eq!(state, ClaimState::Fresh { attempt: 1 });
}

#[tokio::test]
async fn what_was_asked_before_the_last_clone_is_dropped_is_still_done() {
    let folder = Folder::new("dropped-store");
    let (id, token) = (id("evt_1"), Token::random());
    let store = folder.open();
    claim(&store, &id, token).await.unwrap();

    // Polled once, then dropped with its store. On a busy machine, it may have ended even so.
    let completed = async move { complete(&store, &id, token).await };
    let _ = futures_util::poll!(Box::pin(completed));

    let store = folder.open();
    let id = super::id("evt_1");
    let mut state = claim(&store, &id, Token::random()).await.unwrap();
    while let ClaimState::InProgress { .. } = state {
        tokio::time::sleep(Duration::from_millis(5)).await;
        state = claim(&store, &id, Token::random()).await.unwrap();
    }
    assert_eq!(state, ClaimState::Done);
}

#[tokio::test]
async fn a_clock_that_panics_fails_an_operation_and_not_the_store() {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    let folder = Folder::new("clock");
    let broken = Arc::new(AtomicBool::new(true));
    let breaks = Arc::clone(&broken);
    let store = SqliteStore::builder()
        .clock(move || {
            assert!(!breaks.load(Ordering::SeqCst), "the clock is broken");
            std::time::SystemTime::now()
        })
        .open(folder.file())
        .unwrap();

    let error = claim(&store, &id("evt_1"), Token::random())
        .await
        .unwrap_err();
    broken.store(false, Ordering::SeqCst);
    let state = claim(&store, &id("evt_1"), Token::random()).await.unwrap();

    assert_eq!(error.kind(), StoreErrorKind::Unavailable);
    assert_eq!(state, ClaimState::Fresh { attempt: 1 });
}

#[tokio::test]
async fn a_time_before_1970_or_far_in_the_future_is_a_time() {
    for time in [
        std::time::UNIX_EPOCH - HOUR * 24 * 365 * 50,
        std::time::UNIX_EPOCH + HOUR * 24 * 365 * 1_000_000,
    ] {
        let folder = Folder::new("far");
        let store = SqliteStore::builder()
            .clock(move || time)
            .open(folder.file())
            .unwrap();
        let (id, token) = (id("evt_1"), Token::random());

        claim(&store, &id, token).await.unwrap();
        let duplicate = claim(&store, &id, Token::random()).await.unwrap();

        assert_eq!(duplicate, ClaimState::InProgress { remaining: HOUR });
        assert!(complete(&store, &id, token).await);
        assert_eq!(store.purge(10).await.unwrap(), 0);
    }
}

#[tokio::test]
async fn a_claim_of_a_stored_body_does_not_change_the_body() {
    let folder = Folder::new("body");
    let (store, id) = (folder.open(), id("evt_1"));
    let body: Vec<u8> = (0..3_000_000)
        .map(|n: u32| n.to_le_bytes()[n as usize % 3])
        .collect();
    accept(&store, &id, &body).await.unwrap();

    let state = claim(&store, &id, Token::random()).await.unwrap();
    let written: i64 = folder
        .connect()
        .query_row("SELECT length(body) FROM audience_inbox_body", (), |row| {
            row.get(0)
        })
        .unwrap();

    assert_eq!(state, ClaimState::Fresh { attempt: 1 });
    assert_eq!(written, 3_000_000);
    assert!(!store.replay(key(&id)).await.unwrap());
}
