//! The mail that is delivered when the clock gets there.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::mail::Mail;

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
