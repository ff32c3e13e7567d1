use std::fmt;
use std::str::FromStr;

use serde::ser::SerializeStruct;
use serde::{Serialize, Serializer};

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
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut report = serializer.serialize_struct("Examination", 4)?;
        report.serialize_field("url", &self.url)?;
        report.serialize_field("passed", &self.passed())?;
        report.serialize_field("reached", &self.reached())?;
        report.serialize_field("checks", &self.checks)?;
        report.end()
    }
}

/// Defines [`Check`] from one table: variant, name, title.
macro_rules! checks {
    ($($(#[$docs:meta])* $variant:ident = $name:literal, $title:literal;)*) => {
        /// One thing that [`examine`](crate::mock::examine()) examines, in the order of the report.
        ///
        /// # Example: names
        ///
        /// ```
        /// use audience::mock::Check;
        ///
        /// assert_eq!(Check::TamperedBody.name(), "tampered-body");
        /// assert_eq!("tampered-body".parse(), Ok(Check::TamperedBody));
        /// ```
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[non_exhaustive]
        pub enum Check {
            $($(#[$docs])* $variant,)*
        }

        impl Check {
            /// All checks, in the order of the report.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// Returns the name, as `--only` takes it and JSON has it.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }

            /// Returns what is examined, in a few words.
            #[must_use]
            pub fn title(self) -> &'static str {
                match self {
                    $(Self::$variant => $title,)*
                }
            }
        }
    };
}

checks! {
    /// Something answers HTTP at the URL, and takes a POST there.
    Reachable = "reachable", "the URL takes a POST";
    /// Genuine deliveries of all ten types get a 2xx (interface section 6.1).
    Genuine = "genuine", "all ten event types";
    /// The responses to genuine deliveries arrive in time (interface section 6.5). From half of the time, it is a
    /// warning.
    ResponseTime = "response-time", "responses arrive in time";
    /// The receiver's clock, by the `Date` header of its responses, agrees with this machine's to 5 s.
    Clock = "clock", "the clock is right";
    /// An event of a type that does not exist yet gets a 2xx.
    UnknownType = "unknown-type", "an unknown event type";
    /// JSON with reordered members, and with odd white space in it and around it, is verified as it was sent (interface section 5).
    RawBody = "raw-body", "reordered and oddly spaced JSON";
    /// Text beyond ASCII is verified as it was sent.
    NonAscii = "non-ascii", "text beyond ASCII";
    /// An event of 1 MB gets a 2xx.
    LargeBody = "large-body", "an event of 1 MB";
    /// The unsigned `webhook-event` header contradicts the body, whose `type` counts.
    EventHeader = "event-header", "a webhook-event header that lies";
    /// The same event at once again, with the same headers, gets a 2xx and has no effect.
    Duplicate = "duplicate", "the same event again";
    /// The same event seconds later, signed anew as each attempt is, gets a 2xx and has no effect.
    LaterDuplicate = "later-duplicate", "the same event later, signed anew";
    /// The same event 20 times at once has one effect.
    ConcurrentDuplicates = "concurrent-duplicates", "the same event 20 times at once";
    /// Two opens that differ by their id alone are two events (interface section 6.5).
    DistinctIds = "distinct-ids", "two events that differ by id alone";
    /// A delivery that is signed with another secret is refused.
    OtherSecret = "other-secret", "signed with another secret";
    /// A body that was changed after it was signed is refused.
    TamperedBody = "tampered-body", "a changed body";
    /// A delivery without `webhook-signature` is refused.
    MissingSignature = "missing-signature", "no signature header";
    /// An empty signature is refused.
    EmptySignature = "empty-signature", "an empty signature";
    /// The first half of the right signature is refused.
    CutSignature = "cut-signature", "half of the signature";
    /// The right signature in upper case is refused: interface section 5 says lowercase. Accepting it is a warning.
    UppercaseSignature = "uppercase-signature", "the signature in upper case";
    /// Two `webhook-signature` headers, one of them wrong, are refused. Accepting them is a warning, unless both are
    /// wrong.
    TwoSignatures = "two-signatures", "two signature headers";
    /// A delivery without `webhook-timestamp` is refused.
    MissingTimestamp = "missing-timestamp", "no timestamp header";
    /// A timestamp that is not a number is refused.
    MalformedTimestamp = "malformed-timestamp", "a timestamp that is no number";
    /// A delivery that was signed 301 s ago is refused (interface section 5). A window of up to 15 minutes is a warning.
    Stale = "stale", "signed 301 s ago";
    /// A delivery that is dated 301 s ahead is refused. A window of up to 15 minutes is a warning.
    Early = "early", "dated 301 s ahead";
    /// Deliveries 299 s old and 299 s ahead are accepted. Refusing them is a warning.
    WindowEdge = "window-edge", "299 s old, and 299 s ahead";
    /// A body that is signed but not JSON gets a response that is not a server error.
    NotJson = "not-json", "a signed body that is not JSON";
    /// A genuine delivery whose body takes 3 s to arrive gets a 2xx.
    SlowBody = "slow-body", "a body in pieces over 3 s";
    /// A delivery whose connection ends in the middle of the body has no effect, and the receiver still responds
    /// afterwards.
    CutConnection = "cut-connection", "a connection cut in mid-body";
    /// The probe of the application responds as it should.
    Probe = "probe", "how often the application acted";
}

impl Check {
    /// Whether a response alone cannot show that the receiver is right.
    pub(super) fn needs_probe(self) -> bool {
        matches!(
            self,
            Self::EventHeader
                | Self::Duplicate
                | Self::LaterDuplicate
                | Self::ConcurrentDuplicates
                | Self::DistinctIds
                | Self::Probe
        )
    }
}

/// Writes the name.
impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl Serialize for Check {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

/// Reads a name.
impl FromStr for Check {
    type Err = UnknownCheck;

    fn from_str(name: &str) -> Result<Self, UnknownCheck> {
        let known = Self::ALL.iter().copied();
        known
            .into_iter()
            .find(|check| check.name() == name)
            .ok_or(UnknownCheck)
    }
}

/// The name is not that of a [`Check`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no check of this name; the documentation of `Check` lists them")]
pub struct UnknownCheck;

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
    fn word(self) -> &'static str {
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

/// The width of the report, in characters.
const WIDTH: usize = 80;
/// Where a line goes on that is too long, in a row and in a finding.
const ROW_INDENT: &str = "          ";
const INDENT: &str = "   ";
/// So many checks that could not be seen for the same reason are one line.
const MANY: usize = 8;

/// Writes a table with a line for each check, then the findings, then a summary.
impl fmt::Display for Examination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "The receiver at {}", printable(self.url()))?;
        writeln!(f)?;
        let hidden = self.common_reason();
        for report in self.checks() {
            if hidden.is_none_or(|(reason, _)| report.observed != reason) {
                row(f, report)?;
            }
        }
        if let Some((reason, count)) = hidden {
            let heading = format!("{:<8}  {count} others:", Verdict::NotSeen);
            paragraph(f, &heading, reason, ROW_INDENT)?;
        }
        let mut explained: Vec<&Finding> = Vec::new();
        for (number, (check, finding)) in self.findings().enumerate() {
            writeln!(f)?;
            let heading = format!("{}. {check}:", number + 1);
            paragraph(f, &heading, &finding.problem, INDENT)?;
            let is_same = |other: &&Finding| {
                (&other.reason, &other.remedy) == (&finding.reason, &finding.remedy)
            };
            if let Some(earlier) = explained.iter().position(is_same) {
                writeln!(f, "   Why it matters, and what to do: see {}.", earlier + 1)?;
            } else {
                paragraph(f, "   Why it matters:", &finding.reason, INDENT)?;
                paragraph(f, "   What to do:", &finding.remedy, INDENT)?;
            }
            explained.push(finding);
        }
        writeln!(f)?;
        let count = |verdict| self.with_verdict(verdict).count();
        write!(
            f,
            "{}: {} checks, {} passed, {} failed, {} with a warning, {} not seen",
            if self.passed() { "PASSED" } else { "FAILED" },
            self.checks().len(),
            count(Verdict::Passed),
            count(Verdict::Failed),
            count(Verdict::Warning),
            count(Verdict::NotSeen),
        )
    }
}

impl Examination {
    /// Returns why many checks could not be seen, if it is the same for all of them, and how many they are.
    fn common_reason(&self) -> Option<(&str, usize)> {
        let reason = &self.with_verdict(Verdict::NotSeen).last()?.observed;
        let count = self
            .checks()
            .iter()
            .filter(|report| report.observed == *reason)
            .count();
        (count >= MANY).then_some((reason, count))
    }
}

/// Writes the line of a check. What does not fit goes onto lines of its own.
fn row(f: &mut fmt::Formatter<'_>, report: &CheckReport) -> fmt::Result {
    let heading = format!(
        "{:<8}  {:<21}  {:<34} ",
        report.verdict,
        report.check,
        report.check.title(),
    );
    let room = WIDTH.saturating_sub(heading.len() + 1);
    let observed = printable(&report.observed);
    if observed.chars().count() <= room {
        return writeln!(f, "{}", format!("{heading} {observed}").trim_end());
    }
    match observed.split_once("; ") {
        Some((status, rest)) if status.len() < room => {
            writeln!(f, "{heading} {status}")?;
            paragraph(f, &ROW_INDENT[1..], rest, ROW_INDENT)
        }
        _ => {
            writeln!(f, "{}", heading.trim_end())?;
            paragraph(f, &ROW_INDENT[1..], &observed, ROW_INDENT)
        }
    }
}

/// Writes a heading and a text, broken into lines between words. All lines but the first start with `indent`.
fn paragraph(f: &mut fmt::Formatter<'_>, heading: &str, text: &str, indent: &str) -> fmt::Result {
    f.write_str(heading)?;
    let mut column = heading.chars().count();
    for word in printable(text).split_whitespace() {
        let length = word.chars().count();
        if column + 1 + length > WIDTH {
            write!(f, "\n{indent}{word}")?;
            column = indent.len() + length;
        } else {
            write!(f, " {word}")?;
            column += 1 + length;
        }
    }
    f.write_str("\n")
}

/// Replaces control characters: a hostile receiver must not control the terminal.
fn printable(text: &str) -> String {
    text.replace(char::is_control, "\u{fffd}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_fits_a_terminal_of_80_columns() {
        let long = "200; a reason that is longer than what is left of the line after the title of the check";
        let words = "Words. ".repeat(40);
        let finding = || Finding::new(&*words, &*words, &*words);
        let checks = Check::ALL.iter().map(|check| {
            let grade = match check {
                Check::Genuine => Grade::failed(words.clone(), finding()),
                Check::Duplicate => Grade::not_seen(long),
                Check::Stale => Grade::passed(""),
                _ => Grade::passed("200"),
            };
            CheckReport::new(*check, grade)
        });

        let report = Examination::new("http://localhost/".into(), checks.collect()).to_string();

        for line in report.lines() {
            assert!(line.chars().count() <= 80, "{line}");
            assert_eq!(line, line.trim_end());
        }
        let row = "same event again                200\n          a reason that is";
        assert!(report.contains(row), "{report}");
    }
}
