//! Finds the endpoint of section 4 for a path and a method.

use super::percent::decode;
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
}
