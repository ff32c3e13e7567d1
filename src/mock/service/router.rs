//! Finds the endpoint of section 4 for a path and a method.

use super::percent::decode;
use super::refusal::Refusal;

/// A path of section 4, with any method.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Route {
    /// `/contacts`
    Contacts,
    /// `/contacts/batch`
    Batch,
    /// `/contacts/{address}`
    Contact(String),
    /// `/contacts/{address}/unsubscribe`
    Unsubscribe(String),
    /// `/contacts/{address}/subscribe`
    Subscribe(String),
    /// `/emails`
    Emails,
}

/// An endpoint of section 4. Addresses are percent-decoded, but not normalized yet.
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
            .splitn(MAX_SEGMENTS + 1, '/')
            .map(decode)
            .collect::<Result<Vec<String>, Refusal>>()?;
        let mut segments = segments.into_iter();
        let route = match (segments.next().as_deref(), segments.next(), segments.next()) {
            (Some("contacts"), None, None) => Self::Contacts,
            (Some("contacts"), Some(batch), None) if batch == "batch" => Self::Batch,
            (Some("contacts"), Some(address), None) => Self::Contact(address),
            (Some("contacts"), Some(address), Some(consent)) => match consent.as_str() {
                "unsubscribe" => Self::Unsubscribe(address),
                "subscribe" => Self::Subscribe(address),
                _ => return Err(unknown_path()),
            },
            (Some("emails"), None, None) => Self::Emails,
            _ => return Err(unknown_path()),
        };
        match segments.next() {
            None => Ok(route),
            Some(_) => Err(unknown_path()),
        }
    }

    /// Returns whether this route needs a full-access key.
    ///
    /// Section 5 says that the audience endpoints do. It does not list them; for the mock, they are all but `/emails`.
    pub(crate) fn requires_full_key(&self) -> bool {
        *self != Self::Emails
    }

    /// Returns the operation for a method.
    ///
    /// # Errors
    ///
    /// 404 `not_found` if section 4 does not show the method for this path.
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
            (route, other) => return Err(Refusal::unknown_method(other, route.methods())),
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

/// The number of segments in the longest path.
const MAX_SEGMENTS: usize = 3;

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
    fn an_unknown_method_of_a_known_path_is_not_found() {
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
