//! The result of a request: a response, or the end of the connection.

use std::fmt;

use http::{HeaderName, HeaderValue};

use super::service::dialect::ErrorShape;
use super::service::refusal::Refusal;
use super::service::refusal::Reply;

/// An HTTP response. A body is JSON unless the headers name another type.
#[derive(Debug, Default)]
pub(super) struct MockResponse {
    pub(super) status: u16,
    pub(super) headers: Vec<(HeaderName, HeaderValue)>,
    pub(super) body: Vec<u8>,
}

impl From<Reply> for MockResponse {
    fn from(reply: Reply) -> Self {
        Self {
            status: reply.status,
            headers: Vec::new(),
            body: reply.body,
        }
    }
}

/// An error of the control plane. Its body has the shape of the default dialect.
impl From<Refusal> for MockResponse {
    fn from(refusal: Refusal) -> Self {
        refusal.reply(ErrorShape::default()).into()
    }
}

/// Ends the connection without an ordinary response: sends `bytes` as they are, then closes or resets it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Disconnect {
    pub(super) bytes: Vec<u8>,
    /// Whether to send a TCP `RST` instead of closing.
    pub(super) reset: bool,
}

impl fmt::Display for Disconnect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the server ended the connection without a response")
    }
}

impl std::error::Error for Disconnect {}
