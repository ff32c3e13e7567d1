use std::panic::resume_unwind;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::runtime::Handle;
use tokio::task::JoinHandle;

use super::future::ResponseFuture;
use super::trace;
use crate::Error;

/// A call in progress, as a task of its own if wanted. Dropping it cancels the call.
pub(crate) enum RunningCall<T> {
    /// Makes progress only while it is polled.
    Polled(ResponseFuture<T>),
    /// Makes progress by itself.
    Spawned(AbortOnDrop<T>),
}

impl<T: Send + 'static> RunningCall<T> {
    /// Starts the call as a task of the current runtime. Outside of a runtime, the call makes progress only
    /// while it is polled.
    pub(crate) fn spawn(call: ResponseFuture<T>) -> Self {
        let Ok(runtime) = Handle::try_current() else {
            return Self::Polled(call);
        };
        let task = runtime.spawn(trace::in_current_span(call));
        // A worker of tokio keeps the task that it has spawned last for itself, and runs it only when the current
        // one yields. A second task frees the first for other workers, so that the call makes progress even while
        // the current task computes.
        drop(runtime.spawn(async {}));
        Self::Spawned(AbortOnDrop(task))
    }

    /// Polls the call. `None` means that the runtime in which it ran has shut down.
    pub(crate) fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<T, Error>>> {
        match self {
            Self::Polled(call) => Pin::new(call).poll(context).map(Some),
            Self::Spawned(AbortOnDrop(task)) => {
                Pin::new(task).poll(context).map(|joined| match joined {
                    Ok(result) => Some(result),
                    Err(error) => match error.try_into_panic() {
                        Ok(panic) => resume_unwind(panic),
                        Err(_) => None,
                    },
                })
            }
        }
    }
}

/// A task that is canceled when this is dropped.
pub(crate) struct AbortOnDrop<T>(JoinHandle<Result<T, Error>>);

impl<T> Drop for AbortOnDrop<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}
