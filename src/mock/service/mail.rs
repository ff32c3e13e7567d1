//! A mail, and the `data` of the events about it (section 6.3).

use serde_json::{Value, json};

/// The parts of a mail that the events about it contain.
#[derive(Clone, Debug)]
pub(crate) struct Mail {
    /// The id that `POST /emails` returned.
    pub(crate) id: String,
    pub(crate) from: String,
    pub(crate) subject: String,
}

impl Mail {
    /// Returns a mail with sample values, for an event about mail that was not sent through `POST /emails`.
    pub(crate) fn sample() -> Self {
        Self {
            id: "em_sample".to_owned(),
            from: "sender@example.com".to_owned(),
            subject: "A message".to_owned(),
        }
    }

    /// Returns the `data` of an event about one recipient, with every member of section 6.3.
    pub(crate) fn event_data(&self, to: &str, bounce_type: &str, detail: &str) -> Value {
        json!({
            "email_id": self.id,
            "from": self.from,
            "to": to,
            "subject": self.subject,
            "bounce_type": bounce_type,
            "detail": detail,
        })
    }
}

/// Returns a typical `detail` of an event type: the reason for a refusal, or what a receiving server says.
pub(crate) fn typical_detail(event_type: &str, bounce_type: &str) -> &'static str {
    match (event_type, bounce_type) {
        ("email.bounced", "Permanent") => "550 5.1.1 no such user",
        ("email.bounced", "Transient") => "452 4.2.2 mailbox full",
        ("email.delivery_delayed", _) => "451 4.7.1 try again later",
        ("email.failed", _) => "the mail could not be delivered within the time allowed",
        ("email.refused", _) => "the address is on the suppression list",
        _ => "",
    }
}
