//! Webhook deliveries: when an attempt is made, how it is made, and the log of attempts.

mod attempt_log;
pub(super) mod attempt_queue;
mod backoff;
pub(super) mod deliveries;
pub(super) mod endpoints;
pub(super) mod event;
mod event_store;
pub(super) mod post;
pub(super) mod schedule;

pub use attempt_log::DeliveryAttempt;
