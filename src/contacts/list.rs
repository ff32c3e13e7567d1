use std::collections::BTreeSet;
use std::future::poll_fn;
use std::pin::Pin;

use futures_core::Stream as _;
use http::Method;

use super::full::{FullContactStream, RetrieveEach};
use super::pages::RawPage;
use super::pages::{LIST, PageCursor, PageStep, repeated_page};
use super::{ContactStream, Contacts, Page, PageStream};
use crate::Error;
use crate::address::are_spellings_of_one;
use crate::client::{
    CallOptions, Endpoint, Operation, Request, ResponseFuture, RetrySafety, Success, call_settings,
    endpoint_builder, opaque_debug, wait_for_call,
};
use crate::error::Target;
use crate::rule::Rule;

/// The largest page that the service returns (interface section 8).
const LARGEST_PAGE: u32 = 200;

impl Contacts {
    /// Lists contacts, newest first ([interface section 4.4](crate::interface#4.4)).
    ///
    /// Awaiting the call returns one [`Page`]. [`stream`](ListContacts::stream) returns all contacts,
    /// [`pages`](ListContacts::pages) all pages, and [`count`](ListContacts::count) their number.
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::Input`](crate::ErrorKind::Input) if both a segment and a rule are set, because
    ///   the interface document does not define the combination; if the id of the segment is empty; or if the rule has
    ///   no conditions, has a condition on 0 days, or contains a number that JSON cannot represent.
    /// - [`ErrorKind::Api`](crate::ErrorKind::Api) if the service refuses the request.
    /// - [`ErrorKind::Decode`](crate::ErrorKind::Decode) if the response is not a page, or is an empty page that reports
    ///   an error. One item that is not a contact does not make the call fail: see [`Page::malformed`].
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
    /// Sets how many contacts a page holds at most. Default: 50, which the service applies if nothing is sent.
    ///
    /// The number is sent as given. The service clamps it to the range 1 to 200.
    ///
    /// # Example: the newest contact
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), audience::Error> {
    /// # let server = audience::mock::MockServer::start().await;
    /// # let contacts = server.client().contacts();
    /// # contacts.create_batch(["ada@example.com", "bob@example.com"]).await?;
    /// let page = contacts.list().limit(1).await?;
    ///
    /// assert_eq!(page.data.len(), 1);
    /// assert_eq!(page.data[0].email, "bob@example.com");
    /// # Ok(()) }
    /// ```
    pub fn limit(mut self, contacts: u32) -> Self {
        self.endpoint.limit = Some(contacts);
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
        self.endpoint.after = Some(cursor.into());
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
        self.endpoint.query = Some(text.into());
        self
    }

