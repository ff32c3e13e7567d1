use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::clock::{Clock, SystemClock};
use super::secret_error::{SecretError, vet};
use super::signature::SigningKey;
use super::verifier::{NamedKey, Settings, Verifier};

const DEFAULT_TOLERANCE: Duration = Duration::from_secs(300);
const DEFAULT_BODY_LIMIT: usize = 2 * 1024 * 1024;

/// What a [`Verifier`] is made from; see [`Verifier::builder`].
#[must_use = "a builder does nothing until `build` is called"]
pub struct VerifierBuilder {
    keys: Vec<NamedKey>,
    refused: Option<SecretError>,
    tolerance: Duration,
    body_limit: usize,
    clock: Arc<dyn Clock>,
}

impl VerifierBuilder {
    pub(super) fn new() -> Self {
        Self {
            keys: Vec::new(),
            refused: None,
            tolerance: DEFAULT_TOLERANCE,
            body_limit: DEFAULT_BODY_LIMIT,
            clock: Arc::new(SystemClock),
        }
    }

    /// Adds a signing secret under a name of your choice, which is what logs and
    /// [`Authenticated::secret_name`](super::Authenticated::secret_name) show.
    ///
    /// The bytes are taken as they are: a secret that looks like hex or base64 is not decoded. More
    /// than one secret is for rotation, and a delivery signed with any of them is accepted.
    pub fn secret(mut self, name: impl Into<String>, secret: impl AsRef<[u8]>) -> Self {
        let name = name.into();
        let secret = secret.as_ref();
        let verdict = if self.keys.iter().any(|key| key.name == name) {
            Err(SecretError::DuplicateName { name: name.clone() })
        } else {
            vet(&name, secret)
        };
        match verdict {
            Ok(()) => self.keys.push(NamedKey {
                name,
                key: SigningKey::new(secret),
            }),
            Err(error) => {
                self.refused.get_or_insert(error);
            }
        }
        self
    }

    /// How far a delivery's timestamp may lie from the current time, either way, edge included;
    /// 300 seconds unless set (interface section 5). Fractions of a second do not count.
    pub fn tolerance(mut self, tolerance: Duration) -> Self {
        self.tolerance = tolerance;
        self
    }

    /// The longest body that is looked at, in bytes; 2 MiB unless set.
    pub fn body_limit(mut self, bytes: usize) -> Self {
        self.body_limit = bytes;
        self
    }

    /// Where the current time is taken from; the system's clock unless set.
    pub fn clock(mut self, clock: impl Clock + 'static) -> Self {
        self.clock = Arc::new(clock);
        self
    }

    /// Makes the verifier.
    ///
    /// # Errors
    ///
    /// A [`SecretError`] for the first secret that cannot be meant as one, for a name used twice,
    /// or where no secret was given.
    pub fn build(self) -> Result<Verifier, SecretError> {
        if let Some(error) = self.refused {
            return Err(error);
        }
        if self.keys.is_empty() {
            return Err(SecretError::NoSecret);
        }
        Ok(Verifier::from_settings(Settings {
            keys: self.keys,
            tolerance: self.tolerance,
            body_limit: self.body_limit,
            clock: self.clock,
        }))
    }
}

impl fmt::Debug for VerifierBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.keys.iter().map(|key| key.name.as_str()).collect();
        f.debug_struct("VerifierBuilder")
            .field("secrets", &names)
            .field("tolerance", &self.tolerance)
            .field("body_limit", &self.body_limit)
            .finish_non_exhaustive()
    }
}
