#![cfg_attr(
    not(target_os = "linux"),
    expect(unused_imports, reason = "some tests need a file system of their own")
)]

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use audience::inbox::sqlx::sqlite::{SqliteConnectOptions, SqlitePool};
use audience::inbox::{
    AcceptState, ClaimState, HeldClaim, Inbox, InboxError, Receipt, Release, SqliteStore, Store,
    StoreError, StoreErrorKind, Take, Token, sqlx,
};

use super::{BOUNCES, Folder, HOUR, accept, bounce, claim, complete, count_bounce, id, key};
use support::{PATIENCE, steady_time};

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

/// Accepts events, all of which wait before the store's thread begins with the first.
async fn accept_together(store: &SqliteStore, events: usize, length: usize) {
    let (resume, resumed) = std::sync::mpsc::channel::<()>();
    let busy = store.transaction(move |_| {
        resumed.recv().ok();
        Ok::<_, String>(())
    });
    let body = vec![b'x'; length];
    let accepts = (0..events).map(|n| {
        let body = &body;
        async move { accept(store, &id(format!("evt_{n}")), body).await }
    });
    let accepts = futures_util::future::join_all(accepts);
    let (busy, accepted, ()) = tokio::join!(busy, accepts, async { drop(resume) });
    busy.unwrap();
    for state in accepted {
        assert_eq!(state.unwrap(), AcceptState::Accepted);
    }
}

/// The reserve must have room for what is in the log.
const RESERVE: u64 = 8 * 1024 * 1024;

fn log_length(folder: &Folder) -> u64 {
    let log = folder.0.join("inbox.db-wal");
    log.metadata().unwrap().len()
}

#[tokio::test]
async fn the_log_stays_shorter_than_the_reserve_if_many_long_events_arrive_together() {
    let folder = Folder::new("full-long");
    let store = folder.open();

    accept_together(&store, 20, 800_000).await;

    let length = log_length(&folder);
    assert!(length < RESERVE, "{length}");
}

#[tokio::test]
async fn the_log_stays_shorter_than_the_reserve_if_the_database_has_large_pages() {
    let folder = Folder::new("full-pages");
    let large = "PRAGMA page_size = 65536; CREATE TABLE mine (x)";
    folder.connect().execute_batch(large).unwrap();
    let store = folder.open();

    for n in 0..100 {
        let state = accept(&store, &id(format!("evt_{n}")), &[b'x'; 3_000]).await;
        assert_eq!(state.unwrap(), AcceptState::Accepted);
    }

    let page_size = "PRAGMA page_size";
    let page_size = folder
        .connect()
        .query_row(page_size, (), |row| row.get::<_, i64>(0));
    assert_eq!(page_size.unwrap(), 65_536);
    let length = log_length(&folder);
    assert!(length < RESERVE, "{length}");
}

#[tokio::test]
async fn a_transaction_on_a_full_disk_is_answered_with_a_status_that_asks_for_a_retry() {
    steady_time::begin_slow();
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

#[tokio::test]
async fn the_reserve_is_given_up_for_an_event_that_is_stored_and_not_for_a_new_one() {
    let folder = Folder::new("full-reserve");
    let store = folder.open();
    let (event, token) = (id("evt_1"), Token::random());
    claim(&store, &event, token).await.unwrap();
    limit_pages(&store, 0).await;
    let reserve = folder.0.join("inbox.db-reserve");

    let long = "x".repeat(1_000_000);
    let accepted = accept(&store, &id("evt_2"), long.as_bytes()).await;
    let is_kept = reserve.exists();
    let held = HeldClaim::new(key(&event), token);
    let parked = store.park(held, &long).await;

    assert_eq!(accepted.unwrap_err().kind(), StoreErrorKind::Full);
    assert_eq!(parked.unwrap_err().kind(), StoreErrorKind::Full);
    assert!(is_kept && !reserve.exists());
}

/// Statements that fail, and how often an attempt runs the effect that has them.
const FAILING_EFFECTS: [(&str, u32); 2] = [(LARGE, 2), ("INSERT INTO nowhere VALUES (1)", 1)];

#[test]
fn a_file_that_cannot_be_opened_for_another_reason_keeps_its_reserve() {
    let folder = Folder::new("full-no-database");
    std::fs::write(folder.file(), "no database".repeat(100)).unwrap();
    let reserve = folder.0.join("inbox.db-reserve");
    std::fs::write(&reserve, "room").unwrap();

    let error = SqliteStore::open(folder.file()).unwrap_err();

    assert_ne!(error.kind(), StoreErrorKind::Full, "{error}");
    assert!(reserve.exists());
}

#[tokio::test]
async fn an_effect_that_does_not_fit_is_run_once_more_and_one_that_fails_otherwise_is_not() {
    steady_time::begin_slow();
    for (statement, expected) in FAILING_EFFECTS {
        let folder = Folder::new("full-effect");
        let store = folder.open();
        folder.connect().execute_batch(EFFECTS).unwrap();
        let inbox = Inbox::builder(store.clone()).build().unwrap();
        let receipt = inbox.accept(bounce("evt_1", "ada@example.com")).await;
        assert_eq!(receipt, Receipt::Accepted);
        limit_pages(&store, 20).await;
        let runs = Arc::new(AtomicU32::new(0));

        let counted = Arc::clone(&runs);
        let effect = move |transaction: &mut rusqlite::Transaction<'_>, _| {
            counted.fetch_add(1, Ordering::Relaxed);
            transaction.execute(statement, ()).map(drop)
        };
        let worker = inbox.worker(store.handler_in(&inbox, effect));
        worker.max_attempts(1).run_until_idle().await.unwrap();

        assert_eq!(runs.load(Ordering::Relaxed), expected, "{statement}");
    }
}

