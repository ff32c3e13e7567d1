use serde::{Deserialize, Serialize};

use crate::Timestamp;
use crate::webhooks::{Event, EventData};

/// The state of one message to one recipient, from its events in any order.
///
/// Events arrive out of order and more than once. A status keeps the earliest time of each kind of event, so the
/// result is the same in every order, with or without duplicates. Keep one for each pair of
/// [`email_id`](crate::webhooks::MailEvent::email_id) and [`address`](crate::webhooks::MailEvent::address), in any
/// store: it is plain data. Lock it from the read to the write, because several events of one message can be handled
/// simultaneously: see [Events in any order](crate::guides::receiving_webhooks#events-in-any-order).
///
/// # Example: a late `delivered` does not hide a complaint
///
/// ```
/// # use audience::Timestamp;
/// # use audience::webhooks::{Event, EventData, EventId, MailEvent};
/// use audience::inbox::{MailState, MailStatus};
///
/// # let mail = MailEvent::new("em_1", "us@example.com", "ada@example.com", "Hi");
/// # let event = |id, at, data| Ok::<_, audience::webhooks::InvalidEventId>(Event::new(EventId::try_from(id)?, Timestamp::from_unix(at), data));
/// # let complained = event("evt_2", 1_700_000_060, EventData::Complained(mail.clone()))?;
/// # let delivered = event("evt_1", 1_700_000_000, EventData::Delivered(mail))?;
/// let status = MailStatus::default().with(&complained).with(&delivered);
///
/// assert_eq!(status.state(), Some(MailState::Complained));
/// assert_eq!(status, MailStatus::default().with(&delivered).with(&complained).with(&delivered));
/// # Ok::<(), audience::webhooks::InvalidEventId>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct MailStatus {
    /// When the message was sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sent_at: Option<Timestamp>,
    /// When its delivery was first delayed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delayed_at: Option<Timestamp>,
    /// When the receiving server first refused it with a bounce that is not permanent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bounced_at: Option<Timestamp>,
    /// When it was delivered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delivered_at: Option<Timestamp>,
    /// When it was first opened.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub opened_at: Option<Timestamp>,
    /// When a link in it was first clicked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clicked_at: Option<Timestamp>,
    /// When sending failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failed_at: Option<Timestamp>,
    /// When the service declined to send it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refused_at: Option<Timestamp>,
    /// When it bounced permanently.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub permanently_bounced_at: Option<Timestamp>,
    /// When the recipient reported it as spam.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub complained_at: Option<Timestamp>,
}

/// The state of a message, from the weakest to the strongest. The strongest state wins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum MailState {
    /// Sent, and nothing else is known.
    Sent,
    /// The receiving server delays it.
    Delayed,
    /// It bounced, but a later attempt may succeed.
    Bounced,
    /// Delivered.
    Delivered,
    /// Opened.
    Opened,
    /// A link in it was clicked.
    Clicked,
    /// Sending failed.
    Failed,
    /// The service declined to send it.
    Refused,
    /// It bounced permanently.
    PermanentlyBounced,
    /// The recipient reported it as spam.
    Complained,
}

impl MailStatus {
    /// Returns the status after this event. Events without mail, such as inbound and unknown ones, change
    /// nothing.
    ///
    /// The event must be about the same message and recipient as the events before.
    ///
    /// # Example: the first of two opens counts
    ///
    /// ```
    /// use audience::inbox::MailStatus;
    ///
    /// # use audience::Timestamp;
    /// # use audience::webhooks::{Event, EventData, EventId, MailEvent};
    /// # let mail = MailEvent::new("em_1", "us@example.com", "ada@example.com", "Hi");
    /// # let event = |at, data| Ok::<_, audience::webhooks::InvalidEventId>(Event::new(EventId::try_from("evt_1")?, Timestamp::from_unix(at), data));
    /// # let (opened, opened_again) = (event(60, EventData::Opened(mail.clone()))?, event(90, EventData::Opened(mail))?);
    /// let status = MailStatus::default().with(&opened_again).with(&opened);
    ///
    /// assert_eq!(status.opened_at, Some(opened.created_at));
    /// # Ok::<(), audience::webhooks::InvalidEventId>(())
    /// ```
    #[must_use]
    pub fn with(mut self, event: &Event) -> Self {
        if let Some(time) = self.time_of(event) {
            *time = earliest(*time, Some(event.created_at));
        }
        self
    }

