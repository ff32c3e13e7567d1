//! The signals that end a program.

#[cfg(feature = "import")]
use std::future::{poll_fn, ready};
use std::io;
#[cfg(any(feature = "import", feature = "inbox"))]
use std::pin::Pin;
#[cfg(feature = "import")]
use std::pin::pin;
#[cfg(any(feature = "import", feature = "inbox"))]
use std::sync::{Mutex, PoisonError};
#[cfg(feature = "import")]
use std::task::Poll;
#[cfg(any(feature = "import", feature = "inbox"))]
use std::task::{Context, Waker};

/// What a caller has passed to stop a run. The run stops when it is ready.
#[cfg(feature = "import")]
pub(crate) type StopSignal = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Awaits a future. Returns `None` if the signal comes first, which is then still ready for whoever asks next.
#[cfg(feature = "import")]
pub(crate) async fn unless_stopped<F: Future>(
    signal: &mut Option<StopSignal>,
    future: F,
) -> Option<F::Output> {
    let mut future = pin!(future);
    poll_fn(|context| {
        if let Some(stop) = signal
            && stop.as_mut().poll(context).is_ready()
        {
            *signal = Some(Box::pin(ready(())));
            return Poll::Ready(None);
        }
        future.as_mut().poll(context).map(Some)
    })
    .await
}

/// Waits for SIGTERM, which Kubernetes, Docker and systemd send, or for Ctrl-C. It comes with the features `import` and
/// `inbox`.
///
/// For a job that must end cleanly, such as an import or a worker: pass it to
/// [`stop_when`](crate::import::Import::stop_when) or [`run_until`](crate::inbox::Worker::run_until).
/// [`serve`](crate::serve) does this itself. From the first poll of the first such future on, these signals no longer
/// end the program by themselves. The process remembers them from then on: if one has arrived, every later call is
/// ready immediately.
///
/// Until then, a signal ends the program, except if it is the first process of a container, which ignores SIGTERM. So
/// if the start can take long, for example because it waits for a database, wait for the signal at the same time.
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
///
/// # Example: a start that can be stopped
///
/// ```no_run
/// # async fn open_database() -> std::io::Result<()> { Ok(()) }
/// # async fn run() -> std::io::Result<()> {
/// let database = tokio::select! {
///     opened = open_database() => opened?,
///     () = audience::shutdown_signal() => return Ok(()),
/// };
/// # let _ = database;
/// # Ok(()) }
/// ```
#[cfg(any(feature = "import", feature = "inbox"))]
pub async fn shutdown_signal() {
    match shutdown() {
        Ok(interrupted) => interrupted.await,
        // The program cannot listen for the signals, so they end it as they do by default.
        Err(_) => std::future::pending().await,
    }
}

/// Listens for the signals of [`shutdown_signal`] from now on.
///
/// # Errors
///
/// Returns the error of the operating system if the program cannot listen for a signal.
#[cfg(any(feature = "import", feature = "inbox"))]
pub(crate) fn shutdown() -> io::Result<impl Future<Output = ()> + Send> {
    // This listens before it looks for an earlier signal, so no signal is lost in between.
    let interrupted = interrupt()?;
    let was_interrupted = was_interrupted();
    Ok(async move {
        if !was_interrupted {
            interrupted.await;
        }
    })
}

/// Whether a signal has arrived since the first call of [`shutdown`].
#[cfg(any(feature = "import", feature = "inbox"))]
enum Earlier {
    NotAsked,
    Listening(Pin<Box<dyn Future<Output = ()> + Send>>),
    Arrived,
}

/// Returns whether a signal has arrived since the first call of this function.
#[cfg(any(feature = "import", feature = "inbox"))]
fn was_interrupted() -> bool {
    static EARLIER: Mutex<Earlier> = Mutex::new(Earlier::NotAsked);

    let mut earlier = EARLIER.lock().unwrap_or_else(PoisonError::into_inner);
    if let Earlier::NotAsked = *earlier
        && let Ok(interrupted) = interrupt()
    {
        // Tokio's budget could hide a signal that has arrived.
        *earlier = Earlier::Listening(Box::pin(tokio::task::unconstrained(interrupted)));
    }
    // Nobody waits for this future: whoever waits has one of their own.
    let mut context = Context::from_waker(Waker::noop());
    if let Earlier::Listening(interrupted) = &mut *earlier
        && interrupted.as_mut().poll(&mut context).is_ready()
    {
        *earlier = Earlier::Arrived;
    }
    matches!(*earlier, Earlier::Arrived)
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
    // Not `tokio::signal::ctrl_c()`, which listens only from its first poll on.
    let mut interrupted = tokio::signal::windows::ctrl_c()?;
    Ok(async move {
        interrupted.recv().await;
    })
}
