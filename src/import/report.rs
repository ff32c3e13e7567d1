use std::collections::BTreeMap;
use std::error::Error as StdError;
use std::fmt;
use std::process::{ExitCode, Termination};

use serde::{Deserialize, Serialize};

use crate::any_error::{REFUSED, exit_after};
use crate::{Error, ErrorCode};

/// Counts the rows of an import by outcome.
///
/// Its `Display` is the summary line: `3 created, 1 updated, 0 skipped, 1 refused, 0 not sent, 0 unknown`. If opt-outs
/// failed, because the service refused them or could not be reached, the number of their rows follows, which are not
/// among the refused ones: `, 2 whose opt-out failed`. If the run [was stopped](Self::is_stopped), most of these opt-outs are
/// only not sent yet: `, 2 whose opt-out is not recorded yet`. If [files were not sent](Self::files_not_sent), it ends with
/// their number: `, 1 file not sent`. After a verification, it does not.
/// After a dry run, it says how many rows are valid: `3 not sent (3 of them valid)`.
/// After [`verify`](super::Import::verify), it says what was found: `opt-outs recorded for 3 rows, missing for 1; 4 rows
/// without opt-outs have a contact, 0 invalid or without a contact, 0 not verified`. If such a report is merged with one of
/// rows that were applied, it has the counts of an import, and then `, 1 without their opt-out`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[must_use = "rows may be refused or not sent: call `finished`, and print the report, which counts the refused ones"]
#[non_exhaustive]
pub struct ImportReport {
    created: u64,
    updated: u64,
    skipped: u64,
    refused: BTreeMap<String, u64>,
    opt_out_failed: u64,
    not_sent: u64,
    unknown: u64,
    #[serde(default, skip_serializing_if = "is_zero")]
    opted_out: u64,
    #[serde(default, skip_serializing_if = "is_zero")]
    opt_out_missing: u64,
    #[serde(default)]
    valid: u64,
    /// How many of the valid rows of a verification have no opt-out, so that only their contacts were looked for.
    #[serde(default, skip_serializing_if = "is_zero")]
    without_opt_outs: u64,
    #[serde(default)]
    duplicates: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    first_failure: Option<String>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    is_stopped: bool,
    /// Whether the run was to send nothing, and looked for contacts and opt-outs.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    is_verification: bool,
    /// Whether the plan's ceiling was reached. A row that says so may count as one whose opt-out failed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    is_at_ceiling: bool,
    /// Whether more of the input can be read once it is fixed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    is_cut_off: bool,
    /// Whether something failed that may succeed in the next run.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    may_succeed: bool,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    files_not_sent: Vec<String>,
    /// Whether this is the report of a dry run of several files.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    is_dry_run: bool,
}

impl ImportReport {
    /// Returns how many contacts were created.
    ///
    /// # Example: contacts that are new, and contacts that existed
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = audience::mock::MockServer::start().await;
    /// # let contacts = server.client().contacts();
    /// # contacts.create("ada@example.com").await?;
    /// let report = contacts.import(["ada@example.com", "bob@example.com"]).await?;
    ///
    /// assert_eq!((report.created(), report.updated()), (1, 1));
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn created(&self) -> u64 {
        self.created
    }

    /// Returns how many contacts were updated. See [`RowOutcome::Updated`].
    #[must_use]
    pub fn updated(&self) -> u64 {
        self.updated
    }

