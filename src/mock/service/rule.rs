//! Rules: read from JSON, and judged for a contact at a moment (section 2.8).

use serde_json::{Number, Value};

use super::contact::Contact;
use super::dialect::UnknownMembers;
use super::engagement::{Engagement, Engagements};
use super::json::{Members, listed};
use super::predicate::{Days, Test, When};

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
                Self::JoinedWithin(days(&members)?)
            }
            "joined_before_days" => {
                known.push("days");
                Self::JoinedBefore(days(&members)?)
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
            "within_days" => When::Within(days(members)?),
            "not_within_days" => When::NotWithin(days(members)?),
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

fn days(members: &Members<'_>) -> Result<Days, String> {
    let found = members.required("days")?;
    let days = found.as_u64().and_then(Days::new);
    days.ok_or_else(|| members.must_be("days", "a whole number of at least 1", found))
}

/// The message for a text that is none of the names allowed.
fn none_of(members: &Members<'_>, name: &str, allowed: &[&str]) -> Result<String, String> {
    let found = members.required(name)?;
    Ok(members.must_be(name, &format!("one of {}", listed(allowed)), found))
}

#[cfg(test)]
mod tests {
    use serde_json::{Map, json};

    use super::super::roster::Roster;
    use super::*;

    const NOW: i64 = 1_700_000_000;

    fn read(rule: &Value) -> Result<Rule, String> {
        Rule::read(rule, UnknownMembers::Refused)
    }

    /// Whether a rule holds for a contact on the `pro` plan who opened mail and joined ten days ago.
    fn holds(match_: &str, conditions: &[Value]) -> bool {
        let mut roster = Roster::default();
        let properties = Map::from_iter([("plan".to_owned(), json!("pro"))]);
        let joined = NOW - 10 * 86_400;
        let contact = roster.add("ada@x.io".to_owned(), None, None, properties, joined);
        let mut engagements = Engagements::default();
        engagements.note("ada@x.io", Engagement::Opened, joined);
        let rule = read(&json!({"match_": match_, "conditions": conditions})).unwrap();
        rule.matches(contact, &engagements, NOW)
    }

    #[test]
    fn each_kind_of_condition_is_read_and_judged() {
        let cases = [
            (
                json!({"field": "property", "key": "plan", "op": "is", "value": "pro"}),
                true,
            ),
            (
                json!({"field": "property", "key": "plan", "op": "is_not", "value": "pro"}),
                false,
            ),
            (
                json!({"field": "property", "key": "plan", "op": "contains", "value": "r"}),
                true,
            ),
            (
                json!({"field": "property", "key": "plan", "op": "is_set"}),
                true,
            ),
            (
                json!({"field": "property", "key": "plan", "op": "is_not_set"}),
                false,
            ),
            (
                json!({"field": "property", "key": "plan", "op": "greater_than", "value": 1}),
                false,
            ),
            (
                json!({"field": "property", "key": "plan", "op": "less_than", "value": 1}),
                false,
            ),
            (
                json!({"field": "engagement", "what": "opened", "op": "ever"}),
                true,
            ),
            (
                json!({"field": "engagement", "what": "clicked", "op": "ever"}),
                false,
            ),
            (
                json!({"field": "engagement", "what": "bounced", "op": "never"}),
                true,
            ),
            (
                json!({"field": "engagement", "what": "opened", "op": "within_days", "days": 9}),
                false,
            ),
            (
                json!({"field": "engagement", "what": "opened", "op": "not_within_days", "days": 9}),
                true,
            ),
            (json!({"field": "joined_within_days", "days": 10}), true),
            (json!({"field": "joined_within_days", "days": 9}), false),
            (json!({"field": "joined_before_days", "days": 10}), true),
            (json!({"field": "joined_before_days", "days": 11}), false),
        ];
        for (condition, expected) in cases {
            assert_eq!(
                holds("all", std::slice::from_ref(&condition)),
                expected,
                "{condition}"
            );
        }
    }

    #[test]
    fn all_needs_every_condition_and_any_needs_one() {
        let yes = json!({"field": "property", "key": "plan", "op": "is_set"});
        let no = json!({"field": "property", "key": "plan", "op": "is_not_set"});

        assert!(holds("all", &[yes.clone(), yes.clone()]));
        assert!(!holds("all", &[yes.clone(), no.clone()]));
        assert!(holds("any", &[no.clone(), yes]));
        assert!(!holds("any", &[no.clone(), no]));
    }

    #[test]
    fn a_rule_without_conditions_is_everyone_or_nobody() {
        assert!(holds("all", &[]));
        assert!(!holds("any", &[]));
    }

    #[test]
    fn a_lenient_reader_passes_over_what_it_does_not_know() {
        let rule = json!({"match_": "all", "name": "mine", "conditions": [
            {"field": "property", "key": "plan", "op": "is_set", "value": null},
        ]});

        assert!(Rule::read(&rule, UnknownMembers::Ignored).is_ok());
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
