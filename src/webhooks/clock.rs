use std::time::SystemTime;

/// Where a [`Verifier`](super::Verifier) takes the current time from.
///
/// Any closure that returns a [`SystemTime`] is a clock, so a test can stop time or share the time
/// of a mock server.
///
/// # Example: a clock that stands still
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
/// # Ok::<(), audience::webhooks::SecretError>(())
/// ```
pub trait Clock: Send + Sync {
    /// The current moment. It is read once for each delivery, after its signature was found good.
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

/// The clock of the operating system: what a [`Verifier`](super::Verifier) reads unless told otherwise.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> SystemTime {
        SystemTime::now()
    }
}
