//! The paging decision: which cursor comes next, and when the service goes in circles.

/// A walk over pages, as a function of what the service answered. Holds two cursors, however long
/// the walk is.
#[derive(Clone, Debug)]
pub(super) struct Walk {
    cursor: Option<String>,
    circle: Circle,
}

/// What to do after a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Hand the page out; another may follow.
    Page,
    /// The page is empty: the walk is over.
    End,
    /// The cursor has been seen before.
    Circle,
}

impl Walk {
    pub(super) fn new(after: Option<String>) -> Self {
        Self {
            circle: Circle::new(after.clone()),
            cursor: after,
        }
    }

    /// What to send as `after`.
    pub(super) fn cursor(&self) -> Option<&str> {
        self.cursor.as_deref()
    }

    /// Takes note of a page.
    pub(super) fn step(&mut self, last_id: Option<&str>, next: Option<&str>) -> Step {
        let Some(next) = cursor_after(last_id, next) else {
            return Step::End;
        };
        if self.cursor() == Some(next) || self.circle.closes_with(next) {
            return Step::Circle;
        }
        self.cursor = Some(next.to_owned());
        Step::Page
    }
}

/// The cursor that a page leads on to. Only empty data ends a list (interface section 4.4): a short
/// page does not, and where `next` is missing or empty, the last id is the cursor, for that is what
/// `after` takes.
pub(super) fn cursor_after<'a>(last_id: Option<&'a str>, next: Option<&'a str>) -> Option<&'a str> {
    let last_id = last_id?;
    Some(next.filter(|next| !next.is_empty()).unwrap_or(last_id))
}

/// Brent's cycle detection: a landmark that moves to the current cursor after 1, 2, 4, 8, … steps. A
/// circle of any length, entered at any point, comes by it again.
#[derive(Clone, Debug)]
struct Circle {
    landmark: Option<String>,
    steps: u64,
    stretch: u64,
}

impl Circle {
    fn new(start: Option<String>) -> Self {
        Self {
            landmark: start,
            steps: 0,
            stretch: 1,
        }
    }

    fn closes_with(&mut self, cursor: &str) -> bool {
        if self.landmark.as_deref() == Some(cursor) {
            return true;
        }
        self.steps += 1;
        if self.steps == self.stretch {
            self.landmark = Some(cursor.to_owned());
            self.steps = 0;
            self.stretch = self.stretch.saturating_mul(2);
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_empty_data_ends_a_walk() {
        let mut walk = Walk::new(None);

        assert_eq!(walk.step(Some("c9"), Some("c9")), Step::Page);
        assert_eq!(walk.cursor(), Some("c9"));
        assert_eq!(walk.step(None, Some("c1")), Step::End);
    }

    #[test]
    fn where_next_is_missing_or_empty_the_last_id_is_the_cursor() {
        for next in [None, Some("")] {
            let mut walk = Walk::new(None);

            assert_eq!(walk.step(Some("c7"), next), Step::Page);
            assert_eq!(walk.cursor(), Some("c7"));
        }
    }

    #[test]
    fn a_cursor_that_repeats_the_one_sent_is_a_circle_at_once() {
        let mut walk = Walk::new(Some("c5".to_owned()));
        assert_eq!(walk.step(Some("c5"), Some("c5")), Step::Circle);

        let mut walk = Walk::new(None);
        for n in 0..1_000 {
            assert_eq!(walk.step(Some("x"), Some(&n.to_string())), Step::Page);
        }
        assert_eq!(walk.step(Some("x"), Some("999")), Step::Circle);
    }

    #[test]
    fn a_circle_of_any_length_entered_anywhere_is_found() {
        for tail in [0_usize, 1, 2, 7, 100] {
            for length in [1_usize, 2, 3, 10, 64, 333] {
                let mut walk = Walk::new(None);
                let cursors = (0..).map(|n| {
                    if n < tail {
                        n
                    } else {
                        tail + (n - tail) % length
                    }
                });

                let found = cursors.take(4 * (tail + length) + 4).position(|cursor| {
                    walk.step(Some("x"), Some(&cursor.to_string())) == Step::Circle
                });

                assert!(found.is_some(), "tail {tail}, length {length}");
            }
        }
    }
}
