//! What the interface document only names: a request of your own making.

use std::fmt;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::client::wire::{Operation, Request};
use crate::client::{Answer, Call, CallOptions, Repeat, call_options};
use crate::{Client, Error};

const REQUEST: Operation = Operation {
    name: "request",
    template: "(request)",
};

impl Client {
    /// A request to a path that this crate has no method for: `POST /emails`, or the deletion of a
    /// contact (interface section 4.7). Each segment is data, and encoded as one.
    ///
    /// It is sent with the client's key and settings, and never repeated on its own: say
    /// [`idempotent`](RawRequest::idempotent) where that does no harm.
    ///
    /// # Errors
    ///
    /// A status other than 2xx is [`ErrorKind::Api`](crate::ErrorKind::Api). A segment that is empty,
    /// `.` or `..`, is [`ErrorKind::Input`](crate::ErrorKind::Input).
    ///
    /// # Example: send a mail
    ///
    /// ```
    /// # #[cfg(feature = "mock")]
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), audience::Error> {
    /// # let server = audience::mock::MockServer::start().await;
    /// # let client = server.client();
    /// use audience::Method;
    /// use serde_json::{Value, json};
    ///
    /// let mail = json!({"from": "shop@example.com", "to": "ada@example.com", "subject": "Hello"});
    /// let raw = client.request(Method::POST, ["emails"]).json(&mail)?.await?;
    ///
    /// let sent: Value = raw.json()?;
    /// assert!(sent["id"].is_string());
    /// # Ok(()) }
    /// # #[cfg(not(feature = "mock"))] fn main() {}
    /// ```
    pub fn request<S: AsRef<str>>(
        &self,
        method: Method,
        segments: impl IntoIterator<Item = S>,
    ) -> RawRequest {
        let request = Request::new(REQUEST, method, segments, Repeat::Never);
        RawRequest {
            client: self.clone(),
            request,
            options: CallOptions::default(),
        }
    }
}

/// A request of your own making, sent by `.await`: see [`Client::request`].
#[must_use = "a call is made only when it is awaited"]
pub struct RawRequest {
    client: Client,
    request: Result<Request, Error>,
    options: CallOptions,
}

impl RawRequest {
    /// Adds a query parameter.
    pub fn query(mut self, name: impl AsRef<str>, value: impl AsRef<str>) -> Self {
        self.request = self
            .request
            .map(|request| request.query(name.as_ref(), value.as_ref()));
        self
    }

    /// Sets a header, such as an idempotency key. Those that the client sets itself, its key and the
    /// content type among them, stay as they are. One that HTTP does not allow is refused as
    /// [`ErrorKind::Input`](crate::ErrorKind::Input) when the call is awaited.
    pub fn header(mut self, name: impl AsRef<str>, value: impl AsRef<str>) -> Self {
        self.request = self.request.and_then(|mut request| {
            let name = HeaderName::try_from(name.as_ref());
            let value = HeaderValue::try_from(value.as_ref());
            let (Ok(name), Ok(value)) = (name, value) else {
                let error = Error::input("a header has a name or a value that HTTP does not allow");
                return Err(error.at(REQUEST.name));
            };
            request.headers.insert(name, value);
            Ok(request)
        });
        self
    }

    /// Sets the body.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Input`](crate::ErrorKind::Input) where the value cannot be written as JSON, and
    /// where the path was refused.
    pub fn json(mut self, body: &(impl Serialize + ?Sized)) -> Result<Self, Error> {
        self.request = Ok(self.request?.json(body)?);
        Ok(self)
    }

    /// Says that doing it twice comes to the same as doing it once, so that it may be repeated.
    pub fn idempotent(mut self) -> Self {
        self.options.repeatable = true;
        self
    }

    call_options!();
}

impl IntoFuture for RawRequest {
    type Output = Result<RawResponse, Error>;
    type IntoFuture = Call<RawResponse>;

    fn into_future(self) -> Self::IntoFuture {
        Call::new(async move {
            self.client
                .execute(self.request?, self.options)
                .await
                .map(RawResponse::new)
        })
    }
}

crate::client::opaque_debug!(RawRequest);

/// An answer with a status of 2xx, as it came.
pub struct RawResponse(Answer);

impl RawResponse {
    pub(crate) fn new(answer: Answer) -> Self {
        Self(answer)
    }

    /// The HTTP status.
    #[must_use]
    pub fn status(&self) -> StatusCode {
        self.0.response.status
    }

    /// The headers.
    #[must_use]
    pub fn headers(&self) -> &HeaderMap {
        &self.0.response.headers
    }

    /// The body; empty where there was none.
    #[must_use]
    pub fn bytes(&self) -> &Bytes {
        &self.0.response.body
    }

    /// The body, read from JSON.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Decode`](crate::ErrorKind::Decode) where it is not JSON of that shape.
    pub fn json<T: DeserializeOwned>(&self) -> Result<T, Error> {
        self.0.json()
    }

    /// How many requests it took.
    #[must_use]
    pub fn attempts(&self) -> u32 {
        self.0.attempts
    }
}

impl fmt::Debug for RawResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RawResponse")
            .field("status", &self.status().as_u16())
            .field("body", &format_args!("<{} bytes>", self.bytes().len()))
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ErrorKind;

    fn client() -> Client {
        Client::new("http://localhost", "key").unwrap()
    }

    #[test]
    fn segments_are_data_and_the_request_is_never_repeated_on_its_own() {
        let raw = client()
            .request(Method::DELETE, ["contacts", "a/b@x.io"])
            .query("hard", "yes & now");

        let request = raw.request.unwrap();

        assert_eq!(
            (request.path.as_str(), request.query.as_str()),
            ("/contacts/a%2Fb%40x.io", "hard=yes%20%26%20now")
        );
        assert_eq!(request.repeat, Repeat::Never);
    }

    #[test]
    fn a_header_is_sent_beside_the_others_or_refused() {
        let raw = || client().request(Method::POST, ["emails"]);

        let request = raw().header("Idempotency-Key", "k 1").request.unwrap();
        assert_eq!(request.headers["idempotency-key"], "k 1");
        for (name, value) in [("no spaces", "x"), ("x", "line\nbreak"), ("", "x")] {
            let error = raw().header(name, value).request.unwrap_err();

            assert_eq!(error.kind(), ErrorKind::Input);
        }
    }

    #[test]
    fn a_segment_that_would_reach_another_endpoint_is_refused() {
        let error = client()
            .request(Method::DELETE, ["contacts", ".."])
            .json(&())
            .unwrap_err();

        assert_eq!(error.kind(), ErrorKind::Input);
    }
}
