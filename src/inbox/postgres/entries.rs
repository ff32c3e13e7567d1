//! The entries of a store in Postgres, for every driver: what the calls of the store do, when they are retried, and
//! what their errors mean.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::runtime::Handle;
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout};

use super::group::{Group, Ids, LOCK_TIMEOUT, Outcome, Work, together};
use super::queue_head::{QueueHeads, Search};
use super::statements::{
    ACCEPT, BACKLOG, CLAIM, CLAIM_IN, CLAIM_KNOWN, COMPLETE, DISCARD, EXTEND, LOCK, LONGEST,
    OLDEST_SERVER, PARK, PARKED, PURGE, RELEASE, REPLAY, SCHEMA, SCHEMA_VERSION, STATE, SURVEY,
    Statement, TAKE, VERSION, Value,
};
use crate::causes::causes;
use crate::inbox::error::{Failure, StoreError, StoreErrorKind};
use crate::inbox::handle_in::Undone;
use crate::inbox::receipt::state_of_outcome;
use crate::inbox::store::{
    AcceptState, Backlog, ClaimState, EventKey, Fingerprint, HeldClaim, NewClaim, NewDelivery,
    ParkedEvent, Release, Store, Take, TakenEvent, Turnover, turn_over,
};
use crate::inbox::{ClaimTarget, FailureLog, PurgeTimer, purge_all, purge_failure};
use crate::webhooks::EventId;

pub(super) const DEFAULT_TIMEOUT: Duration = Duration::from_secs(5);

/// Runs statements, each on any connection and as a transaction of its own.
pub(super) trait Driver: Clone + Send + Sync + 'static {
    type Row: Columns + Send;

    /// Runs a statement once.
    ///
    /// A future that is dropped leaves no statement running on the server, and gives no connection back that is in
    /// use.
    fn query(
        &self,
        statement: &'static Statement,
        values: &[Value<'_>],
    ) -> impl Future<Output = Result<Vec<Self::Row>, Failed>> + Send;
}

/// A transaction that is open.
pub(super) trait OpenTransaction: Send {
    type Row: Columns;

