//! Who sends a request, and which endpoint of section 4 it is for.

use std::fmt;

use percent_encoding::percent_decode_str;

use super::address::printable;
use super::dialect::OtherContentType;
use super::refusal::Refusal;

/// An endpoint: its method, its path, and the operation for the address in the path.
type Endpoint = (&'static str, &'static str, fn(String) -> Operation);

/// The endpoints of section 4.
///
/// The first path that matches a request decides, so `/contacts/batch` comes before `/contacts/{address}`.
const ENDPOINTS: &[Endpoint] = &[
    ("GET", "/contacts", |_| Operation::List),
    ("POST", "/contacts", |_| Operation::Create),
    ("POST", "/contacts/batch", |_| Operation::CreateBatch),
    ("GET", "/contacts/{address}", Operation::Retrieve),
    ("PATCH", "/contacts/{address}", Operation::Merge),
    (
        "POST",
        "/contacts/{address}/unsubscribe",
        Operation::Unsubscribe,
    ),
    (
        "POST",
        "/contacts/{address}/subscribe",
        Operation::Subscribe,
    ),
    ("POST", EMAILS, |_| Operation::SendEmail),
];

/// The only path for which a sending-access key is enough.
const EMAILS: &str = "/emails";

/// An operation of section 4. Addresses are percent-decoded, but not normalized yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    Create,
    List,
    CreateBatch,
    Retrieve(String),
    Merge(String),
    Unsubscribe(String),
    Subscribe(String),
    SendEmail,
}

impl Operation {
    /// Returns whether the operation reads the body of its request.
    pub(crate) fn has_body(&self) -> bool {
        !matches!(self, Self::List | Self::Retrieve(_))
    }
}

/// A path of section 4, with any method.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Route {
    /// The path in [`ENDPOINTS`].
    template: &'static str,
    /// The decoded segment at `{address}`. Empty if the path has none.
    address: String,
}

impl Route {
    /// Finds the route for a percent-encoded path.
    ///
    /// Each segment is decoded by itself, so an encoded slash is a part of its segment.
    ///
    /// # Errors
    ///
    /// - 404 `not_found` if no endpoint has this path;
    /// - 422 `validation_error` if a segment cannot be decoded.
    pub(crate) fn parse(path: &str) -> Result<Self, Refusal> {
        let unknown_path = || Refusal::not_found("no endpoint has this path");
        let segments = path
            .strip_prefix('/')
            .ok_or_else(unknown_path)?
            .split('/')
            .map(decode)
            .collect::<Result<Vec<String>, Refusal>>()?;
        ENDPOINTS
            .iter()
            .find_map(|(_, template, _)| Self::match_template(template, &segments))
            .ok_or_else(unknown_path)
    }

    /// Returns whether this route needs a full-access key.
    ///
    /// Section 5 says that the audience endpoints do. It does not list them; for the mock, they are all but `/emails`.
    pub(crate) fn requires_full_key(&self) -> bool {
        self.template != EMAILS
    }

    /// Returns the operation for a method.
    ///
    /// # Errors
    ///
    /// 404 `not_found` if section 4 does not show the method for this path.
    pub(crate) fn operation(self, method: &str) -> Result<Operation, Refusal> {
        let mut supported = Vec::new();
        for (name, template, operation) in ENDPOINTS {
            if *template == self.template {
                if *name == method {
                    return Ok(operation(self.address));
                }
                supported.push(*name);
            }
        }
        Err(Refusal::unknown_method(method, &supported.join(" or ")))
    }

    fn match_template(template: &'static str, segments: &[String]) -> Option<Self> {
        let mut expected = template.split('/').skip(1);
        let mut address = String::new();
        for segment in segments {
            match expected.next()? {
                "{address}" => address.clone_from(segment),
                fixed if fixed == segment => {}
                _ => return None,
            }
        }
        expected
            .next()
            .is_none()
            .then_some(Self { template, address })
    }
}

/// Returns the method and the path of each endpoint.
#[cfg(test)]
pub(in crate::mock) fn endpoints() -> impl Iterator<Item = (&'static str, &'static str)> {
    ENDPOINTS.iter().map(|(method, path, _)| (*method, *path))
}

/// The full-access key of a mock for which no other is set.
pub(crate) const DEFAULT_FULL_KEY: &str = "mock-full-access-key";

/// The sending-access key of a mock for which no other is set.
pub(crate) const DEFAULT_SENDING_KEY: &str = "mock-sending-access-key";

/// The kind of an API key (section 5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyKind {
    /// Grants every endpoint.
    Full,
    /// Grants `POST /emails` only.
    Sending,
}

/// The two valid keys, and the header in which a request must present one of them.
#[derive(Clone)]
pub(crate) struct Keys {
    pub(crate) full: String,
    pub(crate) sending: String,
    /// The header that holds the bare key. `None` means `Authorization: Bearer <key>`.
    pub(crate) header: Option<String>,
}

