use std::fmt;

/// What a run of the [`Suite`](super::Suite) found. `Display` lists the cases that failed or were not run.
#[derive(Clone, Debug)]
pub struct Report {
    cases: Vec<CaseReport>,
}

/// What one case found.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct CaseReport {
    /// What every store must do, as a sentence.
    pub name: String,
    /// What was found.
    pub result: CaseResult,
}

/// The result of a case.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CaseResult {
    /// The store did what it must.
    Passed,
    /// The store did something else: what was expected, and what happened.
    Failed(String),
    /// The case was not run, for this reason.
    NotRun(String),
}

impl Report {
    pub(super) fn new() -> Self {
        Self { cases: Vec::new() }
    }

    pub(super) fn push(&mut self, name: String, result: CaseResult) {
        self.cases.push(CaseReport { name, result });
    }

    /// Returns all cases in the order in which they ran.
    #[must_use]
    pub fn cases(&self) -> &[CaseReport] {
        &self.cases
    }

    /// Returns the cases that failed.
    pub fn failed(&self) -> impl Iterator<Item = &CaseReport> {
        self.cases
            .iter()
            .filter(|case| matches!(case.result, CaseResult::Failed(_)))
    }

    /// Returns whether some cases were run and none failed.
    #[must_use]
    pub fn is_passed(&self) -> bool {
        self.count(|result| *result == CaseResult::Passed) > 0 && self.failed().next().is_none()
    }

    /// Panics with a list of the cases that failed, and of what was expected.
    ///
    /// # Panics
    ///
    /// Panics if a case failed, or if no case was run.
    #[track_caller]
    pub fn assert_passed(&self) {
        assert!(self.is_passed(), "{self}");
    }

    fn count(&self, is_counted: impl Fn(&CaseResult) -> bool) -> usize {
        let results = self.cases.iter().map(|case| &case.result);
        results.filter(|result| is_counted(result)).count()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let passed = self.count(|result| *result == CaseResult::Passed);
        let failed = self.failed().count();
        write!(
            f,
            "{passed} cases passed, {failed} failed, {} not run",
            self.cases.len() - passed - failed
        )?;
        for case in &self.cases {
            match &case.result {
                CaseResult::Passed => {}
                CaseResult::Failed(message) => write!(f, "\nfailed: {}\n  {message}", case.name)?,
                CaseResult::NotRun(reason) => write!(f, "\nnot run: {}\n  {reason}", case.name)?,
            }
        }
        Ok(())
    }
}
