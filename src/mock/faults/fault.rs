use std::time::Duration;

use http::{HeaderName, HeaderValue};

use super::header::response_header;
use super::pattern;

/// A fault for the next requests that match.
///
/// Add it with [`MockServer::fault`](crate::mock::MockServer::fault). A fault applies to every request until
/// [`clear_faults`](crate::mock::MockServer::clear_faults), unless it is limited: [`times`](Self::times) limits how
/// often it applies, [`method`](Self::method) and [`path`](Self::path) to which requests, and [`after`](Self::after) how
/// many requests come before it. If several faults match a request, only the one that was added first applies. A fault
/// that has not begun, or is used up, matches no request.
///
/// # Example: a service that is unavailable twice
///
/// ```
/// # use audience::mock::{Fault, MockServer};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let server = MockServer::start().await;
///
/// server.fault(Fault::status(503).retry_after(1).times(2).method("POST").path("/contacts"));
/// # }
/// ```
///
/// # Example: one of each kind
///
/// ```
/// use std::time::Duration;
/// use audience::mock::Fault;
///
/// let not_applied = [Fault::status(429), Fault::close_before(), Fault::garbage()];
/// let applied = [Fault::close_after(), Fault::cut_body(), Fault::reset_body()];
/// let altered = [Fault::delay(Duration::from_secs(2)), Fault::wrong_body("<html>")];
/// # let _ = (not_applied, applied, altered);
/// ```
#[derive(Clone, Debug)]
#[must_use = "a fault has no effect until it is given to `MockServer::fault`"]
pub struct Fault {
    pub(in crate::mock) kind: FaultKind,
    pub(in crate::mock) delay: Duration,
    pub(in crate::mock) headers: Vec<(HeaderName, HeaderValue)>,
    pub(in crate::mock) body: Option<Vec<u8>>,
    pub(super) times: Option<u64>,
    /// How many requests it still lets through before it begins.
    pub(super) after: u64,
    pub(super) method: Option<String>,
    pub(super) path: Option<String>,
}

/// The effect of a fault on a request and its response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::mock) enum FaultKind {
    /// The request is not applied. The response has this status.
    Status(u16),
    /// The request is applied. The response is late, or has other headers or another body.
    AlteredResponse,
    /// The request is not applied. The connection is closed without a response.
    CloseBefore,
    /// The request is applied. The connection is closed without a response.
    CloseAfter,
    /// The request is applied. The connection is closed in the middle of the response body.
    CutBody,
    /// The request is applied. The connection is reset in the middle of the response body.
    ResetBody,
    /// The request is not applied. The response is not HTTP.
    Garbage,
}

impl FaultKind {
    /// Returns whether the client receives a status line.
    pub(in crate::mock) fn sends_status(self) -> bool {
        match self {
            Self::Status(_) | Self::AlteredResponse | Self::CutBody | Self::ResetBody => true,
            Self::CloseBefore | Self::CloseAfter | Self::Garbage => false,
        }
    }
}

impl Fault {
    /// Creates a fault that responds with `status` and does not apply the request.
    ///
    /// An error status has an error body like the service's, unless [`body`](Self::body) sets another. Its slug is made
    /// from the name of the status, such as `service_unavailable`, or is `fault` if the status has no name.
    ///
    /// # Panics
    ///
    /// Panics if `status` is below 200 or above 999.
    #[track_caller]
    pub fn status(status: u16) -> Self {
        assert!(
            (200..=999).contains(&status),
            "the status of a fault must be between 200 and 999, not {status}"
        );
        Self::new(FaultKind::Status(status))
    }

    /// Creates a fault that applies the request at once but sends the response only after `delay`.
    ///
    /// If the client times out first, the request has been applied all the same. To delay another kind of fault, use
    /// [`delayed_by`](Self::delayed_by).
    pub fn delay(delay: Duration) -> Self {
        Self::new(FaultKind::AlteredResponse).delayed_by(delay)
    }

    /// Creates a fault that applies the request, and replaces the body of the response. The status stays the same.
    pub fn wrong_body(body: impl Into<Vec<u8>>) -> Self {
        Self::new(FaultKind::AlteredResponse).body(body)
    }

    /// Creates a fault that reads the request, does not apply it, and closes the connection without a response.
    pub fn close_before() -> Self {
        Self::new(FaultKind::CloseBefore)
    }

    /// Creates a fault that applies the request and closes the connection without a response.
    pub fn close_after() -> Self {
        Self::new(FaultKind::CloseAfter)
    }

    /// Creates a fault that applies the request and closes the connection in the middle of the response body.
    pub fn cut_body() -> Self {
        Self::new(FaultKind::CutBody)
    }

