use super::batch_exchange::{self, OPERATION, SentEntry};
use super::{BatchReport, Contacts, NewContact};
use crate::client::{CallOptions, ResponseFuture};

impl Contacts {
    /// Creates contacts like [`create_batch`](Self::create_batch), but does not clone them, because an import
    /// keeps them. If the service returns no address for an entry, it is empty in the report.
    pub(crate) fn create_kept_batch(
        &self,
        contacts: &[&NewContact],
        options: CallOptions,
    ) -> ResponseFuture<BatchReport> {
        let request = batch_exchange::request(contacts);
        let choices: Vec<bool> = contacts.iter().map(|c| c.fails_on_conflict()).collect();
        let client = self.client.clone();
        client.send(OPERATION, request, options, move |success| {
            let sent = choices.into_iter().map(|fails_on_conflict| SentEntry {
                email: "",
                fails_on_conflict,
            });
            batch_exchange::decode(&success, sent)
        })
    }
}