    /// Returns how many contacts existed and were left unchanged.
    ///
    /// # Example: keep contacts that exist
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = audience::mock::MockServer::start().await;
    /// # let contacts = server.client().contacts();
    /// # contacts.create("ada@example.com").await?;
    /// use audience::contacts::{NewContact, OnConflict};
    ///
    /// let ada = NewContact::new("ada@example.com").first_name("Ada").on_conflict(OnConflict::Skip);
    /// let report = contacts.import([ada]).await?;
    ///
    /// assert_eq!(report.skipped(), 1);
    /// assert_eq!(contacts.retrieve("ada@example.com").await?.first_name, None);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn skipped(&self) -> u64 {
        self.skipped
    }

    /// Returns how many rows were not applied in full, because the service refused the row, because the row could not be
    /// read, or because one of its opt-outs failed, even if only the service could not be reached. It is the sum of
    /// [`refused_by_code`](Self::refused_by_code) and [`opt_out_failed`](Self::opt_out_failed). `Display` prints these two
    /// numbers, and not the sum.
    ///
    /// # Example: fail a job if rows were refused
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = audience::mock::MockServer::start().await;
    /// # let contacts = server.client().contacts();
    /// let report = contacts.import(["ada@example.com", "no address"]).await?;
    ///
    /// let succeeded = report.is_complete() && report.refused() == 0;
    /// assert!(!succeeded);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.refused.values().sum::<u64>() + self.opt_out_failed
    }

    /// Returns how many rows were refused and not applied, for each code. Rows with an opt-out that failed are not among
    /// them: [`opt_out_failed`](Self::opt_out_failed) counts those.
    ///
    /// A status of the service that does not look like a code counts as `other`: it may contain an address. The outcomes
    /// and the rejects have it unchanged.
    ///
    /// # Example: count the reasons
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = audience::mock::MockServer::start().await;
    /// # let contacts = server.client().contacts();
    /// let report = contacts.import(["ada@example.com", "grace at example.com"]).await?;
    ///
    /// let reasons: Vec<_> = report.refused_by_code().collect();
    /// assert_eq!(reasons, [("validation_error", 1)]);
    /// # Ok(()) }
    /// ```
    pub fn refused_by_code(&self) -> impl Iterator<Item = (&str, u64)> {
        self.refused
            .iter()
            .map(|(code, count)| (code.as_str(), *count))
    }

    /// Returns how many rows have an opt-out that failed. Nearly always, the rest of the row was applied: see
    /// [`RowOutcome::OptOutFailed`]. [`refused`](Self::refused) includes them.
    ///
    /// With a journal, the next run sends these opt-outs again.
    ///
    /// # Example: a topic that the service does not have
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = audience::mock::MockServer::start().await;
    /// # let contacts = server.client().contacts();
    /// use audience::import::{ImportRow, OptOut};
    ///
    /// let row = ImportRow::from("ada@example.com").opt_out(OptOut::Topic("nwes".to_owned()));
    /// let report = contacts.import([row]).await?;
    ///
    /// // The contact exists, and may get mail that it opted out of. Create the topic and run a resumed import, or fix
    /// // the row and import it again.
    /// assert_eq!(report.opt_out_failed(), 1);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn opt_out_failed(&self) -> u64 {
        self.opt_out_failed
    }

    /// Returns how many rows have an opt-out that the service does not have, as [`verify`](super::Import::verify) has
    /// found. [`refused`](Self::refused) does not include them.
    #[must_use]
    pub fn opt_out_missing(&self) -> u64 {
        self.opt_out_missing
    }

    /// Returns how many rows were not sent, for example because the import stopped before them or was a dry run. The rows of
    /// [files that were not sent](Self::files_not_sent) are not counted.
    ///
    /// # Example: the plan allows fewer contacts than the list has
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = audience::mock::MockServer::start().await;
    /// # let contacts = server.client().contacts();
    /// # server.set_ceiling(Some(100));
    /// let rows = (0..300).map(|n| format!("{n}@example.com"));
    /// let report = contacts.import(rows).concurrency(1).await?;
    ///
    /// assert!(report.quota_exceeded());
    /// assert_eq!((report.created(), report.not_sent()), (100, 100));
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn not_sent(&self) -> u64 {
        self.not_sent + self.valid
    }

    /// Returns how many rows of a [dry run](super::Import::dry_run) are valid. After [`verify`](super::Import::verify), it
    /// is the number of rows whose contact is at the service, with all opt-outs of the row.
    /// [`not_sent`](Self::not_sent) includes these rows.
    ///
    /// # Example: how many rows an import would send
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = audience::mock::MockServer::start().await;
    /// # let contacts = server.client().contacts();
    /// let report = contacts.import(["ada@example.com", "no address"]).dry_run().await?;
    ///
    /// assert_eq!(report.valid(), 1);
    /// assert!(server.requests().is_empty());
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn valid(&self) -> u64 {
        self.valid
    }

    /// Returns how many of the valid rows of a [dry run](super::Import::dry_run) have the address of an earlier
    /// row, of the same file or an earlier one. An import applies such rows in their order.
    ///
    /// # Example: an address that occurs twice
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = audience::mock::MockServer::start().await;
    /// # let contacts = server.client().contacts();
    /// let report = contacts.import(["ada@example.com", "Ada@Example.com"]).dry_run().await?;
    ///
    /// assert_eq!((report.valid(), report.duplicates()), (2, 1));
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn duplicates(&self) -> u64 {
        self.duplicates
    }

    /// Returns how many rows have an unknown outcome: they were sent, and may have been applied or not.
    ///
    /// # Example: a connection that breaks before the response
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = audience::mock::MockServer::start().await;
    /// # let contacts = server.client().contacts();
    /// # server.fault(audience::mock::Fault::close_after());
    /// use audience::RetryPolicy;
    ///
    /// let report = contacts.import(["ada@example.com"]).retry(RetryPolicy::none()).await?;
    ///
    /// assert_eq!(report.unknown(), 1);
    /// assert!(!report.is_complete());
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn unknown(&self) -> u64 {
        self.unknown
    }

    /// Returns how many rows have an outcome.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.applied() + self.refused() + self.opt_out_missing + self.not_sent() + self.unknown
    }

    /// Returns whether every row of every file was sent and has a known outcome, the plan had room for all of them, and no
    /// opt-out [failed](Self::opt_out_failed) or is [missing](Self::opt_out_missing). Some rows may have been refused for
    /// another reason. A dry run sends no row: use [`finished`](Self::finished) after it.
    ///
    /// # Example: decide whether to run the import again
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = audience::mock::MockServer::start().await;
    /// # let contacts = server.client().contacts();
    /// let report = contacts.import(["ada@example.com", "no address"]).await?;
    ///
    /// // A refused row is refused again, so a second run would change nothing.
    /// assert!(report.is_complete());
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn is_complete(&self) -> bool {
        let has_every_file = self.files_not_sent.is_empty();
        let has_opt_outs = self.opt_out_failed == 0 && self.opt_out_missing == 0;
        let is_sent = has_every_file && self.not_sent() == 0 && self.unknown == 0;
        is_sent && has_opt_outs && !self.quota_exceeded()
    }

    /// Returns the report if the run is finished, and an error with it if not: a row was not sent or has no known outcome,
    /// an opt-out failed or is missing, or the plan had no room for a row. In a dry run, valid rows need not be sent.
    ///
    /// Refused rows alone are no error: they would be refused again. But if they are in one of [several
    /// files](crate::contacts::Contacts::import_files) and keep other files from being sent, the error names those files.
    ///
    /// # Errors
    ///
    /// An [`ImportError`] that says what to do. Its [`error`](ImportError::error) has the kind
    /// [`ErrorKind::Stopped`](crate::ErrorKind::Stopped) if [`stop_when`](super::Import::stop_when) ended the run, and
    /// otherwise [`ErrorKind::Unfinished`](crate::ErrorKind::Unfinished). It
    /// [is retryable](Error::is_retryable) if repeating the run may help: at least a part of what is left may succeed
    /// without a change. If not, somebody has to mend the cause first, such as the base URL, the name of a topic or the
    /// plan's contact ceiling: the text has the [first failure](Self::first_failure), and the rejects say which opt-outs
    /// failed.
    ///
    /// [`exit_status`](crate::exit_status) tells these cases apart for a job.
    ///
    /// # Example: a job that fails until everything is imported
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = audience::mock::MockServer::start().await;
    /// # let contacts = server.client().contacts();
    /// # server.set_ceiling(Some(2));
    /// let report = contacts.import(["ada@example.com", "no address"]).await?.finished()?;
    /// assert_eq!((report.created(), report.refused()), (1, 1));
    ///
    /// let report = contacts.import(["bob@example.com", "cem@example.com"]).await?;
    /// let error = report.finished().unwrap_err();
    /// assert!(error.to_string().contains("the plan's contact ceiling is reached"));
    /// assert!(!error.error().is_retryable());
    /// # Ok(()) }
    /// ```
    pub fn finished(self) -> Result<Self, ImportError> {
        match self.unfinished() {
            Some(error) => Err(ImportError::new(self, error)),
            None => Ok(self),
        }
    }

    /// Returns what is left.
    pub(super) fn unfinished(&self) -> Option<Error> {
        self.unfinished_rows().or_else(|| self.files_left_out())
    }

    /// Returns why files were not sent although the run need not be repeated.
    pub(crate) fn files_left_out(&self) -> Option<Error> {
        if self.files_not_sent.is_empty() {
            return None;
        }
        let files = self.files_not_sent.join(", ");
        let advice = match self.is_dry_run {
            // The rejects lack the valid rows, and nothing was sent.
            true => "before the import",
            false => {
                "in the rejects (delete those that cannot be fixed, but not the first line), rename the folder of the rejects, and \
                 run the import again with `corrected` and this folder (in the program: `--corrected`)"
            }
        };
        let reason = format!(
            "rows of a file in which everybody opted out are refused, so the files after it are not sent: {files}; fix these \
             rows {advice}"
        );
        Some(Error::unfinished(reason, false))
    }

    /// Returns why the run has to be repeated.
    pub(crate) fn unfinished_rows(&self) -> Option<Error> {
        // Without the valid rows of a dry run.
        let is_unsent = self.not_sent + self.unknown > 0;
        let opt_out_failed = self.opt_out_failed > 0;
        let opt_out_missing = self.opt_out_missing > 0;
        let verifies = self.has_only_verified();
        let reason = match self.may_succeed {
            _ if self.quota_exceeded() => {
                "the plan's contact ceiling is reached; raise the ceiling, then repeat the run"
            }
            _ if !is_unsent && opt_out_missing => {
                "the service does not have every opt-out of the rows; look at the rejects, and import those whose people have not opted in since"
            }
            _ if !is_unsent && !opt_out_failed => return None,
            _ if self.is_stopped => {
                return Some(Error::stopped(match verifies {
                    true => "the run was asked to stop; repeat it to verify all rows",
                    false => "the run was asked to stop; repeat it to send the rest",
                }));
            }
            true if is_unsent && verifies => "some rows could not be verified; repeat the run",
            false if is_unsent && verifies => {
                "some rows could not be verified; mend what failed, then repeat the run"
            }
            true if is_unsent => {
                "some rows were not sent, or their outcome is unknown; repeat the run"
            }
            false if is_unsent => {
                "some rows were not sent, or their outcome is unknown; mend what failed, then repeat the run"
            }
            true => "an opt-out failed; repeat the run",
            false => {
                "an opt-out failed; mend what its message says, then repeat the run; or, if the name of a topic is misspelled, \
                 correct it in the mapping or, without one, in the first line of the rejects, and import the rejects"
            }
        };
        let is_retryable = self.is_stopped || self.may_succeed;
        let reason = match &self.first_failure {
            Some(failure) => format!("{reason}; the first failure: {failure}"),
            None => reason.to_owned(),
        };
        Some(Error::unfinished(reason, is_retryable))
    }

    /// Returns whether the next run would have no row to send, unless somebody mends something. The rejects then have all
    /// rows that were not applied, and may be imported in place of the input.
    pub(super) fn leaves_no_row(&self) -> bool {
        let may_help = self
            .unfinished_rows()
            .is_some_and(|left| left.is_retryable());
        self.not_sent == 0 && !may_help && !self.quota_exceeded()
    }

    /// Returns whether [`stop_when`](super::Import::stop_when) ended the import. [`finished`](Self::finished)
    /// returns an error if something is left.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.is_stopped
    }

    /// Returns whether the plan's ceiling stopped the import.
    ///
    /// # Example: ask for a larger plan
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = audience::mock::MockServer::start().await;
    /// # let contacts = server.client().contacts();
    /// # server.set_ceiling(Some(1));
    /// let report = contacts.import(["ada@example.com", "bob@example.com"]).await?;
    ///
    /// if report.quota_exceeded() {
    ///     println!("{} contacts fit into the plan", report.created());
    /// }
    /// # assert_eq!((report.quota_exceeded(), report.created()), (true, 1));
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn quota_exceeded(&self) -> bool {
        self.is_at_ceiling || self.refused.contains_key("quota_exceeded")
    }

    /// Returns the error of the first batch that failed as a whole, or of the first opt-out that failed, as text. After
    /// [`import_files`](crate::contacts::Contacts::import_files), the text begins with the path of the file.
    ///
    /// # Example: why a batch failed
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = audience::mock::MockServer::start().await;
    /// # let contacts = server.client().contacts();
    /// # server.fault(audience::mock::Fault::status(501));
    /// let report = contacts.import(["ada@example.com"]).await?;
    ///
    /// let failure = report.first_failure().expect("the only batch failed");
    /// assert!(failure.contains("501"));
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn first_failure(&self) -> Option<&str> {
        self.first_failure.as_deref()
    }

    /// Returns the paths of the files that [`import_files`](crate::contacts::Contacts::import_files) did not send, because
    /// a file before them is not finished, or because rows of a file in which everybody opted out are refused. In a dry
    /// run, the import would not send them.
    #[must_use]
    pub fn files_not_sent(&self) -> &[String] {
        &self.files_not_sent
    }

    /// Returns how many rows were opt-outs and nothing else.
    pub(super) fn opted_out(&self) -> u64 {
        self.opted_out
    }

    fn applied(&self) -> u64 {
        self.created + self.updated + self.skipped + self.opted_out
    }

    /// Returns whether this is the report of a verification, and not merged with the report of rows that were applied.
    fn has_only_verified(&self) -> bool {
        self.is_verification && self.applied() == 0
    }

    /// Removes rows that were first counted as skipped, and then as something else.
    pub(super) fn uncount_skipped(&mut self, rows: u64) {
        self.skipped = self.skipped.saturating_sub(rows);
    }

    pub(super) fn note_failure(&mut self, error: &Error) {
        self.first_failure.get_or_insert_with(|| error.to_string());
        self.may_succeed |= error.is_retryable();
    }

    /// Notes that a row is left to the next run, although its batch did not fail as a whole.
    pub(super) fn note_left(&mut self) {
        self.may_succeed = true;
    }

    pub(super) fn note_ceiling(&mut self) {
        self.is_at_ceiling = true;
    }

    pub(super) fn note_cut_off(&mut self) {
        self.is_cut_off = true;
    }

    /// Returns whether more of the input can be read once it is fixed.
    #[cfg(feature = "cli")]
    pub(crate) fn is_cut_off(&self) -> bool {
        self.is_cut_off
    }

    pub(super) fn note_stopped(&mut self) {
        self.is_stopped = true;
    }

    pub(super) fn note_verification(&mut self) {
        self.is_verification = true;
    }

    /// Notes that a valid row of a verification has no opt-out.
    pub(super) fn note_without_opt_outs(&mut self) {
        self.without_opt_outs += 1;
    }

    pub(super) fn note_dry_run(&mut self) {
        self.is_dry_run = true;
    }

    pub(super) fn note_duplicate(&mut self) {
        self.duplicates += 1;
    }

    pub(super) fn note_file_not_sent(&mut self, file: String) {
        self.files_not_sent.push(file);
    }

    /// Puts the path of the file before the first failure.
    pub(super) fn name_failure(&mut self, file: &str) {
        if let Some(failure) = &mut self.first_failure {
            *failure = format!("{file}: {failure}");
        }
    }

    /// Adds the counts of another report, for example of the next file of a list.
    ///
    /// # Example: one report for several files
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = audience::mock::MockServer::start().await;
    /// # let contacts = server.client().contacts();
    /// use audience::import::ImportReport;
    ///
    /// let mut total = ImportReport::default();
    /// for file in [["ada@example.com"], ["bob@example.com"]] {
    ///     total.merge(contacts.import(file).await?);
    /// }
    /// assert_eq!(total.created(), 2);
    /// # Ok(()) }
    /// ```
    pub fn merge(&mut self, other: Self) {
        // By name, so that no count can be forgotten.
        let Self {
            created,
            updated,
            skipped,
            refused,
            opt_out_failed,
            not_sent,
            unknown,
            opted_out,
            opt_out_missing,
            valid,
            without_opt_outs,
            duplicates,
            first_failure,
            is_stopped,
            is_verification,
            is_at_ceiling,
            is_cut_off,
            may_succeed,
            files_not_sent,
            is_dry_run,
        } = other;
        self.created += created;
        self.updated += updated;
        self.skipped += skipped;
        for (code, count) in refused {
            *self.refused.entry(code).or_default() += count;
        }
        self.opt_out_failed += opt_out_failed;
        self.not_sent += not_sent;
        self.unknown += unknown;
        self.opted_out += opted_out;
        self.opt_out_missing += opt_out_missing;
        self.valid += valid;
        self.without_opt_outs += without_opt_outs;
        self.duplicates += duplicates;
        self.first_failure = self.first_failure.take().or(first_failure);
        self.is_stopped |= is_stopped;
        self.is_verification |= is_verification;
        self.is_at_ceiling |= is_at_ceiling;
        self.is_cut_off |= is_cut_off;
        self.may_succeed |= may_succeed;
        self.files_not_sent.extend(files_not_sent);
        self.is_dry_run |= is_dry_run;
    }

    /// Makes the valid rows of a dry run uncounted, because a real run would not send them.
    pub(super) fn forget_valid(&mut self) {
        (self.valid, self.duplicates) = (0, 0);
    }

    pub(super) fn add(&mut self, outcome: &RowOutcome) {
        match outcome {
            RowOutcome::Created => self.created += 1,
            RowOutcome::Updated => self.updated += 1,
            RowOutcome::Skipped => self.skipped += 1,
            RowOutcome::OptedOut => self.opted_out += 1,
            RowOutcome::Refused { code, .. } => {
                *self.refused.entry(name_of(code).to_owned()).or_default() += 1;
            }
            RowOutcome::OptOutFailed {
                retryable, message, ..
            } => {
                self.opt_out_failed += 1;
                self.may_succeed |= retryable;
                if self.first_failure.is_none() {
                    self.first_failure.clone_from(message);
                }
            }
            RowOutcome::OptOutMissing { .. } => self.opt_out_missing += 1,
            RowOutcome::Valid => self.valid += 1,
            RowOutcome::NotSent => self.not_sent += 1,
            RowOutcome::Unknown => self.unknown += 1,
        }
    }
}

