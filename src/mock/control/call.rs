//! The input and the result of a handler of the control plane.

use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::mock::response::MockResponse;
use crate::mock::service::refusal::Refusal;
use crate::mock::shared::Shared;

/// A call of the control plane whose path and method are known.
pub(super) struct Call<'a> {
    pub(super) shared: &'a Arc<Shared>,
    /// The decoded path segment at the route's `{…}`. Empty if the route has none.
    pub(super) parameter: &'a str,
    /// The query as sent, without the question mark.
    pub(super) query: Option<&'a str>,
    pub(super) body: &'a [u8],
}

/// The result of a call.
pub(super) type CallResult = Result<MockResponse, Refusal>;

impl Call<'_> {
    /// Parses the body as JSON.
    ///
    /// # Errors
    ///
    /// A 422 if the body is empty, is not an object, or does not have the form of `T`.
    pub(super) fn json<T: DeserializeOwned>(&self) -> Result<T, Refusal> {
        serde_json::from_slice(self.body_text()?)
            .map_err(|error| Refusal::invalid(format!("the body is invalid: {error}")))
    }

    /// Returns the body, which is the text of a JSON object if it is JSON.
    ///
    /// # Errors
    ///
    /// A 422 if the body is empty or is not an object.
    pub(super) fn body_text(&self) -> Result<&[u8], Refusal> {
        if self.body.is_empty() {
            return Err(Refusal::invalid("this call needs a JSON body"));
        }
        // `serde` would accept an array in place of an object, and name a Rust type in the error for a number.
        if !self.body.trim_ascii_start().starts_with(b"{") {
            return Err(Refusal::invalid("the body must be a JSON object"));
        }
        Ok(self.body)
    }
}

/// Returns a 200 with a JSON body.
pub(super) fn ok(body: &impl Serialize) -> MockResponse {
    MockResponse {
        status: 200,
        headers: Vec::new(),
        body: serde_json::to_vec(body)
            .expect("strings, numbers and maps with string keys always serialize to JSON"),
    }
}

/// Returns a 204 without a body.
pub(super) fn no_content() -> MockResponse {
    MockResponse {
        status: 204,
        ..MockResponse::default()
    }
}
