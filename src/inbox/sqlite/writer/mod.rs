//! The thread that owns the connection. It commits many operations in one transaction, so that one sync to disk
//! covers them all.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread;

use rusqlite::Connection;
use tokio::sync::{mpsc, oneshot};

use super::done::List;
use super::entries::{Entries, Shared};
use super::file::{begin, copy, is_out_of_room, store_error};
use super::session::Session;
use crate::inbox::error::StoreError;

/// How many operations may wait. Further callers wait for a place.
const QUEUE: usize = 256;
/// How many operations share a transaction.
const BATCH: usize = 256;
/// How many bytes of new bodies they add together, unless one of them adds more alone: on a full disk, the reserve must
/// have room for what one commit adds to the file. The body of a done event is overwritten in the log, too, but needs no
/// new room in the file.
const BATCH_BYTES: usize = 1024 * 1024;

/// A handle of the thread. The thread ends when the last one is dropped, after the operations that wait.
#[derive(Clone)]
pub(super) struct Writer {
    requests: mpsc::Sender<Request>,
}

enum Request {
    /// Shares a transaction with others.
    Job(Box<dyn Job>),
    /// Has the connection for itself.
    Exclusive(Box<dyn FnOnce(&Connection) + Send>),
}

impl Writer {
    pub(super) fn start(connection: Connection, shared: Arc<Shared>) -> Result<Self, StoreError> {
        let (requests, receiver) = mpsc::channel(QUEUE);
        thread::Builder::new()
            .name("audience-inbox".to_owned())
            .spawn(move || serve(&connection, &shared, receiver))
            .map_err(StoreError::unavailable)?;
        Ok(Self { requests })
    }

    /// Runs an operation in a transaction with others, and returns when it is committed.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        purpose: Purpose,
        work: impl Fn(&Entries<'_, '_>) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.run_long(purpose, 0, work).await
    }

    /// Does the same for an operation that writes this many bytes beside its entry.
    pub(super) async fn run_long<T: Send + 'static>(
        &self,
        purpose: Purpose,
        length: usize,
        work: impl Fn(&Entries<'_, '_>) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, StoreError> {
        let (operation, reply) = Operation::new(work, purpose, length);
        self.send(Request::Job(Box::new(operation))).await?;
        reply.await.map_err(|_| ended())?
    }

    /// Runs a closure that has the connection for itself. Does not run it if the caller no longer waits.
    pub(super) async fn run_exclusive<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Connection) -> T + Send + 'static,
    ) -> Result<T, StoreError> {
        let (reply, receiver) = oneshot::channel();
        let work = move |connection: &Connection| {
            if !reply.is_closed() {
                // The caller may no longer wait.
                reply.send(work(connection)).ok();
            }
        };
        self.send(Request::Exclusive(Box::new(work))).await?;
        receiver.await.map_err(|_| ended())
    }

    /// Returns when this caller's turn has come. No operation of the store runs until the turn is dropped, so that a
    /// transaction on another connection need not compete with them.
    #[cfg(feature = "inbox-sqlx-sqlite")]
    pub(super) async fn turn(&self) -> Result<Turn, StoreError> {
        let (reply, receiver) = oneshot::channel();
        let wait = move |_: &Connection| {
            let (turn, ended) = oneshot::channel();
            if reply.send(Turn { _end: turn }).is_ok() {
                // An error is the end, too: nothing is ever sent.
                ended.blocking_recv().ok();
            }
        };
        self.send(Request::Exclusive(Box::new(wait))).await?;
        receiver.await.map_err(|_| ended())
    }

    async fn send(&self, request: Request) -> Result<(), StoreError> {
        self.requests.send(request).await.map_err(|_| ended())
    }
}

/// Keeps the thread waiting until it is dropped.
#[cfg(feature = "inbox-sqlx-sqlite")]
pub(super) struct Turn {
    _end: oneshot::Sender<()>,
}

fn ended() -> StoreError {
    StoreError::unavailable("the operation panicked")
}

fn serve(connection: &Connection, shared: &Shared, mut requests: mpsc::Receiver<Request>) {
    let session = Session::new(connection);
    let mut list = List::default();
    let mut left = None;
    while let Some(first) = left.take().or_else(|| requests.blocking_recv()) {
        if shared.should_reserve() {
            session.without_waiting(|| shared.reserve(&session));
        }
        let (mut batch, mut length) = (Vec::new(), 0);
        let mut next = Some(first);
        while let Some(request) = next.take() {
            match request {
                Request::Job(job) if length > 0 && length + job.length() > BATCH_BYTES => {
                    left = Some(Request::Job(job));
                    break;
                }
                // The job is not run yet: another one that comes a moment later shares its write to the disk.
                Request::Job(job) => {
                    length += job.length();
                    batch.push(job);
                }
                Request::Exclusive(work) => {
                    // The jobs before it are committed first, so that it sees what they wrote.
                    let before = std::mem::take(&mut batch);
                    length = 0;
                    guard(connection, || commit(&session, shared, &mut list, before));
                    // The closure may change anything.
                    list = List::default();
                    guard(connection, || work(connection));
                }
            }
            if batch.len() < BATCH {
                next = requests.try_recv().ok();
            }
        }
        guard(connection, || commit(&session, shared, &mut list, batch));
    }
}

/// Runs code that may panic in a user's closure or clock. The thread continues, outside of any transaction.
fn guard(connection: &Connection, run: impl FnOnce()) {
    // The panic was reported when it happened, and the caller notices that there is no reply.
    catch_unwind(AssertUnwindSafe(run)).ok();
    if !connection.is_autocommit() {
        // If this fails, the next transaction cannot begin and says so.
        connection.execute_batch("ROLLBACK").ok();
    }
}