    /// Lists only the contacts of this segment, which is a list or a rule that the service has stored. An empty id is an
    /// error when the call is awaited, and nothing is sent. It cannot be combined with [`rule`](Self::rule). Default: the
    /// list has every contact.
    ///
    /// # Example: the contacts of a stored list
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), audience::Error> {
    /// # let server = audience::mock::MockServer::start().await;
    /// # let contacts = server.client().contacts();
    /// # contacts.create_batch(["ada@example.com", "bob@example.com"]).await?;
    /// use audience::mock::SegmentKind;
    ///
    /// server.segment("seg_team", SegmentKind::Contacts(vec!["ada@example.com".to_owned()]));
    ///
    /// let page = contacts.list().segment("seg_team").await?;
    /// assert_eq!(page.data.len(), 1);
    /// # Ok(()) }
    /// ```
    pub fn segment(mut self, id: impl Into<String>) -> Self {
        self.endpoint.segment = Some(id.into());
        self
    }

    /// Lists only the contacts that match these conditions, or this one. It cannot be combined with
    /// [`segment`](Self::segment). Default: the list has every contact.
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
    pub fn rule(mut self, rule: impl Into<Rule>) -> Self {
        let member = self.client.open_forms().joined_member.as_deref();
        self.endpoint.rule = Some(rule.into().with_joined_member(member));
        self
    }

    /// Returns whether the list has the contact with this address. All pages end by one deadline.
    ///
    /// # Errors
    ///
    /// The error of a malformed item if the contact is not listed, because the item may be the contact.
    pub(crate) async fn has(self, address: &str) -> Result<bool, Error> {
        let texts = spellings_of(address).unwrap_or_else(|| texts_in_spellings(address));
        let stored = self.search(texts, address).await;
        stored.map(|stored| stored.is_some())
    }

    /// Does the same for an address as the service has shown it, with one list.
    pub(super) async fn has_stored(self, address: &str) -> Result<bool, Error> {
        let stored = self.search([address.to_owned()].into(), address).await;
        stored.map(|stored| stored.is_some())
    }

    /// Returns the address of the contact as the list has it. If it has too many spellings, it is only found as given, in
    /// small or capital letters, or with a capital at its start: anything else could take a list of a whole domain.
    pub(crate) async fn stored(self, address: &str) -> Result<Option<String>, Error> {
        let texts = spellings_of(address).unwrap_or_else(|| {
            let own = address.trim();
            let (small, capitals) = (own.to_lowercase(), own.to_uppercase());
            [own.to_owned(), with_capital(&small), small, capitals].into()
        });
        self.search(texts, address).await
    }

    async fn search(
        mut self,
        texts: BTreeSet<String>,
        address: &str,
    ) -> Result<Option<String>, Error> {
        let mut malformed = None;
        self.options = self.client.start_reads(self.options);
        if !address.trim().is_ascii() {
            // The query may have a part of the address only, and find many contacts.
            self.endpoint.limit_or_insert(LARGEST_PAGE);
        }
        for text in texts {
            // The query also finds longer addresses that contain this one.
            let mut pages = self.clone().query(text).pages();
            while let Some(page) = poll_fn(|context| Pin::new(&mut pages).poll_next(context)).await
            {
                let page = page?;
                malformed = malformed.or_else(|| page.malformed().next().map(|(_, error)| error));
                let mut listed = page.data.into_iter().map(|contact| contact.email);
                if let Some(email) = listed.find(|email| are_spellings_of_one(email, address)) {
                    return Ok(Some(email));
                }
            }
        }
        malformed.map_or(Ok(None), Err)
    }

    /// Returns the cursor that the list starts after.
    pub(crate) fn start(&self) -> Option<String> {
        self.endpoint.after.clone()
    }

    /// Fetches the page after `cursor`, and reads it with `read`.
    pub(super) fn fetch<T: Send + 'static>(
        &self,
        cursor: Option<&str>,
        read: fn(&Success) -> Result<T, Error>,
    ) -> ResponseFuture<T> {
        let Self {
            client,
            endpoint,
            options,
        } = self;
        // If the URL is too long, the cursor decides whose fault it is.
        let has_service_cursor = cursor != endpoint.after.as_deref();
        let request = endpoint.request_after(cursor).map(|request| Request {
            has_service_cursor,
            ..request
        });
        client
            .clone()
            .send(LIST, request, options.clone(), move |success| {
                read(&success)
            })
    }
}

/// Each spelling is a list of its own.
const MOST_SPELLINGS: usize = 12;

/// Returns all spellings of an address, apart from the case of ASCII letters, unless they are too many. A service may
/// convert only ASCII letters to lower case, or ignore the case of only these in a query.
fn spellings_of(address: &str) -> Option<BTreeSet<String>> {
    let mut spellings = BTreeSet::from([String::new()]);
    for letter in with_one_dot(address).chars() {
        let forms = forms_of(letter);
        let longer = spellings
            .iter()
            .flat_map(|start| forms.iter().map(move |form| format!("{start}{form}")));
        spellings = longer.collect();
        if spellings.len() > MOST_SPELLINGS {
            return None;
        }
    }
    Some(spellings)
}

