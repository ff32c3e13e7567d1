use serde::{Deserialize, Serialize};

/// How far an export is, or what it has written.
///
/// Of a resumed export, it counts the contacts of the earlier runs too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ExportReport {
    pub(super) contacts: u64,
    pub(super) vanished: u64,
    pub(super) malformed: u64,
    #[serde(skip)]
    pub(super) resumed: u64,
}

impl ExportReport {
    /// Returns how many contacts are in the file.
    #[must_use]
    pub fn contacts(&self) -> u64 {
        self.contacts
    }

    /// Returns how many of them were there when this run began.
    #[must_use]
    pub fn resumed(&self) -> u64 {
        self.resumed
    }

    /// Returns how many contacts were left out because they no longer existed when they were retrieved: see
    /// [`FullContactStream`](crate::contacts::FullContactStream#contacts-that-vanish).
    #[must_use]
    pub fn vanished(&self) -> u64 {
        self.vanished
    }

    /// Returns how many contacts were left out because they are malformed: see
    /// [`Export::on_malformed`](super::Export::on_malformed).
    #[must_use]
    pub fn malformed(&self) -> u64 {
        self.malformed
    }

    /// Returns whether every contact that exists was written: none is malformed.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.malformed == 0
    }
}
