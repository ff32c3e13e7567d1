use std::cell::Cell;
use std::future::ready;
use std::sync::Mutex;

use super::*;
use crate::inbox::Token;

/// A database whose search is slow and finds one event, whose lease always has ended. It notes how many events each
/// search may take.
#[derive(Clone, Default)]
struct Database(Arc<Mutex<Vec<i64>>>);

/// `attempts` of it.
struct Row(i32);

impl Driver for Database {
    type Row = Row;

    async fn query(
        &self,
        statement: &'static Statement,
        values: &[Value<'_>],
    ) -> Result<Vec<Row>, Failed> {
        assert_eq!(statement.sql, TAKE.sql);
        let Value::Count(limit) = values[6] else {
            panic!("the statement has a limit");
        };
        let mut limits = self.0.lock().unwrap();
        limits.push(limit);
        Ok(vec![Row(i32::try_from(limits.len()).unwrap())])
    }
}

impl Columns for Row {
    fn text(&self, _: &str) -> Result<Option<&str>, StoreError> {
        Ok(Some("evt_1"))
    }

    fn bytes(&self, _: &str) -> Result<Option<&[u8]>, StoreError> {
        Ok(Some(b"body"))
    }

    fn boolean(&self, _: &str) -> Result<bool, StoreError> {
        unreachable!("the statement returns no boolean")
    }

    fn integer(&self, _: &str) -> Result<i32, StoreError> {
        Ok(self.0)
    }

    fn bigint(&self, _: &str) -> Result<i64, StoreError> {
        unreachable!("the statement returns no bigint")
    }