/// Returns the letters, in small and in capital, that make a spelling of the same address.
fn forms_of(letter: char) -> BTreeSet<String> {
    let own = letter.to_string();
    if !is_cased(letter) {
        return [own].into();
    }
    let (small, capital) = (own.to_lowercase(), own.to_uppercase());
    let further: &[&str] = match letter {
        'σ' | 'ς' | 'Σ' => &["σ", "ς"],
        'ß' | 'ẞ' => &["ß", "ẞ"],
        _ => &[],
    };
    // The capital of `ß` is `SS`, which is another address.
    let capital = Some(capital).filter(|capital| are_spellings_of_one(capital, &own));
    let further = further.iter().map(|&form| form.to_owned());
    [own, small]
        .into_iter()
        .chain(capital)
        .chain(further)
        .collect()
}

/// A shorter text finds too many contacts.
const SHORTEST_QUERY: usize = 4;

/// Returns texts to search for, so that each spelling of an address has one of them.
fn texts_in_spellings(address: &str) -> BTreeSet<String> {
    let address = with_one_dot(address);
    let parts = address.split(is_cased);
    let longest = parts.max_by_key(|part| part.len()).unwrap_or_default();
    if longest.len() >= SHORTEST_QUERY {
        return [longest.to_owned()].into();
    }
    // Every address has an `@` or a `.`, so the list would be the whole audience. A domain is hardly written in other
    // forms than these, and what is before it does not matter.
    let domain = address[address.rfind('@').unwrap_or_default()..].to_lowercase();
    let with_capitals = domain
        .split_inclusive(['@', '.'])
        .map(with_capital)
        .collect();
    // At the end of a word, a small sigma has a form of its own, which not every service writes.
    let (sigma, last_sigma) = (domain.replace('ς', "σ"), domain.replace("σ.", "ς."));
    [
        domain.to_uppercase(),
        with_capitals,
        sigma,
        last_sigma,
        domain,
    ]
    .into()
}

fn with_capital(text: &str) -> String {
    let mut letters = text.chars();
    let first = letters.next().into_iter().flat_map(char::to_uppercase);
    first.chain(letters).collect()
}

/// Returns an address with ASCII letters in lower case, and with an `İ` for an `i` and a dot above, which are its lower
/// case.
fn with_one_dot(address: &str) -> String {
    address.trim().to_ascii_lowercase().replace("i\u{307}", "İ")
}

/// Returns whether this letter outside ASCII has a small and a capital form.
fn is_cased(letter: char) -> bool {
    !letter.is_ascii() && !letter.to_lowercase().eq(letter.to_uppercase())
}

#[cfg(feature = "import")]
impl ListContacts {
    pub(crate) fn base_url(&self) -> String {
        self.client.base_url()
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
            ..self.endpoint.clone()
        };
        filters.request().map(|request| request.query)
    }

    /// Sets the largest page if no limit is set.
    pub(crate) fn large_pages(mut self) -> Self {
        self.endpoint.limit_or_insert(LARGEST_PAGE);
        self
    }

    /// Makes all requests patient, unless the list or the client has settings of its own.
    pub(crate) fn patient(mut self) -> Self {
        self.options = self.client.patient(self.options);
        self
    }

    /// Returns the contacts of the same service.
    pub(crate) fn contacts(&self) -> Contacts {
        self.client.contacts()
    }

    /// Returns the settings of each request.
    pub(crate) fn call_options(&self) -> CallOptions {
        self.options.clone()
    }
}

endpoint_builder! {
    /// Lists contacts. `.await` fetches one page: see [`Contacts::list`].
    pub struct ListContacts(List) -> Page;
}

#[derive(Clone, Default)]
struct List {
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
    fn limit_or_insert(&mut self, contacts: u32) {
        self.limit.get_or_insert(contacts);
    }

