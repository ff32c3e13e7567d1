use super::subscribe::OptIn;
use super::unsubscribe::OptOut;
use super::{Contact, Contacts};
use crate::Error;
use crate::client::{Endpoint, Operation, Request, Success, endpoint_builder};

impl Contacts {
    /// Records a contact's answer for one topic: `true` subscribes the contact to the topic, `false`
    /// unsubscribes it from the topic (interface section 3.2). The global opt-out and all other topics stay
    /// unchanged.
    ///
    /// This is [`subscribe`](Self::subscribe) or [`unsubscribe`](Self::unsubscribe) with the topic, and is
    /// retried as they are: an opt-in only if it was certainly not applied. For a whole form of topics, use
    /// [`answers`](Self::answers).
    ///
    /// # Errors
    ///
    /// - `failed_precondition` (422) if the answer is `true` and the contact reported spam:
    ///   [`Error::is_complaint_locked`].
    /// - `not_found` (404) if the address is not one of your contacts, or if the topic does not exist.
    /// - [`ErrorKind::Input`](crate::ErrorKind::Input) if the address is empty, `.` or `..`.
    ///
    /// # Example: a checkbox
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), audience::Error> {
    /// # let server = audience::mock::MockServer::start().await;
    /// # server.topic("news", true);
    /// # let contacts = server.client().contacts();
    /// # contacts.create(audience::contacts::NewContact::new("ada@example.com")).await?;
    /// let is_checked = false;
    /// let contact = contacts.answer("ada@example.com", "news", is_checked).await?;
    ///
    /// assert_eq!(contact.topics.get("news"), Some(&false));
    /// # Ok(()) }
    /// ```
    pub fn answer(
        &self,
        address: impl Into<String>,
        topic: impl Into<String>,
        answer: bool,
    ) -> RecordAnswer {
        let topic = topic.into();
        let endpoint = if answer {
            TopicAnswer::In(self.subscribe(address).topic(topic).call.endpoint)
        } else {
            TopicAnswer::Out(self.unsubscribe(address).topic(topic).call.endpoint)
        };
        RecordAnswer::new(&self.client, endpoint)
    }
}

endpoint_builder! {
    /// The answer for one topic, sent by `.await`: see [`Contacts::answer`].
    pub struct RecordAnswer(TopicAnswer) -> Contact, repeatable;
}

#[derive(Clone)]
pub(super) enum TopicAnswer {
    In(OptIn),
    Out(OptOut),
}

impl Endpoint for TopicAnswer {
    type Output = Contact;

    fn operation(&self) -> Operation {
        match self {
            Self::In(opt_in) => opt_in.operation(),
            Self::Out(opt_out) => opt_out.operation(),
        }
    }

    fn request(&self) -> Result<Request, Error> {
        match self {
            Self::In(opt_in) => opt_in.request(),
            Self::Out(opt_out) => opt_out.request(),
        }
    }

    fn decode(&self, success: Success) -> Result<Contact, Error> {
        match self {
            Self::In(opt_in) => opt_in.decode(success),
            Self::Out(opt_out) => opt_out.decode(success),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Client;
    use crate::client::RetrySafety;

    #[test]
    fn a_yes_subscribes_and_a_no_unsubscribes_with_the_topic() {
        let contacts = Client::new("http://localhost", "key").unwrap().contacts();

        for (answer, path, retry_safety) in [
            (
                true,
                "/contacts/ada%40x.io/subscribe",
                RetrySafety::OnlyIfNotApplied,
            ),
            (false, "/contacts/ada%40x.io/unsubscribe", RetrySafety::Safe),
        ] {
            let call = contacts.answer("ada@x.io", "news", answer).call;
            let request = call.endpoint.request().unwrap();

            assert_eq!(
                (request.path.as_str(), request.retry_safety),
                (path, retry_safety)
            );
            assert_eq!(request.body.unwrap(), r#"{"topic":"news"}"#);
            assert!(path.ends_with(call.endpoint.operation().name));
        }
    }
}
