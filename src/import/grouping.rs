//! Which rows go into the next batch. Pure.
//!
//! Rows of one address apply in input order: a batch applies its entries in order (interface section
//! 4.2), and a row waits while another batch with its address is in flight. If a row may have to be sent again,
//! because it was not sent or nobody knows whether it was applied, later rows of its address are not sent:
//! the earlier row would undo them.

use std::collections::{HashSet, VecDeque};
use std::hash::{BuildHasherDefault, DefaultHasher, Hash, Hasher};

use super::row::NumberedRow;
use crate::contacts::MAX_BATCH;

/// The rows that may wait for an address before no more are read.
const MAX_WAITING: usize = 2 * MAX_BATCH;

/// The rows that are read but not sent, and the addresses that are in flight.
#[derive(Debug, Default)]
pub(super) struct Grouping {
    /// In input order.
    pending: VecDeque<(AddressHash, NumberedRow)>,
    /// How many of the pending rows have an address in flight.
    waiting: usize,
    /// The addresses of the batches in flight. No two of them share one.
    in_flight: AddressSet,
    /// The addresses whose rows are not sent.
    given_up: AddressSet,
}

impl Grouping {
    /// Returns whether another row should be read before the next batch is taken.
    pub(super) fn needs_rows(&self) -> bool {
        self.sendable() < MAX_BATCH && self.waiting < MAX_WAITING
    }

    /// Returns how many rows could be sent now.
    fn sendable(&self) -> usize {
        self.pending.len() - self.waiting
    }

    /// Returns how many rows are read but not sent.
    pub(super) fn pending(&self) -> usize {
        self.pending.len()
    }

    /// Returns the number of the first row that is not sent.
    pub(super) fn first_pending(&self) -> Option<u64> {
        self.pending.front().map(|(_, row)| row.number)
    }

    /// Returns whether a row is not to be sent, because of an earlier row of its address.
    pub(super) fn is_given_up(&self, row: &NumberedRow) -> bool {
        !self.given_up.is_empty() && self.given_up.contains(&AddressHash::new(&row.address))
    }

    /// Gives up an address, and removes its rows that are not sent.
    pub(super) fn give_up(&mut self, address: &str) -> Vec<NumberedRow> {
        self.given_up.insert(AddressHash::new(address));
        let (removed, left) = std::mem::take(&mut self.pending)
            .into_iter()
            .partition::<VecDeque<_>, _>(|(_, row)| row.address == address);
        self.pending = left;
        self.count_waiting();
        removed.into_iter().map(|(_, row)| row).collect()
    }

    /// Adds the next row of the input.
    pub(super) fn push(&mut self, row: NumberedRow) {
        let address = AddressHash::new(&row.address);
        self.waiting += usize::from(self.in_flight.contains(&address));
        self.pending.push_back((address, row));
    }

    /// Takes the rows of the next batch, and marks their addresses as in flight. Empty if every row has
    /// to wait.
    pub(super) fn take_batch(&mut self) -> Vec<NumberedRow> {
        let mut batch = Vec::with_capacity(self.sendable().min(MAX_BATCH));
        let mut addresses = Vec::with_capacity(batch.capacity());
        let mut waiting = Vec::new();
        while batch.len() < MAX_BATCH
            && let Some((address, row)) = self.pending.pop_front()
        {
            if self.in_flight.contains(&address) {
                waiting.push((address, row));
            } else {
                batch.push(row);
                addresses.push(address);
            }
        }
        for row in waiting.into_iter().rev() {
            self.pending.push_front(row);
        }
        self.in_flight.extend(addresses);
        self.count_waiting();
        batch
    }

    /// Marks the addresses of a batch as no longer in flight.
    pub(super) fn finish<'a>(&mut self, addresses: impl IntoIterator<Item = &'a str>) {
        for address in addresses {
            self.in_flight.remove(&AddressHash::new(address));
        }
        self.count_waiting();
    }

    /// Takes all rows that are not sent, in input order.
    pub(super) fn take_pending(&mut self) -> impl Iterator<Item = NumberedRow> {
        self.waiting = 0;
        let pending = std::mem::take(&mut self.pending);
        pending.into_iter().map(|(_, row)| row)
    }

    fn count_waiting(&mut self) {
        let addresses = self.pending.iter().map(|(address, _)| address);
        self.waiting = addresses
            .filter(|address| self.in_flight.contains(address))
            .count();
    }
}

