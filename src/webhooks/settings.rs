use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::clock::{Clock, SystemClock};
use super::key_ring::KeyRing;
#[cfg(any(feature = "actix", feature = "axum", feature = "tower"))]
use super::read_limits::ReadLimits;

const DEFAULT_TOLERANCE: Duration = Duration::from_secs(300);
const DEFAULT_BODY_LIMIT: usize = 2 * 1024 * 1024;

/// The configuration of a verifier.
pub(super) struct Settings {
    pub(super) keys: KeyRing,
    pub(super) tolerance: Duration,
    pub(super) body_limit: usize,
    pub(super) clock: Arc<dyn Clock>,
    #[cfg(any(feature = "actix", feature = "axum", feature = "tower"))]
    pub(super) read_limits: ReadLimits,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            keys: KeyRing::default(),
            tolerance: DEFAULT_TOLERANCE,
            body_limit: DEFAULT_BODY_LIMIT,
            clock: Arc::new(SystemClock),
            #[cfg(any(feature = "actix", feature = "axum", feature = "tower"))]
            read_limits: ReadLimits::default(),
        }
    }
}

impl Settings {
    /// Prints everything except the secrets, under the name of the type that holds the settings.
    pub(super) fn debug(&self, holder: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct(holder)
            .field("secrets", &self.keys.names())
            .field("tolerance", &self.tolerance)
            .field("body_limit", &self.body_limit)
            .finish_non_exhaustive()
    }
}
