//! The settings that every call has.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use tokio::time::Instant;

use super::failed_attempt::Failure;
use super::retry_policy::RetryPolicy;

/// The settings of one call that differ from its client's.
#[derive(Clone, Debug, Default)]
pub(crate) struct CallOptions {
    pub(crate) timeout: Option<Duration>,
    pub(crate) deadline: CallDeadline,
    pub(crate) retry: Option<RetryPolicy>,
    pub(crate) idempotent: bool,
    pub(crate) watch: Option<Arc<dyn AttemptWatch>>,
}

/// Is told about the failed attempts of a call while it runs.
pub(crate) trait AttemptWatch: fmt::Debug + Send + Sync {
    /// An attempt failed. `is_congestion` says that the service cannot keep up: a 429, a 503 or a timeout.
    fn failed(&self, is_congestion: bool);

    /// The call is retried.
    fn retries(&self);

    /// The call waits before its next attempt, which may be the first.
    fn waits(&self);

    /// The wait is over.
    fn resumes(&self);

    /// Returns whether the call is to fail rather than to wait any longer.
    fn gives_up(&self) -> bool;
}

/// How long a wait may go on after its watch has given up.
const LONGEST_SLEEP: Duration = Duration::from_millis(100);

impl CallOptions {
    /// Tells the watch about a failed attempt.
    pub(super) fn report_failure(&self, failure: Failure, is_timeout: bool) {
        let is_congestion = is_timeout
            || matches!(
                failure,
                Failure::Status(StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE)
            );
        if let Some(watch) = &self.watch {
            watch.failed(is_congestion);
        }
    }

    /// Tells the watch about a retry.
    pub(super) fn report_retry(&self) {
        if let Some(watch) = &self.watch {
            watch.retries();
        }
    }

    /// Waits before the next attempt, and tells the watch so. Returns whether to make the attempt: `false` if the
    /// watch has given up.
    pub(super) async fn wait(&self, time: Duration) -> bool {
        let Some(watch) = &self.watch else {
            tokio::time::sleep(time).await;
            return true;
        };
        watch.waits();
        let end = Instant::now() + time;
        let left = || end.saturating_duration_since(Instant::now());
        while !left().is_zero() && !watch.gives_up() {
            tokio::time::sleep(left().min(LONGEST_SLEEP)).await;
        }
        watch.resumes();
        !watch.gives_up()
    }
}

/// A builder whose settings can be replaced at once, by a call that sends others.
pub(crate) trait TakesOptions {
    /// Replaces all settings that every call has.
    fn options(self, options: CallOptions) -> Self;
}

/// The deadline of one call.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) enum CallDeadline {
    /// The client's.
    #[default]
    Client,
    /// This long after the call starts.
    After(Duration),
    /// This instant, which several calls share.
    At(Instant),
    /// None, even if the client has one.
    Lifted,
}

impl CallDeadline {
    /// Returns the time that the call may take, given the client's deadline.
    pub(super) fn limit(self, client: Option<Duration>) -> Option<Duration> {
        match self {
            Self::Client => client,
            Self::After(limit) => Some(limit),
            Self::At(end) => Some(end.saturating_duration_since(Instant::now())),
            Self::Lifted => None,
        }
    }

    /// Starts the deadline, so that all calls with the result end by the same instant. A limit too large to
    /// represent means no deadline.
    pub(super) fn start(self, client: Option<Duration>) -> Self {
        let end = self
            .limit(client)
            .and_then(|limit| Instant::now().checked_add(limit));
        end.map_or(Self::Lifted, Self::At)
    }
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
                self.$($options).+.deadline = crate::client::CallDeadline::After(limit);
                self
            }

            /// Lifts the deadline of this call, even if the client has one. The timeout of each attempt
            /// still applies.
            pub fn no_deadline(mut self) -> Self {
                self.$($options).+.deadline = crate::client::CallDeadline::Lifted;
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

/// Adds `wait` to a call, with the feature `blocking`.
macro_rules! wait_for_call {
    ($call:ty => $output:ty) => {
        #[cfg(feature = "blocking")]
        #[cfg_attr(docsrs, doc(cfg(feature = "blocking")))]
        impl $call {
            /// Sends the call and blocks this thread until it ends, for programs without an async runtime: see
            /// [`blocking`](crate::blocking).
            ///
            /// # Errors
            ///
            /// The errors of the call.
            ///
            /// # Panics
            ///
            /// In async code: use `.await` there.
            #[track_caller]
            pub fn wait(self) -> $output {
                crate::blocking::wait(self)
            }
        }
    };
}

pub(crate) use wait_for_call;

/// Adds `wait` to a stream, with the feature `blocking`.
macro_rules! wait_for_items {
    ($stream:ty) => {
        #[cfg(feature = "blocking")]
        #[cfg_attr(docsrs, doc(cfg(feature = "blocking")))]
        impl $stream {
            /// Returns an iterator over the items, for programs without an async runtime: see
            /// [`blocking`](crate::blocking). In async code, its `next` panics.
            pub fn wait(self) -> crate::blocking::Iter<Self> {
                crate::blocking::Iter::new(self)
            }
        }
    };
}

pub(crate) use wait_for_items;

/// Implements `Debug` for a builder or stream without its fields: they may hold an address.
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
