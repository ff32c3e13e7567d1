use tokio::sync::oneshot;

use super::entries::Entries;
use super::error::store_error;
use crate::inbox::error::StoreError;

/// One operation of the store, which shares a transaction with others.
pub(super) trait Job: Send {
    /// Returns whether it is useless, because nobody waits for it any more.
    fn is_abandoned(&self) -> bool;

    /// Runs it, maybe a second time if the transaction failed. Returns whether it succeeded.
    fn run(&mut self, entries: &Entries<'_, '_>) -> bool;

    /// Replies, after the transaction ended.
    fn reply(self: Box<Self>, ended: Result<(), rusqlite::Error>);
}

pub(super) struct Operation<F, T> {
    work: F,
    /// Whether only the caller can use the result, such as a claim.
    is_for_caller: bool,
    result: Option<rusqlite::Result<T>>,
    reply: oneshot::Sender<Result<T, StoreError>>,
}

pub(super) type Reply<T> = oneshot::Receiver<Result<T, StoreError>>;

impl<F, T> Operation<F, T> {
    pub(super) fn new(work: F, is_for_caller: bool) -> (Self, Reply<T>) {
        let (reply, receiver) = oneshot::channel();
        let operation = Self {
            work,
            is_for_caller,
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
        self.is_for_caller && self.reply.is_closed()
    }

    fn run(&mut self, entries: &Entries<'_, '_>) -> bool {
        let result = (self.work)(entries);
        let succeeded = result.is_ok();
        self.result = Some(result);
        succeeded
    }

    fn reply(self: Box<Self>, ended: Result<(), rusqlite::Error>) {
        let result = match (self.result, ended) {
            (Some(Err(error)), _) | (_, Err(error)) => Err(store_error(error)),
            (Some(Ok(value)), Ok(())) => Ok(value),
            (None, Ok(())) => return,
        };
        // Nobody may wait for it any more.
        self.reply.send(result).ok();
    }
}
