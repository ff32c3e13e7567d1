//! Calls a running mock below `/_mock/`.

use std::error::Error;
use std::str::FromStr;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HOST};
use http::uri::Authority;
use http::{Method, Request, StatusCode, Uri};
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::TcpStream;

/// The URL of a mock, such as `http://127.0.0.1:4010`.
#[derive(Clone, Debug)]
pub(crate) struct MockUrl {
    host: String,
    port: u16,
    authority: Authority,
}

impl FromStr for MockUrl {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let form = "it is not a URL such as http://127.0.0.1:4010";
        let uri: Uri = text.parse().map_err(|_| form)?;
        if uri.scheme_str() != Some("http") {
            return Err("it does not start with http://; a mock has no TLS".into());
        }
        let authority = uri.authority().ok_or(form)?.clone();
        let has_port = authority.as_str() != authority.host();
        let port = match authority.port_u16() {
            Some(port) => port,
            None if has_port => return Err(form.into()),
            None => 80,
        };
        if !matches!(uri.path(), "" | "/") || uri.query().is_some() {
            return Err("it has a path; leave it out".into());
        }
        Ok(Self {
            host: authority.host().trim_matches(['[', ']']).to_owned(),
            port,
            authority,
        })
    }
}

impl MockUrl {
    /// Calls a path below `/_mock/`, and returns the JSON of the response. `Null` if it has none.
    ///
    /// # Errors
    ///
    /// Fails if no mock listens there, or if it refuses the call. The message has the reason.
    pub(crate) async fn call(
        &self,
        method: Method,
        path: &str,
        body: Option<Bytes>,
    ) -> Result<Value, String> {
        let mut request = Request::builder()
            .method(method)
            .uri(format!("/_mock/{path}"))
            .header(HOST, self.authority.as_str());
        if body.is_some() {
            request = request.header(CONTENT_TYPE, "application/json");
        }
        let request = request
            .body(Full::new(body.unwrap_or_default()))
            .map_err(|error| format!("could not send the request: {error}"))?;
        let (status, body) = self.send(request).await?;

        if status == StatusCode::NO_CONTENT {
            return Ok(Value::Null);
        }
        let json = serde_json::from_slice::<Value>(&body).ok();
        let refusal = json
            .as_ref()
            .and_then(|json| json.pointer("/error/message"))
            .and_then(Value::as_str);
        match (status.is_success(), json.as_ref(), refusal) {
            (true, Some(json), _) => Ok(json.clone()),
            (false, _, Some(refusal)) => Err(format!("the mock refused this: {refusal}")),
            _ => Err(format!(
                "http://{} responded with status {status}, but not as a mock does; is it another program?",
                self.authority
            )),
        }
    }

    async fn send(&self, request: Request<Full<Bytes>>) -> Result<(StatusCode, Bytes), String> {
        let address = (self.host.as_str(), self.port);
        let stream = TcpStream::connect(address).await.map_err(|error| {
            format!(
                "no mock listens at http://{}: {error}; start one with `audience-mock`, or choose another with --url",
                self.authority
            )
        })?;
        let failed = |error: hyper::Error| {
            format!(
                "http://{} did not respond as a mock does: {}",
                self.authority,
                with_sources(&error)
            )
        };
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream))
            .await
            .map_err(failed)?;
        // Dropping the sender ends the connection, which would otherwise stay open for further requests.
        let exchange = async move {
            let response = sender.send_request(request).await?;
            let status = response.status();
            Ok((status, response.into_body().collect().await?.to_bytes()))
        };
        let (_, response) = tokio::join!(connection, exchange);
        response.map_err(failed)
    }
}

fn with_sources(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text += &format!(": {error}");
        source = error.source();
    }
    text
}
