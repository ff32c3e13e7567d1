//! A case of the suite.

use super::pace::BoxFuture;
use super::subject::{Capabilities, Subject};
use super::verdict::Verdict;

/// One thing that every store must do.
#[derive(Clone, Copy)]
pub(super) struct Case {
    /// The name of its function: a sentence.
    pub(super) function: &'static str,
    pub(super) needs: Needs,
    pub(super) run: fn(Subject) -> BoxFuture<Verdict>,
}

/// What a case needs beside the store.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Needs {
    Nothing,
    Filling,
    Outage,
    ClockJump,
    /// A store whose entries stay until they are purged.
    Purge,
}

impl Case {
    pub(super) fn name(&self) -> String {
        self.function.replace('_', " ")
    }
}

impl Needs {
    /// Returns why a case cannot run.
    pub(super) fn missing(self, capabilities: &Capabilities) -> Option<&'static str> {
        let (is_met, missing) = match self {
            Self::Nothing => (true, ""),
            Self::Filling => (
                capabilities.filling.is_some(),
                "needs a small store: `filling`",
            ),
            Self::Outage => (capabilities.outage.is_some(), "needs `outage`"),
            Self::ClockJump => (capabilities.clock_jump.is_some(), "needs `clock_jump`"),
            Self::Purge => (
                !capabilities.expires_by_itself,
                "the store forgets without a purge: `expires_by_itself`",
            ),
        };
        (!is_met).then_some(missing)
    }
}

/// Lists functions as cases.
macro_rules! cases {
    ($needs:ident: $($function:ident),+ $(,)?) => {
        pub(super) const CASES: &[$crate::inbox::conformance::case::Case] = &[$(
            $crate::inbox::conformance::case::Case {
                function: stringify!($function),
                needs: $crate::inbox::conformance::case::Needs::$needs,
                run: |subject| Box::pin($function(subject)),
            }
        ),+];
    };
}

pub(super) use cases;