    fn request_after(&self, cursor: Option<&str>) -> Result<Request, Error> {
        let request = Request::new(Method::GET, ["contacts"], RetrySafety::Safe)?;
        let mut request = request.about(Target::Audience);
        if let Some(limit) = self.limit {
            request = request.query("limit", &limit.to_string());
        }
        if let Some(cursor) = cursor {
            request = request.query("after", cursor);
        }
        if let Some(text) = &self.query {
            request = request.query("query", text);
        }
        match (self.segment.as_deref(), &self.rule) {
            // A service may ignore an empty id, and list every contact.
            (Some(""), _) => Err(Error::input("the id of the segment is empty")),
            (Some(_), Some(_)) => Err(Error::input(
                "both a segment and a rule are set, and the interface document does not define the combination; set one of them",
            )),
            (Some(id), None) => Ok(request.about(Target::Segment).query("segment_id", id)),
            (None, Some(rule)) => Ok(request.query("rules", &rule.to_json()?)),
            (None, None) => Ok(request),
        }
    }
}

impl ListContacts {
    /// Returns a stream of all contacts, from the newest or from the cursor. It fetches one page at a time, when it is
    /// polled.
    ///
    /// If a page cannot be fetched, the stream returns an error, and the next poll fetches the page again. After three
    /// failures in a row, of any kind, the stream ends: see [`PageStream`].
    /// If an item is malformed, the stream returns one error in its place and continues with the next contact. This
    /// does not count as a failure.
    ///
    /// # Example: every address
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), audience::Error> {
    /// # let server = audience::mock::MockServer::start().await;
    /// # let contacts = server.client().contacts();
    /// # contacts.create(audience::contacts::NewContact::new("ada@example.com")).await?;
    /// use futures_util::TryStreamExt;
    ///
    /// let mut stream = contacts.list().limit(200).stream();
    /// while let Some(contact) = stream.try_next().await? {
    ///     println!("{}", contact.email);
    /// }
    /// # Ok(()) }
    /// ```
    pub fn stream(self) -> ContactStream {
        ContactStream::new(self.pages())
    }

    /// Returns a stream of all pages, from the newest contact or from the cursor. Each page has at least one item;
    /// [`Page::malformed`] returns the items that are not contacts.
    ///
    /// If a page cannot be fetched, the stream returns an error, and the next poll fetches the page again. After three
    /// failures in a row, of any kind, the stream ends: see [`PageStream`].
    ///
    /// # Example: one database transaction for each page
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), audience::Error> {
    /// # let server = audience::mock::MockServer::start().await;
    /// # let contacts = server.client().contacts();
    /// # contacts.create_batch(["ada@example.com", "bob@example.com", "cem@example.com"]).await?;
    /// # let mut sizes = Vec::new();
    /// # let mut store_in_one_transaction = |rows: Vec<audience::contacts::ContactSummary>| sizes.push(rows.len());
    /// use futures_util::TryStreamExt;
    ///
    /// let mut pages = contacts.list().limit(2).pages();
    /// while let Some(page) = pages.try_next().await? {
    ///     store_in_one_transaction(page.data);
    /// }
    /// # assert_eq!(sizes, [2, 1]);
    /// # Ok(()) }
    /// ```
    pub fn pages(self) -> PageStream {
        PageStream::new(self.start(), move |cursor| self.fetch(cursor, Page::read))
    }

    /// Returns a stream of all contacts in full: with family name, reason and topics, which a list does not include
    /// ([interface section 2.3](crate::interface#2.3)).
    ///
    /// Each contact of the list is retrieved, 8 at a time, and returned in the order of the list: see
    /// [`FullContactStream`].
    ///
    /// # Example: who may get the newsletter
    ///
    /// If the topic's name is misspelled, no contact shows it. Without the arm for this, nobody would be listed.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = audience::mock::MockServer::start().await;
    /// # server.topic("news", true);
    /// # let contacts = server.client().contacts();
    /// # contacts.create_batch(["ada@example.com", "bob@example.com"]).await?;
    /// use audience::contacts::Reachability;
    /// use futures_util::TryStreamExt;
    ///
    /// let mut readers = Vec::new();
    /// let mut stream = contacts.list().limit(200).full();
    /// while let Some(contact) = stream.try_next().await? {
    ///     match contact.reachability_for("news") {
    ///         Reachability::Reachable => readers.push(contact.email),
    ///         Reachability::UnknownTopic => return Err("the service has no topic `news`".into()),
    ///         _ => {}
    ///     }
    /// }
    /// assert_eq!(readers, ["bob@example.com", "ada@example.com"]);
    /// # Ok(()) }
    /// ```
    pub fn full(self) -> FullContactStream {
        let retrieve = RetrieveEach::new(&self.client, &self.options);
        FullContactStream::new(self.stream(), retrieve)
    }

    /// Counts the contacts of the list, malformed ones included.
    ///
    /// It fetches all pages, with 200 contacts each unless a [`limit`](Self::limit) is set. The timeout and the retry
    /// policy apply to each page, the deadline to the whole count: for a large audience, set a longer one or
    /// [`no_deadline`](CountContacts::no_deadline).
    ///
    /// A broadcast with the same conditions selects the same contacts ([section 1](crate::interface#1)). Whether the
    /// list then leaves out those who have opted out is not documented. The mock's list includes them.
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::Pagination`](crate::ErrorKind::Pagination) if the service repeated a cursor or a page.
    /// - The error of the first page that cannot be fetched, or that the deadline prevents. No partial count is returned.
    ///
    /// # Example: the size of an audience
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), audience::Error> {
    /// # let server = audience::mock::MockServer::start().await;
    /// # let contacts = server.client().contacts();
    /// # contacts.create(audience::contacts::NewContact::new("ada@example.com").property("plan", "pro")).await?;
    /// use audience::rule::{Condition, Rule};
    ///
    /// let on_pro = Rule::all([Condition::property("plan").is("pro")]);
    /// let total = contacts.list().rule(on_pro).count().await?;
    ///
    /// assert_eq!(total, 1);
    /// # Ok(()) }
    /// ```
    pub fn count(mut self) -> CountContacts {
        self.endpoint.limit_or_insert(LARGEST_PAGE);
        CountContacts {
            options: self.options.clone(),
            list: self,
        }
    }
}

