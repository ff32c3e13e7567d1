//! Sends one batch, and then the opt-outs of its rows.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures_core::Stream as _;
use http::StatusCode;
use tokio::sync::OnceCell;

use super::journal::{BatchEnd, JournalWriter};
use super::pace::{Watch, may_be_about_a_row};
use super::report::RowOutcome;
use super::row::{
    AddressHash, AddressSet, EVERYTHING, Entry, ImportRow, NumberedRow, OldAddress, OptOut,
    OptOutsLeft, SyncTask, TaskKind, ToDo, add_missing, has, is_among,
};
use super::sync_state::StateWriter;
use crate::address::address_problem;
use crate::client::{AttemptWatch as _, CallOptions, TakesOptions};
use crate::contacts::{
    BatchOutcome, Contact, Contacts, NewContact, UnsubscribeReason, may_be_missing,
    normalized_address, shows_spam_report,
};
use crate::error::shortened;
use crate::{ApiError, Error, ErrorCode, ErrorKind, Missing, Outcome};

/// The parts that all batches of an import share.
#[derive(Clone, Debug)]
pub(super) struct Sender {
    contacts: Contacts,
    retries: Retries,
    log: Log,
    pub(super) listed: ListedAddresses,
}

/// How many rows without an opt-out a verification retrieves before it lists all contacts: a list of the whole audience for
/// a few rows would take more requests.
const RETRIEVED_FIRST: usize = 200;

/// The addresses of all contacts, which the files of one call share.
#[derive(Clone, Debug, Default)]
pub(super) struct ListedAddresses(Arc<Listed>);

#[derive(Debug, Default)]
struct Listed {
    /// How many rows without an opt-out were looked at so far. Those in the list do not count.
    rows: AtomicUsize,
    /// The row that needs them first lists them; `None` if that failed.
    ///
    /// They are hashes, which take less memory than the texts. Of a million rows without a contact, and with ten million
    /// contacts, the odds that one counts as listed by chance are 1 in 2 million.
    addresses: OnceCell<Option<AddressSet>>,
}

impl ListedAddresses {
    /// Returns whether the next row without an opt-out needs the list.
    fn is_needed(&self) -> bool {
        self.0.rows.fetch_add(1, Ordering::Relaxed) >= RETRIEVED_FIRST
    }

    /// Returns whether the contacts are listed, and one of them has this address.
    pub(super) fn has(&self, address: &str) -> bool {
        let listed = self.0.addresses.get().and_then(Option::as_ref);
        listed.is_some_and(|listed| listed.contains(&AddressHash::new(address)))
    }
}

/// Where the outcomes of rows are recorded.
#[derive(Clone, Debug)]
pub(super) enum Log {
    Nowhere,
    Journal(JournalWriter),
    State(StateWriter),
}

/// The settings of all requests of an import.
#[derive(Clone, Debug)]
struct Retries {
    patient: CallOptions,
    /// The options while the service is down: otherwise one batch after another would wait in vain.
    when_down: CallOptions,
}

impl Retries {
    /// Makes these options patient. A retry policy that the caller has set is used for every request.
    fn new(contacts: &Contacts, options: CallOptions) -> Self {
        let patient = contacts.client.patient(options.clone());
        // Equal policies mean that the caller has set one: it then applies to every request.
        let when_down = match patient.retry == options.retry {
            true => patient.clone(),
            false => options,
        };
        Self { patient, when_down }
    }
}

#[derive(Debug)]
pub(super) struct SentBatch {
    /// One outcome for each row, in the order of the rows.
    pub(super) outcomes: Vec<RowOutcome>,
    pub(super) stop: Option<Stop>,
    /// The places of the rows that are sent again as a whole, although an opt-out failed.
    sent_again: BTreeSet<usize>,
}

impl SentBatch {
    fn new(outcomes: Vec<RowOutcome>, stop: Option<Stop>) -> Self {
        Self {
            outcomes,
            stop,
            sent_again: BTreeSet::new(),
        }
    }

    /// Creates the result of a batch that was not sent.
    fn not_sent(rows: &[NumberedRow], error: Error) -> Self {
        let outcomes = rows.iter().map(NumberedRow::outcome_if_not_sent);
        Self::new(outcomes.collect(), Some(Stop::Fatal(error)))
    }

    /// Creates the result of a batch whose task ended without one.
    pub(super) fn lost(rows: &[NumberedRow], error: Error) -> Self {
        // The request may have been sent before the task ended.
        let outcomes = vec![RowOutcome::Unknown; rows.len()];
        Self::new(outcomes, Some(Stop::Fatal(error)))
    }

    /// Returns whether the outcome of the row at this place is final. If it is not, a resumed import sends the contact of
    /// the row again.
    pub(super) fn is_final(&self, place: usize, row: &NumberedRow, outcome: &RowOutcome) -> bool {
        !self.sent_again.contains(&place) && is_final(row, outcome)
    }
}

impl Sender {
    pub(super) fn new(contacts: Contacts, options: CallOptions, log: Log) -> Self {
        Self {
            retries: Retries::new(&contacts, options),
            contacts,
            log,
            listed: ListedAddresses::default(),
        }
    }

    pub(super) fn journal(&self) -> Option<&JournalWriter> {
        match &self.log {
            Log::Journal(journal) => Some(journal),
            Log::Nowhere | Log::State(_) => None,
        }
    }

    /// Sends the rows and their opt-outs, and records the outcomes in the journal.
    pub(super) async fn send(&self, rows: &[NumberedRow], watch: &Arc<Watch>) -> SentBatch {
        let batch = Batch {
            contacts: &self.contacts,
            retries: &self.retries,
            log: &self.log,
            listed: &self.listed,
            rows,
            watch,
        };
        batch.send().await
    }
}

/// A batch while it is sent.
struct Batch<'a> {
    contacts: &'a Contacts,
    retries: &'a Retries,
    log: &'a Log,
    listed: &'a ListedAddresses,
    rows: &'a [NumberedRow],
    watch: &'a Arc<Watch>,
}

