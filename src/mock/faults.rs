//! Faults of requests: the failures that a test causes between the service and its callers.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, RETRY_AFTER, TRANSFER_ENCODING};
use http::{HeaderName, HeaderValue, Method, Response, StatusCode};
use percent_encoding::percent_decode_str;
use serde::de::{Error as _, IgnoredAny};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

use super::http::has_body;
use super::service::Refusal;
use super::{Disconnect, is_control_path};

/// A fault for the next requests that match.
///
/// Add it with [`MockServer::fault`](crate::mock::MockServer::fault). A fault applies to every request until
/// [`clear_faults`](crate::mock::MockServer::clear_faults), unless it is limited:
///
/// - [`method`](Self::method) and [`path`](Self::path) select the requests;
/// - [`after`](Self::after) sets how many of them are handled normally first;
/// - [`every`](Self::every) sets that only each nth of the requests after those fails;
/// - [`times`](Self::times) sets how many fail.
///
/// If several faults match a request, only the one that was added first applies. A fault that has not begun, or is used
/// up, matches no request. A fault with `every` matches only each nth, so another fault can apply to the others.
///
/// | kind | is the request applied? |
/// |---|---|
/// | [`status`](Self::status), [`close_before`](Self::close_before), [`garbage`](Self::garbage) | no |
/// | [`status`](Self::status) with [`applied`](Self::applied) | yes |
/// | [`close_after`](Self::close_after), [`close_mid_body`](Self::close_mid_body), [`close_reset`](Self::close_reset) | yes, but the client does not learn the result |
/// | [`delay`](Self::delay), [`wrong_body`](Self::wrong_body) | yes |
///
/// # Example: a service that is unavailable twice
///
/// ```
/// # use audience::{contacts::NewContact, mock::{Fault, MockServer}};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), audience::Error> {
/// let server = MockServer::start().await;
/// server.fault(Fault::status(503).times(2).method("POST").path("/contacts"));
///
/// let created = server.client().contacts().create(NewContact::new("ada@example.com")).await?;
///
/// assert_eq!(created.attempts(), 3);
/// # Ok(())
/// # }
/// ```
///
/// # Example: a fault in JSON
///
/// The control plane and `audience-mock fault` use the same names. `serde` reads and writes them:
///
/// ```
/// # use audience::mock::Fault;
/// # fn main() -> Result<(), serde_json::Error> {
/// let fault: Fault = serde_json::from_str(r#"{"close": "mid_body", "times": 1}"#)?;
///
/// assert_eq!(fault, Fault::close_mid_body().times(1));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default = "Fault::new", deny_unknown_fields)]
#[cfg_attr(feature = "mock-server", derive(clap::Args))]
#[cfg_attr(feature = "mock-server", command(group(clap::ArgGroup::new("kind").required(true).multiple(true))))]
#[must_use = "a fault has no effect until it is given to `MockServer::fault`"]
pub struct Fault {
    /// Respond with this status
    #[cfg_attr(
        feature = "mock-server",
        arg(long, value_name = "STATUS", group = "kind")
    )]
    #[cfg_attr(feature = "mock-server", arg(value_parser = clap::value_parser!(u16).range(200..=999)))]
    #[cfg_attr(feature = "mock-server", arg(conflicts_with_all = ["close", "garbage"]))]
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<u16>,
    /// Apply the request before the response with the status
    #[cfg_attr(feature = "mock-server", arg(long, requires = "status"))]
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    applied: bool,
    /// Close the connection
    #[cfg_attr(
        feature = "mock-server",
        arg(long, value_name = "WHEN", group = "kind", conflicts_with = "garbage")
    )]
    #[serde(skip_serializing_if = "Option::is_none")]
    close: Option<Close>,
    /// Send bytes that are not HTTP
    #[cfg_attr(feature = "mock-server", arg(long, group = "kind"))]
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    garbage: bool,
    /// Delay the response by this many milliseconds
    #[cfg_attr(
        feature = "mock-server",
        arg(long = "delay-ms", value_name = "MILLISECONDS", group = "kind")
    )]
    #[cfg_attr(feature = "mock-server", arg(value_parser = parse_milliseconds))]
    #[serde(
        rename = "delay_ms",
        serialize_with = "serialize_milliseconds",
        deserialize_with = "deserialize_milliseconds",
        skip_serializing_if = "Option::is_none"
    )]
    delay: Option<Duration>,
    /// Respond with this body
    #[cfg_attr(
        feature = "mock-server",
        arg(long, value_name = "TEXT", group = "kind")
    )]
    #[serde(
        serialize_with = "serialize_body",
        deserialize_with = "deserialize_body",
        skip_serializing_if = "Option::is_none"
    )]
    body: Option<Bytes>,
    /// Fail this number of requests [default: no limit]
    #[cfg_attr(feature = "mock-server", arg(long, value_name = "N"))]
    #[serde(skip_serializing_if = "Option::is_none")]
    times: Option<u64>,
    /// Handle this number of matching requests normally first [default: 0]
    #[cfg_attr(feature = "mock-server", arg(long, value_name = "N", default_value_t))]
    #[cfg_attr(feature = "mock-server", arg(hide_default_value = true))]
    #[serde(skip_serializing_if = "is_zero")]
    after: u64,
    /// After that, fail only each nth of the matching requests [default: 1]
    #[cfg_attr(
        feature = "mock-server",
        arg(long, value_name = "N", default_value_t = 1)
    )]
    #[cfg_attr(feature = "mock-server", arg(hide_default_value = true))]
    #[serde(skip_serializing_if = "is_one")]
    every: u64,
    /// Match only requests with this method
    #[cfg_attr(feature = "mock-server", arg(long, value_name = "METHOD"))]
    #[serde(skip_serializing_if = "Option::is_none")]
    method: Option<String>,
    /// Match only requests to this path; `*` matches any text
    #[cfg_attr(feature = "mock-server", arg(long, value_name = "PATH"))]
    #[serde(skip_serializing_if = "Option::is_none")]
    path: Option<String>,
    /// Set the `Retry-After` header of the response: seconds, or a date
    #[cfg_attr(feature = "mock-server", arg(long, value_name = "SECONDS"))]
    #[serde(
        serialize_with = "serialize_retry_after",
        deserialize_with = "deserialize_retry_after",
        skip_serializing_if = "Option::is_none"
    )]
    retry_after: Option<HeaderValue>,
    /// Add a header to the response; can be repeated
    #[cfg_attr(feature = "mock-server", arg(long = "header", value_name = "NAME=VALUE", value_parser = parse_header))]
    #[serde(
        serialize_with = "serialize_headers",
        deserialize_with = "deserialize_headers",
        skip_serializing_if = "Vec::is_empty"
    )]
    headers: Vec<(HeaderName, HeaderValue)>,
}

/// When the connection is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "mock-server", derive(clap::ValueEnum))]
#[cfg_attr(feature = "mock-server", value(rename_all = "snake_case"))]
enum Close {
    /// Close before the request is applied
    Before,
    /// Close after the request is applied
    After,
    /// Close in the middle of the response body
    #[cfg_attr(feature = "mock-server", value(alias = "mid-body"))]
    MidBody,
    /// Reset the connection in the middle of the response body
    Reset,
}

