use std::sync::mpsc::channel;
use std::task::{Context, Waker};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use rusqlite::ffi;
use tokio::task::unconstrained;

use super::super::SqliteStore;
use super::*;
use crate::inbox::store::{ClaimState, EventKey, NewClaim, Token};
use crate::webhooks::EventId;

const LEASE: Duration = Duration::from_secs(60);

#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Operation(Purpose),
    /// Adds an entry, and then fails.
    Failing,
    /// Counts the entries.
    Exclusive,
}

/// An operation, and whether its caller waits for it.
type Step = (Kind, bool);

const STEPS: [Step; 10] = [
    (Kind::Operation(Purpose::Add), true),
    (Kind::Operation(Purpose::Add), false),
    (Kind::Operation(Purpose::Caller), true),
    (Kind::Operation(Purpose::Caller), false),
    (Kind::Operation(Purpose::Always), true),
    (Kind::Operation(Purpose::Always), false),
    (Kind::Failing, true),
    (Kind::Failing, false),
    (Kind::Exclusive, true),
    (Kind::Exclusive, false),
];

/// What a caller gets: the number of entries, for an exclusive operation.
type Outcome = Result<u64, StoreError>;

fn start(writer: &Writer, endpoint: &str, index: usize, kind: Kind) -> BoxFuture<'static, Outcome> {
    let (writer, endpoint) = (writer.clone(), endpoint.to_owned());
    let purpose = match kind {
        Kind::Operation(purpose) => purpose,
        Kind::Failing => Purpose::Always,
        Kind::Exclusive => {
            let count = move |connection: &Connection| count(connection, &endpoint);
            return async move { writer.run_exclusive(count).await }.boxed();
        }
    };
    let claim = move |entries: &Entries<'_, '_>| {
        let id = EventId::try_from(format!("evt_{index}").as_str());
        let id = id.expect("it is an id");
        let key = EventKey::new(&endpoint, &id);
        let state = entries.claim(&NewClaim::new(key, Token::random(), LEASE, LEASE))?;
        assert_eq!(state, ClaimState::Fresh { attempt: 1 });
        match kind {
            Kind::Failing => Err(rusqlite::Error::QueryReturnedNoRows),
            _ => Ok(0),
        }
    };
    async move { writer.run(purpose, claim).await }.boxed()
}

fn count(connection: &Connection, endpoint: &str) -> u64 {
    let sql = "SELECT count(*) FROM audience_inbox_pending WHERE endpoint = ?1";
    let count = connection.query_row(sql, [endpoint], |row| row.get::<_, i64>(0));
    count.unwrap().unsigned_abs()
}

/// Lets these operations wait while the thread is busy, and checks what becomes of each.
async fn check(writer: &Writer, endpoint: &str, steps: &[Step]) {
    let (is_busy, busy) = channel();
    let (resume, resumed) = channel::<()>();
    let gate = writer.run_exclusive(move |_| {
        is_busy.send(()).unwrap();
        resumed.recv().ok();
    });
    let mut gate = Box::pin(unconstrained(gate));
    let mut context = Context::from_waker(Waker::noop());
    assert!(gate.poll_unpin(&mut context).is_pending());
    busy.recv().unwrap();
    let mut callers = Vec::new();
    for (index, (kind, _)) in steps.iter().enumerate() {
        let mut caller = unconstrained(start(writer, endpoint, index, *kind));
        assert!(caller.poll_unpin(&mut context).is_pending());
        callers.push(caller);
    }
    // All of them are in the queue by now, and some callers go.
    let callers = callers.into_iter().zip(steps);
    let callers: Vec<_> = callers
        .map(|(caller, (_, waits))| waits.then_some(caller))
        .collect();
    drop(resume);

    let mut entries = 0;
    for (caller, (kind, waits)) in callers.into_iter().zip(steps) {
        let is_run = *waits || *kind == Kind::Operation(Purpose::Always);
        entries += u64::from(is_run && matches!(kind, Kind::Operation(_)));
        let Some(caller) = caller else {
            continue;
        };
        let outcome = caller.await;
        match kind {
            Kind::Operation(_) => assert!(outcome.is_ok(), "{steps:?}"),
            Kind::Failing => assert!(outcome.is_err(), "{steps:?}"),
            // It sees what was asked for before, and nothing that was asked for later.
            Kind::Exclusive => assert_eq!(outcome.unwrap(), entries, "{steps:?}"),
        }
    }
    let end = start(writer, endpoint, steps.len(), Kind::Exclusive).await;
    assert_eq!(end.unwrap(), entries, "{steps:?}");
}

#[tokio::test]
async fn every_caller_gets_its_own_result_in_any_order_of_operations() {
    let store = SqliteStore::in_memory().unwrap();
    let length: u32 = match std::env::var_os("AUDIENCE_LONG_TESTS") {
        Some(_) => 4,
        None => 3,
    };

    let sequences = STEPS.len().pow(length);
    for sequence in 0..sequences {
        let step = |place| STEPS[sequence / STEPS.len().pow(place) % STEPS.len()];
        let steps: Vec<Step> = (0..length).map(step).collect();
        check(&store.writer, &format!("endpoint {sequence}"), &steps).await;
    }

    println!("{sequences} sequences");
}

#[test]
fn the_reserve_is_only_for_what_fails_on_a_full_disk_and_adds_no_event() {
    let work = |_: &Entries<'_, '_>| Ok(());
    for (purpose, code, expected) in [
        (Purpose::Always, ffi::SQLITE_FULL, true),
        (Purpose::Caller, ffi::SQLITE_FULL, true),
        (Purpose::Add, ffi::SQLITE_FULL, false),
        // A quota is reached.
        (Purpose::Always, ffi::SQLITE_IOERR_WRITE, true),
        (Purpose::Caller, ffi::SQLITE_IOERR_SHMSIZE, true),
        (Purpose::Add, ffi::SQLITE_IOERR_WRITE, false),
        (Purpose::Always, ffi::SQLITE_IOERR_READ, false),
        (Purpose::Always, ffi::SQLITE_BUSY, false),
    ] {
        let (mut operation, _reply) = Operation::<_, ()>::new(work, purpose, 0);

        operation.fail(rusqlite::Error::SqliteFailure(ffi::Error::new(code), None));

        assert_eq!(operation.needs_reserve(), expected, "{purpose:?} {code}");
    }
}