impl Batch<'_> {
    async fn send(&self) -> SentBatch {
        // Such a row is alone in its batch.
        if let [row] = self.rows
            && row.to_do == ToDo::Verify
        {
            return self.verify(row).await;
        }
        // The start is on disk before the request is sent: after a crash, a row with `OnConflict::Error` that may have
        // been applied must not be sent again, because it would be refused as a duplicate of itself. And if a row with
        // opt-outs is refused when it is sent again, its contact may exist, whatever the code of the refusal says.
        if let Err(error) = self.record_start().await {
            return self.not_recorded(error);
        }
        match self.run_task().await {
            Some(sent) => sent,
            None => self.send_contacts().await,
        }
    }

    /// Does what the task of a sync says. Returns `None` if there is no task, or if it is to send contacts or opt-outs.
    async fn run_task(&self) -> Option<SentBatch> {
        // A row with such a task is alone in its batch.
        let ([row], Log::State(state)) = (self.rows, self.log) else {
            return None;
        };
        let task = row.row.task()?;
        Some(match (task.kind, &task.started) {
            (TaskKind::Look(old), Some(before)) => {
                let look = Look {
                    batch: self,
                    state,
                    row,
                    task,
                    before,
                    old,
                };
                let (Ok(sent) | Err(sent)) = look.run().await;
                sent
            }
            (TaskKind::NotCreated, _) => {
                SentBatch::new(vec![RowOutcome::NotSent], Some(Stop::Quota(None)))
            }
            (TaskKind::Leave, _) => self.leave(row, &task.leavers, state).await,
            (TaskKind::Check, _) => self.check(row, &task.recorded, state).await,
            _ => return None,
        })
    }

    async fn send_contacts(&self) -> SentBatch {
        let (mut sent, may_exist) = self.create().await;
        if let (Some(Stop::Quota(_)), Log::State(state)) = (&sent.stop, self.log) {
            state.note_ceiling();
        }
        if let Log::Nowhere = self.log {
            // No later run would send the opt-outs.
            self.watch.keep_trying();
        }
        let contacts = match self.log {
            Log::State(_) => sent.outcomes.clone(),
            Log::Nowhere | Log::Journal(_) => Vec::new(),
        };
        // The opt-outs are sent before the record: a row is finished only if they are. After a crash in between, the
        // row is sent again.
        let left = self.opt_out(&may_exist, &mut sent).await;
        if let Err(error) = self.record_end(&contacts, &sent, left).await {
            // The journal could not restore these outcomes, so they are not reported.
            for outcome in &mut sent.outcomes {
                if outcome.is_applied() || matches!(outcome, RowOutcome::OptOutFailed { .. }) {
                    *outcome = RowOutcome::Unknown;
                }
            }
            sent.stop = Some(Stop::Fatal(self.unwritable(error)));
        }
        sent
    }

    fn unwritable(&self, error: Arc<io::Error>) -> Error {
        let name = match self.log {
            Log::State(_) => "could not write the sync state",
            Log::Nowhere | Log::Journal(_) => "could not write the journal",
        };
        Error::config(name).caused_by(error)
    }

    /// Returns the result of a batch that was not sent, because the log could not be written.
    fn not_recorded(&self, error: Arc<io::Error>) -> SentBatch {
        SentBatch::not_sent(self.rows, self.unwritable(error))
    }

    fn options(&self) -> CallOptions {
        // Asked for each request: another batch may have found out since that the service is back.
        self.options_if(self.watch.is_down())
    }

    fn options_if(&self, is_down: bool) -> CallOptions {
        let options = match is_down {
            true => &self.retries.when_down,
            false => &self.retries.patient,
        };
        CallOptions {
            watch: Some(self.watch.clone()),
            ..options.clone()
        }
    }

    /// Creates the contacts. Also returns, for each row, whether the service may have its contact now.
    async fn create(&self) -> (SentBatch, Vec<bool>) {
        let batch: Vec<_> = self
            .rows
            .iter()
            .filter_map(NumberedRow::contact_to_send)
            .collect();
        let (results, failure) = match batch.is_empty() {
            true => (Vec::new(), None),
            false => self.send_batch(&batch).await,
        };
        let mut results = results.iter();
        let mut outcomes = Vec::with_capacity(self.rows.len());
        let mut may_exist = Vec::with_capacity(self.rows.len());
        let mut sent_again = BTreeSet::new();
        for (place, row) in self.rows.iter().enumerate() {
            let (outcome, exists) = match &row.to_do {
                ToDo::OptOuts(left) => (left.contact.clone(), true),
                ToDo::Verify => (RowOutcome::NotSent, false),
                ToDo::Everything { was_sent } => {
                    let result = results.next();
                    let outcome = match result {
                        Some(EntryResult::Sent(result)) => outcome_of(row, result),
                        Some(EntryResult::NotAccepted(outcome)) => {
                            sent_again.insert(place);
                            outcome.clone()
                        }
                        Some(EntryResult::Failed(outcome)) => outcome.clone(),
                        None => RowOutcome::Unknown,
                    };
                    let exists = match (&outcome, result) {
                        (RowOutcome::Refused { .. }, _) if *was_sent => true,
                        (RowOutcome::Refused { code, .. }, _) if is_about_address(row, code) => {
                            false
                        }
                        // The contact may have existed before the import, and would keep getting broadcasts.
                        (RowOutcome::Refused { .. }, _)
                        | (_, Some(EntryResult::NotAccepted(_)))
                            if !row.fails_on_conflict() =>
                        {
                            true
                        }
                        (_, Some(EntryResult::Sent(result))) => result.may_be_applied(),
                        _ => false,
                    };
                    (outcome, exists)
                }
            };
            outcomes.push(outcome);
            may_exist.push(exists);
        }
        // One refused entry is enough: every later row would be refused, too.
        let is_full = outcomes.iter().any(is_quota_exceeded);
        let failure = failure.map(|error| self.stop_of_failure(error.about(&name_of(self.rows))));
        let stop = match failure {
            None if is_full => Some(Stop::Quota(None)),
            Some(Stop::Failure(error)) if is_full => Some(Stop::Quota(Some(error))),
            failure => failure,
        };
        let sent = SentBatch {
            outcomes,
            stop,
            sent_again,
        };
        (sent, may_exist)
    }

    /// Sends a batch. If it fails, and smaller batches may succeed, this sends its halves, one after the other, and the
    /// halves of those: only a row that fails alone is at fault. If all of them fail, a batch of 100 rows takes 199
    /// requests. After a row that is left to the next run, later rows of its address are left out.
    ///
    /// Returns a result for each entry, and the last error that left entries without one.
    async fn send_batch(&self, batch: &[&NewContact]) -> (Vec<EntryResult>, Option<Error>) {
        let (mut results, mut failure) = (Vec::with_capacity(batch.len()), None);
        let mut left = HashSet::<AddressHash>::new();
        // The next part is the last one, so that entries with the same address apply in their order.
        let mut parts = vec![Part::new(batch)];
        while let Some(part) = parts.pop() {
            // When the row that is left is sent again, it would overwrite a later row of its address.
            let is_left_out = |contact: &&NewContact| {
                !left.is_empty() && left.contains(&AddressHash::new(&contact.email))
            };
            match part.entries.iter().position(is_left_out) {
                None => {}
                Some(0) => {
                    let (first, others) = part.split_at(1);
                    results.push(EntryResult::NotAccepted(first.outcome_if_not_sent()));
                    if !others.entries.is_empty() {
                        parts.push(others);
                    }
                    continue;
                }
                Some(place) => {
                    let (first, second) = part.split_at(place);
                    parts.extend([second, first]);
                    continue;
                }
            }
            match self.send_part(part).await {
                Ok(sent) => results.extend(sent.into_iter().map(EntryResult::Sent)),
                Err(error) if self.smaller_may_succeed(&error, part) => {
                    let part = part.after(&error);
                    match part.entries {
                        [_] if is_about_rows(&error) && error.outcome() == Outcome::Refused => {
                            results.push(EntryResult::Sent(refused_entry(&error)));
                        }
                        [contact] => {
                            left.insert(AddressHash::new(&contact.email));
                            results.push(EntryResult::NotAccepted(part.outcome_if_not_sent()));
                            failure = Some(error);
                        }
                        entries => {
                            let (first, second) = part.split_at(entries.len() / 2);
                            parts.extend([second, first]);
                        }
                    }
                }
                // Anything else would fail for the other parts, too.
                Err(error) => {
                    results.extend(part.results(match part.may_be_applied {
                        true => RowOutcome::Unknown,
                        false => outcome_of_failure(&error),
                    }));
                    // The last one decides: it may be about the key.
                    failure = Some(error);
                    break;
                }
            }
            if self.watch.gives_up() {
                break;
            }
        }
        let not_sent = parts.into_iter().rev();
        results.extend(not_sent.flat_map(Part::results_if_not_sent));
        (results, failure)
    }

    async fn send_part(&self, part: Part<'_>) -> Result<Vec<BatchOutcome>, Error> {
        if part.may_be_applied {
            self.watch.retries();
        }
        // The larger part was retried for as long as the import has patience.
        let options = self.options_if(self.watch.is_down() || part.may_be_applied);
        let result = self.contacts.batch_outcomes(part.entries, options).await;
        self.request_ended(result.as_ref().err()).await;
        result
    }

    /// Records the opt-outs of the rows whose contacts may exist, in their order. The first that fails becomes the
    /// outcome of its row; the others are tried nevertheless, unless the key was refused, the service does not respond in
    /// time, or everything has failed for long.
    ///
    /// Returns the rows whose opt-outs a resumed import should send, by their places. An opt-out that fails is always
    /// one of them: to send it twice does no harm, and whoever mends the service or the topic need not mend the row.
    async fn opt_out(
        &self,
        may_exist: &[bool],
        sent: &mut SentBatch,
    ) -> BTreeMap<usize, OptOutsLeft> {
        let mut opt_outs = OptOuts {
            batch: self,
            fails_with: None,
        };
        let mut all_left = BTreeMap::new();
        for (place, (row, may_exist)) in self.rows.iter().zip(may_exist).enumerate() {
            if row.row.opt_outs().is_empty() {
                continue;
            }
            let before = sent.outcomes[..place].iter();
            let finished = before.filter(|outcome| **outcome != RowOutcome::NotSent);
            self.watch.set_finished(finished.count());
            let contact = sent.outcomes[place].clone();
            let outcome = opt_outs.send(row, &contact, *may_exist).await;
            // A row that is sent again brings its opt-outs with it. The report says that one failed: without a journal, only
            // the caller can send the row again.
            let is_sent_again = !is_final(row, &contact);
            if is_sent_again && matches!(contact, RowOutcome::Refused { .. }) {
                if let Err(failed) = outcome {
                    sent.outcomes[place] = failed;
                    sent.sent_again.insert(place);
                }
                continue;
            }
            // That the row was not sent, or that its outcome is unknown, says that its opt-outs may be missing.
            if is_sent_again && (contact == RowOutcome::NotSent || sent.sent_again.contains(&place))
            {
                continue;
            }
            let is_untried = !may_exist && contact == RowOutcome::Unknown;
            // A row that fails on conflict is not sent again.
            let is_left = outcome.is_err() || is_untried && row.fails_on_conflict();
            let (Ok(now) | Err(now)) = outcome;
            sent.outcomes[place] = now.clone();
            if is_left {
                all_left.insert(place, OptOutsLeft { contact, now });
            }
        }
        let failed = opt_outs.fails_with;
        if let Some(error) = failed.filter(|error| self.is_refused_for_all(error)) {
            sent.stop = Some(Stop::Fatal(error.about(&name_of(self.rows))));
        }
        all_left
    }

    /// Returns whether other opt-outs are not tried after this error: they would fail in the same way, or take too long. A
    /// hundred of them are sent one after another, and a run that is to stop must not wait even for one.
    fn fails_for_others(&self, error: &Error) -> bool {
        let fails_all = may_be_about_a_row(error) && self.watch.blames_all();
        is_refused_key(error)
            || takes_long(error)
            // That a contact is missing says nothing about the next one.
            || (fails_all || self.watch.gives_up()) && !error.is_not_found()
    }

    /// Leaves out the opt-out of everything if the contact has one already. Another one would replace the reason of the
    /// first, and might unlock a contact after a spam report. Topics alone need no look at the contact.
    ///
    /// If this fails, the opt-out of everything is not sent, and only topics are left to send.
    async fn leave_out_known(
        &self,
        row: &NumberedRow,
        address: &str,
        to_send: &mut Vec<OptOut>,
        may_be_gone: bool,
    ) -> Result<(), Error> {
        if !has(to_send, &EVERYTHING) {
            return Ok(());
        }
        let is_opted_out = match self.retrieve(address).await {
            Ok(Some(contact)) => contact.is_opted_out(),
            Ok(None) => {
                if may_be_gone {
                    to_send.clear();
                }
                false
            }
            // Nothing else is known of its opt-outs.
            Err(error) if error.is_malformed_contact() => shows_spam_report(&error, address),
            Err(error) => {
                to_send.retain(OptOut::is_topic);
                return Err(error);
            }
        };
        if is_opted_out {
            // The "no" of a topic may be its default, so it is sent: nobody knows whether it is an answer.
            for opt_out in to_send.extract_if(.., |opt_out| !opt_out.is_topic()) {
                // As if it had been sent, which is what an earlier run may have done.
                self.note_sent(row, &opt_out);
            }
        }
        Ok(())
    }

    /// Notes an opt-out that a contact has, if other rows may leave its address.
    fn note_sent(&self, row: &NumberedRow, opt_out: &OptOut) {
        if let Log::State(state) = self.log
            && row.row.task_kind() == Some(TaskKind::OptOut)
        {
            state.note_sent(row.row.address(), opt_out);
        }
    }

    /// Notes that the service has an opt-out of a row of a sync, or no such topic. If another one of the row fails, later
    /// runs do not send this one again: the person may have subscribed since.
    fn note_ended(&self, row: &NumberedRow, opt_out: &OptOut, is_recorded: bool) {
        if let (Log::State(state), Some(key)) = (self.log, row.row.key_text()) {
            state.note_ended(key, opt_out, is_recorded);
        }
    }

    /// Notes that this run has opted out the contact of a row, if that matters for what is told about it.
    fn note_opted_out(&self, row: &NumberedRow, opt_out: &OptOut) {
        if let (Log::State(state), OptOut::Everything(_)) = (self.log, opt_out)
            && let Some(key) = row.row.key_text()
        {
            state.note_opted_out(key);
            let started = row.row.task().and_then(|task| task.started.as_ref());
            let is_of_person = started.is_some_and(|entry| entry.is_of_person(opt_out));
            if row.row.task_kind() == Some(TaskKind::OptOut) && !is_of_person {
                state.note_address_opted_out(row.row.address());
            }
        }
    }

    async fn record_opt_out(&self, address: &str, opt_out: &OptOut) -> Result<(), Error> {
        // As given: the call converts it, as in every other path.
        let call = self.contacts.unsubscribe(address);
        let call = match opt_out {
            OptOut::Everything(reason) => call.reason(*reason),
            OptOut::Topic(name) => call.topic(name),
        };
        let result = call.options(self.options()).apply().await;
        self.request_ended(result.as_ref().err()).await;
        result.map(drop)
    }

    /// Notes how a request has ended.
    async fn request_ended(&self, error: Option<&Error>) {
        self.watch.request_ended(error);
        self.record_hold(error).await;
    }

    /// Records that a request failed because the service has asked to wait.
    async fn record_hold(&self, error: Option<&Error>) {
        // A request that an earlier 429 held back has the outcome `NotSent`. That 429 is recorded already.
        let refused = error.filter(|error| error.outcome() != Outcome::NotSent);
        let Some(wait) = refused
            .filter(|error| error.is_rate_limited())
            .and_then(Error::retry_after)
        else {
            return;
        };
        // If it cannot be written, the record of the outcomes fails as well and ends the import.
        let _ = match self.log {
            Log::Nowhere => Ok(()),
            Log::Journal(journal) => journal.record_hold(wait).await,
            Log::State(state) => state.record_hold(wait).await,
        };
    }

    /// Records that rows are about to be sent, unless a resumed import may send them again without any care.
    async fn record_start(&self) -> Result<(), Arc<io::Error>> {
        let journal = match self.log {
            Log::Nowhere => return Ok(()),
            Log::State(state) => return state.record_start(self.rows).await,
            Log::Journal(journal) => journal,
        };
        let started = self.rows.iter().filter(|row| is_recorded_before(row));
        journal
            .record_started(started.map(|row| row.number).collect())
            .await
    }

    /// Opts out the contact of an address that rows had before. Opt-outs that the contact got after the rows looked at
    /// it are sent to their new addresses first.
    async fn leave(&self, row: &NumberedRow, keys: &[String], state: &StateWriter) -> SentBatch {
        let address = row.row.address();
        let contact = match self.retrieve_with_topics(address).await {
            Ok(contact) => contact,
            Err(error) => return self.opt_out_not_sent(&EVERYTHING, error),
        };
        let mut outcome = RowOutcome::Skipped;
        if let Some(contact) = contact {
            let leavers: Vec<_> = keys
                .iter()
                .filter_map(|key| state.find_recent(key))
                .collect();
            // Other rows that had the address, such as deleted ones, have sent these opt-outs.
            let of_others = state.sent_to(address);
            let is_own = leavers.iter().any(|entry| entry.is_maybe_out(address));
            let is_own = is_own || has(&of_others, &EVERYTHING);
            let found = opt_outs_of(&contact, is_own, &of_others);
            for entry in &leavers {
                let is_new = |new: &&OptOut| !has(&entry.taken, new) && !has(&entry.opt_outs, new);
                let mut new: Vec<_> = found.iter().filter(is_new).cloned().collect();
                if let Err(error) = self
                    .leave_out_known(row, &entry.address, &mut new, true)
                    .await
                {
                    return self.opt_out_not_sent(&EVERYTHING, error);
                }
                for opt_out in &new {
                    let recorded = self.record_if_exists(&entry.address, opt_out).await;
                    if let Err(error) = recorded {
                        return self.opt_out_not_sent(opt_out, error);
                    }
                }
            }
            if !contact.is_opted_out() {
                let started = state.update(keys, |entry| {
                    add_missing(&mut entry.taken, &found);
                    entry.set_maybe_out(address, true);
                });
                if let Err(error) = started.await {
                    return self.not_recorded(error);
                }
                if let Err(error) = self.record_if_exists(address, &EVERYTHING).await {
                    if !self.may_be_out(address, &error).await {
                        let unchanged = state.update(keys, |entry| {
                            entry.set_maybe_out(address, false);
                        });
                        if let Err(error) = unchanged.await {
                            return self.not_recorded(error);
                        }
                    }
                    return self.opt_out_not_sent(&EVERYTHING, error);
                }
                outcome = RowOutcome::OptedOut;
            }
        }
        let left = state.update(keys, |entry| {
            entry.remove_to_leave(address);
            entry.add_former(address, true);
        });
        let stop = left
            .await
            .err()
            .map(|error| Stop::Fatal(self.unwritable(error)));
        let outcome = stop.as_ref().map_or(outcome, |_| RowOutcome::Unknown);
        SentBatch::new(vec![outcome], stop)
    }

    /// Finds out whether the contact of a row has opted in again. If that cannot be known, the row counts as not opted
    /// in.
    async fn check(&self, row: &NumberedRow, lost: &[OptOut], state: &StateWriter) -> SentBatch {
        let retrieved = self.retrieve(row.row.address()).await;
        if let (Ok(Some(contact)), Some(key)) = (&retrieved, row.row.key_text()) {
            if !contact.is_opted_out() {
                state.note_reachable(key);
            }
            let opt_outs = opt_outs_of(contact, false, &[]);
            let is_left = |opt_out: &OptOut| {
                !has(row.row.opt_outs(), opt_out) && (lost.is_empty() || has(lost, opt_out))
            };
            if !opt_outs.iter().any(is_left) {
                state.note_subscribed(key);
            }
        }
        let refused = retrieved
            .err()
            .filter(|error| self.is_refused_for_all(error));
        SentBatch::new(vec![RowOutcome::Skipped], refused.map(Stop::Fatal))
    }

    /// Looks whether the service has the contact of a row, and its opt-outs.
    async fn verify(&self, row: &NumberedRow) -> SentBatch {
        let (address, opt_outs) = (row.row.address(), row.row.opt_outs());
        if opt_outs.is_empty() && self.listed.is_needed() {
            if let Err(not_verified) = self.list_once().await {
                return not_verified;
            }
            if self.listed.has(address) {
                return SentBatch::new(vec![RowOutcome::Valid], None);
            }
        }
        let retrieved = match opt_outs.iter().any(OptOut::is_topic) {
            true => self.retrieve_with_topics(address).await,
            false => self.retrieve(address).await,
        };
        let contact = match retrieved {
            Ok(contact) => contact,
            // No request can name such an address, for example an empty one.
            Err(error) if error.kind() == ErrorKind::Input => None,
            Err(error) => return self.not_looked_at(error),
        };
        let outcome = match contact {
            None => RowOutcome::Refused {
                code: ErrorCode::NotFound,
                message: Some("there is no contact with this address".to_owned()),
                retryable: false,
            },
            Some(contact) => {
                let is_missing = |opt_out: &&OptOut| match opt_out {
                    OptOut::Everything(_) => !contact.is_opted_out(),
                    OptOut::Topic(name) => contact.topics.get(name) != Some(&false),
                };
                let missing = opt_outs.iter().filter(is_missing).map(text_of);
                match missing.reduce(|all, next| format!("{all} and {next}")) {
                    None => RowOutcome::Valid,
                    Some(missing) => RowOutcome::OptOutMissing {
                        message: format!("the service does not have {missing}"),
                    },
                }
            }
        };
        SentBatch::new(vec![outcome], None)
    }

    /// Lists all contacts, unless an earlier row has done so. If that fails, returns the result of this row: without the
    /// list, rows without an opt-out are not looked at. Only the row that has listed them reports the error.
    async fn list_once(&self) -> Result<(), SentBatch> {
        let mut failure = None;
        let failed = &mut failure;
        let list = move || async move {
            match self.list().await {
                Ok(listed) => Some(listed),
                Err(error) => {
                    *failed = Some(error);
                    None
                }
            }
        };
        let is_listed = self.listed.0.addresses.get_or_init(list).await.is_some();
        if is_listed {
            return Ok(());
        }
        let stop = failure.map(|error| self.stop_of_failure(error));
        Err(SentBatch::new(vec![RowOutcome::Unknown], stop))
    }

    /// Lists the addresses of all contacts. A malformed one is left out, so that its row is retrieved.
    async fn list(&self) -> Result<AddressSet, Error> {
        // Patient even while the service is down: all other rows need the list.
        let list = self.contacts.list().options(self.options_if(false));
        let mut pages = list.large_pages().pages();
        let mut listed = AddressSet::default();
        while let Some(page) = poll_fn(|context| Pin::new(&mut pages).poll_next(context)).await {
            self.request_ended(page.as_ref().err()).await;
            let contacts = page?.data.into_iter();
            listed.extend(contacts.map(|contact| AddressHash::new(&contact.email)));
            if self.watch.gives_up() {
                let message = "the run was asked to stop before it had listed all contacts";
                return Err(Error::transport(message));
            }
        }
        Ok(listed)
    }

    /// Returns whether the contact may be opted out of everything, although the opt-out failed with this error.
    async fn may_be_out(&self, address: &str, error: &Error) -> bool {
        match error.outcome() {
            Outcome::NotSent | Outcome::Refused | Outcome::Unchanged => false,
            Outcome::Unknown | Outcome::Applied => match self.retrieve(address).await {
                Ok(contact) => contact.is_some_and(|contact| contact.unsubscribed),
                Err(_) => true,
            },
        }
    }

    /// Records an opt-out, unless there is no contact.
    async fn record_if_exists(&self, address: &str, opt_out: &OptOut) -> Result<(), Error> {
        match self.record_opt_out(address, opt_out).await {
            // The call has proved it.
            Err(error) if error.missing() == Some(Missing::Contact) => Ok(()),
            result => result,
        }
    }

    /// Retrieves a contact for the row that looks at it.
    async fn look_at(&self, address: &str) -> Result<Option<Contact>, SentBatch> {
        let retrieved = self.retrieve_with_topics(address).await;
        retrieved.map_err(|error| self.not_looked_at(error))
    }

    /// Retrieves a contact whose opt-outs another address is to get.
    async fn retrieve_with_topics(&self, address: &str) -> Result<Option<Contact>, Error> {
        let contact = self.retrieve(address).await?;
        if let Some(contact) = &contact {
            contact.require_topics()?;
        }
        Ok(contact)
    }

    /// Retrieves a contact; `None` if there certainly is none.
    async fn retrieve(&self, address: &str) -> Result<Option<Contact>, Error> {
        let call = self.contacts.retrieve_own(address).options(self.options());
        let retrieved = call.await;
        self.request_ended(retrieved.as_ref().err()).await;
        let error = match retrieved {
            Ok(contact) => return Ok(Some(contact)),
            Err(error) if may_be_missing(&error) => error,
            Err(error) => return Err(error),
        };
        // Something other than the service may have sent the 404.
        let absent = self.contacts.is_absent(address, self.options()).await;
        self.request_ended(absent.as_ref().err()).await;
        match absent {
            Ok(true) => Ok(None),
            Ok(false) => Err(error.not_from_service()),
            Err(failed) if failed.is_retryable() => Err(error.retryable()),
            Err(_) => Err(error),
        }
    }

    /// Records the outcomes that are final, and the opt-outs that are left. A resumed import sends all other rows
    /// again.
    async fn record_end(
        &self,
        contacts: &[RowOutcome],
        sent: &SentBatch,
        mut left: BTreeMap<usize, OptOutsLeft>,
    ) -> Result<(), Arc<io::Error>> {
        let journal = match self.log {
            Log::Nowhere => return Ok(()),
            Log::State(state) => {
                let outcomes = contacts.iter().zip(&sent.outcomes);
                let ended = self.rows.iter().zip(outcomes).enumerate();
                let ended = ended.filter(|(place, (row, (contact, now)))| {
                    **contact == RowOutcome::NotSent || sent.is_final(*place, row, now)
                });
                let ended = ended.map(|(_, (row, (contact, outcome)))| (row, contact, outcome));
                return state.record_end(ended).await;
            }
            Log::Journal(journal) => journal,
        };
        let (mut end, mut sent_again) = (BatchEnd::default(), HashSet::new());
        for (place, (row, outcome)) in self.rows.iter().zip(&sent.outcomes).enumerate() {
            let left = left.remove(&place);
            let is_known = left.is_some() || sent.is_final(place, row, outcome);
            // The older row of its address is sent again, and would replace it if it was not.
            if is_known && !row.fails_on_conflict() && sent_again.contains(&row.address) {
                continue;
            }
            if let Some(left) = left {
                end.opt_outs_left.push((row.number, &row.row, left));
            } else if is_known {
                end.finished.push((row.number, &row.row, outcome));
            } else {
                sent_again.insert(row.address);
                if is_recorded_before(row) && *outcome != RowOutcome::Unknown {
                    // Otherwise a resumed import would take these rows for sent.
                    end.not_applied.push(row.number);
                }
            }
        }
        journal.record_end(end).await
    }

    /// Creates the result of the row whose contact could not be retrieved.
    fn not_looked_at(&self, error: Error) -> SentBatch {
        let outcome = match error.status() == Some(StatusCode::NOT_FOUND) {
            // The 404 says nothing about the row.
            true => RowOutcome::Unknown,
            false => outcome_of_failure(&error),
        };
        let stop = self.stop_of_failure(error.about(&name_of(self.rows)));
        SentBatch::new(vec![outcome], Some(stop))
    }

    /// Creates the result of the row whose opt-out failed. The next sync sends it.
    fn opt_out_not_sent(&self, opt_out: &OptOut, error: Error) -> SentBatch {
        let outcome = opt_out_failed(opt_out, &error);
        let stop = self
            .is_refused_for_all(&error)
            .then_some(Stop::Fatal(error));
        SentBatch::new(vec![outcome], stop)
    }

    /// Returns what the failure of a batch means for the import.
    fn stop_of_failure(&self, error: Error) -> Stop {
        if self.is_refused_for_all(&error) {
            Stop::Fatal(error)
        } else if error.is_quota_exceeded() {
            Stop::Quota(None)
        } else {
            Stop::Failure(error)
        }
    }

    /// Returns whether every other request would be refused, too: because of the key, or by a firewall that has refused
    /// everything for long.
    fn is_refused_for_all(&self, error: &Error) -> bool {
        is_refused_key(error) || error.is_foreign_403() && self.watch.blames_all()
    }

    /// Returns whether smaller parts may succeed after this one has failed: its halves or, if it is a single row, the next
    /// parts.
    fn smaller_may_succeed(&self, error: &Error, part: Part<'_>) -> bool {
        // If the part may have been applied, this is a retry, which must do no harm.
        let may_be_sent_again = error.outcome() == Outcome::Refused
            || part
                .entries
                .iter()
                .all(|contact| !contact.fails_on_conflict());
        is_refused_as_a_whole(error)
            || may_be_about_a_row(error) && !self.watch.blames_all() && may_be_sent_again
    }
}

