//! The times that cases use.
//!
//! A time that must not end during a case is an hour, and a time that must end is waited for as long as it
//! takes. So a slow machine makes a run longer, but does not change its result.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

/// A time that does not end during a case.
pub(super) const LONG: Duration = Duration::from_secs(3_600);
/// A time that a case waits for.
pub(super) const SHORT: Duration = Duration::from_millis(20);
/// How often a case waits for something that should happen.
pub(super) const ROUNDS: usize = 400;

pub(super) type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;
/// Waits, or moves the store's clock.
pub(super) type Wait = Arc<dyn Fn(Duration) -> BoxFuture<()> + Send + Sync>;
