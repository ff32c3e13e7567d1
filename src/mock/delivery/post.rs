//! One attempt to deliver an event, over a new connection.

use std::error::Error;
use std::net::Ipv6Addr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HOST, USER_AGENT};
use http::uri::{Authority, PathAndQuery};
use http::{HeaderMap, Method, Request, Uri};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use super::signing::{SignedDelivery, Signers, SigningFault};

/// The URL that events are posted to, and the signer for them. Cheap to clone.
#[derive(Clone, Debug)]
pub(in crate::mock) struct Target(Arc<TargetInner>);

#[derive(Debug)]
struct TargetInner {
    host: String,
    port: u16,
    /// The value of the `Host` header.
    authority: String,
    path_and_query: String,
    signers: Signers,
}

impl Target {
    /// Creates a target from a URL and a signing secret.
    ///
    /// # Errors
    ///
    /// A message for the test's author, if the URL is not a plain `http://…` URL or the secret is unusable.
    pub(in crate::mock) fn new(url: &str, secret: &str) -> Result<Self, String> {
        let uri: Uri = url
            .parse()
            .map_err(|error| format!("{url:?} is not a valid endpoint URL: {error}"))?;
        match uri.scheme_str() {
            Some("http") => {}
            Some("https") => return Err(format!("{url:?}: the mock delivers over http only")),
            _ => {
                return Err(format!(
                    "{url:?} is not a valid endpoint URL: it does not start with http://"
                ));
            }
        }
        let Some(authority) = uri
            .authority()
            .filter(|authority| !authority.as_str().contains('@'))
        else {
            return Err(format!(
                "{url:?}: the mock does not support a user name in an endpoint URL"
            ));
        };
        let (host, port) =
            host_and_port(authority).map_err(|problem| format!("{url:?}: {problem}"))?;
        let signers = Signers::new(secret)
            .map_err(|error| format!("the secret for {url:?} cannot be used: {error}"))?;

        Ok(Self(Arc::new(TargetInner {
            host,
            port,
            authority: authority.to_string(),
            path_and_query: match uri.path_and_query().map_or("", PathAndQuery::as_str) {
                path if path.starts_with('/') => path.to_owned(),
                query => format!("/{query}"),
            },
            signers,
        })))
    }

    /// Signs `body` for the time `at` and applies the fault.
    pub(super) fn sign(
        &self,
        event_type: &str,
        at: SystemTime,
        body: Bytes,
        fault: Option<&SigningFault>,
    ) -> SignedDelivery {
        self.0.signers.sign(event_type, at, body, fault)
    }

    /// Returns the reason that a receiver refuses a delivery at `time`, if its signature is invalid or too old.
    pub(super) fn signature_problem(
        &self,
        delivery: &SignedDelivery,
        time: SystemTime,
    ) -> Option<String> {
        self.0.signers.problem(delivery, time)
    }

    /// Posts a delivery. Returns the status of the response.
    ///
    /// Does not follow redirects: a 3xx is returned like any other status.
    ///
    /// # Errors
    ///
    /// A text for the attempt log, if no complete response arrives within `timeout`.
    pub(super) async fn post(
        &self,
        delivery: SignedDelivery,
        timeout: Duration,
    ) -> Result<u16, String> {
        let SignedDelivery { headers, body } = delivery;

        match tokio::time::timeout(timeout, self.0.send(headers, body)).await {
            Ok(Ok(status)) => Ok(status),
            Ok(Err(error)) => Err(error_chain(&*error)),
            Err(_) => Err(format!(
                "timed out after {timeout:?} waiting for the complete response"
            )),
        }
    }

    /// Returns the URL that events are posted to.
    pub(in crate::mock) fn url(&self) -> String {
        format!("http://{}{}", self.0.authority, self.0.path_and_query)
    }
}

impl TargetInner {
    async fn send(
        &self,
        signed_headers: HeaderMap,
        body: Bytes,
    ) -> Result<u16, Box<dyn Error + Send + Sync>> {
        let stream = TcpStream::connect((self.host.as_str(), self.port)).await?;
        stream.set_nodelay(true)?;
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        // A set aborts the connection's task when this function returns or its future is dropped.
        let mut connection_task = JoinSet::new();
        connection_task.spawn(connection);

        let response = sender
            .send_request(self.request(signed_headers, body)?)
            .await?;
        let status = response.status().as_u16();
        // The body is not used, but the response is complete only with all of it.
        let mut body = response.into_body();
        while let Some(frame) = body.frame().await {
            frame?;
        }

        Ok(status)
    }