/// Returns the name under which a code is counted. Any other text of the service may contain an address, and each row
/// may have its own.
fn name_of(code: &ErrorCode) -> &str {
    let is_word = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
    match code.as_str() {
        code if (1..=64).contains(&code.len()) && code.bytes().all(is_word) => code,
        _ => "other",
    }
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes a reference"
)]
fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// As the result of a program: 0 if everything was done, 3 if rows were refused, and otherwise the
/// [`exit_status`](crate::exit_status) of the error that [`finished`](ImportReport::finished) returns, which is printed.
impl Termination for ImportReport {
    fn report(self) -> ExitCode {
        match self.finished() {
            Ok(report) if report.refused() == 0 => ExitCode::SUCCESS,
            Ok(_) => REFUSED.into(),
            Err(error) => exit_after(&error),
        }
    }
}

impl fmt::Display for ImportReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.has_only_verified() {
            return write!(
                f,
                "opt-outs recorded for {} rows, missing for {}; {} rows without opt-outs have a contact, {} invalid or without \
                 a contact, {} not verified",
                self.valid.saturating_sub(self.without_opt_outs),
                self.opt_out_missing,
                self.without_opt_outs,
                self.refused(),
                self.not_sent + self.unknown
            );
        }
        write!(
            f,
            "{} created, {} updated, {} skipped, {} refused, {} not sent",
            self.created,
            self.updated,
            self.skipped,
            self.refused.values().sum::<u64>(),
            self.not_sent()
        )?;
        if self.valid > 0 {
            write!(f, " ({} of them valid)", self.valid)?;
        }
        write!(f, ", {} unknown", self.unknown)?;
        if self.opt_out_failed > 0 {
            let what = match self.is_stopped {
                true => "is not recorded yet",
                false => "failed",
            };
            write!(f, ", {} whose opt-out {what}", self.opt_out_failed)?;
        }
        if self.opt_out_missing > 0 {
            write!(f, ", {} without their opt-out", self.opt_out_missing)?;
        }
        match self.files_not_sent.len() {
            0 => Ok(()),
            1 => f.write_str(", 1 file not sent"),
            files => write!(f, ", {files} files not sent"),
        }
    }
}