/// The opt-outs of a batch while they are sent, one after another.
struct OptOuts<'a> {
    batch: &'a Batch<'a>,
    /// The error with which the next opt-out fails without a request, because of an earlier one.
    fails_with: Option<Error>,
}

impl OptOuts<'_> {
    /// Sends the opt-outs of a row whose contact has this outcome. Returns the outcome of the row, as an error if one of
    /// them failed.
    async fn send(
        &mut self,
        row: &NumberedRow,
        contact: &RowOutcome,
        may_exist: bool,
    ) -> Result<RowOutcome, RowOutcome> {
        let batch = self.batch;
        let address = row.row.address();
        // An opt-out must not get lost only because the outcome of the row is unknown.
        let was_retried = batch.watch.has_retried();
        let opt_outs = row.row.opt_outs().iter().filter(|_| may_exist);
        let (to_send, known): (Vec<_>, Vec<_>) =
            opt_outs.partition(|opt_out| row.sends(opt_out, contact, was_retried));
        if contact.is_applied() {
            for opt_out in known {
                batch.note_ended(row, opt_out, true);
            }
        }
        let mut to_send: Vec<_> = to_send.into_iter().cloned().collect();
        // The service does not have the contact, as the status of the row says. For a row of a sync that has only
        // opt-outs, there is no status, and the status of an earlier run may be old.
        let is_resumed = matches!(row.to_do, ToDo::OptOuts(_));
        let may_be_gone = is_resumed || !contact.is_applied() || *contact == RowOutcome::OptedOut;
        // One after another, they may take longer than a run that is to stop has left.
        if self.fails_with.is_none() && !to_send.is_empty() && batch.watch.gives_up() {
            let message = "the run was asked to stop before it sent the opt-out";
            self.fails_with = Some(Error::transport(message));
        }
        let mut outcome = Ok(contact.clone());
        if self.fails_with.is_none() && row.looks_before(&to_send, contact) {
            let known = batch.leave_out_known(row, address, &mut to_send, may_be_gone);
            match known.await {
                Ok(()) if to_send.is_empty() && *contact == RowOutcome::OptedOut => {
                    return Ok(RowOutcome::Skipped);
                }
                Ok(()) => {}
                Err(error) => {
                    outcome = Err(opt_out_failed(&EVERYTHING, &error));
                    self.note_failure(error);
                }
            }
        }
        let mut are_gone = !to_send.is_empty();
        for opt_out in &to_send {
            let recorded = match self.fails_with.take() {
                Some(error) => Err(error),
                None => batch.record_opt_out(address, opt_out).await,
            };
            let Err(error) = recorded else {
                are_gone = false;
                batch.note_sent(row, opt_out);
                batch.note_opted_out(row, opt_out);
                batch.note_ended(row, opt_out, true);
                continue;
            };
            let is_gone = may_be_gone && error.missing() == Some(Missing::Contact);
            are_gone &= is_gone;
            if error.missing() == Some(Missing::Topic) {
                batch.note_ended(row, opt_out, false);
            }
            if outcome.is_ok() && !is_gone {
                outcome = Err(opt_out_failed(opt_out, &error));
            }
            self.note_failure(error);
        }
        match outcome {
            Ok(RowOutcome::OptedOut) if are_gone => Ok(RowOutcome::Skipped),
            outcome => outcome,
        }
    }

    fn note_failure(&mut self, error: Error) {
        let is_for_others = self.batch.fails_for_others(&error);
        self.fails_with = is_for_others.then(|| for_the_next(error));
    }
}

