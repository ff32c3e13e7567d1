//! Ends a connection: after a fault, after a response that is the last, or because the client does not read.

use std::error::Error;
use std::io;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::response::Disconnect;
use super::write_timeout::WriteTimeout;

/// The time between the last bytes of a response and the reset of its connection, so that the bytes arrive first.
const DELAY_BEFORE_RESET: Duration = Duration::from_millis(20);

/// How long, and for how many bytes, the server reads on after it has ended a connection.
///
/// A connection that is closed with unread bytes is reset, and a client that is still sending would not see the
/// response.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(10);
const DRAIN_LIMIT: u64 = 64 * 1024 * 1024;

/// Ends a connection so that the client receives everything sent before. `error` is the reason, if there is one.
///
/// If the client does not read, the connection is reset.
pub(super) async fn end_connection(
    mut stream: WriteTimeout<TcpStream>,
    error: Option<&hyper::Error>,
) {
    if error.is_some_and(is_write_timeout) {
        // The reset also frees the memory of what has been sent and not read.
        let _ = stream.into_inner().set_zero_linger();
        return;
    }
    // Errors below mean that the client has closed the connection or does not read.
    if let Some(disconnect) = error.and_then(disconnect_in) {
        let _ = stream.write_all(&disconnect.bytes).await;
        if disconnect.reset {
            tokio::time::sleep(DELAY_BEFORE_RESET).await;
            let _ = stream.into_inner().set_zero_linger();
            return;
        }
    }
    let _ = stream.shutdown().await;
    let drain = async {
        let _ = tokio::io::copy(&mut stream.take(DRAIN_LIMIT), &mut tokio::io::sink()).await;
    };
    let _ = tokio::time::timeout(DRAIN_TIMEOUT, drain).await;
}

/// Returns whether a connection ended because the client did not read a response.
fn is_write_timeout(error: &hyper::Error) -> bool {
    error
        .source()
        .and_then(|source| source.downcast_ref::<io::Error>())
        .is_some_and(|error| error.kind() == io::ErrorKind::TimedOut)
}

/// Returns the disconnect that ended a connection, if a fault asked for it.
fn disconnect_in(error: &hyper::Error) -> Option<&Disconnect> {
    error.source()?.downcast_ref()
}
