use std::pin::Pin;

use http::{Method, StatusCode};

use super::Contacts;
use super::model::address_segment;
use crate::client::{
    CallOptions, Endpoint, Operation, Request, RetrySafety, Success, call_settings, opaque_debug,
    wait_for_call,
};
use crate::error::Target;
use crate::{Error, ErrorKind};

impl Contacts {
    /// Deletes a contact, if the service can. The call succeeds if there is no such contact.
    ///
    /// The interface document says that contacts can be deleted, but does not show the request ([section
    /// 4.7](crate::interface#4.7)). **Our reading** is `DELETE /contacts/{address}`. So before you rely on this call,
    /// try it with a contact that you made for that.
    ///
    /// Any 2xx status counts as deleted. A 404 is no proof, because a gateway may have sent it, the base URL may be
    /// wrong, or the service may not know the request. So after a 404 the call lists the contacts with this address,
    /// and succeeds only if there is none.
    ///
    /// The opt-out is deleted with the contact. If the address is imported again, it gets broadcasts again, so keep a
    /// list of deleted addresses.
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::Unsupported`] if the service does not delete contacts by this request: it responded 405 or 501,
    ///   or 404 although it still lists the contact. Nothing was deleted.
    /// - [`ErrorKind::Input`] if the address is empty, `.` or `..`.
    /// - [`ErrorKind::Decode`] if a 2xx response is a page or reports an error.
    /// - The errors of [`list`](Self::list), after a 404.
    ///
    /// It is safe to repeat the call after any error.
    ///
    /// # Example: erase a contact
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), audience::Error> {
    /// use audience::mock::{ContactDeletion, Dialect, MockServer};
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
            .call(Delete { address }, self.options.clone());
        let Err(error) = deleted.await else {
            return Ok(());
        };
        match error.status() {
            Some(StatusCode::NOT_FOUND | StatusCode::GONE) => {
                let is_absent = self.contacts.is_absent(&self.address, self.options).await;
                match is_absent {
                    Ok(true) => Ok(()),
                    Ok(false) => Err(unsupported(error)),
                    Err(unlisted) => {
                        let attempts = error.attempts() + unlisted.attempts();
                        let unlisted = unlisted.with_outcome(error.outcome());
                        Err(unlisted.after(attempts, error.outcome()).at(NAME))
                    }
                }
            }
            Some(StatusCode::METHOD_NOT_ALLOWED | StatusCode::NOT_IMPLEMENTED) => {
                Err(unsupported(error))
            }
            _ => Err(error),
        }
    }
}

fn unsupported(refusal: Error) -> Error {
    let (attempts, outcome) = (refusal.attempts(), refusal.outcome());
    let message = "the service does not delete contacts by this request, and the contact is still there; ask the service's support, and until then opt the contact out";
    Error::new(ErrorKind::Unsupported, outcome, message)
        .after(attempts, outcome)
        .at(NAME)
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
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.send())
    }
}
