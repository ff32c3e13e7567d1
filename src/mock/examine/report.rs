use std::fmt;
use std::str::FromStr;

use serde::ser::SerializeStruct;
use serde::{Serialize, Serializer};

use crate::ConfigError;

/// The report of an examination.
///
/// `Display` writes it as a table for a terminal, followed by the findings. Serialized, it has the members `url`,
/// `passed`, `all_seen`, `reached` and `checks`. It never contains the secret.
#[derive(Clone, Debug)]
#[must_use = "checks may have failed: see `passed`"]
pub struct Examination {
    url: String,
    checks: Vec<CheckReport>,
}

/// The result of one check.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct CheckReport {
    /// The check.
    pub check: Check,
    /// Whether the receiver passed.
    pub verdict: Verdict,
    /// The receiver's reaction in a few words, such as `401`, or the reason why the examination could not see it.
    pub observed: String,
    /// The mistakes that the check found. Empty unless the verdict is a failure or a warning.
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

    /// Returns whether no check failed. Warnings and [`Verdict::NotSeen`] do not count as failures.
    ///
    /// # Example: a test of your receiver
    ///
    /// ```
    /// # use audience::mock::{Check, Fault, MockServer, examine};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// # let receiver = MockServer::start().await;
    /// # receiver.fault(Fault::status(200));
    /// # let hook = format!("{}/hook", receiver.url());
    /// let examination = examine(hook, "6Jm0nFq2pXvZk4Tt").only([Check::UnknownType]).await;
    ///
    /// assert!(examination.passed(), "{examination}");
    /// # }
    /// ```
    #[must_use]
    pub fn passed(&self) -> bool {
        self.with_verdict(Verdict::Failed).next().is_none()
    }

    /// Returns whether there is a receiver at the URL. If not, only [`Check::Reachable`] was examined, and its finding
    /// says why: no connection, no HTTP, a wrong path, or an unusable URL or secret.
    ///
    /// # Example: a receiver that is not running
    ///
    /// ```
    /// # use audience::mock::examine;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let examination = examine("http://127.0.0.1:1/hook", "6Jm0nFq2pXvZk4Tt").await;
    ///
    /// assert!(!examination.reached());
    /// # }
    /// ```
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
    ///
    /// # Example: one line for each check
    ///
    /// ```
    /// # use audience::mock::{Check, Fault, MockServer, examine};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// # let receiver = MockServer::start().await;
    /// # receiver.fault(Fault::status(200));
    /// # let hook = format!("{}/hook", receiver.url());
    /// let examination = examine(hook, "6Jm0nFq2pXvZk4Tt").only([Check::NonAscii]).await;
    ///
    /// let lines: Vec<String> =
    ///     examination.checks().iter().map(|report| format!("{}: {}", report.check, report.observed)).collect();
    /// assert_eq!(lines, ["reachable: it responds", "non-ascii: 200"]);
    /// # }
    /// ```
    #[must_use]
    pub fn checks(&self) -> &[CheckReport] {
        &self.checks
    }

    /// Returns the verdict of one check, or `None` if the report does not contain the check.
    ///
    /// # Example: a check that must not fail
    ///
    /// ```
    /// # use audience::mock::{Check, Fault, MockServer, Verdict, examine};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// # let receiver = MockServer::start().await;
    /// # receiver.fault(Fault::status(200));
    /// # let hook = format!("{}/hook", receiver.url());
    /// let examination = examine(hook, "6Jm0nFq2pXvZk4Tt").only([Check::LargeBody]).await;
    ///
    /// assert_eq!(examination.verdict(Check::LargeBody), Some(Verdict::Passed));
    /// # }
    /// ```
    #[must_use]
    pub fn verdict(&self, check: Check) -> Option<Verdict> {
        let report = self.checks.iter().find(|report| report.check == check);
        report.map(|report| report.verdict)
    }

    /// Returns the results with this verdict, in the order of [`Check::ALL`].
    ///
    /// # Example: the checks that failed
    ///
    /// ```
    /// # use audience::mock::{Check, Fault, MockServer, Verdict, examine};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// # let receiver = MockServer::start().await;
    /// # receiver.fault(Fault::status(200));
    /// # let hook = format!("{}/hook", receiver.url());
    /// let examination = examine(hook, "6Jm0nFq2pXvZk4Tt").only([Check::EmptySignature, Check::NotJson]).await;
    ///
    /// let failed: Vec<Check> = examination.with_verdict(Verdict::Failed).map(|report| report.check).collect();
    /// assert_eq!(failed, [Check::EmptySignature]);
    /// # }
    /// ```
    pub fn with_verdict(&self, verdict: Verdict) -> impl Iterator<Item = &CheckReport> {
        let checks = self.checks.iter();
        checks.filter(move |report| report.verdict == verdict)
    }

    /// Returns every mistake, with the check that found it.
    ///
    /// # Example: why a receiver could not be examined
    ///
    /// ```
    /// # use audience::mock::{Check, examine};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let examination = examine("http://127.0.0.1:1/hook", "6Jm0nFq2pXvZk4Tt").await;
    ///
    /// let (check, finding) = examination.findings().next().expect("port 1 is closed");
    /// assert_eq!(check, Check::Reachable);
    /// assert!(finding.problem.starts_with("Nothing listens at 127.0.0.1 port 1"), "{}", finding.problem);
    /// # }
    /// ```
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
        let mut report = serializer.serialize_struct("Examination", 5)?;
        report.serialize_field("url", &self.url)?;
        report.serialize_field("passed", &self.passed())?;
        let all_seen = self.with_verdict(Verdict::NotSeen).next().is_none();
        report.serialize_field("all_seen", &all_seen)?;
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
        /// assert_eq!("tampered-body".parse::<Check>()?, Check::TamperedBody);
        /// # Ok::<(), audience::ConfigError>(())
        /// ```
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[non_exhaustive]
        pub enum Check {
            $($(#[$docs])* $variant,)*
        }

        impl Check {
            /// All checks, in the order of the report.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// Returns the name, as `--only` and the JSON report write it.
            ///
            /// # Example: the names for `--only`
            ///
            /// ```
            /// use audience::mock::Check;
            ///
            /// let only = [Check::Stale, Check::Early].map(|check| check.name()).join(",");
            /// assert_eq!(only, "stale,early");
            /// ```
            #[must_use]
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }

            /// Returns a short description, as the table of a report shows it.
            ///
            /// # Example: the description of a check
            ///
            /// ```
            /// use audience::mock::Check;
            ///
            /// assert_eq!(Check::Stale.title(), "signed 301 s ago");
            /// ```
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
    /// The URL accepts POST over HTTP.
    Reachable = "reachable", "the URL accepts POST";
    /// Genuine deliveries of all ten types get a 2xx ([interface section 6.1](crate::interface#6.1)).
    Genuine = "genuine", "all ten event types";
    /// The responses to genuine deliveries arrive in time ([interface section 6.5](crate::interface#6.5)). More than
    /// half of that time is a warning.
    ResponseTime = "response-time", "responses arrive in time";
    /// The receiver's clock, which the `Date` header of its responses shows, differs from this machine's by at most 5
    /// s.
    Clock = "clock", "the clock is right";
    /// An event of a type that does not exist yet gets a 2xx.
    UnknownType = "unknown-type", "an unknown event type";
    /// JSON with reordered members, and with unusual white space in it and around it, is verified as it was sent
    /// ([interface section 5](crate::interface#5)).
    RawBody = "raw-body", "reordered and oddly spaced JSON";
    /// Text beyond ASCII is verified as it was sent.
    NonAscii = "non-ascii", "text beyond ASCII";
    /// An event of 1 MB gets a 2xx.
    LargeBody = "large-body", "an event of 1 MB";
    /// Events with members that the interface does not have, in `data` or in the envelope, get a 2xx.
    ExtraMembers = "extra-members", "members that do not exist yet";
    /// An event that was created 5 h ago and is signed now gets a 2xx: it may be the last of the ten attempts
    /// ([interface section 6.5](crate::interface#6.5)).
    OldEvent = "old-event", "created 5 h ago, signed now";
    /// A delivery whose unsigned `webhook-event` header contradicts the body is handled by the body's `type`.
    EventHeader = "event-header", "a wrong webhook-event header";
    /// A duplicate that follows immediately, with the same headers, gets a 2xx and has no effect.
    Duplicate = "duplicate", "the same event again";
    /// A duplicate that follows seconds later, signed anew like each attempt, gets a 2xx and has no effect.
    LaterDuplicate = "later-duplicate", "the same event later, signed anew";
    /// A duplicate that follows seconds and 130 other events later, with the same headers, gets a 2xx and has no
    /// effect.
    DuplicateAfterMany = "duplicate-after-many", "the same event after 130 others";
    /// 20 simultaneous deliveries of the same event have one effect.
    ConcurrentDuplicates = "concurrent-duplicates", "20 simultaneous duplicates";
    /// Two opens that differ only by their id are two events, even if they have the same timestamp, and so are two events
    /// whose ids differ only in the case of a letter ([interface section 6.5](crate::interface#6.5)).
    DistinctIds = "distinct-ids", "events that differ only by id";
    /// A delivery that is signed with another secret is rejected, and so is one that is signed with an empty secret.
    OtherSecret = "other-secret", "signed with another secret";
    /// A genuine event has its effect, even if a forged delivery with the same id was sent before.
    ForgedId = "forged-id", "genuine, after a forgery of its id";
    /// A body that was changed after it was signed is rejected.
    TamperedBody = "tampered-body", "a changed body";
    /// A delivery without `webhook-signature` is rejected, and so is one without any of the three headers.
    MissingSignature = "missing-signature", "no signature header";
    /// A forged delivery without `webhook-event` is rejected.
    MissingEventHeader = "missing-event-header", "forged, without an event header";
    /// A forged delivery as `text/plain`, without a content type, or as a form is rejected.
    OtherContentType = "other-content-type", "forged, with other content types";
    /// An empty signature is rejected.
    EmptySignature = "empty-signature", "an empty signature";
    /// The first half of the right signature is rejected.
    CutSignature = "cut-signature", "half of the signature";
    /// The right signature in upper case is rejected: [interface section 5](crate::interface#5) says lowercase.
    /// Accepting it is a warning.
    UppercaseSignature = "uppercase-signature", "the signature in upper case";
    /// A delivery with two `webhook-signature` headers, one of them wrong, is rejected. Accepting it is a warning. If
    /// both are wrong, accepting it is a failure.
    TwoSignatures = "two-signatures", "two signature headers";
    /// A delivery without `webhook-timestamp` is rejected.
    MissingTimestamp = "missing-timestamp", "no timestamp header";
    /// A timestamp that is not a number is rejected. If its signature is right, accepting it is a warning.
    MalformedTimestamp = "malformed-timestamp", "a timestamp that is not a number";
    /// A delivery that was signed 301 s ago is rejected ([interface section 5](crate::interface#5)). A window of up to
    /// 15 minutes is a warning.
    Stale = "stale", "signed 301 s ago";
    /// A delivery that is dated 301 s ahead is rejected. A window of up to 15 minutes is a warning.
    Early = "early", "dated 301 s ahead";
    /// Deliveries 299 s old and 299 s ahead are accepted. Rejecting them is a warning.
    WindowEdge = "window-edge", "299 s old, and 299 s ahead";
    /// A body that is signed but not JSON gets a response that is not a server error.
    NotJson = "not-json", "a signed body that is not JSON";
    /// A genuine delivery whose body takes 3 s to arrive gets a 2xx.
    SlowBody = "slow-body", "a body in pieces over 3 s";
    /// A delivery whose connection ends in the middle of the body gets no 2xx, and the receiver accepts the next
    /// delivery.
    CutConnection = "cut-connection", "a connection that ends in mid-body";
    /// The application's probe returns a count for each event.
    Probe = "probe", "how often the application acted";
}

impl Check {
    /// Whether the verdict depends on how often the application acted.
    pub(super) fn needs_probe(self) -> bool {
        matches!(
            self,
            Self::EventHeader
                | Self::Duplicate
                | Self::LaterDuplicate
                | Self::DuplicateAfterMany
                | Self::ConcurrentDuplicates
                | Self::DistinctIds
                | Self::ForgedId
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
    type Err = ConfigError;

    fn from_str(name: &str) -> Result<Self, ConfigError> {
        let known = Self::ALL.iter().copied();
        known
            .into_iter()
            .find(|check| check.name() == name)
            .ok_or_else(|| {
                ConfigError::new("there is no check of this name; `Check::ALL` lists them")
            })
    }
}

/// The verdict of one check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Verdict {
    /// The receiver is right.
    Passed,
    /// The examination could not see whether the receiver is right. The report says why.
    NotSeen,
    /// The receiver works, but can be improved.
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

/// A mistake of a receiver, in full sentences.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Finding {
    /// Describes the mistake.
    pub problem: String,
    /// Says why the mistake matters.
    pub reason: String,
    /// Says how to fix it.
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
    /// The receiver accepted it.
    Once,
    /// The receiver accepted it, but the application may ignore its type.
    AtMostOnce,
    /// It was forged or incomplete.
    Never,
}

/// The result of one check.
#[derive(Clone, Debug)]
pub(super) struct Grade {
    pub(super) verdict: Verdict,
    pub(super) observed: String,
    pub(super) findings: Vec<Finding>,
    /// The effects that the probe has to show.
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
/// The indent of the further lines of a long row, and of a long finding.
const ROW_INDENT: &str = "          ";
const INDENT: &str = "   ";
/// If at least this many checks were not seen for the same reason, the report has one line for all of them.
const MANY: usize = 8;

/// Writes a table with a line for each check, then the findings, then a summary.
impl fmt::Display for Examination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "The receiver at {}", printable(self.url()))?;
        writeln!(f)?;
        // If the receiver accepts nothing, most checks have the same reason. One line is enough for them.
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
            // One mistake often fails several checks.
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
        let heading = match (self.passed(), count(Verdict::NotSeen)) {
            (false, _) => "FAILED",
            (true, 0) => "PASSED",
            (true, _) => "NOT ALL SEEN",
        };
        write!(
            f,
            "{heading}: {} checks, {} passed, {} failed, {} with a warning, {} not seen",
            self.checks().len(),
            count(Verdict::Passed),
            count(Verdict::Failed),
            count(Verdict::Warning),
            count(Verdict::NotSeen),
        )
    }
}

impl Examination {
    /// Returns the reason that many checks share why they were not seen, and how many they are.
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

/// Writes the line of a check. An observation that does not fit follows on further lines.
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
    // The first part is a status, which fits beside the title.
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