impl Fault {
    /// Creates a fault that responds with `status` and does not apply the request, unless [`applied`](Self::applied)
    /// is set.
    ///
    /// An error status has an error body like the service's, unless [`body`](Self::body) sets another. The slug of a 402,
    /// 403 or 404 is the one in section 7 of the interface, such as `quota_exceeded`. Any other is made from the name of the
    /// status, such as `service_unavailable`, or is `fault` if the status has no name.
    ///
    /// # Panics
    ///
    /// Panics if `status` is below 200 or above 999.
    ///
    /// # Example: an outage
    ///
    /// ```
    /// # use audience::{RetryPolicy, contacts::NewContact, mock::{Fault, MockServer}};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), audience::Error> {
    /// # let server = MockServer::start().await;
    /// # let contacts = server.client_builder().retry(RetryPolicy::none()).build()?.contacts();
    /// server.fault(Fault::status(503));
    ///
    /// let error = contacts.create(NewContact::new("ada@example.com")).await.unwrap_err();
    ///
    /// assert_eq!(error.status().map(|status| status.as_u16()), Some(503));
    /// assert_eq!(server.contact_count(), 0);
    /// # Ok(())
    /// # }
    /// ```
    #[track_caller]
    pub fn status(status: u16) -> Self {
        let fault = Self {
            status: Some(status),
            ..Self::new()
        };
        fault.check().unwrap_or_else(|problem| panic!("{problem}"));
        fault
    }

