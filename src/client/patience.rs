//! How long an import retries a request, unless somebody has set it.

use std::time::Duration;

use super::builder::DEFAULT_DEADLINE;
use super::handle::Client;
use super::options::{CallDeadline, CallOptions};
use super::retry_policy::RetryPolicy;

/// The time for one request of an import, with its retries and waits.
const PATIENT_DEADLINE: Duration = Duration::from_secs(300);

impl Client {
    /// Returns these options with more patience, for a call that can wait out an outage of a minute or two. A
    /// retry policy or a deadline that was set, for the call or the client, stays as it is.
    pub(crate) fn patient(&self, options: CallOptions) -> CallOptions {
        let is_default = self.sender.retry == RetryPolicy::default();
        let retry = options.retry.or_else(|| is_default.then(patient_policy));
        let deadline = match options.deadline {
            CallDeadline::Client if self.sender.deadline == Some(DEFAULT_DEADLINE) => {
                CallDeadline::After(PATIENT_DEADLINE)
            }
            set => set,
        };
        CallOptions {
            retry,
            deadline,
            ..options
        }
    }
}

fn patient_policy() -> RetryPolicy {
    RetryPolicy::exponential()
        .max_attempts(20)
        .max_retry_after(PATIENT_DEADLINE)
}

#[cfg(test)]
mod tests {
    use super::super::builder::ClientBuilder;
    use super::super::failed_attempt::Failure;
    use super::super::request::RetrySafety;
    use super::super::retry::{RetryDecision, RetryState, decide};
    use super::*;

    fn patient(
        settings: impl FnOnce(ClientBuilder) -> ClientBuilder,
        options: CallOptions,
    ) -> (Option<RetryPolicy>, Option<Duration>) {
        let client = settings(Client::builder("https://x.io", "key"))
            .build()
            .unwrap();
        let options = client.patient(options);
        (
            options.retry,
            options.deadline.limit(client.sender.deadline),
        )
    }

    #[test]
    fn only_what_nobody_has_set_becomes_patient() {
        let of_call = CallOptions {
            retry: Some(RetryPolicy::none()),
            deadline: CallDeadline::After(Duration::from_secs(1)),
            ..CallOptions::default()
        };
        let second = Some(Duration::from_secs(1));

        assert_eq!(
            patient(|client| client, CallOptions::default()),
            (Some(patient_policy()), Some(PATIENT_DEADLINE))
        );
        assert_eq!(
            patient(|client| client, of_call),
            (Some(RetryPolicy::none()), second)
        );
        // Without a policy here, that of the client applies.
        assert_eq!(
            patient(
                |client| client.retry(RetryPolicy::none()).no_deadline(),
                CallOptions::default()
            ),
            (None, None)
        );
        assert_eq!(
            patient(
                |client| client.deadline(Duration::from_secs(1)),
                CallOptions::default()
            ),
            (Some(patient_policy()), second)
        );
    }

    #[test]
    fn an_outage_of_a_minute_is_waited_out() {
        let waits = (1..).map_while(|attempt| {
            let state = RetryState {
                attempt,
                safety: RetrySafety::OnlyIfNotApplied,
                failure: Failure::NotSent,
                retry_after: None,
            };
            // Rather short waits: in 19 of 20 cases, they add up to more.
            match decide(&patient_policy(), &state, 0.36) {
                RetryDecision::Retry { wait } => Some(wait),
                RetryDecision::Stop => None,
            }
        });

        let total: Duration = waits.sum();

        assert!(total > Duration::from_secs(60), "{total:?}");
        assert!(total < PATIENT_DEADLINE, "{total:?}");
    }
}
