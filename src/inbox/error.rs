use std::error::Error;

/// Why a call of the inbox failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InboxError {
    /// The lease ended, and the event was claimed again or is done. Do not act on the event any more.
    #[error("the lease of the event was lost: another attempt may be handling the event")]
    LeaseLost,
    /// The event's id was received before with another body. The event is not handled. If both bodies are
    /// genuine, the sender used one id for two events.
    #[error("the event id was received before with another body")]
    Conflict,
    /// The event is being handled, so its claim cannot be part of a transaction now.
    #[error("another attempt is handling the event")]
    InProgress,
    /// The store could not do what it was asked.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A store could not do what it was asked. [`kind`](Self::kind) tells whether a later call may succeed, and
/// `source()` has the error of the database.
#[derive(Debug, thiserror::Error)]
#[error("{}", kind.text())]
pub struct StoreError {
    kind: StoreErrorKind,
    source: Box<dyn Error + Send + Sync>,
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
    /// call succeeds until somebody fixes it.
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
    pub fn unavailable(source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::new(StoreErrorKind::Unavailable, source.into())
    }

    /// Creates an error for a store that has no room.
    pub fn full(source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::new(StoreErrorKind::Full, source.into())
    }

    /// Creates an error for a store that is set up wrongly.
    pub fn unusable(source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::new(StoreErrorKind::Unusable, source.into())
    }

    fn new(kind: StoreErrorKind, source: Box<dyn Error + Send + Sync>) -> Self {
        Self { kind, source }
    }

    /// Returns what kind of failure this is.
    #[must_use]
    pub fn kind(&self) -> StoreErrorKind {
        self.kind
    }

    /// Returns whether a later call may succeed without anybody doing anything.
    #[must_use]
    pub fn is_temporary(&self) -> bool {
        self.kind != StoreErrorKind::Unusable
    }
}
