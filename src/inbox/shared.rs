//! What the clones of an inbox share: the store, the settings, the metrics. What is counted is also reported to
//! `tracing` (feature `tracing`), with no id, address or body, but with the text of a handler's error.

#![cfg_attr(
    not(feature = "tracing"),
    expect(unused_variables, reason = "only tracing reads them")
)]

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use super::error::{Failure, StoreError};
use super::receipt::Receipt;
use super::store::{DynStore, EventKey, Fingerprint, HeldClaim, NewClaim};
use crate::ConfigError;
use crate::webhooks::EventId;

macro_rules! report {
    ($level:ident, $($field:tt)*) => {
        #[cfg(feature = "tracing")]
        tracing::$level!(target: "audience::inbox", $($field)*);
    };
}

pub(super) struct Shared {
    pub(super) store: Arc<dyn DynStore>,
    pub(super) settings: Settings,
    metrics: Mutex<InboxMetrics>,
    running: Arc<Running>,
    purge_timer: PurgeTimer,
    /// Wakes the workers of this process when an event was accepted.
    pub(super) accepted: Notify,
}

impl Shared {
    pub(super) fn new(store: Arc<dyn DynStore>, settings: Settings) -> Self {
        Self {
            store,
            settings,
            metrics: Mutex::default(),
            running: Arc::default(),
            purge_timer: PurgeTimer::start(),
            accepted: Notify::new(),
        }
    }

    pub(super) fn key<'a>(&'a self, id: &'a EventId) -> EventKey<'a> {
        EventKey {
            endpoint: &self.settings.endpoint,
            id,
        }
    }

    /// Deletes forgotten entries now and then, in a task of its own.
    pub(super) fn purge_if_due(self: &Arc<Self>) {
        if self.purge_timer.is_due() {
            let shared = Arc::clone(self);
            tokio::spawn(async move { shared.purge().await });
        }
    }

    /// Deletes all forgotten entries, in portions. Returns how many.
    pub(super) async fn purge(&self) -> Result<u64, StoreError> {
        let mut purged = 0;
        loop {
            let portion = self.store.purge(PORTION).await;
            let portion = portion.inspect_err(|error| self.store_failed("purge", error))?;
            purged += portion as u64;
            if portion < PORTION {
                return Ok(purged);
            }
        }
    }

    /// Claims an event. Returns the number of the attempt if the claim is the caller's, else the counted receipt.
    pub(super) async fn claim(
        &self,
        held: HeldClaim<'_>,
        fingerprint: Option<Fingerprint>,
    ) -> Result<Result<u32, Receipt>, StoreError> {
        let claimed = self.store.claim(NewClaim {
            key: held.key,
            token: held.token,
            lease: self.settings.lease,
            retention: self.settings.retention,
            fingerprint,
        });
        let claimed = claimed.await;
        let state = claimed.inspect_err(|error| self.store_failed("claim", error))?;
        Ok(Receipt::of_claim(state).map_err(|receipt| self.counted(receipt)))
    }

    /// Counts the receipt of a delivery for which no handler was run.
    pub(super) fn counted(&self, receipt: Receipt) -> Receipt {
        match receipt {
            Receipt::Accepted => self.count(|metrics| metrics.accepted += 1),
            Receipt::Repeated => self.count(|metrics| metrics.repeated += 1),
            Receipt::InProgress { .. } => self.count(|metrics| metrics.in_progress += 1),
            Receipt::Conflict => {
                self.count(|metrics| metrics.conflicts += 1);
                report_conflict(&self.settings.endpoint);
            }
            _ => {}
        }
        receipt
    }

    /// Counts and reports a handler whose lease was lost.
    pub(super) fn lease_lost(&self) {
        self.count(|metrics| metrics.leases_lost += 1);
        report_lost_lease(&self.settings.endpoint);
    }

    /// Counts and reports a failure of the store.
    pub(super) fn store_failed(&self, operation: &'static str, error: &StoreError) {
        self.count(|metrics| metrics.store_errors += 1);
        report_store_failure(operation, error);
    }

    /// Counts and reports an attempt whose handler failed.
    pub(super) fn handler_failed(&self, number: u32, remaining: u32, failure: &Failure) {
        self.count(|metrics| metrics.failed += 1);
        report!(
            warn,
            endpoint = self.settings.endpoint,
            attempt = number,
            remaining,
            error = failure.reason(),
            "handler of a webhook event failed"
        );
    }

