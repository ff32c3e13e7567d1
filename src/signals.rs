//! The signals that end a program.

use std::io;

/// Waits for SIGTERM, which Kubernetes, Docker and systemd send, or for Ctrl-C.
///
/// For a job that must end cleanly, such as an import: pass it to [`stop_when`](crate::import::Import::stop_when).
/// [`serve`](crate::serve) does this itself. From the first poll on, these signals no longer end the program by
/// themselves.
///
/// # Panics
///
/// Panics outside a tokio runtime when it is polled.
///
/// # Example: a job that can be stopped
///
/// ```no_run
/// # async fn run(contacts: audience::contacts::Contacts) -> Result<(), Box<dyn std::error::Error>> {
/// use audience::import::CsvInput;
///
/// let rows = CsvInput::open("list.csv")?.rows()?;
/// let report = contacts.import(rows).stop_when(audience::shutdown_signal()).await?;
/// # Ok(()) }
/// ```
#[cfg(any(feature = "import", feature = "serve"))]
pub async fn shutdown_signal() {
    match interrupt() {
        Ok(interrupted) => interrupted.await,
        // The program cannot listen for the signals, so they end it as they do by default.
        Err(_) => std::future::pending().await,
    }
}

/// Listens for Ctrl-C and SIGTERM from now on. The future completes when one arrives.
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
