//! HTTP for all parts of the mock: one request over a connection of its own, as deliveries, the examiner and the
//! commands of `audience-mock` send them, and the responses of the server.

use std::error::Error;
use std::net::Ipv6Addr;
use std::{fmt, io};

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HOST, USER_AGENT};
use http::uri::{Authority, PathAndQuery};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt as _, Either, Full};
use hyper::body::Body;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use super::ChangeStream;

const AGENT: &str = concat!("audience-mock/", env!("CARGO_PKG_VERSION"));

/// An `http://…` URL, split into what a connection and a request need.
#[derive(Clone, Debug)]
pub(in crate::mock) struct HttpUrl {
    /// Without the brackets of an IPv6 address.
    pub(in crate::mock) host: String,
    pub(in crate::mock) port: u16,
    /// The value of the `Host` header.
    pub(in crate::mock) authority: String,
    pub(in crate::mock) path_and_query: String,
}

impl HttpUrl {
    /// Parses a URL.
    ///
    /// # Errors
    ///
    /// A message for the test's author, if it is not a plain `http://…` URL.
    pub(in crate::mock) fn parse(url: &str) -> Result<Self, String> {
        let uri: Uri = url
            .parse()
            .map_err(|error| format!("{url:?} is not a valid URL: {error}"))?;
        match uri.scheme_str() {
            Some("http") => {}
            Some("https") => {
                return Err(format!(
                    "{url:?} does not start with http://: the mock connects over http only"
                ));
            }
            _ => {
                return Err(format!(
                    "{url:?} is not a valid URL: it does not start with http://"
                ));
            }
        }
        let Some(authority) = uri
            .authority()
            .filter(|authority| !authority.as_str().contains('@'))
        else {
            return Err(format!(
                "{url:?} has a user name, which the mock does not support"
            ));
        };
        let (host, port) =
            host_and_port(authority).map_err(|problem| format!("{url:?} {problem}"))?;

        Ok(Self {
            host,
            port,
            authority: authority.to_string(),
            path_and_query: match uri.path_and_query().map_or("", PathAndQuery::as_str) {
                path if path.starts_with('/') => path.to_owned(),
                query => format!("/{query}"),
            },
        })
    }

    pub(in crate::mock) async fn connect(&self) -> io::Result<TcpStream> {
        let stream = TcpStream::connect((self.host.as_str(), self.port)).await?;
        // If this fails, a small request may arrive later.
        let _ = stream.set_nodelay(true);
        Ok(stream)
    }

    /// Returns a request for this URL, to be sent over a [connection](Self::connect) to it.
    pub(in crate::mock) fn request<B>(
        &self,
        method: Method,
        headers: HeaderMap,
        body: B,
    ) -> Result<Request<B>, http::Error> {
        let mut request = Request::builder()
            .method(method)
            .uri(&self.path_and_query)
            .header(HOST, &self.authority)
            .header(USER_AGENT, AGENT)
            .body(body)?;
        request.headers_mut().extend(headers);
        Ok(request)
    }
}

impl fmt::Display for HttpUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "http://{}{}", self.authority, self.path_and_query)
    }
}

/// Sends the only request of a connection, reads the complete response, and returns it with the first `kept` bytes of
/// its body.
///
/// Does not follow redirects: a 3xx is returned like any other status.
///
/// # Errors
///
/// Fails if no complete response arrives, or if its body has more than `limit` bytes.
pub(in crate::mock) async fn exchange<B>(
    stream: TcpStream,
    request: Request<B>,
    kept: usize,
    limit: usize,
) -> Result<Response<Bytes>, Box<dyn Error + Send + Sync>>
where
    B: Body<Error: Error + Send + Sync, Data: Send> + Send + 'static,
{
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    // A set aborts the connection's task when this function returns or its future is dropped.
    let mut connection_task = JoinSet::new();
    connection_task.spawn(connection);

    let (head, mut body) = sender.send_request(request).await?.into_parts();
    let mut bytes = Vec::new();
    let mut length = 0;
    // The rest is read too, although it is not kept: without it, the response would not be complete.
    while let Some(frame) = body.frame().await {
        let frame = frame?;
        let Some(data) = frame.data_ref() else {
            continue;
        };
        length += data.len();
        if length > limit {
            return Err(format!("the response is longer than {limit} bytes").into());
        }
        let room = kept - bytes.len();
        bytes.extend_from_slice(&data[..data.len().min(room)]);
    }
    Ok(Response::from_parts(head, bytes.into()))
}