    /// Creates a fault that applies the request immediately but sends the response only after `delay`.
    ///
    /// The request is applied even if the client times out first. To delay another kind of fault, use
    /// [`delayed_by`](Self::delayed_by).
    ///
    /// # Example: a timeout after which the contact exists
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use audience::{RetryPolicy, contacts::NewContact, mock::{Fault, MockServer}};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), audience::Error> {
    /// # let server = MockServer::start().await;
    /// # let contacts = server.client_builder().retry(RetryPolicy::none()).build()?.contacts();
    /// server.fault(Fault::delay(Duration::from_secs(600)));
    ///
    /// let create = contacts.create(NewContact::new("ada@example.com")).timeout(Duration::from_millis(100));
    ///
    /// assert!(create.await.unwrap_err().is_timeout());
    /// # // On a busy machine, the request may not have arrived by then.
    /// # for seconds in 1..10 {
    /// #     if server.contact_count() == 0 {
    /// #         let _ = contacts.create("ada@example.com").timeout(Duration::from_secs(seconds)).await;
    /// #     }
    /// # }
    /// assert_eq!(server.contact_count(), 1);
    /// # Ok(())
    /// # }
    /// ```
    pub fn delay(delay: Duration) -> Self {
        Self::new().delayed_by(delay)
    }

    /// Creates a fault that applies the request, and replaces the body of the response. The status stays the same.
    ///
    /// [`body`](Self::body) says which content type is sent.
    ///
    /// # Example: the page of a proxy instead of JSON
    ///
    /// ```
    /// # use audience::{RetryPolicy, mock::{Fault, MockServer}};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), audience::Error> {
    /// # let server = MockServer::start().await;
    /// # let contacts = server.client_builder().retry(RetryPolicy::none()).build()?.contacts();
    /// server.fault(Fault::wrong_body("<html>Please log in</html>"));
    ///
    /// let error = contacts.list().await.unwrap_err();
    ///
    /// assert_eq!(error.body(), Some(&b"<html>Please log in</html>"[..]));
    /// # Ok(())
    /// # }
    /// ```
    pub fn wrong_body(body: impl Into<Vec<u8>>) -> Self {
        Self::new().body(body)
    }

    /// Creates a fault that reads the request, does not apply it, and closes the connection without a response.
    ///
    /// # Example: a lost request
    ///
    /// ```
    /// # use audience::{Outcome, RetryPolicy, contacts::NewContact, mock::{Fault, MockServer}};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), audience::Error> {
    /// # let server = MockServer::start().await;
    /// # let contacts = server.client_builder().retry(RetryPolicy::none()).build()?.contacts();
    /// server.fault(Fault::close_before());
    ///
    /// let error = contacts.create(NewContact::new("ada@example.com")).await.unwrap_err();
    ///
    /// assert_eq!(error.outcome(), Outcome::Unknown);
    /// assert_eq!(server.contact_count(), 0);
    /// # Ok(())
    /// # }
    /// ```
    pub fn close_before() -> Self {
        Self::close(Close::Before)
    }

    /// Creates a fault that applies the request and closes the connection without a response.
    ///
    /// # Example: a lost response
    ///
    /// ```
    /// # use audience::{Outcome, RetryPolicy, contacts::NewContact, mock::{Fault, MockServer}};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), audience::Error> {
    /// # let server = MockServer::start().await;
    /// # let contacts = server.client_builder().retry(RetryPolicy::none()).build()?.contacts();
    /// server.fault(Fault::close_after());
    ///
    /// let error = contacts.create(NewContact::new("ada@example.com")).await.unwrap_err();
    ///
    /// // The client cannot know it, but the contact exists.
    /// assert_eq!(error.outcome(), Outcome::Unknown);
    /// assert_eq!(server.contact_count(), 1);
    /// # Ok(())
    /// # }
    /// ```
    pub fn close_after() -> Self {
        Self::close(Close::After)
    }

    /// Creates a fault that applies the request and closes the connection in the middle of the response body.
    ///
    /// A 204, a 304 and the response to a HEAD request have no body. Their connection is closed in the middle of their
    /// headers.
    ///
    /// # Example: a client that retries a truncated list
    ///
    /// ```
    /// # use audience::mock::{Fault, MockServer};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), audience::Error> {
    /// # let server = MockServer::start().await;
    /// server.seed_contact("ada@example.com");
    /// server.fault(Fault::close_mid_body().times(1));
    ///
    /// let page = server.client().contacts().list().await?;
    ///
    /// assert_eq!(page.data[0].email, "ada@example.com");
    /// assert_eq!(server.requests().len(), 2);
    /// # Ok(())
    /// # }
    /// ```
    pub fn close_mid_body() -> Self {
        Self::close(Close::MidBody)
    }

    /// Creates a fault that applies the request and resets the connection (a TCP `RST`) in the middle of the response
    /// body.
    ///
    /// A 204, a 304 and the response to a HEAD request have no body. Their connection is reset in the middle of their
    /// headers.
    ///
    /// # Example: a connection that a firewall resets
    ///
    /// ```
    /// # use audience::{Outcome, RetryPolicy, mock::{Fault, MockServer}};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), audience::Error> {
    /// # let server = MockServer::start().await;
    /// # let contacts = server.client_builder().retry(RetryPolicy::none()).build()?.contacts();
    /// server.seed_contact("ada@example.com");
    /// server.fault(Fault::close_reset());
    ///
    /// let error = contacts.unsubscribe("ada@example.com").await.unwrap_err();
    ///
    /// assert_eq!(error.outcome(), Outcome::Unknown);
    /// assert!(server.contacts()[0].unsubscribed);
    /// # Ok(())
    /// # }
    /// ```
    pub fn close_reset() -> Self {
        Self::close(Close::Reset)
    }

    /// Creates a fault that does not apply the request, sends bytes that are not HTTP, and closes the connection.
    ///
    /// [`body`](Self::body) sets the bytes.
    ///
    /// # Example: another program listens on the port
    ///
    /// ```
    /// # use audience::{RetryPolicy, mock::{Fault, MockServer}};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), audience::Error> {
    /// # let server = MockServer::start().await;
    /// # let contacts = server.client_builder().retry(RetryPolicy::none()).build()?.contacts();
    /// server.fault(Fault::garbage().body("SSH-2.0-OpenSSH_9.6\r\n"));
    ///
    /// let error = contacts.list().await.unwrap_err();
    ///
    /// assert_eq!(error.status(), None);
    /// # Ok(())
    /// # }
    /// ```
    pub fn garbage() -> Self {
        Self {
            garbage: true,
            ..Self::new()
        }
    }

    /// Applies the request before the fault responds with its [`status`](Self::status). Default: the request is not
    /// applied.
    ///
    /// A gateway does this if it forwards a request and then stops waiting for the service.
    ///
    /// # Example: a 504 after which the contact exists
    ///
    /// ```
    /// # use audience::{Outcome, RetryPolicy, contacts::NewContact, mock::{Fault, MockServer}};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), audience::Error> {
    /// # let server = MockServer::start().await;
    /// # let contacts = server.client_builder().retry(RetryPolicy::none()).build()?.contacts();
    /// server.fault(Fault::status(504).applied());
    ///
    /// let error = contacts.create(NewContact::new("ada@example.com")).await.unwrap_err();
    ///
    /// assert_eq!(error.outcome(), Outcome::Unknown);
    /// assert_eq!(server.contact_count(), 1);
    /// # Ok(())
    /// # }
    /// ```
    pub fn applied(mut self) -> Self {
        self.applied = true;
        self
    }

    /// Limits the fault to this number of requests, at least 1. Default: no limit.
    ///
    /// # Example: the second request succeeds
    ///
    /// ```
    /// # use audience::{RetryPolicy, mock::{Fault, MockServer}};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), audience::Error> {
    /// # let server = MockServer::start().await;
    /// # let contacts = server.client_builder().retry(RetryPolicy::none()).build()?.contacts();
    /// server.fault(Fault::status(500).times(1));
    ///
    /// assert!(contacts.list().await.is_err());
    /// assert!(contacts.list().await.is_ok());
    /// # Ok(())
    /// # }
    /// ```
    pub fn times(mut self, times: u64) -> Self {
        self.times = Some(times);
        self
    }

    /// Handles this number of matching requests normally before the fault begins. Default: 0.
    ///
    /// Requests are counted from when the fault is added, in the order they are handled. A request that another fault
    /// applies to also counts, so `after(3)` always begins with the fourth matching request. [`times`](Self::times)
    /// counts from there.
    ///
    /// # Example: an outage in the middle of a sync
    ///
    /// ```
    /// # use audience::{RetryPolicy, contacts::NewContact, mock::{Fault, MockServer}};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), audience::Error> {
    /// # let server = MockServer::start().await;
    /// # let contacts = server.client_builder().retry(RetryPolicy::none()).build()?.contacts();
    /// server.fault(Fault::status(503).path("/contacts").after(2));
    ///
    /// let mut created = 0;
    /// for address in ["ada@example.com", "bob@example.com", "eve@example.com"] {
    ///     created += u32::from(contacts.create(NewContact::new(address)).await.is_ok());
    /// }
    ///
    /// assert_eq!(created, 2);
    /// # Ok(())
    /// # }
    /// ```
    pub fn after(mut self, requests: u64) -> Self {
        self.after = requests;
        self
    }

    /// Fails only each nth of the matching requests; `nth` is at least 1. Default: 1, so each of them fails.
    ///
    /// With 20, the 20th, the 40th and the 60th request fail, and so on: 5 % of them. They are counted after those that
    /// [`after`](Self::after) lets through. A request that another fault applies to also counts. If it is the 20th,
    /// this fault applies to the 40th next. [`times`](Self::times) limits how many fail. Nothing is random, so each run
    /// of a test that makes one call after the other fails in the same places.
    ///
    /// A retry is a request, too. With 2 or more, the request after one that failed does not fail. So with the default
    /// retry policy of the client, each call that may be retried succeeds with its second attempt. If calls run
    /// simultaneously, the request after it can be of another call, and the retry can fail again.
    ///
    /// # Example: a nightly sync while 5 % of the requests fail
    ///
    /// ```
    /// # use audience::mock::{Fault, MockServer};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), audience::Error> {
    /// # let server = MockServer::start().await;
    /// # let contacts = server.client().contacts();
    /// server.fault(Fault::status(503).every(20));
    ///
    /// for row in 0..40 {
    ///     contacts.create(format!("person-{row}@example.com")).await?;
    /// }
    ///
    /// // Two requests failed, and were retried.
    /// assert_eq!((server.contact_count(), server.requests().len()), (40, 42));
    /// # Ok(())
    /// # }
    /// ```
    pub fn every(mut self, nth: u64) -> Self {
        self.every = nth;
        self
    }

    /// Limits the fault to requests with this method, in upper or lower case. Default: any method.
    ///
    /// # Example: a service that can only be read
    ///
    /// ```
    /// # use audience::{RetryPolicy, contacts::NewContact, mock::{Fault, MockServer}};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), audience::Error> {
    /// # let server = MockServer::start().await;
    /// # let contacts = server.client_builder().retry(RetryPolicy::none()).build()?.contacts();
    /// server.fault(Fault::status(503).method("POST"));
    ///
    /// assert!(contacts.create(NewContact::new("ada@example.com")).await.is_err());
    /// assert!(contacts.list().await.is_ok());
    /// # Ok(())
    /// # }
    /// ```
    pub fn method(mut self, method: impl Into<String>) -> Self {
        self.method = Some(method.into());
        self
    }

    /// Limits the fault to requests to this path. Default: any path.
    ///
    /// `path` is compared with the whole path, without the query, so it starts with `/` or `*`. A `*` matches any text,
    /// including slashes: `/contacts/*/subscribe`. Both paths are percent-decoded before they are compared.
    ///
    /// # Example: only opt-ins fail
    ///
    /// ```
    /// # use audience::{RetryPolicy, mock::{Fault, MockServer}};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), audience::Error> {
    /// # let server = MockServer::start().await;
    /// # let contacts = server.client_builder().retry(RetryPolicy::none()).build()?.contacts();
    /// server.seed_contact("ada@example.com");
    /// server.fault(Fault::status(503).path("/contacts/*/subscribe"));
    ///
    /// assert!(contacts.subscribe("ada@example.com").await.is_err());
    /// assert!(contacts.unsubscribe("ada@example.com").await.is_ok());
    /// # Ok(())
    /// # }
    /// ```
    pub fn path(mut self, path: impl Into<String>) -> Self {
        self.path = Some(path.into());
        self
    }

    /// Sets the `Retry-After` header of the response, in seconds. Use [`header`](Self::header) for a date.
    ///
    /// # Example: a rate limit that ends in half a minute
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use audience::{RetryPolicy, mock::{Fault, MockServer}};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), audience::Error> {
    /// # let server = MockServer::start().await;
    /// # let contacts = server.client_builder().retry(RetryPolicy::none()).build()?.contacts();
    /// server.fault(Fault::status(429).retry_after(30));
    ///
    /// let error = contacts.list().await.unwrap_err();
    ///
    /// assert_eq!(error.retry_after(), Some(Duration::from_secs(30)));
    /// # Ok(())
    /// # }
    /// ```
    pub fn retry_after(mut self, seconds: u64) -> Self {
        self.retry_after = Some(seconds.into());
        self
    }

    /// Adds a header to the response. A header that is added twice is sent twice.
    ///
    /// # Panics
    ///
    /// Panics if `name` or `value` is invalid, or if `name` is one of `connection`, `content-length` and
    /// `transfer-encoding`, which the server sets itself. To break the end of a response, use
    /// [`close_mid_body`](Self::close_mid_body) or [`garbage`](Self::garbage).
    ///
    /// # Example: a response with a request id
    ///
    /// ```
    /// # use audience::{RetryPolicy, mock::{Fault, MockServer}};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), audience::Error> {
    /// # let server = MockServer::start().await;
    /// # let contacts = server.client_builder().retry(RetryPolicy::none()).build()?.contacts();
    /// server.fault(Fault::status(500).header("x-request-id", "req_7"));
    ///
    /// let error = contacts.list().await.unwrap_err();
    ///
    /// assert_eq!(error.api().and_then(|refusal| refusal.request_id()), Some("req_7"));
    /// # Ok(())
    /// # }
    /// ```
    #[track_caller]
    pub fn header(mut self, name: impl AsRef<str>, value: impl AsRef<str>) -> Self {
        match response_header(name.as_ref(), value.as_ref()) {
            Ok(header) => self.headers.push(header),
            Err(problem) => panic!("{problem}"),
        }
        self
    }

    /// Replaces the body of the response.
    ///
    /// Its content type is `text/html` if it begins with `<`, and `application/json` if it is JSON or begins with `{` or
    /// `[`. Otherwise, it is `text/plain`. To send another content type, use [`header`](Self::header).
    ///
    /// # Example: an error that the interface document does not name
    ///
    /// ```
    /// # use audience::{RetryPolicy, mock::{Fault, MockServer}};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), audience::Error> {
    /// # let server = MockServer::start().await;
    /// # let contacts = server.client_builder().retry(RetryPolicy::none()).build()?.contacts();
    /// let body = r#"{"error": {"code": "account_closed", "message": "the account is closed"}}"#;
    /// server.fault(Fault::status(403).body(body));
    ///
    /// let error = contacts.list().await.unwrap_err();
    ///
    /// assert_eq!(error.code().map(|code| code.as_str()), Some("account_closed"));
    /// # Ok(())
    /// # }
    /// ```
    pub fn body(mut self, body: impl Into<Vec<u8>>) -> Self {
        self.body = Some(body.into().into());
        self
    }

    /// Delays the response, or the end of the connection, by `delay`. Default: no delay.
    ///
    /// # Example: an error that arrives late
    ///
    /// ```
    /// # use std::time::{Duration, Instant};
    /// # use audience::{RetryPolicy, mock::{Fault, MockServer}};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), audience::Error> {
    /// # let server = MockServer::start().await;
    /// # let contacts = server.client_builder().retry(RetryPolicy::none()).build()?.contacts();
    /// server.fault(Fault::status(503).delayed_by(Duration::from_millis(50)));
    ///
    /// let start = Instant::now();
    /// let error = contacts.list().await.unwrap_err();
    ///
    /// assert!(error.status().is_some() && start.elapsed() >= Duration::from_millis(50));
    /// # Ok(())
    /// # }
    /// ```
    pub fn delayed_by(mut self, delay: Duration) -> Self {
        self.delay = Some(delay);
        self
    }

    fn new() -> Self {
        Self {
            status: None,
            applied: false,
            close: None,
            garbage: false,
            delay: None,
            body: None,
            times: None,
            after: 0,
            every: 1,
            method: None,
            path: None,
            retry_after: None,
            headers: Vec::new(),
        }
    }

    fn close(close: Close) -> Self {
        Self {
            close: Some(close),
            ..Self::new()
        }
    }

    /// Fails if the fault has no effect, has two effects that exclude each other, or matches no request. JSON and the
    /// command line can contain such a fault, and [`times`](Self::times), [`every`](Self::every) and
    /// [`path`](Self::path) accept any value.
    pub(super) fn check(&self) -> Result<(), String> {
        self.check_effect()?;
        check_times(self.times)?;
        if self.every == 0 {
            let least = "`every` must be at least 1: with 1, each matching request fails";
            return Err(least.to_owned());
        }
        self.check_requests()
    }

    fn check_effect(&self) -> Result<(), String> {
        let kinds = [self.status.is_some(), self.close.is_some(), self.garbage];
        match kinds.into_iter().filter(|is_given| *is_given).count() {
            0 if self.delay.is_none() && self.body.is_none() => {
                let needed =
                    "a fault needs one of `status`, `close`, `garbage`, `delay_ms` and `body`";
                return Err(needed.to_owned());
            }
            0 | 1 => {}
            _ => {
                return Err(
                    "a fault can have only one of `status`, `close` and `garbage`".to_owned(),
                );
            }
        }
        match self.status {
            Some(status) if !(200..=999).contains(&status) => Err(format!(
                "`status` must be between 200 and 999, not {status}"
            )),
            None if self.applied => Err("`applied` needs a `status`".to_owned()),
            _ => Ok(()),
        }
    }

    /// Fails if no request to the service has the method and the path.
    fn check_requests(&self) -> Result<(), String> {
        if let Some(method) = &self.method
            && Method::from_bytes(method.as_bytes()).is_err()
        {
            return Err(format!("`method` is not an HTTP method: {method:?}"));
        }
        let Some(path) = &self.path else {
            return Ok(());
        };
        if path.contains('?') {
            return Err(format!(
                "`path` is compared with the path of a request without its query; leave out the query of {path:?} (%3F \
                 is a question mark in an address)"
            ));
        }
        // As in `matches_pattern`, every matching path starts with the text before the first star.
        let start = path.split('*').next().unwrap_or_default();
        let start = percent_decode_str(start).decode_utf8_lossy();
        if !start.starts_with('/') && !path.starts_with('*') {
            return Err(format!(
                "no request has the path {path:?}: `path` must start with `/` or `*`"
            ));
        }
        if is_control_path(&start) {
            return Err(format!(
                "no fault applies to {path:?}: faults affect the service, and not the paths below /_mock/"
            ));
        }
        Ok(())
    }

    /// Returns whether the service applies the request.
    pub(super) fn applies(&self) -> bool {
        match self.kind() {
            FaultKind::Status(_) => self.applied,
            FaultKind::CloseBefore | FaultKind::Garbage => false,
            FaultKind::AlteredResponse
            | FaultKind::CloseAfter
            | FaultKind::CloseMidBody
            | FaultKind::CloseReset => true,
        }
    }

    /// Returns the result that replaces the service's result. `None` if the fault only changes the service's response
    /// or cuts it off.
    pub(super) fn instead_of_service(&self) -> Option<Result<Response<Bytes>, Refusal>> {
        match self.kind() {
            FaultKind::Status(status) if status < 400 => {
                let mut response = Response::default();
                *response.status_mut() = named_status(status);
                Some(Ok(response))
            }
            FaultKind::Status(status) => {
                let slug = slug_of_status(status);
                Some(Err(Refusal::new(status, slug, STATUS_REASON)))
            }
            FaultKind::CloseBefore | FaultKind::Garbage => Some(Ok(Response::default())),
            FaultKind::AlteredResponse
            | FaultKind::CloseAfter
            | FaultKind::CloseMidBody
            | FaultKind::CloseReset => None,
        }
    }

    /// Returns the effect of the fault, as the journal shows it. `None` if the request is handled as sent.
    ///
    /// `refused_because` is the message of the service if it refused the request.
    pub(super) fn reason(&self, refused_because: Option<&str>) -> Option<String> {
        let handled = match refused_because {
            None => "applied".to_owned(),
            Some(message) => format!("refused: {message}"),
        };
        Some(match self.kind() {
            FaultKind::Status(_) if self.applied => {
                format!("a fault replaced the response after the request was {handled}")
            }
            FaultKind::Status(_) => STATUS_REASON.to_owned(),
            FaultKind::AlteredResponse => return None,
            FaultKind::CloseBefore => {
                "a fault closed the connection before the request was applied".to_owned()
            }
            FaultKind::CloseAfter => {
                format!("a fault closed the connection after the request was {handled}")
            }
            FaultKind::CloseMidBody => {
                "a fault closed the connection in the middle of the response".to_owned()
            }
            FaultKind::CloseReset => {
                "a fault reset the connection in the middle of the response".to_owned()
            }
            FaultKind::Garbage => "a fault sent bytes that are not HTTP".to_owned(),
        })
    }

    /// Returns whether the client receives a status line.
    pub(super) fn sends_status(&self) -> bool {
        match self.kind() {
            FaultKind::Status(_)
            | FaultKind::AlteredResponse
            | FaultKind::CloseMidBody
            | FaultKind::CloseReset => true,
            FaultKind::CloseBefore | FaultKind::CloseAfter | FaultKind::Garbage => false,
        }
    }

    /// Returns the delay of the response to a request with a method, and the changed response or the way in which the
    /// connection ends.
    pub(super) fn apply(
        self,
        method: &Method,
        mut response: Response<Bytes>,
    ) -> (Duration, Result<Response<Bytes>, Disconnect>) {
        let kind = self.kind();
        if let Some(body) = &self.body {
            // The service named the type of its own body.
            response.headers_mut().remove(CONTENT_TYPE);
            let has_type = self.headers.iter().any(|(name, _)| *name == CONTENT_TYPE);
            if !has_type && !body.is_empty() {
                let media_type = HeaderValue::from_static(media_type(body));
                response.headers_mut().insert(CONTENT_TYPE, media_type);
            }
        }
        let retry_after = self.retry_after.map(|value| (RETRY_AFTER, value));
        let set: Vec<_> = self.headers.into_iter().chain(retry_after).collect();
        // They replace those of the service.
        for (name, _) in &set {
            response.headers_mut().remove(name);
        }
        for (name, value) in set {
            response.headers_mut().append(name, value);
        }
        let sent = match kind {
            FaultKind::Status(_) | FaultKind::AlteredResponse => {
                Ok(response.map(|body| self.body.unwrap_or(body)))
            }
            FaultKind::CloseBefore | FaultKind::CloseAfter => Err(Disconnect::default()),
            FaultKind::CloseMidBody | FaultKind::CloseReset => {
                let response = response.map(|body| self.body.unwrap_or(body));
                Err(Disconnect {
                    reset: kind == FaultKind::CloseReset,
                    ..truncated(method, &response)
                })
            }
            FaultKind::Garbage => Err(Disconnect {
                bytes: self.body.map_or_else(|| GARBAGE.to_vec(), Vec::from),
                ..Disconnect::default()
            }),
        };
        (self.delay.unwrap_or_default(), sent)
    }

    fn kind(&self) -> FaultKind {
        match (self.status, self.close) {
            (Some(status), _) => FaultKind::Status(status),
            (None, Some(Close::Before)) => FaultKind::CloseBefore,
            (None, Some(Close::After)) => FaultKind::CloseAfter,
            (None, Some(Close::MidBody)) => FaultKind::CloseMidBody,
            (None, Some(Close::Reset)) => FaultKind::CloseReset,
            (None, None) if self.garbage => FaultKind::Garbage,
            (None, None) => FaultKind::AlteredResponse,
        }
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
                .is_none_or(|pattern| matches_pattern(pattern, path))
    }
}

