//! Subscribe and unsubscribe: the transitions of section 3.2.

use super::audience::{Audience, reply};
use super::contact::Reason;
use super::dialect::{ConsentForm, ReasonAfterSubscribe};
use super::message::Reply;
use super::reading::{self, OptOut};
use super::refusal::Refusal;

impl Audience {
    /// Refuses in the order: body, unknown address, unknown topic.
    pub(super) fn unsubscribe(&mut self, address: &str, body: &[u8]) -> Result<Reply, Refusal> {
        let opt_out = OptOut::read(body, self.dialect).map_err(Refusal::invalid)?;
        self.found(address)?;
        match opt_out.topic {
            Some(topic) => self.note_answer(address, topic, false)?,
            None => {
                let contact = self.found_mut(address)?;
                contact.unsubscribed = true;
                // A manual opt-out on top of a complaint would make way for a subscribe: two calls
                // must not launder a spam report.
                if contact.reason != Reason::Complaint {
                    contact.reason = opt_out.reason;
                }
            }
        }
        self.consent(address)
    }

    /// Refuses in the order: body, unknown address, complaint, unknown topic.
    pub(super) fn subscribe(&mut self, address: &str, body: &[u8]) -> Result<Reply, Refusal> {
        let topic = reading::opt_in(body, self.dialect).map_err(Refusal::invalid)?;
        let clears = self.dialect.reason_after_subscribe == ReasonAfterSubscribe::Cleared;
        let contact = self.found_mut(address)?;
        if contact.reason == Reason::Complaint {
            return Err(Refusal::complaint_locked(&contact.email));
        }
        match topic {
            Some(topic) => self.note_answer(address, topic, true)?,
            None => {
                contact.unsubscribed = false;
                if clears {
                    contact.reason = Reason::None;
                }
            }
        }
        self.consent(address)
    }

    fn note_answer(&mut self, address: &str, topic: String, answer: bool) -> Result<(), Refusal> {
        if !self.topics.contains_key(&topic) {
            let topic = topic.escape_debug();
            return Err(Refusal::not_found(format!("there is no topic `{topic}`")));
        }
        self.found_mut(address)?.answers.insert(topic, answer);
        Ok(())
    }

    fn consent(&self, address: &str) -> Result<Reply, Refusal> {
        match self.dialect.consent_form {
            ConsentForm::Full => self.retrieve(address),
            ConsentForm::Create => {
                let form = self.found(address)?.created(self.dialect.missing_name);
                Ok(reply(self.dialect.success_status.code(), &form))
            }
        }
    }
}