/// Addresses, each as a hash, which takes less memory and time than the text.
///
/// Two addresses with the same hash count as the same. Among ten million addresses, the odds that this happens
/// by chance are 1 in 300,000. Then a row waits without need, is reported as not sent after the other address
/// has failed, or is counted as a duplicate in a dry run. It is never lost, nor sent out of order.
pub(super) type AddressSet = HashSet<AddressHash, BuildHasherDefault<NoHasher>>;

/// The hash of an address as the service normalizes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct AddressHash(u64);

impl AddressHash {
    pub(super) fn new(normalized_address: &str) -> Self {
        let mut hasher = DefaultHasher::new();
        hasher.write(normalized_address.as_bytes());
        Self(hasher.finish())
    }
}

impl Hash for AddressHash {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        hasher.write_u64(self.0);
    }
}

/// Takes a hash as it is.
#[derive(Debug, Default)]
pub(super) struct NoHasher(u64);

impl Hasher for NoHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(byte);
        }
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
}

#[cfg(test)]
mod tests {
    use crate::contacts::NewContact;
    use crate::import::ImportRow;

    use super::*;

    fn row(number: u64, address: &str) -> NumberedRow {
        NumberedRow::new(number, ImportRow::new(NewContact::new(address)))
    }

    fn numbers(batch: &[NumberedRow]) -> Vec<u64> {
        batch.iter().map(|row| row.number).collect()
    }

    fn grouping(rows: impl IntoIterator<Item = (u64, &'static str)>) -> Grouping {
        let mut grouping = Grouping::default();
        for (number, address) in rows {
            grouping.push(row(number, address));
        }
        grouping
    }

    #[test]
    fn a_batch_has_at_most_100_rows_in_input_order() {
        let mut grouping = Grouping::default();
        for number in 0..150 {
            grouping.push(row(number, &format!("{number}@x.io")));
        }

        assert_eq!(
            numbers(&grouping.take_batch()),
            (0..100).collect::<Vec<_>>()
        );
        assert_eq!(
            numbers(&grouping.take_batch()),
            (100..150).collect::<Vec<_>>()
        );
        assert!(grouping.take_batch().is_empty());
    }

    #[test]
    fn a_row_waits_while_its_address_is_in_flight_in_any_spelling() {
        let mut grouping = grouping([(0, "a@x.io")]);
        assert_eq!(numbers(&grouping.take_batch()), [0]);
        grouping.push(row(1, " A@X.io "));
        grouping.push(row(2, "b@x.io"));
        grouping.push(row(3, "a@x.io"));

        assert_eq!(numbers(&grouping.take_batch()), [2]);
        assert!(grouping.take_batch().is_empty());

        grouping.finish(["a@x.io"]);
        assert_eq!(numbers(&grouping.take_batch()), [1, 3]);
    }

    #[test]
    fn the_same_address_twice_may_be_in_one_batch() {
        let mut grouping = grouping([(0, "a@x.io"), (1, "A@x.io")]);

        assert_eq!(numbers(&grouping.take_batch()), [0, 1]);
    }

    #[test]
    fn the_rows_of_an_address_that_was_given_up_are_taken_out() {
        let mut grouping = grouping([(0, "a@x.io")]);
        grouping.take_batch();
        grouping.push(row(1, "A@x.io"));
        grouping.push(row(2, "b@x.io"));

        grouping.finish(["a@x.io"]);
        let removed = grouping.give_up("a@x.io");

        assert_eq!(numbers(&removed), [1]);
        assert!(grouping.is_given_up(&row(3, "a@X.io")));
        assert!(!grouping.is_given_up(&row(4, "b@x.io")));
        assert_eq!(numbers(&grouping.take_batch()), [2]);
    }

    #[test]
    fn reading_stops_when_too_many_rows_wait_for_one_address() {
        let mut grouping = grouping([(0, "a@x.io")]);
        grouping.take_batch();
        let mut number = 0;

        while grouping.needs_rows() {
            number += 1;
            grouping.push(row(number, "a@x.io"));
        }

        assert_eq!((grouping.sendable(), grouping.pending()), (0, MAX_WAITING));
    }
}
