//! How often a delivery is attempted, and how long the mock waits in between (interface section 6.5).

/// Attempts for each event and endpoint: "ten attempts over about five hours".
const MAX_ATTEMPTS: u32 = 10;

/// Seconds from the first attempt to the second. Each later gap is twice as long: 17,885 s in all, or 4 h 58 min.
const FIRST_GAP: i64 = 35;

/// Returns the seconds from a failed attempt to the next one, or `None` after the last.
///
/// Attempts are counted from 1.
pub(in crate::mock) fn gap_after(attempt: u32) -> Option<i64> {
    (1..MAX_ATTEMPTS)
        .contains(&attempt)
        .then(|| FIRST_GAP << (attempt - 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ten_attempts_take_about_five_hours() {
        let gaps: Vec<_> = (1..).map_while(gap_after).collect();

        assert_eq!(gaps, [35, 70, 140, 280, 560, 1_120, 2_240, 4_480, 8_960]);
        assert_eq!(gaps.iter().sum::<i64>(), 4 * 3_600 + 58 * 60 + 5);
    }
}
