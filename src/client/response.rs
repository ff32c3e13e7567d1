//! A response as plain data.

use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::header::RETRY_AFTER;
use http::{HeaderMap, StatusCode};
use serde::de::{Deserialize, DeserializeOwned};

use super::decode::{Object, decode, parse};
use super::request::Operation;
use crate::{Error, Outcome};

/// A complete response, with any status.
#[derive(Clone, Debug)]
pub(crate) struct HttpResponse {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl HttpResponse {
    /// Returns the wait that a `Retry-After` header asks for, in whole seconds or as a date. More seconds
    /// than a `u64` can hold are read as the largest `u64`.
    pub(super) fn retry_after(&self, now: SystemTime) -> Option<Duration> {
        let text = self.headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
        if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
            return Some(Duration::from_secs(text.parse().unwrap_or(u64::MAX)));
        }
        let date = httpdate::parse_http_date(text).ok()?;
        Some(date.duration_since(now).unwrap_or_default())
    }
}

/// A 2xx response, with its operation and the number of attempts.
#[derive(Debug)]
pub(crate) struct Success {
    operation: Operation,
    response: HttpResponse,
    attempts: u32,
}

impl Success {
    pub(super) fn new(operation: Operation, response: HttpResponse, attempts: u32) -> Self {
        Self {
            operation,
            response,
            attempts,
        }
    }

    pub(super) fn operation(&self) -> Operation {
        self.operation
    }

    pub(crate) fn status(&self) -> StatusCode {
        self.response.status
    }

    pub(crate) fn headers(&self) -> &HeaderMap {
        &self.response.headers
    }

    pub(crate) fn body(&self) -> &Bytes {
        &self.response.body
    }

    pub(crate) fn attempts(&self) -> u32 {
        self.attempts
    }

    /// Decodes the body, which must be a JSON object.
    pub(crate) fn object<T: DeserializeOwned>(&self) -> Result<T, Error> {
        self.json().map(|Object(value)| value)
    }

    /// Decodes the body like [`object`](Self::object), without saying why it is invalid.
    pub(crate) fn valid_object<'a, T: Deserialize<'a>>(&'a self) -> Option<T> {
        parse(self.body()).ok().map(|Object(value)| value)
    }

    /// Decodes the body, which may be any JSON.
    pub(crate) fn json<'a, T: Deserialize<'a>>(&'a self) -> Result<T, Error> {
        decode(self.body()).map_err(|error| {
            error
                .at(self.operation.name)
                .after(self.attempts, Outcome::NotSent)
                .reading(self.body().clone())
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use http::HeaderValue;

    use super::*;

    #[test]
    fn retry_after_is_parsed_in_seconds_and_as_a_date() {
        let now = UNIX_EPOCH + Duration::from_secs(784_111_777);
        let parse = |text: &'static str| {
            let response = HttpResponse {
                status: StatusCode::TOO_MANY_REQUESTS,
                headers: HeaderMap::from_iter([(RETRY_AFTER, HeaderValue::from_static(text))]),
                body: Bytes::new(),
            };
            response.retry_after(now).map(|wait| wait.as_secs())
        };

        assert_eq!(parse("120"), Some(120));
        assert_eq!(parse("Sun, 06 Nov 1994 08:49:47 GMT"), Some(10));
        assert_eq!(parse("Sun, 06 Nov 1994 08:49:00 GMT"), Some(0));
        assert_eq!(parse("-1"), None);
        assert_eq!(parse("soon"), None);
        assert_eq!(parse("+1"), None);
        assert_eq!(parse(""), None);
        assert_eq!(parse("99999999999999999999999"), Some(u64::MAX));
    }
}