/// A row that looks at the contact of the address that it no longer has.
struct Look<'a> {
    batch: &'a Batch<'a>,
    state: &'a StateWriter,
    row: &'a NumberedRow,
    task: &'a SyncTask,
    /// Its entry, which has the old address.
    before: &'a Entry,
    old: OldAddress,
}

/// What a row has found at the addresses that it had.
struct Findings {
    /// The opt-outs for its next address.
    carried: Vec<OptOut>,
    /// The addresses that a sync may have opted out.
    maybe_out: Vec<String>,
    /// Whether the person has made one of the opt-outs.
    is_by_recipient: bool,
}

impl Findings {
    /// Notes how the contact of an address was opted out. `is_own` says that a sync may have done it.
    fn note_contact(&mut self, address: &str, contact: &Contact, is_own: bool) {
        self.is_by_recipient |= is_opted_out_by_recipient(contact);
        if is_own && contact.unsubscribed {
            self.maybe_out.push(address.to_owned());
        }
    }
}

impl Look<'_> {
    /// Records the opt-outs of the old contact for the next address. The opt-outs of the row that are new go to the old
    /// contact, too: the next address may be refused. The result of the batch is an error if a step has failed, so that the
    /// next ones are left out.
    async fn run(&self) -> Result<SentBatch, SentBatch> {
        let mut entry = self.before.clone();
        // If an earlier run has looked at the contact, and another row has the address since then, its new opt-outs are
        // not for this row.
        if entry.carried.is_some() && self.old == OldAddress::Taken {
            let left = &mut entry.left;
            let known = self
                .batch
                .leave_out_known(self.row, &self.before.address, left, true)
                .await;
            known.map_err(|error| self.batch.opt_out_not_sent(&EVERYTHING, error))?;
        } else {
            self.look_at_contacts(&mut entry).await?;
        }
        if self.old.is_held() {
            // The contact is the one of another row, so they go only to the next address.
            let new = self.row.row.opt_outs().iter();
            let new = new.filter(|opt_out| !has(&self.before.opt_outs, opt_out));
            add_missing(entry.carried.get_or_insert_default(), new);
        }
        self.send_left(entry).await
    }

    /// Looks at the contacts of the old address and of those that the row has still to leave, and notes in the entry what
    /// they have. Leaves out the opt-outs that the old contact has already.
    async fn look_at_contacts(&self, entry: &mut Entry) -> Result<(), SentBatch> {
        let contact = self.batch.look_at(&self.before.address).await?;
        let mut findings = match &contact {
            Some(contact) => {
                // The "no" of a topic may be its default, so it is sent.
                if contact.is_opted_out() {
                    entry.left.retain(OptOut::is_topic);
                }
                self.findings(contact)
            }
            None => {
                entry.left.clear();
                self.findings_without_contact()
            }
        };
        add_missing(&mut findings.carried, &self.before.left);
        findings.is_by_recipient |= self.before.is_of_person(&EVERYTHING);
        self.look_at_others(&mut findings).await?;
        // No sync opts out an address that a row has.
        let may_be_own = matches!(self.old, OldAddress::Left | OldAddress::LeftByAnother);
        if may_be_own && has(&findings.carried, &EVERYTHING) && !findings.is_by_recipient {
            self.state.note_moved_opt_out(&self.before.key);
        }
        self.note_findings(entry, findings, contact.is_some());
        Ok(())
    }

    /// Returns what the old contact has for the row.
    fn findings(&self, contact: &Contact) -> Findings {
        let before = self.before;
        // Other rows that had the address have sent these opt-outs. They are not for this row.
        let of_others = self.state.sent_to(&before.address);
        let is_others = has(&of_others, &EVERYTHING);
        let is_own = before.is_maybe_out(&before.address);
        let earlier = before.carried.as_ref().filter(|_| !before.is_waiting);
        // The run that was killed may have opted out the contact for another row.
        let is_maybe_out = is_others || is_own && earlier.is_some();
        let mut carried = opt_outs_of(contact, is_maybe_out, &of_others);
        carried.extend(earlier.into_iter().flatten().cloned());
        let mut findings = Findings {
            carried,
            maybe_out: self.task.opted_out.clone(),
            is_by_recipient: false,
        };
        findings.note_contact(&before.address, contact, is_own || is_others);
        findings
    }

    /// Returns what is known without the old contact: only the opt-outs of the table, or those that an earlier run has
    /// found.
    fn findings_without_contact(&self) -> Findings {
        let earlier = self.before.carried.as_ref();
        Findings {
            carried: earlier.unwrap_or(&self.before.opt_outs).clone(),
            maybe_out: self.task.opted_out.clone(),
            is_by_recipient: false,
        }
    }

    /// Looks at the contacts of the other addresses that the row is to leave.
    async fn look_at_others(&self, findings: &mut Findings) -> Result<(), SentBatch> {
        let before = self.before;
        for address in &before.to_leave {
            let is_at = |other: &str| normalized_address(address) == normalized_address(other);
            if is_at(&before.address) {
                continue;
            }
            if is_at(self.row.row.address()) {
                // The row comes back to it, and finds its opt-outs there.
                if before.is_maybe_out(address) {
                    findings.maybe_out.push(address.clone());
                }
                continue;
            }
            if let Some(contact) = self.batch.look_at(address).await? {
                let of_others = self.state.sent_to(address);
                let is_own = before.is_maybe_out(address) || has(&of_others, &EVERYTHING);
                let found = opt_outs_of(&contact, is_own, &of_others);
                let is_new = |opt_out: &&OptOut| !has(&before.taken, opt_out);
                add_missing(&mut findings.carried, found.iter().filter(is_new));
                findings.note_contact(address, &contact, is_own);
            }
        }
        Ok(())
    }

    /// Notes in the entry what was found, and whether the row leaves its old address later.
    fn note_findings(&self, entry: &mut Entry, findings: Findings, exists: bool) {
        let address = &self.before.address;
        let mut maybe_out = findings.maybe_out;
        entry.is_by_person = findings.is_by_recipient && has(&findings.carried, &EVERYTHING);
        entry.carried = Some(findings.carried);
        entry.is_waiting = false;
        entry.remove_to_leave(address);
        if exists && self.task.is_to_leave {
            if has(&entry.left, &EVERYTHING) {
                maybe_out.push(address.clone());
            }
            entry.to_leave.push(address.clone());
        } else {
            entry.add_former(address, !self.old.is_held());
        }
        maybe_out.retain(|address| is_among(&entry.to_leave, address));
        entry.maybe_out = maybe_out;
    }

    /// Sends the opt-outs that are left to the old contact. Records the entry before and after that.
    async fn send_left(&self, mut entry: Entry) -> Result<SentBatch, SentBatch> {
        let address = &self.before.address;
        let recorded = self.state.record(vec![entry.clone()]).await;
        recorded.map_err(|error| self.batch.not_recorded(error))?;
        let to_send = std::mem::take(&mut entry.left);
        for opt_out in &to_send {
            let sent = self.batch.record_if_exists(address, opt_out).await;
            sent.map_err(|error| self.batch.opt_out_not_sent(opt_out, error))?;
            self.state.note_sent(address, opt_out);
        }
        if to_send.is_empty() {
            return Ok(SentBatch::new(vec![RowOutcome::Skipped], None));
        }
        add_missing(&mut entry.opt_outs, &to_send);
        let (outcome, stop) = match self.state.record(vec![entry]).await {
            Err(error) => {
                let stop = Stop::Fatal(self.batch.unwritable(error));
                (RowOutcome::Unknown, Some(stop))
            }
            Ok(()) if has(&to_send, &EVERYTHING) => (RowOutcome::OptedOut, None),
            Ok(()) => (RowOutcome::Skipped, None),
        };
        Ok(SentBatch::new(vec![outcome], stop))
    }
}

