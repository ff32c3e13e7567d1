use std::error::Error;
use std::fmt;

use crate::causes::{with_causes, without_rows};

/// The error of an inbox call.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InboxError {
    /// The lease ended, and the event was claimed again or is done. Do not act on the event any more.
    #[error("the lease of the event was lost: another attempt may be handling the event")]
    LeaseLost,
    /// The event was handled, given up or stored, is being handled, or waits for its next attempt, with another body. This
    /// delivery is not handled. If both bodies are genuine, the sender used one id for two events.
    #[error("the event id was received before with another body")]
    Conflict,
    /// The event is being handled, so its claim cannot be part of a transaction now.
    #[error("another attempt is handling the event")]
    InProgress,
    /// A call of the store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// The error of a store call. [`kind`](Self::kind) tells whether a later call may succeed, and `source()` is
/// the error of the database.
///
/// # Example: print the cause, too
///
/// ```
/// use audience::inbox::StoreError;
///
/// let error = StoreError::unusable("the table `audience_inbox` is missing");
///
/// assert_eq!(error.to_string(), "the store of the inbox cannot be used as it is set up");
/// assert_eq!(format!("{error:#}"), format!("{error}: the table `audience_inbox` is missing"));
/// assert_eq!(format!("{error:?}"), format!("StoreError({error:#})"));
/// ```
pub struct StoreError {
    kind: StoreErrorKind,
    source: Box<dyn Error + Send + Sync>,
}

/// `{error:#}` also prints the causes, on the same line.
impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind.text())?;
        if f.alternate() {
            write!(f, ": {}", with_causes(&*self.source))?;
        }
        Ok(())
    }
}

impl Error for StoreError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&*self.source)
    }
}

/// Prints the text with its causes on one line, because a `main` prints the error that it returns in this form.
impl fmt::Debug for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StoreError({})", Failure::of_error(self).reason())
    }
}

/// The kinds of [`StoreError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StoreErrorKind {
    /// The store cannot be reached, or did not respond. A later call may succeed.
    Unavailable,
    /// The store has no room for another event. A later call may succeed.
    Full,
    /// The store cannot be used as it is: a table is missing, a permission or a version is wrong. No later
    /// call succeeds until that is fixed.
    Unusable,
}

impl StoreErrorKind {
    fn text(self) -> &'static str {
        match self {
            Self::Unavailable => "the store of the inbox is unavailable",
            Self::Full => "the store of the inbox is full",
            Self::Unusable => "the store of the inbox cannot be used as it is set up",
        }
    }
}

impl StoreError {
    /// Creates an error for a store that cannot be reached.
    ///
    /// # Example: a store whose server does not respond
    ///
    /// ```
    /// use std::io;
    ///
    /// use audience::inbox::StoreError;
    ///
    /// fn read() -> io::Result<u64> {
    ///     Err(io::ErrorKind::ConnectionReset.into())
    /// }
    ///
    /// let error = read().map_err(StoreError::unavailable).unwrap_err();
    ///
    /// assert!(error.is_temporary());
    /// ```
    pub fn unavailable(source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::new(StoreErrorKind::Unavailable, source.into())
    }

    /// Creates an error for a store that has no room.
    ///
    /// # Example: a store with a quota
    ///
    /// ```
    /// use audience::inbox::{StoreError, StoreErrorKind};
    ///
    /// fn reserve(events: usize) -> Result<(), StoreError> {
    ///     if events < 1_000 { Ok(()) } else { Err(StoreError::full("it holds 1,000 events")) }
    /// }
    ///
    /// assert_eq!(reserve(1_000).unwrap_err().kind(), StoreErrorKind::Full);
    /// ```
    pub fn full(source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::new(StoreErrorKind::Full, source.into())
    }

    /// Creates an error for a store that is set up wrongly.
    ///
    /// # Example: a store that finds tables of another version
    ///
    /// ```
    /// use audience::inbox::StoreError;
    ///
    /// let version = 3;
    /// let error = StoreError::unusable(format!("the tables have version {version}, expected 2"));
    ///
    /// assert!(!error.is_temporary());
    /// ```
    pub fn unusable(source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::new(StoreErrorKind::Unusable, source.into())
    }

    fn new(kind: StoreErrorKind, source: Box<dyn Error + Send + Sync>) -> Self {
        Self { kind, source }
    }

    /// Returns what kind of failure this is.
    ///
    /// # Example: tell a full store from one that is down
    ///
    /// ```
    /// use audience::inbox::{StoreError, StoreErrorKind};
    ///
    /// fn advice(error: &StoreError) -> &'static str {
    ///     match error.kind() {
    ///         StoreErrorKind::Full => "make room",
    ///         StoreErrorKind::Unavailable => "wait",
    ///         _ => "fix the setup",
    ///     }
    /// }
    ///
    /// assert_eq!(advice(&StoreError::full("the disk is full")), "make room");
    /// ```
    #[must_use]
    pub fn kind(&self) -> StoreErrorKind {
        self.kind
    }