/// Counts contacts when it is awaited: see [`ListContacts::count`].
///
/// It begins with the settings of the list. The timeout and the retry policy apply to each page, the deadline to the
/// whole count.
///
/// # Example: a number for a web page
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), audience::Error> {
/// # let server = audience::mock::MockServer::builder().seed_contact("ada@example.com").start().await;
/// # let contacts = server.client().contacts();
/// use std::time::Duration;
///
/// let total = match contacts.list().count().deadline(Duration::from_secs(5)).await {
///     Ok(total) => total.to_string(),
///     Err(error) if error.is_timeout() => "many".to_owned(),
///     Err(error) => return Err(error),
/// };
///
/// println!("{total} contacts");
/// # assert!(["1", "many"].contains(&total.as_str()), "{total}");
/// # Ok(()) }
/// ```
#[derive(Clone)]
#[must_use = "a call is sent only when it is awaited"]
pub struct CountContacts {
    list: ListContacts,
    options: CallOptions,
}

call_settings!(CountContacts);
opaque_debug!(CountContacts);
wait_for_call!(CountContacts => Result<u64, Error>);

impl IntoFuture for CountContacts {
    type Output = Result<u64, Error>;
    type IntoFuture = ResponseFuture<u64>;

    fn into_future(self) -> Self::IntoFuture {
        ResponseFuture::new(async move {
            let mut list = self.list;
            // All pages end by the same instant.
            list.options = list.client.start_reads(self.options);
            count_all(list).await
        })
    }
}

async fn count_all(list: ListContacts) -> Result<u64, Error> {
    let mut cursor = PageCursor::new(list.start());
    let mut total = 0;
    loop {
        let page = list.fetch(cursor.current(), CountedPage::read).await?;
        match cursor.advance(page.last_id.as_deref(), page.cursor.as_deref()) {
            // The items are not decoded, so a malformed contact counts, too.
            PageStep::Page => total += page.items,
            PageStep::End => return Ok(total),
            PageStep::Cycle => return Err(repeated_page()),
        }
    }
}

/// The part of a page that a count needs.
struct CountedPage {
    items: u64,
    last_id: Option<String>,
    cursor: Option<String>,
}

impl CountedPage {
    fn read(success: &Success) -> Result<Self, Error> {
        let page = RawPage::read(success)?;
        Ok(Self {
            items: page.data.len() as u64,
            last_id: page.last_id(),
            cursor: page.cursor()?,
        })
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
        list.endpoint.request().unwrap().query
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
    fn an_address_with_few_letters_outside_ascii_is_searched_for_in_each_spelling() {
        let spellings = |address| spellings_of(address).map(Vec::from_iter);
        let is = |texts: &[&str]| Some(texts.iter().map(|&text| text.to_owned()).collect());
        assert_eq!(spellings(" Ada@X.io "), is(&["ada@x.io"]));
        assert_eq!(spellings("José@x.io"), is(&["josÉ@x.io", "josé@x.io"]));
        let all = ["Ö@mÜ.de", "Ö@mü.de", "ö@mÜ.de", "ö@mü.de"];
        assert_eq!(spellings("Ö@Mü.de"), is(&all));
        assert_eq!(spellings("用户@例子.公司"), is(&["用户@例子.公司"]));
        let dotted = is(&["i\u{307}@x.tr", "İ@x.tr"]);
        assert_eq!(spellings("i\u{307}@x.tr"), dotted);
        assert_eq!(spellings("İ@x.tr"), dotted);
        assert_eq!(spellings("ß@x.de"), is(&["ß@x.de", "ẞ@x.de"]));
        assert_eq!(spellings("ς@x.gr"), is(&["Σ@x.gr", "ς@x.gr", "σ@x.gr"]));
        assert_eq!(spellings("åäöü@x.io"), None);
    }

    #[test]
    fn an_address_with_more_letters_outside_ascii_is_found_by_four_ascii_letters_or_by_its_domain()
    {
        let texts = |address| texts_in_spellings(address).into_iter().collect::<Vec<_>>();
        assert_eq!(texts("Åäörg@Mü.de"), ["rg@m"]);
        assert_eq!(texts(" Åäör@Mü.de"), ["@MÜ.DE", "@Mü.De", "@mü.de"]);
        let sigma = ["@ΕΛΛΑΣ.ΕΛ", "@Ελλασ.Ελ", "@ελλας.ελ", "@ελλασ.ελ"];
        assert_eq!(texts("Α@ΕΛΛΑΣ.ΕΛ"), sigma);
    }

    #[cfg(feature = "import")]
    #[test]
    fn the_filters_say_which_contacts_the_list_has_and_not_where_it_starts() {
        let list = list().limit(9).after("c_1").query("Ada");

        assert_eq!(list.filters().unwrap(), "query=Ada");
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
    fn an_empty_segment_is_refused_because_a_service_that_ignores_it_would_list_everyone() {
        let error = list().segment("").endpoint.request().unwrap_err();

        assert_eq!(error.kind(), ErrorKind::Input);
        assert_eq!(error.to_string(), "the id of the segment is empty");
    }

    #[test]
    fn a_segment_and_a_rule_together_are_refused_and_nothing_is_sent() {
        let list = list().segment("seg_1").rule(Rule::everyone());

        let error = list.endpoint.request().unwrap_err();

        assert_eq!(
            (error.kind(), error.outcome()),
            (ErrorKind::Input, Outcome::NotSent)
        );
    }
}