    /// Counts and reports a parked event.
    pub(super) fn parked(&self) {
        self.count(|metrics| metrics.parked += 1);
        report!(
            error,
            endpoint = self.settings.endpoint,
            "webhook event parked"
        );
    }

    pub(super) fn count(&self, change: impl FnOnce(&mut InboxMetrics)) {
        change(&mut self.lock_metrics());
    }

    pub(super) fn metrics(&self) -> InboxMetrics {
        *self.lock_metrics()
    }

    fn lock_metrics(&self) -> MutexGuard<'_, InboxMetrics> {
        self.metrics.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a handler as running until the guard is dropped.
    pub(super) fn start_handler(&self) -> RunningGuard {
        self.running.count.fetch_add(1, Ordering::SeqCst);
        RunningGuard(Arc::clone(&self.running))
    }

    /// Waits until no handler runs.
    pub(super) async fn wait_idle(&self) {
        loop {
            let ended = self.running.ended.notified();
            if self.running.count.load(Ordering::SeqCst) == 0 {
                return;
            }
            ended.await;
        }
    }
}

pub(super) fn report_receipt(endpoint: &str, receipt: Receipt) {
    report!(
        debug,
        endpoint,
        status = receipt.status().as_u16(),
        receipt = receipt.name(),
        "webhook event received"
    );
}

#[cfg(feature = "inbox-sqlite")]
pub(super) fn report_rollback(endpoint: &str, failure: &Failure) {
    report!(
        warn,
        endpoint,
        error = failure.reason(),
        "transaction of a webhook event rolled back"
    );
}

pub(super) fn report_conflict(endpoint: &str) {
    report!(
        error,
        endpoint,
        "webhook event id received with another body"
    );
}

pub(super) fn report_lost_lease(endpoint: &str) {
    report!(warn, endpoint, "lease of a webhook event lost");
}

pub(super) fn report_store_failure(operation: &'static str, error: &StoreError) {
    report!(error, operation, %error, cause = std::error::Error::source(error), "inbox store failed");
}

#[derive(Clone, Debug)]
pub(super) struct Settings {
    pub(super) endpoint: String,
    pub(super) lease: Duration,
    pub(super) retention: Duration,
    pub(super) respond_within: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            endpoint: "main".to_owned(),
            lease: Duration::from_secs(60),
            retention: Duration::from_secs(72 * 3_600),
            respond_within: Duration::from_secs(8),
        }
    }
}

impl Settings {
    pub(super) fn check(&self) -> Result<(), ConfigError> {
        let Self {
            ref endpoint,
            lease,
            retention,
            respond_within,
        } = *self;
        if endpoint.is_empty() || endpoint.len() > 255 || endpoint.contains(char::is_control) {
            return Err(ConfigError::new(
                "an endpoint must be 1 to 255 bytes of text without control characters",
            ));
        }
        if !(Duration::from_secs(1)..=Duration::from_secs(3_600)).contains(&lease) {
            return Err(ConfigError::new(format!(
                "a lease must last 1 second to 1 hour, not {} ms: a shorter one ends while its handler runs, a longer one \
                 keeps an event from the attempts that are left",
                lease.as_millis()
            )));
        }
        if retention < Duration::from_secs(6 * 3_600) {
            return Err(ConfigError::new(format!(
                "done events must be remembered for at least 6 hours, not {} s: the service retries an event for about \
                 five hours, and a delivery may be 5 minutes old",
                retention.as_secs()
            )));
        }
        if respond_within.is_zero() || respond_within >= Duration::from_secs(10) {
            return Err(ConfigError::new(format!(
                "the time to respond must be more than 0 and less than 10 seconds, not {} ms: the service waits 10 seconds",
                respond_within.as_millis()
            )));
        }
        Ok(())
    }
}

