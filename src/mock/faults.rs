//! Faults of requests: the failures that a test causes between the service and its callers.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_LENGTH, RETRY_AFTER, TRANSFER_ENCODING};
use http::{HeaderName, HeaderValue};
use percent_encoding::percent_decode_str;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

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
/// let applied = [Fault::close_after(), Fault::close_mid_body(), Fault::close_reset()];
/// let altered = [Fault::delay(Duration::from_secs(2)), Fault::wrong_body("<html>")];
/// # let _ = (not_applied, applied, altered);
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
/// # let _ = fault;
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
        with = "milliseconds",
        skip_serializing_if = "Option::is_none"
    )]
    delay: Option<Duration>,
    /// Respond with this body
    #[cfg_attr(
        feature = "mock-server",
        arg(long, value_name = "TEXT", group = "kind")
    )]
    #[serde(with = "body", skip_serializing_if = "Option::is_none")]
    body: Option<Bytes>,
    /// Number of requests that fail [default: no limit]
    #[cfg_attr(feature = "mock-server", arg(long, value_name = "N"))]
    #[serde(skip_serializing_if = "Option::is_none")]
    times: Option<u64>,
    /// Number of requests that succeed first
    #[cfg_attr(feature = "mock-server", arg(long, value_name = "N", default_value_t))]
    #[cfg_attr(feature = "mock-server", arg(hide_default_value = true))]
    #[serde(skip_serializing_if = "is_zero")]
    after: u64,
    /// Only requests with this method
    #[cfg_attr(feature = "mock-server", arg(long, value_name = "METHOD"))]
    #[serde(skip_serializing_if = "Option::is_none")]
    method: Option<String>,
    /// Only requests to this path; `*` stands for anything
    #[cfg_attr(feature = "mock-server", arg(long, value_name = "PATH"))]
    #[serde(skip_serializing_if = "Option::is_none")]
    path: Option<String>,
    /// `Retry-After` of the response: seconds, or a date
    #[cfg_attr(feature = "mock-server", arg(long, value_name = "SECONDS"))]
    #[serde(with = "retry_after", skip_serializing_if = "Option::is_none")]
    retry_after: Option<HeaderValue>,
    /// Header of the response; can be repeated
    #[cfg_attr(feature = "mock-server", arg(long = "header", value_name = "NAME=VALUE", value_parser = parse_header))]
    #[serde(with = "headers", skip_serializing_if = "Vec::is_empty")]
    headers: Vec<(HeaderName, HeaderValue)>,
}