/// Returns the opt-outs of a contact without the topics of other rows. If a sync may have opted it out, returns only
/// those that the sync cannot have made.
fn opt_outs_of(contact: &Contact, is_maybe_out: bool, of_others: &[OptOut]) -> Vec<OptOut> {
    let is_own = is_maybe_out && !is_opted_out_by_recipient(contact);
    let mut opt_outs = ImportRow::from(contact.clone()).opt_outs().to_vec();
    opt_outs.retain(|opt_out| match opt_out {
        OptOut::Everything(_) => !is_own,
        OptOut::Topic(_) => !has(of_others, opt_out),
    });
    opt_outs
}

/// Returns whether the reason of an opt-out says that the person has made it.
fn is_opted_out_by_recipient(contact: &Contact) -> bool {
    matches!(
        contact.unsubscribe_reason,
        Some(UnsubscribeReason::Preferences | UnsubscribeReason::Complaint)
    )
}

/// Returns whether the journal needs to know that a row is about to be sent.
fn is_recorded_before(row: &NumberedRow) -> bool {
    row.to_do == ToDo::Everything { was_sent: false }
        && (row.fails_on_conflict() || !row.row.opt_outs().is_empty())
}

/// A part of a batch, which is sent as a batch of its own.
#[derive(Clone, Copy, Debug)]
struct Part<'a> {
    entries: &'a [&'a NewContact],
    /// Whether a larger part failed, and may have been applied.
    may_be_applied: bool,
}