    /// Runs statements without parameters, and drops their results.
    fn execute(&mut self, sql: &'static str) -> impl Future<Output = Result<(), Failed>> + Send;

    /// Runs a statement that returns one row.
    fn query_one(
        &mut self,
        sql: &'static str,
        values: &[Value<'_>],
    ) -> impl Future<Output = Result<Self::Row, Failed>> + Send;
}

/// Reads the columns of a row by their names.
pub(super) trait Columns {
    fn text(&self, name: &str) -> Result<Option<&str>, StoreError>;
    fn bytes(&self, name: &str) -> Result<Option<&[u8]>, StoreError>;
    fn boolean(&self, name: &str) -> Result<bool, StoreError>;
    fn integer(&self, name: &str) -> Result<i32, StoreError>;
    fn bigint(&self, name: &str) -> Result<i64, StoreError>;
    fn float(&self, name: &str) -> Result<f64, StoreError>;
}

/// A store without an interface of its own.
#[derive(Clone)]
pub(super) struct Entries<D> {
    pub(super) driver: D,
    /// How long a call may take, the wait for a connection included.
    pub(super) timeout: Duration,
    purge_timer: Arc<PurgeTimer>,
    pub(super) failures: Arc<FailureLog>,
    pub(super) group: Group,
    heads: QueueHeads,
    /// Locked while [`when_available`] creates the tables.
    pub(super) migration: Arc<Mutex<()>>,
}

/// Runs a statement and returns whether it changed an entry.
macro_rules! changes_entry {
    ($entries:ident, $statement:ident, $($value:expr),+) => {
        Ok(!$entries.query(&$statement, &[$($value.into()),+]).await?.is_empty())
    };
}

impl<D: Driver> Store for Entries<D> {
    async fn claim(&self, claim: NewClaim<'_>) -> Result<ClaimState, StoreError> {
        let start = Instant::now();
        let held = HeldClaim::new(claim.key, claim.token);
        let call = async {
            let place = self.group.enter();
            let state = if place.is_alone {
                self.claim_alone(&claim, true).await?
            } else {
                let work = Work::Claim {
                    lease: claim.lease,
                    retention: claim.retention,
                    fingerprint: claim.fingerprint,
                };
                match together(self, held, work).await {
                    Outcome::Done => ClaimState::Fresh { attempt: 1 },
                    Outcome::Refused => self.claim_alone(&claim, false).await?,
                    Outcome::Unknown => self.claim_alone(&claim, true).await?,
                }
            };
            let is_fresh = matches!(state, ClaimState::Fresh { .. });
            // A lease begins before the wait for another transaction that had the entry, if that rolls back.
            if is_fresh
                && !claim.lease.is_zero()
                && start.elapsed() >= claim.lease / 2
                && !self.extend(held, claim.lease).await?
            {
                return self.claim_alone(&claim, true).await;
            }
            Ok(state)
        };
        in_time(self.timeout, call).await
    }

    async fn extend(&self, held: HeldClaim<'_>, lease: Duration) -> Result<bool, StoreError> {
        let HeldClaim { key, token } = held;
        changes_entry!(
            self,
            EXTEND,
            key.endpoint,
            key.id.as_str(),
            token.as_bytes().as_slice(),
            lease
        )
    }

    async fn complete(&self, held: HeldClaim<'_>, retention: Duration) -> Result<bool, StoreError> {
        let call = async {
            let place = self.group.enter();
            if !place.is_alone {
                match together(self, held, Work::Complete { retention }).await {
                    Outcome::Done => return Ok(true),
                    Outcome::Refused => return Ok(false),
                    Outcome::Unknown => {}
                }
            }
            let values = [
                held.key.endpoint.into(),
                held.key.id.as_str().into(),
                held.token.as_bytes().as_slice().into(),
                retention.into(),
            ];
            let completed = self.query_with_retries(&COMPLETE, &values).await?;
            Ok(!completed.is_empty())
        };
        in_time(self.timeout, call).await
    }

    async fn release(&self, held: HeldClaim<'_>, release: Release<'_>) -> Result<bool, StoreError> {
        let HeldClaim { key, token } = held;
        changes_entry!(
            self,
            RELEASE,
            key.endpoint,
            key.id.as_str(),
            token.as_bytes().as_slice(),
            release.delay,
            release.retention,
            without_nul(release.reason).as_str()
        )
    }

    async fn park(&self, held: HeldClaim<'_>, reason: &str) -> Result<bool, StoreError> {
        let HeldClaim { key, token } = held;
        changes_entry!(
            self,
            PARK,
            key.endpoint,
            key.id.as_str(),
            token.as_bytes().as_slice(),
            without_nul(reason).as_str()
        )
    }

    async fn accept(&self, delivery: NewDelivery<'_>) -> Result<AcceptState, StoreError> {
        let NewDelivery {
            key,
            body,
            fingerprint,
        } = delivery;
        let values = [
            key.endpoint.into(),
            key.id.as_str().into(),
            body.into(),
            fingerprint.as_bytes().as_slice().into(),
        ];
        let row = self.query_one(&ACCEPT, &values).await?;
        match present(row.text("outcome"))? {
            "accepted" => Ok(AcceptState::Accepted),
            "duplicate" => Ok(AcceptState::Duplicate),
            "in_progress" => Ok(AcceptState::InProgress {
                remaining: time(&row, "remaining")?,
            }),
            "conflict" => Ok(AcceptState::Conflict),
            outcome => Err(unexpected(outcome)),
        }
    }

    async fn take(&self, take: Take<'_>) -> Result<Vec<TakenEvent>, StoreError> {
        let start = Instant::now();
        let call = async {
            let search = self.heads.search(take.endpoint);
            self.take_with_retries(&take, search, start).await
        };
        in_time(self.timeout, call).await
    }

    async fn complete_and_take(
        &self,
        completed: &[HeldClaim<'_>],
        retention: Duration,
        take: Take<'_>,
    ) -> Turnover {
        let mut sorted = completed.to_vec();
        // Sorted, so that two statements lock entries in the same order.
        sorted.sort_by(|a, b| a.key.id.cmp(b.key.id));
        let is_simple = sorted.iter().all(|held| held.key.endpoint == take.endpoint)
            && sorted.is_sorted_by(|a, b| a.key.id != b.key.id);
        if !is_simple {
            return turn_over(self, completed, retention, take).await;
        }
        let mut ids = Ids::default();
        for held in &sorted {
            ids.push(held.key.id, held.token);
        }
        let start = Instant::now();
        let search = self.heads.search(take.endpoint);
        let call = async { Ok(self.take_once(&ids, retention, &take, search, start).await) };
        let failed = match in_time(self.timeout, call).await {
            Ok(Ok((done, taken))) => {
                let is_done = |held: &HeldClaim<'_>| {
                    let at = ids.ids.binary_search(&held.key.id.as_str());
                    at.is_ok_and(|at| done[at])
                };
                return Turnover::new(Ok(completed.iter().map(is_done).collect()), Ok(taken));
            }
            Ok(Err(failed)) => failed,
            Err(error) => Failed {
                error,
                aftermath: Aftermath::ConnectionLost,
            },
        };
        let error = failed.error;
        let taken = match (take.limit, failed.aftermath) {
            (0, _) => Ok(Vec::new()),
            // The statement may have taken events. Another attempt would take other events, and count events twice
            // whose lease ended.
            (_, Aftermath::ConnectionLost) => Err(StoreError::unavailable(MaybeTaken)),
            // One of the entries to complete may be the reason. The caller completes each of them alone.
            _ => {
                let call = async {
                    if lacks_tables(&error) {
                        // When a service starts for the first time, they are created beside its workers.
                        drop(timeout(self.timeout / 2, self.migration.lock()).await);
                    }
                    self.take_with_retries(&take, Search::FULL, start).await
                };
                in_time(self.timeout.saturating_sub(start.elapsed()), call).await
            }
        };
        Turnover::new(Err(error), taken)
    }

    async fn parked(
        &self,
        endpoint: &str,
        after: Option<&EventId>,
        limit: usize,
    ) -> Result<Vec<ParkedEvent>, StoreError> {
        // No id is empty.
        let after = after.map_or("", EventId::as_str);
        let values = [endpoint.into(), after.into(), limit.into()];
        let parked = self.query(&PARKED, &values).await?;
        parked.iter().map(parked_event).collect()
    }

    async fn replay(&self, key: EventKey<'_>) -> Result<bool, StoreError> {
        changes_entry!(self, REPLAY, key.endpoint, key.id.as_str())
    }

    async fn discard(&self, key: EventKey<'_>, retention: Duration) -> Result<bool, StoreError> {
        changes_entry!(self, DISCARD, key.endpoint, key.id.as_str(), retention)
    }

    async fn purge(&self, limit: usize) -> Result<usize, StoreError> {
        let deleted = self.query(&PURGE, &[limit.into()]).await?;
        Ok(deleted.len())
    }

    async fn state(
        &self,
        key: EventKey<'_>,
        fingerprint: Option<Fingerprint>,
    ) -> Result<ClaimState, StoreError> {
        let fingerprint = fingerprint.as_ref().map(|f| f.as_bytes().as_slice());
        let values = [
            key.endpoint.into(),
            key.id.as_str().into(),
            fingerprint.into(),
        ];
        claim_state(&self.query_one(&STATE, &values).await?)
    }

    async fn backlog(&self, endpoint: &str) -> Result<Backlog, StoreError> {
        let row = self.query_one(&BACKLOG, &[endpoint.into()]).await?;
        let number = |name| row.bigint(name).map(i64::unsigned_abs);
        Ok(Backlog::new(
            number("waiting")?,
            number("in_progress")?,
            number("parked")?,
            time(&row, "lag")?,
        ))
    }
}

/// The time between two attempts to create the tables while the database is down.
const MIGRATION_PAUSE: Duration = Duration::from_secs(1);
/// The delay before another attempt grows up to this.
const MAX_DELAY: Duration = Duration::from_millis(256);
/// How often a statement that found another entry than it locked is run.
const MAX_LOST_RACES: u32 = 100;
const LOST_RACES: &str = "other transactions kept changing the entry, or a connection pooler mixes up prepared statements";

impl<D: Driver> Entries<D> {
    pub(super) fn new(driver: D, timeout: Duration) -> Self {
        let purge_timer = Arc::new(PurgeTimer::due());
        Self {
            driver,
            timeout,
            purge_timer,
            failures: Arc::default(),
            group: Group::default(),
            heads: QueueHeads::default(),
            migration: Arc::default(),
        }
    }

    /// Deletes forgotten entries now and then, in a task of its own. A receiver that only claims in transactions has no
    /// inbox that deletes them.
    pub(super) fn purge_if_due(&self) {
        let Ok(runtime) = Handle::try_current() else {
            return;
        };
        if self.purge_timer.is_due() {
            let entries = self.clone();
            runtime.spawn(async move {
                if let Some(error) = purge_failure(purge_all(&entries)).await {
                    entries.failures.report(None, "purge", &error);
                }
            });
        }
    }

    /// Makes a claim with a statement of its own. `may_be_new` says whether the event may have no entry.
    async fn claim_alone(
        &self,
        claim: &NewClaim<'_>,
        mut may_be_new: bool,
    ) -> Result<ClaimState, StoreError> {
        let fingerprint = claim.fingerprint.as_ref().map(|f| f.as_bytes().as_slice());
        let values = [
            claim.key.endpoint.into(),
            claim.key.id.as_str().into(),
            claim.token.as_bytes().as_slice().into(),
            claim.lease.into(),
            claim.retention.into(),
            fingerprint.into(),
        ];
        for _ in 0..MAX_LOST_RACES {
            if may_be_new && !self.query_with_retries(&CLAIM, &values).await?.is_empty() {
                return Ok(ClaimState::Fresh { attempt: 1 });
            }
            may_be_new = true;
            let rows = self.query_with_retries(&CLAIM_KNOWN, &values).await?;
            let Some(row) = rows.first() else {
                continue;
            };
            if present(row.text("outcome"))? != "claimable" {
                return claim_state(row);
            }
        }
        Err(StoreError::unavailable(LOST_RACES))
    }

    /// Takes events. Only the first attempt begins its search where `search` says: what an attempt had found when it
    /// failed is due again, and may be before the place where others began theirs meanwhile. `start` is when the call began,
    /// which is dropped after its timeout.
    async fn take_with_retries(
        &self,
        take: &Take<'_>,
        search: Search,
        start: Instant,
    ) -> Result<Vec<TakenEvent>, StoreError> {
        let mut first = Some(search);
        let nothing = Ids::default();
        let attempt = || {
            let search = first.take().unwrap_or(Search::FULL);
            self.take_once(&nothing, Duration::ZERO, take, search, start)
        };
        let (_, taken) = with_retries(TAKE.is_repeatable, self.timeout, attempt).await?;
        Ok(taken)
    }

    /// Completes claims, and takes events. Returns which claims were held. Their ids are sorted. Makes one attempt.
    /// `start` is when the call began, which is dropped after its timeout.
    async fn take_once(
        &self,
        completed: &Ids<'_>,
        retention: Duration,
        take: &Take<'_>,
        search: Search,
        start: Instant,
    ) -> Result<(Vec<bool>, Vec<TakenEvent>), Failed> {
        let (done, mut taken) = self.look(completed, retention, take, search).await?;
        if taken.is_empty() && take.limit > 0 && search.is_guess {
            // A failure is returned: an event may wait before the guess, so nobody may hear that none is due.
            let nothing = Ids::default();
            let (_, taken) = self.look(&nothing, retention, take, Search::FULL).await?;
            return Ok((done, taken));
        }
        if taken.len() < take.limit
            && !search.is_full()
            && self.heads.is_worth_full_search(take.endpoint)
        {
            let rest = Take {
                limit: take.limit - taken.len(),
                ..*take
            };
            // What was taken must not be lost if this fails or takes too long.
            let nothing = Ids::default();
            let more = self.look(&nothing, retention, &rest, Search::FULL);
            let limit = self.timeout.saturating_sub(start.elapsed()) / 2;
            if let Ok(Ok((_, more))) = timeout(limit, more).await {
                // The first lease of an event that was taken twice has ended meanwhile.
                taken.retain(|event| more.iter().all(|again| again.id != event.id));
                taken.extend(more);
            }
        }
        Ok((done, taken))
    }

    async fn look(
        &self,
        completed: &Ids<'_>,
        retention: Duration,
        take: &Take<'_>,
        search: Search,
    ) -> Result<(Vec<bool>, Vec<TakenEvent>), Failed> {
        // A statement that only completes events searches nothing.
        let running = (take.limit > 0).then(|| self.heads.begin(take.endpoint, search));
        let values = [
            take.endpoint.into(),
            Value::Texts(&completed.ids),
            completed.tokens.as_slice().into(),
            retention.into(),
            take.token.as_bytes().as_slice().into(),
            take.lease.into(),
            take.limit.into(),
            Value::Seconds(search.from),
            LOCK_TIMEOUT.into(),
        ];
        let rows = self.driver.query(&TAKE, &values).await?;
        let (mut done, mut taken) = (vec![false; completed.ids.len()], Vec::new());
        let mut oldest = None;
        for row in &rows {
            if row.integer("attempts")? == 0 {
                let id = present(row.text("event_id"))?;
                if let Ok(at) = completed.ids.binary_search(&id) {
                    done[at] = true;
                }
                continue;
            }
            if oldest.is_none() {
                oldest = Some((row.float("due_since")?, row.float("searched")?));
            }
            taken.push(taken_event(row)?);
        }
        if let Some(running) = running {
            running.end(oldest, completed.ids.len());
        }
        Ok((done, taken))
    }

    /// Runs a statement. Repeats it if that is safe and may help.
    async fn query(
        &self,
        statement: &'static Statement,
        values: &[Value<'_>],
    ) -> Result<Vec<D::Row>, StoreError> {
        in_time(self.timeout, self.query_with_retries(statement, values)).await
    }

    /// Runs a statement that returns one row, or none if another transaction was faster. Then it runs again.
    async fn query_one(
        &self,
        statement: &'static Statement,
        values: &[Value<'_>],
    ) -> Result<D::Row, StoreError> {
        let call = async {
            for _ in 0..MAX_LOST_RACES {
                let rows = self.query_with_retries(statement, values).await?;
                if let Some(row) = rows.into_iter().next() {
                    return Ok(row);
                }
            }
            Err(StoreError::unavailable(LOST_RACES))
        };
        in_time(self.timeout, call).await
    }

    async fn query_with_retries(
        &self,
        statement: &'static Statement,
        values: &[Value<'_>],
    ) -> Result<Vec<D::Row>, StoreError> {
        let attempt = || self.driver.query(statement, values);
        with_retries(statement.is_repeatable, self.timeout, attempt).await
    }
}

/// Makes attempts for as long as another one is safe and may help.
///
/// A statement that loses against other transactions is retried for half of `limit`, the time that the whole call has:
/// if many callers meet in a database whose transactions are serializable, only one of them may win at a time. The other
/// half is for the last attempt, so that its error is told instead of a timeout.
async fn with_retries<T, F: Future<Output = Result<T, Failed>>>(
    is_repeatable: bool,
    limit: Duration,
    mut attempt: impl FnMut() -> F,
) -> Result<T, StoreError> {
    let start = Instant::now();
    let mut max_delay = Duration::from_millis(2);
    let mut lost_connection = false;
    loop {
        let failed = match attempt().await {
            Ok(result) => return Ok(result),
            Err(failed) => failed,
        };
        match failed.aftermath {
            Aftermath::NothingHappened if start.elapsed() < limit / 2 => {
                // The delay is random, so that the transactions that met do not meet again.
                tokio::time::sleep(max_delay.mul_f64(fastrand::f64())).await;
                max_delay = MAX_DELAY.min(max_delay * 2);
            }
            // The statement may have run, so it is retried only if a second run has the same result.
            Aftermath::ConnectionLost if is_repeatable && !lost_connection => {
                lost_connection = true;
            }
            _ => return Err(failed.error),
        }
    }
}

fn claim_state(row: &impl Columns) -> Result<ClaimState, StoreError> {
    Ok(match present(row.text("outcome"))? {
        "claimable" | "claimed" | "held" => ClaimState::Fresh {
            attempt: row.integer("attempts")?.unsigned_abs(),
        },
        "in_progress" => ClaimState::InProgress {
            remaining: time(row, "remaining")?,
        },
        "done" => ClaimState::Done,
        "parked" => ClaimState::Parked,
        "conflict" => ClaimState::Conflict,
        outcome => return Err(unexpected(outcome)),
    })
}

fn taken_event(row: &impl Columns) -> Result<TakenEvent, StoreError> {
    Ok(TakenEvent {
        id: event_id(row)?,
        body: Bytes::copy_from_slice(present(row.bytes("body"))?),
        attempt: row.integer("attempts")?.unsigned_abs(),
        overdue: time(row, "overdue")?,
    })
}

fn parked_event(row: &impl Columns) -> Result<ParkedEvent, StoreError> {
    Ok(ParkedEvent::new(
        event_id(row)?,
        row.bytes("body")?.map(Bytes::copy_from_slice),
        row.integer("attempts")?.unsigned_abs(),
        row.text("reason")?.unwrap_or_default(),
        time(row, "parked_for")?,
    ))
}

fn event_id(row: &impl Columns) -> Result<EventId, StoreError> {
    EventId::try_from(present(row.text("event_id"))?).map_err(StoreError::unusable)
}

pub(super) fn time(row: &impl Columns, name: &str) -> Result<Duration, StoreError> {
    let seconds = row.float(name)?;
    Ok(Duration::try_from_secs_f64(seconds.max(0.0)).unwrap_or(LONGEST))
}

/// Returns the value of a column that the statements never leave empty.
pub(super) fn present<T>(value: Result<Option<T>, StoreError>) -> Result<T, StoreError> {
    value?.ok_or_else(|| StoreError::unusable("a statement returned NULL for a value"))
}

/// Returns the text without NUL, which Postgres does not store.
fn without_nul(text: &str) -> String {
    text.replace('\0', "")
}

fn unexpected(outcome: &str) -> StoreError {
    StoreError::unusable(format!(
        "a statement returned the unknown outcome {outcome:?}"
    ))
}

/// Claims an event in a transaction of the user's, and marks it as done.
pub(super) async fn claim_in(
    transaction: &mut impl OpenTransaction,
    endpoint: &str,
    event: ClaimTarget<'_>,
    retention: Duration,
) -> Result<ClaimState, Failed> {
    let fingerprint = event.fingerprint.as_ref().map(|f| f.as_bytes().as_slice());
    let values = [
        endpoint.into(),
        event.id.as_str().into(),
        fingerprint.into(),
        retention.into(),
    ];
    loop {
        let row = transaction.query_one(CLAIM_IN, &values).await?;
        match present(row.text("outcome"))? {
            // Another transaction wrote the entry meanwhile. The next run sees the new entry.
            "again" => {}
            outcome => return Ok(state_of_outcome(outcome)),
        }
    }
}

/// Classes the failure of a transaction before its commit.
impl From<Failed> for Undone {
    fn from(failed: Failed) -> Self {
        match failed.aftermath {
            Aftermath::NothingHappened | Aftermath::ConnectionLost => Self::Retry(failed.error),
            Aftermath::Aborted | Aftermath::Refused => Self::Store(failed.error),
        }
    }
}

/// Classes the failure of a commit.
pub(super) fn not_committed(failed: Failed) -> Undone {
    match failed.aftermath {
        Aftermath::NothingHappened => Undone::Retry(failed.error),
        Aftermath::Aborted => Undone::Handler(Failure::of_error(&Ignored)),
        // The rows that the handler wrote violate a deferred constraint.
        Aftermath::Refused if !failed.error.is_temporary() => {
            Undone::Handler(Failure::of_error(&failed.error))
        }
        // Whether it was committed is not known. The next delivery finds out.
        Aftermath::Refused | Aftermath::ConnectionLost => Undone::Store(failed.error),
    }
}

#[derive(Debug, thiserror::Error)]
#[error("the handler returned no error, although a statement of the transaction failed")]
struct Ignored;

/// How long [`migrate`] may take: other processes may be migrating.
pub(super) const MIGRATION_TIMEOUT: Duration = Duration::from_secs(60);

/// Creates the tables if they are absent. Fails if they are newer than this code.
///
/// The transaction must be `READ COMMITTED`: one that fixes what it sees when it begins would not see the tables that
/// another process created while this one waited for the lock.
pub(super) async fn migrate(transaction: &mut impl OpenTransaction) -> Result<(), Failed> {
    transaction.execute(LOCK).await?;
    let survey = transaction.query_one(SURVEY, &[]).await?;
    let version = if survey.boolean("has_tables")? {
        let row = transaction.query_one(VERSION, &[]).await?;
        Some(row.integer("version")?)
    } else {
        None
    };
    check_server(&survey)?;
    match version {
        Some(version) if version > SCHEMA_VERSION => Err(StoreError::unusable(format!(
            "the tables have version {version} and this crate knows version {SCHEMA_VERSION}: update the crate"
        ))
        .into()),
        Some(SCHEMA_VERSION) => Ok(()),
        _ => transaction.execute(SCHEMA).await,
    }
}

/// Repeats a migration until the database responds. Workers wait for the lock.
pub(super) async fn when_available<M>(
    lock: &Mutex<()>,
    mut migrate: impl FnMut() -> M,
) -> Result<(), StoreError>
where
    M: Future<Output = Result<(), StoreError>>,
{
    let _locked = lock.lock().await;
    let failures = FailureLog::default();
    let start = Instant::now();
    let mut has_failed = false;
    loop {
        match migrate().await {
            Err(error) if error.is_temporary() => {
                has_failed = true;
                failures.report(None, "migrate", &error);
            }
            result => {
                if has_failed && result.is_ok() {
                    let seconds = start.elapsed().as_secs();
                    report!(
                        info,
                        operation = "migrate",
                        seconds,
                        "inbox store works again"
                    );
                }
                return result;
            }
        }
        tokio::time::sleep(MIGRATION_PAUSE).await;
    }
}

fn check_server(survey: &impl Columns) -> Result<(), StoreError> {
    let version = survey.integer("server_version")?;
    let encoding = present(survey.text("encoding"))?;
    if version < OLDEST_SERVER {
        return Err(StoreError::unusable(format!(
            "the server is PostgreSQL {}, and the inbox needs version 13 or later",
            version / 10_000
        )));
    }
    if encoding != "UTF8" {
        return Err(StoreError::unusable(format!(
            "the encoding of the database is {encoding}, and the inbox needs UTF8: event ids are any text"
        )));
    }
    Ok(())
}

/// Awaits a call, but not for longer than the timeout.
pub(super) async fn in_time<T>(
    limit: Duration,
    call: impl Future<Output = Result<T, StoreError>>,
) -> Result<T, StoreError> {
    // The limit includes the wait for a connection: if the pool has none, the response must not come too late. A call
    // that is dropped here cancels its statement, see `Driver::query`.
    let result = timeout(limit, call).await;
    result.unwrap_or_else(|_| {
        Err(StoreError::unavailable(TimedOut {
            milliseconds: limit.as_millis(),
        }))
    })
}

/// No response came in time.
#[derive(Debug, thiserror::Error)]
#[error("no response from the database within {milliseconds} ms")]
struct TimedOut {
    milliseconds: u128,
}

#[derive(Debug, thiserror::Error)]
#[error("events may have been taken by a statement whose response was lost; their leases end")]
struct MaybeTaken;

/// A statement that failed.
#[derive(Debug)]
pub(super) struct Failed {
    pub(super) error: StoreError,
    pub(super) aftermath: Aftermath,
}

/// The state after a failed statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Aftermath {
    /// The statement had no effect and may be run again.
    NothingHappened,
    /// The connection is lost. Whether the statement had an effect is not known.
    ConnectionLost,
    /// An earlier statement of the transaction failed. Postgres runs no other one in it.
    Aborted,
    /// The same statement would fail again.
    Refused,
}

impl Failed {
    /// Classes an error that the server returned with this SQLSTATE.
    pub(super) fn of_code(code: &str, error: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        let source = match code {
            "42P05" => SharedNames(error.into()).into(),
            "42P01" => MissingTables(error.into()).into(),
            "42501" => MissingRight(error.into()).into(),
            _ => error.into(),
        };
        Self {
            error: store_error(kind_of_code(code), source),
            aftermath: Aftermath::of_code(code),
        }
    }

    /// Classes an error of the driver itself. It is about the connection, or about something that a later call does
    /// not change: TLS, the password, the settings, or a value of another type.
    pub(super) fn of_driver(
        is_connection_lost: bool,
        error: impl Into<Box<dyn Error + Send + Sync>>,
    ) -> Self {
        if is_connection_lost {
            return Self {
                error: StoreError::unavailable(error),
                aftermath: Aftermath::ConnectionLost,
            };
        }
        StoreError::unusable(error).into()
    }
}

/// An error that a second run of the statement would have, too.
impl From<StoreError> for Failed {
    fn from(error: StoreError) -> Self {
        Self {
            error,
            aftermath: Aftermath::Refused,
        }
    }
}

impl From<Failed> for StoreError {
    fn from(failed: Failed) -> Self {
        failed.error
    }
}

impl Aftermath {
    fn of_code(code: &str) -> Self {
        match code {
            // A conflict with another transaction; or a statement that was prepared and is no longer valid.
            "40001" | "40P01" | "0A000" | "26000" => Self::NothingHappened,
            "25P02" => Self::Aborted,
            TRANSACTION_IDLE | TRANSACTION_LONG => Self::ConnectionLost,
            _ if code.starts_with("57P") || code.starts_with("08") => Self::ConnectionLost,
            _ => Self::Refused,
        }
    }
}

/// The SQLSTATE of `idle_in_transaction_session_timeout`, which ends the connection.
const TRANSACTION_IDLE: &str = "25P03";
/// The SQLSTATE of `transaction_timeout`, which ends the connection, also during a statement outside of a transaction.
const TRANSACTION_LONG: &str = "25P04";

/// The SQLSTATE of a write on a server, or in a transaction, that only reads.
pub(super) const READ_ONLY: &str = "25006";

/// Returns whether a connection is as good as before, although the server refused a statement on it.
pub(super) fn keeps_connection(code: &str) -> bool {
    // The connection remembers a prepared statement that the server no longer has, or a failover has left it to a server
    // that only reads. So it would fail each time.
    let is_stale = matches!(code, "0A000" | "26000" | READ_ONLY);
    !is_stale && Aftermath::of_code(code) != Aftermath::ConnectionLost
}

fn store_error(kind: StoreErrorKind, source: Box<dyn Error + Send + Sync>) -> StoreError {
    match kind {
        StoreErrorKind::Unavailable => StoreError::unavailable(source),
        StoreErrorKind::Full => StoreError::full(source),
        StoreErrorKind::Unusable => StoreError::unusable(source),
    }
}

fn kind_of_code(code: &str) -> StoreErrorKind {
    match code {
        // The disk or the memory is full.
        "53100" | "53200" => StoreErrorKind::Full,
        // A failover can leave a connection to a server that only reads; an earlier statement of the transaction
        // failed; it was idle or took too long; a lock was not granted in time; a prepared statement is no longer valid;
        // a new server accepts no connection yet.
        READ_ONLY | "25P02" | TRANSACTION_IDLE | TRANSACTION_LONG | "55P03" | "0A000" | "26000"
        | "55000" => StoreErrorKind::Unavailable,
        _ => match code.get(..2) {
            // Connection, rollback, resources, shutdown or a timeout, I/O, internal.
            Some("08" | "40" | "53" | "57" | "58" | "XX") => StoreErrorKind::Unavailable,
            _ => StoreErrorKind::Unusable,
        },
    }
}

/// The connections of several programs share the names of their prepared statements.
#[derive(Debug, thiserror::Error)]
#[error(
    "a connection pooler does not support prepared statements: call `unnamed_statements` when you create the store"
)]
struct SharedNames(#[source] Box<dyn Error + Send + Sync>);

#[derive(Debug, thiserror::Error)]
#[error(
    "no schema in the `search_path` of this connection has the table `audience_inbox`, or the role has no right (USAGE) to \
     use it: correct the `search_path`, call `migrate` of the store or run the SQL of `audience inbox schema`, or grant the \
     rights at the end of the migration"
)]
struct MissingTables(#[source] Box<dyn Error + Send + Sync>);

/// Returns whether the tables do not exist, or cannot be found.
pub(in crate::inbox) fn lacks_tables(error: &StoreError) -> bool {
    causes(error).any(<dyn Error>::is::<MissingTables>)
}

#[derive(Debug, thiserror::Error)]
#[error(
    "the role lacks a right: if an administrator has created the tables, add their schema to the `search_path` of this \
     role or of the address; otherwise, let an administrator run the SQL of `schema_for` of the store, or grant CREATE on the \
     schema, which `migrate` needs"
)]
struct MissingRight(#[source] Box<dyn Error + Send + Sync>);

#[cfg(test)]
mod tests {
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

        async fn query(
            &self,
            _: &'static Statement,
            values: &[Value<'_>],
        ) -> Result<Vec<Row>, Failed> {
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

        async fn query(
            &self,
            _: &'static Statement,
            values: &[Value<'_>],
        ) -> Result<Vec<Row>, Failed> {
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
}