/// Returns the host, without the brackets of an IPv6 address, and the port. Default: port 80.
fn host_and_port(authority: &Authority) -> Result<(String, u16), String> {
    let host = authority.host();
    // `http` accepts any text after the colon, and then returns no port.
    let port = match authority.port_u16() {
        None if authority.as_str() == host => 80,
        None | Some(0) => {
            return Err("has an invalid port: the port must be a number from 1 to 65535".into());
        }
        Some(port) => port,
    };
    let Some(bracketed) = host.strip_prefix('[') else {
        return Ok((host.to_owned(), port));
    };
    let address = bracketed.trim_end_matches(']');
    match address.parse::<Ipv6Addr>() {
        Ok(_) => Ok((address.to_owned(), port)),
        Err(_) => Err(format!(
            "has an invalid host: {address:?} is not a valid IPv6 address"
        )),
    }
}

/// A body: whole, or one that continues for as long as the server runs.
pub(in crate::mock) type ResponseBody = Either<Full<Bytes>, ChangeStream>;

/// Returns a response with a whole body, which is JSON unless its headers name another type.
pub(in crate::mock) fn http_response(response: Response<Bytes>) -> Response<ResponseBody> {
    with_content_type(response).map(|body| Either::Left(Full::new(body)))
}

/// Returns a response whose body is JSON unless its headers name another type.
pub(in crate::mock) fn with_content_type(mut response: Response<Bytes>) -> Response<Bytes> {
    // An error without a body gets a type too, so that `automatic_status` can tell it from a response of hyper.
    let is_json = !response.body().is_empty() || response.status().as_u16() >= 400;
    if is_json {
        let json = HeaderValue::from_static("application/json");
        response.headers_mut().entry(CONTENT_TYPE).or_insert(json);
    }
    response
}

/// Returns whether a response with a status to a request with a method has a body (RFC 9112, section 6.3).
pub(in crate::mock) fn has_body(method: &str, status: StatusCode) -> bool {
    let has_none = matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
    method != "HEAD" && !has_none
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
            ("http://", "is not a valid URL"),
            ("http://user@example.com/", "user name"),
            ("http://127.0.0.1:8080x/hook", "from 1 to 65535"),
            ("http://127.0.0.1:99999/hook", "from 1 to 65535"),
            ("http://127.0.0.1:-1/hook", "from 1 to 65535"),
            ("http://127.0.0.1:0/hook", "from 1 to 65535"),
            ("http://127.0.0.1:/hook", "from 1 to 65535"),
            ("http://[::1]:8080x/hook", "from 1 to 65535"),
            ("http://[::1]8080/hook", "from 1 to 65535"),
            ("http://[127.0.0.1]/hook", "is not a valid IPv6 address"),
            ("http://[::1/hook", "is not a valid URL"),
            ("http://a b/hook", "is not a valid URL"),
        ] {
            let error = HttpUrl::parse(url).unwrap_err();

            assert!(error.contains(reason), "{url}: {error}");
        }
    }

    #[test]
    fn a_url_is_split_into_host_port_and_path() {
        let target = HttpUrl::parse("http://[::1]:8080/hook?a=b").unwrap();
        let plain = HttpUrl::parse("http://localhost").unwrap();
        let query = HttpUrl::parse("http://localhost:4000?token=1").unwrap();

        assert_eq!((&*target.host, target.port), ("::1", 8080));
        assert_eq!(
            (&*target.authority, &*target.path_and_query),
            ("[::1]:8080", "/hook?a=b")
        );
        assert_eq!(
            (&*plain.host, plain.port, &*plain.path_and_query),
            ("localhost", 80, "/")
        );
        assert_eq!(
            (&*query.authority, &*query.path_and_query),
            ("localhost:4000", "/?token=1")
        );
    }
}
