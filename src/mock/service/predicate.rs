//! The tests that conditions consist of: a property's value, an engagement, a number of days (section 2.8).

use std::cmp::Ordering;

use serde_json::{Number, Value};

/// What a property's value is tested for.
#[derive(Clone, Debug)]
pub(crate) enum Test {
    Is(Value),
    IsNot(Value),
    Contains(String),
    IsSet,
    IsNotSet,
    GreaterThan(Number),
    LessThan(Number),
}

/// When an engagement must have been, or must not.
#[derive(Clone, Copy, Debug)]
pub(crate) enum When {
    Ever,
    Never,
    Within(Days),
    NotWithin(Days),
}

impl Test {
    /// Numbers compare as numbers, text with text. `is_not` is the complement of `is`: a property
    /// that is missing is not whatever was asked for.
    pub(crate) fn holds(&self, property: Option<&Value>) -> bool {
        match self {
            Self::Is(value) => property.is_some_and(|property| equal(property, value)),
            Self::IsNot(value) => !property.is_some_and(|property| equal(property, value)),
            Self::Contains(part) => property
                .and_then(Value::as_str)
                .is_some_and(|text| text.contains(part)),
            Self::IsSet => property.is_some(),
            Self::IsNotSet => property.is_none(),
            Self::GreaterThan(number) => ordered(property, number) == Some(Ordering::Greater),
            Self::LessThan(number) => ordered(property, number) == Some(Ordering::Less),
        }
    }
}

impl When {
    /// `not_within_days` is the complement of `within_days`: the never engaged are in.
    pub(crate) fn holds(self, latest: Option<i64>, now: i64) -> bool {
        match self {
            Self::Ever => latest.is_some(),
            Self::Never => latest.is_none(),
            Self::Within(days) => latest.is_some_and(|at| days.reach(at, now)),
            Self::NotWithin(days) => !latest.is_some_and(|at| days.reach(at, now)),
        }
    }
}

/// A count of days of 86,400 seconds each, at least one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Days(i64);

impl Days {
    /// As many days, or `None` where they are none.
    pub(crate) fn new(days: u64) -> Option<Self> {
        (days > 0).then(|| Self(i64::try_from(days).unwrap_or(i64::MAX)))
    }

    /// Whether the days before `now` reach back to `at`, the edge included. A moment that the clock
    /// has yet to come to is within any days.
    pub(crate) fn reach(self, at: i64, now: i64) -> bool {
        at >= self.before(now)
    }

    /// Whether at least the days lie between `at` and `now`, the edge included.
    pub(crate) fn have_passed_since(self, at: i64, now: i64) -> bool {
        at <= self.before(now)
    }

    fn before(self, now: i64) -> i64 {
        now.saturating_sub(self.0.saturating_mul(86_400))
    }
}

fn equal(property: &Value, value: &Value) -> bool {
    match value {
        Value::Number(number) => ordered(Some(property), number) == Some(Ordering::Equal),
        other => property == other,
    }
}

/// How a property stands to a number; `None` where it is no number itself.
fn ordered(property: Option<&Value>, number: &Number) -> Option<Ordering> {
    let Some(Value::Number(property)) = property else {
        return None;
    };
    match (property.as_i128(), number.as_i128()) {
        (Some(left), Some(right)) => Some(left.cmp(&right)),
        _ => property.as_f64()?.partial_cmp(&number.as_f64()?),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const NOW: i64 = 1_700_000_000;
    const DAY: i64 = 86_400;

    #[test]
    fn numbers_compare_as_numbers_text_with_text_and_case_counts() {
        let cases = [
            (Test::Is(json!("pro")), json!("pro"), true),
            (Test::Is(json!("pro")), json!("Pro"), false),
            (Test::Is(json!(1)), json!(1.0), true),
            (Test::Is(json!("1")), json!(1), false),
            (Test::Is(json!(1)), json!("1"), false),
            (Test::IsNot(json!("pro")), json!("free"), true),
            (Test::IsNot(json!("pro")), json!("pro"), false),
            (Test::Contains("ro".to_owned()), json!("pro"), true),
            (Test::Contains("RO".to_owned()), json!("pro"), false),
            (Test::Contains("1".to_owned()), json!(11), false),
            (Test::IsSet, json!(""), true),
            (Test::IsNotSet, json!(0), false),
            (Test::GreaterThan(2.into()), json!(2), false),
            (Test::GreaterThan(2.into()), json!(2.5), true),
            (Test::GreaterThan(2.into()), json!("3"), false),
            (Test::LessThan(2.into()), json!(-1), true),
            (Test::LessThan(2.into()), json!(2), false),
            (Test::LessThan(u64::MAX.into()), json!(u64::MAX - 1), true),
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
    fn a_missing_property_is_not_whatever_was_asked_for() {
        let cases = [
            (Test::Is(json!("")), false),
            (Test::IsNot(json!("")), true),
            (Test::Contains(String::new()), false),
            (Test::IsSet, false),
            (Test::IsNotSet, true),
            (Test::GreaterThan(0.into()), false),
            (Test::LessThan(0.into()), false),
        ];
        for (test, expected) in cases {
            assert_eq!(test.holds(None), expected, "{test:?}");
        }
    }

    #[test]
    fn days_reach_back_to_the_edge_and_not_a_second_further() {
        let days = Days::new(30).unwrap();
        let edge = NOW - 30 * DAY;
        let cases = [
            (When::Ever, None, false),
            (When::Ever, Some(0), true),
            (When::Never, None, true),
            (When::Never, Some(0), false),
            (When::Within(days), Some(edge), true),
            (When::Within(days), Some(edge - 1), false),
            (When::Within(days), None, false),
            (When::NotWithin(days), Some(edge), false),
            (When::NotWithin(days), Some(edge - 1), true),
            (When::NotWithin(days), None, true),
        ];
        for (when, latest, expected) in cases {
            assert_eq!(when.holds(latest, NOW), expected, "{when:?} {latest:?}");
        }
        assert!(days.have_passed_since(edge, NOW));
        assert!(!days.have_passed_since(edge + 1, NOW));
    }

    #[test]
    fn days_beyond_all_time_are_counted_without_overflow() {
        let ages = Days::new(u64::MAX).unwrap();

        assert!(ages.reach(0, NOW));
        assert!(ages.reach(0, i64::MIN));
        assert!(!ages.have_passed_since(0, NOW));
        assert!(Days::new(0).is_none());
    }
}
