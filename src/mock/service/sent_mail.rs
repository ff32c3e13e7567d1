//! The mail that was sent, and the state of each at each of its recipients.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use serde::Serialize;
use serde_json::{Value, json};

use super::address::normalized;
use super::mail_outcome::{MailState, OutcomeKind};
use crate::Timestamp;

/// Mails kept. The oldest is dropped first.
const MAX_MAILS: usize = 10_000;

/// Bytes of the bodies and addresses of the mails kept.
const MAX_BYTES: usize = 64 * 1024 * 1024;

/// A mail that `POST /emails` accepted.
///
/// [`MockServer::sent_mail`](crate::mock::MockServer::sent_mail) returns them.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct SentMail {
    /// The id that `POST /emails` returned. The events about the mail have it as `email_id`.
    pub id: String,
    /// The sender's address, without a display name.
    pub from: String,
    /// The recipients: each address once, lowercased and without display names.
    pub to: Vec<String>,
    /// The subject. Empty if there is none.
    pub subject: String,
    /// When the mail was sent, by the server's clock.
    pub at: Timestamp,
    /// The body of the request, with all members that the application sent.
    pub body: Value,
}

/// A mail to store.
pub(super) struct NewMail<'a> {
    pub(super) from: String,
    pub(super) to: &'a [String],
    pub(super) subject: String,
    /// The body of the request.
    pub(super) body: &'a [u8],
}

/// The newest mails, and the latest mail to each address.
#[derive(Clone, Debug, Default)]
pub(super) struct MailStore {
    /// By number, counted from 1 in the order they were sent.
    mails: BTreeMap<u64, StoredMail>,
    /// The sum of [`StoredMail::size`] over the mails.
    bytes: usize,
    last_number: u64,
    last_inbound_number: u64,
    /// The mail that is delivered later.
    pub(super) delayed: DelayedMail,
    /// The latest mail that was sent to each address, which a spam report is about.
    latest: HashMap<String, Arc<Mail>>,
}

#[derive(Clone, Debug)]
struct StoredMail {
    mail: Arc<Mail>,
    to: Vec<String>,
    states: HashMap<String, MailState>,
    at: i64,
    /// When the latest event about the mail happened.
    last_event_at: i64,
    body: Vec<u8>,
}

impl MailStore {
    /// Stores a mail that is sent at `now`. Drops the oldest if there are too many mails or bytes.
    ///
    /// Ids are sequential, so that they are the same on every run of a test.
    pub(super) fn add(&mut self, new: NewMail<'_>, now: i64) -> Arc<Mail> {
        self.last_number += 1;
        let mail = Arc::new(Mail {
            id: format!("eml_{:08}", self.last_number),
            from: new.from,
            subject: new.subject,
        });
        let stored = StoredMail {
            mail: Arc::clone(&mail),
            to: new.to.to_vec(),
            states: HashMap::new(),
            at: now,
            last_event_at: now,
            body: new.body.to_vec(),
        };
        self.bytes += stored.size();
        self.mails.insert(self.last_number, stored);
        while self.mails.len() > MAX_MAILS || (self.mails.len() > 1 && self.bytes > MAX_BYTES) {
            let Some((_, oldest)) = self.mails.pop_first() else {
                break;
            };
            self.bytes -= oldest.size();
        }
        mail
    }

    /// Records that a mail was sent to one of its recipients, or refused.
    pub(super) fn record_start(&mut self, mail: &Arc<Mail>, to: &str, is_sent: bool) {
        let key = normalized(to);
        let state = if is_sent {
            self.latest.insert(key.clone(), Arc::clone(mail));
            MailState::Sent
        } else {
            MailState::Refused
        };
        if let Some(stored) = self.find_mut(&mail.id) {
            stored.states.insert(key, state);
        }
    }

    /// Records an outcome. Changes nothing if it is not possible.
    ///
    /// # Errors
    ///
    /// Fails if `to` is not a recipient, or the outcome is not possible. The message says what is.
    pub(super) fn record_outcome(
        &mut self,
        id: &str,
        to: &str,
        outcome: OutcomeKind,
    ) -> Result<(), String> {
        let Some(stored) = self.find_mut(id) else {
            return Ok(());
        };
        let Some(state) = stored.states.get_mut(&normalized(to)) else {
            return Err(format!("{to:?} is not a recipient of the mail {id:?}"));
        };
        *state = state.after(outcome)?;
        Ok(())
    }

    /// Returns the time of an event about a mail that happens at `now`: not before that of the event before.
    pub(super) fn event_time(&mut self, id: &str, now: i64) -> i64 {
        let Some(stored) = self.find_mut(id) else {
            return now;
        };
        stored.last_event_at = stored.last_event_at.max(now);
        stored.last_event_at
    }

