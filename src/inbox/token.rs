//! The two values by which a store recognizes what it has seen: the token of a claim and the fingerprint of a body.

use std::fmt;

use sha2::{Digest, Sha256};

/// The proof that a caller holds a claim: 16 random bytes, new for each claim.
///
/// A store keeps the token of the newest claim of an event. A caller with another token no longer holds the
/// claim. It is not a secret.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Token([u8; 16]);

impl Token {
    /// Returns a new random token.
    #[must_use]
    pub fn random() -> Self {
        Self(fastrand::u128(..).to_be_bytes())
    }

    /// Returns the token that has these bytes.
    #[must_use]
    pub fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// Returns the bytes of the token, to store them.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Token({:032x})", u128::from_be_bytes(self.0))
    }
}

/// The fingerprint of a body: the first 16 bytes of its SHA-256.
///
/// A store keeps it to notice an event id that comes back with another body. It holds nothing of the body.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fingerprint([u8; 16]);

impl Fingerprint {
    /// Returns the fingerprint of a body.
    #[must_use]
    pub fn of(body: &[u8]) -> Self {
        let digest: [u8; 32] = Sha256::digest(body).into();
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&digest[..16]);
        Self(bytes)
    }

    /// Returns the fingerprint that has these bytes.
    #[must_use]
    pub fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// Returns the bytes of the fingerprint, to store them.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fingerprint({:032x})", u128::from_be_bytes(self.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_tokens_differ_and_come_back_from_their_bytes() {
        let tokens: std::collections::HashSet<_> = (0..10_000).map(|_| Token::random()).collect();

        assert_eq!(tokens.len(), 10_000);
        assert!(
            tokens
                .iter()
                .all(|token| Token::from_bytes(*token.as_bytes()) == *token)
        );
    }

    #[test]
    fn a_token_is_printed_as_32_hexadecimal_digits() {
        let mut bytes = [0; 16];
        bytes[0] = 0x0a;

        let text = format!("{:?}", Token::from_bytes(bytes));

        assert_eq!(text, "Token(0a000000000000000000000000000000)");
    }

    #[test]
    fn a_fingerprint_is_the_start_of_the_sha_256_of_the_body() {
        // FIPS 180-2, appendix B.1.
        let text = format!("{:?}", Fingerprint::of(b"abc"));

        assert_eq!(text, "Fingerprint(ba7816bf8f01cfea414140de5dae2223)");
    }

    #[test]
    fn bodies_that_differ_in_a_byte_have_different_fingerprints() {
        assert_eq!(Fingerprint::of(b"a"), Fingerprint::of(b"a"));
        assert_ne!(Fingerprint::of(b"a"), Fingerprint::of(b"a\0"));
        assert_ne!(Fingerprint::of(b""), Fingerprint::of(b"\0"));
    }

    #[test]
    fn a_fingerprint_comes_back_from_its_bytes() {
        let fingerprint = Fingerprint::of(b"body");

        assert_eq!(
            Fingerprint::from_bytes(*fingerprint.as_bytes()),
            fingerprint
        );
    }
}
