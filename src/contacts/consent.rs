use http::Method;
use serde::Serialize;

use super::{Contact, Contacts, OptOutReason};
use crate::client::wire::{Operation, Request};
use crate::client::{Call, CallOptions, Repeat, call_options};
use crate::{Client, Error};

const SUBSCRIBE: Operation = Operation {
    name: "subscribe",
    template: "/contacts/{address}/subscribe",
};
const UNSUBSCRIBE: Operation = Operation {
    name: "unsubscribe",
    template: "/contacts/{address}/unsubscribe",
};

impl Contacts {
    /// Records an opt-in: clears the global opt-out, or, with [`topic`](Subscribe::topic), answers
    /// one topic with yes and leaves the rest as it is (interface sections 3.2 and 4.6).
    ///
    /// It is repeated only where an attempt was certainly not applied. A repeat that arrives late
    /// could otherwise undo an opt-out that the recipient made in between.
    ///
    /// # Errors
    ///
    /// `failed_precondition` (422) where the contact reported spam:
    /// [`Error::is_complaint_locked`]. `not_found` (404) for an unknown address or topic.
    /// [`ErrorKind::Input`](crate::ErrorKind::Input) for an address that is empty, `.` or `..`.
    ///
    /// # Example: a complaint stands
    ///
    /// ```
    /// # #[cfg(feature = "mock")]
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
    /// # #[cfg(not(feature = "mock"))] fn main() {}
    /// ```
    pub fn subscribe(&self, address: impl Into<String>) -> Subscribe {
        let client = self.client.clone();
        Subscribe {
            client,
            address: address.into(),
            body: OptIn::default(),
            options: CallOptions::default(),
        }
    }

    /// Records an opt-out: of all broadcasts, or, with [`topic`](Unsubscribe::topic), of that topic
    /// alone (interface sections 3.2 and 4.5).
    ///
    /// # Errors
    ///
    /// `not_found` (404) for an unknown address or topic.
    /// [`ErrorKind::Input`](crate::ErrorKind::Input) for an address that is empty, `.` or `..`.
    ///
    /// # Example: from a preferences page
    ///
    /// ```
    /// # #[cfg(feature = "mock")]
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
    /// # #[cfg(not(feature = "mock"))] fn main() {}
    /// ```
    pub fn unsubscribe(&self, address: impl Into<String>) -> Unsubscribe {
        let client = self.client.clone();
        Unsubscribe {
            client,
            address: address.into(),
            body: OptOut::default(),
            options: CallOptions::default(),
        }
    }
}

/// An opt-in, sent by `.await`: see [`Contacts::subscribe`].
#[derive(Clone)]
#[must_use = "a call is made only when it is awaited"]
pub struct Subscribe {
    client: Client,
    address: String,
    body: OptIn,
    options: CallOptions,
}

#[derive(Clone, Default, PartialEq, Serialize)]
struct OptIn {
    #[serde(skip_serializing_if = "Option::is_none")]
    topic: Option<String>,
}

impl Subscribe {
    /// Opts into this topic, and leaves the global opt-out as it is.
    pub fn topic(mut self, name: impl Into<String>) -> Self {
        self.body.topic = Some(name.into());
        self
    }

    call_options!(repeatable);

    fn request(&self) -> Result<Request, Error> {
        request(
            SUBSCRIBE,
            &self.address,
            "subscribe",
            Repeat::Unapplied,
            &self.body,
        )
    }
}

impl IntoFuture for Subscribe {
    type Output = Result<Contact, Error>;
    type IntoFuture = Call<Contact>;

    fn into_future(self) -> Self::IntoFuture {
        let request = self.request();
        self.client.call(request, self.options)
    }
}

/// An opt-out, sent by `.await`: see [`Contacts::unsubscribe`].
#[derive(Clone)]
#[must_use = "a call is made only when it is awaited"]
pub struct Unsubscribe {
    client: Client,
    address: String,
    body: OptOut,
    options: CallOptions,
}

#[derive(Clone, Default, PartialEq, Serialize)]
struct OptOut {
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<OptOutReason>,
    #[serde(skip_serializing_if = "Option::is_none")]
    topic: Option<String>,
}

impl Unsubscribe {
    /// Opts out of this topic alone.
    pub fn topic(mut self, name: impl Into<String>) -> Self {
        self.body.topic = Some(name.into());
        self
    }

    /// Says who wanted it. The service's default is [`OptOutReason::Manual`].
    pub fn reason(mut self, reason: OptOutReason) -> Self {
        self.body.reason = Some(reason);
        self
    }

    call_options!();

    fn request(&self) -> Result<Request, Error> {
        request(
            UNSUBSCRIBE,
            &self.address,
            "unsubscribe",
            Repeat::Always,
            &self.body,
        )
    }
}

impl IntoFuture for Unsubscribe {
    type Output = Result<Contact, Error>;
    type IntoFuture = Call<Contact>;

    fn into_future(self) -> Self::IntoFuture {
        let request = self.request();
        self.client.call(request, self.options)
    }
}

crate::client::opaque_debug!(Subscribe, Unsubscribe);

/// Where nothing is said there is no body at all, as the tables of section 3.2 have it.
fn request<B: Serialize + Default + PartialEq>(
    operation: Operation,
    address: &str,
    verb: &str,
    repeat: Repeat,
    body: &B,
) -> Result<Request, Error> {
    let request = Request::new(operation, Method::POST, ["contacts", address, verb], repeat)?;
    if *body == B::default() {
        Ok(request)
    } else {
        request.json(body)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contacts() -> Contacts {
        Client::new("http://localhost", "key").unwrap().contacts()
    }

    #[test]
    fn a_call_without_topic_and_reason_has_no_body() {
        let subscribe = contacts().subscribe("ada@x.io").request().unwrap();
        let unsubscribe = contacts().unsubscribe("ada@x.io").request().unwrap();

        assert_eq!(
            (subscribe.path.as_str(), subscribe.body),
            ("/contacts/ada%40x.io/subscribe", None)
        );
        assert_eq!(
            (unsubscribe.path.as_str(), unsubscribe.body),
            ("/contacts/ada%40x.io/unsubscribe", None)
        );
    }

    #[test]
    fn topic_and_reason_are_members_of_the_body() {
        let subscribe = contacts()
            .subscribe("ada@x.io")
            .topic("news")
            .request()
            .unwrap();
        let unsubscribe = contacts()
            .unsubscribe("ada@x.io")
            .reason(OptOutReason::Preferences);
        let by_topic = contacts()
            .unsubscribe("ada@x.io")
            .topic("news")
            .request()
            .unwrap();

        assert_eq!(subscribe.body.unwrap(), r#"{"topic":"news"}"#);
        assert_eq!(
            unsubscribe.request().unwrap().body.unwrap(),
            r#"{"reason":"preferences"}"#
        );
        assert_eq!(by_topic.body.unwrap(), r#"{"topic":"news"}"#);
    }

    #[test]
    fn an_opt_out_may_be_repeated_and_an_opt_in_only_where_it_was_not_applied() {
        assert_eq!(
            contacts().unsubscribe("ada@x.io").request().unwrap().repeat,
            Repeat::Always
        );
        assert_eq!(
            contacts().subscribe("ada@x.io").request().unwrap().repeat,
            Repeat::Unapplied
        );
        assert_eq!(
            contacts()
                .subscribe("ada@x.io")
                .topic("news")
                .request()
                .unwrap()
                .repeat,
            Repeat::Unapplied
        );
    }
}
