//! Requests written and responses read as bytes.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;

use serde_json::Value;
use support::PATIENCE;

use super::{Api, members};
use crate::openapi::conformance::{self, Exchange};

impl Api {
    /// Starts a request with the full-access key.
    pub(super) fn request(&self, method: &str, target: impl AsRef<str>) -> Request<'_> {
        Request {
            api: self,
            method: method.to_owned(),
            target: target.as_ref().to_owned(),
            key: format!("authorization: Bearer {}\r\n", self.server.full_key()),
            headers: String::new(),
            body: Vec::new(),
        }
    }

    fn host(&self) -> &str {
        self.server.url().trim_start_matches("http://")
    }

    pub(super) fn connect(&self) -> TcpStream {
        let connection = TcpStream::connect(self.host()).expect("the mock accepts connections");
        connection
            .set_read_timeout(Some(PATIENCE))
            .expect("a timeout can be set");
        connection
    }

    /// Writes these bytes on a new connection and reads until the mock closes it.
    fn exchange(&self, request: &[u8]) -> Vec<u8> {
        let mut connection = self.connect();
        // The mock may respond and close the connection before it has read everything.
        let _ = connection.write_all(request);
        let mut response = Vec::new();
        let _ = connection.read_to_end(&mut response);
        response
    }

    /// Writes this request on a new connection and returns the response as text.
    pub(super) fn send_raw(&self, request: &str) -> String {
        String::from_utf8(self.exchange(request.as_bytes())).expect("the response is UTF-8")
    }
}

/// The bytes of a request's body.
pub(super) struct Body(Vec<u8>);

impl From<()> for Body {
    fn from((): ()) -> Self {
        Self(Vec::new())
    }
}

impl From<Value> for Body {
    fn from(json: Value) -> Self {
        Self(json.to_string().into_bytes())
    }
}

impl From<&str> for Body {
    fn from(text: &str) -> Self {
        Self(text.as_bytes().to_vec())
    }
}

impl From<&[u8]> for Body {
    fn from(bytes: &[u8]) -> Self {
        Self(bytes.to_vec())
    }
}

pub(super) struct Request<'a> {
    api: &'a Api,
    method: String,
    target: String,
    key: String,
    headers: String,
    body: Vec<u8>,
}

impl Request<'_> {
    pub(super) fn without_key(mut self) -> Self {
        self.key.clear();
        self
    }

    pub(super) fn sending_key(mut self) -> Self {
        self.key = format!(
            "authorization: Bearer {}\r\n",
            self.api.server.sending_key()
        );
        self
    }

    pub(super) fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push_str(&format!("{name}: {value}\r\n"));
        self
    }

    pub(super) fn body(mut self, body: impl Into<Body>) -> Self {
        self.body = body.into().0;
        self
    }

    /// Sends the request. Asserts that the description shows it with its response.
    #[track_caller]
    pub(super) fn send(self) -> Response {
        let head = format!(
            "{} {} HTTP/1.1\r\nhost: {}\r\nconnection: close\r\n{}{}content-length: {}\r\n\r\n",
            self.method,
            self.target,
            self.api.host(),
            self.key,
            self.headers,
            self.body.len()
        );
        let request = [head.as_bytes(), &self.body].concat();
        let response = Response::parse(&self.api.exchange(&request));
        assert_described(self.api, &self.method, &self.target, &self.body, &response);
        response
    }
}

#[track_caller]
fn assert_described(api: &Api, method: &str, target: &str, body: &[u8], response: &Response) {
    let (path, query) = match target.split_once('?') {
        Some((path, query)) => (path, Some(query)),
        None => (target, None),
    };
    conformance::assert_described(&Exchange {
        method,
        path,
        query,
        request: body,
        status: response.status,
        response: &response.body,
        dialect: &api.dialect.to_string(),
    });
}

/// One connection for many requests, so that a property test is fast.
pub(super) struct Connection<'a> {
    api: &'a Api,
    stream: BufReader<TcpStream>,
}