enum Failure {
    /// The transaction did not begin, so none of them would.
    Begin(rusqlite::Error),
    /// One of them failed, and has its error. Nothing was committed.
    Operation,
    /// Nothing was committed. Some of them might succeed alone.
    Commit(rusqlite::Error),
}

/// Runs these operations and replies to each of them.
fn commit(session: &Session<'_>, shared: &Shared, list: &mut List, mut jobs: Vec<Box<dyn Job>>) {
    jobs.retain(|job| !job.is_abandoned());
    if jobs.is_empty() {
        return;
    }
    if let Err(error) = shared.check_files() {
        for mut job in jobs {
            job.fail(copy(&error));
            job.reply();
        }
        return;
    }
    match try_commit(session, shared, list, &mut jobs) {
        Ok(()) => {}
        // One of them failed or is too large for the disk. Alone, the others succeed. That is rare, and a savepoint for
        // each would slow down all of them.
        Err(Failure::Operation | Failure::Commit(_)) if jobs.len() > 1 => {
            for job in jobs {
                commit(session, shared, list, vec![job]);
            }
            return;
        }
        Err(Failure::Operation) => {}
        Err(Failure::Begin(error) | Failure::Commit(error)) => {
            for job in &mut jobs {
                job.fail(copy(&error));
            }
        }
    }
    for mut job in jobs {
        if job.needs_reserve() {
            shared.give_up_reserve(session);
            let again = std::slice::from_mut(&mut job);
            if let Err(Failure::Begin(error) | Failure::Commit(error)) =
                try_commit(session, shared, list, again)
            {
                job.fail(error);
            }
        }
        job.reply();
    }
}

fn try_commit(
    session: &Session<'_>,
    shared: &Shared,
    list: &mut List,
    jobs: &mut [Box<dyn Job>],
) -> Result<(), Failure> {
    let (connection, busy_timeout) = (session.connection(), shared.busy_timeout);
    let begun = begin(connection, busy_timeout, || {
        session.execute("BEGIN IMMEDIATE")
    });
    begun.map_err(Failure::Begin)?;
    // The time is read after the transaction has begun, because that may have taken long.
    let entries = Entries::new(session, shared, std::mem::take(list));
    let result = match jobs.iter_mut().all(|job| job.run(&entries)) {
        true => session.execute("COMMIT").map_err(Failure::Commit),
        false => Err(Failure::Operation),
    };
    if result.is_ok() {
        // Otherwise the next transaction reads the list anew.
        *list = entries.into_list();
    } else if !session.connection().is_autocommit() {
        // If this fails, the next transaction cannot begin and says so.
        session.execute("ROLLBACK").ok();
    }
    result
}

/// One operation of the store, which shares a transaction with others.
trait Job: Send {
    /// Returns whether it is useless because its caller no longer waits.
    fn is_abandoned(&self) -> bool;

    /// Returns how many bytes it writes beside its entry.
    fn length(&self) -> usize;

    /// Runs it, maybe a second time if the transaction was rolled back. Returns whether it succeeded.
    fn run(&mut self, entries: &Entries<'_, '_>) -> bool;

    /// Makes this its result, since its transaction failed.
    fn fail(&mut self, error: rusqlite::Error);

    /// Returns whether it failed because there is no room, although it adds no event.
    fn needs_reserve(&self) -> bool;

    /// Replies, after the transaction ended.
    fn reply(self: Box<Self>);
}

struct Operation<F, T> {
    work: F,
    purpose: Purpose,
    length: usize,
    result: Option<rusqlite::Result<T>>,
    reply: oneshot::Sender<Result<T, StoreError>>,
}

/// The kind of an operation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Purpose {
    /// Adds an event. It is not run if the caller no longer waits, and not if the disk is full.
    Add,
    /// Only the caller can use the result.
    Caller,
    /// It is run in any case.
    Always,
}

type Reply<T> = oneshot::Receiver<Result<T, StoreError>>;

impl<F, T> Operation<F, T> {
    fn new(work: F, purpose: Purpose, length: usize) -> (Self, Reply<T>) {
        let (reply, receiver) = oneshot::channel();
        let operation = Self {
            work,
            purpose,
            length,
            result: None,
            reply,
        };
        (operation, receiver)
    }
}

impl<F, T> Job for Operation<F, T>
where
    F: Fn(&Entries<'_, '_>) -> rusqlite::Result<T> + Send,
    T: Send,
{
    fn is_abandoned(&self) -> bool {
        self.purpose != Purpose::Always && self.reply.is_closed()
    }

    fn length(&self) -> usize {
        self.length
    }

    fn run(&mut self, entries: &Entries<'_, '_>) -> bool {
        let result = (self.work)(entries);
        let succeeded = result.is_ok();
        self.result = Some(result);
        succeeded
    }

    fn fail(&mut self, error: rusqlite::Error) {
        // Its own error says more.
        if !matches!(self.result, Some(Err(_))) {
            self.result = Some(Err(error));
        }
    }

    fn needs_reserve(&self) -> bool {
        let Some(Err(error)) = &self.result else {
            return false;
        };
        self.purpose != Purpose::Add && error.sqlite_error().is_some_and(is_out_of_room)
    }

    fn reply(self: Box<Self>) {
        let result = match self.result {
            Some(Ok(value)) => Ok(value),
            Some(Err(error)) => Err(store_error(error)),
            None => return,
        };
        // The caller may no longer wait.
        self.reply.send(result).ok();
    }
}

/// Every order in which operations can wait, up to a few of them, some of whose callers are gone.
#[cfg(test)]
mod tests;
