use crate::string_enum::string_enum;

string_enum! {
    /// The type of an event (interface section 6.1): one of the ten known ones, or the name of
    /// one that came later.
    ///
    /// # Example: names, known or not, are kept
    ///
    /// ```
    /// use audience::webhooks::EventType;
    ///
    /// assert_eq!(EventType::from("email.bounced"), EventType::Bounced);
    /// assert_eq!(EventType::from("email.snoozed").as_str(), "email.snoozed");
    /// assert_eq!(EventType::KNOWN.len(), 10);
    /// ```
    pub enum EventType {
        /// `email.bounced`: the receiving server refused the message.
        Bounced = "email.bounced",
        /// `email.clicked`: the recipient followed a link.
        Clicked = "email.clicked",
        /// `email.complained`: the recipient reported the message as spam.
        Complained = "email.complained",
        /// `email.delivered`: the receiving server took the message.
        Delivered = "email.delivered",
        /// `email.delivery_delayed`: the receiving server has not taken the message yet.
        DeliveryDelayed = "email.delivery_delayed",
        /// `email.failed`: the message could not be sent.
        Failed = "email.failed",
        /// `email.opened`: the recipient opened the message.
        Opened = "email.opened",
        /// `email.received`: a message came in at a domain with inbound switched on.
        Received = "email.received",
        /// `email.refused`: the service declined to send to this address; no message went.
        Refused = "email.refused",
        /// `email.sent`: the service sent the message.
        Sent = "email.sent",
    }
}
