//! One attempt to deliver one event, over a connection of its own.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HOST, USER_AGENT};
use http::uri::PathAndQuery;
use http::{HeaderMap, Method, Request, Uri};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use crate::Timestamp;
use crate::webhooks::{EventType, Signer};

/// Where deliveries go, and what signs them.
#[derive(Clone, Debug)]
pub(in crate::mock) struct Target(Arc<Address>);

#[derive(Debug)]
struct Address {
    host: String,
    port: u16,
    /// As it stands in the `Host` header.
    authority: String,
    path: String,
    signer: Signer,
}

impl Target {
    /// Reads a URL and a signing secret, or says what is wrong with them.
    pub(in crate::mock) fn new(url: &str, secret: &str) -> Result<Self, String> {
        let uri: Uri = url
            .parse()
            .map_err(|error| format!("{url:?} is no URL to deliver to: {error}"))?;
        match uri.scheme_str() {
            Some("http") => {}
            Some("https") => return Err(format!("{url:?}: the mock delivers over http only")),
            _ => {
                return Err(format!(
                    "{url:?} is no URL to deliver to: it does not start with http://"
                ));
            }
        }
        let Some(authority) = uri
            .authority()
            .filter(|authority| !authority.as_str().contains('@'))
        else {
            return Err(format!(
                "{url:?}: the mock does not send a user name to a webhook endpoint"
            ));
        };
        let signer = Signer::new(secret)
            .map_err(|error| format!("the secret for {url:?} cannot be used: {error}"))?;

        Ok(Self(Arc::new(Address {
            host: authority.host().trim_matches(['[', ']']).to_owned(),
            port: authority.port_u16().unwrap_or(80),
            authority: authority.to_string(),
            path: match uri.path_and_query().map_or("", PathAndQuery::as_str) {
                path if path.starts_with('/') => path.to_owned(),
                query => format!("/{query}"),
            },
            signer,
        })))
    }

    /// Signs `body` for `at` and posts it. Returns the status that was answered within `limit`, or what went wrong.
    ///
    /// A redirect is an answer like any other: it is not followed.
    pub(in crate::mock) async fn post(
        &self,
        event_type: &str,
        at: i64,
        body: Bytes,
        limit: Duration,
    ) -> Result<u16, String> {
        let at = Timestamp::from_unix(at)
            .to_system_time()
            .unwrap_or(std::time::UNIX_EPOCH);
        let signature = self.0.signer.sign(&EventType::from(event_type), at, &body);

        match tokio::time::timeout(limit, self.0.exchange(signature, body)).await {
            Ok(Ok(status)) => Ok(status),
            Ok(Err(error)) => Err(chain(&*error)),
            Err(_) => Err(format!("no complete answer within {limit:?}")),
        }
    }
}

impl Address {
    async fn exchange(
        &self,
        signature: HeaderMap,
        body: Bytes,
    ) -> Result<u16, Box<dyn Error + Send + Sync>> {
        let stream = TcpStream::connect((self.host.as_str(), self.port)).await?;
        stream.set_nodelay(true)?;
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        // Ends with this function, whichever way that goes.
        let mut driver = JoinSet::new();
        driver.spawn(connection);

        let mut request = Request::new(Full::new(body));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = self.path.parse()?;
        *request.headers_mut() = signature;
        request.headers_mut().insert(HOST, self.authority.parse()?);
        request
            .headers_mut()
            .insert(CONTENT_TYPE, "application/json".parse()?);
        request.headers_mut().insert(
            USER_AGENT,
            concat!("audience-mock/", env!("CARGO_PKG_VERSION")).parse()?,
        );

        let answer = sender.send_request(request).await?;
        let status = answer.status().as_u16();
        // Nobody needs the body, but an answer is complete only with all of it.
        let mut body = answer.into_body();
        while let Some(frame) = body.frame().await {
            frame?;
        }

        Ok(status)
    }
}

fn chain(error: &(dyn Error + 'static)) -> String {
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
    fn an_endpoint_that_cannot_be_delivered_to_is_refused_with_the_reason() {
        for (url, reason) in [
            ("https://example.com/hook", "over http only"),
            ("ftp://example.com", "does not start with http://"),
            ("/hook", "does not start with http://"),
            ("http://", "is no URL"),
            ("http://user@example.com/", "user name"),
        ] {
            let error = Target::new(url, "a-secret-of-the-test").unwrap_err();

            assert!(error.contains(reason), "{url}: {error}");
        }
    }

    #[test]
    fn a_url_is_taken_apart_as_it_stands() {
        let target = Target::new("http://[::1]:8080/hook?a=b", "a-secret-of-the-test").unwrap();
        let plain = Target::new("http://localhost", "a-secret-of-the-test").unwrap();
        let query = Target::new("http://localhost:4000?token=1", "a-secret-of-the-test").unwrap();

        assert_eq!((&*target.0.host, target.0.port), ("::1", 8080));
        assert_eq!(
            (&*target.0.authority, &*target.0.path),
            ("[::1]:8080", "/hook?a=b")
        );
        assert_eq!(
            (&*plain.0.host, plain.0.port, &*plain.0.path),
            ("localhost", 80, "/")
        );
        assert_eq!(
            (&*query.0.authority, &*query.0.path),
            ("localhost:4000", "/?token=1")
        );
    }

    #[test]
    fn a_target_does_not_print_its_secret() {
        let target = Target::new("http://localhost", "a-secret-of-the-test").unwrap();

        assert!(!format!("{target:?}").contains("a-secret-of-the-test"));
    }
}
