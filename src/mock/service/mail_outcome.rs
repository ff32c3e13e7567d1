//! What can happen to a mail after it was sent, and in which order.

use super::address::quoted_list;

/// What happens to a sent mail at one of its recipients.
///
/// Give it to [`MockServer::mail_outcome`](crate::mock::MockServer::mail_outcome). A mail is sent, and then delivered,
/// bounced, delayed or failed. A delayed mail can still become any of these. A delivered mail can be opened, clicked
/// and reported as spam, and can still bounce. Nothing more happens to a mail that bounced, failed or was refused.
///
/// The mock delivers every mail at once, unless its address [says otherwise](crate::mock#mail). Mail to `pending@…`
/// waits for its outcome.
///
/// # Example: one of each kind
///
/// ```
/// use audience::mock::MailOutcome;
///
/// let first = [
///     MailOutcome::delivered(),
///     MailOutcome::bounced().bounce_type("Transient").detail("452 4.2.2 mailbox full"),
///     MailOutcome::delayed(),
///     MailOutcome::failed(),
/// ];
/// let after_delivery = [
///     MailOutcome::opened().to("ada@example.com"),
///     MailOutcome::clicked(),
///     MailOutcome::complained(),
/// ];
/// # let _ = (first, after_delivery);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "an outcome has no effect until it is given to `MockServer::mail_outcome`"]
pub struct MailOutcome {
    pub(super) kind: OutcomeKind,
    pub(super) to: Option<String>,
    pub(super) bounce_type: Option<String>,
    pub(super) detail: Option<String>,
}

impl MailOutcome {
    /// Creates the outcome `email.delivered`: the receiving server accepted the mail.
    pub fn delivered() -> Self {
        Self::new(OutcomeKind::Delivered)
    }

    /// Creates the outcome `email.bounced`: the receiving server refused the mail, at once or after it was delivered.
    pub fn bounced() -> Self {
        Self::new(OutcomeKind::Bounced)
    }

    /// Creates the outcome `email.delivery_delayed`: the mail is not delivered yet.
    ///
    /// It is not delivered later on its own. Mail to `delay@…` is.
    pub fn delayed() -> Self {
        Self::new(OutcomeKind::Delayed)
    }

    /// Creates the outcome `email.complained`: a spam report.
    ///
    /// It has the effects of [`report_spam`](crate::mock::MockServer::report_spam) on the contact and the address.
    pub fn complained() -> Self {
        Self::new(OutcomeKind::Complained)
    }

    /// Creates the outcome `email.opened`. A mail can be opened any number of times.
    pub fn opened() -> Self {
        Self::new(OutcomeKind::Opened)
    }

    /// Creates the outcome `email.clicked`. A mail can be clicked any number of times, and without being opened first:
    /// some mail programs do not report that.
    pub fn clicked() -> Self {
        Self::new(OutcomeKind::Clicked)
    }

    /// Creates the outcome `email.failed`: the mail will not be delivered.
    pub fn failed() -> Self {
        Self::new(OutcomeKind::Failed)
    }

    pub(in crate::mock) fn new(kind: OutcomeKind) -> Self {
        Self {
            kind,
            to: None,
            bounce_type: None,
            detail: None,
        }
    }

    /// Sets the recipient that the outcome concerns. Default: the only recipient of the mail.
    pub fn to(mut self, address: impl Into<String>) -> Self {
        self.to = Some(address.into());
        self
    }

    /// Sets the type of a bounce (interface section 6.3). Default: `Permanent`.
    ///
    /// Takes any text, or a [`BounceType`](crate::webhooks::BounceType). Only a bounce can have a type.
    #[expect(
        clippy::needless_pass_by_value,
        reason = "callers pass a literal or a `BounceType`"
    )]
    pub fn bounce_type(mut self, bounce_type: impl ToString) -> Self {
        self.bounce_type = Some(bounce_type.to_string());
        self
    }

    /// Sets the diagnostic text of the receiving server. Default: a typical text for a bounce, a delay and a failure,
    /// and none for the others.
    pub fn detail(mut self, detail: impl Into<String>) -> Self {
        self.detail = Some(detail.into());
        self
    }
}

/// A kind of outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::mock) enum OutcomeKind {
    Delivered,
    Bounced,
    Delayed,
    Complained,
    Opened,
    Clicked,
    Failed,
}

impl OutcomeKind {
    /// The kinds, and the type of the event that reports each (section 6.1).
    const EVENT_TYPES: [(Self, &'static str); 7] = [
        (Self::Delivered, "email.delivered"),
        (Self::Bounced, "email.bounced"),
        (Self::Delayed, "email.delivery_delayed"),
        (Self::Complained, "email.complained"),
        (Self::Opened, "email.opened"),
        (Self::Clicked, "email.clicked"),
        (Self::Failed, "email.failed"),
    ];

    /// Returns the type of the event that reports this outcome.
    pub(super) fn event_type(self) -> &'static str {
        Self::EVENT_TYPES[self as usize].1
    }

