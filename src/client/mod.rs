//! How a client is set up, what it repeats, and the future that a call is.
//!
//! A call makes one or more attempts, each within its timeout, with waits between them, all of it
//! within the deadline; [`RetryPolicy`] says what is repeated and when.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use serde::de::DeserializeOwned;
use tokio::time::Instant;
use url::Url;

use crate::client::wire::{Operation, Request, Response};
use crate::error::ApiError;
use crate::{Error, Outcome};

mod auth;
mod builder;
mod future;
mod options;
mod retry;
mod trace;
mod transport;
pub(crate) mod wire;

pub use auth::Auth;
pub use builder::ClientBuilder;
pub use future::Call;
pub(crate) use options::{CallOptions, call_options, opaque_debug};
pub(crate) use retry::Repeat;
pub use retry::RetryPolicy;

use retry::{Decision, Failure, Situation};
use transport::Transport;

/// A client of the service.
///
/// Cheap to clone: clones share connections, key and settings, so that one client serves thousands
/// of tasks. It needs a running tokio runtime when a call is awaited.
///
/// # Example: one call
///
/// ```
/// # #[cfg(feature = "mock")]
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), audience::Error> {
/// # let server = audience::mock::MockServer::start().await;
/// # let (base_url, key) = (server.url(), server.full_key());
/// use audience::Client;
/// use audience::contacts::NewContact;
///
/// let client = Client::new(base_url, key)?;
/// let created = client.contacts().create(NewContact::new("ada@example.com")).await?;
///
/// assert!(created.is_new());
/// # Ok(()) }
/// # #[cfg(not(feature = "mock"))] fn main() {}
/// ```
#[derive(Clone)]
pub struct Client {
    inner: Arc<Inner>,
}

struct Inner {
    transport: Transport,
    retry: RetryPolicy,
    timeout: Duration,
    deadline: Option<Duration>,
}

impl Client {
    /// A client with every setting at its default; see [`ClientBuilder`] for those.
    ///
    /// `base_url` is the service's base address; a path in it is kept. `key` is a full-access key
    /// (interface section 5).
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Config`](crate::ErrorKind::Config), as of [`ClientBuilder::build`].
    pub fn new(base_url: impl AsRef<str>, key: impl Into<String>) -> Result<Self, Error> {
        Self::builder(base_url, key).build()
    }

    /// Settings for a client to be built.
    pub fn builder(base_url: impl AsRef<str>, key: impl Into<String>) -> ClientBuilder {
        ClientBuilder::new(base_url.as_ref(), key.into())
    }

    /// A call whose answer is read as the shape that the interface document shows.
    pub(crate) fn call<T: DeserializeOwned + Send + 'static>(
        self,
        request: Result<Request, Error>,
        options: CallOptions,
    ) -> Call<T> {
        Call::new(async move { self.execute(request?, options).await?.json() })
    }

    /// Sends a request, again where that is safe and allowed, until it is answered with 2xx.
    pub(crate) async fn execute(
        &self,
        request: Request,
        options: CallOptions,
    ) -> Result<Answer, Error> {
        let policy = options.retry.as_ref().unwrap_or(&self.inner.retry);
        let timeout = options.timeout.unwrap_or(self.inner.timeout);
        let deadline = Deadline::after(options.deadline.or(self.inner.deadline));
        let repeat = if options.repeatable {
            Repeat::Always
        } else {
            request.repeat
        };
        if deadline.left() == Some(Duration::ZERO) {
            return Err(Error::expired().at(request.operation.name));
        }
        let mut attempt = 1;
        let mut worst = Outcome::NotSent;
        loop {
            let limit = deadline.left().map_or(timeout, |left| left.min(timeout));
            let failed = match self.attempt(&request, limit, attempt).await {
                Ok(response) => {
                    return Ok(Answer {
                        operation: request.operation,
                        response,
                        attempts: attempt,
                    });
                }
                Err(failed) => failed,
            };
            worst = worst.max(failed.error.outcome());
            let retry_after = failed.error.api().and_then(ApiError::retry_after);
            let situation = Situation {
                attempt,
                repeat,
                failure: failed.failure,
                retry_after,
            };
            match retry::decide(policy, &situation, fastrand::f64()) {
                Decision::After(wait) if deadline.left().is_none_or(|left| wait < left) => {
                    trace::waiting(request.operation, attempt, wait);
                    tokio::time::sleep(wait).await;
                    if deadline.left() == Some(Duration::ZERO) {
                        return Err(failed
                            .error
                            .at(request.operation.name)
                            .after(attempt, worst));
                    }
                    attempt += 1;
                }
                Decision::After(_) | Decision::Stop => {
                    return Err(failed
                        .error
                        .at(request.operation.name)
                        .after(attempt, worst));
                }
            }
        }
    }

    async fn attempt(
        &self,
        request: &Request,
        limit: Duration,
        attempt: u32,
    ) -> Result<Response, Failed> {
        let transport = &self.inner.transport;
        let work = async {
            let response = transport.send(request, limit).await?;
            if response.status.is_success() {
                Ok(response)
            } else {
                Err(refused(response, transport.base()))
            }
        };
        trace::attempt(transport.base(), request, attempt, work).await
    }
}

/// An answer with a status of 2xx.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) response: Response,
    pub(crate) attempts: u32,
    operation: Operation,
}

impl Answer {
    /// The body as the shape that the interface document shows.
    pub(crate) fn json<T: DeserializeOwned>(&self) -> Result<T, Error> {
        self.response
            .json(self.operation)
            .map_err(|error| self.unusable(error))
    }

    /// An error about this answer.
    pub(crate) fn unusable(&self, error: Error) -> Error {
        error
            .at(self.operation.name)
            .after(self.attempts, Outcome::NotSent)
    }
}

/// One attempt that failed: the error as the caller would see it, and what it means for a repeat.
#[derive(Debug)]
struct Failed {
    error: Error,
    failure: Failure,
}

fn refused(response: Response, base: &Url) -> Failed {
    let retry_after = retry::retry_after(&response.headers, SystemTime::now());
    let host = transport::location_host(&response.headers, base);
    let failure = Failure::Status(response.status.as_u16());
    let api = ApiError::new(response.status, retry_after, response.body).redirected_to(host);
    Failed {
        error: Error::refused(api),
        failure,
    }
}

/// When the whole call must be over, if ever.
#[derive(Clone, Copy)]
struct Deadline(Option<Instant>);

impl Deadline {
    /// A limit so long that no clock holds its end is none.
    fn after(limit: Option<Duration>) -> Self {
        Self(limit.and_then(|limit| Instant::now().checked_add(limit)))
    }

    fn left(self) -> Option<Duration> {
        self.0
            .map(|end| end.saturating_duration_since(Instant::now()))
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("transport", &self.inner.transport)
            .field("retry", &self.inner.retry)
            .field("timeout", &self.inner.timeout)
            .field("deadline", &self.inner.deadline)
            .finish()
    }
}
