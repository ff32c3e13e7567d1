use std::fmt;
use std::pin::Pin;
use std::sync::{Mutex, PoisonError};
use std::task::{Context, Poll};

use crate::Error;

/// A call in progress: the future that a builder turns into when it is awaited.
///
/// Nothing is sent before the first poll. Dropping the future cancels the call, but a request that was
/// already sent may still be applied.
#[must_use = "a call is sent only when it is awaited"]
// The mutex is never locked. It only makes a `ResponseFuture` `Sync`.
pub struct ResponseFuture<T>(Mutex<Work<T>>);

type Work<T> = Pin<Box<dyn Future<Output = Result<T, Error>> + Send>>;

impl<T> ResponseFuture<T> {
    pub(crate) fn new(work: impl Future<Output = Result<T, Error>> + Send + 'static) -> Self {
        Self(Mutex::new(Box::pin(work)))
    }
}

impl<T> Future for ResponseFuture<T> {
    type Output = Result<T, Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let work = self.0.get_mut().unwrap_or_else(PoisonError::into_inner);
        work.as_mut().poll(context)
    }
}

impl<T> fmt::Debug for ResponseFuture<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseFuture").finish_non_exhaustive()
    }
}
