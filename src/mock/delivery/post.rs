//! One attempt to deliver an event, over a new connection.

use std::error::Error;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HOST, USER_AGENT};
use http::{HeaderMap, Method, Request};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use super::endpoint_url::EndpointUrl;
use super::fault::DeliveryFault;
use super::signing::{SignedDelivery, Signers};

/// The URL that events are posted to, and the signer for them. Cheap to clone.
#[derive(Clone, Debug)]
pub(in crate::mock) struct Target(Arc<TargetInner>);

#[derive(Debug)]
struct TargetInner {
    url: EndpointUrl,
    signers: Signers,
}

impl Target {
    /// Creates a target from a URL and a signing secret.
    ///
    /// # Errors
    ///
    /// A message for the test's author, if the URL is not a plain `http://…` URL or the secret is unusable.
    pub(in crate::mock) fn new(url: &str, secret: &str) -> Result<Self, String> {
        let parsed = EndpointUrl::parse(url)?;
        let signers = Signers::new(secret)
            .map_err(|error| format!("the secret for {url:?} cannot be used: {error}"))?;

        Ok(Self(Arc::new(TargetInner {
            url: parsed,
            signers,
        })))
    }

    /// Signs `body` for the time `at` and applies the fault.
    pub(super) fn sign(
        &self,
        event_type: &str,
        at: SystemTime,
        body: Bytes,
        fault: Option<&DeliveryFault>,
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
        format!(
            "http://{}{}",
            self.0.url.authority, self.0.url.path_and_query
        )
    }
}

impl TargetInner {
    async fn send(
        &self,
        signed_headers: HeaderMap,
        body: Bytes,
    ) -> Result<u16, Box<dyn Error + Send + Sync>> {
        let stream = TcpStream::connect((self.url.host.as_str(), self.url.port)).await?;
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
        *request.uri_mut() = self.url.path_and_query.parse()?;
        let headers = request.headers_mut();
        *headers = signed_headers;
        headers.insert(HOST, self.url.authority.parse()?);
        headers.insert(CONTENT_TYPE, "application/json".parse()?);
        headers.insert(
            USER_AGENT,
            concat!("audience-mock/", env!("CARGO_PKG_VERSION")).parse()?,
        );
        Ok(request)
    }
}

/// Returns the texts of an error and its sources, joined by `: `.
pub(in crate::mock) fn error_chain(error: &(dyn Error + 'static)) -> String {
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
    fn debug_output_does_not_contain_the_secret() {
        let target = Target::new("http://localhost", "a-secret-of-the-test").unwrap();

        assert!(!format!("{target:?}").contains("a-secret-of-the-test"));
    }
}
