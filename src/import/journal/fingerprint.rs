use serde::Serialize;
use sha2::{Digest, Sha256};

use super::super::row::{ImportRow, OptOut};
use crate::contacts::{NewContact, OptOutReason};

/// The fingerprint of one row or of several. It tells whether a journal belongs to the rows of an import.
pub(in crate::import) type Fingerprint = u64;

#[derive(Serialize)]
struct Content<'a> {
    contact: Option<&'a NewContact>,
    unreadable: Option<&'a str>,
    everything: Vec<OptOutReason>,
    topics: Vec<&'a str>,
}

/// Returns the fingerprint of rows with their places in the input: the sum of the fingerprints of each, so
/// that it can be added up in any order.
pub(in crate::import) fn fingerprint_of<'a>(
    rows: impl IntoIterator<Item = (u64, &'a ImportRow)>,
) -> Fingerprint {
    rows.into_iter().fold(0, |sum, (number, row)| {
        Fingerprint::wrapping_add(sum, fingerprint(number, row))
    })
}

fn fingerprint(number: u64, row: &ImportRow) -> Fingerprint {
    let mut content = Content {
        contact: row.contact(),
        unreadable: row.unreadable_reason(),
        everything: Vec::new(),
        topics: Vec::new(),
    };
    for opt_out in row.opt_outs() {
        match opt_out {
            OptOut::Everything(reason) => content.everything.push(*reason),
            OptOut::Topic(name) => content.topics.push(name),
        }
    }
    let mut hash = Sha256::new();
    hash.update(number.to_le_bytes());
    // A number that JSON cannot represent is refused before this, and then the row is not sent.
    hash.update(serde_json::to_vec(&content).unwrap_or_default());
    let digest = hash.finalize();
    let mut first = [0; 8];
    first.copy_from_slice(&digest[..8]);
    u64::from_le_bytes(first)
}
