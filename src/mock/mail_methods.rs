//! The methods of a server for the outcomes of sent mail, and for received mail.

use super::mock_server::MockServer;
use super::service::inbound_mail::InboundMailSeed;
use super::service::mail_outcome::MailOutcome;

impl MockServer {
    /// Applies an outcome to a sent mail: delivers the event about it to every endpoint, waits for the first attempt at
    /// each, and returns the event's id.
    ///
    /// The event has the id, the sender and the subject of the mail. It counts as engagement, and a complaint has the
    /// effects of a spam report (interface sections 2.8 and 3.2).
    ///
    /// # Panics
    ///
    /// Panics if the mail is unknown, if it has several recipients and the outcome names none, if the address is not a
    /// recipient, or if the outcome is not possible, such as an open of a mail that bounced. The message has the
    /// reason, and the outcomes that are possible.
    ///
    /// # Example: a mail bounces after it was delivered
    ///
    /// ```
    /// # use audience::mock::{MailOutcome, MockServer};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), audience::Error> {
    /// let server = MockServer::start().await;
    /// let mail = serde_json::json!({"from": "me@example.com", "to": "ada@example.com", "subject": "Hi"});
    /// server.client().request(http::Method::POST, ["emails"]).json(&mail)?.await?;
    ///
    /// let sent = server.sent_mail().remove(0);
    /// server.mail_outcome(&sent.id, MailOutcome::bounced().bounce_type("Transient")).await;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn mail_outcome(&self, email_id: impl AsRef<str>, outcome: MailOutcome) -> String {
        let id = email_id.as_ref();
        let published = self
            .shared
            .publish(|audience, now| audience.mail_outcome(id, &outcome, now))
            .await;
        published.unwrap_or_else(|refusal| panic!("{}", refusal.message))
    }

    /// Receives a mail: delivers an `email.received` event to every endpoint, waits for the first attempt at each, and
    /// returns the event's id (interface section 6.4).
    ///
    /// # Panics
    ///
    /// Panics if the mail replies to one that was not sent.
    ///
    /// # Example: a mail from a customer
    ///
    /// ```
    /// # use audience::mock::{InboundMailSeed, MockServer};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// # let server = MockServer::start().await;
    /// server.receive_mail(InboundMailSeed::new("ada@example.com").subject("A question")).await;
    /// # }
    /// ```
    pub async fn receive_mail(&self, mail: InboundMailSeed) -> String {
        let published = self
            .shared
            .publish(|audience, now| audience.receive_mail(mail, now))
            .await;
        published.unwrap_or_else(|refusal| panic!("{}", refusal.message))
    }
}
