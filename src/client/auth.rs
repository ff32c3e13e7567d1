use http::header::{AUTHORIZATION, HeaderName, HeaderValue};

use crate::Error;
use crate::secret::Secret;

/// How the key is presented on each request, which the interface document leaves open (section 5).
///
/// # Example: a key in a header of its own
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
    /// `Authorization: Bearer <key>`: the default.
    #[must_use]
    pub fn bearer() -> Self {
        Self(Scheme::Bearer)
    }

    /// The bare key in the header of this name. A name that HTTP does not allow is refused when the
    /// client is built.
    pub fn header(name: impl Into<String>) -> Self {
        Self(Scheme::Header(name.into()))
    }

    pub(super) fn header_of(&self, key: &Secret) -> Result<(HeaderName, HeaderValue), Error> {
        let key = key.expose();
        if key.trim().is_empty() {
            return Err(Error::config("the key is empty"));
        }
        if key.trim() != key {
            return Err(Error::config(
                "the key has white space around it, as if read from a file: trim it",
            ));
        }
        let (name, value) = match &self.0 {
            Scheme::Bearer => (AUTHORIZATION, Secret::new(format!("Bearer {key}"))),
            Scheme::Header(name) => {
                let name = HeaderName::try_from(name.as_str()).map_err(|error| {
                    Error::config("the key's header has a name that HTTP does not allow")
                        .caused_by(error)
                })?;
                (name, Secret::new(key))
            }
        };
        let mut value = HeaderValue::from_str(value.expose())
            .map_err(|_| Error::config("the key holds characters that no HTTP header can carry"))?;
        value.set_sensitive(true);
        Ok((name, value))
    }
}

impl Default for Auth {
    fn default() -> Self {
        Self::bearer()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_stands_where_the_scheme_says() {
        let key = Secret::new("k-1");

        let (name, value) = Auth::default().header_of(&key).unwrap();
        assert_eq!(
            (name.as_str(), value.to_str().unwrap()),
            ("authorization", "Bearer k-1")
        );

        let (name, value) = Auth::header("X-Api-Key").header_of(&key).unwrap();
        assert_eq!(
            (name.as_str(), value.to_str().unwrap()),
            ("x-api-key", "k-1")
        );
        assert!(!format!("{value:?}").contains("k-1"));
    }

    #[test]
    fn a_key_or_a_header_that_cannot_be_meant_is_refused_and_not_printed() {
        for key in ["", "  ", "k-1\n", " k-1", "k\u{0}1", "k\n1"] {
            let error = Auth::bearer().header_of(&Secret::new(key)).unwrap_err();

            assert_eq!(error.kind(), crate::ErrorKind::Config);
            assert!(!format!("{error:?}").contains("k-1"));
        }
        assert!(
            Auth::header("no spaces")
                .header_of(&Secret::new("k"))
                .is_err()
        );
    }
}
