//! Mail that the service receives for the sender, and the event about it (section 6.4).

use serde_json::{Value, json};

use super::emails::unknown_mail;
use super::refusal::Refusal;
use super::state::AudienceState;

/// A mail that arrives at a domain with inbound switched on.
///
/// Give it to [`MockServer::receive_mail`](crate::mock::MockServer::receive_mail).
///
/// # Example: a reply to a sent mail
///
/// ```
/// # use audience::mock::{InboundMailSeed, MockServer};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), audience::Error> {
/// # let server = MockServer::start().await;
/// let mail = serde_json::json!({"from": "me@example.com", "to": "ada@example.com", "subject": "Hi"});
/// server.client().request(http::Method::POST, ["emails"]).json(&mail)?.await?;
/// let sent = server.sent_mail().remove(0);
///
/// let reply = InboundMailSeed::new("ada@example.com").in_reply_to(sent.id).text("Hello!");
/// server.receive_mail(reply).await;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use = "no mail is received until this is given to `MockServer::receive_mail`"]
pub struct InboundMailSeed {
    from: String,
    to: Vec<String>,
    subject: Option<String>,
    text: String,
    in_reply_to: Option<String>,
    spf: String,
    authentication_results: Option<String>,
}

impl InboundMailSeed {
    /// Creates a mail from this sender. The text is `Hello`.
    pub fn new(from: impl Into<String>) -> Self {
        Self {
            from: from.into(),
            to: Vec::new(),
            subject: None,
            text: "Hello".to_owned(),
            in_reply_to: None,
            spf: "pass".to_owned(),
            authentication_results: None,
        }
    }

    /// Adds a recipient. Default: the sender of the mail that this one replies to, or `inbox@example.com`.
    pub fn to(mut self, address: impl Into<String>) -> Self {
        self.to.push(address.into());
        self
    }

    /// Sets the subject. Default: `Re: ` and the subject of the mail that this one replies to, or `A message`.
    pub fn subject(mut self, subject: impl Into<String>) -> Self {
        self.subject = Some(subject.into());
        self
    }

    /// Sets the text, as the service shows it: without quoted reply and signature. Default: `Hello`.
    pub fn text(mut self, text: impl Into<String>) -> Self {
        self.text = text.into();
        self
    }

    /// Sets the id of the sent mail that this one replies to. Default: none.
    pub fn in_reply_to(mut self, email_id: impl Into<String>) -> Self {
        self.in_reply_to = Some(email_id.into());
        self
    }

    /// Sets the SPF result, such as `fail`. Default: `pass`.
    ///
    /// It is the only check that the service performs: DKIM and DMARC are always `not-evaluated` (interface section
    /// 6.4).
    pub fn spf(mut self, result: impl Into<String>) -> Self {
        self.spf = result.into();
        self
    }

    /// Sets the whole text of the authentication results. Default: the SPF result for the domain of the sender, in the
    /// form of interface section 6.4.
    pub fn authentication_results(mut self, text: impl Into<String>) -> Self {
        self.authentication_results = Some(text.into());
        self
    }
}

/// Publishes an `email.received` about a mail.
///
/// # Errors
///
/// 404 `not_found` if it replies to a mail that was not sent.
pub(super) fn receive(
    state: &mut AudienceState,
    seed: InboundMailSeed,
    now: i64,
) -> Result<(), Refusal> {
    let replied = match &seed.in_reply_to {
        Some(id) => {
            let (mail, _) = state.mails().find(id).ok_or_else(|| unknown_mail(id))?;
            Some((mail.from.clone(), mail.subject.clone()))
        }
        None => None,
    };
    let (default_to, default_subject) = match replied {
        Some((from, subject)) => (from, format!("Re: {subject}")),
        None => ("inbox@example.com".to_owned(), "A message".to_owned()),
    };

    let mut data = json!({
        "inbound_id": state.mails_mut().next_inbound_id(),
        "from": seed.from,
        "to": if seed.to.is_empty() { vec![default_to] } else { seed.to },
        "subject": seed.subject.unwrap_or(default_subject),
        "text": seed.text,
        "authentication_results": seed
            .authentication_results
            .unwrap_or_else(|| authentication_results(&seed.from, &seed.spf)),
    });
    // Absent if the mail is not a reply.
    if let (Some(id), Value::Object(data)) = (seed.in_reply_to, &mut data) {
        data.insert("in_reply_to_email_id".to_owned(), id.into());
    }
    state.publish("email.received", data, now);
    Ok(())
}

/// Returns authentication results in the form of section 6.4, for a sender's address.
pub(in crate::mock) fn authentication_results(from: &str, spf: &str) -> String {
    let address = from.trim().trim_end_matches('>');
    let domain = address.rsplit('@').next().unwrap_or_default();
    format!(
        "mx.example.com; spf={spf} smtp.mailfrom={domain}; dkim=not-evaluated; dmarc=not-evaluated"
    )
}

#[cfg(test)]
mod tests {
    use super::super::testing::Service;
    use super::*;

    fn received(service: &mut Service, seed: InboundMailSeed) -> Value {
        service.audience.receive_mail(seed, service.now).unwrap();
        let event = service.audience.take_events().pop().unwrap();
        assert_eq!(
            (event.event_type.as_str(), event.at),
            ("email.received", service.now)
        );
        event.data
    }

    #[test]
    fn a_received_mail_has_the_members_of_section_6_4() {
        let mut service = Service::new();

        let data = received(
            &mut service,
            InboundMailSeed::new("Ada <ada@x.io>").spf("fail"),
        );

        assert_eq!(
            data,
            json!({"inbound_id": "inb_00000001", "from": "Ada <ada@x.io>", "to": ["inbox@example.com"],
                "subject": "A message", "text": "Hello",
                "authentication_results":
                    "mx.example.com; spf=fail smtp.mailfrom=x.io; dkim=not-evaluated; dmarc=not-evaluated"})
        );
    }

    #[test]
    fn a_reply_goes_to_the_sender_of_the_mail() {
        let mut service = Service::new();
        service.post(
            "/emails",
            &json!({"from": "me@x.io", "to": "ada@x.io", "subject": "Hi"}),
        );

        let reply = InboundMailSeed::new("ada@x.io").in_reply_to("eml_00000001");
        let data = received(&mut service, reply);

        assert_eq!(data["in_reply_to_email_id"], "eml_00000001");
        assert_eq!(data["to"], json!(["me@x.io"]));
        assert_eq!(data["subject"], "Re: Hi");
    }

    #[test]
    fn a_reply_to_an_unknown_mail_is_refused() {
        let mut service = Service::new();
        let reply = InboundMailSeed::new("ada@x.io").in_reply_to("eml_00000001");

        let error = service.audience.receive_mail(reply, 0).unwrap_err();

        assert_eq!(error.status, 404);
        assert!(service.audience.take_events().is_empty());
    }
}
