use std::fmt;
use std::time::Duration;

use super::Iter;
use super::runtime::Runtime;
use super::settings::CallSettings;
use crate::client::{Response, ResponseFuture};
use crate::contacts::{
    BatchReport, Contact, ContactSummary, CountContacts, CreateBatch, CreateContact, Created,
    IntoOption, ListContacts, MergeProperties, OptOutReason, Page, RecordAnswer, RecordAnswers,
    RetrieveContact, Subscribe, Unsubscribe,
};
use crate::raw::{RawRequest, RawResponse};
use crate::rule::Rule;
use crate::{Error, RetryPolicy};

/// A call, sent by [`send`](Self::send). [`iter`](Call::iter) and [`pages`](Call::pages) send the calls of
/// a whole list.
#[must_use = "a call is sent only by `send`, `iter` or `pages`"]
pub struct Call<B> {
    pub(super) call: B,
    pub(super) runtime: Runtime,
}

impl<B> Call<B> {
    pub(super) fn new(call: B, runtime: Runtime) -> Self {
        Self { call, runtime }
    }

    /// Sends the call, and blocks this thread until it ends.
    ///
    /// # Errors
    ///
    /// - The errors of the async call.
    /// - [`ErrorKind::Config`](crate::ErrorKind::Config) if the call is made in async code: see the
    ///   [module](super).
    /// - [`ErrorKind::Transport`](crate::ErrorKind::Transport) if the client's thread has stopped, or the
    ///   call panicked there.
    ///
    /// # Example: create a contact
    ///
    /// ```
    /// # #[cfg(feature = "mock")]
    /// # fn main() -> Result<(), audience::Error> {
    /// # let server = audience::mock::MockServer::builder().start_blocking();
    /// # let client = audience::blocking::Client::new(server.url(), server.full_key())?;
    /// # let contacts = client.contacts();
    /// use audience::contacts::NewContact;
    ///
    /// let created = contacts.create(NewContact::new("ada@example.com")).send()?;
    ///
    /// assert!(created.is_new());
    /// # Ok(()) }
    /// # #[cfg(not(feature = "mock"))] fn main() {}
    /// ```
    pub fn send<T, E>(self) -> Result<T, E>
    where
        B: IntoFuture<Output = Result<T, E>, IntoFuture: Send + 'static>,
        T: Send + 'static,
        E: From<Error> + Send + 'static,
    {
        self.runtime.wait(self.call.into_future())?
    }

    pub(super) fn map<C>(self, change: impl FnOnce(B) -> C) -> Call<C> {
        Call {
            call: change(self.call),
            runtime: self.runtime,
        }
    }
}

/// The settings of every call.
impl<B: CallSettings> Call<B> {
    /// Limits one attempt of this call, from connecting to the last byte of the response. Default: the
    /// client's [`timeout`](crate::ClientBuilder::timeout).
    pub fn timeout(self, limit: Duration) -> Self {
        self.map(|call| call.timeout(limit))
    }

    /// Limits this whole call, with its retries and waits. Default: the client's
    /// [`deadline`](crate::ClientBuilder::deadline).
    pub fn deadline(self, limit: Duration) -> Self {
        self.map(|call| call.deadline(limit))
    }

    /// Lifts the deadline of this call, even if the client has one. The timeout of each attempt still
    /// applies.
    pub fn no_deadline(self) -> Self {
        self.map(CallSettings::no_deadline)
    }

    /// Sets the retry policy of this call. Default: the client's
    /// [`retry`](crate::ClientBuilder::retry).
    pub fn retry(self, policy: RetryPolicy) -> Self {
        self.map(|call| call.retry(policy))
    }
}

