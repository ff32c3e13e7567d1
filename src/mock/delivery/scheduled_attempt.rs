//! A delivery attempt, before it is made.

/// An attempt to deliver one event to one endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::mock) struct ScheduledAttempt {
    /// When the attempt is due, in Unix seconds.
    pub(in crate::mock) due: i64,
    /// The number of the event. Events are numbered in the order they are published.
    pub(in crate::mock) event: u64,
    /// The number of the endpoint. Endpoints are numbered in the order they are added.
    pub(in crate::mock) endpoint: u64,
    pub(in crate::mock) kind: AttemptKind,
    /// Unique for each attempt.
    pub(super) serial: u64,
}

/// The reason for an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::mock) enum AttemptKind {
    /// One of the ten automatic attempts, counted from 1.
    Automatic(u32),
    /// A redelivery on request. It is not retried.
    Redelivery,
    /// The first automatic attempt, made late because of a fault.
    HeldBack,
    /// A repeat after success, because of a fault. It is not retried.
    Duplicate,
}

/// An attempt that is held back, pending or running.
#[derive(Clone, Copy, Debug)]
pub(super) struct HeldBack {
    pub(super) due: i64,
    pub(super) event: u64,
    pub(super) serial: u64,
    /// Whether it is due because a later event was attempted.
    pub(super) is_released: bool,
}
