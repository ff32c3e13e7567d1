//! Tells those who watch a server that its state has changed.

use std::convert::Infallible;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, MutexGuard};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body, Frame};
use tokio::sync::watch;

use super::state::State;

/// Watchers at once. Each is an open connection.
const MAX_WATCHERS: usize = 64;

/// The time between two events. Changes in between are one event, however many requests a second arrive.
const GAP: Duration = Duration::from_millis(250);

/// The time after which a comment is sent, so that a connection whose client is gone ends.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// The event. It has no content: the reader asks for what it shows.
const CHANGED: &[u8] = b"event: changed\ndata: {}\n\n";

/// Announces the changes of a state to those who watch it.
#[derive(Debug, Default)]
pub(super) struct Changes {
    announcements: watch::Sender<()>,
    /// Whether no watcher has seen the latest announcement. Another one would tell them nothing new.
    is_unseen: Arc<AtomicBool>,
}

/// Waits for changes of a state.
#[derive(Debug)]
struct ChangeWatcher {
    announcements: watch::Receiver<()>,
    is_unseen: Arc<AtomicBool>,
}

impl Changes {
    /// Returns a stream of the changes from now on, or `None` if there are too many already.
    ///
    /// Changes between two events are one change, so a slow reader costs no memory.
    pub(super) fn stream(&self) -> Option<ChangeStream> {
        if self.announcements.receiver_count() >= MAX_WATCHERS {
            return None;
        }
        let watcher = ChangeWatcher {
            announcements: self.announcements.subscribe(),
            is_unseen: Arc::clone(&self.is_unseen),
        };
        // An announcement before was for others.
        self.is_unseen.store(false, Ordering::Relaxed);
        Some(ChangeStream::new(watcher))
    }

    /// Announces a change. Costs next to nothing if nobody watches, or if the watchers are slower than the changes.
    pub(super) fn record(&self) {
        if self.announcements.receiver_count() > 0 && !self.is_unseen.swap(true, Ordering::Relaxed)
        {
            self.announcements.send_replace(());
        }
    }
}

impl ChangeWatcher {
    /// Waits for the next change. Returns `false` if there will be none, because the server has stopped.
    async fn changed(&mut self) -> bool {
        let is_changed = self.announcements.changed().await.is_ok();
        self.is_unseen.store(false, Ordering::Relaxed);
        is_changed
    }
}

/// The body of `GET /_mock/stream`: server-sent events, one for the beginning and one for each change. Ends when the server stops.
pub(super) struct ChangeStream {
    next: Pin<Box<dyn Future<Output = Next> + Send>>,
}

/// The next bytes to send, or `None` if the server has stopped.
type Next = Option<(Bytes, Watcher)>;

struct Watcher {
    changes: ChangeWatcher,
    /// Whether nothing has been sent.
    is_new: bool,
}

impl ChangeStream {
    fn new(changes: ChangeWatcher) -> Self {
        let watcher = Watcher {
            changes,
            is_new: true,
        };
        Self {
            next: Box::pin(watcher.next()),
        }
    }
}

impl Watcher {
    async fn next(mut self) -> Next {
        if self.is_new {
            self.is_new = false;
            return Some((Bytes::from_static(CHANGED), self));
        }
        tokio::time::sleep(GAP).await;
        let bytes: &'static [u8] =
            match tokio::time::timeout(KEEP_ALIVE, self.changes.changed()).await {
                Ok(true) => CHANGED,
                Ok(false) => return None,
                Err(_) => b":\n\n",
            };
        Some((Bytes::from_static(bytes), self))
    }
}

impl Body for ChangeStream {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let Some((bytes, watcher)) = ready!(self.next.as_mut().poll(cx)) else {
            // A future that has returned must not be polled again.
            self.next = Box::pin(std::future::ready(None));
            return Poll::Ready(None);
        };
        self.next = Box::pin(watcher.next());
        Poll::Ready(Some(Ok(Frame::data(bytes))))
    }
}

impl fmt::Debug for ChangeStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChangeStream").finish_non_exhaustive()
    }
}

/// The locked state. If it was borrowed mutably, dropping this counts as a change.
#[derive(Debug)]
pub(super) struct StateGuard<'a> {
    state: MutexGuard<'a, State>,
    changes: &'a Changes,
    is_changed: bool,
}

impl<'a> StateGuard<'a> {
    pub(super) fn new(state: MutexGuard<'a, State>, changes: &'a Changes) -> Self {
        Self {
            state,
            changes,
            is_changed: false,
        }
    }
}

impl Deref for StateGuard<'_> {
    type Target = State;

    fn deref(&self) -> &State {
        &self.state
    }
}

impl DerefMut for StateGuard<'_> {
    fn deref_mut(&mut self) -> &mut State {
        self.is_changed = true;
        &mut self.state
    }
}

impl Drop for StateGuard<'_> {
    fn drop(&mut self) {
        if self.is_changed {
            self.changes.record();
        }
    }
}