impl Keys {
    /// Returns the kind of the key that a request presents.
    ///
    /// The document does not show how a key is presented, so the header can be chosen.
    ///
    /// # Errors
    ///
    /// 401 `unauthorized` if the header is missing or repeated, or if its key is not one of the two.
    pub(crate) fn authenticate(&self, headers: &[(String, String)]) -> Result<KeyKind, Refusal> {
        let name = self.header.as_deref().unwrap_or("authorization");
        let mut values = headers
            .iter()
            .filter(|(header, _)| header.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.trim());
        let value = match (values.next(), values.next()) {
            (Some(value), None) => value,
            (None, _) => {
                let message = format!("the `{name}` header is missing; it must hold the API key");
                return Err(Refusal::unauthorized(message));
            }
            (Some(_), Some(_)) => {
                let message = format!("the `{name}` header is given twice");
                return Err(Refusal::unauthorized(message));
            }
        };
        let presented = match self.header {
            Some(_) => value,
            None => bearer_token(value).ok_or_else(|| {
                Refusal::unauthorized("the `authorization` header must be `Bearer <key>`")
            })?,
        };
        if presented == self.full {
            Ok(KeyKind::Full)
        } else if presented == self.sending {
            Ok(KeyKind::Sending)
        } else {
            Err(Refusal::unauthorized(
                "the API key is neither the full-access key nor the sending-access key",
            ))
        }
    }
}

/// Shows the header only. A test may use a real key, so the keys are never printed.
impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keys")
            .field("header", &self.header)
            .finish_non_exhaustive()
    }
}

/// Returns the key after the scheme `Bearer`, in upper or lower case.
fn bearer_token(value: &str) -> Option<&str> {
    let (scheme, key) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| key.trim())
}

/// Checks that the `Content-Type` of a request with a body is one for JSON.
///
/// A body without a `Content-Type` is accepted: the document names no header for bodies.
///
/// # Errors
///
/// The dialect's choice of status and slug if the content type is another one.
pub(super) fn check_content_type(
    headers: &[(String, String)],
    body: &[u8],
    choice: OtherContentType,
) -> Result<(), Refusal> {
    if body.is_empty() {
        return Ok(());
    }
    let mut types = headers
        .iter()
        .filter(|(name, _)| name.eq_ignore_ascii_case("content-type"))
        .map(|(_, value)| value);
    let Some(other) = types.find(|value| !is_json(value)) else {
        return Ok(());
    };
    let message = format!(
        "the content type of the body must be `application/json`, not `{}`",
        printable(other)
    );
    match choice {
        OtherContentType::Unprocessable => Err(Refusal::invalid(message)),
        OtherContentType::UnsupportedMediaType => {
            Err(Refusal::new(415, "unsupported_media_type", message))
        }
        OtherContentType::Ignored => Ok(()),
    }
}

