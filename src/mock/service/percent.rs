//! Percent-decoding of path segments and query parameters.

use percent_encoding::percent_decode_str;

use super::refusal::Refusal;

/// Decodes a percent-encoded path segment.
///
/// # Errors
///
/// 422 `validation_error` if `%` is not followed by two hex digits, or if the bytes are not UTF-8. Decoding them
/// leniently would yield another address than the caller meant.
pub(crate) fn decode(encoded: &str) -> Result<String, Refusal> {
    let bytes = encoded.as_bytes();
    let malformed = bytes.iter().enumerate().any(|(index, byte)| {
        let is_digit = |ahead| bytes.get(index + ahead).is_some_and(u8::is_ascii_hexdigit);
        *byte == b'%' && !(is_digit(1) && is_digit(2))
    });
    if malformed {
        return Err(Refusal::invalid("`%` must be followed by two hex digits"));
    }
    match percent_decode_str(encoded).decode_utf8() {
        Ok(text) => Ok(text.into_owned()),
        Err(_) => Err(Refusal::invalid(
            "the percent-encoded bytes are not valid UTF-8",
        )),
    }
}

/// Decodes the name or the value of a query parameter, in which `+` is a space.
///
/// # Errors
///
/// The same as [`decode`].
pub(crate) fn decode_parameter(encoded: &str) -> Result<String, Refusal> {
    decode(&encoded.replace('+', " "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plus_sign_is_a_space_in_a_parameter_only() {
        assert_eq!(decode("a+b%2Bc%20d").unwrap(), "a+b+c d");
        assert_eq!(decode_parameter("a+b%2Bc%20d").unwrap(), "a b+c d");
    }

    #[test]
    fn a_malformed_escape_is_refused() {
        for encoded in ["%", "%4", "%zz", "a%2", "%ff", "%c3"] {
            assert_eq!(decode(encoded).unwrap_err().status, 422, "{encoded}");
        }
    }
}
