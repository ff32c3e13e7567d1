use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use crate::Error;

/// A call in progress: the future of every builder.
///
/// Nothing is sent before the first poll. Dropping the future cancels the call, but a request that was
/// already sent may still be applied. Polling it after it has returned its result panics.
#[must_use = "a call is sent only when it is awaited"]
pub struct ResponseFuture<T>(Work<T>);

type Work<T> = Pin<Box<dyn Future<Output = Result<T, Error>> + Send>>;

impl<T> ResponseFuture<T> {
    pub(crate) fn new(work: impl Future<Output = Result<T, Error>> + Send + 'static) -> Self {
        Self(Box::pin(work))
    }
}

#[cfg(feature = "blocking")]
#[cfg_attr(docsrs, doc(cfg(feature = "blocking")))]
impl<T> ResponseFuture<T> {
    /// Sends the call and blocks this thread until it ends, for programs without an async runtime: see
    /// [`blocking`](crate::blocking).
    ///
    /// # Errors
    ///
    /// The errors of the call.
    ///
    /// # Panics
    ///
    /// In async code: use `.await` there.
    #[track_caller]
    pub fn wait(self) -> Result<T, Error> {
        crate::blocking::wait(self)
    }
}

impl<T> Future for ResponseFuture<T> {
    type Output = Result<T, Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.as_mut().poll(context)
    }
}

impl<T> fmt::Debug for ResponseFuture<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseFuture").finish_non_exhaustive()
    }
}
