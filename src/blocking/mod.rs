//! The same client for programs without an async runtime.
//!
//! Every call of [`Contacts`] has its twin here, with the same settings; instead of `.await` it is
//! sent by [`send`](Call::send), and lists are iterators. A client owns one thread on which its
//! connections live, whichever threads call it. A call blocks the thread that makes it: from async
//! code, use [`audience::Client`](crate::Client).
//!
//! # Example: a script
//!
//! ```
//! # #[cfg(feature = "mock")]
//! # fn main() -> Result<(), audience::Error> {
//! # let runtime = tokio::runtime::Runtime::new().unwrap();
//! # let server = runtime.block_on(audience::mock::MockServer::start());
//! # server.topic("news", true);
//! # let (base_url, key) = (server.url(), server.full_key());
//! use audience::blocking::Client;
//! use audience::contacts::NewContact;
//!
//! let contacts = Client::new(base_url, key)?.contacts();
//! contacts.create(NewContact::new("ada@example.com")).send()?;
//! contacts.unsubscribe("ada@example.com").topic("news").send()?;
//!
//! for contact in contacts.list().limit(200).iter() {
//!     assert_eq!(contact?.email, "ada@example.com");
//! }
//! # Ok(()) }
//! # #[cfg(not(feature = "mock"))] fn main() {}
//! ```

use std::fmt;
use std::time::Duration;

use http::Method;

use crate::contacts::{
    ContactSummary, CountContacts, CreateBatch, CreateContact, ListContacts, MergeProperties,
    NewContact, OptOutReason, Page, Properties, RetrieveContact, Subscribe, Unsubscribe,
};
use crate::raw::RawRequest;
use crate::rule::Rule;
use crate::{ClientBuilder, Error, RetryPolicy};

mod iter;
mod runtime;

pub use iter::{Iter, Listed};
use runtime::Runtime;

/// A client that blocks: see the [module](self).
///
/// Cheap to clone; clones share connections and the thread they live on.
#[derive(Clone, Debug)]
pub struct Client {
    client: crate::Client,
    runtime: Runtime,
}

impl Client {
    /// A client with every setting at its default: [`audience::Client::new`](crate::Client::new).
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Config`](crate::ErrorKind::Config), as there, and where no thread can be started.
    pub fn new(base_url: impl AsRef<str>, key: impl Into<String>) -> Result<Self, Error> {
        Self::from_builder(crate::Client::builder(base_url, key))
    }

    /// A client with these settings. An
    /// [`http_client`](crate::ClientBuilder::http_client) among them must not have been used in another
    /// runtime: its open connections live there.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Config`](crate::ErrorKind::Config), as of
    /// [`ClientBuilder::build`](crate::ClientBuilder::build), and where no thread can be started.
    ///
    /// # Example: other settings than the defaults
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// let settings = audience::Client::builder("https://api.example.com/v1", "key")
    ///     .timeout(Duration::from_secs(5));
    /// let client = audience::blocking::Client::from_builder(settings)?;
    /// # Ok::<(), audience::Error>(())
    /// ```
    pub fn from_builder(settings: ClientBuilder) -> Result<Self, Error> {
        Ok(Self {
            client: settings.build()?,
            runtime: Runtime::start()?,
        })
    }

    /// The contacts endpoints.
    #[must_use]
    pub fn contacts(&self) -> Contacts {
        Contacts {
            contacts: self.client.contacts(),
            runtime: self.runtime.clone(),
        }
    }

    /// A request of your own making: [`audience::Client::request`](crate::Client::request).
    pub fn request<S: AsRef<str>>(
        &self,
        method: Method,
        segments: impl IntoIterator<Item = S>,
    ) -> Call<RawRequest> {
        Call {
            call: self.client.request(method, segments),
            runtime: self.runtime.clone(),
        }
    }
}

/// The contacts of a sender, as [`audience::contacts::Contacts`](crate::contacts::Contacts).
#[derive(Clone, Debug)]
pub struct Contacts {
    contacts: crate::contacts::Contacts,
    runtime: Runtime,
}

macro_rules! calls {
    ($($name:ident($($argument:ident: $type:ty),*) -> $call:ty;)*) => {
        impl Contacts {$(
            #[doc = concat!("As [`Contacts::", stringify!($name), "`](crate::contacts::Contacts::", stringify!($name), ").")]
            pub fn $name(&self, $($argument: $type),*) -> Call<$call> {
                Call { call: self.contacts.$name($($argument),*), runtime: self.runtime.clone() }
            }
        )*}
    };
}

