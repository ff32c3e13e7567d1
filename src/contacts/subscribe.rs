use http::Method;
use serde::Serialize;

use super::{Contact, Contacts};
use crate::Error;
use crate::client::{Endpoint, Operation, Request, RetrySafety, Success, endpoint_builder};

impl Contacts {
    /// Records an opt-in: clears the global opt-out or, with [`topic`](Subscribe::topic), opts the
    /// contact into one topic and leaves everything else unchanged (interface sections 3.2 and 4.6).
    ///
    /// The call is retried only if it was certainly not applied. A late retry could undo an opt-out
    /// that the recipient made in the meantime.
    ///
    /// The interface document does not show the form of the response:
    /// [`Contact::shows_topics`] tells whether it has the topics.
    ///
    /// # Errors
    ///
    /// - `failed_precondition` (422) if the contact reported spam: [`Error::is_complaint_locked`].
    /// - `not_found` (404) if the address is not one of your contacts, or if the topic does not exist.
    /// - [`ErrorKind::Input`](crate::ErrorKind::Input) if the address is empty, `.` or `..`.
    ///
    /// # Example: a contact who reported spam cannot be subscribed
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), audience::Error> {
    /// # let server = audience::mock::MockServer::start().await;
    /// # let contacts = server.client().contacts();
    /// # contacts.create(audience::contacts::NewContact::new("ada@example.com")).await?;
    /// server.report_spam("ada@example.com");
    ///
    /// let error = contacts.subscribe("ada@example.com").await.unwrap_err();
    ///
    /// assert!(error.is_complaint_locked());
    /// # Ok(()) }
    /// ```
    pub fn subscribe(&self, address: impl Into<String>) -> Subscribe {
        let opt_in = OptIn {
            address: address.into(),
            body: Body::default(),
        };
        Subscribe::new(&self.client, opt_in)
    }
}

impl Subscribe {
    /// Opts into this topic, and leaves the global opt-out unchanged. Default: no topic, which clears
    /// the global opt-out.
    ///
    /// It takes no `Option`, because leaving out the topic is another request: it would clear a global
    /// opt-out that the recipient meant to keep.
    ///
    /// # Example: one topic
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), audience::Error> {
    /// # let server = audience::mock::MockServer::start().await;
    /// # server.topic("news", false);
    /// # let contacts = server.client().contacts();
    /// # contacts.create(audience::contacts::NewContact::new("ada@example.com")).await?;
    /// let contact = contacts.subscribe("ada@example.com").topic("news").await?;
    ///
    /// assert_eq!(contact.topics.get("news"), Some(&true));
    /// # Ok(()) }
    /// ```
    ///
    /// # Example: a topic that may be missing does not compile
    ///
    /// ```compile_fail,E0277
    /// # async fn example(contacts: audience::contacts::Contacts, topic: Option<String>) {
    /// contacts.subscribe("ada@example.com").topic(topic).await;
    /// # }
    /// ```
    pub fn topic(mut self, name: impl Into<String>) -> Self {
        self.call.endpoint.body.topic = Some(name.into());
        self
    }
}

endpoint_builder! {
    /// An opt-in, sent by `.await`: see [`Contacts::subscribe`].
    pub struct Subscribe(OptIn) -> Contact, repeatable;
}

#[derive(Clone)]
pub(super) struct OptIn {
    address: String,
    body: Body,
}

#[derive(Clone, Default, PartialEq, Serialize)]
struct Body {
    #[serde(skip_serializing_if = "Option::is_none")]
    topic: Option<String>,
}

impl Endpoint for OptIn {
    type Output = Contact;

    fn operation(&self) -> Operation {
        Operation {
            name: "subscribe",
            template: "/contacts/{address}/subscribe",
        }
    }

    fn request(&self) -> Result<Request, Error> {
        let segments = ["contacts", &self.address, "subscribe"];
        let request = Request::new(Method::POST, segments, RetrySafety::OnlyIfNotApplied)?;
        // Section 3.2 shows the global opt-in without a body.
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

    fn subscribe() -> Subscribe {
        let client = Client::new("http://localhost", "key").unwrap();
        client.contacts().subscribe("ada@x.io")
    }

    fn request(subscribe: &Subscribe) -> Request {
        subscribe.call.endpoint.request().unwrap()
    }

    #[test]
    fn a_global_opt_in_has_no_body() {
        let request = request(&subscribe());

        assert_eq!(
            (request.path.as_str(), request.body),
            ("/contacts/ada%40x.io/subscribe", None)
        );
    }

    #[test]
    fn the_topic_is_a_member_of_the_body() {
        let request = request(&subscribe().topic("news"));

        assert_eq!(request.body.unwrap(), r#"{"topic":"news"}"#);
    }

    #[test]
    fn an_opt_in_is_retried_only_if_it_was_not_applied() {
        for subscribe in [subscribe(), subscribe().topic("news")] {
            assert_eq!(
                request(&subscribe).retry_safety,
                RetrySafety::OnlyIfNotApplied
            );
        }
    }
}