/// What an inbox has counted since it was built, in this process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct InboxMetrics {
    /// Events stored for a worker.
    pub accepted: u64,
    /// Events whose handler succeeded.
    pub handled: u64,
    /// Deliveries that are duplicates.
    pub repeated: u64,
    /// Deliveries of an event that another attempt was handling.
    pub in_progress: u64,
    /// Attempts that returned an error or panicked.
    pub failed: u64,
    /// Events parked.
    pub parked: u64,
    /// Deliveries whose id was received before with another body.
    pub conflicts: u64,
    /// Handlers that ended after their lease was lost, and claims by hand that were found lost.
    pub leases_lost: u64,
    /// Calls that the store failed, or did not respond to in time.
    pub store_errors: u64,
    /// How long the event that a worker took last had been due. Not updated while idle;
    /// [`Inbox::backlog`](super::Inbox::backlog) has the current lag.
    pub lag: Duration,
}

#[derive(Default)]
struct Running {
    count: AtomicUsize,
    ended: Notify,
}

pub(super) struct RunningGuard(Arc<Running>);

impl Drop for RunningGuard {
    fn drop(&mut self) {
        if self.0.count.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.0.ended.notify_waiters();
        }
    }
}

/// How often each process deletes forgotten entries.
const INTERVAL: Duration = Duration::from_secs(60);
/// How many entries are deleted in one step.
const PORTION: usize = 500;

/// Tells when to delete forgotten entries.
struct PurgeTimer {
    start: Instant,
    /// Seconds after `start`.
    next: AtomicU64,
}

impl PurgeTimer {
    fn start() -> Self {
        Self {
            start: Instant::now(),
            next: AtomicU64::new(INTERVAL.as_secs()),
        }
    }

    /// Returns `true` once per interval.
    fn is_due(&self) -> bool {
        let now = self.start.elapsed().as_secs();
        let next = self.next.load(Ordering::Relaxed);
        let following = now.saturating_add(INTERVAL.as_secs());
        next <= now
            && self
                .next
                .compare_exchange(next, following, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(settings: &Settings) -> String {
        settings.check().unwrap_err().to_string()
    }

    #[test]
    fn the_defaults_are_valid() {
        assert!(Settings::default().check().is_ok());
    }

    #[test]
    fn an_endpoint_must_have_a_name_of_1_to_255_bytes() {
        for name in ["", &"x".repeat(256), &"\u{e9}".repeat(128), "a\nb", "\0"] {
            let endpoint = name.to_owned();
            let settings = Settings {
                endpoint,
                ..Settings::default()
            };

            assert!(error(&settings).contains("1 to 255 bytes"), "{name:?}");
        }
        for name in ["a", &"x".repeat(255), "with space", "\u{1f4e7}"] {
            let endpoint = name.to_owned();
            let settings = Settings {
                endpoint,
                ..Settings::default()
            };

            assert!(settings.check().is_ok(), "{name:?}");
        }
    }

    #[test]
    fn a_lease_must_last_1_second_to_1_hour() {
        for milliseconds in [0, 999, 3_600_001] {
            let lease = Duration::from_millis(milliseconds);
            let settings = Settings {
                lease,
                ..Settings::default()
            };

            let text = error(&settings);
            assert!(
                text.contains(&format!("not {milliseconds} ms: a shorter one ends")),
                "{text}"
            );
        }
        for milliseconds in [1_000, 3_600_000] {
            let lease = Duration::from_millis(milliseconds);
            assert!(
                Settings {
                    lease,
                    ..Settings::default()
                }
                .check()
                .is_ok()
            );
        }
    }

    #[test]
    fn done_events_must_be_remembered_for_6_hours() {
        let retention = Duration::from_secs(6 * 3_600 - 1);
        let settings = Settings {
            retention,
            ..Settings::default()
        };
        let text = error(&settings);
        assert!(
            text.contains("at least 6 hours, not 21599 s: the service retries"),
            "{text}"
        );

        for retention in [Duration::from_secs(6 * 3_600), Duration::MAX] {
            assert!(
                Settings {
                    retention,
                    ..Settings::default()
                }
                .check()
                .is_ok()
            );
        }
    }

    #[test]
    fn the_time_to_respond_must_be_shorter_than_the_service_waits() {
        for milliseconds in [0, 10_000, 60_000] {
            let respond_within = Duration::from_millis(milliseconds);
            let settings = Settings {
                respond_within,
                ..Settings::default()
            };

            let text = error(&settings);
            assert!(
                text.contains(&format!("not {milliseconds} ms: the service waits")),
                "{text}"
            );
        }
        let respond_within = Duration::from_millis(9_999);
        assert!(
            Settings {
                respond_within,
                ..Settings::default()
            }
            .check()
            .is_ok()
        );
    }
}
