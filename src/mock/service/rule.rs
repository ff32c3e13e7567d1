//! Rules: parsed from JSON, and evaluated for a contact at a given time (section 2.8).

use serde_json::{Number, Value};

use super::contact::Contact;
use super::dialect::UnknownMembers;
use super::engagement::{Engagement, Engagements};
use super::json::{Members, quoted_list};
use super::predicate::{Days, EngagementTest, PropertyTest};

/// A parsed rule: the predicate of a stored segment or of the `rules` parameter.
#[derive(Clone, Debug)]
pub(crate) struct Rule {
    /// Whether every condition must hold (`all`) or one is enough (`any`).
    all: bool,
    conditions: Vec<Condition>,
}

impl Rule {
    /// Parses a rule.
    ///
    /// Section 2.8 names the members of each kind of condition. It does not say which member holds the day count of
    /// `joined_within_days` and `joined_before_days`; the mock reads `days`, as in an engagement condition.
    ///
    /// # Errors
    ///
    /// The message for the refusal, which names the member that is missing, invalid or unknown.
    pub(crate) fn parse(rule: &Value, unknown: UnknownMembers) -> Result<Self, String> {
        let members = Members::new(rule, "a rule", "")?;
        if unknown == UnknownMembers::Refused {
            members.reject_unknown(&["match_", "conditions"])?;
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
            .map(|(index, condition)| Condition::parse(condition, index, unknown))
            .collect::<Result<_, _>>()?;
        Ok(Self { all, conditions })
    }

    /// Returns whether a contact matches the rule at `now`, in Unix seconds.
    ///
    /// The document does not say what a rule without conditions means. In the mock, `all` then matches every
    /// contact and `any` matches none.
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

/// One condition of a rule: a row of the table in section 2.8.
#[derive(Clone, Debug)]
enum Condition {
    Property {
        key: String,
        test: PropertyTest,
    },
    Engagement {
        what: Engagement,
        test: EngagementTest,
    },
    JoinedWithin(Days),
    JoinedBefore(Days),
}

impl Condition {
    /// Parses the condition at an index. A member that its operator does not use is unknown.
    fn parse(condition: &Value, index: usize, unknown: UnknownMembers) -> Result<Self, String> {
        let prefix = format!("conditions[{index}].");
        let what = format!("`conditions[{index}]`");
        let members = Members::new(condition, &what, &prefix)?;
        let field = members.required_text("field")?;
        let mut known = vec!["field"];
        let parsed = match field {
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
            _ => return Err(unknown_name(&members, "field", &FIELDS)?),
        };
        if unknown == UnknownMembers::Refused {
            members.reject_unknown(&known)?;
        }
        Ok(parsed)
    }

    /// Parses a property condition, and adds the member that its operator needs to `known`.
    fn property(members: &Members<'_>, known: &mut Vec<&str>) -> Result<Self, String> {
        let key = members.required_text("key")?.to_owned();
        let op = members.required_text("op")?;
        if !matches!(op, "is_set" | "is_not_set") {
            known.push("value");
        }
        let test = match op {
            "is" => PropertyTest::Is(string_or_number(members)?),
            "is_not" => PropertyTest::IsNot(string_or_number(members)?),
            "contains" => PropertyTest::Contains(members.required_text("value")?.to_owned()),
            "is_set" => PropertyTest::IsSet,
            "is_not_set" => PropertyTest::IsNotSet,
            "greater_than" => PropertyTest::GreaterThan(number(members)?),
            "less_than" => PropertyTest::LessThan(number(members)?),
            _ => return Err(unknown_name(members, "op", &PROPERTY_OPS)?),
        };
        Ok(Self::Property { key, test })
    }

    /// Parses an engagement condition, and adds the member that its operator needs to `known`.
    fn engagement(members: &Members<'_>, known: &mut Vec<&str>) -> Result<Self, String> {
        let Some(what) = Engagement::from_name(members.required_text("what")?) else {
            return Err(unknown_name(members, "what", &Engagement::NAMES)?);
        };
        let op = members.required_text("op")?;
        if matches!(op, "within_days" | "not_within_days") {
            known.push("days");
        }
        let test = match op {
            "ever" => EngagementTest::Ever,
            "never" => EngagementTest::Never,
            "within_days" => EngagementTest::WithinDays(days(members)?),
            "not_within_days" => EngagementTest::NotWithinDays(days(members)?),
            _ => return Err(unknown_name(members, "op", &ENGAGEMENT_OPS)?),
        };
        Ok(Self::Engagement { what, test })
    }

    /// Returns whether the condition holds for a contact at `now`.
    fn holds(&self, contact: &Contact, engagements: &Engagements, now: i64) -> bool {
        match self {
            Self::Property { key, test } => test.holds(contact.properties.get(key)),
            Self::Engagement { what, test } => {
                test.holds(engagements.latest(&contact.email, *what), now)
            }
            Self::JoinedWithin(days) => days.contain(contact.created_at, now),
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

fn string_or_number(members: &Members<'_>) -> Result<Value, String> {
    match members.required("value")? {
        value @ (Value::String(_) | Value::Number(_)) => Ok(value.clone()),
        other => Err(members.must_be("value", "a string or a number", other)),
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

/// Returns the message for a member whose value is not one of the allowed names.
fn unknown_name(members: &Members<'_>, name: &str, allowed: &[&str]) -> Result<String, String> {
    let found = members.required(name)?;
    Ok(members.must_be(name, &format!("one of {}", quoted_list(allowed)), found))
}

#[cfg(test)]
mod tests {
    use serde_json::{Map, json};

    use super::super::contact_store::ContactStore;
    use super::*;

    const NOW: i64 = 1_700_000_000;

    fn parse(rule: &Value) -> Result<Rule, String> {
        Rule::parse(rule, UnknownMembers::Refused)
    }

    /// Whether a rule holds for a contact on the `pro` plan who opened mail and joined ten days ago.
    fn holds(match_: &str, conditions: &[Value]) -> bool {
        let mut store = ContactStore::default();
        let properties = Map::from_iter([("plan".to_owned(), json!("pro"))]);
        let joined = NOW - 10 * 86_400;
        let email = "ada@x.io".to_owned();
        let contact = store.add(email, None, None, properties, joined).unwrap();
        let mut engagements = Engagements::default();
        engagements.record("ada@x.io", Engagement::Opened, joined);
        let rule = parse(&json!({"match_": match_, "conditions": conditions})).unwrap();
        rule.matches(contact, &engagements, NOW)
    }

    #[test]
    fn each_kind_of_condition_is_parsed_and_evaluated() {
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
    fn a_rule_without_conditions_matches_everyone_or_nobody() {
        assert!(holds("all", &[]));
        assert!(!holds("any", &[]));
    }

    #[test]
    fn unknown_members_are_ignored_in_a_lenient_dialect() {
        let rule = json!({"match_": "all", "name": "mine", "conditions": [
            {"field": "property", "key": "plan", "op": "is_set", "value": null},
        ]});

        assert!(Rule::parse(&rule, UnknownMembers::Ignored).is_ok());
    }

    #[test]
    fn the_error_for_an_invalid_rule_names_the_invalid_member() {
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
                "`match` is not a known member; known members: `match_`, `conditions`",
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
                "`conditions[0].value` must be a string or a number, not true",
            ),
            (
                with(json!({"field": "property", "key": "p", "op": "greater_than", "value": "2"})),
                "`conditions[0].value` must be a number, not \"2\"",
            ),
            (
                with(json!({"field": "property", "key": "p", "op": "contains", "value": 2})),
                "`conditions[0].value` must be a string, not 2",
            ),
            (
                with(json!({"field": "property", "key": "p", "op": "is_set", "value": 2})),
                "`conditions[0].value` is not a known member; known members: `field`, `key`, `op`",
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
                "`conditions[0].days` is not a known member; known members: `field`, `what`, `op`",
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
            assert_eq!(parse(&rule).unwrap_err(), message);
        }
    }
}
