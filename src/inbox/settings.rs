use std::time::Duration;

/// What an [`InboxBuilder`](super::InboxBuilder) was given cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InboxSettingsError {
    /// The endpoint's name is empty, longer than 255 bytes, or contains control characters.
    #[error("an endpoint must be 1 to 255 bytes of text without control characters")]
    Endpoint,
    /// The lease is shorter than 1 second or longer than 1 hour.
    #[error("a lease must last 1 second to 1 hour, not {} ms: a shorter one ends while its handler runs, a longer one keeps an event from the attempts that are left", lease.as_millis())]
    Lease {
        /// The lease that was set.
        lease: Duration,
    },
    /// The retention is shorter than 6 hours.
    #[error("done events must be remembered for at least 6 hours, not {} s: the service retries an event for about five hours, and a delivery may be 5 minutes old", retention.as_secs())]
    Retention {
        /// The retention that was set.
        retention: Duration,
    },
    /// The time to respond in is zero or not shorter than the service's 10 seconds.
    #[error("the time to respond must be more than 0 and less than 10 seconds, not {} ms: the service waits 10 seconds", limit.as_millis())]
    RespondWithin {
        /// The time that was set.
        limit: Duration,
    },
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
    pub(super) fn check(&self) -> Result<(), InboxSettingsError> {
        let Self {
            ref endpoint,
            lease,
            retention,
            respond_within,
        } = *self;
        if endpoint.is_empty() || endpoint.len() > 255 || endpoint.contains(char::is_control) {
            return Err(InboxSettingsError::Endpoint);
        }
        if !(Duration::from_secs(1)..=Duration::from_secs(3_600)).contains(&lease) {
            return Err(InboxSettingsError::Lease { lease });
        }
        if retention < Duration::from_secs(6 * 3_600) {
            return Err(InboxSettingsError::Retention { retention });
        }
        if respond_within.is_zero() || respond_within >= Duration::from_secs(10) {
            return Err(InboxSettingsError::RespondWithin {
                limit: respond_within,
            });
        }
        Ok(())
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
        assert_eq!(Settings::default().check(), Ok(()));
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

            assert_eq!(settings.check(), Ok(()), "{name:?}");
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

            assert_eq!(settings.check(), Err(InboxSettingsError::Lease { lease }));
            let text = error(&settings);
            assert!(
                text.contains(&format!("not {milliseconds} ms: a shorter one ends")),
                "{text}"
            );
        }
        for milliseconds in [1_000, 3_600_000] {
            let lease = Duration::from_millis(milliseconds);
            assert_eq!(
                Settings {
                    lease,
                    ..Settings::default()
                }
                .check(),
                Ok(())
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
            assert_eq!(
                Settings {
                    retention,
                    ..Settings::default()
                }
                .check(),
                Ok(())
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
        assert_eq!(
            Settings {
                respond_within,
                ..Settings::default()
            }
            .check(),
            Ok(())
        );
    }
}
