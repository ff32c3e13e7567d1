//! The result of one check, before it is reported.

use std::fmt;

use serde::Serialize;

/// What an examination says about one check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Verdict {
    /// The receiver did what it should.
    Passed,
    /// It could not be seen. The report says why, and what would show it.
    NotSeen,
    /// It works, but is worth a look.
    Warning,
    /// The receiver did something wrong.
    Failed,
}

impl Verdict {
    /// Returns the verdict as a word of plain text.
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Passed => "passed",
            Self::NotSeen => "not seen",
            Self::Warning => "warning",
            Self::Failed => "FAILED",
        }
    }
}

/// Writes `passed`, `not seen`, `warning` or `FAILED`.
impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word())
    }
}

/// Something wrong with a receiver, in plain words.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Finding {
    /// What is wrong.
    pub problem: String,
    /// Why it matters.
    pub reason: String,
    /// What to do.
    pub remedy: String,
}

impl Finding {
    pub(super) fn new(
        problem: impl Into<String>,
        reason: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Self {
            problem: problem.into(),
            reason: reason.into(),
            remedy: remedy.into(),
        }
    }
}

/// An event that was delivered, and how often the application may act on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Expectation {
    pub(super) event_id: String,
    /// The type in the body.
    pub(super) event_type: String,
    pub(super) effect: Effect,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    /// It was accepted.
    Once,
    /// It was accepted, but the application may have nothing to do for it.
    AtMostOnce,
    /// It was not genuine, or was cut short.
    Never,
}

/// The result of one check.
#[derive(Clone, Debug)]
pub(super) struct Grade {
    pub(super) verdict: Verdict,
    pub(super) observed: String,
    pub(super) findings: Vec<Finding>,
    /// What the probe has to show.
    pub(super) expected: Vec<Expectation>,
}

impl Grade {
    pub(super) fn passed(observed: impl Into<String>) -> Self {
        Self::new(Verdict::Passed, observed)
    }

    pub(super) fn not_seen(reason: impl Into<String>) -> Self {
        Self::new(Verdict::NotSeen, reason)
    }

    pub(super) fn warning(observed: impl Into<String>, finding: Finding) -> Self {
        Self::new(Verdict::Warning, observed).finding(finding)
    }

    pub(super) fn failed(observed: impl Into<String>, finding: Finding) -> Self {
        Self::new(Verdict::Failed, observed).finding(finding)
    }

    pub(super) fn expect(mut self, expectation: Expectation) -> Self {
        self.expected.push(expectation);
        self
    }

    /// Joins the results of two deliveries of one check: the worse verdict, and all findings.
    ///
    /// Equal findings and observations are kept once.
    pub(super) fn and(mut self, other: Self) -> Self {
        self.verdict = self.verdict.max(other.verdict);
        let is_new = !self.observed.split("; ").any(|part| part == other.observed);
        if self.observed.is_empty() {
            self.observed = other.observed;
        } else if !other.observed.is_empty() && is_new {
            self.observed = format!("{}; {}", self.observed, other.observed);
        }
        for finding in other.findings {
            if !self.findings.contains(&finding) {
                self.findings.push(finding);
            }
        }
        self.expected.extend(other.expected);
        self
    }

    fn new(verdict: Verdict, observed: impl Into<String>) -> Self {
        Self {
            verdict,
            observed: observed.into(),
            findings: Vec::new(),
            expected: Vec::new(),
        }
    }

    fn finding(mut self, finding: Finding) -> Self {
        self.findings.push(finding);
        self
    }
}
