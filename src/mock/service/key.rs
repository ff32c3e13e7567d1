//! API keys, and how a request presents one (section 5).

use std::fmt;

use super::refusal::Refusal;

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

#[cfg(test)]
mod tests {
    use super::*;

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
}
