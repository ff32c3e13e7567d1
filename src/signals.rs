//! The signals that end a program.

use std::io;

/// Listens for Ctrl-C and SIGTERM from now on. The future ends when one arrives.
///
/// # Errors
///
/// Returns the error of the operating system if the program cannot listen for a signal.
#[cfg(unix)]
pub(crate) fn interrupt() -> io::Result<impl Future<Output = ()> + Send> {
    use tokio::signal::unix::{SignalKind, signal};

    let mut interrupted = signal(SignalKind::interrupt())?;
    let mut terminated = signal(SignalKind::terminate())?;
    Ok(async move {
        tokio::select! {
            _ = interrupted.recv() => {}
            _ = terminated.recv() => {}
        }
    })
}

#[cfg(not(unix))]
pub(crate) fn interrupt() -> io::Result<impl Future<Output = ()> + Send> {
    Ok(async {
        if tokio::signal::ctrl_c().await.is_err() {
            // Ctrl-C ends the program anyway.
            std::future::pending::<()>().await;
        }
    })
}