/// The outcome of one row of an import.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum RowOutcome {
    /// The contact was created.
    Created,
    /// The address existed and was updated.
    ///
    /// After a retry or a resumed import, this may be a contact that an earlier attempt created.
    Updated,
    /// The address existed and was left unchanged.
    Skipped,
    /// A [sync](super::SyncContacts) had only opt-outs to send for the row, and they are recorded.
    OptedOut,
    /// The contact of the row was neither created nor changed. If there is a contact with this address, the opt-outs of
    /// the row were recorded.
    ///
    /// They were not recorded if the service refused the address itself, or if the row could not be sent. Nor were those
    /// of a row with [`OnConflict::Error`](crate::contacts::OnConflict::Error), unless the code is unknown to the
    /// interface document: then the contact may have been created.
    Refused {
        /// The code of the refusal. `invalid_row` if the row could not be sent.
        code: ErrorCode,
        /// The reason, if it is known. A message of the service is cut after 500 characters.
        message: Option<String>,
        /// Whether importing the same row again can help.
        retryable: bool,
    },
    /// The contact was created, updated or skipped, but an opt-out of the row was not recorded. Until it
    /// is, the contact may get broadcasts that it opted out of.
    ///
    /// The service may also have refused the row, and then the opt-out of a contact that exists or may exist. When the
    /// opt-out is recorded, the outcome is [`Refused`](Self::Refused).
    ///
    /// A resumed import sends the opt-out again, whatever the failure was, and the whole row if the plan's ceiling had
    /// refused it. If the row itself is wrong, such as the name
    /// of a topic, fix the row and import it again with upsert or skip: with
    /// [`OnConflict::Error`](crate::contacts::OnConflict::Error) it would be refused, because the contact exists.
    OptOutFailed {
        /// The code of the refusal, `http_` and a status, or `no_response`.
        code: ErrorCode,
        /// Which opt-out failed, and why.
        message: Option<String>,
        /// Whether importing the same row again can help.
        #[serde(default)]
        retryable: bool,
    },
    /// [`verify`](super::Import::verify) has found that the service does not have an opt-out of the row: the contact may
    /// get broadcasts that it opted out of, unless it has opted in since.
    OptOutMissing {
        /// Which opt-outs are missing.
        message: String,
    },
    /// The row was checked in a dry run, or its contact and opt-outs were looked for, and nothing is wrong with it.
    Valid,
    /// The row was not sent: the import stopped before it, the service could not be reached, the row alone is too large
    /// for the service or was refused with a 400 or by a firewall, or an earlier row of the same address was not sent or
    /// has an unknown outcome. All rows of a batch have this outcome, too, if it was refused without one of the codes
    /// `validation_error`, `already_exists` and `quota_exceeded`, such as with a 404 at a wrong base URL.
    NotSent,
    /// The row was sent, and no usable response arrived: it may have been applied or not. Its opt-outs were tried only
    /// if the service responded to the other rows in the same request, or if the row, or an earlier one of its address in
    /// the batch, failed alone with a 500.
    Unknown,
}

