use std::time::Duration;

use crate::RetryPolicy;
use crate::raw::RawRequest;

/// A builder with the settings that every call has. Sealed: this module is private.
pub trait CallSettings {
    /// Limits one attempt.
    fn timeout(self, limit: Duration) -> Self;

    /// Limits the whole call.
    fn deadline(self, limit: Duration) -> Self;

    /// Lifts the deadline.
    fn no_deadline(self) -> Self;

    /// Sets the retry policy.
    fn retry(self, policy: RetryPolicy) -> Self;
}

macro_rules! call_settings {
    ($($builder:ty),+) => {$(
        // The inherent methods of the same names are called here.
        impl crate::blocking::settings::CallSettings for $builder {
            fn timeout(self, limit: std::time::Duration) -> Self {
                <$builder>::timeout(self, limit)
            }

            fn deadline(self, limit: std::time::Duration) -> Self {
                <$builder>::deadline(self, limit)
            }

            fn no_deadline(self) -> Self {
                <$builder>::no_deadline(self)
            }

            fn retry(self, policy: crate::RetryPolicy) -> Self {
                <$builder>::retry(self, policy)
            }
        }
    )+};
}

pub(super) use call_settings;

call_settings!(RawRequest);
