//! API keys, and how a request presents one (section 5).

use std::fmt;

use super::refusal::Refusal;

/// The full-access key of a mock whose test sets none.
pub(crate) const DEFAULT_FULL_KEY: &str = "mock-full-access-key";

/// The sending-access key of a mock whose test sets none.
pub(crate) const DEFAULT_SENDING_KEY: &str = "mock-sending-access-key";

/// The two kinds of key there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Key {
    Full,
    Sending,
}

/// The keys that are taken, and where they are looked for.
#[derive(Clone)]
pub(crate) struct Keys {
    pub(crate) full: String,
    pub(crate) sending: String,
    /// `None` is `Authorization: Bearer`; a header that is named holds the bare key.
    pub(crate) header: Option<String>,
}

impl Keys {
    /// The kind of the key that the headers present; 401 where there is none, or another, or two.
    pub(crate) fn find(&self, headers: &[(String, String)]) -> Result<Key, Refusal> {
        let name = self.header.as_deref().unwrap_or("authorization");
        let mut values = headers
            .iter()
            .filter(|(header, _)| header.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.trim());
        let value = match (values.next(), values.next()) {
            (Some(value), None) => value,
            (None, _) => return Err(missing(name)),
            (Some(_), Some(_)) => {
                let message = format!("the header `{name}` is given twice");
                return Err(Refusal::unauthorized(message));
            }
        };
        let presented = match self.header {
            Some(_) => value,
            None => bearer(value).ok_or_else(|| {
                Refusal::unauthorized("the header `authorization` must be `Bearer` and the key")
            })?,
        };
        if presented == self.full {
            Ok(Key::Full)
        } else if presented == self.sending {
            Ok(Key::Sending)
        } else {
            Err(Refusal::unauthorized("the key is not known"))
        }
    }
}

/// Keys are secrets also where they are made up for a test: a test may hand in a real one.
impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keys")
            .field("header", &self.header)
            .finish_non_exhaustive()
    }
}

fn missing(name: &str) -> Refusal {
    Refusal::unauthorized(format!("the header `{name}` with the key is missing"))
}

/// The scheme's name is taken in any case, as HTTP has it.
fn bearer(value: &str) -> Option<&str> {
    let (scheme, key) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| key.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(header: Option<&str>, headers: &[(&str, &str)]) -> Result<Key, u16> {
        let keys = Keys {
            full: "full".to_owned(),
            sending: "sending".to_owned(),
            header: header.map(str::to_owned),
        };
        let headers: Vec<(String, String)> = headers
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect();
        keys.find(&headers).map_err(|refusal| refusal.status)
    }

    #[test]
    fn a_bearer_token_is_one_of_the_two_keys() {
        assert_eq!(
            find(None, &[("authorization", "Bearer full")]),
            Ok(Key::Full)
        );
        assert_eq!(
            find(None, &[("authorization", "bearer sending")]),
            Ok(Key::Sending)
        );
    }

    #[test]
    fn a_named_header_holds_the_bare_key() {
        let header = Some("X-Api-Key");

        assert_eq!(find(header, &[("x-api-key", "full")]), Ok(Key::Full));
        assert_eq!(find(header, &[("x-api-key", "Bearer full")]), Err(401));
        assert_eq!(find(header, &[("authorization", "Bearer full")]), Err(401));
    }

    #[test]
    fn no_key_another_key_and_two_keys_are_unauthorized() {
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
            assert_eq!(find(None, headers), Err(401), "{headers:?}");
        }
    }

    #[test]
    fn keys_do_not_print_themselves() {
        let keys = Keys {
            full: "k-full".to_owned(),
            sending: "k-sending".to_owned(),
            header: None,
        };

        assert!(!format!("{keys:?}").contains("k-"));
    }
}
