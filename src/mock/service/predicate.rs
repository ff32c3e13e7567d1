//! The tests within conditions: of a property's value, of an engagement, of a number of days (section 2.8).

use std::cmp::Ordering;

use serde_json::{Number, Value};

/// The operator of a property condition, with its value.
#[derive(Clone, Debug)]
pub(crate) enum PropertyTest {
    Is(Value),
    IsNot(Value),
    Contains(String),
    IsSet,
    IsNotSet,
    GreaterThan(Number),
    LessThan(Number),
}

/// The operator of an engagement condition, with its days.
#[derive(Clone, Copy, Debug)]
pub(crate) enum EngagementTest {
    Ever,
    Never,
    WithinDays(Days),
    NotWithinDays(Days),
}

impl PropertyTest {
    /// Returns whether the test holds for a property's value. `None` means the contact does not have the property.
    ///
    /// The document shows the operators but not how they compare. In the mock:
    ///
    /// - numbers compare as numbers (`1` is `1.0`), strings as strings, and case matters;
    /// - a number and a string are never equal, greater or less;
    /// - `is_not` is the opposite of `is`, so it holds for a missing property.
    pub(crate) fn holds(&self, property: Option<&Value>) -> bool {
        match self {
            Self::Is(value) => property.is_some_and(|property| equal(property, value)),
            Self::IsNot(value) => !property.is_some_and(|property| equal(property, value)),
            Self::Contains(part) => property
                .and_then(Value::as_str)
                .is_some_and(|text| text.contains(part)),
            Self::IsSet => property.is_some(),
            Self::IsNotSet => property.is_none(),
            Self::GreaterThan(number) => compare(property, number) == Some(Ordering::Greater),
            Self::LessThan(number) => compare(property, number) == Some(Ordering::Less),
        }
    }
}

impl EngagementTest {
    /// Returns whether the test holds at `now` if the latest engagement was at `latest`.
    ///
    /// `not_within_days` is the opposite of `within_days`, so it holds if there never was an engagement.
    pub(crate) fn holds(self, latest: Option<i64>, now: i64) -> bool {
        match self {
            Self::Ever => latest.is_some(),
            Self::Never => latest.is_none(),
            Self::WithinDays(days) => latest.is_some_and(|at| days.contain(at, now)),
            Self::NotWithinDays(days) => !latest.is_some_and(|at| days.contain(at, now)),
        }
    }
}

/// A number of days of 86,400 seconds each, at least 1.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Days(i64);

impl Days {
    /// Creates a number of days, or returns `None` for 0.
    pub(crate) fn new(days: u64) -> Option<Self> {
        (days > 0).then(|| Self(i64::try_from(days).unwrap_or(i64::MAX)))
    }

    /// Returns whether `at` is at most this many days before `now`. A time after `now` counts too.
    pub(crate) fn contain(self, at: i64, now: i64) -> bool {
        at >= self.before(now)
    }

    /// Returns whether `at` is at least this many days before `now`.
    pub(crate) fn have_passed_since(self, at: i64, now: i64) -> bool {
        at <= self.before(now)
    }

    fn before(self, now: i64) -> i64 {
        now.saturating_sub(self.0.saturating_mul(86_400))
    }
}

fn equal(property: &Value, value: &Value) -> bool {
    match value {
        Value::Number(number) => compare(Some(property), number) == Some(Ordering::Equal),
        other => property == other,
    }
}

/// Compares a property's value with a number. Returns `None` if the value is not a number.
fn compare(property: Option<&Value>, number: &Number) -> Option<Ordering> {
    let Some(Value::Number(property)) = property else {
        return None;
    };
    match (property.as_i128(), number.as_i128()) {
        (Some(left), Some(right)) => Some(left.cmp(&right)),
        (Some(left), None) => compare_exactly(left, number.as_f64()?),
        (None, Some(right)) => compare_exactly(right, property.as_f64()?).map(Ordering::reverse),
        (None, None) => property.as_f64()?.partial_cmp(&number.as_f64()?),
    }
}