/// The effect of a fault on a request and its response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FaultKind {
    /// The request is applied if the fault says so. The response has this status.
    Status(u16),
    /// The request is applied. The response is late, or has other headers or another body.
    AlteredResponse,
    /// The request is not applied. The connection is closed without a response.
    CloseBefore,
    /// The request is applied. The connection is closed without a response.
    CloseAfter,
    /// The request is applied. The connection is closed in the middle of the response body.
    CloseMidBody,
    /// The request is applied. The connection is reset in the middle of the response body.
    CloseReset,
    /// The request is not applied. The response is not HTTP.
    Garbage,
}

/// The reason of a fault that responds with a status.
const STATUS_REASON: &str = "the test asked for this response";

/// Bytes that no HTTP client can read as a response. They begin like a TLS record.
const GARBAGE: &[u8] = b"\x16\x03\x01 this is not HTTP\r\n\r\n";

/// Returns the media type that a service or a gateway names for a body. JSON may be cut off.
fn media_type(body: &[u8]) -> &'static str {
    match body.trim_ascii_start().first() {
        Some(b'<') => "text/html",
        Some(b'{' | b'[') => "application/json",
        _ if serde_json::from_slice::<IgnoredAny>(body).is_ok() => "application/json",
        _ => "text/plain",
    }
}

