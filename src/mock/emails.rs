//! `POST /emails`: transactional mail, and the events it gives rise to (sections 4.7 and 6.3).

use serde_json::{Value, json};

use super::address::{is_address, normalised};
use super::audience::{Audience, reply};
use super::json::{self, Members};
use super::message::{Outgoing, Reply};
use super::refusal::Refusal;

impl Audience {
    /// Consent governs broadcasts only (section 1): what keeps mail from going out is suppression.
    pub(super) fn send_email(&mut self, body: &[u8], now: i64) -> Result<Reply, Refusal> {
        let email = Email::read(body).map_err(Refusal::invalid)?;
        self.emails += 1;
        let id = format!("eml_{:08}", self.emails);
        for to in &email.to {
            if self.suppressed.contains(to) {
                self.announce("email.refused", email.event(&id, to, SUPPRESSED), now);
            } else {
                self.announce("email.sent", email.event(&id, to, ""), now);
                self.announce("email.delivered", email.event(&id, to, ""), now);
            }
        }
        Ok(reply(200, &json!({ "id": id })))
    }

    fn announce(&mut self, event_type: &str, data: Value, now: i64) {
        self.record(event_type, &data, now);
        self.outbox.push(Outgoing {
            event_type: event_type.to_owned(),
            data,
        });
    }
}

const SUPPRESSED: &str = "the address is on the suppression list after a spam report";

/// What is read of an email. Its other members are the service's own affair: the document shows none.
struct Email {
    from: String,
    /// Normalised, each once: an event stands for a recipient.
    to: Vec<String>,
    subject: String,
}

impl Email {
    fn read(body: &[u8]) -> Result<Self, String> {
        let body = json::value(body)?;
        let members = Members::of(&body, "the body", "")?;
        let from = bare(members.required_text("from")?);
        if !is_address(from) {
            let found = members.required("from")?;
            return Err(members.must_be("from", "an email address", found));
        }
        Ok(Self {
            from: from.to_owned(),
            to: recipients(&members)?,
            subject: members.text("subject")?.unwrap_or_default().to_owned(),
        })
    }

    /// The `data` of an event about one recipient: section 6.3, every member of it.
    fn event(&self, email_id: &str, to: &str, detail: &str) -> Value {
        json!({
            "email_id": email_id,
            "from": self.from,
            "to": to,
            "subject": self.subject,
            "bounce_type": "",
            "detail": detail,
        })
    }
}

fn recipients(members: &Members<'_>) -> Result<Vec<String>, String> {
    let found = members.required("to")?;
    let listed = match found {
        Value::Array(several) => several.as_slice(),
        one => std::slice::from_ref(one),
    };
    let mut recipients = Vec::with_capacity(listed.len());
    for one in listed {
        let address = one.as_str().map(|text| normalised(bare(text)));
        match address {
            Some(address) if is_address(&address) => recipients.push(address),
            _ => return Err(members.must_be("to", "an email address or an array of them", one)),
        }
    }
    if recipients.is_empty() {
        return Err(members.must_be("to", "at least one email address", found));
    }
    let mut seen = std::collections::HashSet::new();
    recipients.retain(|address| seen.insert(address.clone()));
    Ok(recipients)
}

/// The address in `Ada <ada@example.com>`; any other text as it is, trimmed.
fn bare(text: &str) -> &str {
    let text = text.trim();
    text.strip_suffix('>')
        .and_then(|text| text.rsplit_once('<'))
        .map_or(text, |(_, address)| address.trim())
}