    fn request(
        &self,
        signed_headers: HeaderMap,
        body: Bytes,
    ) -> Result<Request<Full<Bytes>>, Box<dyn Error + Send + Sync>> {
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = self.path_and_query.parse()?;
        let headers = request.headers_mut();
        *headers = signed_headers;
        headers.insert(HOST, self.authority.parse()?);
        headers.insert(CONTENT_TYPE, "application/json".parse()?);
        headers.insert(
            USER_AGENT,
            concat!("audience-mock/", env!("CARGO_PKG_VERSION")).parse()?,
        );
        Ok(request)
    }
}

/// Returns the host, without the brackets of an IPv6 address, and the port. Default: port 80.
fn host_and_port(authority: &Authority) -> Result<(String, u16), String> {
    let host = authority.host();
    // `http` accepts any text after the colon, and then returns no port.
    let port = match authority.port_u16() {
        None if authority.as_str() == host => 80,
        None | Some(0) => return Err("the port must be a number from 1 to 65535".into()),
        Some(port) => port,
    };
    let Some(bracketed) = host.strip_prefix('[') else {
        return Ok((host.to_owned(), port));
    };
    let address = bracketed.trim_end_matches(']');
    match address.parse::<Ipv6Addr>() {
        Ok(_) => Ok((address.to_owned(), port)),
        Err(_) => Err(format!("{address:?} is not a valid IPv6 address")),
    }
}

/// Returns the texts of an error and its sources, joined by `: `.
fn error_chain(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text.push_str(": ");
        text.push_str(&error.to_string());
        source = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unusable_endpoint_url_is_refused_with_the_reason() {
        for (url, reason) in [
            ("https://example.com/hook", "over http only"),
            ("ftp://example.com", "does not start with http://"),
            ("/hook", "does not start with http://"),
            ("http://", "is not a valid endpoint URL"),
            ("http://user@example.com/", "user name"),
            ("http://127.0.0.1:8080x/hook", "from 1 to 65535"),
            ("http://127.0.0.1:99999/hook", "from 1 to 65535"),
            ("http://127.0.0.1:-1/hook", "from 1 to 65535"),
            ("http://127.0.0.1:0/hook", "from 1 to 65535"),
            ("http://127.0.0.1:/hook", "from 1 to 65535"),
            ("http://[::1]:8080x/hook", "from 1 to 65535"),
            ("http://[::1]8080/hook", "from 1 to 65535"),
            ("http://[127.0.0.1]/hook", "is not a valid IPv6 address"),
            ("http://[::1/hook", "is not a valid endpoint URL"),
            ("http://a b/hook", "is not a valid endpoint URL"),
        ] {
            let error = Target::new(url, "a-secret-of-the-test").unwrap_err();

            assert!(error.contains(reason), "{url}: {error}");
        }
    }

    #[test]
    fn a_url_is_split_into_host_port_and_path() {
        let target = Target::new("http://[::1]:8080/hook?a=b", "a-secret-of-the-test").unwrap();
        let plain = Target::new("http://localhost", "a-secret-of-the-test").unwrap();
        let query = Target::new("http://localhost:4000?token=1", "a-secret-of-the-test").unwrap();

        assert_eq!((&*target.0.host, target.0.port), ("::1", 8080));
        assert_eq!(
            (&*target.0.authority, &*target.0.path_and_query),
            ("[::1]:8080", "/hook?a=b")
        );
        assert_eq!(
            (&*plain.0.host, plain.0.port, &*plain.0.path_and_query),
            ("localhost", 80, "/")
        );
        assert_eq!(
            (&*query.0.authority, &*query.0.path_and_query),
            ("localhost:4000", "/?token=1")
        );
    }

    #[test]
    fn debug_output_does_not_contain_the_secret() {
        let target = Target::new("http://localhost", "a-secret-of-the-test").unwrap();

        assert!(!format!("{target:?}").contains("a-secret-of-the-test"));
    }
}
