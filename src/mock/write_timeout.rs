//! A stream whose writes fail if the other side does not read.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};

/// A stream that fails with [`io::ErrorKind::TimedOut`] if a write makes no progress for a while.
///
/// Without it, a client that never reads its responses would keep them in memory.
#[derive(Debug)]
pub(super) struct WriteTimeout<S> {
    stream: S,
    timeout: Duration,
    timer: Pin<Box<Sleep>>,
    /// Whether a write is waiting for the other side, and the timer is running.
    is_waiting: bool,
}

impl<S> WriteTimeout<S> {
    pub(super) fn new(stream: S, timeout: Duration) -> Self {
        Self {
            stream,
            timeout,
            timer: Box::pin(tokio::time::sleep(timeout)),
            is_waiting: false,
        }
    }

    pub(super) fn into_inner(self) -> S {
        self.stream
    }

    /// Returns the result of a write, or an error if it and those before it have been pending for too long.
    fn check<T>(
        &mut self,
        cx: &mut Context<'_>,
        written: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.is_waiting = false;
            return written;
        }
        if !self.is_waiting {
            self.is_waiting = true;
            self.timer.as_mut().reset(Instant::now() + self.timeout);
        }
        ready!(self.timer.as_mut().poll(cx));
        let message = format!(
            "the client did not read the response for {:?}",
            self.timeout
        );
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, message)))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for WriteTimeout<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for WriteTimeout<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.check(cx, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, parts);
        self.check(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(60);

    #[tokio::test(start_paused = true)]
    async fn a_write_fails_if_nobody_reads() {
        let (stream, _unread) = tokio::io::duplex(4);
        let mut stream = WriteTimeout::new(stream, TIMEOUT);
        let start = Instant::now();

        stream.write_all(b"1234").await.unwrap();
        let error = stream.write_all(b"5").await.unwrap_err();

        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert_eq!(start.elapsed().as_secs(), 60);
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_reader_gets_everything_if_it_makes_progress() {
        let (stream, mut reader) = tokio::io::duplex(1);
        let mut stream = WriteTimeout::new(stream, TIMEOUT);
        let read = tokio::spawn(async move {
            let mut bytes = Vec::new();
            while let Ok(byte) = reader.read_u8().await {
                bytes.push(byte);
                tokio::time::sleep(TIMEOUT - Duration::from_secs(1)).await;
            }
            bytes
        });

        stream.write_all(b"1234").await.unwrap();
        drop(stream);

        assert_eq!(read.await.unwrap(), b"1234");
    }
}
