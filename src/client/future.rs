use std::fmt;
use std::pin::Pin;
use std::sync::{Mutex, PoisonError};
use std::task::{Context, Poll};

use crate::Error;

/// A call on its way: what a builder turns into when it is awaited.
///
/// Nothing is sent before the first poll. Dropping it gives the call up; a request that was already
/// sent may still be applied.
#[must_use = "a call is made only when it is awaited"]
pub struct Call<T>(Mutex<Work<T>>);

/// Behind a mutex that is never locked: it alone makes a `Call` `Sync` at no cost.
type Work<T> = Pin<Box<dyn Future<Output = Result<T, Error>> + Send>>;

impl<T> Call<T> {
    pub(crate) fn new(work: impl Future<Output = Result<T, Error>> + Send + 'static) -> Self {
        Self(Mutex::new(Box::pin(work)))
    }
}

impl<T> Future for Call<T> {
    type Output = Result<T, Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let work = self.0.get_mut().unwrap_or_else(PoisonError::into_inner);
        work.as_mut().poll(context)
    }
}

impl<T> fmt::Debug for Call<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Call")
    }
}