/// Returns whether a content type means JSON: `application/json`, or `application/…+json`, with any parameters.
fn is_json(content_type: &str) -> bool {
    let essence = content_type.split(';').next().unwrap_or_default().trim();
    let Some((kind, subtype)) = essence.split_once('/') else {
        return false;
    };
    let suffix = subtype.rsplit_once('+').map(|(_, suffix)| suffix);
    kind.eq_ignore_ascii_case("application")
        && suffix.unwrap_or(subtype).eq_ignore_ascii_case("json")
}

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

    fn operation(method: &str, path: &str) -> Result<Operation, u16> {
        Route::parse(path)
            .and_then(|route| route.operation(method))
            .map_err(|refusal| refusal.status)
    }

    #[test]
    fn each_endpoint_of_section_4_has_its_operation() {
        let ada = || "ada@example.com".to_owned();
        let cases = [
            ("POST", "/contacts", Operation::Create),
            ("GET", "/contacts", Operation::List),
            ("POST", "/contacts/batch", Operation::CreateBatch),
            (
                "GET",
                "/contacts/ada%40example.com",
                Operation::Retrieve(ada()),
            ),
            (
                "GET",
                "/contacts/ada@example.com",
                Operation::Retrieve(ada()),
            ),
            (
                "PATCH",
                "/contacts/ada%40example.com",
                Operation::Merge(ada()),
            ),
            (
                "POST",
                "/contacts/ada%40example.com/unsubscribe",
                Operation::Unsubscribe(ada()),
            ),
            (
                "POST",
                "/contacts/ada%40example.com/subscribe",
                Operation::Subscribe(ada()),
            ),
            ("POST", "/emails", Operation::SendEmail),
        ];
        for (method, path, expected) in cases {
            assert_eq!(operation(method, path), Ok(expected), "{method} {path}");
        }
    }

    #[test]
    fn an_encoded_slash_or_question_mark_stays_in_its_segment() {
        let address = Operation::Subscribe("a/b?c+d@x".to_owned());

        assert_eq!(
            operation("POST", "/contacts/a%2Fb%3fc+d%40x/subscribe"),
            Ok(address)
        );
    }

    #[test]
    fn an_unknown_path_is_not_found() {
        for path in [
            "",
            "/",
            "contacts",
            "/contact",
            "/contacts/a@x/subscribe/",
            "/contacts/a@x/no-such-path",
            "/contacts/a@x/",
            "/emails/eml_1/no-such-path",
            "/CONTACTS",
            "//contacts",
        ] {
            assert_eq!(operation("GET", path), Err(404), "{path}");
        }
    }

    #[test]
    fn an_unknown_method_of_a_known_path_is_not_found() {
        for (method, path) in [
            ("PURGE", "/contacts"),
            ("GET", "/contacts/batch"),
            ("PURGE", "/contacts/a@x"),
            ("GET", "/contacts/a@x/subscribe"),
            ("get", "/contacts"),
            ("GET", "/emails"),
        ] {
            assert_eq!(operation(method, path), Err(404), "{method} {path}");
        }
    }

    #[test]
    fn a_path_that_cannot_be_decoded_is_invalid() {
        for path in [
            "/contacts/%",
            "/contacts/%4",
            "/contacts/%zz",
            "/contacts/%ff",
        ] {
            assert_eq!(operation("GET", path), Err(422), "{path}");
        }
    }

    fn authenticate(header: Option<&str>, headers: &[(&str, &str)]) -> Result<KeyKind, u16> {
        let keys = Keys {
            full: "full".to_owned(),
            sending: "sending".to_owned(),
            header: header.map(str::to_owned),
        };
        let headers: Vec<(String, String)> = headers
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect();
        keys.authenticate(&headers)
            .map_err(|refusal| refusal.status)
    }

    #[test]
    fn a_bearer_token_is_accepted_if_it_is_one_of_the_two_keys() {
        assert_eq!(
            authenticate(None, &[("authorization", "Bearer full")]),
            Ok(KeyKind::Full)
        );
        assert_eq!(
            authenticate(None, &[("authorization", "bearer sending")]),
            Ok(KeyKind::Sending)
        );
    }

    #[test]
    fn a_named_header_holds_the_bare_key() {
        let header = Some("X-Api-Key");

        assert_eq!(
            authenticate(header, &[("x-api-key", "full")]),
            Ok(KeyKind::Full)
        );
        assert_eq!(
            authenticate(header, &[("x-api-key", "Bearer full")]),
            Err(401)
        );
        assert_eq!(
            authenticate(header, &[("authorization", "Bearer full")]),
            Err(401)
        );
    }

    #[test]
    fn a_missing_unknown_or_repeated_key_is_unauthorized() {
        for headers in [
            &[][..],
            &[("authorization", "")],
            &[("authorization", "Bearer")],
            &[("authorization", "Bearer ")],
            &[("authorization", "full")],
            &[("authorization", "Basic full")],
            &[("authorization", "Bearer Full")],
            &[
                ("authorization", "Bearer full"),
                ("authorization", "Bearer full"),
            ],
        ] {
            assert_eq!(authenticate(None, headers), Err(401), "{headers:?}");
        }
    }

    #[test]
    fn debug_output_does_not_contain_the_keys() {
        let keys = Keys {
            full: "k-full".to_owned(),
            sending: "k-sending".to_owned(),
            header: None,
        };

        assert!(!format!("{keys:?}").contains("k-"));
    }

    fn status(content_types: &[&str], body: &[u8], choice: OtherContentType) -> Option<u16> {
        let header = |value: &&str| ("content-type".to_owned(), (*value).to_owned());
        let headers: Vec<_> = content_types.iter().map(header).collect();
        check_content_type(&headers, body, choice)
            .err()
            .map(|refusal| refusal.status)
    }

    #[test]
    fn only_json_is_accepted_as_the_content_type_of_a_body() {
        for json in [
            "application/json",
            "Application/JSON; charset=utf-8",
            "application/merge-patch+json",
        ] {
            assert_eq!(status(&[json], b"{}", OtherContentType::default()), None);
        }
        for other in [
            "",
            "json",
            "text/plain",
            "text/json",
            "application/jsonp",
            "application/x-www-form-urlencoded",
            "application/json, text/plain",
        ] {
            let found = status(&[other], b"{}", OtherContentType::default());
            assert_eq!(found, Some(422), "{other}");
        }
        let both = ["application/json", "text/plain"];
        assert_eq!(status(&both, b"{}", OtherContentType::default()), Some(422));
    }

    #[test]
    fn a_request_without_a_body_or_without_a_content_type_is_accepted() {
        let choice = OtherContentType::default();

        assert_eq!(status(&["text/plain"], b"", choice), None);
        assert_eq!(status(&[], b"{}", choice), None);
    }

    #[test]
    fn the_dialect_decides_the_refusal() {
        let plain = |choice| status(&["text/plain"], b"{}", choice);

        assert_eq!(plain(OtherContentType::UnsupportedMediaType), Some(415));
        assert_eq!(plain(OtherContentType::Ignored), None);
    }

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
