use http::{Method, StatusCode};

use super::Contacts;
use super::model::address_segment;
use crate::client::{
    CallOptions, Endpoint, Operation, Request, ResponseFuture, RetrySafety, Success, call_settings,
    opaque_debug, wait_for_call,
};
use crate::error::Target;
use crate::{Error, ErrorKind, Outcome};

impl Contacts {
    /// Deletes a contact, if the service can. The call succeeds if there is no such contact.
    ///
    /// The interface document says that contacts can be deleted, but does not show the request ([section
    /// 4.7](crate::interface#4.7)). **Our reading** is `DELETE /contacts/{address}`. So before you rely on this call,
    /// try it with a contact that you made for that.
    ///
    /// [A 404 is no proof](crate::contacts#a-404-is-no-proof), and here no other response is one, because the service
    /// may not know the request. So after a 2xx status, a 404 and a 410, the call lists the contacts with this address,
    /// and succeeds only if there is none.
    ///
    /// The opt-out is deleted with the contact. If the address is imported again, it gets broadcasts again, so keep a
    /// list of deleted addresses.
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::Unsupported`] if the service does not delete contacts by this request: it responded 405 or 501,
    ///   or 404 or 410 although it still lists the contact. Nothing was deleted. But after an earlier attempt without a
    ///   response, or with one such as a 503, the outcome is [`Outcome::Unknown`]. The error's
    ///   [`source`](std::error::Error::source) is the refusal.
    /// - [`ErrorKind::Unsupported`] with [`Outcome::Unknown`] if the service responded 2xx, but still lists the
    ///   contact. It may delete the contact later, or never.
    /// - [`ErrorKind::Input`] if the address is empty, `.` or `..`.
    /// - [`ErrorKind::Decode`] if a 2xx response is a page or reports an error.
    /// - The errors of [`list`](Self::list), after a 2xx status, a 404 and a 410.
    ///
    /// It is safe to repeat the call after any error.
    ///
    /// # Example: erase a contact
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), audience::Error> {
    /// use audience::mock::dialect::ContactDeletion;
    /// use audience::mock::{Dialect, MockServer};
    ///
    /// // By default, the mock does not delete, because the document does not say how.
    /// let dialect = Dialect { contact_deletion: ContactDeletion::NoContent, ..Dialect::default() };
    /// let server = MockServer::builder().dialect(dialect).seed_contact("ada@example.com").start().await;
    ///
    /// server.client().contacts().delete("Ada@Example.com").await?;
    ///
    /// assert!(server.contact("ada@example.com").is_none());
    /// # Ok(()) }
    /// ```
    ///
    /// # Example: a service that does not delete by this request
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() {
    /// # let server = audience::mock::MockServer::builder().seed_contact("ada@example.com").start().await;
    /// # let contacts = server.client().contacts();
    /// use audience::ErrorKind;
    ///
    /// let error = contacts.delete("ada@example.com").await.unwrap_err();
    ///
    /// assert_eq!(error.kind(), ErrorKind::Unsupported);
    /// # }
    /// ```
    pub fn delete(&self, address: impl Into<String>) -> DeleteContact {
        DeleteContact {
            contacts: self.clone(),
            address: address.into(),
            options: CallOptions::default(),
        }
    }
}

/// Deletes a contact when it is awaited: see [`Contacts::delete`].
///
/// The timeout and the retry policy apply to each request, the deadline to the whole call.
#[derive(Clone)]
#[must_use = "a call is sent only when it is awaited"]
pub struct DeleteContact {
    contacts: Contacts,
    address: String,
    options: CallOptions,
}

impl DeleteContact {
    async fn send(mut self) -> Result<(), Error> {
        // All requests of the call share one deadline.
        let client = &self.contacts.client;
        self.options = client.start_deadline(self.options);
        let address = self.address.clone();
        let deleted = client
            .clone()
            .call_for_response(Delete { address }, self.options.clone());
        let (refusal, attempts) = match deleted.await {
            Ok(response) => (None, response.attempts()),
            Err(error) => match error.status() {
                Some(StatusCode::NOT_FOUND | StatusCode::GONE) => {
                    let attempts = error.attempts();
                    (Some(error), attempts)
                }
                Some(StatusCode::METHOD_NOT_ALLOWED | StatusCode::NOT_IMPLEMENTED) => {
                    return Err(unsupported(error));
                }
                _ => return Err(error),
            },
        };
        // Neither a 2xx nor a 404 is a proof: the document does not show the request, and a gateway may respond.
        match self.contacts.is_absent(&self.address, self.options).await {
            Ok(true) => Ok(()),
            Ok(false) => Err(refusal.map_or_else(|| still_listed(attempts), unsupported)),
            Err(unlisted) => {
                let outcome = refusal.map_or(Outcome::Unknown, |refusal| refusal.outcome());
                let error = unlisted.of_proof(attempts, outcome);
                Err(error.at(NAME).repeatable(true))
            }
        }
    }
}

fn still_listed(attempts: u32) -> Error {
    let message = "the service responded as if it had deleted the contact, but still lists it; delete it again in a few minutes, and if it is still listed then, ask the service's support and opt the contact out";
    Error::new(ErrorKind::Unsupported, Outcome::Unknown, message)
        .after(attempts, Outcome::Unknown)
        .at(NAME)
        .repeatable(true)
}

fn unsupported(refusal: Error) -> Error {
    let (attempts, outcome) = (refusal.attempts(), refusal.outcome());
    let message = "the service does not delete contacts by this request; ask its support to delete the contact, and until then opt it out";
    Error::new(ErrorKind::Unsupported, outcome, message)
        .after(attempts, outcome)
        .at(NAME)
        .repeatable(true)
        .caused_by(refusal)
}

const NAME: &str = "delete";

struct Delete {
    address: String,
}

impl Endpoint for Delete {
    type Output = ();

    fn operation(&self) -> Operation {
        Operation {
            name: NAME,
            template: "/contacts/{address}",
        }
    }

    fn request(&self) -> Result<Request, Error> {
        let segments = ["contacts", &address_segment(&self.address)?];
        let request = Request::new(Method::DELETE, segments, RetrySafety::Safe)?;
        Ok(request.about(Target::Contact))
    }

    fn decode(&self, success: Success) -> Result<(), Error> {
        success.refuse_page()?;
        success.refuse_error()
    }
}

call_settings!(DeleteContact);
wait_for_call!(DeleteContact => Result<(), Error>);
opaque_debug!(DeleteContact);

impl IntoFuture for DeleteContact {
    type Output = Result<(), Error>;
    type IntoFuture = ResponseFuture<()>;

    fn into_future(self) -> Self::IntoFuture {
        ResponseFuture::new(self.send())
    }
}
