use std::fmt;

/// The proof that a caller holds a claim: 16 random bytes, new for each claim.
///
/// A store keeps the token of the newest claim of an event. Whoever shows another token holds the claim no
/// longer. It is not a secret.
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
}
