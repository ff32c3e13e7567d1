use std::fmt;

use crate::secret_text::{is_placeholder, trim};

/// Why a signing secret was refused.
///
/// An unusable secret would refuse every delivery or, worse, accept deliveries from anyone who
/// guesses it. It is therefore refused when the [`Verifier`](super::Verifier) or
/// [`Signer`](super::Signer) is created. The text contains the secret's name, never the secret.
///
/// The `Debug` text contains the same sentence, for a `main` that returns the error.
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
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SecretError {
    /// The secret is empty.
    #[error("the signing secret {name:?} is empty")]
    Empty {
        /// The secret's name.
        name: String,
    },

    /// The secret consists of white space.
    #[error("the signing secret {name:?} is blank")]
    Blank {
        /// The secret's name.
        name: String,
    },

    /// The secret starts or ends with white space or a byte-order mark, often the newline at the end
    /// of a file.
    #[error("the signing secret {name:?} has white space at its start or end; remove it")]
    SurroundingWhitespace {
        /// The secret's name.
        name: String,
    },

    /// The secret ends with a NUL byte. HMAC pads keys with NULs, so a key of NULs is equivalent to
    /// the empty key.
    #[error("the signing secret {name:?} ends with a NUL byte; remove it")]
    TrailingNul {
        /// The secret's name.
        name: String,
    },

    /// The secret is a placeholder, for example `<SIGNING_SECRET>`, `changeme`,
    /// `${WEBHOOK_SECRET}` or a row of asterisks.
    #[error("the signing secret {name:?} is a placeholder; replace it with the real one")]
    Placeholder {
        /// The secret's name.
        name: String,
    },

    /// Two secrets have the same name.
    #[error("two signing secrets have the name {name:?}; rename one of them")]
    DuplicateName {
        /// The name of both.
        name: String,
    },

    /// No secret was added.
    #[error("no signing secret was added")]
    NoSecret,

    /// There is no environment variable with a signing secret
    /// ([`secrets_from_env`](super::VerifierBuilder::secrets_from_env)).
    #[error(
        "no signing secret in the environment; set {}, or {} for each of several secrets",
        variables[0],
        variables[1]
    )]
    NoVariable {
        /// The two forms of the variable's name.
        variables: [&'static str; 2],
    },

    /// The secret in an environment variable was refused.
    #[error("{variable}: {problem}")]
    Variable {
        /// The variable's name.
        variable: String,
        /// The problem with the secret.
        problem: Box<Self>,
    },

    /// The value of an environment variable is not valid UTF-8.
    #[error("{variable} is not valid UTF-8")]
    NotUnicode {
        /// The variable's name.
        variable: String,
    },

    /// The name of an environment variable ends with `_FILE`: by convention, its value is a path. A path
    /// can be guessed, so it is no secret. A name that ends with an underscore is refused, too.
    #[error(
        "{variable} seems to be the path of a file; put the secret itself into a variable whose name \
         ends neither with _FILE nor with an underscore"
    )]
    NotASecret {
        /// The variable's name.
        variable: String,
    },
}

impl fmt::Debug for SecretError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SecretError({self})")
    }
}

/// Refuses an unusable secret.
pub(super) fn check_secret(name: &str, secret: &[u8]) -> Result<(), SecretError> {
    let name = || name.to_owned();
    match secret {
        [] => return Err(SecretError::Empty { name: name() }),
        [.., 0] => return Err(SecretError::TrailingNul { name: name() }),
        _ => {}
    }
    // In a secret that is not text, any byte may be at either end.
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
    fn usable_secrets_are_accepted() {
        for secret in [
            "signing secret",
            "secret",
            "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
            "6Jm0nFq2pXvZk4Tt",
            "pass\0word",
            "ключ",
        ] {
            assert_eq!(
                check_secret("main", secret.as_bytes()),
                Ok(()),
                "{secret:?}"
            );
        }
        assert_eq!(check_secret("main", b"\xff\xfe\x20"), Ok(()));
    }

    #[test]
    fn the_debug_text_says_what_is_wrong_and_what_to_do() {
        let error = check_secret("main", b"changeme").unwrap_err();

        assert_eq!(
            format!("{error:?}"),
            r#"SecretError(the signing secret "main" is a placeholder; replace it with the real one)"#
        );
    }

    #[test]
    fn unusable_secrets_are_refused_with_the_reason() {
        let reason = |secret: &str| match check_secret("main", secret.as_bytes()) {
            Ok(()) => "accepted",
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
