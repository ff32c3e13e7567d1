//! The report as a table for a terminal.

use std::fmt;

use super::examination::Examination;
use super::grade::{Finding, Verdict};

/// The width of the findings, in characters.
const WIDTH: usize = 100;
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
                writeln!(
                    f,
                    "{:<8}  {:<21}  {:<34}  {}",
                    report.verdict,
                    report.check,
                    report.check.title(),
                    printable(&report.observed)
                )?;
            }
        }
        if let Some((reason, count)) = hidden {
            writeln!(f, "{:<8}  {count} others: {reason}", Verdict::NotSeen)?;
        }
        let mut explained: Vec<&Finding> = Vec::new();
        for (number, (check, finding)) in self.findings().enumerate() {
            writeln!(f)?;
            let heading = format!("{}. {check}: ", number + 1);
            paragraph(f, &heading, &finding.problem)?;
            let is_same = |other: &&Finding| {
                (&other.reason, &other.remedy) == (&finding.reason, &finding.remedy)
            };
            if let Some(earlier) = explained.iter().position(is_same) {
                writeln!(f, "   Why it matters, and what to do: see {}.", earlier + 1)?;
            } else {
                paragraph(f, "   Why it matters: ", &finding.reason)?;
                paragraph(f, "   What to do: ", &finding.remedy)?;
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

/// Writes a heading and a text, broken into lines between words.
fn paragraph(f: &mut fmt::Formatter<'_>, heading: &str, text: &str) -> fmt::Result {
    f.write_str(heading)?;
    let mut column = heading.chars().count();
    let mut is_first = true;
    for word in printable(text).split_whitespace() {
        let length = word.chars().count();
        if !is_first && column + 1 + length > WIDTH {
            f.write_str("\n  ")?;
            column = 2;
        }
        if !is_first {
            f.write_str(" ")?;
            column += 1;
        }
        f.write_str(word)?;
        column += length;
        is_first = false;
    }
    f.write_str("\n")
}

/// Replaces control characters: a hostile receiver must not control the terminal.
fn printable(text: &str) -> String {
    text.replace(char::is_control, "\u{fffd}")
}