fn named_status(status: u16) -> StatusCode {
    StatusCode::from_u16(status).expect("a fault has a status from 200 to 999")
}

/// Returns the slug of a status: the one in the interface, section 7, if the status has exactly one there for all requests.
/// Otherwise its name in lowercase letters and underscores, or `fault` if it has no name.
fn slug_of_status(status: u16) -> String {
    match status {
        402 => return "quota_exceeded".to_owned(),
        403 => return "key_not_permitted".to_owned(),
        _ => {}
    }
    let name = named_status(status).canonical_reason().unwrap_or("fault");
    name.chars()
        .filter_map(|character| match character {
            ' ' | '-' => Some('_'),
            letter if letter.is_ascii_alphabetic() => Some(letter.to_ascii_lowercase()),
            _ => None,
        })
        .collect()
}

/// Returns a response up to the middle of its body, or of its head if its status or the method of the request allows no
/// body.
fn truncated(method: &Method, response: &Response<Bytes>) -> Disconnect {
    // Whatever the head announces, to a client the response ends with it.
    if !has_body(method.as_str(), response.status()) {
        let mut bytes = head_bytes(response, 0);
        bytes.truncate(bytes.len() / 2);
        return Disconnect {
            body_start: bytes.len(),
            bytes,
            reset: false,
        };
    }
    // Written by hand: hyper does not send a response that is shorter than its `content-length`.
    // At least one byte is announced and not sent, even if the body is empty.
    let body = response.body();
    let mut bytes = head_bytes(response, body.len().max(1));
    let body_start = bytes.len();
    bytes.extend_from_slice(&body[..body.len() / 2]);
    Disconnect {
        bytes,
        body_start,
        reset: false,
    }
}