impl<'a> Connection<'a> {
    pub(super) fn new(api: &'a Api) -> Self {
        let stream = api.connect();
        stream.set_nodelay(true).expect("the option can be set");
        Self {
            api,
            stream: BufReader::new(stream),
        }
    }

    /// Sends a request and reads the response. Asserts that the description shows it with its response.
    #[track_caller]
    pub(super) fn send(
        &mut self,
        method: &str,
        target: &str,
        authorization: &str,
        body: &[u8],
    ) -> Response {
        let head = format!(
            "{method} {target} HTTP/1.1\r\nhost: {}\r\nauthorization: {authorization}\r\ncontent-length: {}\r\n\r\n",
            self.api.host(),
            body.len()
        );
        let request = [head.as_bytes(), body].concat();
        let connection = self.stream.get_mut();
        connection.write_all(&request).expect("the mock reads");
        let response = self.read();
        assert_described(self.api, method, target, body, &response);
        response
    }

    /// Sends a request with the full-access key and a JSON body. A response without a body is `null`.
    #[track_caller]
    pub(super) fn call(
        &mut self,
        method: &str,
        target: &str,
        body: impl Into<Body>,
    ) -> (u16, Value) {
        let key = format!("Bearer {}", self.api.server.full_key());
        let response = self.send(method, target, &key, &body.into().0);
        let body = match response.body.is_empty() {
            true => Value::Null,
            false => serde_json::from_slice(&response.body).expect("JSON"),
        };
        (response.status, body)
    }

    fn read(&mut self) -> Response {
        let mut bytes = Vec::new();
        while !bytes.ends_with(b"\r\n\r\n") {
            let read = self.stream.read_until(b'\n', &mut bytes);
            assert_ne!(
                read.expect("a response"),
                0,
                "the mock closed the connection"
            );
        }
        let mut response = Response::parse(&bytes);
        let length = response.head.split("content-length: ").nth(1);
        let length = length.and_then(|rest| rest.split("\r\n").next());
        let length = match response.status {
            204 => 0,
            _ => length.expect("a length").parse().expect("a number"),
        };
        response.body.resize(length, 0);
        self.stream.read_exact(&mut response.body).expect("a body");
        response
    }
}

pub(super) struct Response {
    pub(super) status: u16,
    pub(super) head: String,
    pub(super) body: Vec<u8>,
}

impl Response {
    fn parse(bytes: &[u8]) -> Self {
        let end = bytes
            .windows(4)
            .position(|window| window == b"\r\n\r\n")
            .unwrap_or_else(|| panic!("not HTTP: {:?}", String::from_utf8_lossy(bytes)));
        let head = String::from_utf8(bytes[..end].to_vec()).expect("an ASCII head");
        let status = head[9..12].parse().expect("a status");
        Self {
            status,
            head: head.to_lowercase(),
            body: bytes[end + 4..].to_vec(),
        }
    }

    /// Asserts the status and returns the JSON body.
    #[track_caller]
    pub(super) fn expect(self, status: u16) -> Value {
        assert_eq!(
            self.status,
            status,
            "{}",
            String::from_utf8_lossy(&self.body)
        );
        assert!(
            self.head.contains("\r\ncontent-type: application/json"),
            "{}",
            self.head
        );
        serde_json::from_slice(&self.body).expect("JSON")
    }

    /// Asserts the status and slug of a refusal and returns its message.
    #[track_caller]
    pub(super) fn refused(self, status: u16, slug: &str) -> String {
        let body = self.expect(status);
        assert_eq!(members(&body), ["error"]);
        assert_eq!(members(&body["error"]), ["code", "message"]);
        assert_eq!(body["error"]["code"], slug, "{body}");
        let message = body["error"]["message"]
            .as_str()
            .expect("a string")
            .to_owned();
        assert!(!message.is_empty());
        message
    }
}
