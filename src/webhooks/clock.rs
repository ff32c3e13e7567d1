use std::time::SystemTime;

use crate::timestamp::system_time;

/// The source of a [`Verifier`](super::Verifier)'s current time.
///
/// Any closure that returns a [`SystemTime`] is a clock, so a test can stop time or share the clock
/// of a mock server.
///
/// # Example: a fixed time
///
/// ```
/// use std::time::{Duration, SystemTime};
/// use audience::webhooks::Verifier;
///
/// let noon = SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000);
/// let verifier = Verifier::builder()
///     .secret("2026", "6Jm0nFq2pXvZk4Tt")
///     .clock(move || noon)
///     .build()?;
/// # Ok::<(), audience::ConfigError>(())
/// ```
pub trait Clock: Send + Sync {
    /// Returns the current time.
    ///
    /// A verifier calls it once per delivery, after the signature is verified.
    fn now(&self) -> SystemTime;
}

impl<F> Clock for F
where
    F: Fn() -> SystemTime + Send + Sync,
{
    fn now(&self) -> SystemTime {
        self()
    }
}

/// The clock of the operating system, the default of a [`Verifier`](super::Verifier).
///
/// On `wasm32-unknown-unknown`, where the standard library has no clock, this is `Date.now()` of
/// JavaScript. A time before 1970 counts as 1970 there.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> SystemTime {
        system_time()
    }
}
