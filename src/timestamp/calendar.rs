//! The proleptic Gregorian calendar: days since 1970-01-01 to a date, and back.
//!
//! Both functions count in years that begin in March, so that a leap day is the last day of its year. 400 years
//! always have the same number of days.

/// A date. The year before 1 is 0, as in ISO 8601.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Date {
    pub(super) year: i64,
    pub(super) month: i64,
    pub(super) day: i64,
}

/// The days of 400 years.
const CYCLE: i64 = 146_097;
/// The days from 0000-03-01 to 1970-01-01.
const EPOCH: i64 = 719_468;

impl Date {
    /// Returns the date this many days after 1970-01-01. Any count of whole days in an `i64` of seconds will do.
    pub(super) fn from_days(days: i64) -> Self {
        let days = days + EPOCH;
        let (cycle, day_of_cycle) = (days.div_euclid(CYCLE), days.rem_euclid(CYCLE));
        // The leap days before this day: one every 4 years, except every 100 years, unless 400 divides the year.
        let leap_days = day_of_cycle / 1_460 - day_of_cycle / 36_524 + day_of_cycle / (CYCLE - 1);
        let year_of_cycle = (day_of_cycle - leap_days) / 365;
        let day_of_year =
            day_of_cycle - (365 * year_of_cycle + year_of_cycle / 4 - year_of_cycle / 100);
        // From March, the months have 31, 30, 31, 30, 31 days, twice and a bit: 153 days in five.
        let month_from_march = (5 * day_of_year + 2) / 153;
        let is_next_year = month_from_march >= 10;
        Self {
            year: cycle * 400 + year_of_cycle + i64::from(is_next_year),
            month: month_from_march + if is_next_year { -9 } else { 3 },
            day: day_of_year - (153 * month_from_march + 2) / 5 + 1,
        }
    }

    /// Returns the days from 1970-01-01 to this date. The year has at most 12 digits.
    pub(super) fn to_days(self) -> i64 {
        let is_next_year = self.month <= 2;
        let year = self.year - i64::from(is_next_year);
        let month_from_march = self.month + if is_next_year { 9 } else { -3 };
        let (cycle, year_of_cycle) = (year.div_euclid(400), year.rem_euclid(400));
        let day_of_year = (153 * month_from_march + 2) / 5 + self.day - 1;
        let day_of_cycle = 365 * year_of_cycle + year_of_cycle / 4 - year_of_cycle / 100;
        cycle * CYCLE + day_of_cycle + day_of_year - EPOCH
    }

    /// Returns whether the calendar has this date.
    pub(super) fn exists(self) -> bool {
        (1..=12).contains(&self.month)
            && (1..=31).contains(&self.day)
            && Self::from_days(self.to_days()) == self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn date(year: i64, month: i64, day: i64) -> Date {
        Date { year, month, day }
    }

    #[test]
    fn a_date_is_this_many_days_from_1970() {
        for (days, date) in [
            (0, date(1970, 1, 1)),
            (-1, date(1969, 12, 31)),
            (11_016, date(2000, 2, 29)),
            (11_017, date(2000, 3, 1)),
            (19_675, date(2023, 11, 14)),
            (-25_509, date(1900, 2, 28)),
            (-25_508, date(1900, 3, 1)),
            (-719_528, date(0, 1, 1)),
            (-719_529, date(-1, 12, 31)),
            (2_932_896, date(9999, 12, 31)),
        ] {
            assert_eq!(Date::from_days(days), date);
            assert_eq!(date.to_days(), days);
        }
    }

    #[test]
    fn each_day_follows_the_one_before_it() {
        let mut yesterday = Date::from_days(-2 * CYCLE - 1);
        for days in -2 * CYCLE..2 * CYCLE {
            let today = Date::from_days(days);

            let follows = [
                Date {
                    day: yesterday.day + 1,
                    ..yesterday
                },
                date(yesterday.year, yesterday.month + 1, 1),
                date(yesterday.year + 1, 1, 1),
            ];
            assert!(follows.contains(&today), "{today:?} follows {yesterday:?}");
            assert_eq!(today.to_days(), days);
            assert!(today.exists());
            yesterday = today;
        }
    }

    #[test]
    fn a_leap_day_exists_every_4_years_but_not_in_100_but_in_400() {
        for (year, is_leap) in [
            (2023, false),
            (2024, true),
            (1900, false),
            (2000, true),
            (0, true),
            (-1, false),
            (-4, true),
            (-100, false),
        ] {
            assert_eq!(date(year, 2, 29).exists(), is_leap, "{year}");
        }
    }
}
