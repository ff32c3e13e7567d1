use http::Method;
use serde::Serialize;

use super::model::address_segment;
use super::{Contact, Contacts, Properties, new_contact};
use crate::client::{
    CallOptions, Endpoint, Operation, RawResponse, Request, ResponseFuture, RetrySafety, Success,
    call_settings, opaque_debug, wait_for_call,
};
use crate::error::Target;
use crate::{Client, Error};

impl Contacts {
    /// Adds properties to a contact, or changes some, and keeps all others. An upsert, by contrast, replaces them all.
    ///
    /// The interface document says that `PATCH /contacts/{address}` does this, but shows neither body nor response
    /// ([section 4.7](crate::interface#4.7)). The client sends `{"properties": {…}}` and returns the response
    /// unchanged. If the service expects the properties as the whole body, set
    /// [`bare_merge`](crate::ClientBuilder::bare_merge), which says how to find out.
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::Decode`](crate::ErrorKind::Decode) if the response is an HTML or XML page, which most likely does
    ///   not come from the service, or an object that reports an error.
    /// - `not_found` (404) if the address is not one of your contacts.
    /// - [`ErrorKind::Input`](crate::ErrorKind::Input) if the address is empty, `.` or `..`, or if a
    ///   property is a number that JSON cannot represent.
    ///
    /// # Example: add a property
    ///
    /// ```
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
    /// ```
    pub fn merge_properties(
        &self,
        address: impl Into<String>,
        properties: impl Into<Properties>,
    ) -> MergeProperties {
        let merge = Merge {
            address: address.into(),
            properties: properties.into(),
            is_bare: self.client.open_forms().bare_merge,
        };
        MergeProperties {
            client: self.client.clone(),
            merge,
            options: CallOptions::default(),
        }
    }
}

/// Merges properties into a contact when it is awaited: see [`Contacts::merge_properties`].
///
/// It has no `response()`: the result has the status, the headers and the number of attempts.
#[derive(Clone)]
#[must_use = "a call is sent only when it is awaited"]
pub struct MergeProperties {
    client: Client,
    merge: Merge,
    options: CallOptions,
}

call_settings!(MergeProperties);
wait_for_call!(MergeProperties => Result<RawResponse, Error>);
opaque_debug!(MergeProperties);

impl IntoFuture for MergeProperties {
    type Output = Result<RawResponse, Error>;
    type IntoFuture = ResponseFuture<RawResponse>;

    fn into_future(self) -> Self::IntoFuture {
        self.client.call(self.merge, self.options)
    }
}

#[derive(Clone)]
struct Merge {
    address: String,
    properties: Properties,
    /// Whether the properties are the whole body.
    is_bare: bool,
}

#[derive(Serialize)]
struct Body<'a> {
    properties: &'a Properties,
}

impl Endpoint for Merge {
    type Output = RawResponse;

    fn operation(&self) -> Operation {
        Operation {
            name: "merge_properties",
            template: "/contacts/{address}",
        }
    }

    fn request(&self) -> Result<Request, Error> {
        new_contact::check(&self.properties)?;
        let segments = ["contacts", &address_segment(&self.address)?];
        let properties = &self.properties;
        let request =
            Request::new(Method::PATCH, segments, RetrySafety::Safe)?.about(Target::Contact);
        match self.is_bare {
            true => request.json(properties),
            false => request.json(&Body { properties }),
        }
    }

    fn decode(&self, success: Success) -> Result<RawResponse, Error> {
        success.refuse_page()?;
        // The document does not show the response. If it is a contact, its members are not read as an error.
        if success.valid_object::<Contact>().is_none() {
            success.refuse_error()?;
        }
        Ok(success.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_body_has_only_the_properties() {
        let merge = Merge {
            address: "ada@x.io".to_owned(),
            properties: [("seats", 3)].into(),
            is_bare: false,
        };

        let request = merge.request().unwrap();

        assert_eq!(
            (request.method, request.path.as_str()),
            (Method::PATCH, "/contacts/ada%40x.io")
        );
        assert_eq!(request.body.unwrap(), r#"{"properties":{"seats":3}}"#);
    }
}