#[tokio::test]
async fn an_effect_on_a_pool_that_does_not_fit_is_run_once_more_and_one_that_fails_otherwise_is_not()
 {
    steady_time::begin_slow();
    for (statement, expected) in FAILING_EFFECTS {
        let folder = Folder::new("full-pool-effect");
        drop(folder.open());
        folder.connect().execute_batch(EFFECTS).unwrap();
        let options = SqliteConnectOptions::new()
            .filename(folder.file())
            .busy_timeout(PATIENCE);
        let pool = SqlitePool::connect_with(options).await.unwrap();
        let builder = SqliteStore::builder().busy_timeout(PATIENCE);
        let store = builder.open_pool(pool).await.unwrap();
        let inbox = Inbox::builder(store.clone()).build().unwrap();
        let receipt = inbox.accept(bounce("evt_1", "ada@example.com")).await;
        assert_eq!(receipt, Receipt::Accepted);
        let runs = Arc::new(AtomicU32::new(0));

        let counted = Arc::clone(&runs);
        let worker = inbox.worker(store.handler_in(&inbox, async move |transaction, _| {
            counted.fetch_add(1, Ordering::Relaxed);
            // Less than the effect takes, and enough for the store.
            let limit = sqlx::query("PRAGMA max_page_count = 200");
            limit.execute(&mut **transaction).await?;
            let effect = sqlx::query(statement).execute(&mut **transaction);
            effect.await.map(drop)
        }));
        worker.max_attempts(1).run_until_idle().await.unwrap();

        assert_eq!(runs.load(Ordering::Relaxed), expected, "{statement}");
    }
}

/// A file system that has little room.
#[cfg(target_os = "linux")]
struct SmallDisk(Folder);

#[cfg(target_os = "linux")]
impl SmallDisk {
    /// Mounts a file system with this many bytes. `None` if this user may not.
    fn mount(name: &str, bytes: u64) -> Option<Self> {
        let folder = Folder::new(name);
        let size = format!("size={bytes}");
        let mut mount = std::process::Command::new("mount");
        mount
            .args(["-t", "tmpfs", "-o", &size, "tmpfs"])
            .arg(&folder.0);
        let mounted = mount.stderr(std::process::Stdio::null()).status();
        if mounted.is_ok_and(|status| status.success()) {
            return Some(Self(folder));
        }
        support::say_skipped("only an administrator can mount a small disk");
        None
    }

    /// Writes a file that takes the rest of the room.
    fn fill(&self) {
        let mut options = std::fs::OpenOptions::new();
        let mut ballast = options
            .create(true)
            .append(true)
            .open(self.ballast())
            .unwrap();
        let mut length = 1 << 20;
        while length > 0 {
            match std::io::Write::write(&mut ballast, &vec![1; length]) {
                Ok(1..) => {}
                _ => length /= 2,
            }
        }
    }

    fn ballast(&self) -> std::path::PathBuf {
        self.0.0.join("ballast")
    }
}

