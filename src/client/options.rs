//! The settings that every call has.

use std::time::Duration;

use super::retry_policy::RetryPolicy;

/// The settings of one call that differ from its client's.
#[derive(Clone, Debug, Default)]
pub(crate) struct CallOptions {
    pub(crate) timeout: Option<Duration>,
    pub(crate) deadline: Option<Duration>,
    pub(crate) retry: Option<RetryPolicy>,
    pub(crate) repeatable: bool,
}

/// Adds the setters that every call has to a builder. `$options` is the path to its [`CallOptions`].
macro_rules! call_settings {
    ($builder:ty, $($options:ident).+) => {
        impl $builder {
            /// Limits one attempt of this call, from connecting to the last byte of the response.
            /// Default: the client's [`timeout`](crate::ClientBuilder::timeout).
            pub fn timeout(mut self, limit: std::time::Duration) -> Self {
                self.$($options).+.timeout = Some(limit);
                self
            }

            /// Limits this whole call, with its retries and waits. Default: the client's
            /// [`deadline`](crate::ClientBuilder::deadline).
            pub fn deadline(mut self, limit: std::time::Duration) -> Self {
                self.$($options).+.deadline = Some(limit);
                self
            }

            /// Sets the retry policy of this call. Default: the client's
            /// [`retry`](crate::ClientBuilder::retry).
            pub fn retry(mut self, policy: crate::RetryPolicy) -> Self {
                self.$($options).+.retry = Some(policy);
                self
            }
        }
    };
}

pub(crate) use call_settings;

/// Implements `Debug` for a builder without its fields: they may hold an address.
macro_rules! opaque_debug {
    ($builder:ty) => {
        impl std::fmt::Debug for $builder {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.debug_struct(stringify!($builder)).finish_non_exhaustive()
            }
        }
    };
}

pub(crate) use opaque_debug;