/// Compares an integer of JSON, which has at most 64 bits, with a float without rounding the integer.
fn compare_exactly(integer: i128, float: f64) -> Option<Ordering> {
    #[expect(
        clippy::cast_possible_truncation,
        reason = "the fraction is compared next, and a float beyond the range of `i128` is beyond any integer here"
    )]
    let whole = float.trunc() as i128;
    let fraction = float.fract();
    Some(integer.cmp(&whole).then(0.0.partial_cmp(&fraction)?))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const NOW: i64 = 1_700_000_000;
    const DAY: i64 = 86_400;

    #[test]
    fn numbers_compare_as_numbers_and_strings_as_strings_with_regard_to_case() {
        let cases = [
            (PropertyTest::Is(json!("pro")), json!("pro"), true),
            (PropertyTest::Is(json!("pro")), json!("Pro"), false),
            (PropertyTest::Is(json!(1)), json!(1.0), true),
            (PropertyTest::Is(json!("1")), json!(1), false),
            (PropertyTest::Is(json!(1)), json!("1"), false),
            (PropertyTest::IsNot(json!("pro")), json!("free"), true),
            (PropertyTest::IsNot(json!("pro")), json!("pro"), false),
            (PropertyTest::Contains("ro".to_owned()), json!("pro"), true),
            (PropertyTest::Contains("RO".to_owned()), json!("pro"), false),
            (PropertyTest::Contains("1".to_owned()), json!(11), false),
            (PropertyTest::IsSet, json!(""), true),
            (PropertyTest::IsNotSet, json!(0), false),
            (PropertyTest::GreaterThan(2.into()), json!(2), false),
            (PropertyTest::GreaterThan(2.into()), json!(2.5), true),
            (PropertyTest::GreaterThan(2.into()), json!("3"), false),
            (PropertyTest::LessThan(2.into()), json!(-1), true),
            (PropertyTest::LessThan(2.into()), json!(2), false),
            (
                PropertyTest::LessThan(u64::MAX.into()),
                json!(u64::MAX - 1),
                true,
            ),
        ];
        for (test, property, expected) in cases {
            assert_eq!(
                test.holds(Some(&property)),
                expected,
                "{test:?} of {property}"
            );
        }
    }

    #[test]
    fn an_integer_compares_exactly_with_a_float() {
        let cases = [
            // 2^53 + 1 is not a float.
            (
                json!(9_007_199_254_740_993_u64),
                json!(9_007_199_254_740_992.0),
                Ordering::Greater,
            ),
            (
                json!(9_007_199_254_740_992_u64),
                json!(9_007_199_254_740_992.0),
                Ordering::Equal,
            ),
            (
                json!(u64::MAX),
                json!(18_446_744_073_709_551_616.0),
                Ordering::Less,
            ),
            (
                json!(i64::MIN),
                json!(-9_223_372_036_854_775_808.0),
                Ordering::Equal,
            ),
            (
                json!(i64::MIN + 1),
                json!(-9_223_372_036_854_775_808.0),
                Ordering::Greater,
            ),
            (json!(u64::MAX), json!(1e308), Ordering::Less),
            (json!(i64::MIN), json!(-1e308), Ordering::Greater),
            (json!(2), json!(2.5), Ordering::Less),
            (json!(-2), json!(-2.5), Ordering::Greater),
            (json!(0), json!(-0.0), Ordering::Equal),
            (json!(0), json!(5e-324), Ordering::Less),
        ];
        for (integer, float, expected) in cases {
            let (left, right) = (integer.as_number().unwrap(), float.as_number().unwrap());

            assert_eq!(
                compare(Some(&integer), right),
                Some(expected),
                "{integer} and {float}"
            );
            assert_eq!(
                compare(Some(&float), left),
                Some(expected.reverse()),
                "{float} and {integer}"
            );
        }
    }

    #[test]
    fn a_missing_property_passes_only_is_not_and_is_not_set() {
        let cases = [
            (PropertyTest::Is(json!("")), false),
            (PropertyTest::IsNot(json!("")), true),
            (PropertyTest::Contains(String::new()), false),
            (PropertyTest::IsSet, false),
            (PropertyTest::IsNotSet, true),
            (PropertyTest::GreaterThan(0.into()), false),
            (PropertyTest::LessThan(0.into()), false),
        ];
        for (test, expected) in cases {
            assert_eq!(test.holds(None), expected, "{test:?}");
        }
    }

    #[test]
    fn a_number_of_days_includes_its_last_second_and_not_the_one_before() {
        let days = Days::new(30).unwrap();
        let edge = NOW - 30 * DAY;
        let cases = [
            (EngagementTest::Ever, None, false),
            (EngagementTest::Ever, Some(0), true),
            (EngagementTest::Never, None, true),
            (EngagementTest::Never, Some(0), false),
            (EngagementTest::WithinDays(days), Some(edge), true),
            (EngagementTest::WithinDays(days), Some(edge - 1), false),
            (EngagementTest::WithinDays(days), None, false),
            (EngagementTest::NotWithinDays(days), Some(edge), false),
            (EngagementTest::NotWithinDays(days), Some(edge - 1), true),
            (EngagementTest::NotWithinDays(days), None, true),
        ];
        for (test, latest, expected) in cases {
            assert_eq!(test.holds(latest, NOW), expected, "{test:?} {latest:?}");
        }
        assert!(days.have_passed_since(edge, NOW));
        assert!(!days.have_passed_since(edge + 1, NOW));
    }

    #[test]
    fn very_large_day_counts_do_not_overflow() {
        let days = Days::new(u64::MAX).unwrap();

        assert!(days.contain(0, NOW));
        assert!(days.contain(0, i64::MIN));
        assert!(!days.have_passed_since(0, NOW));
        assert!(Days::new(0).is_none());
    }
}
