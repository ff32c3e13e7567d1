use http::header::{AUTHORIZATION, CONTENT_TYPE, HeaderName, HeaderValue};

use super::request::is_set_by_http;
use crate::Error;
use crate::secret::{ConfigError, Secret, check_secret, trim};

/// How the key is presented on each request. The interface document does not say how (section 5).
///
/// # Example: the key in another header
///
/// ```
/// use audience::{Auth, Client};
///
/// let client = Client::builder("https://api.example.com/v1", "key").auth(Auth::header("x-api-key")).build()?;
/// # Ok::<(), audience::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Auth(Scheme);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Scheme {
    Bearer,
    Header(String),
}

impl Auth {
    /// Sends the key as `Authorization: Bearer <key>`. This is the default.
    #[must_use]
    pub fn bearer() -> Self {
        Self(Scheme::Bearer)
    }

    /// Sends the bare key in the header with this name.
    ///
    /// If the name is not a valid header name, or one such as `content-length` or `host` that HTTP itself
    /// needs, building the client fails with [`ErrorKind::Config`](crate::ErrorKind::Config).
    pub fn header(name: impl Into<String>) -> Self {
        Self(Scheme::Header(name.into()))
    }

    /// Returns the header that presents this key.
    pub(super) fn to_header(&self, key: &Secret) -> Result<(HeaderName, HeaderValue), Error> {
        let key = key.expose();
        check_key(key).map_err(|problem| Error::config(problem.to_string()))?;
        let (name, value) = match &self.0 {
            Scheme::Bearer => (AUTHORIZATION, Secret::new(format!("Bearer {key}"))),
            Scheme::Header(name) => {
                let name = HeaderName::try_from(name.as_str()).map_err(|error| {
                    Error::config("the name of the key's header is not a valid header name")
                        .caused_by(error)
                })?;
                if is_set_by_http(&name) || name == CONTENT_TYPE {
                    return Err(Error::config(format!(
                        "the key cannot be sent in the header `{name}`, which has another meaning; name the header that the service expects"
                    )));
                }
                (name, Secret::new(key))
            }
        };
        let mut value = HeaderValue::from_str(value.expose()).map_err(|_| {
            Error::config("the key contains characters that are not valid in a header")
        })?;
        value.set_sensitive(true);
        Ok((name, value))
    }
}

/// Refuses text that cannot be a real key, and says why. The service would respond 401.
fn check_key(key: &str) -> Result<(), ConfigError> {
    let starts_with_bearer = key
        .split_once(char::is_whitespace)
        .is_some_and(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"));
    if starts_with_bearer {
        return Err(ConfigError::new(
            "the key starts with `Bearer`; pass the key alone, because `Auth` adds the rest",
        ));
    }
    check_secret("the key", key.as_bytes())?;
    if key.contains(char::is_whitespace) || trim(key) != key {
        return Err(ConfigError::new("the key contains white space; remove it"));
    }
    Ok(())
}

impl Default for Auth {
    /// Returns [`Auth::bearer`].
    fn default() -> Self {
        Self::bearer()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_is_in_the_header_of_its_scheme() {
        let key = Secret::new("k-1");

        let (name, value) = Auth::default().to_header(&key).unwrap();
        assert_eq!(
            (name.as_str(), value.to_str().unwrap()),
            ("authorization", "Bearer k-1")
        );

        let (name, value) = Auth::header("X-Api-Key").to_header(&key).unwrap();
        assert_eq!(
            (name.as_str(), value.to_str().unwrap()),
            ("x-api-key", "k-1")
        );
        assert!(!format!("{value:?}").contains("k-1"));
    }

    #[test]
    fn an_invalid_key_or_header_name_is_refused_and_not_printed() {
        for key in ["", "  ", "k-1\n", " k-1", "k\u{0}1", "k\n1"] {
            let error = Auth::bearer().to_header(&Secret::new(key)).unwrap_err();

            assert_eq!(error.kind(), crate::ErrorKind::Config);
            assert!(!format!("{error:?}").contains("k-1"));
        }
        assert!(
            Auth::header("no spaces")
                .to_header(&Secret::new("k"))
                .is_err()
        );
    }

    #[test]
    fn a_header_that_http_itself_needs_cannot_hold_the_key() {
        for name in [
            "Content-Length",
            "host",
            "content-type",
            "transfer-encoding",
        ] {
            let error = Auth::header(name)
                .to_header(&Secret::new("k-1"))
                .unwrap_err();

            assert_eq!(error.kind(), crate::ErrorKind::Config, "{name}");
        }
    }
}