calls! {
    create(contact: NewContact) -> CreateContact;
    create_batch(contacts: impl IntoIterator<Item = NewContact>) -> CreateBatch;
    retrieve(address: impl Into<String>) -> RetrieveContact;
    list() -> ListContacts;
    subscribe(address: impl Into<String>) -> Subscribe;
    unsubscribe(address: impl Into<String>) -> Unsubscribe;
    merge_properties(address: impl Into<String>, properties: impl Into<Properties>) -> MergeProperties;
}

/// A call, made by [`send`](Self::send), or, for lists, by [`iter`](Call::iter).
#[must_use = "a call is made only when it is sent"]
pub struct Call<B> {
    call: B,
    runtime: Runtime,
}

impl<B> Call<B> {
    /// Makes the call, and blocks this thread until it is over.
    ///
    /// # Errors
    ///
    /// Those of the async call.
    pub fn send<T>(self) -> Result<T, Error>
    where
        B: IntoFuture<Output = Result<T, Error>, IntoFuture: Send + 'static>,
        T: Send + 'static,
    {
        self.runtime.wait(self.call.into_future())?
    }

    fn map<C>(self, change: impl FnOnce(B) -> C) -> Call<C> {
        Call {
            call: change(self.call),
            runtime: self.runtime,
        }
    }
}

impl Call<ListContacts> {
    /// All contacts from here on, fetched a page at a time: see [`ListContacts::stream`].
    pub fn iter(self) -> Iter<ContactSummary> {
        Iter::new(self.call.stream(), self.runtime)
    }

    /// All pages from here on: see [`ListContacts::pages`].
    pub fn pages(self) -> Iter<Page> {
        Iter::new(self.call.pages(), self.runtime)
    }

    /// The number of contacts that match: see [`ListContacts::count`].
    pub fn count(self) -> Call<CountContacts> {
        self.map(ListContacts::count)
    }
}

impl Call<RawRequest> {
    /// Sets the body: see [`RawRequest::json`].
    ///
    /// # Errors
    ///
    /// As there.
    pub fn json(self, body: &(impl serde::Serialize + ?Sized)) -> Result<Self, Error> {
        Ok(Self {
            call: self.call.json(body)?,
            runtime: self.runtime,
        })
    }
}

macro_rules! settings {
    ($($call:ident { $($name:ident($($argument:ident: $type:ty),*)),* $(,)? })*) => {$(
        impl Call<$call> {$(
            #[doc = concat!("As [`", stringify!($call), "::", stringify!($name), "`].")]
            pub fn $name(self, $($argument: $type),*) -> Self {
                self.map(|call| call.$name($($argument),*))
            }
        )*}
    )*};
}

settings! {
    CreateContact { timeout(limit: Duration), deadline(limit: Duration), retry(policy: RetryPolicy), repeatable() }
    CreateBatch { timeout(limit: Duration), deadline(limit: Duration), retry(policy: RetryPolicy), repeatable() }
    RetrieveContact { timeout(limit: Duration), deadline(limit: Duration), retry(policy: RetryPolicy) }
    MergeProperties { timeout(limit: Duration), deadline(limit: Duration), retry(policy: RetryPolicy) }
    Subscribe {
        topic(name: impl Into<String>),
        timeout(limit: Duration), deadline(limit: Duration), retry(policy: RetryPolicy), repeatable(),
    }
    Unsubscribe {
        topic(name: impl Into<String>), reason(reason: OptOutReason),
        timeout(limit: Duration), deadline(limit: Duration), retry(policy: RetryPolicy),
    }
    ListContacts {
        limit(contacts: u32), after(cursor: impl Into<String>), query(text: impl Into<String>),
        segment(id: impl Into<String>), rule(rule: Rule),
        timeout(limit: Duration), deadline(limit: Duration), retry(policy: RetryPolicy),
    }
    RawRequest {
        query(name: impl AsRef<str>, value: impl AsRef<str>), header(name: impl AsRef<str>, value: impl AsRef<str>),
        idempotent(),
        timeout(limit: Duration), deadline(limit: Duration), retry(policy: RetryPolicy),
    }
}

impl<B: fmt::Debug> fmt::Debug for Call<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Call").field(&self.call).finish()
    }
}