impl<'a> Part<'a> {
    fn new(entries: &'a [&'a NewContact]) -> Self {
        Self {
            entries,
            may_be_applied: false,
        }
    }

    fn after(self, error: &Error) -> Self {
        let may_be_applied = self.may_be_applied || error.outcome() != Outcome::Refused;
        Self {
            may_be_applied,
            ..self
        }
    }

    fn split_at(self, place: usize) -> (Self, Self) {
        let (first, second) = self.entries.split_at(place);
        let part = |entries| Self { entries, ..self };
        (part(first), part(second))
    }

    fn results(self, outcome: RowOutcome) -> Vec<EntryResult> {
        vec![EntryResult::Failed(outcome); self.entries.len()]
    }

    fn results_if_not_sent(self) -> Vec<EntryResult> {
        self.results(self.outcome_if_not_sent())
    }

    /// Returns what it means for each of its rows that it is not sent, or not accepted.
    fn outcome_if_not_sent(self) -> RowOutcome {
        match self.may_be_applied {
            true => RowOutcome::Unknown,
            false => RowOutcome::NotSent,
        }
    }
}

/// The result of an entry of a batch.
#[derive(Clone, Debug)]
enum EntryResult {
    /// The service has responded with a result for it.
    Sent(BatchOutcome),
    /// It or an earlier entry of its address is not accepted, even alone, and nothing says that the contact is at fault: it
    /// is too large, a firewall refuses it, or the service cannot process it. This is the outcome of its row.
    NotAccepted(RowOutcome),
    /// It has no result. This is the outcome of its row.
    Failed(RowOutcome),
}

