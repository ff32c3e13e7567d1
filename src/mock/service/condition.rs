//! The conditions of a rule: four kinds, each a row of the table in section 2.8.

use serde_json::Value;

use super::contact::Contact;
use super::dialect::{Dialect, JoinedMember, UnknownMembers};
use super::engagement::{Engagement, Engagements};
use super::json::Members;
use super::operator::{self, days, unknown_name};
use super::predicate::{Days, EngagementTest, PropertyTest};

/// A parsed condition.
#[derive(Clone, Debug)]
pub(crate) enum Condition {
    /// `property`: a test of the value of one merge field.
    Property { key: String, test: PropertyTest },
    /// `engagement`: a test of when the latest engagement of one kind was.
    Engagement {
        what: Engagement,
        test: EngagementTest,
    },
    /// `joined_within_days`: the contact was created at most this many days ago.
    JoinedWithin(Days),
    /// `joined_before_days`: the contact was created at least this many days ago.
    JoinedBefore(Days),
}

impl Condition {
    /// Parses the condition at an index of the array `conditions`.
    ///
    /// The dialect decides which member holds the day count of `joined_within_days` and `joined_before_days`. A member
    /// that the operator does not use is unknown.
    ///
    /// # Errors
    ///
    /// Fails if a member is missing, invalid or unknown. The error is the message for a refusal and names the member.
    pub(crate) fn parse(condition: &Value, index: usize, dialect: Dialect) -> Result<Self, String> {
        let joined_member = joined_member(dialect.joined_member);
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
                known.push(joined_member);
                Self::JoinedWithin(days(&members, joined_member)?)
            }
            "joined_before_days" => {
                known.push(joined_member);
                Self::JoinedBefore(days(&members, joined_member)?)
            }
            other => return Err(unknown_name(&members, "field", other, FIELDS)),
        };
        if dialect.unknown_members == UnknownMembers::Refused {
            members.reject_unknown(&known)?;
        }
        Ok(parsed)
    }

    /// Parses a property condition, and adds the member that its operator needs to `known`.
    fn property(members: &Members<'_>, known: &mut Vec<&str>) -> Result<Self, String> {
        let key = members.required_text("key")?.to_owned();
        let test = operator::parse(members, operator::PROPERTY, known)?;
        Ok(Self::Property { key, test })
    }

    /// Parses an engagement condition, and adds the member that its operator needs to `known`.
    fn engagement(members: &Members<'_>, known: &mut Vec<&str>) -> Result<Self, String> {
        let name = members.required_text("what")?;
        let Some(what) = Engagement::from_name(name) else {
            return Err(unknown_name(members, "what", name, &Engagement::NAMES));
        };
        let test = operator::parse(members, operator::ENGAGEMENT, known)?;
        Ok(Self::Engagement { what, test })
    }

    /// Returns whether the condition holds for a contact at `now`.
    pub(crate) fn holds(&self, contact: &Contact, engagements: &Engagements, now: i64) -> bool {
        match self {
            Self::Property { key, test } => test.holds(contact.properties.get(key)),
            Self::Engagement { what, test } => {
                test.holds(engagements.latest(&contact.key, *what), now)
            }
            Self::JoinedWithin(days) => days.contain(contact.created_at, now),
            Self::JoinedBefore(days) => days.have_passed_since(contact.created_at, now),
        }
    }
}

const FIELDS: &[&str] = &[
    "property",
    "engagement",
    "joined_within_days",
    "joined_before_days",
];

