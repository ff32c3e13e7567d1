//! Requests written byte by byte, and their responses.

use std::fmt::Write as _;
use std::io::Read;
use std::net::TcpStream;

/// A request as bytes.
#[derive(Clone, Debug)]
pub struct Request {
    head: Vec<u8>,
    body: Vec<u8>,
    /// Whether the connection is closed for writing after the body.
    pub cut: bool,
}

impl Request {
    pub fn new(method: &str) -> Self {
        let head = format!("{method} /hook HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n");
        Self {
            head: head.into_bytes(),
            body: Vec::new(),
            cut: false,
        }
    }

    pub fn post() -> Self {
        Self::new("POST")
    }

    pub fn header(mut self, name: &str, value: impl AsRef<[u8]>) -> Self {
        self.head.extend_from_slice(name.as_bytes());
        self.head.extend_from_slice(b": ");
        self.head.extend_from_slice(value.as_ref());
        self.head.extend_from_slice(b"\r\n");
        self
    }

    pub fn headers<'h>(self, headers: impl IntoIterator<Item = (&'h str, Vec<u8>)>) -> Self {
        headers
            .into_iter()
            .fold(self, |request, (name, value)| request.header(name, value))
    }

    /// Adds the body with its Content-Length.
    pub fn body(self, body: &[u8]) -> Self {
        self.stated(body.len(), body)
    }

    /// Adds the body with any Content-Length.
    pub fn stated(self, length: usize, body: &[u8]) -> Self {
        let mut request = self.header("content-length", length.to_string());
        request.body = body.to_vec();
        request
    }

    /// Adds the body in chunks of `size` bytes.
    pub fn chunked(self, size: usize, body: &[u8]) -> Self {
        let mut request = self.header("transfer-encoding", "chunked");
        for chunk in body.chunks(size) {
            let mut length = String::new();
            write!(length, "{:x}\r\n", chunk.len()).unwrap();
            request.body.extend_from_slice(length.as_bytes());
            request.body.extend_from_slice(chunk);
            request.body.extend_from_slice(b"\r\n");
        }
        request.body.extend_from_slice(b"0\r\n\r\n");
        request
    }

    /// Adds bytes that are not valid chunks.
    pub fn broken_chunks(self, body: &[u8]) -> Self {
        let mut request = self.header("transfer-encoding", "chunked");
        request.body = body.to_vec();
        request
    }

    /// Closes the connection for writing after the body.
    pub fn cut(mut self) -> Self {
        self.cut = true;
        self
    }

    pub fn bytes(&self) -> Vec<u8> {
        [&self.head, b"\r\n".as_slice(), &self.body].concat()
    }
}

/// A response. Status 0 means that the connection was closed without one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Response {
    pub status: u16,
    pub head: String,
    pub body: Vec<u8>,
}

impl Response {
    /// Reads one response and nothing after it.
    pub fn read(stream: &mut TcpStream) -> Self {
        let mut response = Self::default();
        let mut byte = [0];
        while !response.head.ends_with("\r\n\r\n")
            && stream.read(&mut byte).is_ok_and(|read| read == 1)
        {
            response.head.push(byte[0].to_ascii_lowercase().into());
        }
        let status = response.head.split(' ').nth(1);
        response.status = status.and_then(|text| text.parse().ok()).unwrap_or(0);
        let length = response
            .head
            .split_once("content-length: ")
            .and_then(|(_, rest)| rest.split("\r\n").next()?.parse().ok());
        let _ = stream
            .take(length.unwrap_or(u64::MAX))
            .read_to_end(&mut response.body);
        response
    }
}
