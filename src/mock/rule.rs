//! Rules: read from JSON, and judged for a contact at a moment (section 2.8).

use std::cmp::Ordering;

use serde_json::{Number, Value};

use super::contact::Contact;
use super::dialect::UnknownMembers;
use super::engagement::{Engagement, Engagements};
use super::json::{Members, listed};

/// A segment predicate.
#[derive(Clone, Debug)]
pub(crate) struct Rule {
    all: bool,
    conditions: Vec<Condition>,
}

impl Rule {
    /// The rule that the JSON states, or what is wrong with it and where.
    pub(crate) fn read(rule: &Value, unknown: UnknownMembers) -> Result<Self, String> {
        let members = Members::of(rule, "a rule", "")?;
        if unknown == UnknownMembers::Refused {
            members.nothing_but(&["match_", "conditions"])?;
        }
        let all = match members.required_text("match_")? {
            "all" => true,
            "any" => false,
            _ => {
                let found = members.required("match_")?;
                return Err(members.must_be("match_", "`all` or `any`", found));
            }
        };
        let Value::Array(conditions) = members.required("conditions")? else {
            let found = members.required("conditions")?;
            return Err(members.must_be("conditions", "an array", found));
        };
        let conditions = conditions
            .iter()
            .enumerate()
            .map(|(index, condition)| Condition::read(condition, index, unknown))
            .collect::<Result<_, _>>()?;
        Ok(Self { all, conditions })
    }

    /// Without conditions, `all` is everyone and `any` is nobody.
    pub(crate) fn matches(&self, contact: &Contact, engagements: &Engagements, now: i64) -> bool {
        let mut conditions = self.conditions.iter();
        let holds = |condition: &Condition| condition.holds(contact, engagements, now);
        if self.all {
            conditions.all(holds)
        } else {
            conditions.any(holds)
        }
    }
}

#[derive(Clone, Debug)]
enum Condition {
    Property { key: String, test: Test },
    Engagement { what: Engagement, when: When },
    JoinedWithin(Days),
    JoinedBefore(Days),
}

#[derive(Clone, Debug)]
enum Test {
    Is(Value),
    IsNot(Value),
    Contains(String),
    IsSet,
    IsNotSet,
    GreaterThan(Number),
    LessThan(Number),
}

#[derive(Clone, Copy, Debug)]
enum When {
    Ever,
    Never,
    Within(Days),
    NotWithin(Days),
}

impl Condition {
    fn read(condition: &Value, index: usize, unknown: UnknownMembers) -> Result<Self, String> {
        let place = format!("conditions[{index}].");
        let what = format!("`conditions[{index}]`");
        let members = Members::of(condition, &what, &place)?;
        let field = members.required_text("field")?;
        let mut known = vec!["field"];
        let read = match field {
            "property" => {
                known.extend(["key", "op"]);
                Self::property(&members, &mut known)?
            }
            "engagement" => {
                known.extend(["what", "op"]);
                Self::engagement(&members, &mut known)?
            }
            "joined_within_days" => {
                known.push("days");
                Self::JoinedWithin(Days::read(&members)?)
            }
            "joined_before_days" => {
                known.push("days");
                Self::JoinedBefore(Days::read(&members)?)
            }
            _ => return Err(none_of(&members, "field", &FIELDS)?),
        };
        if unknown == UnknownMembers::Refused {
            members.nothing_but(&known)?;
        }
        Ok(read)
    }

    fn property(members: &Members<'_>, known: &mut Vec<&str>) -> Result<Self, String> {
        let key = members.required_text("key")?.to_owned();
        let op = members.required_text("op")?;
        if !matches!(op, "is_set" | "is_not_set") {
            known.push("value");
        }
        let test = match op {
            "is" => Test::Is(text_or_number(members)?),
            "is_not" => Test::IsNot(text_or_number(members)?),
            "contains" => Test::Contains(members.required_text("value")?.to_owned()),
            "is_set" => Test::IsSet,
            "is_not_set" => Test::IsNotSet,
            "greater_than" => Test::GreaterThan(number(members)?),
            "less_than" => Test::LessThan(number(members)?),
            _ => return Err(none_of(members, "op", &PROPERTY_OPS)?),
        };
        Ok(Self::Property { key, test })
    }

