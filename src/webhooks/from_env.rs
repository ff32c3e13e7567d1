use std::ffi::OsString;

use super::builder::VerifierBuilder;
use super::key_ring::DEFAULT_NAME;
use super::secret_error::SecretError;
use super::verifier::Verifier;

/// The environment variable with the signing secret, and those with further secrets.
const VARIABLES: [&str; 2] = ["AUDIENCE_WEBHOOK_SECRET", "AUDIENCE_WEBHOOK_SECRET_<NAME>"];

impl Verifier {
    /// Creates a verifier with the signing secrets of the environment, as
    /// [`secrets_from_env`](VerifierBuilder::secrets_from_env) reads them.
    ///
    /// # Errors
    ///
    /// Returns a [`SecretError`] if there is no variable with a secret, or if one of the secrets is
    /// unusable. It names the variable, never its value.
    ///
    /// # Example: a secret that the deployment sets
    ///
    /// ```no_run
    /// use audience::webhooks::Verifier;
    ///
    /// let verifier = Verifier::from_env()?;
    /// # Ok::<(), audience::webhooks::SecretError>(())
    /// ```
    pub fn from_env() -> Result<Self, SecretError> {
        Self::builder().secrets_from_env().build()
    }
}

impl VerifierBuilder {
    /// Adds the signing secrets of the environment, so that their rotation is a setting of the
    /// deployment.
    ///
    /// | variable | name of its secret |
    /// |---|---|
    /// | `AUDIENCE_WEBHOOK_SECRET` | `default` |
    /// | `AUDIENCE_WEBHOOK_SECRET_<NAME>`, any number of them | `<NAME>` in lowercase |
    ///
    /// A variable that is empty or otherwise unusable is an error of [`build`](Self::build), and so is
    /// an environment without any of them. A variable that ends with `_FILE` is refused: the value must
    /// be the secret itself.
    ///
    /// # Example: the old and the new secret
    ///
    /// ```console
    /// $ AUDIENCE_WEBHOOK_SECRET=Wb8cQe1sLr5uYh7o AUDIENCE_WEBHOOK_SECRET_2026=6Jm0nFq2pXvZk4Tt my-receiver
    /// ```
    ///
    /// ```no_run
    /// use std::time::Duration;
    /// use audience::webhooks::Verifier;
    ///
    /// let verifier = Verifier::builder()
    ///     .secrets_from_env()
    ///     .tolerance(Duration::from_secs(120))
    ///     .build()?; // with the secrets `default` and `2026`
    /// # Ok::<(), audience::webhooks::SecretError>(())
    /// ```
    pub fn secrets_from_env(self) -> Self {
        self.secrets_from(find_secrets(environment()))
    }

    fn secrets_from(mut self, found: Result<Vec<SecretVariable>, SecretError>) -> Self {
        let added = found.and_then(|secrets| {
            secrets.into_iter().try_for_each(|found| {
                let added = self.settings.keys.add(found.name, found.secret.as_bytes());
                added.map_err(|problem| SecretError::Variable {
                    variable: found.variable,
                    problem: Box::new(problem),
                })
            })
        });
        if let Err(error) = added {
            self.refused.get_or_insert(error);
        }
        self
    }
}

/// A signing secret and the environment variable that it was read from.
struct SecretVariable {
    variable: String,
    name: String,
    secret: String,
}

/// Returns the variables of this process.
fn environment() -> Vec<(OsString, OsString)> {
    // This target has no environment: the standard library panics there.
    if cfg!(all(target_family = "wasm", target_os = "unknown")) {
        Vec::new()
    } else {
        std::env::vars_os().collect()
    }
}

