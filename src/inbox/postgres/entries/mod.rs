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
mod tests;