/// Why no further batch is started.
#[derive(Debug)]
pub(super) enum Stop {
    /// The plan's contact ceiling is crossed. A sync continues without new contacts. The error is that of a part of the
    /// batch that failed, too.
    Quota(Option<Error>),
    /// The caller asked for it.
    Asked,
    /// Nothing more can be done: the key was refused, or the journal cannot be used.
    Fatal(Error),
    /// A batch failed permanently. It stops the import only if that was asked for.
    Failure(Error),
}

/// Returns what the result of an entry means for its row.
fn outcome_of(row: &NumberedRow, result: &BatchOutcome) -> RowOutcome {
    let retryable = result.is_retryable() && !row.fails_on_conflict();
    match result {
        BatchOutcome::Created => RowOutcome::Created,
        BatchOutcome::Updated => RowOutcome::Updated,
        BatchOutcome::Skipped => RowOutcome::Skipped,
        BatchOutcome::Failed { code, message } => RowOutcome::Refused {
            code: code.clone(),
            message: message.as_deref().map(shortened),
            retryable,
        },
        BatchOutcome::Unknown => RowOutcome::Unknown,
    }
}

/// Returns the result of an entry that was refused alone.
fn refused_entry(error: &Error) -> BatchOutcome {
    BatchOutcome::Failed {
        code: code_of(error),
        message: error.api().and_then(ApiError::message).map(str::to_owned),
    }
}