#[cfg(target_os = "linux")]
impl Drop for SmallDisk {
    fn drop(&mut self) {
        let mut unmount = std::process::Command::new("umount");
        // Now or when the thread of the store has closed its file.
        unmount.arg("--lazy").arg(&self.0.0).status().ok();
    }
}

/// Takes and completes all events that wait, and returns how many those were. Each third is released before.
#[cfg(target_os = "linux")]
async fn drain(store: &SqliteStore) -> usize {
    let end = Instant::now() + PATIENCE;
    let mut handled = 0;
    loop {
        let token = Token::random();
        let taken = match store.take(Take::new("main", token, HOUR, 7)).await {
            // A store that closes meanwhile may use the last room for a moment.
            Err(error) if error.kind() == StoreErrorKind::Full && Instant::now() < end => {
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
            taken => taken.unwrap(),
        };
        if taken.is_empty() {
            return handled;
        }
        for event in taken {
            let held = HeldClaim::new(key(&event.id), token);
            if event.attempt == 1 && event.id.as_str().ends_with('3') {
                let release = Release::new(Duration::ZERO, HOUR, "no connection");
                assert!(store.release(held, release).await.unwrap());
            } else {
                assert!(store.complete(held, HOUR).await.unwrap());
                handled += 1;
            }
        }
    }
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn on_a_full_disk_the_waiting_events_are_handled_and_new_ones_accepted_once_there_is_room() {
    for (name, events, other_program) in [
        ("disk-full-1", usize::MAX, false),
        ("disk-full-2", usize::MAX, true),
        ("disk-full-3", 293, true),
        ("disk-full-4", 3, true),
    ] {
        let Some(disk) = SmallDisk::mount(name, 24 << 20) else {
            return;
        };
        let store = disk.0.open();
        let mut accepted = 0;
        while accepted < events {
            let body = vec![b'x'; 3_000];
            match accept(&store, &id(format!("evt_{accepted}")), &body).await {
                Ok(state) => assert_eq!(state, AcceptState::Accepted),
                Err(error) => {
                    assert_eq!(error.kind(), StoreErrorKind::Full);
                    break;
                }
            }
            accepted += 1;
        }
        if other_program {
            disk.fill();
        }
        // Another process that starts meanwhile.
        let other = disk.0.open();

        let handled = drain(&other).await;

        assert_eq!(handled, accepted, "{name}");
        let state = claim(&store, &id("evt_0"), Token::random()).await.unwrap();
        assert_eq!(state, ClaimState::Done);
        if other_program {
            // No room for new events, once the reserve is gone and cannot be written.
            std::fs::remove_file(disk.0.0.join("inbox.db-reserve")).ok();
            disk.fill();
            for store in [&store, &other] {
                let new = claim(store, &id("new"), Token::random()).await;
                let done = claim(store, &id("evt_0"), Token::random()).await;
                assert_eq!(new.unwrap_err().kind(), StoreErrorKind::Full);
                assert_eq!(done.unwrap(), ClaimState::Done);
                assert!(is_full(store).await, "{name}: a probe");
            }
            std::fs::remove_file(disk.ballast()).unwrap();
        }
        let mut attempts = 0;
        while let Err(error) = accept(&store, &id("new"), b"body").await {
            assert_eq!(error.kind(), StoreErrorKind::Full);
            attempts += 1;
            assert!(attempts < 100, "{name}: there is room");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        assert_eq!(drain(&store).await, 1);
        // If these events took the last room, the store makes some within a second.
        let mut probes = 0;
        while is_full(&store).await {
            probes += 1;
            assert!(probes < 100, "{name}: there is room for a probe");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn on_a_full_disk_long_events_that_arrived_together_are_handled() {
    let Some(disk) = SmallDisk::mount("disk-full-long", 48 << 20) else {
        return;
    };
    let store = disk.0.open();
    accept_together(&store, 40, 800_000).await;
    disk.fill();

    assert_eq!(drain(&store).await, 40);
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_program_that_starts_on_a_full_disk_handles_the_waiting_events() {
    let Some(disk) = SmallDisk::mount("disk-full-start", 24 << 20) else {
        return;
    };
    let store = disk.0.open();
    let state = accept(&store, &id("evt_1"), b"body").await.unwrap();
    assert_eq!(state, AcceptState::Accepted);
    drop(store);
    // SQLite deletes this file when the thread of the store closes the database. To create it again takes room.
    let shared_memory = disk.0.0.join("inbox.db-shm");
    support::in_time(async {
        while shared_memory.exists() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    disk.fill();

    let store = disk.0.open();

    assert_eq!(drain(&store).await, 1);
}

const EFFECTS: &str = "CREATE TABLE effects (data BLOB)";
/// More than fits on a disk with `LITTLE_ROOM`.
const LARGE: &str = "INSERT INTO effects VALUES (randomblob(1000000))";
/// Room to take and to complete events.
#[cfg(target_os = "linux")]
const LITTLE_ROOM: u64 = 512 * 1024;

/// Mounts a small disk, with a table for effects, and a store in which three events wait. Then it has little room but the
/// reserve.
#[cfg(target_os = "linux")]
async fn full_disk(name: &str) -> Option<(SmallDisk, SqliteStore)> {
    let disk = SmallDisk::mount(name, 24 << 20)?;
    let store = disk.0.open();
    disk.0.connect().execute_batch(EFFECTS).unwrap();
    let inbox = Inbox::builder(store.clone()).build().unwrap();
    for event in ["evt_1", "evt_2", "evt_3"] {
        let receipt = inbox.accept(bounce(event, "ada@example.com")).await;
        assert_eq!(receipt, Receipt::Accepted);
    }
    disk.fill();
    let ballast = std::fs::OpenOptions::new().write(true).open(disk.ballast());
    let ballast = ballast.unwrap();
    let length = ballast.metadata().unwrap().len();
    ballast.set_len(length - LITTLE_ROOM).unwrap();
    Some((disk, store))
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn on_a_full_disk_the_events_of_a_worker_are_handled_in_transactions_with_their_effects() {
    steady_time::begin_slow();
    let Some((disk, store)) = full_disk("disk-full-effects").await else {
        return;
    };
    let inbox = Inbox::builder(store.clone()).build().unwrap();

    let effect =
        |transaction: &mut rusqlite::Transaction<'_>, _| transaction.execute(LARGE, ()).map(drop);
    let worker = inbox.worker(store.handler_in(&inbox, effect));
    let worker = worker.concurrency(1).max_attempts(1);
    let report = worker.run_until_idle().await.unwrap();

    assert_eq!((report.handled, report.parked), (3, 0), "{report:?}");
    assert_eq!(disk.0.effects(), 3);
    let new = inbox.accept(bounce("evt_4", "ada@example.com")).await;
    assert_eq!(new, Receipt::Full);
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn on_a_full_disk_the_events_of_a_worker_are_handled_in_transactions_on_a_pool() {
    steady_time::begin_slow();
    let Some((disk, _store)) = full_disk("disk-full-pool").await else {
        return;
    };
    let options = SqliteConnectOptions::new()
        .filename(disk.0.file())
        .busy_timeout(PATIENCE);
    let pool = SqlitePool::connect_with(options).await.unwrap();
    let builder = SqliteStore::builder().busy_timeout(PATIENCE);
    let store = builder.open_pool(pool).await.unwrap();
    let inbox = Inbox::builder(store.clone()).build().unwrap();

    let worker = inbox.worker(store.handler_in(&inbox, async |transaction, _| {
        let effect = sqlx::query(LARGE).execute(&mut **transaction);
        effect.await.map(drop)
    }));
    // On a slow machine, the reserve may be written again before the second run.
    let worker = worker
        .concurrency(1)
        .backoff(Duration::ZERO, Duration::ZERO);
    let report = worker.run_until_idle().await.unwrap();

    assert_eq!((report.handled, report.parked), (3, 0), "{report:?}");
    assert_eq!(disk.0.effects(), 3);
}

/// Returns whether a probe says that the disk is full.
#[cfg(target_os = "linux")]
async fn is_full(store: &SqliteStore) -> bool {
    let inbox = Inbox::builder(store.clone()).build().unwrap();
    loop {
        match inbox.ready().await {
            Ok(()) => return false,
            // On a busy machine, a response may be late.
            Err(InboxError::Store(error)) if error.kind() == StoreErrorKind::Unavailable => {}
            Err(InboxError::Store(error)) => return error.kind() == StoreErrorKind::Full,
            Err(error) => panic!("{error}"),
        }
    }
}