    fn engagement(members: &Members<'_>, known: &mut Vec<&str>) -> Result<Self, String> {
        let Some(what) = Engagement::named(members.required_text("what")?) else {
            return Err(none_of(members, "what", &Engagement::NAMES)?);
        };
        let op = members.required_text("op")?;
        if matches!(op, "within_days" | "not_within_days") {
            known.push("days");
        }
        let when = match op {
            "ever" => When::Ever,
            "never" => When::Never,
            "within_days" => When::Within(Days::read(members)?),
            "not_within_days" => When::NotWithin(Days::read(members)?),
            _ => return Err(none_of(members, "op", &ENGAGEMENT_OPS)?),
        };
        Ok(Self::Engagement { what, when })
    }

    fn holds(&self, contact: &Contact, engagements: &Engagements, now: i64) -> bool {
        match self {
            Self::Property { key, test } => test.holds(contact.properties.get(key)),
            Self::Engagement { what, when } => {
                when.holds(engagements.latest(&contact.email, *what), now)
            }
            Self::JoinedWithin(days) => days.reach(contact.created_at, now),
            Self::JoinedBefore(days) => days.have_passed_since(contact.created_at, now),
        }
    }
}

const FIELDS: [&str; 4] = [
    "property",
    "engagement",
    "joined_within_days",
    "joined_before_days",
];
const PROPERTY_OPS: [&str; 7] = [
    "is",
    "is_not",
    "contains",
    "is_set",
    "is_not_set",
    "greater_than",
    "less_than",
];
const ENGAGEMENT_OPS: [&str; 4] = ["ever", "never", "within_days", "not_within_days"];

