//! Sends the same calls from programs without an async runtime.
//!
//! With the feature `blocking`, every call has a method `wait`, which sends it and blocks the current thread
//! until it ends. Every stream has a method `wait` too, which turns it into an iterator. The
//! [`Client`](crate::Client), the builders, their settings and their errors stay the same.
//!
//! The first `wait` of a program starts one thread, named `audience`. It runs the connections of all clients, so they
//! stay open between calls. Any number of threads may wait simultaneously.
//!
//! # Panics
//!
//! `wait` panics in async code, because blocking would stall the other tasks of the thread: use `.await` there. It
//! works in `tokio::task::spawn_blocking` and `block_in_place`, and in what another `wait` calls: the rows of an import may
//! come from a list, and a callback may send a call. `wait` also panics if its thread cannot be started.
//!
//! # One client, two runtimes
//!
//! An open connection belongs to the runtime that opened it. A program that also awaits calls in a runtime of its own
//! should use one client for `.await` and another for `.wait()`. Clones share their connections, so they count as one
//! client; the same is true of clients with one [`http_client`](crate::ClientBuilder::http_client).
//!
//! The calls of an `UnsubscribeService`, an `Inbox` and their workers have no `wait`. A program that needs them awaits
//! all calls, or passes these to the `block_on` of one runtime that it keeps.
//!
//! # Example: a script
//!
//! ```
//! # fn main() -> Result<(), audience::Error> {
//! # let server = audience::mock::MockServer::builder().topic("news", true).start_blocking();
//! # let (base_url, key) = (server.url(), server.full_key());
//! use audience::Client;
//! use audience::contacts::NewContact;
//!
//! let contacts = Client::new(base_url, key)?.contacts();
//! contacts.create(NewContact::new("ada@example.com")).wait()?;
//! contacts.unsubscribe("ada@example.com").topic("news").wait()?;
//!
//! for contact in contacts.list().limit(200).stream().wait() {
//!     assert_eq!(contact?.email, "ada@example.com");
//! }
//! # Ok(()) }
//! ```

use std::fmt;
use std::future::poll_fn;
use std::iter::FusedIterator;
use std::panic::catch_unwind;
use std::pin::Pin;
use std::sync::OnceLock;
use std::task::Poll;

use futures_core::Stream;
use futures_core::stream::FusedStream;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::task::block_in_place;

/// Iterates over the items of a stream. The stream's method `wait` creates it.
///
/// Each call of `next` blocks the current thread until the stream returns its next item. The iterator returns the same
/// items and errors as the stream, in the same order, and ends with it.
///
/// # Example: continue a list later
///
/// ```
/// # fn main() -> Result<(), audience::Error> {
/// # let server = audience::mock::MockServer::builder().seed_contact("ada@example.com").start_blocking();
/// # let contacts = server.client().contacts();
/// let mut iter = contacts.list().stream().wait();
/// let newest = iter.next().expect("the audience has a contact")?;
/// let cursor = iter.stream().cursor().expect("a contact was returned").to_owned();
///
/// for older in contacts.list().after(cursor).stream().wait() {
///     assert_ne!(older?.email, newest.email);
/// }
/// # Ok(()) }
/// ```
#[must_use = "an iterator does nothing until `next` is called"]
pub struct Iter<S>(S);

impl<S> Iter<S> {
    pub(crate) fn new(stream: S) -> Self {
        Self(stream)
    }

    /// Returns the stream, for example to look at its cursor.
    ///
    /// # Example: how far a loop has come
    ///
    /// ```
    /// # fn main() -> Result<(), audience::Error> {
    /// # let server = audience::mock::MockServer::builder().seed_contact("ada@example.com").start_blocking();
    /// # let contacts = server.client().contacts();
    /// let mut iter = contacts.list().stream().wait();
    /// assert_eq!(iter.stream().cursor(), None, "the loop has not started");
    ///
    /// let newest = iter.next().expect("the audience has a contact")?;
    /// assert_eq!(iter.stream().cursor(), Some(newest.id.as_str()));
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn stream(&self) -> &S {
        &self.0
    }

    /// Returns the stream itself, which continues after the last item that the iterator returned.
    ///
    /// # Example: change how the rest of a list is read
    ///
    /// ```
    /// # fn main() -> Result<(), audience::Error> {
    /// # let server = audience::mock::MockServer::builder()
    /// #     .seed_contact("ada@example.com").seed_contact("bob@example.com").start_blocking();
    /// # let contacts = server.client().contacts();
    /// let mut iter = contacts.list().limit(1).stream().wait();
    /// iter.next().expect("the audience has two contacts")?;
    ///
    /// let rest = iter.into_stream().prefetch().wait();
    /// assert_eq!(rest.count(), 1);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn into_stream(self) -> S {
        self.0
    }
}

impl<S: Stream + Unpin> Iterator for Iter<S> {
    type Item = S::Item;

    fn next(&mut self) -> Option<S::Item> {
        wait(poll_fn(|context| Pin::new(&mut self.0).poll_next(context)))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.0.size_hint()
    }
}

impl<S: FusedStream + Unpin> FusedIterator for Iter<S> {}

impl<S> fmt::Debug for Iter<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Iter").finish_non_exhaustive()
    }
}

/// Runs a future on this thread, with the connections on the thread of the crate's runtime.
///
/// # Panics
///
/// In async code, and if the runtime's thread cannot be started.
#[track_caller]
pub(crate) fn wait<F: IntoFuture>(call: F) -> F::Output {
    let runtime = runtime();
    let current = Handle::try_current().ok();
    if current
        .as_ref()
        .is_some_and(|current| current.id() == runtime.handle().id())
    {
        return wait_within(runtime, call.into_future());
    }
    // A thread with a runtime is not always in async code: `spawn_blocking` has one too. Only `block_on` itself
    // knows, and it panics. This panic says what to do.
    if current.is_some() && catch_unwind(|| runtime.block_on(async {})).is_err() {
        panic!(
            "`wait` blocks its thread and cannot be called in async code: use `.await`, or call it in `tokio::task::spawn_blocking`"
        );
    }
    runtime.block_on(call.into_future())
}

/// Does this for code that another `wait` calls, such as the iterator of the rows of an import.
fn wait_within<F: Future>(runtime: &Runtime, call: F) -> F::Output {
    let call = async {
        let output = call.await;
        let waker = poll_fn(|context| Poll::Ready(context.waker().clone())).await;
        (output, waker)
    };
    let (output, waker) = block_in_place(|| runtime.block_on(call));
    // Tokio wakes a thread, and not one of the calls that wait on it. So this call may have used up a wake of the other.
    waker.wake();
    output
}

fn runtime() -> &'static Runtime {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();

    RUNTIME.get_or_init(|| {
        let mut builder = Builder::new_multi_thread();
        let runtime = builder
            .worker_threads(1)
            .thread_name("audience")
            .enable_all()
            .build();
        runtime.unwrap_or_else(|error| panic!("could not start the thread of `wait`: {error}"))
    })
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_call_that_is_woken_while_its_thread_waits_for_another_one_goes_on() {
        let (sender, ended) = mpsc::channel();
        thread::spawn(move || {
            let mut polls = 0;
            wait(poll_fn(|context| {
                polls += 1;
                if polls > 1 {
                    return Poll::Ready(());
                }
                let waker = context.waker();
                wait(async {
                    waker.wake_by_ref();
                    tokio::time::sleep(Duration::from_millis(10)).await;
                });
                Poll::Pending
            }));
            sender.send(()).unwrap();
        });

        assert_eq!(ended.recv_timeout(Duration::from_secs(30)), Ok(()));
    }
}
