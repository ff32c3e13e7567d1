use http::Method;
use serde::Serialize;

use super::{Contact, Contacts, OptOutReason};
use crate::Error;
use crate::client::{Endpoint, Operation, Request, RetrySafety, Success, endpoint_builder};

impl Contacts {
    /// Records an opt-out: of all broadcasts or, with [`topic`](Unsubscribe::topic), only of that
    /// topic (interface sections 3.2 and 4.5).
    ///
    /// An opt-out concerns broadcasts only. Transactional mail, such as a receipt, is still sent to the
    /// contact (section 1).
    ///
    /// The interface document does not show the form of the response:
    /// [`Contact::shows_topics`] tells whether it has the topics.
    ///
    /// # Errors
    ///
    /// - `not_found` (404) if the address is not one of your contacts, or if the topic does not exist.
    /// - [`ErrorKind::Input`](crate::ErrorKind::Input) if the address is empty, `.` or `..`.
    ///
    /// # Example: from a preferences page
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), audience::Error> {
    /// # let server = audience::mock::MockServer::start().await;
    /// # let contacts = server.client().contacts();
    /// # contacts.create(audience::contacts::NewContact::new("ada@example.com")).await?;
    /// use audience::contacts::OptOutReason;
    ///
    /// let contact = contacts.unsubscribe("ada@example.com").reason(OptOutReason::Preferences).await?;
    ///
    /// assert!(contact.unsubscribed);
    /// # Ok(()) }
    /// ```
    pub fn unsubscribe(&self, address: impl Into<String>) -> Unsubscribe {
        let opt_out = OptOut {
            address: address.into(),
            body: Body::default(),
        };
        Unsubscribe::new(&self.client, opt_out)
    }
}

impl Unsubscribe {
    /// Opts out of this topic only. Default: no topic, which opts out of all broadcasts.
    ///
    /// It takes no `Option`, because leaving out the topic is another request: it opts out of everything.
    ///
    /// # Example: one topic
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), audience::Error> {
    /// # let server = audience::mock::MockServer::start().await;
    /// # server.topic("news", true);
    /// # let contacts = server.client().contacts();
    /// # contacts.create(audience::contacts::NewContact::new("ada@example.com")).await?;
    /// let contact = contacts.unsubscribe("ada@example.com").topic("news").await?;
    ///
    /// assert_eq!(contact.topics.get("news"), Some(&false));
    /// assert!(!contact.unsubscribed);
    /// # Ok(()) }
    /// ```
    pub fn topic(mut self, name: impl Into<String>) -> Self {
        self.call.endpoint.body.topic = Some(name.into());
        self
    }

    /// Sets the reason for the opt-out. Default: the service's, [`OptOutReason::Manual`]. `None` leaves the
    /// setting as it is.
    pub fn reason(mut self, reason: impl Into<Option<OptOutReason>>) -> Self {
        let body = &mut self.call.endpoint.body;
        body.reason = reason.into().or(body.reason);
        self
    }
}

endpoint_builder! {
    /// An opt-out, sent by `.await`: see [`Contacts::unsubscribe`].
    pub struct Unsubscribe(OptOut) -> Contact;
}

#[derive(Clone)]
pub(super) struct OptOut {
    address: String,
    body: Body,
}

#[derive(Clone, Default, PartialEq, Serialize)]
struct Body {
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<OptOutReason>,
    #[serde(skip_serializing_if = "Option::is_none")]
    topic: Option<String>,
}

impl Endpoint for OptOut {
    type Output = Contact;

    fn operation(&self) -> Operation {
        Operation {
            name: "unsubscribe",
            template: "/contacts/{address}/unsubscribe",
        }
    }

    fn request(&self) -> Result<Request, Error> {
        let segments = ["contacts", &self.address, "unsubscribe"];
        let request = Request::new(Method::POST, segments, RetrySafety::Safe)?;
        // Section 3.2 shows the global opt-out without a body.
        if self.body == Body::default() {
            return Ok(request);
        }
        request.json(&self.body)
    }

    fn decode(&self, success: Success) -> Result<Contact, Error> {
        success.object()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Client;

    fn unsubscribe() -> Unsubscribe {
        let client = Client::new("http://localhost", "key").unwrap();
        client.contacts().unsubscribe("ada@x.io")
    }

    fn request(unsubscribe: &Unsubscribe) -> Request {
        unsubscribe.call.endpoint.request().unwrap()
    }

    #[test]
    fn a_global_opt_out_without_a_reason_has_no_body() {
        let request = request(&unsubscribe());

        assert_eq!(
            (request.path.as_str(), request.body),
            ("/contacts/ada%40x.io/unsubscribe", None)
        );
    }

    #[test]
    fn topic_and_reason_are_members_of_the_body() {
        let with_reason = request(&unsubscribe().reason(OptOutReason::Preferences));
        let with_topic = request(&unsubscribe().topic("news"));

        assert_eq!(with_reason.body.unwrap(), r#"{"reason":"preferences"}"#);
        assert_eq!(with_topic.body.unwrap(), r#"{"topic":"news"}"#);
    }

    #[test]
    fn an_opt_out_is_safe_to_retry() {
        assert_eq!(request(&unsubscribe()).retry_safety, RetrySafety::Safe);
    }
}
