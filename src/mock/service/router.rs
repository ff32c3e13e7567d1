//! From method and path to an operation of section 4.

use percent_encoding::percent_decode_str;

use super::refusal::Refusal;

/// What a path names, whatever the method.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Contacts,
    Batch,
    Contact(String),
    Unsubscribe(String),
    Subscribe(String),
    Emails,
}

/// What is asked for. Addresses are decoded, and not yet normalised.
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

impl Place {
    /// The place that a percent-encoded path names; 404 where there is none.
    ///
    /// Each segment is decoded by itself, so an encoded slash stays in its segment.
    pub(crate) fn of(path: &str) -> Result<Self, Refusal> {
        let nowhere = || Refusal::not_found("there is nothing at this path");
        let segments = path
            .strip_prefix('/')
            .ok_or_else(nowhere)?
            .splitn(MOST_SEGMENTS + 1, '/')
            .map(decoded)
            .collect::<Result<Vec<String>, Refusal>>()?;
        let mut segments = segments.into_iter();
        let place = match (segments.next().as_deref(), segments.next(), segments.next()) {
            (Some("contacts"), None, None) => Self::Contacts,
            (Some("contacts"), Some(batch), None) if batch == "batch" => Self::Batch,
            (Some("contacts"), Some(address), None) => Self::Contact(address),
            (Some("contacts"), Some(address), Some(consent)) => match consent.as_str() {
                "unsubscribe" => Self::Unsubscribe(address),
                "subscribe" => Self::Subscribe(address),
                _ => return Err(nowhere()),
            },
            (Some("emails"), None, None) => Self::Emails,
            _ => return Err(nowhere()),
        };
        match segments.next() {
            None => Ok(place),
            Some(_) => Err(nowhere()),
        }
    }

    /// Whether this place needs a full-access key (section 5).
    pub(crate) fn is_of_the_audience(&self) -> bool {
        *self != Self::Emails
    }

    /// The operation that a method asks for here; 404 where it asks for none.
    pub(crate) fn operation(self, method: &str) -> Result<Operation, Refusal> {
        Ok(match (self, method) {
            (Self::Contacts, "POST") => Operation::Create,
            (Self::Contacts, "GET") => Operation::List,
            (Self::Batch, "POST") => Operation::CreateBatch,
            (Self::Contact(address), "GET") => Operation::Retrieve(address),
            (Self::Contact(address), "PATCH") => Operation::Merge(address),
            (Self::Unsubscribe(address), "POST") => Operation::Unsubscribe(address),
            (Self::Subscribe(address), "POST") => Operation::Subscribe(address),
            (Self::Emails, "POST") => Operation::SendEmail,
            (place, other) => return Err(Refusal::no_such_method(other, place.methods())),
        })
    }

    fn methods(&self) -> &'static str {
        match self {
            Self::Contacts => "GET or POST",
            Self::Contact(_) => "GET or PATCH",
            Self::Batch | Self::Unsubscribe(_) | Self::Subscribe(_) | Self::Emails => "POST",
        }
    }
}

const MOST_SEGMENTS: usize = 3;

/// Percent-decoded text. A percent sign without two hex digits, and bytes that are no UTF-8, are
/// refused: kept as they are, they would name another contact than the caller meant.
pub(crate) fn decoded(encoded: &str) -> Result<String, Refusal> {
    let bytes = encoded.as_bytes();
    let stray = bytes.iter().enumerate().any(|(place, byte)| {
        let digit = |ahead| bytes.get(place + ahead).is_some_and(u8::is_ascii_hexdigit);
        *byte == b'%' && !(digit(1) && digit(2))
    });
    if stray {
        return Err(Refusal::invalid(
            "a percent sign is not followed by two hex digits",
        ));
    }
    match percent_decode_str(encoded).decode_utf8() {
        Ok(text) => Ok(text.into_owned()),
        Err(_) => Err(Refusal::invalid("percent-encoded bytes are no UTF-8")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn operation(method: &str, path: &str) -> Result<Operation, u16> {
        Place::of(path)
            .and_then(|place| place.operation(method))
            .map_err(|refusal| refusal.status)
    }

    #[test]
    fn every_endpoint_of_section_4_is_found() {
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
    fn nothing_is_found_at_other_paths() {
        for path in [
            "",
            "/",
            "contacts",
            "/contact",
            "/contacts/a@x/subscribe/",
            "/contacts/a@x/consent",
            "/contacts/a@x/",
            "/emails/eml_1",
            "/CONTACTS",
            "//contacts",
        ] {
            assert_eq!(operation("GET", path), Err(404), "{path}");
        }
    }

    #[test]
    fn a_known_path_has_nothing_for_other_methods() {
        for (method, path) in [
            ("DELETE", "/contacts"),
            ("GET", "/contacts/batch"),
            ("DELETE", "/contacts/a@x"),
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
}
