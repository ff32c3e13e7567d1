use std::fmt;
use std::sync::Arc;

use super::future::ResponseFuture;
use super::options::CallOptions;
use super::request::{Operation, Request};
use super::response::Success;
use super::send::Sender;
use super::trace::CallSpan;
use crate::{Error, Outcome};

/// A client of the service.
///
/// Cheap to clone: clones share connections, key and settings, so one client serves thousands of
/// tasks.
///
/// Await calls in a tokio runtime whose time and I/O drivers are enabled. Elsewhere, they panic.
///
/// # Example: one call
///
/// ```
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
/// ```
#[derive(Clone)]
pub struct Client {
    pub(super) sender: Arc<Sender>,
}

impl Client {
    pub(super) fn from_sender(sender: Sender) -> Self {
        Self {
            sender: Arc::new(sender),
        }
    }

    /// Returns the base URL.
    #[cfg(feature = "import")]
    pub(crate) fn base_url(&self) -> String {
        self.sender.transport.base().to_string()
    }

    /// Starts the deadline of a call that sends several requests: with these options, all end by the same
    /// instant.
    pub(crate) fn start_deadline(&self, options: CallOptions) -> CallOptions {
        let deadline = options.deadline.start(self.sender.deadline);
        CallOptions {
            deadline,
            ..options
        }
    }

    /// Sends a request, with retries, and decodes its response.
    pub(crate) fn send<T: Send + 'static>(
        self,
        operation: Operation,
        request: Result<Request, Error>,
        options: CallOptions,
        decode: impl FnOnce(Success) -> Result<T, Error> + Send + 'static,
    ) -> ResponseFuture<T> {
        ResponseFuture::new(async move {
            let received = self.receive(operation, request, options).await?;
            received.decode(decode)
        })
    }

    /// Sends a request, with retries, and returns its 2xx response. An error gets the name of the
    /// operation.
    async fn receive(
        self,
        operation: Operation,
        request: Result<Request, Error>,
        options: CallOptions,
    ) -> Result<Received, Error> {
        let span = CallSpan::new(operation);
        let result = match request {
            Ok(request) => {
                span.run(self.sender.send(operation, request, options))
                    .await
            }
            Err(error) => Err(error),
        };
        match result {
            Ok(success) => Ok(Received { success, span }),
            Err(error) => {
                span.failed(&error);
                Err(error.at(operation.name))
            }
        }
    }
}

/// A 2xx response that has not been decoded.
struct Received {
    success: Success,
    span: CallSpan,
}

impl Received {
    /// Decodes the response, which ends the call. An error gets the name of the operation, the number of
    /// attempts and the body.
    fn decode<T>(self, decode: impl FnOnce(Success) -> Result<T, Error>) -> Result<T, Error> {
        let Self { success, span } = self;
        let operation = success.operation();
        let (attempts, body) = (success.attempts(), success.body().clone());
        let decoded = decode(success).map_err(|error| {
            let error = error.after(attempts, Outcome::NotSent).reading(body);
            error.at(operation.name)
        });
        match &decoded {
            Ok(_) => span.succeeded(attempts),
            Err(error) => span.failed(error),
        }
        decoded
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("transport", &self.sender.transport)
            .field("retry", &self.sender.retry)
            .field("timeout", &self.sender.timeout)
            .field("deadline", &self.sender.deadline)
            .finish()
    }
}
