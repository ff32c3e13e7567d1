use std::time::Duration;

use super::RetryPolicy;

/// What one call does differently from its client.
#[derive(Clone, Debug, Default)]
pub(crate) struct CallOptions {
    pub(crate) timeout: Option<Duration>,
    pub(crate) deadline: Option<Duration>,
    pub(crate) retry: Option<RetryPolicy>,
    pub(crate) repeatable: bool,
}

/// The setters that every call has, for a builder with a field `options`.
macro_rules! call_options {
    () => {
        /// Limits one attempt of this call, from connecting to the last byte of the answer; the
        /// client's [`timeout`](crate::ClientBuilder::timeout) otherwise.
        pub fn timeout(mut self, limit: std::time::Duration) -> Self {
            self.options.timeout = Some(limit);
            self
        }

        /// Limits this whole call, its retries and waits included; the client's
        /// [`deadline`](crate::ClientBuilder::deadline) otherwise.
        pub fn deadline(mut self, limit: std::time::Duration) -> Self {
            self.options.deadline = Some(limit);
            self
        }

        /// Retries this call by another policy than the client's.
        pub fn retry(mut self, policy: crate::RetryPolicy) -> Self {
            self.options.retry = Some(policy);
            self
        }
    };
    (repeatable) => {
        crate::client::call_options!();

        /// Says that this call may be repeated even if an earlier attempt may have been applied,
        /// which is not so by default: [`RetryPolicy`](crate::RetryPolicy) says why.
        pub fn repeatable(mut self) -> Self {
            self.options.repeatable = true;
            self
        }
    };
}

pub(crate) use call_options;

/// `Debug` for builders that hold an address: the name, and nothing of what it holds.
macro_rules! opaque_debug {
    ($($builder:ty),+) => {$(
        impl std::fmt::Debug for $builder {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.debug_struct(stringify!($builder)).finish_non_exhaustive()
            }
        }
    )+};
}

pub(crate) use opaque_debug;