    /// Creates a fault that applies the request and resets the connection (a TCP `RST`) in the middle of the response
    /// body.
    pub fn reset_body() -> Self {
        Self::new(FaultKind::ResetBody)
    }

    /// Creates a fault that does not apply the request, sends bytes that are not HTTP, and closes the connection.
    ///
    /// [`body`](Self::body) sets the bytes.
    pub fn garbage() -> Self {
        Self::new(FaultKind::Garbage)
    }

    fn new(kind: FaultKind) -> Self {
        Self {
            kind,
            delay: Duration::ZERO,
            headers: Vec::new(),
            body: None,
            times: None,
            after: 0,
            method: None,
            path: None,
        }
    }

    /// Limits the fault to this number of requests. Default: no limit.
    pub fn times(mut self, times: u64) -> Self {
        self.times = Some(times);
        self
    }

    /// Lets this number of matching requests through before the fault begins. Default: 0.
    ///
    /// Requests are counted from when the fault is added, in the order they are handled. A request that another fault
    /// applies to also counts, so `after(3)` always begins with the fourth matching request. [`times`](Self::times)
    /// counts from there.
    ///
    /// # Example: an outage in the middle of a sync
    ///
    /// ```
    /// # use audience::mock::{Fault, MockServer};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// # let server = MockServer::start().await;
    /// // The first three batches are applied. The fourth and the fifth get a 503.
    /// server.fault(Fault::status(503).path("/contacts/batch").after(3).times(2));
    /// # }
    /// ```
    pub fn after(mut self, requests: u64) -> Self {
        self.after = requests;
        self
    }

    /// Limits the fault to requests with this method, in upper or lower case. Default: any method.
    pub fn method(mut self, method: impl Into<String>) -> Self {
        self.method = Some(method.into());
        self
    }

    /// Limits the fault to requests to this path. Default: any path.
    ///
    /// `path` is compared with the whole path, without the query. A `*` matches any text, including slashes:
    /// `/contacts/*/subscribe`. Both paths are percent-decoded before they are compared.
    pub fn path(mut self, path: impl Into<String>) -> Self {
        self.path = Some(path.into());
        self
    }

    /// Adds a `Retry-After` header to the response. Its value is a number of seconds, or the text of a date.
    ///
    /// # Panics
    ///
    /// Panics if the text is not a valid header value.
    #[expect(
        clippy::needless_pass_by_value,
        reason = "callers pass a number or a literal"
    )]
    #[track_caller]
    pub fn retry_after(self, after: impl ToString) -> Self {
        self.header("retry-after", after.to_string())
    }

    /// Adds a header to the response. A header that is added twice is sent twice.
    ///
    /// # Panics
    ///
    /// Panics if `name` or `value` is invalid, or if `name` is one of `connection`, `content-length` and
    /// `transfer-encoding`, which the server sets itself. To break the end of a response, use
    /// [`cut_body`](Self::cut_body) or [`garbage`](Self::garbage).
    #[track_caller]
    pub fn header(mut self, name: impl AsRef<str>, value: impl AsRef<str>) -> Self {
        match response_header(name.as_ref(), value.as_ref()) {
            Ok(header) => self.headers.push(header),
            Err(problem) => panic!("{problem}"),
        }
        self
    }

    /// Replaces the body of the response.
    pub fn body(mut self, body: impl Into<Vec<u8>>) -> Self {
        self.body = Some(body.into());
        self
    }

    /// Delays the response, or the end of the connection, by `delay`. Default: no delay.
    ///
    /// # Example: an error after two seconds
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use audience::mock::Fault;
    /// let fault = Fault::status(503).delayed_by(Duration::from_secs(2));
    /// # let _ = fault;
    /// ```
    pub fn delayed_by(mut self, delay: Duration) -> Self {
        self.delay = delay;
        self
    }

    /// Returns whether the fault applies to a request.
    pub(super) fn matches(&self, method: &str, path: &str) -> bool {
        let same_method = self
            .method
            .as_deref()
            .is_none_or(|wanted| wanted.eq_ignore_ascii_case(method));

        same_method
            && self
                .path
                .as_deref()
                .is_none_or(|pattern| pattern::matches(pattern, path))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[should_panic(expected = "between 200 and 999, not 42")]
    fn an_invalid_status_is_refused() {
        let _ = Fault::status(42);
    }

    #[test]
    #[should_panic(expected = "the value of the header \"retry-after\" is invalid")]
    fn an_invalid_header_value_is_refused() {
        let _ = Fault::status(503).retry_after("1\r\n");
    }

    #[test]
    #[should_panic(expected = "a fault cannot set \"Content-Length\"")]
    fn a_header_that_marks_the_end_of_the_response_is_refused() {
        let _ = Fault::status(503).header("Content-Length", "5");
    }
}