    /// Returns whether a later call may succeed without a change of the setup.
    ///
    /// # Example: stop a job that cannot succeed
    ///
    /// ```
    /// use audience::inbox::{Inbox, InboxError, MemoryStore};
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), InboxError> {
    /// # let inbox = Inbox::builder(MemoryStore::new()).build().expect("the defaults are valid");
    /// match inbox.backlog().await {
    ///     Ok(backlog) => println!("{} events wait", backlog.waiting),
    ///     Err(InboxError::Store(error)) if error.is_temporary() => println!("later: {error}"),
    ///     Err(error) => return Err(error),
    /// }
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn is_temporary(&self) -> bool {
        self.kind != StoreErrorKind::Unusable
    }
}

/// The longest reason that is stored, in bytes.
const MAX_REASON: usize = 2_000;

/// Why a handler failed, as text.
#[derive(Debug)]
pub(super) struct Failure(String);

impl Failure {
    /// Reads the error of a handler, and its sources.
    pub(super) fn of_error(error: &(dyn Error + 'static)) -> Self {
        Self::new(with_causes(error))
    }

    /// Reads the message of a panic.
    pub(super) fn of_panic(payload: &(dyn std::any::Any + Send)) -> Self {
        let message = payload
            .downcast_ref::<&str>()
            .copied()
            .or_else(|| payload.downcast_ref::<String>().map(String::as_str));
        Self::new(match message {
            Some(message) => without_rows(format!("the handler panicked: {message}")),
            None => "the handler panicked".to_owned(),
        })
    }

    fn new(mut text: String) -> Self {
        // Databases refuse it.
        text.retain(|c| c != '\0');
        if let Some((end, _)) = text.char_indices().find(|(at, _)| *at > MAX_REASON - 4) {
            text.truncate(end);
        }
        Self(text)
    }

    pub(super) fn reason(&self) -> &str {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use std::fmt;

    use super::*;

    #[derive(Debug)]
    struct Outer(std::io::Error);

    impl fmt::Display for Outer {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("could not store the bounce")
        }
    }

    impl Error for Outer {
        fn source(&self) -> Option<&(dyn Error + 'static)> {
            Some(&self.0)
        }
    }

    /// An error that is its own source.
    #[derive(Debug)]
    struct Endless;

    impl fmt::Display for Endless {
        fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
            Ok(())
        }
    }

    impl Error for Endless {
        fn source(&self) -> Option<&(dyn Error + 'static)> {
            Some(self)
        }
    }

    #[test]
    fn the_text_of_an_error_says_what_is_wrong_with_the_store() {
        let cause = "a cause";
        for (error, text) in [
            (
                StoreError::unavailable(cause),
                "the store of the inbox is unavailable",
            ),
            (StoreError::full(cause), "the store of the inbox is full"),
            (
                StoreError::unusable(cause),
                "the store of the inbox cannot be used as it is set up",
            ),
        ] {
            assert!(error.to_string().starts_with(text), "{error}");
        }
    }

    #[test]
    fn a_reason_has_the_error_and_its_sources() {
        let error = Outer(std::io::Error::other("disk full"));

        let failure = Failure::of_error(&error);

        assert_eq!(failure.reason(), "could not store the bounce: disk full");
    }

    #[test]
    fn a_reason_has_at_most_2000_bytes_of_whole_characters() {
        for (character, shift) in [("\u{1f4e7}", 0), ("\u{1f4e7}", 1), ("\u{e9}", 1), ("x", 0)] {
            let text = format!("{}{}", "x".repeat(shift), character.repeat(3_000));

            let failure = Failure::of_error(&std::io::Error::other(text));

            let length = failure.reason().len();
            assert!((1_990..=2_000).contains(&length), "{length}");
            assert!(failure.reason().ends_with(character));
        }
    }

    #[test]
    fn a_reason_has_no_nul() {
        let failure = Failure::of_error(&std::io::Error::other("a\0b"));

        assert_eq!(failure.reason(), "ab");
    }

    #[test]
    fn an_error_that_is_its_own_source_has_a_reason() {
        assert!(Failure::of_error(&Endless).reason().len() <= 2_000);
    }

    #[test]
    fn a_panic_has_its_message_as_reason() {
        let payloads: [Box<dyn std::any::Any + Send>; 3] =
            [Box::new("a"), Box::new("b".to_owned()), Box::new(3)];

        let reasons = payloads.map(|payload| Failure::of_panic(payload.as_ref()).0);

        let expected = [
            "the handler panicked: a",
            "the handler panicked: b",
            "the handler panicked",
        ];
        assert_eq!(reasons, expected);
    }
}