    /// Returns a mail and its recipients, or `None` if no mail has this id.
    pub(super) fn find(&self, id: &str) -> Option<(&Arc<Mail>, &[String])> {
        let stored = self.mails.get(&number(id)?)?;
        (stored.mail.id == id).then_some((&stored.mail, &stored.to))
    }

    /// Returns the latest mail that was sent to an address.
    pub(super) fn latest(&self, address: &str) -> Option<Arc<Mail>> {
        self.latest.get(&normalized(address)).cloned()
    }

    /// Returns the mails that are kept, oldest first.
    pub(super) fn sent_mail(&self) -> Vec<SentMail> {
        self.mails.values().map(StoredMail::to_sent).collect()
    }

    /// Returns at most `limit` mails that contain a text, the newest first.
    pub(super) fn newest(&self, text: &str, limit: usize) -> Vec<MailView> {
        let text = text.to_lowercase();
        let newest_first = self.mails.values().rev();
        newest_first
            .filter(|stored| stored.contains(&text))
            .take(limit)
            .map(StoredMail::to_view)
            .collect()
    }

    /// Returns how many mails are kept.
    pub(super) fn len(&self) -> usize {
        self.mails.len()
    }

    /// Returns the id for the next mail that is received.
    pub(super) fn next_inbound_id(&mut self) -> String {
        self.last_inbound_number += 1;
        format!("inb_{:08}", self.last_inbound_number)
    }

    fn find_mut(&mut self, id: &str) -> Option<&mut StoredMail> {
        let stored = self.mails.get_mut(&number(id)?)?;
        (stored.mail.id == id).then_some(stored)
    }
}

/// A mail as the page shows it.
#[derive(Debug, Serialize)]
pub(in crate::mock) struct MailView {
    id: String,
    from: String,
    subject: String,
    at: i64,
    /// What happened to the mail at each recipient.
    recipients: Vec<RecipientView>,
    /// The body of the request. `null` if it is longer than [`MAX_SHOWN_BODY`].
    body: Value,
}

#[derive(Debug, Serialize)]
struct RecipientView {
    to: String,
    state: &'static str,
}

/// Bytes of the longest body that is shown in a list.
const MAX_SHOWN_BODY: usize = 16 * 1024;

impl StoredMail {
    fn to_view(&self) -> MailView {
        let recipients = self.to.iter().map(|to| RecipientView {
            to: to.clone(),
            state: self
                .states
                .get(&normalized(to))
                .map_or("sent", |state| state.name()),
        });
        MailView {
            id: self.mail.id.clone(),
            from: self.mail.from.clone(),
            subject: self.mail.subject.clone(),
            at: self.at,
            recipients: recipients.collect(),
            body: if self.body.len() > MAX_SHOWN_BODY {
                Value::Null
            } else {
                serde_json::from_slice(&self.body).unwrap_or_default()
            },
        }
    }

    /// Returns whether the id, the subject or an address contains a case-folded text.
    fn contains(&self, text: &str) -> bool {
        [&self.mail.id, &self.mail.subject, &self.mail.from]
            .into_iter()
            .chain(&self.to)
            .any(|part| part.to_lowercase().contains(text))
    }

    fn to_sent(&self) -> SentMail {
        SentMail {
            id: self.mail.id.clone(),
            from: self.mail.from.clone(),
            to: self.to.clone(),
            subject: self.mail.subject.clone(),
            at: Timestamp::from_unix(self.at),
            body: serde_json::from_slice(&self.body).unwrap_or_default(),
        }
    }

    /// Returns about how many bytes of memory the mail takes up.
    fn size(&self) -> usize {
        let recipients: usize = self
            .to
            .iter()
            .map(|address| 2 * (address.len() + size_of::<String>()))
            .sum();
        size_of::<Self>()
            + self.mail.from.len()
            + self.mail.subject.len()
            + recipients
            + self.body.len()
    }
}

/// Returns the number in the id of a mail.
fn number(id: &str) -> Option<u64> {
    id.strip_prefix("eml_")?.parse().ok()
}

/// The parts of a mail that the events about it contain.
#[derive(Clone, Debug)]
pub(crate) struct Mail {
    /// The id that `POST /emails` returned.
    pub(crate) id: String,
    pub(crate) from: String,
    pub(crate) subject: String,
}

impl Mail {
    /// Returns a mail with sample values, for an event about mail that was not sent through `POST /emails`.
    pub(crate) fn sample() -> Self {
        Self {
            id: "em_sample".to_owned(),
            from: "sender@example.com".to_owned(),
            subject: "A message".to_owned(),
        }
    }

