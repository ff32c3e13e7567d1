//! A set of addresses that holds a hash of each. Pure.

use std::collections::HashSet;
use std::hash::{BuildHasherDefault, DefaultHasher, Hash, Hasher};

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
