//! The report as a table for a terminal.

use std::fmt;

use super::examination::{CheckReport, Examination};
use super::grade::{Finding, Verdict};

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
    use crate::mock::examine::check::Check;
    use crate::mock::examine::grade::Grade;

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