impl RowOutcome {
    /// Returns whether the row was applied in full.
    ///
    /// # Example: mark rows as done
    ///
    /// ```
    /// use audience::import::RowOutcome;
    ///
    /// assert!(RowOutcome::Skipped.is_applied());
    /// assert!(!RowOutcome::Unknown.is_applied());
    /// ```
    #[must_use]
    pub fn is_applied(&self) -> bool {
        matches!(
            self,
            Self::Created | Self::Updated | Self::Skipped | Self::OptedOut
        )
    }

    /// Returns whether the row belongs in the rejects: it was not applied in full, and it is not a valid row of a dry
    /// run.
    ///
    /// # Example: rows to look at after a dry run
    ///
    /// ```
    /// use audience::import::RowOutcome;
    ///
    /// let outcomes = [RowOutcome::Valid, RowOutcome::NotSent];
    /// let rejects: Vec<_> = outcomes.iter().filter(|outcome| outcome.is_reject()).collect();
    ///
    /// assert_eq!(rejects, [&RowOutcome::NotSent]);
    /// ```
    #[must_use]
    pub fn is_reject(&self) -> bool {
        !matches!(self, Self::Valid) && !self.is_applied()
    }

    /// Returns whether importing the same row again can help.
    ///
    /// # Example: which rows to import again
    ///
    /// ```
    /// use audience::ErrorCode;
    /// use audience::import::RowOutcome;
    ///
    /// let invalid = RowOutcome::Refused { code: ErrorCode::ValidationError, message: None, retryable: false };
    ///
    /// assert!(!invalid.is_retryable());
    /// assert!(RowOutcome::NotSent.is_retryable());
    /// ```
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Created | Self::Updated | Self::Skipped | Self::OptedOut | Self::Valid => false,
            Self::Refused { retryable, .. } | Self::OptOutFailed { retryable, .. } => *retryable,
            Self::OptOutMissing { .. } | Self::NotSent | Self::Unknown => true,
        }
    }

    /// Returns the code of a refusal, or the name of any other outcome. The rejects show it.
    ///
    /// # Example: a column of your own report
    ///
    /// ```
    /// use audience::ErrorCode;
    /// use audience::import::RowOutcome;
    ///
    /// let refused = RowOutcome::Refused { code: ErrorCode::QuotaExceeded, message: None, retryable: false };
    ///
    /// assert_eq!(refused.code(), "quota_exceeded");
    /// assert_eq!(RowOutcome::NotSent.code(), "not_sent");
    /// ```
    #[must_use]
    pub fn code(&self) -> &str {
        match self {
            Self::Created => "created",
            Self::Updated => "updated",
            Self::Skipped => "skipped",
            Self::OptedOut => "opted_out",
            Self::Refused { code, .. } => code.as_str(),
            Self::OptOutFailed { .. } => "opt_out_failed",
            Self::OptOutMissing { .. } => "opt_out_missing",
            Self::Valid => "valid",
            Self::NotSent => "not_sent",
            Self::Unknown => "unknown",
        }
    }

    /// Returns the message, if there is one.
    ///
    /// # Example: show why a row could not be read
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = audience::mock::MockServer::start().await;
    /// # let contacts = server.client().contacts();
    /// use audience::import::ImportRow;
    /// use futures_util::StreamExt;
    ///
    /// let row = ImportRow::unreadable("the date is missing");
    /// let mut outcomes = contacts.import([row]).outcomes();
    ///
    /// let (_, outcome) = outcomes.next().await.expect("there is a row");
    /// assert_eq!(outcome.message(), Some("the date is missing"));
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn message(&self) -> Option<&str> {
        match self {
            Self::Refused { message, .. } | Self::OptOutFailed { message, .. } => {
                message.as_deref()
            }
            Self::OptOutMissing { message } => Some(message),
            _ => None,
        }
    }
}

