//! The thread that owns the connection.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread;

use rusqlite::Connection;
use tokio::sync::{mpsc, oneshot};

use super::batch;
use super::entries::Entries;
use super::job::{Job, Operation};
use super::session::Session;
use crate::inbox::error::StoreError;
use crate::webhooks::Clock;

/// How many operations may wait. Further callers wait for a place.
const QUEUE: usize = 256;
/// How many operations share a transaction.
const BATCH: usize = 256;

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
    pub(super) fn start(connection: Connection, clock: Arc<dyn Clock>) -> Result<Self, StoreError> {
        let (requests, receiver) = mpsc::channel(QUEUE);
        thread::Builder::new()
            .name("audience-inbox".to_owned())
            .spawn(move || serve(&connection, &*clock, receiver))
            .map_err(StoreError::unavailable)?;
        Ok(Self { requests })
    }

    /// Runs an operation in a transaction with others, and returns when it is committed.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        work: impl Fn(&Entries<'_, '_>) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, StoreError> {
        let (operation, reply) = Operation::new(work, false);
        self.send(Request::Job(Box::new(operation))).await?;
        reply.await.map_err(|_| ended())?
    }

    /// The same, for an operation that is not run if the caller no longer waits.
    pub(super) async fn run_for_caller<T: Send + 'static>(
        &self,
        work: impl Fn(&Entries<'_, '_>) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, StoreError> {
        let (operation, reply) = Operation::new(work, true);
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
                // Nobody may wait for it any more.
                reply.send(work(connection)).ok();
            }
        };
        self.send(Request::Exclusive(Box::new(work))).await?;
        receiver.await.map_err(|_| ended())
    }

    async fn send(&self, request: Request) -> Result<(), StoreError> {
        self.requests.send(request).await.map_err(|_| ended())
    }
}

fn ended() -> StoreError {
    StoreError::unavailable("the operation panicked")
}

fn serve(connection: &Connection, clock: &dyn Clock, mut requests: mpsc::Receiver<Request>) {
    let session = Session::new(connection);
    while let Some(first) = requests.blocking_recv() {
        let mut batch = Vec::new();
        let mut next = Some(first);
        while let Some(request) = next.take() {
            match request {
                Request::Job(job) => batch.push(job),
                Request::Exclusive(work) => {
                    let before = std::mem::take(&mut batch);
                    guard(connection, || batch::commit(&session, clock, before));
                    guard(connection, || work(connection));
                }
            }
            if batch.len() < BATCH {
                next = requests.try_recv().ok();
            }
        }
        guard(connection, || batch::commit(&session, clock, batch));
    }
}

/// Runs code that may panic in a user's closure or clock. The thread goes on, outside of any transaction.
fn guard(connection: &Connection, run: impl FnOnce()) {
    // The panic was reported when it happened, and the caller notices that there is no reply.
    catch_unwind(AssertUnwindSafe(run)).ok();
    if !connection.is_autocommit() {
        // If this fails, the next transaction cannot begin and says so.
        connection.execute_batch("ROLLBACK").ok();
    }
}
