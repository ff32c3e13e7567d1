use crate::string_enum::string_enum;

/// The table of event types (interface section 6.1): variant, type of `data`, name.
///
/// It passes its rows to the macro `$use`. `EventType`, `EventData` and the parsing are made from
/// it, so to add an event type, add a row.
macro_rules! event_types {
    ($use:ident) => {
        $use! {
            /// The receiving server rejected the message; see
            /// [`bounce_type`](crate::webhooks::MailEvent::bounce_type).
            Bounced(MailEvent) = "email.bounced",
            /// The recipient followed a link.
            Clicked(MailEvent) = "email.clicked",
            /// The recipient reported the message as spam.
            Complained(MailEvent) = "email.complained",
            /// The receiving server accepted the message.
            Delivered(MailEvent) = "email.delivered",
            /// The receiving server has not accepted the message yet.
            DeliveryDelayed(MailEvent) = "email.delivery_delayed",
            /// The message could not be sent.
            Failed(MailEvent) = "email.failed",
            /// The recipient opened the message.
            Opened(MailEvent) = "email.opened",
            /// A message arrived at a domain with inbound switched on.
            Received(InboundMail) = "email.received",
            /// The service declined to send to this address;
            /// [`detail`](crate::webhooks::MailEvent::detail) states the reason. The one event that
            /// means a message was not sent (interface section 6.3).
            Refused(MailEvent) = "email.refused",
            /// The service sent the message.
            Sent(MailEvent) = "email.sent",
        }
    };
}

pub(super) use event_types;

macro_rules! define_event_type {
    ($($(#[$docs:meta])* $variant:ident($data:ident) = $name:literal,)*) => {
        string_enum! {
            /// The type of an event (interface section 6.1), including types that this version of the
            /// crate does not know.
            ///
            /// # Example: known and unknown types
            ///
            /// ```
            /// use audience::webhooks::EventType;
            ///
            /// assert_eq!(EventType::from("email.bounced"), EventType::Bounced);
            /// assert_eq!(EventType::Bounced.as_str(), "email.bounced");
            /// assert_eq!(EventType::from("email.snoozed").as_str(), "email.snoozed");
            /// ```
            pub enum EventType {
                $(#[doc = concat!("`", $name, "`:")] $(#[$docs])* $variant = $name,)*
            }
        }
    };
}

event_types!(define_event_type);
