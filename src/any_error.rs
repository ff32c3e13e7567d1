//! What a program does with any error: the response to a visitor, the text for a support team, and its own end.

use std::error::Error as StdError;
use std::io::{self, Write as _};
use std::process::{ExitCode, Termination};

use http::StatusCode;

use crate::causes::{causes, with_causes};
use crate::contacts::TopicsError;
#[cfg(feature = "unsubscribe")]
use crate::unsubscribe::ConsentError;
use crate::{ConfigError, Error, ErrorKind};

/// Returns the status of your own response to a visitor, if an error or one of its causes is of this crate.
///
/// It is for a web program whose handlers return any error, for example as a `Box<dyn Error>`. The first error that it
/// finds decides. Show your text for the status, and not the error: after a confirmation mail that the service refused,
/// the status is 200.
///
/// Some wrapped errors are not found: see [`exit_status`].
///
/// | error | status |
/// |---|---|
/// | [`Error`] | [`Error::visitor_status`] |
/// | [`TopicsError`](crate::contacts::TopicsError) | that of its [`error`](crate::contacts::TopicsError::error) |
#[cfg_attr(
    feature = "unsubscribe",
    doc = "| [`ConsentError`](crate::unsubscribe::ConsentError) | [`ConsentError::visitor_status`](crate::unsubscribe::ConsentError::visitor_status) |"
)]
/// | `ImportError`, `SyncError`, `ExportError`, `IssueError` | that of the error in it |
/// | [`ConfigError`] | 500 |
/// | `InboxError`, `StoreError`, `TransactionError` | 503 if a store is unavailable or full, or another attempt is handling the event; otherwise 500 |
/// | any other | `None` |
///
/// # Example: the error of any handler
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// # let server = audience::mock::MockServer::start().await;
/// # let contacts = server.client().contacts();
/// use audience::StatusCode;
///
/// let error: Box<dyn std::error::Error> = contacts.retrieve("nobody@example.com").await.unwrap_err().into();
/// assert_eq!(audience::visitor_status(&*error), Some(StatusCode::NOT_FOUND));
///
/// let error: Box<dyn std::error::Error> = "the database is down".into();
/// assert_eq!(audience::visitor_status(&*error), None);
/// # }
/// ```
#[must_use]
pub fn visitor_status(error: &(dyn StdError + 'static)) -> Option<StatusCode> {
    Some(match Known::find(error)? {
        Known::Call(error) | Known::Job(error) => error.visitor_status(),
        Known::Topics(error) => error.error().visitor_status(),
        Known::Config(_) => StatusCode::INTERNAL_SERVER_ERROR,
        #[cfg(feature = "unsubscribe")]
        Known::Consent(error) => error.visitor_status(),
        #[cfg(feature = "inbox")]
        Known::Inbox { is_temporary, .. } => match is_temporary {
            true => StatusCode::SERVICE_UNAVAILABLE,
            false => StatusCode::INTERNAL_SERVER_ERROR,
        },
    })
}

/// Returns what happened and what to do, for a person who does not program, if an error or one of its causes is of this
/// crate.
///
/// It is for a program of your support team whose calls return any error, for example as a `Box<dyn Error>`. The first
/// error that it finds decides. Everything that [`Error::explanation`] says about its text is true for this one, too. But
/// after an error of `UnsubscribeService::set_topics`, each "no" is stored, and the text does not say so.
///
/// Some wrapped errors are not found: see [`exit_status`].
///
/// | error | text |
/// |---|---|
/// | [`Error`] | [`Error::explanation`] |
/// | [`TopicsError`](crate::contacts::TopicsError) | [`TopicsError::explanation`](crate::contacts::TopicsError::explanation) |
/// | `ConsentError` | the text of the error in it, or a sentence for each other variant |
/// | `ImportError`, `SyncError`, `ExportError`, `IssueError` | that of the error in it |
/// | [`ConfigError`] | what is wrong, and to tell the developers |
/// | `InboxError`, `StoreError`, `TransactionError` | what is wrong, and whether to try again in a few minutes or to tell the developers |
/// | any other | `None` |
///
/// # Example: the error of any call
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// # let server = audience::mock::MockServer::start().await;
/// # let contacts = server.client().contacts();
/// fn show(error: &(dyn std::error::Error + 'static)) -> String {
///     audience::explanation(error).unwrap_or_else(|| "something else failed: tell your developers".to_owned())
/// }
///
/// let error: Box<dyn std::error::Error> = contacts.retrieve("nobody@example.com").await.unwrap_err().into();
/// assert_eq!(show(&*error), "there is no contact with this address: check the address (404 not_found)");
///
/// let error: Box<dyn std::error::Error> = "the database is down".into();
/// assert_eq!(audience::explanation(&*error), None);
/// # }
/// ```
#[must_use]
pub fn explanation(error: &(dyn StdError + 'static)) -> Option<String> {
    Some(match Known::find(error)? {
        Known::Call(error) | Known::Job(error) => error.explanation(),
        Known::Topics(error) => error.explanation(),
        Known::Config(error) => format!("{error}; tell your developers"),
        #[cfg(feature = "unsubscribe")]
        Known::Consent(error) => error.explanation(),
        #[cfg(feature = "inbox")]
        Known::Inbox {
            error,
            is_temporary,
        } => match is_temporary {
            true => format!("{error}; try again in a few minutes"),
            false => format!("{error}; tell your developers"),
        },
    })
}

/// Returns the [`Error`] of the call that failed, if it is this error, in it, or one of its causes.
///
/// It is for what the three functions [`visitor_status`], [`explanation`] and [`exit_status`] do not say, and finds the
/// [`Error`] in the same errors. `None` if another error is the first of this crate, such as that of a store.
///
/// Some wrapped errors are not found: see [`exit_status`].
///
/// # Example: is there no such contact?
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// # let server = audience::mock::MockServer::start().await;
/// # let contacts = server.client().contacts();
/// use audience::Missing;
///
/// let error: Box<dyn std::error::Error> = contacts.retrieve("nobody@example.com").await.unwrap_err().into();
/// let call = audience::find_error(&*error).expect("a call failed");
/// assert_eq!(call.missing(), Some(Missing::Contact));
/// # }
/// ```
#[must_use]
pub fn find_error<'a>(error: &'a (dyn StdError + 'static)) -> Option<&'a Error> {
    match Known::find(error)? {
        Known::Call(error) | Known::Job(error) => Some(error),
        Known::Topics(error) => Some(error.error()),
        Known::Config(_) => None,
        #[cfg(feature = "unsubscribe")]
        Known::Consent(error) => match error {
            ConsentError::Service(error) | ConsentError::RefusedMail(error) => Some(error),
            _ => None,
        },
        #[cfg(feature = "inbox")]
        Known::Inbox { .. } => None,
    }
}

/// Returns the exit status of a job that ended with this error.
///
/// It is for a program whose `main` ends with any error, for example a `Box<dyn Error>`, and that is started by cron,
/// systemd or another program. The error or the first of its causes that is in the table decides:
///
/// | status | if |
/// |---|---|
/// | 143 | the job was asked to stop: [`ErrorKind::Stopped`]. It is the status of a program that SIGTERM ends |
/// | 75 | running it again may help and does no harm: [`Error::may_repeat`] is true, or a store is unavailable or full. It is `EX_TEMPFAIL` of `sysexits.h` |
/// | 1 | an opt-in failed, even if it was not sent: the person has to be asked again |
/// | 1 | a mail or another call that must not be sent twice may have been applied, unless an issue sent it |
/// | 4 | the contact, topic or segment of a call does not exist: [`Error::is_not_found`] |
/// | 2 | no request can name the address of a call, for example because it is empty |
/// | 1 | anything else: somebody has to look at it |
///
/// The errors of imports, syncs, exports and issues count as their [`Error`], and as retryable also after a lost
/// response, even of a mail: the next run sends nothing twice that must not be. An import, a sync or an issue that ran to
/// its end may have left something undone: call `finished()` of its report to get the error of that.
///
/// The program `audience` uses the same statuses, and 2 also if the command line or a variable is invalid.
///
/// An error of another crate, such as that of your database, has the status 1: only you know whether it passes.
///
/// An error that is wrapped with `#[error(transparent)]` of `thiserror` is not found, because the `source()` of the
/// wrapper skips it. Use `#[error("…")]` with `#[source]` or `#[from]`. So it is with [`visitor_status`],
/// [`explanation`] and [`find_error`].
///
/// [`exit_code`] prints the error, too.
///
/// # Example: a job that logs its error
///
/// ```
/// use std::process::ExitCode;
///
/// fn end(result: Result<(), Box<dyn std::error::Error>>) -> ExitCode {
///     let Err(error) = result else { return ExitCode::SUCCESS };
/// #   #[cfg(feature = "tracing")]
///     tracing::error!("{error:#}");
///     ExitCode::from(audience::exit_status(&*error))
/// }
/// # assert_eq!(end(Err("disk".into())), ExitCode::from(1));
/// ```
#[must_use]
pub fn exit_status(error: &(dyn StdError + 'static)) -> u8 {
    let Some(known) = Known::find(error) else {
        return FAILED;
    };
    match known {
        Known::Call(error) => status_of_call(error),
        Known::Job(error) => status_of_job(error),
        Known::Topics(error) => status_of_call(error.error()),
        Known::Config(_) => FAILED,
        #[cfg(feature = "unsubscribe")]
        Known::Consent(error) => match error {
            ConsentError::Service(error) | ConsentError::RefusedMail(error) => {
                status_of_call(error)
            }
            ConsentError::Store(error) => exit_status(error),
            // It may succeed, but only after another click.
            _ => FAILED,
        },
        #[cfg(feature = "inbox")]
        Known::Inbox { is_temporary, .. } => match is_temporary {
            true => TRY_AGAIN,
            false => FAILED,
        },
    }
}

/// The exit status of a program that has sent this call.
fn status_of_call(error: &Error) -> u8 {
    match error.is_retryable() && !error.may_repeat() {
        true => FAILED,
        false if error.is_not_found() => NOT_FOUND,
        false if error.kind() == ErrorKind::Input && error.is_malformed_contact() => INVALID,
        false => status_of_job(error),
    }
}

/// The exit status of a job, which does not repeat what must not be sent twice.
fn status_of_job(error: &Error) -> u8 {
    match error.kind() {
        ErrorKind::Stopped => STOPPED,
        _ if error.is_retryable() => TRY_AGAIN,
        _ => FAILED,
    }
}

/// Returns the exit code for `main`, and prints an error with its causes to standard error.
///
/// The error is one of this crate, a `Box<dyn Error>`, an `anyhow::Error` or an `eyre::Report`, and the code is its
/// [`exit_status`]. A `Box<dyn Error + Send + Sync>` becomes a `Box<dyn Error>` by
/// `result.map_err(|error| -> Box<dyn Error> { error })`.
///
/// After a success, the code is the one that `main` would return with this value: for `()`, it is 0. For the report of
/// an import, a sync, an export or an issue, it is 0 if everything was done, and 3 if rows were refused or contacts
/// left out. Otherwise it is the code of the error that `finished()` of the report returns, and the function prints
/// that error.
///
/// # Example: a nightly job
///
/// ```no_run
/// use std::error::Error;
/// use std::process::ExitCode;
///
/// use audience::Client;
/// # #[cfg(feature = "import")]
/// use audience::import::{ImportReport, Journal};
///
/// # #[cfg(feature = "import")]
/// async fn night() -> Result<ImportReport, Box<dyn Error>> {
///     let contacts = Client::from_env()?.contacts();
///     let import = contacts.import(["ada@example.com"]).journal(Journal::open("night.journal")?);
///     Ok(import.stop_when(audience::shutdown_signal()).await?)
/// }
///
/// # #[cfg(feature = "import")]
/// #[tokio::main]
/// async fn main() -> ExitCode {
///     audience::exit_code(night().await) // 75 if running it again may help
/// }
/// # #[cfg(not(feature = "import"))] fn main() {}
/// ```
#[must_use]
pub fn exit_code<T: Termination, E: AsRef<dyn StdError>>(result: Result<T, E>) -> ExitCode {
    match result {
        Ok(done) => done.report(),
        Err(error) => exit_after(error.as_ref()),
    }
}

/// Implements the trait that [`exit_code`] needs.
macro_rules! ends_a_program {
    ($($error:ty),+) => {
        $(
            impl AsRef<dyn StdError> for $error {
                fn as_ref(&self) -> &(dyn StdError + 'static) {
                    self
                }
            }
        )+
    };
}

ends_a_program!(Error, TopicsError, ConfigError);
#[cfg(feature = "import")]
ends_a_program!(
    crate::export::ExportError,
    crate::import::ImportError,
    crate::import::SyncError
);
#[cfg(feature = "unsubscribe")]
ends_a_program!(ConsentError, crate::unsubscribe::IssueError);
#[cfg(feature = "inbox")]
ends_a_program!(crate::inbox::InboxError, crate::inbox::StoreError);
#[cfg(feature = "inbox-sqlite")]
ends_a_program!(crate::inbox::TransactionError);

/// Prints the error that ends a program.
pub(crate) fn exit_after(error: &(dyn StdError + 'static)) -> ExitCode {
    let _ = writeln!(io::stderr(), "error: {}", with_causes(error));
    ExitCode::from(exit_status(error))
}

const FAILED: u8 = 1;
/// Whoever started the program has to correct something.
const INVALID: u8 = 2;
/// Everything was done, but rows were refused or contacts left out.
#[cfg(feature = "import")]
pub(crate) const REFUSED: u8 = 3;
/// The contact, topic or segment does not exist, or the event is not parked.
pub(crate) const NOT_FOUND: u8 = 4;
const TRY_AGAIN: u8 = 75;
pub(crate) const STOPPED: u8 = 143;

/// An error of this crate, for the functions that accept any error.
enum Known<'a> {
    Call(&'a Error),
    /// It repeats nothing that must not be sent twice.
    #[cfg_attr(
        not(any(feature = "import", feature = "unsubscribe")),
        expect(dead_code, reason = "there are no jobs without these features")
    )]
    Job(&'a Error),
    Topics(&'a TopicsError),
    Config(&'a ConfigError),
    #[cfg(feature = "unsubscribe")]
    Consent(&'a ConsentError),
    #[cfg(feature = "inbox")]
    Inbox {
        error: &'a (dyn StdError + 'static),
        is_temporary: bool,
    },
}

impl<'a> Known<'a> {
    /// Finds the first error of this crate among an error and its causes.
    fn find(error: &'a (dyn StdError + 'static)) -> Option<Self> {
        causes(error).find_map(Self::of)
    }

    /// Recognizes an error of this crate, whatever caused it.
    fn of(error: &'a (dyn StdError + 'static)) -> Option<Self> {
        #[cfg(feature = "import")]
        {
            use crate::export::ExportError;
            use crate::import::{ImportError, SyncError};

            let import = error.downcast_ref().map(ImportError::error);
            let sync = || error.downcast_ref().map(SyncError::error);
            let export = || error.downcast_ref().map(ExportError::error);
            if let Some(error) = import.or_else(sync).or_else(export) {
                return Some(Self::Job(error));
            }
        }
        #[cfg(feature = "unsubscribe")]
        {
            if let Some(error) = error.downcast_ref::<crate::unsubscribe::IssueError>() {
                return match &error.failure().error {
                    ConsentError::Service(error) => Some(Self::Job(error)),
                    ConsentError::Store(error) => Self::of(error),
                    error => Some(Self::Consent(error)),
                };
            }
            if let Some(error) = error.downcast_ref() {
                return Some(Self::Consent(error));
            }
        }
        #[cfg(feature = "inbox")]
        {
            use crate::inbox::{InboxError, StoreError};

            #[cfg(feature = "inbox-sqlite")]
            if let Some(crate::inbox::TransactionError::Store(error)) = error.downcast_ref() {
                return Self::of(error);
            }
            let is_temporary = match error.downcast_ref() {
                Some(InboxError::Store(error)) => Some(error.is_temporary()),
                Some(error) => Some(matches!(error, InboxError::InProgress)),
                None => error.downcast_ref().map(StoreError::is_temporary),
            };
            if let Some(is_temporary) = is_temporary {
                return Some(Self::Inbox {
                    error,
                    is_temporary,
                });
            }
        }
        let topics = || error.downcast_ref().map(Self::Topics);
        let config = || error.downcast_ref().map(Self::Config);
        let call = error.downcast_ref().map(Self::Call);
        call.or_else(topics).or_else(config)
    }
}

#[cfg(test)]
mod tests {
    use std::fmt;

    use http::StatusCode;

    use super::*;
    use crate::{ApiError, Missing};

    #[test]
    fn a_visitor_reads_the_status_of_any_error_behind_which_the_service_is() {
        #[derive(Debug)]
        struct Failed(Box<dyn StdError>);

        impl fmt::Display for Failed {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the handler failed")
            }
        }

        impl StdError for Failed {
            fn source(&self) -> Option<&(dyn StdError + 'static)> {
                Some(&*self.0)
            }
        }

        let missing = || Error::refused(ApiError::missing(Missing::Contact));
        let database = Failed("the database is down".into());

        assert_eq!(visitor_status(&missing()), Some(StatusCode::NOT_FOUND));
        let behind = visitor_status(&Failed(missing().into()));
        assert_eq!(behind, Some(StatusCode::NOT_FOUND));
        assert_eq!(visitor_status(&database), None);
    }

    #[test]
    fn an_invalid_setting_is_explained_and_is_no_fault_of_the_visitor() {
        let error = ConfigError::new("the secret is too short");

        let text = "the secret is too short; tell your developers";
        assert_eq!(explanation(&error).as_deref(), Some(text));
        assert_eq!(
            visitor_status(&error),
            Some(StatusCode::INTERNAL_SERVER_ERROR)
        );
        assert_eq!(exit_status(&error), 1);
        assert!(find_error(&error).is_none());
    }
}