    fn float(&self, _: &str) -> Result<f64, StoreError> {
        Ok(1.0)
    }
}

#[tokio::test(start_paused = true)]
async fn an_event_that_both_searches_of_a_call_found_is_taken_once() {
    let database = Database::default();
    let entries = Entries::new(database.clone(), DEFAULT_TIMEOUT);
    let take = Take::new("main", Token::random(), Duration::ZERO, 10);

    // Slow, so that the next call begins where this one found an event, and then looks at the beginning.
    entries.take(take).await.unwrap();
    let taken = entries.take(take).await.unwrap();

    let attempts: Vec<u32> = taken.iter().map(|event| event.attempt).collect();
    assert_eq!(attempts, [3]);
    // The last search is for the rest.
    assert_eq!(*database.0.lock().unwrap(), [10, 10, 9]);
}

/// A database in which a claim waits for another transaction. It notes the statements.
#[derive(Clone, Default)]
struct Busy(Arc<Mutex<Vec<&'static str>>>);

impl Driver for Busy {
    type Row = Row;

    async fn query(
        &self,
        statement: &'static Statement,
        _: &[Value<'_>],
    ) -> Result<Vec<Row>, Failed> {
        self.0.lock().unwrap().push(statement.sql);
        if statement.sql == CLAIM.sql {
            tokio::time::sleep(Duration::from_secs(3)).await;
        }
        Ok(vec![Row(1)])
    }
}

#[tokio::test(start_paused = true)]
async fn a_lease_of_which_half_passed_before_the_response_is_extended() {
    for (seconds, expected) in [
        (4, vec![CLAIM.sql, EXTEND.sql]),
        (60, vec![CLAIM.sql]),
        // It keeps nobody out.
        (0, vec![CLAIM.sql]),
    ] {
        let database = Busy::default();
        let entries = Entries::new(database.clone(), DEFAULT_TIMEOUT);
        let id = EventId::try_from("evt_1").unwrap();
        let lease = Duration::from_secs(seconds);
        let claim = NewClaim::new(EventKey::new("main", &id), Token::random(), lease, lease);

        let state = entries.claim(claim).await.unwrap();

        assert_eq!(state, ClaimState::Fresh { attempt: 1 });
        assert_eq!(*database.0.lock().unwrap(), expected, "{seconds}");
    }
}

/// A database that is down.
#[derive(Clone)]
struct Down;

impl Driver for Down {
    type Row = Row;

    async fn query(&self, _: &'static Statement, _: &[Value<'_>]) -> Result<Vec<Row>, Failed> {
        Err(failed(Aftermath::ConnectionLost))
    }
}

/// Returns from when on a statement looks for events.
fn searched_from(values: &[Value<'_>]) -> Option<f64> {
    // The durations before it are seconds, too.
    values.iter().rev().find_map(|value| match value {
        Value::Seconds(from) => Some(*from),
        _ => None,
    })
}

/// A database with no events, in which every other statement loses against another transaction. It records from
/// when on events were looked for.
#[derive(Clone, Default)]
struct Contended(Arc<Mutex<Vec<f64>>>);

impl Driver for Contended {
    type Row = Row;

    async fn query(&self, _: &'static Statement, values: &[Value<'_>]) -> Result<Vec<Row>, Failed> {
        let mut searches = self.0.lock().unwrap();
        searches.push(searched_from(values).unwrap());
        if searches.len() % 2 == 1 {
            return Err(failed(Aftermath::NothingHappened));
        }
        Ok(Vec::new())
    }
}

#[tokio::test(start_paused = true)]
async fn after_a_take_that_lost_the_whole_queue_is_searched() {
    let database = Contended::default();
    let entries = Entries::new(database.clone(), DEFAULT_TIMEOUT);
    let (start, found) = (Instant::now(), Some((50.0, 1.0)));
    let end = start + Duration::from_secs(1);
    entries
        .heads
        .learn("main", Search::FULL, found, 0, start, end);
    let (id, token) = (EventId::try_from("evt_1").unwrap(), Token::random());
    let held = [HeldClaim::new(EventKey::new("main", &id), token)];
    let take = Take::new("main", token, Duration::ZERO, 1);

    entries.take(take).await.unwrap();
    let turnover = entries.complete_and_take(&held, Duration::ZERO, take).await;

    assert!(turnover.completed.is_err() && turnover.taken.is_ok());
    let is_full: Vec<_> = database
        .0
        .lock()
        .unwrap()
        .iter()
        .map(|from| *from < 0.0)
        .collect();
    assert_eq!(is_full, [false, true, false, true]);
}

/// A database in which a search from the beginning never ends, and another one finds as many events as are left.
#[derive(Clone)]
struct Endless(Arc<Mutex<u32>>);

impl Driver for Endless {
    type Row = Row;

    async fn query(&self, _: &'static Statement, values: &[Value<'_>]) -> Result<Vec<Row>, Failed> {
        if searched_from(values) == Some(f64::NEG_INFINITY) {
            std::future::pending::<()>().await;
        }
        let mut left = self.0.lock().unwrap();
        let found = *left > 0;
        *left = left.saturating_sub(1);
        Ok(found.then_some(Row(1)).into_iter().collect())
    }
}

#[tokio::test(start_paused = true)]
async fn after_a_full_search_that_did_not_end_in_time_events_are_taken_as_before() {
    let entries = Entries::new(Endless(Arc::new(Mutex::new(1))), DEFAULT_TIMEOUT);
    let (start, found) = (Instant::now(), Some((50.0, 1.0)));
    let end = start + Duration::from_secs(1);
    entries
        .heads
        .learn("main", Search::FULL, found, 0, start, end);
    let (id, token) = (EventId::try_from("evt_1").unwrap(), Token::random());
    let held = [HeldClaim::new(EventKey::new("main", &id), token)];
    let take = Take::new("main", token, Duration::ZERO, 1);
    tokio::time::advance(Duration::from_secs(31)).await;

    let first = entries.complete_and_take(&held, Duration::ZERO, take).await;
    let second = entries.complete_and_take(&held, Duration::ZERO, take).await;

    assert!(first.taken.is_err());
    assert_eq!(second.taken.unwrap().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_worker_whose_first_search_does_not_end_in_time_takes_new_events_and_looks_for_old_ones()
{
    let entries = Entries::new(Endless(Arc::new(Mutex::new(2))), DEFAULT_TIMEOUT);
    let take = Take::new("main", Token::random(), Duration::ZERO, 10);

    let first = entries.take(take).await;
    let new = [entries.take(take).await, entries.take(take).await];
    // Nothing new is left. Whether an old event waits is not known.
    let rest = entries.take(take).await;

    assert!(first.is_err());
    assert!(new.iter().all(|taken| taken.as_ref().unwrap().len() == 1));
    assert_eq!(rest.unwrap_err().kind(), StoreErrorKind::Unavailable);
}

#[tokio::test(start_paused = true)]
async fn taken_events_are_returned_although_the_search_for_more_does_not_end() {
    for completes in [false, true] {
        let entries = Entries::new(Endless(Arc::new(Mutex::new(1))), DEFAULT_TIMEOUT);
        let (start, found) = (Instant::now(), Some((50.0, 1.0)));
        let end = start + Duration::from_millis(10);
        entries
            .heads
            .learn("main", Search::FULL, found, 0, start, end);
        let (id, token) = (EventId::try_from("evt_1").unwrap(), Token::random());
        let held = [HeldClaim::new(EventKey::new("main", &id), token)];
        let take = Take::new("main", token, Duration::ZERO, 10);
        // A full search is due only if the first one finds too little.
        tokio::time::advance(Duration::from_secs(1)).await;

        let start = Instant::now();
        let taken = if completes {
            let turnover = entries.complete_and_take(&held, Duration::ZERO, take).await;
            assert!(turnover.completed.is_ok());
            turnover.taken
        } else {
            entries.take(take).await
        };

        assert_eq!(taken.unwrap().len(), 1, "{completes}");
        assert!(Duration::ZERO < start.elapsed() && start.elapsed() < DEFAULT_TIMEOUT);
    }
}

#[tokio::test]
async fn a_store_without_a_time_limit_completes_and_takes() {
    let entries = Entries::new(Database::default(), Duration::MAX);
    let (id, token) = (EventId::try_from("evt_1").unwrap(), Token::random());
    let held = [HeldClaim::new(EventKey::new("main", &id), token)];
    let take = Take::new("main", token, Duration::ZERO, 1);

    let turnover = entries.complete_and_take(&held, Duration::ZERO, take).await;

    assert!(turnover.completed.is_ok());
    assert_eq!(turnover.taken.unwrap().len(), 1);
}

fn failed(aftermath: Aftermath) -> Failed {
    Failed {
        error: StoreError::unavailable("it failed"),
        aftermath,
    }
}

#[tokio::test]
async fn a_completion_that_fails_has_taken_nothing_if_nothing_was_to_be_taken() {
    let entries = Entries::new(Down, DEFAULT_TIMEOUT);
    let (id, token) = (EventId::try_from("evt_1").unwrap(), Token::random());
    let held = [HeldClaim::new(EventKey::new("main", &id), token)];

    for (limit, is_known) in [(0, true), (1, false)] {
        let take = Take::new("main", token, Duration::ZERO, limit);
        let turnover = entries.complete_and_take(&held, Duration::ZERO, take).await;

        assert!(turnover.completed.is_err());
        assert_eq!(turnover.taken.is_ok(), is_known, "{limit}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_statement_is_run_again_only_if_that_is_safe_and_may_help() {
    for (aftermath, is_repeatable, expected) in [
        (Aftermath::ConnectionLost, false, 1),
        (Aftermath::ConnectionLost, true, 2),
        (Aftermath::Aborted, true, 1),
        (Aftermath::Refused, true, 1),
    ] {
        let runs = Cell::new(0);
        let attempt = || {
            runs.set(runs.get() + 1);
            assert!(runs.get() < 100, "{aftermath:?}: it does not end");
            ready(Err::<(), _>(failed(aftermath)))
        };

        let result = with_retries(is_repeatable, DEFAULT_TIMEOUT, attempt).await;

        assert!(result.is_err());
        assert_eq!(runs.get(), expected, "{aftermath:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_statement_that_keeps_losing_is_run_again_for_half_of_the_time_of_the_call() {
    for is_repeatable in [false, true] {
        let (start, runs) = (Instant::now(), Cell::new(0));
        let attempt = || {
            runs.set(runs.get() + 1);
            ready(Err::<(), _>(failed(Aftermath::NothingHappened)))
        };

        let result = with_retries(is_repeatable, DEFAULT_TIMEOUT, attempt).await;

        assert_eq!(
            result.unwrap_err().to_string(),
            failed(Aftermath::NothingHappened).error.to_string()
        );
        let half = DEFAULT_TIMEOUT / 2;
        assert!(
            (half..=half + MAX_DELAY).contains(&start.elapsed()),
            "{:?}",
            start.elapsed()
        );
        // A delay is half of its maximum on average.
        assert!((10..100).contains(&runs.get()), "{runs:?}");
    }
}

#[test]
fn a_commit_that_is_refused_for_good_is_a_failure_of_the_handler() {
    let undone = |aftermath, error| match not_committed(Failed { error, aftermath }) {
        Undone::Retry(_) => "retry",
        Undone::Store(_) => "store",
        Undone::Handler(_) => "handler",
        Undone::Panic(_) => "panic",
    };
    let (temporary, lasting) = (StoreError::unavailable, StoreError::unusable);

    let refused = Aftermath::Refused;
    assert_eq!(undone(refused, lasting("a constraint")), "handler");
    assert_eq!(undone(refused, temporary("a disk failed")), "store");
    let lost = Aftermath::ConnectionLost;
    assert_eq!(undone(lost, temporary("connection reset")), "store");
    let nothing = Aftermath::NothingHappened;
    assert_eq!(undone(nothing, temporary("a conflict")), "retry");
    let aborted = Aftermath::Aborted;
    assert_eq!(undone(aborted, temporary("aborted")), "handler");
}

/// A transaction on a database whose tables have this version.
struct Migration {
    version: Option<i32>,
    executed: Vec<&'static str>,
}

impl OpenTransaction for Migration {
    type Row = Survey;

    async fn execute(&mut self, sql: &'static str) -> Result<(), Failed> {
        self.executed.push(sql);
        Ok(())
    }

    async fn query_one(&mut self, _: &'static str, _: &[Value<'_>]) -> Result<Survey, Failed> {
        Ok(Survey(self.version))
    }
}

/// The version of the tables.
struct Survey(Option<i32>);

impl Columns for Survey {
    fn text(&self, _: &str) -> Result<Option<&str>, StoreError> {
        Ok(Some("UTF8"))
    }

    fn bytes(&self, _: &str) -> Result<Option<&[u8]>, StoreError> {
        unreachable!("the statements return no bytes")
    }

    fn boolean(&self, _: &str) -> Result<bool, StoreError> {
        Ok(self.0.is_some())
    }

    fn integer(&self, name: &str) -> Result<i32, StoreError> {
        match name {
            "server_version" => Ok(OLDEST_SERVER),
            _ => Ok(self.0.unwrap()),
        }
    }

    fn bigint(&self, _: &str) -> Result<i64, StoreError> {
        unreachable!("the statements return no bigint")
    }

    fn float(&self, _: &str) -> Result<f64, StoreError> {
        unreachable!("the statements return no float")
    }
}

#[tokio::test]
async fn tables_are_created_if_they_are_absent_and_left_alone_if_not() {
    let newer = SCHEMA_VERSION + 1;
    for (version, expected) in [
        (None, Ok(vec![LOCK, SCHEMA])),
        // A role without the right to create tables can call it, too.
        (Some(SCHEMA_VERSION), Ok(vec![LOCK])),
        (Some(newer), Err(vec![LOCK])),
    ] {
        let executed = Vec::new();
        let mut migration = Migration { version, executed };

        let migrated = migrate(&mut migration).await;

        let executed = migration.executed;
        let result = match migrated {
            Ok(()) => Ok(executed),
            Err(failed) => {
                let text = failed.error.source().unwrap().to_string();
                assert!(text.contains(&format!("version {newer}")), "{text}");
                Err(executed)
            }
        };
        assert_eq!(result, expected, "{version:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_migration_is_repeated_until_the_database_responds() {
    let last: [fn() -> Result<(), StoreError>; 2] =
        [|| Ok(()), || Err(StoreError::unusable("no right"))];
    for last in last {
        let mut runs = 0;
        let migrate = || {
            runs += 1;
            ready(match runs {
                1 | 2 => Err(StoreError::unavailable("it is down")),
                3 => last(),
                _ => panic!("it is not repeated after a response"),
            })
        };

        let migrated = when_available(&tokio::sync::Mutex::new(()), migrate).await;

        assert_eq!(runs, 3);
        assert_eq!(migrated.is_ok(), last().is_ok());
    }
}

#[test]
fn an_error_that_a_setting_or_a_right_mends_says_which() {
    for (code, remedy) in [
        ("42P05", "call `unnamed_statements`"),
        ("42P01", "call `migrate`"),
        ("42P01", "run the SQL of `audience inbox schema`"),
        ("42P01", "correct the `search_path`"),
        ("42501", "add their schema to the `search_path`"),
        ("42501", "the SQL of `schema_for`"),
    ] {
        let error = Failed::of_code(code, "refused").error;

        let text = error.source().unwrap().to_string();
        assert!(text.contains(remedy), "{code}: {text}");
    }
}

#[test]
fn only_an_undefined_table_is_a_missing_table() {
    for (code, expected) in [("42P01", true), ("42501", false), ("57P01", false)] {
        let error = Failed::of_code(code, "refused").error;

        assert_eq!(lacks_tables(&error), expected, "{code}");
    }
}

#[test]
fn a_connection_is_kept_unless_it_is_lost_or_only_reads_or_its_prepared_statements_are_stale() {
    for code in ["23505", "40001", "42P01", "53100"] {
        assert!(keeps_connection(code), "{code}");
    }
    for code in [
        "0A000", "26000", "25006", "25P03", "25P04", "57P01", "08006",
    ] {
        assert!(!keeps_connection(code), "{code}");
    }
}

#[test]
fn the_code_of_an_error_tells_whether_a_later_call_may_succeed() {
    use StoreErrorKind::{Full, Unavailable, Unusable};
    let rows = [
        ("08006", Unavailable),
        ("25006", Unavailable),
        ("25P02", Unavailable),
        ("25P03", Unavailable),
        ("25P04", Unavailable),
        ("40001", Unavailable),
        ("40P01", Unavailable),
        ("53300", Unavailable),
        ("55P03", Unavailable),
        ("57014", Unavailable),
        ("57P01", Unavailable),
        ("57P02", Unavailable),
        ("57P03", Unavailable),
        ("58030", Unavailable),
        ("53100", Full),
        ("53200", Full),
        ("28P01", Unusable),
        ("3D000", Unusable),
        ("3F000", Unusable),
        ("42501", Unusable),
        ("42703", Unusable),
        ("42P01", Unusable),
        ("23514", Unusable),
        ("", Unusable),
    ];

    for (code, expected) in rows {
        assert_eq!(kind_of_code(code), expected, "{code}");
    }
}
