use http::Method;

use super::paging::LIST;
use super::{Contacts, Page};
use crate::Error;
use crate::client::{
    Endpoint, EndpointCall, Operation, Request, ResponseFuture, RetrySafety, Success,
    endpoint_builder,
};
use crate::rule::Rule;

/// The largest page the service returns (interface section 8).
pub(super) const LARGEST_PAGE: u32 = 200;

impl Contacts {
    /// Lists contacts, newest first (interface section 4.4).
    ///
    /// Awaiting the call returns one [`Page`]. [`stream`](ListContacts::stream) returns all contacts,
    /// [`pages`](ListContacts::pages) all pages, and [`count`](ListContacts::count) their number.
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::Input`](crate::ErrorKind::Input) if both a segment and a rule are set, because
    ///   the interface document does not define the combination; or if the rule has no conditions, has a
    ///   condition on 0 days, or contains a number that JSON cannot represent.
    /// - [`ErrorKind::Api`](crate::ErrorKind::Api) if the service refuses the request.
    /// - [`ErrorKind::Decode`](crate::ErrorKind::Decode) if the response is not a page. One item that is
    ///   not a contact does not make the call fail: see [`Page::malformed`].
    ///
    /// # Example: everyone on a plan
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), audience::Error> {
    /// # let server = audience::mock::MockServer::start().await;
    /// # let contacts = server.client().contacts();
    /// # contacts.create(audience::contacts::NewContact::new("ada@example.com").property("plan", "pro")).await?;
    /// use audience::rule::{Condition, Rule};
    /// use futures_util::TryStreamExt;
    ///
    /// let on_pro = Rule::all([Condition::property("plan").is("pro")]);
    /// let mut stream = contacts.list().rule(on_pro).stream();
    /// while let Some(contact) = stream.try_next().await? {
    ///     assert_eq!(contact.email, "ada@example.com");
    /// }
    /// # Ok(()) }
    /// ```
    pub fn list(&self) -> ListContacts {
        ListContacts::new(&self.client, List::default())
    }
}

impl ListContacts {
    /// Sets how many contacts a page holds at most. Default: the service's, which is 50.
    ///
    /// The number is sent as given. The service clamps it to the range 1 to 200.
    pub fn limit(mut self, contacts: u32) -> Self {
        self.call.endpoint.limit = Some(contacts);
        self
    }

    /// Starts the list after this cursor: [`Page::cursor`], the `cursor()` of a stream, or the id of a
    /// contact. Default: the list starts with the newest contact.
    ///
    /// # Example: the second page
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), audience::Error> {
    /// # let server = audience::mock::MockServer::start().await;
    /// # let contacts = server.client().contacts();
    /// # contacts.create_batch(["ada@example.com", "bob@example.com"]).await?;
    /// let first = contacts.list().limit(1).await?;
    /// if let Some(cursor) = first.cursor() {
    ///     let second = contacts.list().limit(1).after(cursor).await?;
    ///     assert_ne!(first.data, second.data);
    /// }
    /// # Ok(()) }
    /// ```
    pub fn after(mut self, cursor: impl Into<String>) -> Self {
        self.call.endpoint.after = Some(cursor.into());
        self
    }

    /// Lists only contacts whose address, first name or last name contains this text. Case is
    /// ignored.
    ///
    /// # Example: search
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), audience::Error> {
    /// # let server = audience::mock::MockServer::start().await;
    /// # let contacts = server.client().contacts();
    /// # contacts.create(audience::contacts::NewContact::new("ada@example.com")).await?;
    /// let page = contacts.list().query("ADA").await?;
    ///
    /// assert_eq!(page.data[0].email, "ada@example.com");
    /// # Ok(()) }
    /// ```
    pub fn query(mut self, text: impl Into<String>) -> Self {
        self.call.endpoint.query = Some(text.into());
        self
    }

    /// Lists only contacts in this segment, either a list or a rule. Cannot be combined with
    /// [`rule`](Self::rule). Default: without a segment and a rule, the list has every contact.
    pub fn segment(mut self, id: impl Into<String>) -> Self {
        self.call.endpoint.segment = Some(id.into());
        self
    }

    /// Lists only contacts that match these conditions. Cannot be combined with
    /// [`segment`](Self::segment). Default: without a segment and a rule, the list has every contact.
    ///
    /// # Example: filters that a caller may leave out
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), audience::Error> {
    /// # let server = audience::mock::MockServer::start().await;
    /// # let contacts = server.client().contacts();
    /// use audience::contacts::{Contacts, Page};
    /// use audience::rule::Rule;
    ///
    /// async fn search(
    ///     contacts: &Contacts,
    ///     text: Option<&str>,
    ///     rule: Option<Rule>,
    /// ) -> Result<Page, audience::Error> {
    ///     let mut list = contacts.list();
    ///     if let Some(text) = text {
    ///         list = list.query(text);
    ///     }
    ///     if let Some(rule) = rule {
    ///         list = list.rule(rule);
    ///     }
    ///     list.await
    /// }
    ///
    /// let everyone = search(&contacts, None, None).await?;
    /// # assert!(everyone.data.is_empty());
    /// # Ok(()) }
    /// ```
    pub fn rule(mut self, rule: Rule) -> Self {
        self.call.endpoint.rule = Some(rule);
        self
    }

    /// Returns the cursor that the list starts after.
    pub(crate) fn start(&self) -> Option<String> {
        self.call.endpoint.after.clone()
    }

    /// Fetches the page after `cursor`, and reads it with `read`.
    pub(super) fn fetch<T: Send + 'static>(
        &self,
        cursor: Option<&str>,
        read: fn(&Success) -> Result<T, Error>,
    ) -> ResponseFuture<T> {
        let EndpointCall {
            client,
            endpoint,
            options,
        } = &self.call;
        let mut request = endpoint.request_after(cursor);
        if cursor != endpoint.after.as_deref() {
            request = request.map(Request::with_service_cursor);
        }
        client
            .clone()
            .send(LIST, request, options.clone(), move |success| {
                read(&success)
            })
    }
}

