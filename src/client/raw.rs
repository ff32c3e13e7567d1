use std::fmt;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::call::{CallOptions, ResponseFuture, call_settings, opaque_debug, wait_for_call};
use super::exchange::{Operation, Request, RetrySafety, Success, is_set_by_http};
use crate::{Client, Error};

const OPERATION: Operation = Operation {
    name: "request",
    template: "(request)",
};

impl Client {
    /// Creates a request to any path of the service, for endpoints that have no method here, such as the endpoints of
    /// segments and topics ([interface section 4.7](crate::interface#4.7)).
    ///
    /// Each segment of the path is percent-encoded. The request is sent with the client's key and
    /// settings. It is not retried unless [`idempotent`](RawRequest::idempotent) is set.
    ///
    /// The segments are sent as given. The methods of [`Contacts`](crate::contacts::Contacts) trim an address and
    /// convert it to lower case, but this method does not: convert it with
    /// [`normalized_address`](crate::contacts::normalized_address). The body of a 2xx response is not checked: it may
    /// still report an error.
    ///
    /// # Errors
    ///
    /// Awaiting the request fails with [`ErrorKind::Api`](crate::ErrorKind::Api) if the status is not 2xx,
    /// and with [`ErrorKind::Input`](crate::ErrorKind::Input) if a segment is empty, `.` or `..`.
    ///
    /// # Example: a mail with an idempotency key
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), audience::Error> {
    /// # let server = audience::mock::MockServer::start().await;
    /// # let client = server.client();
    /// use audience::Method;
    /// use audience::emails::{Email, SentEmail};
    ///
    /// let mail = Email::new().from("shop@example.com").to("ada@example.com").subject("Hello");
    /// let request = client.request(Method::POST, ["emails"]).header("idempotency-key", "order-7");
    ///
    /// let sent: SentEmail = request.json(&mail)?.idempotent().await?.json()?;
    /// assert!(!sent.id.is_empty());
    /// # Ok(()) }
    /// ```
    ///
    /// # Example: an address in the path
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), audience::Error> {
    /// # let server = audience::mock::MockServer::builder().seed_contact("ada@example.com").start().await;
    /// # let client = server.client();
    /// use audience::Method;
    /// use audience::contacts::normalized_address;
    ///
    /// let typed = " Ada@Example.com";
    /// let request = client.request(Method::GET, ["contacts", &normalized_address(typed)]);
    ///
    /// assert_eq!(request.await?.status(), 200);
    /// # assert_eq!(server.requests()[0].path, "/contacts/ada%40example.com");
    /// # Ok(()) }
    /// ```
    ///
    /// # Example: delete a contact by another request
    ///
    /// [`Contacts::delete`](crate::contacts::Contacts::delete) sends the most likely request. If your service expects
    /// another method or path, send the request yourself. The mock deletes contacts only if its dialect says so. By
    /// default, it responds 501, so that no test passes although the contact still exists.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), audience::Error> {
    /// use audience::Method;
    /// use audience::mock::dialect::ContactDeletion;
    /// use audience::mock::{Dialect, MockServer};
    ///
    /// let dialect = Dialect { contact_deletion: ContactDeletion::NoContent, ..Dialect::default() };
    /// let server = MockServer::builder().dialect(dialect).seed_contact("ada@example.com").start().await;
    /// let client = server.client();
    ///
    /// // A second deletion changes nothing, so it may be retried.
    /// let request = client.request(Method::DELETE, ["contacts", "ada@example.com"]).idempotent();
    /// match request.await {
    ///     Ok(_) => println!("erased"),
    ///     Err(error) if error.is_not_found() => println!("there was no such contact"),
    ///     Err(error) => return Err(error),
    /// }
    ///
    /// assert!(server.contact("ada@example.com").is_none());
    /// # Ok(()) }
    /// ```
    pub fn request<S: AsRef<str>>(
        &self,
        method: Method,
        segments: impl IntoIterator<Item = S>,
    ) -> RawRequest {
        RawRequest {
            client: self.clone(),
            request: Request::new(method, segments, RetrySafety::Never)
                .map_err(|error| error.to_string()),
            options: CallOptions::default(),
        }
    }
}

