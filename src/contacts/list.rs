use http::Method;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::Contacts;
use super::optional_text;
use super::page::Page;
use super::paging::{PageCursor, PageStep};
use super::stream::{ContactStream, PageStream};
use crate::client::wire::{Operation, Request};
use crate::client::{Call, CallOptions, Repeat, call_options};
use crate::rule::Rule;
use crate::{Client, Error};

const LIST: Operation = Operation {
    name: "list",
    template: "/contacts",
};
/// The largest page that the service hands out (interface section 8): what a count asks for.
const LARGEST_PAGE: u32 = 200;

impl Contacts {
    /// Lists contacts, newest first (interface section 4.4).
    ///
    /// Awaited, it is one [`Page`]. [`stream`](ListContacts::stream) walks all contacts,
    /// [`pages`](ListContacts::pages) all pages, and [`count`](ListContacts::count) only counts.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Input`](crate::ErrorKind::Input) where both a segment and a rule are set, because
    /// the interface document does not say what that means, and for a rule with a number that JSON
    /// cannot hold. What the service refuses comes as [`ErrorKind::Api`](crate::ErrorKind::Api).
    ///
    /// # Example: everyone in a segment
    ///
    /// ```
    /// # #[cfg(feature = "mock")]
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
    /// # #[cfg(not(feature = "mock"))] fn main() {}
    /// ```
    pub fn list(&self) -> ListContacts {
        ListContacts {
            client: self.client.clone(),
            limit: None,
            after: None,
            query: None,
            segment: None,
            rule: None,
            options: CallOptions::default(),
        }
    }
}

/// A list call; `.await` sends it for one page: see [`Contacts::list`].
#[derive(Clone)]
#[must_use = "a call is made only when it is awaited, streamed or counted"]
pub struct ListContacts {
    client: Client,
    limit: Option<u32>,
    after: Option<String>,
    query: Option<String>,
    segment: Option<String>,
    rule: Option<Rule>,
    options: CallOptions,
}

impl ListContacts {
    /// How many contacts a page holds at the most. The service's default is 50, and it clamps to the
    /// range 1 to 200; the number is sent as given.
    pub fn limit(mut self, contacts: u32) -> Self {
        self.limit = Some(contacts);
        self
    }

    /// Starts after this cursor: [`Page::next`], the `cursor()` of a stream, or the id of a contact.
    pub fn after(mut self, cursor: impl Into<String>) -> Self {
        self.after = Some(cursor.into());
        self
    }

    /// Only contacts whose address or either name contains this text, whatever its case.
    pub fn query(mut self, text: impl Into<String>) -> Self {
        self.query = Some(text.into());
        self
    }

    /// Only contacts in this segment, be it a list or a rule. Not together with [`rule`](Self::rule).
    pub fn segment(mut self, id: impl Into<String>) -> Self {
        self.segment = Some(id.into());
        self
    }

    /// Only contacts that fit these conditions. Not together with [`segment`](Self::segment).
    pub fn rule(mut self, rule: Rule) -> Self {
        self.rule = Some(rule);
        self
    }

    call_options!();

    /// All contacts from here on, fetched a page at a time as the stream is polled.
    pub fn stream(self) -> ContactStream {
        ContactStream::new(self.pages())
    }

    /// All pages from here on. Each has at least one contact.
    pub fn pages(self) -> PageStream {
        PageStream::new(self.start(), move |cursor| self.fetch(cursor))
    }

    /// Counts the contacts that match, opted-out ones included, by walking over all of them. Unless
    /// a [`limit`](Self::limit) is set, it asks for the largest pages there are. Timeout, deadline and
    /// retries hold for each page.
    ///
    /// What is counted here is the audience of a broadcast to the same conditions (section 1), of
    /// which consent then keeps back those it does not reach.
    pub fn count(mut self) -> CountContacts {
        self.limit.get_or_insert(LARGEST_PAGE);
        CountContacts(self)
    }

    pub(super) fn start(&self) -> Option<String> {
        self.after.clone()
    }

