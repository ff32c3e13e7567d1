use serde::Serialize;
use serde::ser::SerializeStruct;

use super::check::Check;
use super::grade::{Finding, Grade, Verdict};

/// The report of an examination.
///
/// `Display` writes it as a table for a terminal, followed by the findings. Serialized, it has the members `url`,
/// `passed`, `reached` and `checks`. It never contains the secret.
#[derive(Clone, Debug)]
pub struct Examination {
    url: String,
    checks: Vec<CheckReport>,
}

/// The result of one check.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct CheckReport {
    /// What was examined.
    pub check: Check,
    /// Whether the receiver passed.
    pub verdict: Verdict,
    /// What the receiver did, in a few words, or why it could not be seen.
    pub observed: String,
    /// What is wrong. Empty unless the verdict is a failure or a warning.
    pub findings: Vec<Finding>,
}

impl CheckReport {
    pub(super) fn new(check: Check, grade: Grade) -> Self {
        Self {
            check,
            verdict: grade.verdict,
            observed: grade.observed,
            findings: grade.findings,
        }
    }
}

impl Examination {
    pub(super) fn new(url: String, mut checks: Vec<CheckReport>) -> Self {
        checks.sort_by_key(|report| report.check);
        Self { url, checks }
    }

    /// Returns whether no check failed. Warnings, and what could not be seen, do not count.
    ///
    /// # Example: a test of your receiver
    ///
    /// ```no_run
    /// # async fn test() {
    /// let examination = audience::mock::examine("http://127.0.0.1:3000/hook", "6Jm0nFq2pXvZk4Tt").await;
    ///
    /// assert!(examination.passed(), "{examination}");
    /// # }
    /// ```
    #[must_use]
    pub fn passed(&self) -> bool {
        self.with_verdict(Verdict::Failed).next().is_none()
    }

    /// Returns whether there is a receiver at the URL. If not, nothing but [`Check::Reachable`] was examined, and its
    /// finding says why: no connection, no HTTP, another path, or an unusable URL or secret.
    #[must_use]
    pub fn reached(&self) -> bool {
        self.verdict(Check::Reachable) != Some(Verdict::Failed)
    }

    /// Returns the URL of the receiver.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Returns the results, in the order of [`Check::ALL`].
    #[must_use]
    pub fn checks(&self) -> &[CheckReport] {
        &self.checks
    }

    /// Returns the verdict of one check, if it was made.
    #[must_use]
    pub fn verdict(&self, check: Check) -> Option<Verdict> {
        let report = self.checks.iter().find(|report| report.check == check);
        report.map(|report| report.verdict)
    }

    /// Returns the results with this verdict, in the order of [`Check::ALL`].
    pub fn with_verdict(&self, verdict: Verdict) -> impl Iterator<Item = &CheckReport> {
        let checks = self.checks.iter();
        checks.filter(move |report| report.verdict == verdict)
    }

    /// Returns everything that is wrong, with the check that found it.
    pub fn findings(&self) -> impl Iterator<Item = (Check, &Finding)> {
        self.checks.iter().flat_map(|report| {
            report
                .findings
                .iter()
                .map(|finding| (report.check, finding))
        })
    }
}

impl Serialize for Examination {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut report = serializer.serialize_struct("Examination", 4)?;
        report.serialize_field("url", &self.url)?;
        report.serialize_field("passed", &self.passed())?;
        report.serialize_field("reached", &self.reached())?;
        report.serialize_field("checks", &self.checks)?;
        report.end()
    }
}
