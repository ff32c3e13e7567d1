//! Keys and signing secrets, files for their owner only, and the error for settings that cannot be used.

use std::borrow::Cow;
use std::env::VarError;
use std::fmt;
#[cfg(any(feature = "import", feature = "inbox-sqlite"))]
use std::fs::OpenOptions;
use std::path::Path;

/// The error of a setting that cannot be used, such as an empty signing secret.
///
/// The text says which setting is invalid and what to do about it. It never contains a secret. The
/// `Debug` text contains the same sentence, for a `main` that returns the error.
///
/// # Example: a secret that was never filled in
///
/// ```
/// # #[cfg(feature = "webhooks")] {
/// use audience::webhooks::Verifier;
///
/// let error = Verifier::new("<SIGNING_SECRET>").unwrap_err();
///
/// assert_eq!(
///     error.to_string(),
///     r#"the signing secret "default" is a placeholder; replace it with the real one"#
/// );
/// # }
/// ```
#[derive(Clone)]
pub struct ConfigError(Cow<'static, str>);

impl ConfigError {
    pub(crate) fn new(text: impl Into<Cow<'static, str>>) -> Self {
        Self(text.into())
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ConfigError({self})")
    }
}

impl std::error::Error for ConfigError {}

/// Makes a file that is created with these options readable and writable by its owner only. An existing file keeps its
/// mode, and Windows has none.
#[cfg(any(feature = "import", feature = "inbox-sqlite"))]
pub(crate) fn for_owner_only(options: &mut OpenOptions) -> &mut OpenOptions {
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(options, 0o600);
    options
}

/// Why a variable of the environment, or the file that it names, cannot be used. The text has no value.
pub(crate) struct VariableError {
    pub(crate) text: String,
    pub(crate) cause: Option<std::io::Error>,
}

// These are methods, not `From` implementations: the compiler's hints would name the private type.
#[cfg(feature = "webhooks")]
impl VariableError {
    pub(crate) fn into_config_error(self) -> ConfigError {
        ConfigError::new(match self.cause {
            Some(cause) => format!("{}: {cause}", self.text),
            None => self.text,
        })
    }
}

/// Returns a secret from a variable, or from the file that another variable names.
pub(crate) fn secret_from_variables(
    read: impl Fn(&'static str) -> Result<String, VarError>,
    name: &'static str,
    name_of_file: &'static str,
) -> Result<String, VariableError> {
    let problem = |text| VariableError { text, cause: None };
    match (is_set(&read, name), is_set(&read, name_of_file)) {
        (true, true) => Err(problem(format!(
            "both `{name}` and `{name_of_file}` are set; unset one of them"
        ))),
        (false, true) => {
            let file = variable(&read, name_of_file)?;
            // The path is not printed: it may be the secret, set by mistake.
            read_secret(Path::new(&file)).map_err(|cause| VariableError {
                text: format!("could not read the file that `{name_of_file}` names"),
                cause: Some(cause),
            })
        }
        (false, false) if read(name).is_err() => Err(problem(format!(
            "neither of the environment variables `{name}` and `{name_of_file}` is set"
        ))),
        (_, false) => variable(&read, name),
    }
}

/// Returns a secret from its variables, and another one if one of its variables is set.
#[cfg(feature = "webhooks")]
pub(crate) fn secrets_from_variables(
    read: impl Fn(&'static str) -> Result<String, VarError>,
    [name, name_of_file]: [&'static str; 2],
    [other, other_file]: [&'static str; 2],
) -> Result<(String, Option<String>), ConfigError> {
    let secret = secret_from_variables(&read, name, name_of_file);
    let secret = secret.map_err(VariableError::into_config_error)?;
    if !is_set(&read, other) && !is_set(&read, other_file) {
        return Ok((secret, None));
    }
    let other = secret_from_variables(&read, other, other_file);
    Ok((
        secret,
        Some(other.map_err(VariableError::into_config_error)?),
    ))
}

/// Returns whether a variable has a value. An empty one counts as not set.
pub(crate) fn is_set(
    read: impl Fn(&'static str) -> Result<String, VarError>,
    name: &'static str,
) -> bool {
    match read(name) {
        Ok(value) => !value.trim().is_empty(),
        Err(problem) => problem != VarError::NotPresent,
    }
}

/// Returns the value of a variable, which must not be empty.
pub(crate) fn variable(
    read: impl Fn(&'static str) -> Result<String, VarError>,
    name: &'static str,
) -> Result<String, VariableError> {
    let problem = match read(name) {
        Ok(value) if value.trim().is_empty() => "empty",
        Ok(value) => return Ok(value),
        Err(VarError::NotPresent) => "not set",
        Err(VarError::NotUnicode(_)) => "not valid Unicode",
    };
    Err(VariableError {
        text: format!("the environment variable `{name}` is {problem}"),
        cause: None,
    })
}

/// Reads a key or a signing secret. A byte order mark at the start of the file and one newline at its end, as editors add
/// them, do not belong to it.
pub(crate) fn read_secret(file: &Path) -> std::io::Result<String> {
    let text = std::fs::read_to_string(file)?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
    let line = text.strip_suffix('\n').unwrap_or(text);
    Ok(line.strip_suffix('\r').unwrap_or(line).to_owned())
}

/// Fails if a key or a signing secret cannot be real, for example if it is empty. `what` names it in the error's text.
pub(crate) fn check_secret(what: &str, secret: &[u8]) -> Result<(), ConfigError> {
    // Newlines and NULs come from a file that was not read correctly. HMAC pads a secret with NULs, so a secret of NULs
    // equals the empty secret. If the bytes are not text, every value is allowed.
    let Ok(text) = str::from_utf8(secret) else {
        return Ok(());
    };
    let problem = if text.is_empty() {
        "is empty"
    } else if trim(text).is_empty() {
        "is blank"
    } else if text.contains(char::is_control) {
        "contains a control character, such as a newline or a NUL; remove it"
    } else if text.starts_with('<') && text.ends_with('>') {
        "is a placeholder; replace it with the real one"
    } else if is_quoted(text) {
        "is in quotation marks, which count as a part of it; remove them"
    } else if trim(text) != text {
        "contains white space at its start or its end; remove it"
    } else {
        return Ok(());
    };
    Err(ConfigError::new(format!("{what} {problem}")))
}

/// Returns whether a text is in quotation marks, as `docker --env-file` and some other readers of `.env` files leave
/// them around a value.
pub(crate) fn is_quoted(text: &str) -> bool {
    let is_in = |mark: char| {
        let rest = text.strip_prefix(mark);
        rest.is_some_and(|rest| rest.ends_with(mark))
    };
    is_in('"') || is_in('\'')
}

/// Returns the text without white space, byte-order marks and zero-width spaces around it.
pub(crate) fn trim(text: &str) -> &str {
    text.trim_matches(|c: char| c.is_whitespace() || matches!(c, '\u{feff}' | '\u{200b}'))
}

/// Text that `Debug` never prints, such as an API key. Its memory is zeroed on drop.
#[cfg(feature = "client")]
#[derive(Clone)]
pub(crate) struct Secret(String);

#[cfg(feature = "client")]
impl Secret {
    pub(crate) fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// Returns the text. Review every call of this method: the text must not be logged or printed.
    pub(crate) fn expose(&self) -> &str {
        &self.0
    }
}

#[cfg(feature = "client")]
impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("<secret>")
    }
}

#[cfg(feature = "client")]
impl Drop for Secret {
    fn drop(&mut self) {
        zeroize::Zeroize::zeroize(&mut self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(feature = "client")]
    fn debug_does_not_print_the_secret() {
        let secret = Secret::new("k-12345");

        assert_eq!(
            format!("{secret:?} {:#?}", secret.clone()),
            "<secret> <secret>"
        );
        assert_eq!(secret.expose(), "k-12345");
    }

    #[test]
    fn usable_secrets_are_accepted() {
        for secret in [
            "signing secret",
            "secret",
            "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
            "6Jm0nFq2pXvZk4Tt",
            "changeme",
            "<key",
            "key>",
            "\"key",
            "key'",
            "'key\"",
            "k'e'y",
            "\"",
            "ключ",
        ] {
            assert!(check_secret("it", secret.as_bytes()).is_ok(), "{secret:?}");
        }
        assert!(check_secret("it", b"\xff\xfe\x20\n\0").is_ok());
    }

    #[test]
    fn unusable_secrets_are_refused_with_the_reason() {
        for (secret, problem) in [
            ("", "is empty"),
            (" ", "is blank"),
            ("\t\r\n", "is blank"),
            ("\u{a0}", "is blank"),
            ("\u{feff}", "is blank"),
            ("key\n", "contains a control character"),
            ("\0", "contains a control character"),
            ("\0\0\0\0", "contains a control character"),
            ("key\0", "contains a control character"),
            ("pass\0word", "contains a control character"),
            ("key\u{85}", "contains a control character"),
            ("<SIGNING_SECRET>", "is a placeholder"),
            ("<your secret>", "is a placeholder"),
            ("<>", "is a placeholder"),
            ("\"key\"", "is in quotation marks"),
            ("'key'", "is in quotation marks"),
            ("'the key'", "is in quotation marks"),
            ("\"\"", "is in quotation marks"),
            (" key", "contains white space at its start or its end"),
            ("key\u{a0}", "contains white space at its start or its end"),
            (
                "\u{feff}key",
                "contains white space at its start or its end",
            ),
        ] {
            let error = check_secret("it", secret.as_bytes()).unwrap_err();

            let text = error.to_string();
            assert!(
                text.starts_with(&format!("it {problem}")),
                "{secret:?}: {text}"
            );
            assert!(!text.contains("key"), "{text}");
        }
    }

    #[test]
    fn the_debug_text_says_what_is_wrong_and_what_to_do() {
        let error = check_secret("the signing secret \"main\"", b"<x>").unwrap_err();

        assert_eq!(
            format!("{error:?}"),
            r#"ConfigError(the signing secret "main" is a placeholder; replace it with the real one)"#
        );
    }
}
