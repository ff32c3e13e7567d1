use subtle::{Choice, ConditionallySelectable};

use super::signature::{SigningKey, Tag};
use crate::secret::{ConfigError, check_secret};

/// The name of a secret that was given none.
pub(super) const DEFAULT_NAME: &str = "default";

/// The secrets of one verifier, each under a unique name.
#[derive(Default)]
pub(super) struct KeyRing(Vec<NamedKey>);

struct NamedKey {
    name: String,
    key: SigningKey,
}

/// Returns the key of a secret, unless it is unusable.
pub(super) fn signing_key(name: &str, secret: &[u8]) -> Result<SigningKey, ConfigError> {
    check_secret(&format!("the signing secret {name:?}"), secret)?;
    Ok(SigningKey::new(secret))
}

impl KeyRing {
    pub(super) fn add(&mut self, name: String, secret: &[u8]) -> Result<(), ConfigError> {
        if self.0.iter().any(|named| named.name == name) {
            return Err(ConfigError::new(format!(
                "two signing secrets have the name {name:?}; rename one of them"
            )));
        }
        let key = signing_key(&name, secret)?;
        self.0.push(NamedKey { name, key });
        Ok(())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn names(&self) -> Vec<&str> {
        self.0.iter().map(|named| named.name.as_str()).collect()
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = &SigningKey> {
        self.0.iter().map(|named| &named.key)
    }

    /// Returns the name of the first secret that `tag` was made with.
    ///
    /// Every secret is tried and the match is selected without a branch, so the time taken does not
    /// depend on which secret matched.
    pub(super) fn matching_name(&self, tag: &Tag, timestamp: &[u8], body: &[u8]) -> Option<&str> {
        let mut found = Choice::from(0);
        let mut index = 0_u64;
        for (candidate, named) in (0_u64..).zip(&self.0) {
            let matches = named.key.verify(tag, timestamp, body);
            index.conditional_assign(&candidate, matches & !found);
            found |= matches;
        }

        let index = usize::try_from(index).ok()?;
        bool::from(found).then(|| self.0[index].name.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRETS: [&[u8]; 3] = [b"the first", b"the second", b"the third"];

    fn key_ring() -> KeyRing {
        let mut ring = KeyRing::default();
        for (name, secret) in ["1", "2", "3"].into_iter().zip(SECRETS) {
            ring.add(name.to_owned(), secret).unwrap();
        }
        ring
    }

    fn tag(secret: &[u8]) -> Tag {
        let signature = SigningKey::new(secret).sign(b"1700000000", b"{}");
        Tag::parse(signature.as_bytes()).unwrap()
    }

    #[test]
    fn each_secret_is_found_by_what_it_signed() {
        for (name, secret) in ["1", "2", "3"].into_iter().zip(SECRETS) {
            let ring = key_ring();

            let found = ring.matching_name(&tag(secret), b"1700000000", b"{}");

            assert_eq!(found, Some(name));
        }
    }

    #[test]
    fn no_secret_is_found_for_a_forgery() {
        let ring = key_ring();

        let forged = ring.matching_name(&tag(b"another"), b"1700000000", b"{}");
        let changed = ring.matching_name(&tag(b"the first"), b"1700000000", b"{ }");

        assert_eq!((forged, changed), (None, None));
    }

    #[test]
    fn the_first_of_two_equal_secrets_is_named() {
        let mut ring = key_ring();
        ring.add("4".to_owned(), b"the second").unwrap();

        let found = ring.matching_name(&tag(b"the second"), b"1700000000", b"{}");

        assert_eq!(found, Some("2"));
    }
}