/// Returns the bytes of a response before its body.
pub(super) fn head_bytes(response: &Response<Bytes>, content_length: usize) -> Vec<u8> {
    let status = response.status();
    let reason = status.canonical_reason().unwrap_or("");
    let mut bytes = format!("HTTP/1.1 {} {reason}\r\n", status.as_u16()).into_bytes();
    if !response.headers().contains_key(CONTENT_TYPE) {
        bytes.extend_from_slice(b"content-type: application/json\r\n");
    }
    for (name, value) in response.headers() {
        bytes.extend_from_slice(name.as_str().as_bytes());
        bytes.extend_from_slice(b": ");
        bytes.extend_from_slice(value.as_bytes());
        bytes.extend_from_slice(b"\r\n");
    }
    bytes.extend_from_slice(format!("content-length: {content_length}\r\n\r\n").as_bytes());
    bytes
}

/// The faults that were added and are not used up, oldest first.
#[derive(Debug, Serialize)]
#[serde(transparent)]
pub(super) struct Active<F> {
    faults: Vec<Numbered<F>>,
    /// Faults are counted from 1, and no number is used twice.
    #[serde(skip)]
    last_number: u64,
}

/// A fault, and the number by which it is removed.
#[derive(Debug, Serialize)]
struct Numbered<F> {
    number: u64,
    #[serde(flatten)]
    fault: F,
    /// The number of matches since the fault began, or since its last turn.
    #[serde(skip)]
    passed: u64,
}

/// Fails if the fault applies to no request or delivery.
pub(super) fn check_times(times: Option<u64>) -> Result<(), String> {
    match times {
        Some(0) => Err("`times` must be at least 1: with 0, the fault never applies".to_owned()),
        _ => Ok(()),
    }
}

/// A fault that applies to a number of requests or deliveries.
pub(super) trait Counted: Clone {
    /// How often it still applies. `None` means without a limit.
    fn times(&mut self) -> Option<&mut u64>;

    /// The number of matching requests or deliveries until the fault begins.
    fn after(&mut self) -> Option<&mut u64> {
        None
    }

    /// The fault has its turn at each nth match after that.
    fn every(&self) -> u64 {
        1
    }
}

impl Counted for Fault {
    fn times(&mut self) -> Option<&mut u64> {
        self.times.as_mut()
    }

    fn after(&mut self) -> Option<&mut u64> {
        Some(&mut self.after)
    }

    fn every(&self) -> u64 {
        self.every
    }
}

impl<F> Default for Active<F> {
    fn default() -> Self {
        Self {
            faults: Vec::new(),
            last_number: 0,
        }
    }
}

impl<F: Counted> Active<F> {
    pub(super) fn add(&mut self, fault: F) {
        self.last_number += 1;
        self.faults.push(Numbered {
            number: self.last_number,
            fault,
            passed: 0,
        });
    }

    /// Removes the fault with this number. Returns `false` if there is none: it may be used up.
    pub(super) fn remove(&mut self, number: u64) -> bool {
        let before = self.faults.len();
        self.faults.retain(|fault| fault.number != number);
        self.faults.len() < before
    }

    pub(super) fn clear(&mut self) {
        self.faults.clear();
    }

    /// Returns the first fault that has begun, matches and has its turn, and counts it as used once.
    ///
    /// Every fault that matches counts the match, whether or not another fault applies.
    pub(super) fn take(&mut self, matches: impl Fn(&F) -> bool) -> Option<F> {
        let mut first = None;
        for (index, Numbered { fault, passed, .. }) in self.faults.iter_mut().enumerate() {
            if !matches(fault) {
                continue;
            }
            if let Some(after) = fault.after()
                && *after > 0
            {
                *after -= 1;
                continue;
            }
            *passed += 1;
            if *passed >= fault.every() {
                *passed = 0;
                first = first.or(Some(index));
            }
        }
        let index = first?;
        let fault = &mut self.faults[index].fault;
        match fault.times() {
            Some(1) => Some(self.faults.remove(index).fault),
            Some(left) => {
                *left -= 1;
                Some(fault.clone())
            }
            None => Some(fault.clone()),
        }
    }
}

/// Parses a header of a response. Returns a message for the test's author if it is invalid, or one that the server
/// sets.
fn response_header(name: &str, value: &str) -> Result<(HeaderName, HeaderValue), String> {
    let parsed_name = HeaderName::from_bytes(name.as_bytes())
        .map_err(|_| format!("{name:?} is not a valid header name"))?;
    let parsed_value = HeaderValue::from_bytes(value.as_bytes())
        .map_err(|_| format!("the value of the header {name:?} is invalid"))?;
    if [CONNECTION, CONTENT_LENGTH, TRANSFER_ENCODING].contains(&parsed_name) {
        return Err(format!(
            "a fault cannot set {name:?}: the server sets it to mark the end of the response"
        ));
    }
    Ok((parsed_name, parsed_value))
}

#[cfg(feature = "mock-server")]
fn parse_header(text: &str) -> Result<(HeaderName, HeaderValue), String> {
    let (name, value) = text
        .split_once('=')
        .ok_or("the header is not of the form NAME=VALUE")?;
    response_header(name, value)
}

#[cfg(feature = "mock-server")]
fn parse_milliseconds(text: &str) -> Result<Duration, std::num::ParseIntError> {
    text.parse().map(Duration::from_millis)
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes a reference"
)]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes a reference"
)]
fn is_one(number: &u64) -> bool {
    *number == 1
}

fn serialize_milliseconds<S: Serializer>(
    delay: &Option<Duration>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    let milliseconds = delay.unwrap_or_default().as_millis();
    u64::try_from(milliseconds)
        .unwrap_or(u64::MAX)
        .serialize(serializer)
}

fn deserialize_milliseconds<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Duration>, D::Error> {
    Ok(Option::deserialize(deserializer)?.map(Duration::from_millis))
}

fn serialize_body<S: Serializer>(body: &Option<Bytes>, serializer: S) -> Result<S::Ok, S::Error> {
    String::from_utf8_lossy(body.as_deref().unwrap_or_default()).serialize(serializer)
}

/// Text is the body as it is; any other JSON is the body as JSON.
fn deserialize_body<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Bytes>, D::Error> {
    let body = Option::<Value>::deserialize(deserializer)?;
    Ok(body.map(|body| match body {
        Value::String(text) => text.into(),
        json => json.to_string().into(),
    }))
}

