//! Rules: parsed from JSON, and evaluated for a contact at a given time (section 2.8).

use serde_json::Value;

use super::condition::Condition;
use super::contact::Contact;
use super::dialect::{Dialect, UnknownMembers};
use super::engagement::Engagements;
use super::json::Members;

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
    /// # Errors
    ///
    /// Fails if a member is missing, invalid or unknown. The error is the message for a refusal and names the member.
    pub(crate) fn parse(rule: &Value, dialect: Dialect) -> Result<Self, String> {
        let members = Members::new(rule, "a rule", "")?;
        if dialect.unknown_members == UnknownMembers::Refused {
            members.reject_unknown(&["match_", "conditions"])?;
        }
        let all = match members.required_text("match_")? {
            "all" => true,
            "any" => false,
            other => return Err(members.must_be("match_", "`all` or `any`", &other.into())),
        };
        let conditions = match members.required("conditions")? {
            Value::Array(conditions) => conditions,
            other => return Err(members.must_be("conditions", "an array", other)),
        };
        let conditions = conditions
            .iter()
            .enumerate()
            .map(|(index, condition)| Condition::parse(condition, index, dialect))
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

#[cfg(test)]
mod tests {
    use serde_json::{Map, json};

    use super::super::contact_store::ContactStore;
    use super::*;

    fn parse(rule: &Value) -> Result<Rule, String> {
        Rule::parse(rule, Dialect::default())
    }

    /// Whether a rule holds for a contact who has the property `plan`.
    fn holds(match_: &str, conditions: &[Value]) -> bool {
        let mut store = ContactStore::default();
        let properties = Map::from_iter([("plan".to_owned(), json!("pro"))]);
        let email = "ada@x.io".to_owned();
        let contact = store.add(email, None, None, properties, 0).unwrap();
        let rule = parse(&json!({"match_": match_, "conditions": conditions})).unwrap();
        rule.matches(contact, &Engagements::default(), 0)
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

        let dialect = Dialect {
            unknown_members: UnknownMembers::Ignored,
            ..Dialect::default()
        };
        assert!(Rule::parse(&rule, dialect).is_ok());
    }

    #[test]
    fn the_error_for_an_invalid_rule_names_the_invalid_member() {
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
        ];
        for (rule, message) in cases {
            assert_eq!(parse(&rule).unwrap_err(), message);
        }
    }
}
