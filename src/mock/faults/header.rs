//! Checks of header names and values that a test supplies.

use http::header::{CONNECTION, CONTENT_LENGTH, TRANSFER_ENCODING};
use http::{HeaderName, HeaderValue};

/// Parses a header. Returns a message for the test's author if the name or the value is invalid.
pub(in crate::mock) fn header(
    name: &str,
    value: &str,
) -> Result<(HeaderName, HeaderValue), String> {
    let parsed_name = HeaderName::from_bytes(name.as_bytes())
        .map_err(|_| format!("{name:?} is not a valid header name"))?;
    let parsed_value = HeaderValue::from_bytes(value.as_bytes())
        .map_err(|_| format!("the value of the header {name:?} is invalid"))?;
    Ok((parsed_name, parsed_value))
}

/// Parses a header of a response. Also refuses the headers that the server itself sets.
pub(super) fn response_header(
    name: &str,
    value: &str,
) -> Result<(HeaderName, HeaderValue), String> {
    let header = header(name, value)?;
    if [CONNECTION, CONTENT_LENGTH, TRANSFER_ENCODING].contains(&header.0) {
        return Err(format!(
            "a fault cannot set {name:?}: the server sets it to mark the end of the response"
        ));
    }
    Ok(header)
}
