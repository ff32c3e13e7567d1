use std::fmt;
use std::sync::{Arc, mpsc};

use crate::Error;

/// The thread that a client's connections live on. It ends with the last clone.
#[derive(Clone)]
pub(super) struct Runtime(Arc<Owned>);

struct Owned(Option<tokio::runtime::Runtime>);

impl Runtime {
    pub(super) fn start() -> Result<Self, Error> {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        let runtime = builder
            .worker_threads(1)
            .thread_name("audience")
            .enable_all()
            .build();
        let runtime = runtime.map_err(|error| {
            Error::config("the client's thread cannot be started").caused_by(error)
        })?;
        Ok(Self(Arc::new(Owned(Some(runtime)))))
    }

    /// Runs `work` on the client's thread, and blocks this one until it is done. Unlike `block_on`,
    /// that does not panic on a thread that runs async code.
    pub(super) fn wait<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, Error> {
        let (done, result) = mpsc::sync_channel(1);
        if let Some(runtime) = &self.0.0 {
            runtime.spawn(async move {
                // Nobody waits any more only where the waiting thread was torn down.
                let _ = done.send(work.await);
            });
        }
        result
            .recv()
            .map_err(|error| Error::transport("the client's thread ended").caused_by(error))
    }
}

impl Drop for Owned {
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