    /// Returns the status after the events of both.
    ///
    /// # Example: two workers that each saw a part
    ///
    /// ```
    /// use audience::inbox::{MailState, MailStatus};
    ///
    /// # use audience::Timestamp;
    /// # use audience::webhooks::{Event, EventData, EventId, MailEvent};
    /// # let mail = MailEvent::new("em_1", "us@example.com", "ada@example.com", "Hi");
    /// # let event = |at, data| Ok::<_, audience::webhooks::InvalidEventId>(Event::new(EventId::try_from("evt_1")?, Timestamp::from_unix(at), data));
    /// # let (sent, delivered) = (event(1, EventData::Sent(mail.clone()))?, event(9, EventData::Delivered(mail))?);
    /// let (one, other) = (MailStatus::default().with(&sent), MailStatus::default().with(&delivered));
    ///
    /// let status = one.merge(other);
    ///
    /// assert_eq!(status, other.merge(one));
    /// assert_eq!(status.state(), Some(MailState::Delivered));
    /// # Ok::<(), audience::webhooks::InvalidEventId>(())
    /// ```
    #[must_use]
    pub fn merge(mut self, mut other: Self) -> Self {
        // Both have the same order, so each time is compared with the time of its own kind.
        for (time, other) in self.times().into_iter().zip(other.times()) {
            *time.1 = earliest(*time.1, *other.1);
        }
        self
    }

    /// Returns the strongest state that the events show. `None` if there was no event.
    ///
    /// # Example: a click says more than an open
    ///
    /// ```
    /// use audience::inbox::{MailState, MailStatus};
    ///
    /// # use audience::Timestamp;
    /// # use audience::webhooks::{Event, EventData, EventId, MailEvent};
    /// # let mail = MailEvent::new("em_1", "us@example.com", "ada@example.com", "Hi");
    /// # let event = |at, data| Ok::<_, audience::webhooks::InvalidEventId>(Event::new(EventId::try_from("evt_1")?, Timestamp::from_unix(at), data));
    /// # let (opened, clicked) = (event(80, EventData::Opened(mail.clone()))?, event(70, EventData::Clicked(mail))?);
    /// assert_eq!(MailStatus::default().state(), None);
    /// assert_eq!(MailStatus::default().with(&clicked).with(&opened).state(), Some(MailState::Clicked));
    /// # Ok::<(), audience::webhooks::InvalidEventId>(())
    /// ```
    #[must_use]
    pub fn state(mut self) -> Option<MailState> {
        let shown = self.times().into_iter().filter(|(_, time)| time.is_some());
        shown.map(|(state, _)| state).max()
    }

    /// Returns whether to send no more mail to this recipient, because of a spam report or a permanent bounce.
    ///
    /// # Example: stop after a spam report
    ///
    /// ```
    /// use audience::inbox::MailStatus;
    ///
    /// # use audience::Timestamp;
    /// # use audience::webhooks::{Event, EventData, EventId, MailEvent};
    /// # let mail = MailEvent::new("em_1", "us@example.com", "ada@example.com", "Hi");
    /// # let event = |at, data| Ok::<_, audience::webhooks::InvalidEventId>(Event::new(EventId::try_from("evt_1")?, Timestamp::from_unix(at), data));
    /// # let (delivered, complained) = (event(5, EventData::Delivered(mail.clone()))?, event(7, EventData::Complained(mail))?);
    /// let status = MailStatus::default().with(&delivered);
    /// assert!(!status.should_suppress());
    ///
    /// assert!(status.with(&complained).should_suppress());
    /// # Ok::<(), audience::webhooks::InvalidEventId>(())
    /// ```
    #[must_use]
    pub fn should_suppress(&self) -> bool {
        self.complained_at.is_some() || self.permanently_bounced_at.is_some()
    }

    fn time_of(&mut self, event: &Event) -> Option<&mut Option<Timestamp>> {
        Some(match &event.data {
            EventData::Sent(_) => &mut self.sent_at,
            EventData::DeliveryDelayed(_) => &mut self.delayed_at,
            // This arm comes before the next one, which matches every bounce.
            EventData::Bounced(mail) if mail.is_permanent_bounce() => {
                &mut self.permanently_bounced_at
            }
            EventData::Bounced(_) => &mut self.bounced_at,
            EventData::Delivered(_) => &mut self.delivered_at,
            EventData::Opened(_) => &mut self.opened_at,
            EventData::Clicked(_) => &mut self.clicked_at,
            EventData::Failed(_) => &mut self.failed_at,
            EventData::Refused(_) => &mut self.refused_at,
            EventData::Complained(_) => &mut self.complained_at,
            _ => return None,
        })
    }

    fn times(&mut self) -> [(MailState, &mut Option<Timestamp>); 10] {
        [
            (MailState::Sent, &mut self.sent_at),
            (MailState::Delayed, &mut self.delayed_at),
            (MailState::Bounced, &mut self.bounced_at),
            (MailState::Delivered, &mut self.delivered_at),
            (MailState::Opened, &mut self.opened_at),
            (MailState::Clicked, &mut self.clicked_at),
            (MailState::Failed, &mut self.failed_at),
            (MailState::Refused, &mut self.refused_at),
            (
                MailState::PermanentlyBounced,
                &mut self.permanently_bounced_at,
            ),
            (MailState::Complained, &mut self.complained_at),
        ]
    }
}

fn earliest(one: Option<Timestamp>, other: Option<Timestamp>) -> Option<Timestamp> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        _ => one.or(other),
    }
}
