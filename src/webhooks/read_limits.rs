//! How long and how much the extractors read before they know who sent it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

const DEFAULT_TIMEOUT: Duration = Duration::from_secs(5);
const DEFAULT_MEMORY: usize = 64 * 1024 * 1024;
/// A body up to this length may use the second half of the memory.
pub(super) const SMALL_BODY: usize = 64 * 1024;

pub(super) struct ReadLimits {
    pub(super) timeout: Duration,
    /// The memory for all unverified bodies, if it was set.
    pub(super) memory: Option<usize>,
    held: Arc<AtomicUsize>,
}

impl Default for ReadLimits {
    fn default() -> Self {
        Self {
            timeout: DEFAULT_TIMEOUT,
            memory: None,
            held: Arc::default(),
        }
    }
}

impl ReadLimits {
    /// Returns the reservation of a body that has not arrived yet.
    pub(super) fn reserve(&self, body_limit: usize) -> Reservation {
        let default = || body_limit.saturating_mul(4).max(DEFAULT_MEMORY);
        Reservation {
            held: Arc::clone(&self.held),
            limit: self.memory.unwrap_or_else(default),
            bytes: 0,
        }
    }
}

/// The memory of one unverified body, released on drop.
pub(super) struct Reservation {
    held: Arc<AtomicUsize>,
    pub(super) limit: usize,
    bytes: usize,
}

impl Reservation {
    /// Grows to `bytes`, or returns `false` if all bodies together would need too much memory.
    ///
    /// Long bodies share half of the memory, so that they cannot keep out the small bodies that
    /// deliveries usually have.
    pub(super) fn grow_to(&mut self, bytes: usize) -> bool {
        let limit = if bytes <= SMALL_BODY {
            self.limit
        } else {
            self.limit / 2
        };
        let more = bytes.saturating_sub(self.bytes);
        let grown = |held: usize| held.checked_add(more).filter(|held| *held <= limit);
        let fits = self
            .held
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, grown)
            .is_ok();
        if fits {
            self.bytes += more;
        }
        fits
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.held.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: usize = SMALL_BODY + 1;

    #[test]
    fn long_bodies_leave_half_of_the_memory_to_small_ones() {
        let limits = ReadLimits {
            memory: Some(4 * LONG),
            ..ReadLimits::default()
        };
        let [mut first, mut second, mut third, mut small] = [0; 4].map(|_| limits.reserve(LONG));

        assert!(first.grow_to(LONG) && second.grow_to(LONG));
        assert!(!third.grow_to(LONG));
        assert!(small.grow_to(SMALL_BODY));
        assert_eq!(limits.held.load(Ordering::Relaxed), 2 * LONG + SMALL_BODY);

        drop((first, second));
        assert!(third.grow_to(LONG));
        drop((third, small));
        assert_eq!(limits.held.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn the_default_memory_has_room_for_the_longest_body() {
        for (body_limit, memory) in [
            (2 * 1024 * 1024, DEFAULT_MEMORY),
            (DEFAULT_MEMORY, 4 * DEFAULT_MEMORY),
            (usize::MAX, usize::MAX),
        ] {
            let reservation = ReadLimits::default().reserve(body_limit);

            assert_eq!(reservation.limit, memory);
        }
    }
}