/// A request to any endpoint of the service. `.await` sends it: see [`Client::request`].
///
/// # Example: send the same request twice
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), audience::Error> {
/// # let server = audience::mock::MockServer::start().await;
/// # let client = server.client();
/// use audience::Method;
///
/// let newest = client.request(Method::GET, ["contacts"]).query("limit", "1");
///
/// newest.clone().await?;
/// newest.await?;
/// # assert_eq!(server.requests().len(), 2);
/// # Ok(()) }
/// ```
#[derive(Clone)]
#[must_use = "a call is sent only when it is awaited"]
pub struct RawRequest {
    client: Client,
    /// The request, or the reason why it cannot be sent, as text, because an error cannot be cloned.
    request: Result<Request, String>,
    options: CallOptions,
}

impl RawRequest {
    /// Adds a query parameter. Name and value are percent-encoded.
    ///
    /// # Example: a page of two contacts
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), audience::Error> {
    /// # let server = audience::mock::MockServer::start().await;
    /// # let client = server.client();
    /// use audience::Method;
    ///
    /// client.request(Method::GET, ["contacts"]).query("limit", "2").query("query", "a & b").await?;
    ///
    /// let sent = &server.requests()[0];
    /// assert_eq!(sent.query.as_deref(), Some("limit=2&query=a%20%26%20b"));
    /// # Ok(()) }
    /// ```
    pub fn query(self, name: impl AsRef<str>, value: impl AsRef<str>) -> Self {
        self.change(|request| Ok(request.query(name.as_ref(), value.as_ref())))
    }

    /// Sets a header, such as an idempotency key.
    ///
    /// It cannot replace a header that the client sets itself, such as the key and the content type.
    ///
    /// # Errors
    ///
    /// Awaiting the call fails with [`ErrorKind::Input`](crate::ErrorKind::Input), and nothing is sent,
    /// - if the name or the value is not valid in HTTP;
    /// - if the header frames the request or concerns only the connection: `connection`,
    ///   `content-length`, `expect`, `host`, `keep-alive`, `proxy-connection`, `te`, `trailer`,
    ///   `transfer-encoding` and `upgrade`.
    ///
    /// # Example: an idempotency key
    ///
    /// ```
    /// # let client = audience::Client::new("http://localhost", "key")?;
    /// use audience::Method;
    ///
    /// let request = client.request(Method::POST, ["emails"]).header("idempotency-key", "order-7");
    /// # Ok::<(), audience::Error>(())
    /// ```
    pub fn header(self, name: impl AsRef<str>, value: impl AsRef<str>) -> Self {
        self.change(|mut request| {
            let name = HeaderName::try_from(name.as_ref())
                .map_err(|_| Error::input("the name of a header is not valid in HTTP"))?;
            let value = HeaderValue::try_from(value.as_ref()).map_err(|_| {
                Error::input(format!(
                    "the value of the header `{name}` is not valid in HTTP"
                ))
            })?;
            if is_set_by_http(&name) {
                let message = format!("the header `{name}` is set by HTTP itself; leave it out");
                return Err(Error::input(message));
            }
            request.headers.insert(name, value);
            Ok(request)
        })
    }

    /// Sets the body, written as JSON.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Input`](crate::ErrorKind::Input) if the value cannot be written as JSON, or if the
    /// path or a header is invalid. If the value's own `Serialize` fails, `source()` has its text.
    ///
    /// # Example: the body of a merge
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), audience::Error> {
    /// # let server = audience::mock::MockServer::builder().seed_contact("ada@example.com").start().await;
    /// # let client = server.client();
    /// use audience::Method;
    /// use serde_json::json;
    ///
    /// let body = json!({"properties": {"seats": 3}});
    /// client.request(Method::PATCH, ["contacts", "ada@example.com"]).json(&body)?.await?;
    ///
    /// assert_eq!(server.contact("ada@example.com").unwrap().properties["seats"], 3);
    /// # Ok(()) }
    /// ```
    pub fn json(self, body: &(impl Serialize + ?Sized)) -> Result<Self, Error> {
        let request = self.request.map_err(Error::input);
        let request = request.and_then(|request| request.json(body));
        let request = request.map_err(|error| error.at(OPERATION.name))?;
        Ok(Self {
            request: Ok(request),
            ..self
        })
    }

    /// Allows retries of this request even if an earlier attempt may have been applied. Default: the request is
    /// never retried.
    ///
    /// # Example: retry a request that only reads
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), audience::Error> {
    /// # let server = audience::mock::MockServer::start().await;
    /// # let client = server.client();
    /// # server.fault(audience::mock::Fault::close_before().times(1));
    /// use audience::Method;
    ///
    /// // The server closes the first connection without a response.
    /// let response = client.request(Method::GET, ["contacts"]).idempotent().await?;
    ///
    /// assert_eq!(response.attempts(), 2);
    /// # Ok(()) }
    /// ```
    pub fn idempotent(mut self) -> Self {
        self.options.idempotent = true;
        self
    }

    fn change(mut self, change: impl FnOnce(Request) -> Result<Request, Error>) -> Self {
        self.request = self
            .request
            .and_then(|request| change(request).map_err(|error| error.to_string()));
        self
    }
}

call_settings!(RawRequest);
wait_for_call!(RawRequest => Result<RawResponse, Error>);
opaque_debug!(RawRequest);

impl IntoFuture for RawRequest {
    type Output = Result<RawResponse, Error>;
    type IntoFuture = ResponseFuture<RawResponse>;

    fn into_future(self) -> Self::IntoFuture {
        let Self {
            client,
            request,
            options,
        } = self;
        let request = request.map_err(Error::input);
        client.send(OPERATION, request, options, |success| Ok(success.into()))
    }
}

/// A response with a 2xx status, as the service sent it.
///
/// [`Client::request`], [`merge_properties`](crate::contacts::Contacts::merge_properties) and
/// [`SendEmail::raw`](crate::emails::SendEmail::raw) return it.
///
/// # Example: status and body
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), audience::Error> {
/// # let server = audience::mock::MockServer::builder().seed_contact("ada@example.com").start().await;
/// # let contacts = server.client().contacts();
/// let response = contacts.merge_properties("ada@example.com", [("plan", "pro")]).await?;
///
/// println!("{}: {}", response.status(), String::from_utf8_lossy(response.bytes()));
/// # assert_eq!(response.status(), 200);
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct RawResponse(Success);

impl From<Success> for RawResponse {
    fn from(success: Success) -> Self {
        Self(success)
    }
}

impl RawResponse {
    /// Returns the HTTP status.
    #[must_use]
    pub fn status(&self) -> StatusCode {
        self.0.response.status()
    }

    /// Returns the headers.
    #[must_use]
    pub fn headers(&self) -> &HeaderMap {
        self.0.response.headers()
    }

    /// Returns the body. It is empty if the response has none.
    ///
    /// # Example: keep the JSON as the service wrote it
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), audience::Error> {
    /// # let server = audience::mock::MockServer::builder().seed_contact("ada@example.com").start().await;
    /// # let client = server.client();
    /// use audience::Method;
    ///
    /// let response = client.request(Method::GET, ["contacts", "ada@example.com"]).await?;
    ///
    /// let backup: Vec<u8> = response.bytes().to_vec();
    /// assert!(backup.starts_with(b"{"));
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn bytes(&self) -> &Bytes {
        self.0.response.body()
    }

    /// Decodes the body from JSON.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Decode`](crate::ErrorKind::Decode) if the body is not JSON, or does not fit the type.
    ///
    /// # Example: into a type of your own
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), audience::Error> {
    /// # let server = audience::mock::MockServer::builder().seed_contact("ada@example.com").start().await;
    /// # let client = server.client();
    /// use std::collections::HashMap;
    /// use audience::Method;
    /// use serde_json::Value;
    ///
    /// let response = client.request(Method::GET, ["contacts", "ada@example.com"]).await?;
    ///
    /// let members: HashMap<String, Value> = response.json()?;
    /// assert_eq!(members["unsubscribed"], false);
    /// # Ok(()) }
    /// ```
    pub fn json<T: DeserializeOwned>(&self) -> Result<T, Error> {
        self.0.json()
    }

    /// Returns how many attempts the call made.
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
    fn segments_are_encoded_and_the_request_is_not_retried_by_default() {
        let raw = client()
            .request(Method::DELETE, ["contacts", "a/b@x.io"])
            .query("hard", "yes & now");

        let request = raw.request.unwrap();

        assert_eq!(
            (request.path.as_str(), request.query.as_str()),
            ("/contacts/a%2Fb%40x.io", "hard=yes%20%26%20now")
        );
        assert_eq!(request.retry_safety, RetrySafety::Never);
    }

    #[test]
    fn a_valid_header_is_added_and_an_invalid_one_is_refused() {
        let raw = || client().request(Method::POST, ["emails"]);

        let request = raw().header("Idempotency-Key", "k 1").request.unwrap();
        assert_eq!(request.headers["idempotency-key"], "k 1");
        for (name, value) in [("no spaces", "x"), ("x", "line\nbreak"), ("", "x")] {
            let error = raw().header(name, value).json(&()).unwrap_err();

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
