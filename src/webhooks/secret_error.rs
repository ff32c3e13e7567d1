use crate::secret_text::{is_placeholder, trim};

/// Why a signing secret was not taken.
///
/// A secret that cannot have been meant would either refuse every delivery or, worse, accept those
/// of anybody who guesses it. So it is refused when the [`Verifier`](super::Verifier) or
/// [`Signer`](super::Signer) is made, when somebody is still looking. The text never shows the
/// secret, only its name.
///
/// # Example: a variable that was never filled in
///
/// ```
/// use audience::webhooks::{SecretError, Verifier};
///
/// let error = Verifier::new("<SIGNING_SECRET>").unwrap_err();
///
/// assert!(matches!(error, SecretError::Placeholder { .. }));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SecretError {
    /// It has no bytes.
    #[error("the signing secret {name:?} is empty")]
    Empty {
        /// The secret's name.
        name: String,
    },

    /// It is nothing but white space.
    #[error("the signing secret {name:?} is blank")]
    Blank {
        /// The secret's name.
        name: String,
    },

    /// It starts or ends with white space, or with a byte-order mark: most often the newline at
    /// the end of a file.
    #[error("the signing secret {name:?} has white space at its start or end")]
    SurroundingWhitespace {
        /// The secret's name.
        name: String,
    },

    /// It ends with a NUL byte, or is nothing but NULs. HMAC pads keys with NULs, so all-NUL keys
    /// are one key, the empty one.
    #[error("the signing secret {name:?} ends with a NUL byte")]
    TrailingNul {
        /// The secret's name.
        name: String,
    },

    /// It is the text that stands where a secret should be put: `<SIGNING_SECRET>`, `changeme`,
    /// `${WEBHOOK_SECRET}`, a row of asterisks.
    #[error("the signing secret {name:?} is a placeholder")]
    Placeholder {
        /// The secret's name.
        name: String,
    },

    /// Two secrets were given the same name.
    #[error("there are two signing secrets of the name {name:?}")]
    DuplicateName {
        /// The name they share.
        name: String,
    },

    /// No secret was given.
    #[error("no signing secret was given")]
    NoSecret,
}

/// Refuses what cannot be meant as a secret.
pub(super) fn vet(name: &str, secret: &[u8]) -> Result<(), SecretError> {
    let name = || name.to_owned();
    match secret {
        [] => return Err(SecretError::Empty { name: name() }),
        [.., 0] => return Err(SecretError::TrailingNul { name: name() }),
        _ => {}
    }
    // Any byte can stand at either end of a secret that is not text.
    let Ok(text) = str::from_utf8(secret) else {
        return Ok(());
    };
    let trimmed = trim(text);
    if trimmed.is_empty() {
        Err(SecretError::Blank { name: name() })
    } else if trimmed != text {
        Err(SecretError::SurroundingWhitespace { name: name() })
    } else if is_placeholder(text) {
        Err(SecretError::Placeholder { name: name() })
    } else {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_that_may_be_meant_is_taken() {
        for secret in [
            "signing secret",
            "secret",
            "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
            "6Jm0nFq2pXvZk4Tt",
            "pass\0word",
            "ключ",
        ] {
            assert_eq!(vet("main", secret.as_bytes()), Ok(()), "{secret:?}");
        }
        assert_eq!(vet("main", b"\xff\xfe\x20"), Ok(()));
    }

    #[test]
    fn a_secret_that_cannot_be_meant_is_refused_with_its_reason() {
        let reason = |secret: &str| match vet("main", secret.as_bytes()) {
            Ok(()) => "taken",
            Err(SecretError::Empty { .. }) => "empty",
            Err(SecretError::Blank { .. }) => "blank",
            Err(SecretError::SurroundingWhitespace { .. }) => "surrounded",
            Err(SecretError::TrailingNul { .. }) => "nul",
            Err(SecretError::Placeholder { .. }) => "placeholder",
            Err(_) => "other",
        };

        for (secret, expected) in [
            ("", "empty"),
            (" ", "blank"),
            ("\t\r\n", "blank"),
            ("\u{feff}", "blank"),
            ("key\n", "surrounded"),
            (" key", "surrounded"),
            ("key\u{a0}", "surrounded"),
            ("\u{feff}key", "surrounded"),
            ("\0", "nul"),
            ("\0\0\0\0", "nul"),
            ("key\0", "nul"),
            ("<SIGNING_SECRET>", "placeholder"),
            ("<your secret>", "placeholder"),
            ("${WEBHOOK_SECRET}", "placeholder"),
            ("$WEBHOOK_SECRET", "placeholder"),
            ("{{ secret }}", "placeholder"),
            ("%SECRET%", "placeholder"),
            ("SIGNING_SECRET", "placeholder"),
            ("changeme", "placeholder"),
            ("Change-Me", "placeholder"),
            ("CHANGE_ME!", "placeholder"),
            ("your signing secret", "placeholder"),
            ("todo", "placeholder"),
            ("undefined", "placeholder"),
            ("xxxxxxxx", "placeholder"),
            ("********", "placeholder"),
            ("••••••••", "placeholder"),
        ] {
            assert_eq!(reason(secret), expected, "{secret:?}");
        }
    }
}