/// Writes the code and, if there is one, the message.
impl fmt::Display for RowOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.code())?;
        match self.message() {
            Some(message) => write!(f, ": {message}"),
            None => Ok(()),
        }
    }
}

/// An import that stopped before its end, with its report and the error that stopped it. Or an import that is not
/// [finished](ImportReport::finished).
///
/// `Display` prints the counts and then the error, and `{:#}` its causes, too. So `source()` returns the cause of that
/// error, not the error itself: [`error`](Self::error) does. It does not convert to an [`Error`], because an `Error`
/// cannot hold the report. Return it unchanged, or as a `Box<dyn std::error::Error>`.
#[derive(Debug)]
pub struct ImportError {
    inner: Box<Inner>,
}

#[derive(Debug)]
struct Inner {
    report: ImportReport,
    error: Error,
}

impl ImportError {
    pub(super) fn new(report: ImportReport, error: Error) -> Self {
        let inner = Box::new(Inner { report, error });
        Self { inner }
    }

    pub(crate) fn into_parts(self) -> (ImportReport, Error) {
        (self.inner.report, self.inner.error)
    }

    /// Returns the report up to the stop.
    ///
    /// # Example: a key that is refused in the middle
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = audience::mock::MockServer::start().await;
    /// # let contacts = server.client().contacts();
    /// # server.fault(audience::mock::Fault::status(401).after(1));
    /// let rows = (0..300).map(|n| format!("{n}@example.com"));
    ///
    /// let stopped = contacts.import(rows).concurrency(1).await.unwrap_err();
    ///
    /// assert_eq!(stopped.report().created(), 100);
    /// # Ok(()) }
    /// ```
    pub fn report(&self) -> &ImportReport {
        &self.inner.report
    }

