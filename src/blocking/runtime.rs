use std::fmt;
use std::sync::{Arc, mpsc};

use super::async_code;
use crate::Error;

/// The thread that runs a client's connections. It ends when the last clone is dropped.
#[derive(Clone)]
pub(super) struct Runtime(Arc<OwnedRuntime>);

struct OwnedRuntime(Option<tokio::runtime::Runtime>);

impl Runtime {
    pub(super) fn start() -> Result<Self, Error> {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        let runtime = builder
            .worker_threads(1)
            .thread_name("audience")
            .enable_all()
            .build();
        let runtime = runtime.map_err(|error| {
            Error::config("could not start the client's thread").caused_by(error)
        })?;
        Ok(Self(Arc::new(OwnedRuntime(Some(runtime)))))
    }

    /// Runs `work` on the client's thread, and blocks the current thread until it is done.
    ///
    /// # Errors
    ///
    /// `ErrorKind::Config` if the current thread runs async code.
    pub(super) fn wait<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, Error> {
        if async_code::is_running() {
            return Err(Error::config(
                "a blocking call in async code would stall other tasks, so nothing was sent; use `audience::Client` and `.await`, or make the call in `tokio::task::spawn_blocking`",
            ));
        }
        let (done, result) = mpsc::sync_channel(1);
        if let Some(runtime) = &self.0.0 {
            runtime.spawn(async move {
                // This fails only if the waiting thread no longer exists.
                let _ = done.send(work.await);
            });
        }
        result.recv().map_err(|error| {
            let stopped = Error::transport(
                "the call panicked on the client's thread, or the thread has stopped",
            );
            stopped.caused_by(error).not_retryable()
        })
    }
}

impl Drop for OwnedRuntime {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

impl fmt::Debug for Runtime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Runtime")
    }
}
