use std::fmt;
use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::thread;
use std::time::Duration;

use tokio::sync::oneshot;

use super::check::Check;
use super::engine::{self, Settings};
use super::examination::Examination;

/// How long the service waits for a response (interface section 6.5).
const RESPONSE_TIME: Duration = Duration::from_secs(10);

/// An examination that is not made yet. `.await` makes it. Created by [`examine`](crate::mock::examine()).
#[derive(Clone)]
#[must_use = "an examination is made when it is awaited"]
pub struct ExamineReceiver(Settings);

impl ExamineReceiver {
    pub(super) fn new(url: String, secret: String) -> Self {
        Self(Settings {
            url,
            secret,
            probe: None,
            timeout: RESPONSE_TIME,
            only: Vec::new(),
        })
    }

    /// Sets a URL of the application that says how often it acted on an event. Default: none.
    ///
    /// After the deliveries, the examination sends `GET url?event=ID` for each event and expects the status 200 and
    /// JSON: `{"count": 1}`. `count` is how often the application acted on the event with this id; 0 if it never
    /// received it. `"type"` can be added: the type that the application acted on. With that, events that were lost,
    /// acted on twice, or acted on although they were refused are seen. The application has 5 s to act on what it
    /// accepted.
    ///
    /// # Example: a receiver with a probe
    ///
    /// ```no_run
    /// # async fn test() {
    /// let examination = audience::mock::examine("http://127.0.0.1:3000/hook", "6Jm0nFq2pXvZk4Tt")
    ///     .probe("http://127.0.0.1:3000/count")
    ///     .await;
    /// # }
    /// ```
    pub fn probe(mut self, url: impl Into<String>) -> Self {
        self.0.probe = Some(url.into());
        self
    }

    /// Sets how long the receiver may take for a response. Default: 10 s, as the service waits (interface section 6.5).
    ///
    /// A response that takes more than half of it is a warning.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.0.timeout = timeout;
        self
    }

    /// Makes only these checks. Default: all.
    ///
    /// An event of each of the ten types is delivered in any case, because the rest depends on it. The report has these
    /// checks, [`Check::Reachable`], and what else went wrong.
    ///
    /// # Example: two checks
    ///
    /// ```no_run
    /// # async fn test() {
    /// use audience::mock::{Check, examine};
    ///
    /// let examination = examine("http://127.0.0.1:3000/hook", "6Jm0nFq2pXvZk4Tt")
    ///     .only([Check::Stale, Check::TamperedBody])
    ///     .await;
    /// # }
    /// ```
    pub fn only(mut self, checks: impl IntoIterator<Item = Check>) -> Self {
        self.0.only = checks.into_iter().collect();
        self
    }
}

/// Makes the examination on a thread of its own, so that it needs no runtime and is not delayed by others. If the future
/// is dropped, the examination ends.
impl IntoFuture for ExamineReceiver {
    type Output = Examination;
    type IntoFuture = Pin<Box<dyn Future<Output = Examination> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let (mut sender, receiver) = oneshot::channel();
            let settings = self.0.clone();
            let spawned = thread::Builder::new()
                .name("audience-examine".into())
                .spawn(move || {
                    let runtime = tokio::runtime::Builder::new_current_thread()
                        .enable_all()
                        .build();
                    let Ok(runtime) = runtime else {
                        return;
                    };
                    runtime.block_on(async {
                        tokio::select! {
                            examination = engine::examine(settings) => {
                                // The caller may have lost interest.
                                let _ = sender.send(examination);
                            }
                            () = sender.closed() => {}
                        }
                    });
                    // A lookup of a host name cannot be cancelled, and nobody waits for it.
                    runtime.shutdown_background();
                });
            let problem = match spawned {
                Err(error) => format!("could not start a thread: {error}"),
                Ok(_) => match receiver.await {
                    Ok(examination) => return examination,
                    Err(_) => "could not start a runtime".to_owned(),
                },
            };
            engine::unusable(&self.0, &problem)
        })
    }
}

impl fmt::Debug for ExamineReceiver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExamineReceiver")
            .field("url", &self.0.url)
            .field("probe", &self.0.probe)
            .field("timeout", &self.0.timeout)
            .field("only", &self.0.only)
            .finish_non_exhaustive()
    }
}