    /// Returns the kind that an event type reports.
    ///
    /// # Errors
    ///
    /// Fails if no outcome has this event type. The message lists those that have one.
    pub(in crate::mock) fn from_event_type(event_type: &str) -> Result<Self, String> {
        let mut kinds = Self::EVENT_TYPES.into_iter();
        match kinds.find(|(_, known)| *known == event_type) {
            Some((kind, _)) => Ok(kind),
            None => {
                let known = Self::EVENT_TYPES.map(|(_, known)| known);
                let known = quoted_list(&known);
                Err(format!("`type` must be one of {known}, not {event_type:?}"))
            }
        }
    }
}

/// The state of a mail at one of its recipients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MailState {
    /// The service did not send it: the address is suppressed.
    Refused,
    Sent,
    Delayed,
    Delivered,
    Complained,
    Bounced,
    Failed,
}

impl MailState {
    /// Returns the name of the state.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Refused => "refused",
            Self::Sent => "sent",
            Self::Delayed => "delayed",
            Self::Delivered => "delivered",
            Self::Complained => "complained",
            Self::Bounced => "bounced",
            Self::Failed => "failed",
        }
    }

    /// Returns the state after an outcome.
    ///
    /// # Errors
    ///
    /// Fails if the outcome is not possible in this state. The message lists those that are.
    pub(super) fn after(self, outcome: OutcomeKind) -> Result<Self, String> {
        self.next(outcome).ok_or_else(|| {
            let possible: Vec<_> = OutcomeKind::EVENT_TYPES
                .into_iter()
                .filter(|(kind, _)| self.next(*kind).is_some())
                .map(|(_, event_type)| event_type)
                .collect();
            let possible = if possible.is_empty() {
                "nothing more can happen to it".to_owned()
            } else {
                format!("possible now: {}", quoted_list(&possible))
            };
            format!(
                "`{}` is not possible because the mail {}; {possible}. Mail to `pending@…` waits for its outcome",
                outcome.event_type(),
                self.description(),
            )
        })
    }

    fn next(self, outcome: OutcomeKind) -> Option<Self> {
        use OutcomeKind::{Bounced, Clicked, Complained, Delayed, Delivered, Failed, Opened};
        match (self, outcome) {
            (Self::Sent | Self::Delayed, Delivered) | (Self::Delivered, Opened | Clicked) => {
                Some(Self::Delivered)
            }
            (Self::Sent | Self::Delayed, Delayed) => Some(Self::Delayed),
            (Self::Sent | Self::Delayed, Failed) => Some(Self::Failed),
            // A server can accept a mail and return it later.
            (Self::Sent | Self::Delayed | Self::Delivered, Bounced) => Some(Self::Bounced),
            (Self::Delivered, Complained) | (Self::Complained, Opened | Clicked) => {
                Some(Self::Complained)
            }
            _ => None,
        }
    }

    fn description(self) -> &'static str {
        match self {
            Self::Refused => "was refused and never sent",
            Self::Sent | Self::Delayed => "has not been delivered yet",
            Self::Delivered => "has been delivered",
            Self::Complained => "has been reported as spam",
            Self::Bounced => "bounced",
            Self::Failed => "failed",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_has_its_own_event_type() {
        for (index, (kind, event_type)) in OutcomeKind::EVENT_TYPES.into_iter().enumerate() {
            assert_eq!(kind as usize, index);
            assert_eq!(OutcomeKind::from_event_type(event_type), Ok(kind));
        }
        let error = OutcomeKind::from_event_type("email.sent").unwrap_err();
        assert!(error.contains("`email.bounced`"), "{error}");
    }

    #[test]
    fn a_mail_is_delivered_before_it_is_opened_and_nothing_follows_its_end() {
        use MailState::{Bounced, Complained, Delayed, Delivered, Failed, Refused, Sent};
        let possible = |state: MailState| -> Vec<&str> {
            OutcomeKind::EVENT_TYPES
                .into_iter()
                .filter(|(kind, _)| state.after(*kind).is_ok())
                .map(|(_, event_type)| event_type.trim_start_matches("email."))
                .collect()
        };

        for state in [Sent, Delayed] {
            let first = ["delivered", "bounced", "delivery_delayed", "failed"];
            assert_eq!(possible(state), first);
        }
        let later = ["bounced", "complained", "opened", "clicked"];
        assert_eq!(possible(Delivered), later);
        assert_eq!(possible(Complained), ["opened", "clicked"]);
        for end in [Refused, Bounced, Failed] {
            assert!(possible(end).is_empty(), "{end:?}");
        }
    }

    #[test]
    fn the_error_lists_what_is_possible() {
        let early = MailState::Delivered.after(OutcomeKind::Delayed);
        let late = MailState::Refused.after(OutcomeKind::Opened);

        assert_eq!(
            early.unwrap_err(),
            "`email.delivery_delayed` is not possible because the mail has been delivered; possible now: \
             `email.bounced`, `email.complained`, `email.opened`, `email.clicked`. Mail to `pending@…` waits for its \
             outcome"
        );
        let late = late.unwrap_err();
        assert!(
            late.contains("was refused and never sent; nothing more"),
            "{late}"
        );
    }
}
