//! The body of `GET /_mock/stream`: a server-sent event whenever the state has changed.

use std::convert::Infallible;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use crate::mock::changes::ChangeWatcher;
use bytes::Bytes;
use hyper::body::{Body, Frame};

/// The time between two events. Changes in between are one event, however many requests a second arrive.
const GAP: Duration = Duration::from_millis(250);

/// The time after which a comment is sent, so that a connection whose client is gone ends.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// The event. It has no content: the reader asks for what it shows.
const CHANGED: &[u8] = b"event: changed\ndata: {}\n\n";

/// Server-sent events, one for the beginning and one for each change. Ends when the server stops.
pub(in crate::mock) struct ChangeStream {
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
    pub(super) fn new(changes: ChangeWatcher) -> Self {
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