/// When the connection is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "mock-server", derive(clap::ValueEnum))]
#[cfg_attr(feature = "mock-server", value(rename_all = "snake_case"))]
enum Close {
    /// Before the request is applied
    Before,
    /// After the request is applied
    After,
    /// In the middle of the response body
    #[cfg_attr(feature = "mock-server", value(alias = "mid-body"))]
    MidBody,
    /// In the middle of the response body, by a reset
    Reset,
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
        let fault = Self {
            status: Some(status),
            ..Self::new()
        };
        fault.check().unwrap_or_else(|problem| panic!("{problem}"));
        fault
    }

    /// Creates a fault that applies the request at once but sends the response only after `delay`.
    ///
    /// If the client times out first, the request has been applied all the same. To delay another kind of fault, use
    /// [`delayed_by`](Self::delayed_by).
    pub fn delay(delay: Duration) -> Self {
        Self::new().delayed_by(delay)
    }

    /// Creates a fault that applies the request, and replaces the body of the response. The status stays the same.
    pub fn wrong_body(body: impl Into<Vec<u8>>) -> Self {
        Self::new().body(body)
    }

    /// Creates a fault that reads the request, does not apply it, and closes the connection without a response.
    pub fn close_before() -> Self {
        Self::close(Close::Before)
    }

    /// Creates a fault that applies the request and closes the connection without a response.
    pub fn close_after() -> Self {
        Self::close(Close::After)
    }

    /// Creates a fault that applies the request and closes the connection in the middle of the response body.
    pub fn close_mid_body() -> Self {
        Self::close(Close::MidBody)
    }

    /// Creates a fault that applies the request and resets the connection (a TCP `RST`) in the middle of the response
    /// body.
    pub fn close_reset() -> Self {
        Self::close(Close::Reset)
    }

    /// Creates a fault that does not apply the request, sends bytes that are not HTTP, and closes the connection.
    ///
    /// [`body`](Self::body) sets the bytes.
    pub fn garbage() -> Self {
        Self {
            garbage: true,
            ..Self::new()
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

    /// Sets the `Retry-After` header of the response, in seconds. Use [`header`](Self::header) for a date.
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
        self.body = Some(body.into().into());
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
        self.delay = Some(delay);
        self
    }

    fn new() -> Self {
        Self {
            status: None,
            close: None,
            garbage: false,
            delay: None,
            body: None,
            times: None,
            after: 0,
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

    /// Refuses a fault that has no effect, or two that exclude each other. JSON can have such a fault.
    pub(in crate::mock) fn check(&self) -> Result<(), String> {
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
            _ => Ok(()),
        }
    }

    pub(in crate::mock) fn kind(&self) -> FaultKind {
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

    /// Returns the delay of the response, its body if the fault has one, and its additional headers.
    pub(in crate::mock) fn into_parts(
        self,
    ) -> (Duration, Option<Vec<u8>>, Vec<(HeaderName, HeaderValue)>) {
        let mut headers = self.headers;
        headers.extend(self.retry_after.map(|value| (RETRY_AFTER, value)));
        (
            self.delay.unwrap_or_default(),
            self.body.map(Vec::from),
            headers,
        )
    }

    /// Returns whether the fault applies to a request.
    pub(in crate::mock) fn matches(&self, method: &str, path: &str) -> bool {
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
    CloseMidBody,
    /// The request is applied. The connection is reset in the middle of the response body.
    CloseReset,
    /// The request is not applied. The response is not HTTP.
    Garbage,
}

impl FaultKind {
    /// Returns whether the client receives a status line.
    pub(in crate::mock) fn sends_status(self) -> bool {
        match self {
            Self::Status(_) | Self::AlteredResponse | Self::CloseMidBody | Self::CloseReset => true,
            Self::CloseBefore | Self::CloseAfter | Self::Garbage => false,
        }
    }
}

/// The faults that were added and are not used up, oldest first.
#[derive(Debug, Serialize)]
pub(in crate::mock) struct Active<F>(Vec<F>);

/// A fault that applies to a number of requests or deliveries.
pub(in crate::mock) trait Counted: Clone {
    /// How often it still applies. `None` means without a limit.
    fn times(&mut self) -> Option<&mut u64>;

    /// How many requests or deliveries that match it still lets through before it begins.
    fn after(&mut self) -> Option<&mut u64> {
        None
    }
}

impl Counted for Fault {
    fn times(&mut self) -> Option<&mut u64> {
        self.times.as_mut()
    }

    fn after(&mut self) -> Option<&mut u64> {
        Some(&mut self.after)
    }
}

impl<F> Default for Active<F> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<F: Counted> Active<F> {
    pub(in crate::mock) fn add(&mut self, mut fault: F) {
        if fault.times() != Some(&mut 0) {
            self.0.push(fault);
        }
    }

    pub(in crate::mock) fn clear(&mut self) {
        self.0.clear();
    }

    /// Returns the first fault that has begun and matches, and counts it as used once.
    ///
    /// Every fault that matches but has not begun counts the match, whether or not another fault applies.
    pub(in crate::mock) fn take(&mut self, matches: impl Fn(&F) -> bool) -> Option<F> {
        let mut first = None;
        for (index, fault) in self.0.iter_mut().enumerate() {
            if !matches(fault) {
                continue;
            }
            match fault.after() {
                Some(after) if *after > 0 => *after -= 1,
                _ => first = first.or(Some(index)),
            }
        }
        let index = first?;
        match self.0[index].times() {
            Some(1) => Some(self.0.remove(index)),
            Some(left) => {
                *left -= 1;
                Some(self.0[index].clone())
            }
            None => Some(self.0[index].clone()),
        }
    }
}

/// Parses a header of a response. Returns a message for the test's author if it is invalid, or one that the server sets.
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
        .ok_or("it is not of the form NAME=VALUE")?;
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

mod milliseconds {
    use super::*;

    pub(super) fn serialize<S: Serializer>(
        delay: &Option<Duration>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        let milliseconds = delay.unwrap_or_default().as_millis();
        u64::try_from(milliseconds)
            .unwrap_or(u64::MAX)
            .serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Duration>, D::Error> {
        Ok(Option::deserialize(deserializer)?.map(Duration::from_millis))
    }
}

/// Text is the body as it is; any other JSON is the body as JSON.
mod body {
    use super::*;

    pub(super) fn serialize<S: Serializer>(
        body: &Option<Bytes>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        String::from_utf8_lossy(body.as_deref().unwrap_or_default()).serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Bytes>, D::Error> {
        let body = Option::<Value>::deserialize(deserializer)?;
        Ok(body.map(|body| match body {
            Value::String(text) => text.into(),
            json => json.to_string().into(),
        }))
    }
}

/// A number of seconds, or the text of a date.
mod retry_after {
    use super::*;

    pub(super) fn serialize<S: Serializer>(
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

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
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
}

mod headers {
    use super::*;

    pub(super) fn serialize<S: Serializer>(
        headers: &[(HeaderName, HeaderValue)],
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_map(
            headers
                .iter()
                .map(|(name, value)| (name.as_str(), String::from_utf8_lossy(value.as_bytes()))),
        )
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Vec<(HeaderName, HeaderValue)>, D::Error> {
        BTreeMap::<String, String>::deserialize(deserializer)?
            .iter()
            .map(|(name, value)| response_header(name, value).map_err(D::Error::custom))
            .collect()
    }
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
        faults.add(Fault::status(502).times(0));

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
                "status": 503, "headers": {"retry-after": "1"}, "times": 2, "after": 1, "method": "POST",
                "path": "/a*",
            }),
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
        ] {
            let fault: Fault = serde_json::from_value(json).unwrap();

            assert_eq!(fault.check().unwrap_err(), message);
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
}
