//! Webhook deliveries: when an attempt is made, how it is made, and the log of attempts.

mod attempt_log;
mod attempt_queue;
mod backoff;
pub(super) mod deliveries;
pub(super) mod endpoint_url;
pub(super) mod endpoints;
pub(super) mod event;
mod event_store;
pub(super) mod event_view;
mod fault;
mod open_attempts;
pub(super) mod post;
pub(super) mod schedule;
pub(super) mod scheduled_attempt;
mod signing;
pub(super) mod started_attempt;

pub use attempt_log::DeliveryAttempt;
pub use fault::DeliveryFault;
pub use signing::SigningClock;
