use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::clock::Clock;
use super::settings::Settings;
use super::verifier::Verifier;
use crate::ConfigError;

/// Builds a [`Verifier`]; see [`Verifier::builder`].
#[must_use = "a builder does nothing until `build` is called"]
pub struct VerifierBuilder {
    pub(super) settings: Settings,
    /// The first secret that was refused, reported by `build`.
    pub(super) refused: Option<ConfigError>,
}

impl Verifier {
    /// Returns a builder, for several secrets or for another tolerance, body limit or clock.
    ///
    /// # Example: while a secret is being rotated
    ///
    /// ```
    /// use std::time::Duration;
    /// use audience::webhooks::Verifier;
    ///
    /// let verifier = Verifier::builder()
    ///     .secret("2026", "6Jm0nFq2pXvZk4Tt")
    ///     .secret("2025", "Wb8cQe1sLr5uYh7o")
    ///     .tolerance(Duration::from_secs(120))
    ///     .build()?;
    /// # Ok::<(), audience::ConfigError>(())
    /// ```
    pub fn builder() -> VerifierBuilder {
        VerifierBuilder {
            settings: Settings::default(),
            refused: None,
        }
    }
}

impl VerifierBuilder {
    /// Adds a signing secret under a name of your choice. Logs and
    /// [`VerifiedDelivery::secret_name`](super::VerifiedDelivery::secret_name) show the
    /// name, never the secret.
    ///
    /// The secret's bytes are used unchanged: text that looks like hex or base64 is not decoded. Add
    /// more than one secret to rotate them; a delivery signed with any of them is accepted.
    ///
    /// # Example: the old and the new secret
    ///
    /// ```
    /// # use std::time::SystemTime;
    /// # use audience::webhooks::{EventType, Signer, Verifier};
    /// # let body = br#"{"id": "evt_1", "type": "email.sent", "created_at": 1700000000, "data": {}}"#;
    /// # let headers = Signer::new("Wb8cQe1sLr5uYh7o")?.sign(&EventType::Sent, SystemTime::now(), body);
    /// let verifier = Verifier::builder()
    ///     .secret("new", "6Jm0nFq2pXvZk4Tt")
    ///     .secret("old", "Wb8cQe1sLr5uYh7o")
    ///     .build()?;
    ///
    /// assert_eq!(verifier.authenticate(&headers, body)?.secret_name(), "old");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn secret(mut self, name: impl Into<String>, secret: impl AsRef<[u8]>) -> Self {
        if let Err(error) = self.settings.keys.add(name.into(), secret.as_ref()) {
            self.refused.get_or_insert(error);
        }
        self
    }

    /// Sets how far a delivery's timestamp may differ from the current time, in either direction.
    /// Default: 300 s (interface section 5).
    ///
    /// A difference equal to the tolerance is accepted. Fractions of a second are ignored.
    ///
    /// # Example: a stricter window
    ///
    /// ```
    /// # use std::time::{Duration, SystemTime};
    /// # use audience::webhooks::{EventType, Signer, Verifier, VerifyError};
    /// # let (now, body) = (SystemTime::now(), b"{}");
    /// # let late = Signer::new("6Jm0nFq2pXvZk4Tt")?.sign(&EventType::Sent, now - Duration::from_secs(61), body);
    /// let verifier = Verifier::builder()
    ///     .secret("main", "6Jm0nFq2pXvZk4Tt")
    ///     .tolerance(Duration::from_secs(60))
    ///     .build()?;
    ///
    /// let error = verifier.verify_at(&late, body, now).unwrap_err();
    /// assert_eq!(error, VerifyError::TooLate { skew: Duration::from_secs(61) });
    /// # Ok::<(), audience::ConfigError>(())
    /// ```
    pub fn tolerance(mut self, tolerance: Duration) -> Self {
        self.settings.tolerance = tolerance;
        self
    }

    /// Sets the longest body that is accepted, in bytes. Default: 2 MiB.
    ///
    /// # Example: a smaller limit
    ///
    /// ```
    /// # use audience::webhooks::Verifier;
    /// let verifier = Verifier::builder()
    ///     .secret("main", "6Jm0nFq2pXvZk4Tt")
    ///     .body_limit(64 * 1024)
    ///     .build()?;
    ///
    /// assert_eq!(verifier.body_limit(), 65_536);
    /// # Ok::<(), audience::ConfigError>(())
    /// ```
    pub fn body_limit(mut self, bytes: usize) -> Self {
        self.settings.body_limit = bytes;
        self
    }

    /// Sets how long the extractors of [`axum`](super::axum) and [`actix`](super::actix) and the layer
    /// of [`tower`](super::tower) wait for a body to arrive completely. Default: 5 s.
    ///
    /// A body that takes longer is refused with 408. Keep the time below the ten seconds that the
    /// service waits for a response. The time limit of the headers is a setting of the server.
    ///
    /// The timer is Tokio's. If you build the runtime yourself, enable its timers (`enable_time`):
    /// otherwise, a request whose body does not arrive at once panics. Outside a Tokio runtime and on
    /// `wasm32-unknown-unknown`, there is no time limit.
    ///
    /// # Example: a shorter time
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use audience::webhooks::Verifier;
    /// let verifier = Verifier::builder()
    ///     .secret("main", "6Jm0nFq2pXvZk4Tt")
    ///     .body_timeout(Duration::from_secs(2))
    ///     .build()?;
    /// # Ok::<(), audience::ConfigError>(())
    /// ```
    #[cfg(any(feature = "actix", feature = "axum", feature = "tower"))]
    #[cfg_attr(
        docsrs,
        doc(cfg(any(feature = "actix", feature = "axum", feature = "tower")))
    )]
    pub fn body_timeout(mut self, timeout: Duration) -> Self {
        self.settings.read_limits.timeout = timeout;
        self
    }

    /// Sets how many bytes of unverified bodies the extractors of [`axum`](super::axum) and
    /// [`actix`](super::actix) and the layer of [`tower`](super::tower) may hold at once, in all
    /// requests of this verifier and its clones. Default: 64 MiB, or four times the
    /// [`body_limit`](Self::body_limit) if that is more.
    ///
    /// If a body needs more, it is refused with 503, and the service retries. Bodies longer than
    /// 64 KiB share half of the memory, so that they cannot keep out small deliveries. Set at least four
    /// times the body limit. With less than twice the body limit, the longest deliveries are always
    /// refused.
    ///
    /// # Example: a small machine
    ///
    /// ```
    /// # use audience::webhooks::Verifier;
    /// let verifier = Verifier::builder()
    ///     .secret("main", "6Jm0nFq2pXvZk4Tt")
    ///     .body_limit(256 * 1024)
    ///     .body_memory(8 * 1024 * 1024)
    ///     .build()?;
    /// # Ok::<(), audience::ConfigError>(())
    /// ```
    #[cfg(any(feature = "actix", feature = "axum", feature = "tower"))]
    #[cfg_attr(
        docsrs,
        doc(cfg(any(feature = "actix", feature = "axum", feature = "tower")))
    )]
    pub fn body_memory(mut self, bytes: usize) -> Self {
        self.settings.read_limits.memory = Some(bytes);
        self
    }

    /// Sets the clock that timestamps are compared with. Default: the system clock.
    ///
    /// # Example: a fixed time in a test
    ///
    /// ```
    /// use std::time::{Duration, SystemTime};
    /// # use audience::webhooks::{EventType, Signer, Verifier};
    /// # let body = br#"{"id": "evt_1", "type": "email.sent", "created_at": 1700000000, "data": {}}"#;
    ///
    /// let then = SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000);
    /// let verifier = Verifier::builder()
    ///     .secret("main", "6Jm0nFq2pXvZk4Tt")
    ///     .clock(move || then)
    ///     .build()?;
    /// # let headers = Signer::new("6Jm0nFq2pXvZk4Tt")?.sign(&EventType::Sent, then, body);
    ///
    /// assert!(verifier.verify(&headers, body).is_ok());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn clock(mut self, clock: impl Clock + 'static) -> Self {
        self.settings.clock = Arc::new(clock);
        self
    }

    /// Builds the verifier.
    ///
    /// # Errors
    ///
    /// Returns a [`ConfigError`] if no secret was added, if two secrets have the same name, or if a secret is
    /// unusable (see [`Verifier::new`]). The first error is returned.
    pub fn build(self) -> Result<Verifier, ConfigError> {
        match self.refused {
            Some(error) => Err(error),
            None if self.settings.keys.is_empty() => {
                Err(ConfigError::new("no signing secret was added"))
            }
            None => Ok(Verifier::from_settings(self.settings)),
        }
    }
}

impl fmt::Debug for VerifierBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.settings.debug("VerifierBuilder", f)
    }
}
