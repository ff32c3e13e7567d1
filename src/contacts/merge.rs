use http::Method;
use serde::Serialize;

use super::{Contacts, Properties, new_contact};
use crate::client::wire::{Operation, Request};
use crate::client::{Call, CallOptions, Repeat, call_options};
use crate::raw::RawResponse;
use crate::{Client, Error};

const MERGE: Operation = Operation {
    name: "merge_properties",
    template: "/contacts/{address}",
};

impl Contacts {
    /// Merges properties into those of a contact, where an upsert would replace them all.
    ///
    /// The interface document says that `PATCH /contacts/{address}` does this, and shows neither body
    /// nor answer (section 4.7). What is sent is `{"properties": {…}}`, and the answer is handed out as
    /// it came.
    ///
    /// # Errors
    ///
    /// `not_found` (404) for an unknown address. [`ErrorKind::Input`](crate::ErrorKind::Input) for an
    /// address that is empty, `.` or `..`, and for a property that JSON cannot hold.
    ///
    /// # Example: one more property
    ///
    /// ```
    /// # #[cfg(feature = "mock")]
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), audience::Error> {
    /// # let server = audience::mock::MockServer::start().await;
    /// # let contacts = server.client().contacts();
    /// # contacts.create(audience::contacts::NewContact::new("ada@example.com").property("plan", "pro")).await?;
    /// contacts.merge_properties("ada@example.com", [("seats", 3)]).await?;
    ///
    /// let contact = contacts.retrieve("ada@example.com").await?;
    /// assert_eq!(contact.properties["plan"], "pro");
    /// assert_eq!(contact.properties["seats"], 3);
    /// # Ok(()) }
    /// # #[cfg(not(feature = "mock"))] fn main() {}
    /// ```
    pub fn merge_properties(
        &self,
        address: impl Into<String>,
        properties: impl Into<Properties>,
    ) -> MergeProperties {
        let (client, options) = (self.client.clone(), CallOptions::default());
        MergeProperties {
            client,
            address: address.into(),
            body: Merge {
                properties: properties.into(),
            },
            options,
        }
    }
}

/// A merge of properties, sent by `.await`: see [`Contacts::merge_properties`].
#[derive(Clone)]
#[must_use = "a call is made only when it is awaited"]
pub struct MergeProperties {
    client: Client,
    address: String,
    body: Merge,
    options: CallOptions,
}

#[derive(Clone, Serialize)]
struct Merge {
    properties: Properties,
}

impl MergeProperties {
    call_options!();

    fn request(&self) -> Result<Request, Error> {
        new_contact::check(&self.body.properties).map_err(|error| error.at(MERGE.name))?;
        Request::new(
            MERGE,
            Method::PATCH,
            ["contacts", &self.address],
            Repeat::Always,
        )?
        .json(&self.body)
    }
}

impl IntoFuture for MergeProperties {
    type Output = Result<RawResponse, Error>;
    type IntoFuture = Call<RawResponse>;

    fn into_future(self) -> Self::IntoFuture {
        Call::new(async move {
            let request = self.request()?;
            self.client
                .execute(request, self.options)
                .await
                .map(RawResponse::new)
        })
    }
}

crate::client::opaque_debug!(MergeProperties);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_properties_are_the_one_member_of_the_body() {
        let contacts = Client::new("http://localhost", "key").unwrap().contacts();

        let request = contacts
            .merge_properties("ada@x.io", [("seats", 3)])
            .request()
            .unwrap();

        assert_eq!(
            (request.method, request.path.as_str()),
            (Method::PATCH, "/contacts/ada%40x.io")
        );
        assert_eq!(request.body.unwrap(), r#"{"properties":{"seats":3}}"#);
    }
}
