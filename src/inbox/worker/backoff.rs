use std::time::Duration;

/// How long a failed event waits for its next attempt: a time that doubles with each attempt.
#[derive(Clone, Copy, Debug)]
pub(super) struct Backoff {
    pub(super) first: Duration,
    pub(super) longest: Duration,
}

impl Backoff {
    /// Returns the delay after this attempt. `jitter`, from 0 to 1, shortens it by up to a quarter, so that
    /// events that failed together do not come back together.
    pub(super) fn after(self, attempt: u32, jitter: f64) -> Duration {
        let doublings = attempt.saturating_sub(1).min(31);
        let delay = self.first.saturating_mul(1 << doublings).min(self.longest);
        delay - delay.mul_f64(jitter.clamp(0.0, 1.0) / 4.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BACKOFF: Backoff = Backoff {
        first: Duration::from_secs(5),
        longest: Duration::from_secs(3_600),
    };

    #[test]
    fn the_delay_doubles_up_to_the_longest() {
        let delays = [1, 2, 3, 10, 11, 40, u32::MAX].map(|attempt| BACKOFF.after(attempt, 0.0));

        let seconds = delays.map(|delay| delay.as_secs());
        assert_eq!(seconds, [5, 10, 20, 2_560, 3_600, 3_600, 3_600]);
    }

    #[test]
    fn jitter_takes_off_up_to_a_quarter() {
        assert_eq!(BACKOFF.after(3, 1.0), Duration::from_secs(15));
        assert_eq!(BACKOFF.after(3, 7.0), Duration::from_secs(15));
    }

    #[test]
    fn an_endless_delay_does_not_overflow() {
        let endless = Backoff {
            first: Duration::MAX,
            longest: Duration::MAX,
        };

        assert!(endless.after(u32::MAX, 1.0) > Duration::from_secs(1 << 60));
        assert_eq!(endless.after(u32::MAX, 0.0), Duration::MAX);
    }
}
