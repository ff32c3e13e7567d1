//! The signals that end a service.

/// Waits for SIGTERM, which Docker, systemd and Kubernetes send, or for Ctrl-C.
pub(crate) async fn told_to_stop() {
    #[cfg(unix)]
    let terminated = async {
        use tokio::signal::unix::{SignalKind, signal};
        match signal(SignalKind::terminate()) {
            Ok(mut signal) => signal.recv().await,
            Err(_) => std::future::pending().await,
        }
    };
    #[cfg(not(unix))]
    let terminated = std::future::pending::<Option<()>>();
    tokio::select! {
        _ = terminated => {}
        _ = tokio::signal::ctrl_c() => {}
    }
}
