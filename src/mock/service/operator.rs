//! The operators of a condition, and how each parses its operand.

use serde_json::{Number, Value};

use super::json::{Members, quoted_list};
use super::predicate::{Days, EngagementTest, PropertyTest};

/// An operator of section 2.8: its name, the member that holds its operand, and how it is parsed.
pub(super) type Operator<T> = (
    &'static str,
    Option<&'static str>,
    fn(&Members<'_>) -> Result<T, String>,
);

/// The operators of a property condition.
pub(super) const PROPERTY: &[Operator<PropertyTest>] = &[
    ("is", Some("value"), |members| {
        string_or_number(members).map(PropertyTest::Is)
    }),
    ("is_not", Some("value"), |members| {
        string_or_number(members).map(PropertyTest::IsNot)
    }),
    ("contains", Some("value"), |members| {
        text(members).map(PropertyTest::Contains)
    }),
    ("is_set", None, |_| Ok(PropertyTest::IsSet)),
    ("is_not_set", None, |_| Ok(PropertyTest::IsNotSet)),
    ("greater_than", Some("value"), |members| {
        number(members).map(PropertyTest::GreaterThan)
    }),
    ("less_than", Some("value"), |members| {
        number(members).map(PropertyTest::LessThan)
    }),
];

/// The operators of an engagement condition.
pub(super) const ENGAGEMENT: &[Operator<EngagementTest>] = &[
    ("ever", None, |_| Ok(EngagementTest::Ever)),
    ("never", None, |_| Ok(EngagementTest::Never)),
    ("within_days", Some("days"), |members| {
        days(members, "days").map(EngagementTest::WithinDays)
    }),
    ("not_within_days", Some("days"), |members| {
        days(members, "days").map(EngagementTest::NotWithinDays)
    }),
];

/// Parses the operator in `op` and its operand, and adds the member of the operand to `known`.
pub(super) fn parse<T>(
    members: &Members<'_>,
    operators: &[Operator<T>],
    known: &mut Vec<&str>,
) -> Result<T, String> {
    let found = members.required_text("op")?;
    let Some((_, operand, parse)) = operators.iter().find(|(name, ..)| *name == found) else {
        let names: Vec<&str> = operators.iter().map(|(name, ..)| *name).collect();
        return Err(unknown_name(members, "op", found, &names));
    };
    known.extend(operand);
    parse(members)
}

/// Returns the `value` of `is` and `is_not`.
fn string_or_number(members: &Members<'_>) -> Result<Value, String> {
    match members.required("value")? {
        value @ (Value::String(_) | Value::Number(_)) => Ok(value.clone()),
        other => Err(members.must_be("value", "a string or a number", other)),
    }
}

/// Returns the `value` of `contains`.
fn text(members: &Members<'_>) -> Result<String, String> {
    members.required_text("value").map(str::to_owned)
}

/// Returns the `value` of `greater_than` and `less_than`.
fn number(members: &Members<'_>) -> Result<Number, String> {
    match members.required("value")? {
        Value::Number(number) => Ok(number.clone()),
        other => Err(members.must_be("value", "a number", other)),
    }
}

/// Returns the day count in the member `name`. The document gives no range; the mock refuses 0, negative numbers and
/// fractions.
pub(super) fn days(members: &Members<'_>, name: &str) -> Result<Days, String> {
    let found = members.required(name)?;
    let days = found.as_u64().and_then(Days::new);
    days.ok_or_else(|| members.must_be(name, "a whole number of at least 1", found))
}

/// Returns the message for a member whose value is not one of the allowed names.
pub(super) fn unknown_name(
    members: &Members<'_>,
    name: &str,
    found: &str,
    allowed: &[&str],
) -> String {
    let allowed = format!("one of {}", quoted_list(allowed));
    members.must_be(name, &allowed, &found.into())
}
