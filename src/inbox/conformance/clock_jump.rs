use std::time::Duration;

/// A jump of a store's clock, for [`Suite::clock_jump`](super::Suite::clock_jump).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClockJump {
    /// The clock shows a later time at once.
    Forward(Duration),
    /// The clock shows an earlier time at once.
    Back(Duration),
}
