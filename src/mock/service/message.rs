//! The seam between the state machine and whatever carries HTTP for it.

/// A request as it stood on the wire: nothing decoded, nothing looked up.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request<'a> {
    pub(crate) method: &'a str,
    /// Percent-encoded, without the query.
    pub(crate) path: &'a str,
    /// Percent-encoded, without the question mark.
    pub(crate) query: Option<&'a str>,
    /// Names in lower case; one entry for each occurrence.
    pub(crate) headers: &'a [(String, String)],
    pub(crate) body: &'a [u8],
}

/// What is to be answered. The body is JSON, or empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) body: Vec<u8>,
}

/// An event that the service wants delivered; whoever delivers it gives it an id and a time.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Outgoing {
    pub(crate) event_type: String,
    pub(crate) data: serde_json::Value,
}