    /// The page after `cursor`, or as much of it as `T` reads.
    pub(super) fn fetch<T: DeserializeOwned + Send + 'static>(
        &self,
        cursor: Option<&str>,
    ) -> Call<T> {
        let client = self.client.clone();
        client.call(self.request(cursor), self.options.clone())
    }

    fn request(&self, cursor: Option<&str>) -> Result<Request, Error> {
        let mut request = Request::new(LIST, Method::GET, ["contacts"], Repeat::Always)?;
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
            (Some(_), Some(_)) => {
                let message = "a segment and a rule together: the interface document does not say what that means";
                Err(Error::input(message).at(LIST.name))
            }
            (Some(id), None) => Ok(request.query("segment_id", id)),
            (None, Some(rule)) => Ok(request.query(
                "rules",
                &rule.to_json().map_err(|error| error.at(LIST.name))?,
            )),
            (None, None) => Ok(request),
        }
    }
}

impl IntoFuture for ListContacts {
    type Output = Result<Page, Error>;
    type IntoFuture = Call<Page>;

    fn into_future(self) -> Self::IntoFuture {
        self.fetch(self.after.as_deref())
    }
}

/// A count, made by `.await`: see [`ListContacts::count`].
#[derive(Clone, Debug)]
#[must_use = "a call is made only when it is awaited"]
pub struct CountContacts(ListContacts);

impl IntoFuture for CountContacts {
    type Output = Result<u64, Error>;
    type IntoFuture = Call<u64>;

    fn into_future(self) -> Self::IntoFuture {
        let Self(list) = self;
        Call::new(async move {
            let mut cursor = PageCursor::new(list.start());
            let mut total = 0;
            loop {
                let page: Ids = list.fetch(cursor.current()).await?;
                match cursor.advance(
                    page.data.last().map(|contact| contact.id.as_str()),
                    page.next.as_deref(),
                ) {
                    PageStep::Page => total += page.data.len() as u64,
                    PageStep::End => return Ok(total),
                    PageStep::Cycle => return Err(Error::pagination().at(LIST.name)),
                }
            }
        })
    }
}

/// As much of a page as counting needs.
#[derive(Deserialize)]
struct Ids {
    data: Vec<Id>,
    #[serde(default, deserialize_with = "optional_text::deserialize")]
    next: Option<String>,
}

#[derive(Deserialize)]
struct Id {
    id: String,
}

crate::client::opaque_debug!(ListContacts);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rule::Condition;
    use crate::{ErrorKind, Outcome};

    fn list() -> ListContacts {
        Client::new("http://localhost", "key")
            .unwrap()
            .contacts()
            .list()
    }

    fn query_of(list: &ListContacts) -> String {
        list.request(list.after.as_deref()).unwrap().query
    }

    #[test]
    fn only_what_is_set_is_sent() {
        assert_eq!(query_of(&list()), "");
        assert_eq!(query_of(&list().limit(0)), "limit=0");
        assert_eq!(
            query_of(&list().limit(999).after("c 1").query("Ada & co")),
            "limit=999&after=c%201&query=Ada%20%26%20co"
        );
        assert_eq!(query_of(&list().segment("seg_1")), "segment_id=seg_1");
    }

    #[test]
    fn a_rule_travels_as_encoded_json() {
        let list = list().rule(Rule::any([Condition::joined_within_days(7)]));

        assert_eq!(
            query_of(&list),
            "rules=%7B%22match_%22%3A%22any%22%2C%22conditions%22%3A%5B%7B%22field%22%3A%22joined_within_days%22%2C%22days%22%3A7%7D%5D%7D"
        );
    }

    #[test]
    fn a_segment_and_a_rule_together_are_refused_and_nothing_is_sent() {
        let error = list()
            .segment("seg_1")
            .rule(Rule::all([]))
            .request(None)
            .unwrap_err();

        assert_eq!(
            (error.kind(), error.outcome()),
            (ErrorKind::Input, Outcome::NotSent)
        );
    }
}
