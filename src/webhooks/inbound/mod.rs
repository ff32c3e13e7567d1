mod authentication_results;
mod check_result;

use serde::{Deserialize, Serialize};

pub use authentication_results::AuthenticationResults;
pub use check_result::CheckResult;

use super::mail::unless_empty;

/// A message received at a domain with inbound switched on (interface section 6.4).
///
/// # Example: data for your own test
///
/// ```
/// use audience::webhooks::InboundMail;
///
/// let mut mail = InboundMail::new("in_1", "ada@example.com", ["us@example.com"], "Re: Hi");
/// mail.text = "Yes, please.".to_owned();
/// mail.in_reply_to_email_id = Some("em_1".to_owned());
/// mail.authentication_results =
///     "mx.example.com; spf=pass smtp.mailfrom=example.com".into();
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct InboundMail {
    /// The id of the received message.
    pub inbound_id: String,
    /// The sender, as the message states it.
    pub from: String,
    /// The recipients that the message was addressed to.
    pub to: Vec<String>,
    /// The message's subject.
    pub subject: String,
    /// The id of your own message that this one replies to; `None` if it is not a reply.
    #[serde(
        default,
        deserialize_with = "unless_empty",
        skip_serializing_if = "Option::is_none"
    )]
    pub in_reply_to_email_id: Option<String>,
    /// The message's text, without the quoted reply and the signature block.
    pub text: String,
    /// The checks of the sender. For reporting only: mail is not refused on it.
    pub authentication_results: AuthenticationResults,
}

impl InboundMail {
    /// Creates a message that is not a reply, without text and authentication results.
    #[must_use]
    pub fn new(
        inbound_id: impl Into<String>,
        from: impl Into<String>,
        to: impl IntoIterator<Item = impl Into<String>>,
        subject: impl Into<String>,
    ) -> Self {
        Self {
            inbound_id: inbound_id.into(),
            from: from.into(),
            to: to.into_iter().map(Into::into).collect(),
            subject: subject.into(),
            in_reply_to_email_id: None,
            text: String::new(),
            authentication_results: AuthenticationResults::default(),
        }
    }
}