/// Returns the name of the member that holds the day count of a joined condition.
fn joined_member(choice: JoinedMember) -> &'static str {
    match choice {
        JoinedMember::Days => "days",
        JoinedMember::Value => "value",
        JoinedMember::Count => "count",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Map, json};

    use super::super::contact_store::ContactStore;
    use super::*;

    const NOW: i64 = 1_700_000_000;

    fn parse(condition: &Value) -> Result<Condition, String> {
        Condition::parse(condition, 0, Dialect::default())
    }

    /// Whether a condition holds for a contact on the `pro` plan who opened mail and joined ten days ago.
    fn holds(condition: &Value) -> bool {
        let mut store = ContactStore::default();
        let properties = Map::from_iter([("plan".to_owned(), json!("pro"))]);
        let joined = NOW - 10 * 86_400;
        let email = "ada@x.io".to_owned();
        let contact = store.add(email, None, None, properties, joined).unwrap();
        let mut engagements = Engagements::default();
        engagements.record(contact.key.clone(), Engagement::Opened, joined);
        let condition = parse(condition).unwrap();
        condition.holds(contact, &engagements, NOW)
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
            assert_eq!(holds(&condition), expected, "{condition}");
        }
    }

    #[test]
    fn the_error_for_an_invalid_condition_names_its_index_and_the_invalid_member() {
        let cases = [
            (json!(1), "`conditions[0]` must be a JSON object, not 1"),
            (
                json!({"field": "age"}),
                "`conditions[0].field` must be one of `property`, `engagement`, `joined_within_days`, `joined_before_days`, not \"age\"",
            ),
            (
                json!({"field": "property", "op": "is", "value": 1}),
                "`conditions[0].key` is missing",
            ),
            (
                json!({"field": "property", "key": "p", "op": "is"}),
                "`conditions[0].value` is missing",
            ),
            (
                json!({"field": "property", "key": "p", "op": "is", "value": true}),
                "`conditions[0].value` must be a string or a number, not true",
            ),
            (
                json!({"field": "property", "key": "p", "op": "greater_than", "value": "2"}),
                "`conditions[0].value` must be a number, not \"2\"",
            ),
            (
                json!({"field": "property", "key": "p", "op": "contains", "value": 2}),
                "`conditions[0].value` must be a string, not 2",
            ),
            (
                json!({"field": "property", "key": "p", "op": "is_set", "value": 2}),
                "`conditions[0].value` is not a known member; known members: `field`, `key`, `op`",
            ),
            (
                json!({"field": "engagement", "what": "sent", "op": "ever"}),
                "`conditions[0].what` must be one of `delivered`, `bounced`, `complained`, `opened`, `clicked`, not \"sent\"",
            ),
            (
                json!({"field": "engagement", "what": "opened", "op": "within_days"}),
                "`conditions[0].days` is missing",
            ),
            (
                json!({"field": "engagement", "what": "opened", "op": "ever", "days": 1}),
                "`conditions[0].days` is not a known member; known members: `field`, `what`, `op`",
            ),
            (
                json!({"field": "joined_within_days", "days": 0}),
                "`conditions[0].days` must be a whole number of at least 1, not 0",
            ),
            (
                json!({"field": "joined_before_days", "days": -1}),
                "`conditions[0].days` must be a whole number of at least 1, not -1",
            ),
            (
                json!({"field": "joined_before_days", "days": 1.5}),
                "`conditions[0].days` must be a whole number of at least 1, not 1.5",
            ),
        ];
        for (condition, message) in cases {
            assert_eq!(parse(&condition).unwrap_err(), message);
        }
    }

    #[test]
    fn the_error_for_an_unknown_operator_lists_the_known_ones() {
        let property = json!({"field": "property", "key": "p", "op": "sounds_like"});
        let engagement = json!({"field": "engagement", "what": "opened", "op": "sounds_like"});

        for (condition, known) in [
            (property, quoted_names(operator::PROPERTY)),
            (engagement, quoted_names(operator::ENGAGEMENT)),
        ] {
            assert_eq!(
                parse(&condition).unwrap_err(),
                format!("`conditions[0].op` must be one of {known}, not \"sounds_like\"")
            );
        }
    }

    fn quoted_names<T>(operators: &[operator::Operator<T>]) -> String {
        let names = operators.iter().map(|(name, ..)| format!("`{name}`"));
        names.collect::<Vec<_>>().join(", ")
    }
}