fn serialize_retry_after<S: Serializer>(
    value: &Option<HeaderValue>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    let text = value
        .as_ref()
        .map(|value| String::from_utf8_lossy(value.as_bytes()));
    match text.as_ref().and_then(|text| text.parse::<u64>().ok()) {
        Some(seconds) => seconds.serialize(serializer),
        None => text.serialize(serializer),
    }
}

/// A number of seconds, or the text of a date.
fn deserialize_retry_after<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<HeaderValue>, D::Error> {
    match Option::<Value>::deserialize(deserializer)? {
        None => Ok(None),
        Some(Value::String(date)) => date.parse().map(Some).map_err(D::Error::custom),
        Some(other) => match other.as_u64() {
            Some(seconds) => Ok(Some(seconds.into())),
            None => Err(D::Error::custom(format_args!(
                "`retry_after` must be whole seconds or the text of a date, not {other}"
            ))),
        },
    }
}

/// A header that is sent several times is an array of its values.
fn serialize_headers<S: Serializer>(
    headers: &[(HeaderName, HeaderValue)],
    serializer: S,
) -> Result<S::Ok, S::Error> {
    let mut by_name: BTreeMap<&str, Vec<Cow<'_, str>>> = BTreeMap::new();
    for (name, value) in headers {
        let values = by_name.entry(name.as_str()).or_default();
        values.push(String::from_utf8_lossy(value.as_bytes()));
    }
    serializer.collect_map(by_name.into_iter().map(|(name, values)| {
        let json: Value = match &values[..] {
            [value] => value.clone().into(),
            values => values.iter().cloned().collect(),
        };
        (name, json)
    }))
}

/// The value of a header is a text, or an array of texts that are sent one after the other.
fn deserialize_headers<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Vec<(HeaderName, HeaderValue)>, D::Error> {
    let mut headers = Vec::new();
    for (name, value) in BTreeMap::<String, Value>::deserialize(deserializer)? {
        let values = match value {
            Value::Array(values) => values,
            value => vec![value],
        };
        for value in values {
            let Value::String(value) = value else {
                return Err(D::Error::custom(format_args!(
                    "the header {name:?} must be a text or an array of texts, not {value}"
                )));
            };
            headers.push(response_header(&name, &value).map_err(D::Error::custom)?);
        }
    }
    Ok(headers)
}

