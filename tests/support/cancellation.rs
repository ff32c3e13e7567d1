//! Futures that are polled some times and then dropped, and programs that are killed.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;

use crate::{in_time, steady_time};

/// Polls a future this many times, each time after it was woken, and drops it. Returns its output if it ended by then.
pub async fn poll_times<T>(polls: usize, future: impl Future<Output = T>) -> Option<T> {
    let mut future = pin!(future);
    let mut polled = 0;
    let limited = poll_fn(|context| {
        while polled < polls {
            polled += 1;
            match future.as_mut().poll(context) {
                Poll::Ready(output) => return Poll::Ready(Some(output)),
                Poll::Pending if polled < polls => return Poll::Pending,
                Poll::Pending => {}
            }
        }
        Poll::Ready(None)
    });
    in_time(limited).await
}

/// Runs `attempt` with 0, 1, 2 and more polls, until it says that its future ended by itself. Returns how many polls that
/// took.
pub async fn for_each_number_of_polls(mut attempt: impl AsyncFnMut(usize) -> bool) -> usize {
    let mut polls = 0;
    while !attempt(polls).await {
        polls += 1;
        assert!(polls < 10_000, "the future never ends");
    }
    polls
}

/// A future in a runtime and on a thread of its own, which can be killed like a program.
pub struct Program<T> {
    kill: oneshot::Sender<()>,
    thread: JoinHandle<Option<T>>,
}

impl<T: Send + 'static> Program<T> {
    pub fn start(future: impl Future<Output = T> + Send + 'static) -> Self {
        let (kill, killed) = oneshot::channel();
        let run = move || {
            // It is dropped at the end, which ends all tasks where they wait.
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            runtime.block_on(async {
                // The kill must come before a time limit of the future.
                steady_time::begin();
                tokio::select! {
                    ended = future => Some(ended),
                    _ = killed => None,
                }
            })
        };
        let thread = thread::spawn(run);
        Self { kill, thread }
    }

    /// Fails if the future has ended before.
    pub fn kill(self) {
        drop(self.kill);
        let ended = self.thread.join().unwrap();
        assert!(ended.is_none(), "it ended before it was killed");
    }
}

/// Forwards to a server, and counts the open connections.
pub struct CountingProxy {
    port: u16,
    open: Arc<AtomicUsize>,
}

impl CountingProxy {
    /// Starts a proxy for the server at this address, such as `127.0.0.1:80`.
    pub async fn start(server: impl Into<String>) -> Self {
        let (server, open) = (server.into(), Arc::new(AtomicUsize::new(0)));
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr();
        let port = address.expect("a bound socket has an address").port();
        let count = Arc::clone(&open);
        tokio::spawn(async move {
            while let Ok((mut client, _)) = listener.accept().await {
                let (server, count) = (server.clone(), Arc::clone(&count));
                count.fetch_add(1, Ordering::SeqCst);
                tokio::spawn(async move {
                    if let Ok(mut server) = TcpStream::connect(server).await {
                        let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
                    }
                    count.fetch_sub(1, Ordering::SeqCst);
                });
            }
        });
        Self { port, open }
    }

    /// Returns the address of the proxy, such as `127.0.0.1:80`.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Waits until no more than this many connections are open, those included that wait to be accepted.
    pub async fn at_most(&self, connections: usize) {
        // Connections are accepted one after another: once this one has ended, those before it were counted.
        let mut last = TcpStream::connect(self.address()).await.expect("a proxy");
        last.shutdown().await.expect("an open connection");
        let _ = in_time(last.read_to_end(&mut Vec::new())).await;
        until(|| self.open.load(Ordering::SeqCst) <= connections).await;
    }
}

/// Waits until a condition holds.
pub async fn until(condition: impl Fn() -> bool) {
    in_time(async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    })
    .await;
}
