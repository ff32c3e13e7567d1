//! The paging decision: which cursor to send next, and whether the service repeats a cursor.

use crate::client::Operation;

/// The operation of every request for a page.
pub(super) const LIST: Operation = Operation {
    name: "list",
    template: "/contacts",
};

/// The position in a list, updated with each page. It holds two cursors, however long the list is.
#[derive(Clone, Debug)]
pub(super) struct PageCursor {
    current: Option<String>,
    cycle: CycleDetector,
}

/// The next step after a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PageStep {
    /// Return the page; another may follow.
    Page,
    /// The page is empty: the list has ended.
    End,
    /// The service repeated a cursor.
    Cycle,
}

impl PageCursor {
    pub(super) fn new(after: Option<String>) -> Self {
        Self {
            cycle: CycleDetector::new(after.clone()),
            current: after,
        }
    }

    /// Returns the value to send as `after`.
    pub(super) fn current(&self) -> Option<&str> {
        self.current.as_deref()
    }

    /// Moves past a page, given its last id and its `next`.
    pub(super) fn advance(&mut self, last_id: Option<&str>, next: Option<&str>) -> PageStep {
        let Some(next) = cursor_after(last_id, next) else {
            return PageStep::End;
        };
        if self.current() == Some(next) || self.cycle.is_repeated(next) {
            return PageStep::Cycle;
        }
        self.current = Some(next.to_owned());
        PageStep::Page
    }
}

/// Returns the cursor that follows a page, or `None` if the page is empty.
///
/// Only an empty page ends a list (interface section 4.4); a short page does not. If `next` is missing or
/// empty, the last id is the cursor, because `after` takes the last id of the previous page.
pub(super) fn cursor_after<'a>(last_id: Option<&'a str>, next: Option<&'a str>) -> Option<&'a str> {
    let last_id = last_id?;
    Some(next.filter(|next| !next.is_empty()).unwrap_or(last_id))
}

/// Brent's cycle detection. It compares each cursor with a checkpoint, which moves to the current cursor
/// after 1, 2, 4, 8, … steps. It finds a cycle of any length, wherever the cycle starts.
#[derive(Clone, Debug)]
struct CycleDetector {
    checkpoint: Option<String>,
    /// Steps since the checkpoint moved.
    steps: u64,
    /// Steps after which the checkpoint moves.
    interval: u64,
}

impl CycleDetector {
    fn new(start: Option<String>) -> Self {
        Self {
            checkpoint: start,
            steps: 0,
            interval: 1,
        }
    }

    /// Takes the next cursor and returns whether it equals the checkpoint.
    fn is_repeated(&mut self, cursor: &str) -> bool {
        if self.checkpoint.as_deref() == Some(cursor) {
            return true;
        }
        self.steps += 1;
        if self.steps == self.interval {
            self.checkpoint = Some(cursor.to_owned());
            self.steps = 0;
            self.interval = self.interval.saturating_mul(2);
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_empty_page_ends_a_list() {
        let mut cursor = PageCursor::new(None);

        assert_eq!(cursor.advance(Some("c9"), Some("c9")), PageStep::Page);
        assert_eq!(cursor.current(), Some("c9"));
        assert_eq!(cursor.advance(None, Some("c1")), PageStep::End);
    }

    #[test]
    fn if_next_is_missing_or_empty_the_last_id_is_the_cursor() {
        for next in [None, Some("")] {
            let mut cursor = PageCursor::new(None);

            assert_eq!(cursor.advance(Some("c7"), next), PageStep::Page);
            assert_eq!(cursor.current(), Some("c7"));
        }
    }

    #[test]
    fn a_cursor_equal_to_the_one_sent_is_a_cycle_at_once() {
        let mut cursor = PageCursor::new(Some("c5".to_owned()));
        assert_eq!(cursor.advance(Some("c5"), Some("c5")), PageStep::Cycle);

        let mut cursor = PageCursor::new(None);
        for n in 0..1_000 {
            assert_eq!(
                cursor.advance(Some("x"), Some(&n.to_string())),
                PageStep::Page
            );
        }
        assert_eq!(cursor.advance(Some("x"), Some("999")), PageStep::Cycle);
    }

    #[test]
    fn a_cycle_of_any_length_is_found_wherever_it_starts() {
        for tail in [0_usize, 1, 2, 7, 100] {
            for length in [1_usize, 2, 3, 10, 64, 333] {
                let mut cursor = PageCursor::new(None);
                let sent = (0..).map(|n| {
                    if n < tail {
                        n
                    } else {
                        tail + (n - tail) % length
                    }
                });

                let found = sent.take(4 * (tail + length) + 4).position(|next| {
                    cursor.advance(Some("x"), Some(&next.to_string())) == PageStep::Cycle
                });

                assert!(found.is_some(), "tail {tail}, length {length}");
            }
        }
    }
}