/// Returns whether `path` matches `pattern`, in which `*` matches any text, including none.
///
/// Both are percent-decoded first, so it does not matter how they are encoded.
fn matches_pattern(pattern: &str, path: &str) -> bool {
    let decoded = percent_decode_str(path).decode_utf8_lossy();
    let mut parts = pattern
        .split('*')
        .map(|part| percent_decode_str(part).decode_utf8_lossy());
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = decoded.strip_prefix(&*first) else {
        return false;
    };
    let Some(mut part) = parts.next() else {
        return rest.is_empty();
    };
    // Between stars the first match is as good as any other. Only the last part must match at the end.
    for next in parts {
        let Some(at) = rest.find(&*part) else {
            return false;
        };
        rest = &rest[at + part.len()..];
        part = next;
    }
    rest.ends_with(&*part)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    #[should_panic(expected = "between 200 and 999, not 42")]
    fn an_invalid_status_is_refused() {
        let _ = Fault::status(42);
    }

    #[test]
    #[should_panic(expected = "the value of the header \"retry-after\" is invalid")]
    fn an_invalid_header_value_is_refused() {
        let _ = Fault::status(503).header("retry-after", "1\r\n");
    }

    #[test]
    #[should_panic(expected = "a fault cannot set \"Content-Length\"")]
    fn a_header_that_marks_the_end_of_the_response_is_refused() {
        let _ = Fault::status(503).header("Content-Length", "5");
    }

    #[test]
    fn a_fault_can_be_removed_until_it_is_used_up() {
        let mut faults = Active::default();
        faults.add(Fault::status(503));
        faults.add(Fault::status(500).times(1));

        assert!(faults.remove(1));
        assert!(faults.take(|_| true).is_some());
        assert!(!faults.remove(1) && !faults.remove(2));
    }

    #[cfg(feature = "mock-server")]
    #[test]
    fn the_delay_of_the_command_is_a_number_of_milliseconds() {
        assert_eq!(parse_milliseconds("1500"), Ok(Duration::from_millis(1_500)));
        assert!(parse_milliseconds("1.5").is_err());
    }

    fn kinds(faults: &mut Active<Fault>, requests: &[(&str, &str)]) -> Vec<Option<FaultKind>> {
        requests
            .iter()
            .map(|(method, path)| {
                faults
                    .take(|fault| fault.matches(method, path))
                    .map(|fault| fault.kind())
            })
            .collect()
    }

    #[test]
    fn a_used_up_fault_is_followed_by_the_next() {
        let mut faults = Active::default();
        faults.add(Fault::status(503).times(2));
        faults.add(Fault::status(500).times(1));

        let taken = kinds(&mut faults, &[("GET", "/a"); 4]);

        assert_eq!(
            taken,
            [
                Some(FaultKind::Status(503)),
                Some(FaultKind::Status(503)),
                Some(FaultKind::Status(500)),
                None
            ]
        );
    }

    #[test]
    fn an_error_status_has_a_body_like_the_service_s_and_a_success_has_none() {
        for (status, is_error) in [(200, false), (204, false), (399, false), (400, true)] {
            let response = Fault::status(status).instead_of_service().unwrap();

            match response {
                Ok(response) => assert_eq!((response.status().as_u16(), is_error), (status, false)),
                Err(refusal) => assert_eq!((refusal.status, is_error), (status, true)),
            }
        }
    }

    #[test]
    fn a_response_is_cut_in_the_middle_of_its_body_or_of_its_head_if_it_has_no_body() {
        let response = Response::new(Bytes::from_static(b"0123456789"));

        let of_get = truncated(&Method::GET, &response);
        let of_head = truncated(&Method::HEAD, &response);

        let head = head_bytes(&response, 10);
        assert_eq!(of_get.bytes, [&head[..], b"01234"].concat());
        let head = head_bytes(&response, 0);
        assert_eq!(of_head.bytes, &head[..head.len() / 2]);
    }

    #[test]
    fn a_fault_without_a_count_applies_until_it_is_cleared() {
        let mut faults = Active::default();
        faults.add(Fault::close_before());

        assert_eq!(
            kinds(&mut faults, &[("GET", "/"); 50]),
            [Some(FaultKind::CloseBefore); 50]
        );

        faults.clear();
        assert_eq!(kinds(&mut faults, &[("GET", "/")]), [None]);
    }

    #[test]
    fn a_fault_lets_requests_through_before_it_begins() {
        let mut faults = Active::default();
        faults.add(Fault::status(503).method("POST").after(2).times(1));

        let taken = kinds(
            &mut faults,
            &[
                ("POST", "/"),
                ("GET", "/"),
                ("POST", "/"),
                ("GET", "/"),
                ("POST", "/"),
                ("POST", "/"),
            ],
        );

        let failed = Some(FaultKind::Status(503));
        assert_eq!(taken, [None, None, None, None, failed, None]);
    }

    #[test]
    fn a_waiting_fault_counts_requests_that_another_fault_applies_to() {
        let mut faults = Active::default();
        faults.add(Fault::status(501).after(3).times(1));
        faults.add(Fault::status(503).times(2));
        faults.add(Fault::status(500).after(1));

        let taken = kinds(&mut faults, &[("GET", "/"); 5]);

        assert_eq!(
            taken,
            [503, 503, 500, 501, 500].map(|status| Some(FaultKind::Status(status)))
        );
    }

    #[test]
    fn a_request_that_is_not_the_turn_of_a_fault_is_left_to_the_next() {
        let mut faults = Active::default();
        faults.add(Fault::status(503).every(3).after(1).times(2));
        faults.add(Fault::status(500).every(2));

        let taken = kinds(&mut faults, &[("GET", "/"); 12]);

        // The fourth request is the turn of both. The second fault then waits for the sixth.
        let statuses = [0, 500, 0, 503, 0, 500, 503, 500, 0, 500, 0, 500];
        assert_eq!(
            taken,
            statuses.map(|status| (status != 0).then_some(FaultKind::Status(status)))
        );
    }

    #[test]
    fn a_fault_applies_only_to_its_method_and_path() {
        let mut faults = Active::default();
        faults.add(Fault::garbage().method("post").path("/contacts"));

        let taken = kinds(
            &mut faults,
            &[
                ("GET", "/contacts"),
                ("POST", "/contacts/batch"),
                ("POST", "/contacts"),
            ],
        );

        assert_eq!(taken, [None, None, Some(FaultKind::Garbage)]);
    }

    #[test]
    fn a_fault_is_shown_in_the_form_that_adds_it() {
        for json in [
            json!({
                "status": 503, "headers": {"retry-after": "1"}, "times": 2, "after": 1, "every": 20,
                "method": "POST", "path": "/a*",
            }),
            json!({"status": 503, "headers": {"set-cookie": ["b", "a"], "x-a": "c"}}),
            json!({"status": 504, "applied": true}),
            json!({"close": "before"}),
            json!({"close": "after", "delay_ms": 5}),
            json!({"close": "mid_body"}),
            json!({"close": "reset"}),
            json!({"garbage": true}),
            json!({"delay_ms": 0}),
            json!({"body": "<html>"}),
        ] {
            let fault: Fault = serde_json::from_value(json.clone()).unwrap();

            fault.check().unwrap();
            assert_eq!(serde_json::to_value(&fault).unwrap(), json);
        }
    }

    #[test]
    fn the_error_for_a_header_that_is_no_text_names_it() {
        for value in [json!(1), json!(null), json!(["a", 1]), json!([["a"]])] {
            let json = json!({"status": 503, "headers": {"x-a": value}});

            let error = serde_json::from_value::<Fault>(json).unwrap_err();

            let message = "the header \"x-a\" must be a text or an array of texts, not ";
            assert!(error.to_string().starts_with(message), "{error}");
        }
    }

    #[test]
    fn the_error_for_members_that_do_not_go_together_lists_those_that_do() {
        for (json, message) in [
            (
                json!({"times": 1}),
                "a fault needs one of `status`, `close`, `garbage`, `delay_ms` and `body`",
            ),
            (
                json!({"status": 42, "garbage": true}),
                "a fault can have only one of `status`, `close` and `garbage`",
            ),
            (
                json!({"status": 42}),
                "`status` must be between 200 and 999, not 42",
            ),
            (
                json!({"close": "before", "applied": true}),
                "`applied` needs a `status`",
            ),
        ] {
            let fault: Fault = serde_json::from_value(json).unwrap();

            assert_eq!(fault.check().unwrap_err(), message);
        }
    }

    #[test]
    fn a_fault_that_no_request_can_match_is_refused_with_the_reason() {
        for (json, message) in [
            (json!({"times": 0}), "`times` must be at least 1"),
            (json!({"every": 0}), "`every` must be at least 1"),
            (json!({"method": ""}), "`method` is not an HTTP method"),
            (json!({"method": "GET /"}), "`method` is not an HTTP method"),
            (json!({"path": ""}), "must start with `/` or `*`"),
            (json!({"path": "contacts"}), "must start with `/` or `*`"),
            (json!({"path": "contacts*"}), "must start with `/` or `*`"),
            (
                json!({"path": "http://127.0.0.1/contacts"}),
                "must start with `/` or `*`",
            ),
            (
                json!({"path": "/contacts?limit=1"}),
                "leave out the query of \"/contacts?limit=1\"",
            ),
            (json!({"path": "/_mock"}), "not the paths below /_mock/"),
            (json!({"path": "/_mock/*"}), "not the paths below /_mock/"),
        ] {
            let mut fault: Fault = serde_json::from_value(json.clone()).unwrap();
            fault.status = Some(503);

            let error = fault.check().unwrap_err();

            assert!(error.contains(message), "{json}: {error}");
        }
        for (method, path) in [
            ("post", "*"),
            ("PURGE", "/*"),
            ("GET", "%2Fcontacts"),
            ("GET", "/contacts/a%3Fb@example.com"),
            ("GET", "/_mockery"),
            ("GET", "*/_mock/*"),
        ] {
            let fault = Fault::status(503).method(method).path(path);

            assert_eq!(fault.check(), Ok(()), "{method} {path}");
        }
    }

    #[test]
    fn a_star_matches_any_text() {
        for (pattern, path, expected) in [
            ("/contacts", "/contacts", true),
            ("/contacts", "/contacts/", false),
            ("/contacts/*", "/contacts/ada", true),
            ("/contacts/*", "/contacts", false),
            (
                "/contacts/*/subscribe",
                "/contacts/ada%40x.io/subscribe",
                true,
            ),
            (
                "/contacts/*/subscribe",
                "/contacts/ada%40x.io/unsubscribe/",
                false,
            ),
            ("*/*scribe", "/contacts/ada/subscribe", true),
            ("/a*a", "/a", false),
            ("/*aa*a", "/aa", false),
            ("/*aa*a", "/aaa", true),
            ("*", "/", true),
            ("/contacts/ada@x.io", "/contacts/ada%40x.io", true),
            ("/contacts/ada%40x.io", "/contacts/ada@x.io", true),
        ] {
            assert_eq!(
                matches_pattern(pattern, path),
                expected,
                "{pattern} on {path}"
            );
        }
    }

    #[test]
    fn the_slug_of_a_status_has_only_lowercase_letters_and_underscores() {
        assert_eq!(slug_of_status(503), "service_unavailable");
        assert_eq!(slug_of_status(402), "quota_exceeded");
        assert_eq!(slug_of_status(403), "key_not_permitted");
        assert_eq!(slug_of_status(404), "not_found");
        assert_eq!(slug_of_status(418), "im_a_teapot");
        assert_eq!(slug_of_status(799), "fault");
        for status in 400..=999 {
            let slug = slug_of_status(status);

            let is_slug = slug.bytes().all(|b| b.is_ascii_lowercase() || b == b'_');
            assert!(is_slug && !slug.is_empty(), "{status}: {slug}");
        }
    }
}
