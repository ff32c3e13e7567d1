//! The same client for programs without an async runtime.
//!
//! Every call of the async [`Contacts`](crate::contacts::Contacts) exists here, with the same settings.
//! A call is sent by [`send`](Call::send) instead of `.await`, and lists are iterators.
//!
//! Each client starts one thread, which runs its connections. Any thread can use the client.
//!
//! A call blocks the thread that makes it. In async code that would stall other tasks, so a call made in a
//! task of tokio fails at once with [`ErrorKind::Config`](crate::ErrorKind::Config), and nothing is sent.
//! There, use [`audience::Client`](crate::Client), or make the call in `tokio::task::spawn_blocking`.
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
//! for contact in contacts.list().limit(200) {
//!     assert_eq!(contact?.email, "ada@example.com");
//! }
//! # Ok(()) }
//! # #[cfg(not(feature = "mock"))] fn main() {}
//! ```

mod async_code;
mod builder;
mod call;
mod client;
mod contacts;
#[cfg(feature = "import")]
mod export;
#[cfg(feature = "import")]
#[cfg_attr(docsrs, doc(cfg(feature = "import")))]
mod import;
mod iter;
mod runtime;
mod settings;

pub use builder::ClientBuilder;
pub use call::Call;
pub use client::Client;
pub use contacts::Contacts;
#[cfg(feature = "import")]
pub use import::Outcomes;
pub use iter::{Iter, Listed};