/// Finds the signing secrets among `variables`. They are in the order of the variables' names, so that
/// the same error is always the first.
fn find_secrets(
    variables: impl IntoIterator<Item = (OsString, OsString)>,
) -> Result<Vec<SecretVariable>, SecretError> {
    let mut found: Vec<(String, String, OsString)> = variables
        .into_iter()
        .filter_map(|(variable, secret)| {
            let variable = variable.to_string_lossy().into_owned();
            let name = match variable.strip_prefix(VARIABLES[0])? {
                "" => DEFAULT_NAME.to_owned(),
                suffix => suffix.strip_prefix('_')?.to_lowercase(),
            };
            Some((variable, name, secret))
        })
        .collect();
    if found.is_empty() {
        return Err(SecretError::NoVariable {
            variables: VARIABLES,
        });
    }
    found.sort();

    found
        .into_iter()
        .map(|(variable, name, secret)| match secret.into_string() {
            _ if name.is_empty() || name == "file" || name.ends_with("_file") => {
                Err(SecretError::NotASecret { variable })
            }
            Ok(secret) => Ok(SecretVariable {
                variable,
                name,
                secret,
            }),
            Err(_) => Err(SecretError::NotUnicode { variable }),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn builder(variables: &[(&str, &str)]) -> VerifierBuilder {
        let variables = variables
            .iter()
            .map(|(name, value)| (name.into(), value.into()));
        Verifier::builder().secrets_from(find_secrets(variables))
    }

    fn names(variables: &[(&str, &str)]) -> String {
        format!("{:?}", builder(variables).build().unwrap())
    }

    fn error(variables: &[(&str, &str)]) -> String {
        builder(variables).build().unwrap_err().to_string()
    }

    #[test]
    fn each_variable_is_a_secret_under_its_name_in_lowercase() {
        let verifier = names(&[
            ("AUDIENCE_WEBHOOK_SECRET_OLD", "Wb8cQe1sLr5uYh7o"),
            ("PATH", "/bin"),
            ("AUDIENCE_WEBHOOK_SECRETS", "x"),
            ("audience_webhook_secret_new", "x"),
            ("AUDIENCE_WEBHOOK_SECRET", "6Jm0nFq2pXvZk4Tt"),
            ("AUDIENCE_WEBHOOK_SECRET_US_EAST_1", "Kd3mVt9wBz6xPa2g"),
        ]);

        let expected = r#"secrets: ["default", "old", "us_east_1"]"#;
        assert!(verifier.contains(expected), "{verifier}");
    }

    #[test]
    fn the_variable_without_a_name_is_not_needed() {
        let verifier = names(&[("AUDIENCE_WEBHOOK_SECRET_2026", "6Jm0nFq2pXvZk4Tt")]);

        assert!(verifier.contains(r#"secrets: ["2026"]"#), "{verifier}");
    }

    #[test]
    fn no_variable_at_all_is_an_error_with_both_names() {
        for variables in [&[][..], &[("AUDIENCE_WEBHOOK_SECRETS", "x"), ("HOME", "/")]] {
            assert_eq!(
                error(variables),
                "no signing secret in the environment; set AUDIENCE_WEBHOOK_SECRET, or \
                 AUDIENCE_WEBHOOK_SECRET_<NAME> for each of several secrets"
            );
        }
    }

    #[test]
    fn an_unusable_variable_is_named_even_if_another_is_usable() {
        for (value, problem) in [
            ("", r#"the signing secret "new" is empty"#),
            (" ", r#"the signing secret "new" is blank"#),
            (
                "<SECRET>",
                r#"the signing secret "new" is a placeholder; replace it with the real one"#,
            ),
        ] {
            let variables = [
                ("AUDIENCE_WEBHOOK_SECRET", "6Jm0nFq2pXvZk4Tt"),
                ("AUDIENCE_WEBHOOK_SECRET_NEW", value),
            ];

            let expected = format!("AUDIENCE_WEBHOOK_SECRET_NEW: {problem}");
            assert_eq!(error(&variables), expected);
        }
    }

    #[test]
    fn two_variables_with_the_same_name_are_an_error_that_names_the_second() {
        let text = error(&[
            ("AUDIENCE_WEBHOOK_SECRET_DEFAULT", "6Jm0nFq2pXvZk4Tt"),
            ("AUDIENCE_WEBHOOK_SECRET", "Wb8cQe1sLr5uYh7o"),
        ]);

        assert_eq!(
            text,
            "AUDIENCE_WEBHOOK_SECRET_DEFAULT: two signing secrets have the name \"default\"; \
             rename one of them"
        );
    }

    #[test]
    fn a_path_of_a_file_is_not_taken_for_a_secret() {
        for variable in [
            "AUDIENCE_WEBHOOK_SECRET_FILE",
            "AUDIENCE_WEBHOOK_SECRET_OLD_FILE",
            "AUDIENCE_WEBHOOK_SECRET_",
        ] {
            let text = error(&[(variable, "/run/secrets/webhook")]);

            assert!(
                text.starts_with(&format!("{variable} seems to be the path")),
                "{text}"
            );
            assert!(!text.contains("/run"), "{text}");
        }
    }

    #[cfg(unix)]
    #[test]
    fn a_variable_that_is_not_unicode_is_an_error_without_its_value() {
        use std::os::unix::ffi::OsStringExt;
        let secret = OsString::from_vec(b"Wb8c\xff".to_vec());

        let found = find_secrets([(VARIABLES[0].into(), secret)]);

        let text = found.map(|_| ()).unwrap_err().to_string();
        assert_eq!(text, "AUDIENCE_WEBHOOK_SECRET is not valid UTF-8");
    }
}