    /// Returns the `data` of an event about one recipient, with every member of section 6.3.
    pub(crate) fn event_data(&self, to: &str, bounce_type: &str, detail: &str) -> Value {
        json!({
            "email_id": self.id,
            "from": self.from,
            "to": to,
            "subject": self.subject,
            "bounce_type": bounce_type,
            "detail": detail,
        })
    }
}

/// Returns a typical `detail` of an event type: the reason for a refusal, or what a receiving server says.
pub(crate) fn typical_detail(event_type: &str, bounce_type: &str) -> &'static str {
    match (event_type, bounce_type) {
        ("email.bounced", "Permanent") => "550 5.1.1 no such user",
        ("email.bounced", "Transient") => "452 4.2.2 mailbox full",
        ("email.delivery_delayed", _) => "451 4.7.1 try again later",
        ("email.failed", _) => "the mail could not be delivered within the time allowed",
        ("email.refused", _) => "the address is on the suppression list",
        _ => "",
    }
}

/// The mail that is to be delivered later, by due time.
#[derive(Clone, Debug, Default)]
pub(super) struct DelayedMail {
    /// The second part of a key is unique. It keeps the order in which mail was sent.
    queue: BTreeMap<(i64, u64), (Arc<Mail>, String)>,
    last_serial: u64,
}

impl DelayedMail {
    /// Adds a mail to one recipient that is due at a time, in Unix seconds.
    pub(super) fn add(&mut self, due: i64, mail: Arc<Mail>, to: &str) {
        self.last_serial += 1;
        let key = (due, self.last_serial);
        self.queue.insert(key, (mail, to.to_owned()));
    }

    /// Returns when the next mail is due.
    pub(super) fn next_due(&self) -> Option<i64> {
        self.queue.keys().next().map(|(due, _)| *due)
    }

    /// Removes the first mail that is due at `now`. Returns its due time, the mail and its recipient.
    pub(super) fn take_due(&mut self, now: i64) -> Option<(i64, Arc<Mail>, String)> {
        let first = self
            .queue
            .first_entry()
            .filter(|first| first.key().0 <= now)?;
        let ((due, _), (mail, to)) = first.remove_entry();
        Some((due, mail, to))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn add(store: &mut MailStore, body: &[u8]) -> Arc<Mail> {
        let new = NewMail {
            from: "me@x.io".into(),
            to: &["ada@x.io".into()],
            subject: String::new(),
            body,
        };
        store.add(new, 5)
    }

    #[test]
    fn the_oldest_mail_is_dropped_first() {
        let mut store = MailStore::default();

        for _ in 0..MAX_MAILS + 5 {
            add(&mut store, b"{}");
        }

        assert_eq!(store.sent_mail().len(), MAX_MAILS);
        assert!(store.find("eml_00000005").is_none());
        assert!(store.find("eml_00000006").is_some());
    }

    #[test]
    fn the_bytes_are_limited_and_the_newest_mail_is_always_kept() {
        let mut store = MailStore::default();

        add(&mut store, b"{}");
        add(&mut store, &vec![b' '; MAX_BYTES + 1]);

        assert_eq!(store.mails.keys().collect::<Vec<_>>(), [&2]);
        add(&mut store, b"{}");
        assert_eq!(store.bytes, store.mails[&3].size());
    }

    #[test]
    fn a_mail_is_found_only_by_its_exact_id() {
        let mut store = MailStore::default();
        let mail = add(&mut store, b"{}");

        assert_eq!(mail.id, "eml_00000001");
        assert!(store.find("eml_00000001").is_some());
        for other in ["eml_1", "eml_+0000001", "1", "eml_00000002", ""] {
            assert!(store.find(other).is_none(), "{other}");
        }
    }

    #[test]
    fn the_time_of_the_events_of_a_mail_never_decreases() {
        let mut store = MailStore::default();
        let mail = add(&mut store, b"{}");

        assert_eq!(store.event_time(&mail.id, 9), 9);
        assert_eq!(store.event_time(&mail.id, 7), 9);
    }

    #[test]
    fn mail_is_due_by_time_and_then_in_the_order_it_was_sent() {
        let mut delayed = DelayedMail::default();
        let mail = Arc::new(Mail::sample());
        for (due, to) in [(20, "a"), (10, "b"), (20, "c"), (30, "d")] {
            delayed.add(due, Arc::clone(&mail), to);
        }

        let taken: Vec<_> = std::iter::from_fn(|| delayed.take_due(20))
            .map(|(due, _, to)| (due, to))
            .collect();

        assert_eq!(
            taken,
            [(10, "b".into()), (20, "a".into()), (20, "c".into())]
        );
        assert_eq!(delayed.next_due(), Some(30));
    }
}
