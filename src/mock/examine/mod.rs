//! Examines a receiver of webhooks: sends it deliveries like the service and unlike it, and grades the responses.

mod check;
mod connections;
mod delivery;
mod duplicates;
mod engine;
mod event_bodies;
mod examination;
mod examine_receiver;
mod forgeries;
mod genuine;
mod grade;
mod misreadings;
mod opening;
mod opening_result;
mod probe;
mod receiver_clock;
mod refused_everything;
mod response_grade;
mod run;
mod table;
mod window;

pub use check::{Check, UnknownCheck};
pub use examination::{CheckReport, Examination};
pub use examine_receiver::ExamineReceiver;
pub use grade::{Finding, Verdict};

/// Examines a receiver of webhooks, in any language.
///
/// The receiver gets about 70 deliveries that are signed with `secret`: genuine ones of all types, duplicates, forgeries,
/// old ones, slow ones. [`Check`] lists them all. The [`Examination`] says for each check whether the receiver passed,
/// and for each fault what is wrong, why it matters and what to do.
///
/// Examine a receiver of a test system only: it acts on the genuine events. Their ids start with `evt_examine_` and are
/// new in each examination. A fast receiver is examined in about 6 s; one that does not respond, within a few minutes.
/// `url` has to start with `http://`. The host can be any. Follows no redirect.
///
/// Without a [`probe`](ExamineReceiver::probe), only responses are seen. What they cannot show, such as an event that was
/// acted on twice, is [`Verdict::NotSeen`].
///
/// # Example: a good receiver
///
/// ```
/// # #[cfg(feature = "axum")]
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use audience::mock::{Check, Verdict, examine};
/// use audience::webhooks::{VerifiedEvent, Verifier};
/// use axum::{Router, http::StatusCode, routing::post};
///
/// async fn hook(_event: VerifiedEvent) -> StatusCode {
///     StatusCode::OK
/// }
///
/// let router = Router::new().route("/hook", post(hook)).with_state(Verifier::new("6Jm0nFq2pXvZk4Tt")?);
/// let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
/// let url = format!("http://{}/hook", listener.local_addr()?);
/// tokio::spawn(async { axum::serve(listener, router).await });
///
/// let examination = examine(url, "6Jm0nFq2pXvZk4Tt").only([Check::Stale, Check::Duplicate]).await;
///
/// assert!(examination.passed(), "{examination}");
/// assert_eq!(examination.verdict(Check::Stale), Some(Verdict::Passed));
/// // This receiver does not recognize duplicates. Without a probe, that cannot be seen.
/// assert_eq!(examination.verdict(Check::Duplicate), Some(Verdict::NotSeen));
/// # Ok(())
/// # }
/// # #[cfg(not(feature = "axum"))] fn main() {}
/// ```
pub fn examine(url: impl Into<String>, secret: impl Into<String>) -> ExamineReceiver {
    ExamineReceiver::new(url.into(), secret.into())
}