    /// Returns the error that stopped the import.
    ///
    /// # Example: a client with the wrong key
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = audience::mock::MockServer::start().await;
    /// # let contacts = server.client().contacts();
    /// let client = audience::Client::builder(server.url(), "another-key").allow_http().build()?;
    ///
    /// let stopped = client.contacts().import(["ada@example.com"]).await.unwrap_err();
    ///
    /// assert!(stopped.error().is_unauthorized());
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn error(&self) -> &Error {
        &self.inner.error
    }
}

impl fmt::Display for ImportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Inner { report, error } = &*self.inner;
        write!(f, "the import {}: {report}: ", error.end_of_job())?;
        // With `{:#}`, the error prints its causes.
        fmt::Display::fmt(error, f)
    }
}

impl StdError for ImportError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        // `Display` has the error itself.
        self.inner.error.source()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outcome_is_printed_as_its_code_and_its_message() {
        let refused = RowOutcome::Refused {
            code: ErrorCode::QuotaExceeded,
            message: Some("full".to_owned()),
            retryable: false,
        };

        assert_eq!(refused.to_string(), "quota_exceeded: full");
        assert_eq!(RowOutcome::Created.to_string(), "created");
    }

    #[test]
    fn a_row_that_was_not_sent_or_failed_for_the_moment_can_be_imported_again() {
        let failed = |retryable| RowOutcome::OptOutFailed {
            code: ErrorCode::NotFound,
            message: None,
            retryable,
        };
        for (outcome, expected) in [
            (RowOutcome::Created, false),
            (RowOutcome::OptedOut, false),
            (RowOutcome::Valid, false),
            (failed(false), false),
            (failed(true), true),
            (RowOutcome::NotSent, true),
            (RowOutcome::Unknown, true),
        ] {
            assert_eq!(outcome.is_retryable(), expected, "{outcome}");
        }
    }

    #[test]
    fn a_report_whose_opt_outs_failed_or_are_missing_is_not_complete() {
        let applied = ImportReport {
            created: 1,
            ..ImportReport::default()
        };
        assert!(applied.is_complete());

        for (opt_out_failed, opt_out_missing) in [(1, 0), (0, 1)] {
            let report = ImportReport {
                opt_out_failed,
                opt_out_missing,
                ..applied.clone()
            };
            assert!(!report.is_complete(), "{report}");
        }
    }

    #[test]
    fn the_text_of_an_import_and_its_verification_says_what_was_applied_and_what_is_missing() {
        let mut both = ImportReport {
            created: 1,
            ..ImportReport::default()
        };

        both.merge(ImportReport {
            is_verification: true,
            valid: 2,
            without_opt_outs: 1,
            opt_out_missing: 1,
            ..ImportReport::default()
        });

        let text = "1 created, 0 updated, 0 skipped, 0 refused, 2 not sent (2 of them valid), 0 unknown, 1 without their \
                    opt-out";
        assert_eq!(both.to_string(), text);
    }

    #[test]
    fn the_text_of_a_report_ends_with_the_number_of_the_files_that_were_not_sent() {
        let report = |files: &[&str]| ImportReport {
            files_not_sent: files.iter().map(|file| (*file).to_owned()).collect(),
            ..ImportReport::default()
        };

        for (files, end) in [
            (&[][..], " unknown"),
            (&["a.csv"][..], " unknown, 1 file not sent"),
            (&["a.csv", "b.csv"][..], " unknown, 2 files not sent"),
        ] {
            let text = report(files).to_string();
            assert!(text.ends_with(end), "{text}");
        }
    }

    #[test]
    fn each_count_of_a_merged_report_is_the_sum() {
        let report = |count| ImportReport {
            created: count,
            updated: count,
            skipped: count,
            refused: [("quota_exceeded".to_owned(), count)].into(),
            opt_out_failed: count,
            not_sent: count,
            unknown: count,
            opted_out: count,
            opt_out_missing: count,
            valid: count,
            without_opt_outs: count,
            duplicates: count,
            first_failure: None,
            is_stopped: count != 2,
            is_verification: count != 2,
            is_at_ceiling: count != 2,
            is_cut_off: count != 2,
            may_succeed: count != 3,
            files_not_sent: vec![format!("{count}.csv")],
            is_dry_run: count != 2,
        };
        let mut merged = report(2);

        merged.merge(report(3));

        let files = std::mem::take(&mut merged.files_not_sent);
        assert_eq!(files, ["2.csv", "3.csv"]);
        let sum = ImportReport {
            files_not_sent: Vec::new(),
            ..report(5)
        };
        assert_eq!(merged, sum);
        // A duplicate is one of the valid rows, and those count as not sent.
        assert_eq!(merged.total(), 50);
    }
}