#[cfg(feature = "import")]
impl ListContacts {
    /// Returns the base URL of the service.
    pub(crate) fn base_url(&self) -> String {
        self.call.client.base_url()
    }

    /// Returns the part of the query string that says which contacts the list has.
    ///
    /// # Errors
    ///
    /// `ErrorKind::Input` if the filters cannot be sent.
    pub(crate) fn filters(&self) -> Result<String, Error> {
        let filters = List {
            limit: None,
            after: None,
            ..self.call.endpoint.clone()
        };
        filters.request().map(|request| request.query)
    }

    /// Sets the largest page if no limit is set.
    pub(crate) fn large_pages(mut self) -> Self {
        self.call.endpoint.limit_or_insert(LARGEST_PAGE);
        self
    }

    /// Returns the contacts of the same service.
    pub(crate) fn contacts(&self) -> Contacts {
        self.call.client.contacts()
    }
}

endpoint_builder! {
    /// A list call, sent by `.await` for one page: see [`Contacts::list`].
    pub struct ListContacts(List) -> Page;
}

#[derive(Clone, Default)]
pub(super) struct List {
    limit: Option<u32>,
    after: Option<String>,
    query: Option<String>,
    segment: Option<String>,
    rule: Option<Rule>,
}

impl Endpoint for List {
    type Output = Page;

    fn operation(&self) -> Operation {
        LIST
    }

    fn request(&self) -> Result<Request, Error> {
        self.request_after(self.after.as_deref())
    }

    fn decode(&self, success: Success) -> Result<Page, Error> {
        Page::read(&success)
    }
}

impl List {
    pub(super) fn limit_or_insert(&mut self, contacts: u32) {
        self.limit.get_or_insert(contacts);
    }

    fn request_after(&self, cursor: Option<&str>) -> Result<Request, Error> {
        let mut request = Request::new(Method::GET, ["contacts"], RetrySafety::Safe)?;
        if let Some(limit) = self.limit {
            request = request.query("limit", &limit.to_string());
        }
        if let Some(cursor) = cursor {
            request = request.query("after", cursor);
        }
        if let Some(text) = &self.query {
            request = request.query("query", text);
        }
        match (&self.segment, &self.rule) {
            (Some(_), Some(_)) => Err(Error::input(
                "both a segment and a rule are set, and the interface document does not define the combination; set one of them",
            )),
            (Some(id), None) => Ok(request.query("segment_id", id)),
            (None, Some(rule)) => Ok(request.without_target().query("rules", &rule.to_json()?)),
            (None, None) => Ok(request.without_target()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rule::Condition;
    use crate::{Client, ErrorKind, Outcome};

    fn list() -> ListContacts {
        let client = Client::new("http://localhost", "key").unwrap();
        client.contacts().list()
    }

    fn query_string(list: &ListContacts) -> String {
        list.call.endpoint.request().unwrap().query
    }

    #[test]
    fn only_parameters_that_are_set_are_sent() {
        assert_eq!(query_string(&list()), "");
        assert_eq!(query_string(&list().limit(0)), "limit=0");
        assert_eq!(
            query_string(&list().limit(999).after("c 1").query("Ada & co")),
            "limit=999&after=c%201&query=Ada%20%26%20co"
        );
        assert_eq!(query_string(&list().segment("seg_1")), "segment_id=seg_1");
    }

    #[test]
    fn a_rule_is_sent_as_encoded_json() {
        let list = list().rule(Rule::any([Condition::joined_within_days(7)]));

        assert_eq!(
            query_string(&list),
            "rules=%7B%22match_%22%3A%22any%22%2C%22conditions%22%3A%5B%7B%22field%22%3A%22joined_within_days%22%2C%22days%22%3A7%7D%5D%7D"
        );
    }

    #[test]
    fn a_segment_and_a_rule_together_are_refused_and_nothing_is_sent() {
        let list = list().segment("seg_1").rule(Rule::everyone());

        let error = list.call.endpoint.request().unwrap_err();

        assert_eq!(
            (error.kind(), error.outcome()),
            (ErrorKind::Input, Outcome::NotSent)
        );
    }
}