impl Call<ListContacts> {
    /// Returns an iterator over all contacts after the cursor. It fetches one page at a time, and ends
    /// after three failures in a row: see [`ListContacts::stream`]. A `for` loop over the call does the
    /// same.
    ///
    /// # Example: every address
    ///
    /// ```
    /// # #[cfg(feature = "mock")]
    /// # fn main() -> Result<(), audience::Error> {
    /// # let server = audience::mock::MockServer::builder().start_blocking();
    /// # let client = audience::blocking::Client::new(server.url(), server.full_key())?;
    /// # let contacts = client.contacts();
    /// for contact in contacts.list().limit(200) {
    ///     println!("{}", contact?.email);
    /// }
    /// # Ok(()) }
    /// # #[cfg(not(feature = "mock"))] fn main() {}
    /// ```
    pub fn iter(self) -> Iter<ContactSummary> {
        Iter::new(self.call.stream(), self.runtime)
    }

    /// Returns an iterator over all pages after the cursor. It ends after three failures in a row: see
    /// [`ListContacts::pages`].
    pub fn pages(self) -> Iter<Page> {
        Iter::new(self.call.pages(), self.runtime)
    }

    /// Returns an iterator over all contacts after the cursor in full, each of them retrieved, several at once:
    /// see [`ListContacts::full`].
    pub fn full(self) -> Iter<Contact> {
        Iter::new(self.call.full(), self.runtime)
    }

    /// Counts the contacts that match: see [`ListContacts::count`].
    pub fn count(self) -> Call<CountContacts> {
        self.map(ListContacts::count)
    }
}

/// Iterates over all contacts after the cursor: see [`Call::iter`].
impl IntoIterator for Call<ListContacts> {
    type Item = Result<ContactSummary, Error>;
    type IntoIter = Iter<ContactSummary>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl Call<RawRequest> {
    /// Sets the body, written as JSON: see [`RawRequest::json`].
    ///
    /// # Errors
    ///
    /// The errors of [`RawRequest::json`].
    pub fn json(self, body: &(impl serde::Serialize + ?Sized)) -> Result<Self, Error> {
        Ok(Self {
            call: self.call.json(body)?,
            runtime: self.runtime,
        })
    }
}

macro_rules! setters {
    ($($call:ident { $($name:ident $(<$kind:ident>)? ($($argument:ident: $type:ty),*)),* $(,)? })*) => {$(
        impl Call<$call> {$(
            #[doc = concat!("Does the same as [`", stringify!($call), "::", stringify!($name), "`].")]
            pub fn $name $(<$kind>)? (self, $($argument: $type),*) -> Self {
                self.map(|call| call.$name($($argument),*))
            }
        )*}
    )*};
}

setters! {
    CreateContact { repeatable() }
    CreateBatch { repeatable() }
    Subscribe { topic(name: impl Into<String>), repeatable() }
    RecordAnswer { repeatable() }
    RecordAnswers { record_unchanged(), repeatable() }
    Unsubscribe { topic(name: impl Into<String>), reason(reason: impl Into<Option<OptOutReason>>) }
    ListContacts {
        limit(contacts: impl Into<Option<u32>>), after<Kind>(cursor: impl IntoOption<String, Kind>),
        query<Kind>(text: impl IntoOption<String, Kind>), segment<Kind>(id: impl IntoOption<String, Kind>),
        rule(rule: impl Into<Option<Rule>>),
    }
    RawRequest {
        query(name: impl AsRef<str>, value: impl AsRef<str>), header(name: impl AsRef<str>, value: impl AsRef<str>),
        idempotent(),
    }
}

macro_rules! responses {
    ($($call:ident -> $value:ty;)*) => {$(
        impl Call<$call> {
            /// Makes [`send`](Self::send) return the value in a [`Response`], with the status and the
            /// headers of the response and the number of attempts. Set everything else first.
            pub fn response(self) -> Call<ResponseFuture<Response<$value>>> {
                self.map($call::response)
            }
        }
    )*};
}

responses! {
    CreateContact -> Created;
    CreateBatch -> BatchReport;
    RetrieveContact -> Contact;
    ListContacts -> Page;
    Subscribe -> Contact;
    Unsubscribe -> Contact;
    RecordAnswer -> Contact;
    MergeProperties -> RawResponse;
}

impl<B: fmt::Debug> fmt::Debug for Call<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Call").field(&self.call).finish()
    }
}