impl Test {
    /// Numbers compare as numbers, text with text. `is_not` is the complement of `is`: a property
    /// that is missing is not whatever was asked for.
    fn holds(&self, property: Option<&Value>) -> bool {
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
    fn holds(self, latest: Option<i64>, now: i64) -> bool {
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
struct Days(i64);

impl Days {
    fn read(members: &Members<'_>) -> Result<Self, String> {
        let found = members.required("days")?;
        match found.as_u64() {
            Some(days @ 1..) => Ok(Self(i64::try_from(days).unwrap_or(i64::MAX))),
            _ => Err(members.must_be("days", "a whole number of at least 1", found)),
        }
    }

    /// Whether the days before `now` reach back to `at`, the edge included.
    fn reach(self, at: i64, now: i64) -> bool {
        at >= self.before(now)
    }

    /// Whether at least the days lie between `at` and `now`, the edge included.
    fn have_passed_since(self, at: i64, now: i64) -> bool {
        at <= self.before(now)
    }

    fn before(self, now: i64) -> i64 {
        now.saturating_sub(self.0.saturating_mul(86_400))
    }
}

fn text_or_number(members: &Members<'_>) -> Result<Value, String> {
    match members.required("value")? {
        value @ (Value::String(_) | Value::Number(_)) => Ok(value.clone()),
        other => Err(members.must_be("value", "text or a number", other)),
    }
}

fn number(members: &Members<'_>) -> Result<Number, String> {
    match members.required("value")? {
        Value::Number(number) => Ok(number.clone()),
        other => Err(members.must_be("value", "a number", other)),
    }
}

/// The message for a text that is none of the names allowed.
fn none_of(members: &Members<'_>, name: &str, allowed: &[&str]) -> Result<String, String> {
    let found = members.required(name)?;
    Ok(members.must_be(name, &format!("one of {}", listed(allowed)), found))
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
    use std::collections::BTreeMap;

    use serde_json::json;

    use super::super::contact::Reason;
    use super::*;

    const DAY: i64 = 86_400;
    const NOW: i64 = 1_700_000_000;

    fn read(rule: &Value) -> Result<Rule, String> {
        Rule::read(rule, UnknownMembers::Refused)
    }

    fn holds(condition: Value, properties: Value, opened: Option<i64>, joined: i64) -> bool {
        let contact = Contact {
            id: "con_00000001".to_owned(),
            email: "ada@x".to_owned(),
            first_name: None,
            last_name: None,
            properties: properties.as_object().unwrap().clone(),
            unsubscribed: false,
            reason: Reason::None,
            created_at: joined,
            answers: BTreeMap::new(),
        };
        let mut engagements = Engagements::default();
        if let Some(at) = opened {
            engagements.note("ada@x", Engagement::Opened, at);
        }
        let rule = read(&json!({"match_": "all", "conditions": [condition]})).unwrap();
        rule.matches(&contact, &engagements, NOW)
    }

    #[test]
    fn each_property_operator_decides_as_it_is_named() {
        let cases = [
            (
                json!({"op": "is", "value": "pro"}),
                json!({"p": "pro"}),
                true,
            ),
            (
                json!({"op": "is", "value": "pro"}),
                json!({"p": "Pro"}),
                false,
            ),
            (json!({"op": "is", "value": 1}), json!({"p": 1.0}), true),
            (json!({"op": "is", "value": "1"}), json!({"p": 1}), false),
            (json!({"op": "is", "value": 1}), json!({"p": "1"}), false),
            (json!({"op": "is", "value": "pro"}), json!({}), false),
            (
                json!({"op": "is_not", "value": "pro"}),
                json!({"p": "free"}),
                true,
            ),
            (
                json!({"op": "is_not", "value": "pro"}),
                json!({"p": "pro"}),
                false,
            ),
            (json!({"op": "is_not", "value": "pro"}), json!({}), true),
            (
                json!({"op": "contains", "value": "ro"}),
                json!({"p": "pro"}),
                true,
            ),
            (
                json!({"op": "contains", "value": "RO"}),
                json!({"p": "pro"}),
                false,
            ),
            (
                json!({"op": "contains", "value": "1"}),
                json!({"p": 11}),
                false,
            ),
            (json!({"op": "contains", "value": ""}), json!({}), false),
            (json!({"op": "is_set"}), json!({"p": ""}), true),
            (json!({"op": "is_set"}), json!({}), false),
            (json!({"op": "is_not_set"}), json!({}), true),
            (json!({"op": "is_not_set"}), json!({"p": 0}), false),
            (
                json!({"op": "greater_than", "value": 2}),
                json!({"p": 2}),
                false,
            ),
            (
                json!({"op": "greater_than", "value": 2}),
                json!({"p": 2.5}),
                true,
            ),
            (
                json!({"op": "greater_than", "value": 2}),
                json!({"p": "3"}),
                false,
            ),
            (json!({"op": "greater_than", "value": 2}), json!({}), false),
            (
                json!({"op": "less_than", "value": 2}),
                json!({"p": -1}),
                true,
            ),
            (
                json!({"op": "less_than", "value": 2}),
                json!({"p": 2}),
                false,
            ),
            (
                json!({"op": "less_than", "value": 9_007_199_254_740_993_u64}),
                json!({"p": 9_007_199_254_740_992_u64}),
                true,
            ),
        ];
        for (mut condition, properties, expected) in cases {
            condition["field"] = json!("property");
            condition["key"] = json!("p");
            let name = format!("{condition} for {properties}");

            assert_eq!(holds(condition, properties, None, NOW), expected, "{name}");
        }
    }

    #[test]
    fn days_reach_back_to_the_edge_and_not_a_second_further() {
        let edge = NOW - 30 * DAY;
        let cases = [
            ("ever", None, false),
            ("ever", Some(0), true),
            ("never", None, true),
            ("never", Some(0), false),
            ("within_days", Some(edge), true),
            ("within_days", Some(edge - 1), false),
            ("within_days", None, false),
            ("not_within_days", Some(edge), false),
            ("not_within_days", Some(edge - 1), true),
            ("not_within_days", None, true),
        ];
        for (op, opened, expected) in cases {
            let mut condition = json!({"field": "engagement", "what": "opened", "op": op});
            if op.ends_with("days") {
                condition["days"] = json!(30);
            }

            assert_eq!(
                holds(condition, json!({}), opened, NOW),
                expected,
                "{op} {opened:?}"
            );
        }
    }

    #[test]
    fn joined_conditions_include_the_edge_on_either_side() {
        let edge = NOW - 7 * DAY;
        for (field, joined, expected) in [
            ("joined_within_days", edge, true),
            ("joined_within_days", edge - 1, false),
            ("joined_before_days", edge, true),
            ("joined_before_days", edge + 1, false),
        ] {
            let condition = json!({"field": field, "days": 7});

            assert_eq!(
                holds(condition, json!({}), None, joined),
                expected,
                "{field} {joined}"
            );
        }
        let ages = json!({"field": "joined_within_days", "days": u64::MAX});
        assert!(holds(ages, json!({}), None, 0));
    }

    #[test]
    fn a_rule_without_conditions_is_everyone_or_nobody() {
        let contact = super::super::roster::Roster::default()
            .add("ada@x".to_owned(), None, None, serde_json::Map::new(), NOW)
            .clone();
        for (match_, expected) in [("all", true), ("any", false)] {
            let rule = read(&json!({"match_": match_, "conditions": []})).unwrap();

            assert_eq!(
                rule.matches(&contact, &Engagements::default(), NOW),
                expected
            );
        }
    }

    #[test]
    fn a_bad_rule_is_refused_with_the_member_that_is_wrong() {
        let with = |condition: Value| json!({"match_": "all", "conditions": [condition]});
        let cases = [
            (json!([]), "a rule must be a JSON object, not []"),
            (json!({"conditions": []}), "`match_` is missing"),
            (
                json!({"match_": "none", "conditions": []}),
                "`match_` must be `all` or `any`, not \"none\"",
            ),
            (json!({"match_": "all"}), "`conditions` is missing"),
            (
                json!({"match_": "all", "conditions": {}}),
                "`conditions` must be an array, not {}",
            ),
            (
                json!({"match": "all", "match_": "all", "conditions": []}),
                "`match` is no member that is known here; known: `match_`, `conditions`",
            ),
            (
                with(json!(1)),
                "`conditions[0]` must be a JSON object, not 1",
            ),
            (
                with(json!({"field": "age"})),
                "`conditions[0].field` must be one of `property`, `engagement`, `joined_within_days`, `joined_before_days`, not \"age\"",
            ),
            (
                with(json!({"field": "property", "op": "is", "value": 1})),
                "`conditions[0].key` is missing",
            ),
            (
                with(json!({"field": "property", "key": "p", "op": "is"})),
                "`conditions[0].value` is missing",
            ),
            (
                with(json!({"field": "property", "key": "p", "op": "is", "value": true})),
                "`conditions[0].value` must be text or a number, not true",
            ),
            (
                with(json!({"field": "property", "key": "p", "op": "greater_than", "value": "2"})),
                "`conditions[0].value` must be a number, not \"2\"",
            ),
            (
                with(json!({"field": "property", "key": "p", "op": "contains", "value": 2})),
                "`conditions[0].value` must be text, not 2",
            ),
            (
                with(json!({"field": "property", "key": "p", "op": "is_set", "value": 2})),
                "`conditions[0].value` is no member that is known here; known: `field`, `key`, `op`",
            ),
            (
                with(json!({"field": "engagement", "what": "sent", "op": "ever"})),
                "`conditions[0].what` must be one of `delivered`, `bounced`, `complained`, `opened`, `clicked`, not \"sent\"",
            ),
            (
                with(json!({"field": "engagement", "what": "opened", "op": "within_days"})),
                "`conditions[0].days` is missing",
            ),
            (
                with(json!({"field": "engagement", "what": "opened", "op": "ever", "days": 1})),
                "`conditions[0].days` is no member that is known here; known: `field`, `what`, `op`",
            ),
            (
                with(json!({"field": "joined_within_days", "days": 0})),
                "`conditions[0].days` must be a whole number of at least 1, not 0",
            ),
            (
                with(json!({"field": "joined_before_days", "days": -1})),
                "`conditions[0].days` must be a whole number of at least 1, not -1",
            ),
            (
                with(json!({"field": "joined_before_days", "days": 1.5})),
                "`conditions[0].days` must be a whole number of at least 1, not 1.5",
            ),
        ];
        for (rule, message) in cases {
            assert_eq!(read(&rule).unwrap_err(), message);
        }
    }
}