/// Returns what a batch that failed as a whole means for each of its rows.
fn outcome_of_failure(error: &Error) -> RowOutcome {
    match error.outcome() {
        // With another key, or later, the rows can be sent.
        Outcome::Refused if !is_about_rows(error) => RowOutcome::NotSent,
        Outcome::NotSent => RowOutcome::NotSent,
        Outcome::Unchanged | Outcome::Unknown | Outcome::Applied => RowOutcome::Unknown,
        Outcome::Refused => RowOutcome::Refused {
            code: code_of(error),
            message: error.api().and_then(|api| api.message()).map(shortened),
            retryable: error.is_retryable(),
        },
    }
}

pub(super) fn is_refused_key(error: &Error) -> bool {
    let is_forbidden = error.is_forbidden() && !error.is_foreign_403();
    error.is_unauthorized() || error.is_key_not_permitted() || is_forbidden
}

/// Returns whether the service refused a whole batch because it is too large, or because of one of its entries. Then no
/// attempt has applied anything, and smaller batches may succeed. By section 4.2 of the interface document, the service
/// refuses only lengths that no import sends, but a gateway may have other limits.
fn is_refused_as_a_whole(error: &Error) -> bool {
    let is_too_large = error.status() == Some(StatusCode::PAYLOAD_TOO_LARGE);
    let is_refused = is_too_large || error.is_validation_error() || error.is_already_exists();
    is_refused && error.outcome() == Outcome::Refused
}

/// Returns whether the refusal of a whole batch says something about its rows: only with a code of the document does it
/// certainly come from the service. A gateway refuses a path, a method or a body, too, and then the rows and their
/// opt-outs would be lost.
fn is_about_rows(error: &Error) -> bool {
    error.is_validation_error() || error.is_already_exists() || error.is_quota_exceeded()
}

/// Returns whether a refusal says that the address of the row is invalid. Then there is no contact to opt out, and it would
/// take up to three requests to find that out.
fn is_about_address(row: &NumberedRow, code: &ErrorCode) -> bool {
    let Some(contact) = row.row.contact() else {
        return false;
    };
    match code {
        // The code does not say whether the address or a property is invalid (interface section 7).
        ErrorCode::ValidationError => {
            let is_bare = *contact == NewContact::new(contact.email.as_str());
            is_bare || address_problem(&contact.email).is_some()
        }
        code => ["invalid_address", "invalid_email"].contains(&code.as_str()),
    }
}

fn is_quota_exceeded(outcome: &RowOutcome) -> bool {
    matches!(outcome, RowOutcome::Refused { code, .. } if *code == ErrorCode::QuotaExceeded)
}

/// Returns the name of an opt-out for people.
fn text_of(opt_out: &OptOut) -> String {
    match opt_out {
        OptOut::Everything(_) => "the opt-out of everything".to_owned(),
        OptOut::Topic(name) => format!("the opt-out of the topic {name:?}"),
    }
}

fn opt_out_failed(opt_out: &OptOut, error: &Error) -> RowOutcome {
    let what = text_of(opt_out);
    RowOutcome::OptOutFailed {
        code: code_of(error),
        message: Some(format!("{what} was not recorded: {error}")),
        retryable: error.is_retryable(),
    }
}

/// Returns whether further requests are likely to take as long as this one: the service could not be reached, did not
/// respond in time, or asked to wait. After a 429, they fail immediately.
fn takes_long(error: &Error) -> bool {
    let asks_to_wait = error.retry_after().is_some() && !error.is_rate_limited();
    asks_to_wait || matches!(error.kind(), ErrorKind::Connect | ErrorKind::Timeout)
}

/// Returns the error of an opt-out that is not sent because an earlier request failed with this error.
fn for_the_next(error: Error) -> Error {
    let message = "the service was not available shortly before, so it was not sent";
    match takes_long(&error) {
        true => Error::new(ErrorKind::Timeout, Outcome::NotSent, message),
        false => error,
    }
}

/// Returns whether an outcome is final. If it is not, a resumed import sends the contact of the row again.
fn is_final(row: &NumberedRow, outcome: &RowOutcome) -> bool {
    match outcome {
        RowOutcome::Created
        | RowOutcome::Updated
        | RowOutcome::Skipped
        | RowOutcome::OptedOut
        | RowOutcome::OptOutMissing { .. }
        | RowOutcome::Valid => true,
        RowOutcome::NotSent => false,
        // Sending an upsert or a skip twice does no harm. A row with `OnConflict::Error` would be refused because of
        // its own first attempt.
        RowOutcome::Unknown => row.fails_on_conflict() || row.contact_to_send().is_none(),
        refused @ RowOutcome::Refused { .. } => !is_quota_exceeded(refused),
        // A resumed import sends at most its opt-outs.
        RowOutcome::OptOutFailed { .. } => true,
    }
}

/// Returns the code of a refusal, or a word for any other failure.
fn code_of(error: &Error) -> ErrorCode {
    match (error.code(), error.status()) {
        // Without a slug, too: otherwise the rows would be finished, and never sent after the ceiling was raised.
        _ if error.is_quota_exceeded() => ErrorCode::QuotaExceeded,
        (Some(code), _) => code.clone(),
        (None, Some(status)) => ErrorCode::from(format!("http_{}", status.as_u16())),
        (None, None) => ErrorCode::from("no_response"),
    }
}

/// Returns the name of a batch for people: the rows it covers, or their lines if they are known.
fn name_of(rows: &[NumberedRow]) -> String {
    let (Some(first), Some(last)) = (rows.first(), rows.last()) else {
        return String::new();
    };
    match (first.row.line_number(), last.row.line_number()) {
        (Some(first), Some(last)) => format!("batch of lines {first} to {last}"),
        _ => format!("batch of rows {} to {}", first.number + 1, last.number + 1),
    }
}
