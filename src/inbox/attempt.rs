/// Which attempt at an event a handler is running.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attempt {
    number: u32,
    limit: u32,
}

impl Attempt {
    /// Creates an attempt, for a test of your own handler.
    #[must_use]
    pub fn new(number: u32, limit: u32) -> Self {
        Self { number, limit }
    }

    /// Returns which attempt this is. The first is 1.
    ///
    /// An attempt that ended with the process counts, too.
    #[must_use]
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Returns how many attempts follow if this one fails.
    ///
    /// In [`handle`](super::Inbox::handle) this is an estimate: the service makes ten attempts (interface
    /// section 6.5), and those that never reached the inbox are not counted here.
    #[must_use]
    pub fn left(&self) -> u32 {
        self.limit.saturating_sub(self.number)
    }

    /// Returns whether no attempt follows if this one fails.
    #[must_use]
    pub fn is_last(&self) -> bool {
        self.left() == 0
    }
}
