//! Segments and rules: which contacts belong to a list (sections 2.7 and 2.8).

use std::cmp::Ordering;
use std::collections::HashSet;

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Number, Value};

use super::Engagements;
use super::bodies::{Unknown, is_address, must_be, normalized, parse, present, refuse_unknown};
use super::contact::{Contact, EngagementKind};
use super::dialect::{Dialect, JoinedMember, UnknownMembers};
use crate::mock::text::quoted_list;

/// The contacts that belong to a segment ([interface section 2.7](crate::interface#2.7)).
///
/// The document does not show how a segment is created. Pass one of these to
/// [`MockServer::segment`](crate::mock::MockServer::segment) or
/// [`MockServerBuilder::segment`](crate::mock::MockServerBuilder::segment).
///
/// # Example: a list and a rule
///
/// ```
/// use audience::mock::{MockServer, SegmentKind};
/// use serde_json::json;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let server = MockServer::start().await;
/// server.segment("seg_team", SegmentKind::Contacts(vec!["ada@example.com".to_owned()]));
/// server.segment(
///     "seg_pro",
///     SegmentKind::Rule(json!({
///         "match_": "all",
///         "conditions": [{"field": "property", "key": "plan", "op": "is", "value": "pro"}],
///     })),
/// );
/// # }
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum SegmentKind {
    /// A stored list: the contacts with these addresses.
    ///
    /// Case and surrounding white space do not matter. An address may become a contact later.
    Contacts(Vec<String>),
    /// A stored rule: a JSON object as in [interface section 2.8](crate::interface#2.8).
    ///
    /// Its joined conditions have the day count in the member that the dialect names
    /// ([`JoinedMember`](crate::mock::dialect::JoinedMember)).
    ///
    /// The mock evaluates it for every list request, so a contact can enter or leave the segment.
    Rule(Value),
}

/// A segment as it is stored: the keys of the addresses, or the parsed rule.
#[derive(Clone, Debug)]
pub(super) enum Segment {
    Contacts(HashSet<String>),
    Rule {
        rule: Rule,
        /// The rule as it was given.
        json: Value,
    },
}

impl Segment {
    /// Parses a segment. Unknown members of a rule are an error in every dialect.
    ///
    /// # Errors
    ///
    /// Fails if an address or the rule is invalid. The message names the member that is wrong.
    pub(super) fn parse(kind: SegmentKind, dialect: Dialect) -> Result<Self, String> {
        let strict = Dialect {
            unknown_members: UnknownMembers::Refused,
            ..dialect
        };
        Ok(match kind {
            SegmentKind::Contacts(addresses) => {
                let addresses = addresses.into_iter().enumerate();
                let keys = addresses.map(|(index, email)| match normalized(&email) {
                    key if is_address(&key) => Ok(key),
                    _ => {
                        let path = format!("contacts[{index}]");
                        Err(must_be(&path, "an email address", &email.into()))
                    }
                });
                Self::Contacts(keys.collect::<Result<_, _>>()?)
            }
            SegmentKind::Rule(json) => Self::Rule {
                rule: Rule::parse(json.to_string().as_bytes(), strict)?,
                json,
            },
        })
    }

    /// Returns whether a contact belongs to the segment at `now`.
    pub(super) fn contains(&self, contact: &Contact, engagements: &Engagements, now: i64) -> bool {
        match self {
            Self::Contacts(addresses) => addresses.contains(&contact.email),
            Self::Rule { rule, .. } => rule.matches(contact, engagements, now),
        }
    }
}

/// A segment as the control plane shows it.
#[derive(Debug, Serialize)]
pub(in crate::mock) struct SegmentView {
    pub(super) id: String,
    #[serde(flatten)]
    members: SegmentMembers,
}

#[derive(Debug, Serialize)]
#[serde(untagged)]
enum SegmentMembers {
    Contacts {
        /// How many addresses the segment has.
        count: usize,
        /// The first of them by the alphabet, at most [`MAX_SHOWN`].
        contacts: Vec<String>,
    },
    Rule {
        rule: Value,
    },
}

/// Addresses shown of a segment.
const MAX_SHOWN: usize = 100;

impl SegmentView {
    pub(super) fn new(id: &str, segment: &Segment) -> Self {
        Self {
            id: id.to_owned(),
            members: SegmentMembers::new(segment),
        }
    }
}

impl SegmentMembers {
    fn new(segment: &Segment) -> Self {
        let keys = match segment {
            Segment::Rule { json, .. } => return Self::Rule { rule: json.clone() },
            Segment::Contacts(keys) => keys,
        };
        let mut addresses: Vec<&str> = keys.iter().map(String::as_str).collect();
        if addresses.len() > MAX_SHOWN {
            addresses.select_nth_unstable(MAX_SHOWN);
            addresses.truncate(MAX_SHOWN);
        }
        addresses.sort_unstable();
        Self::Contacts {
            count: keys.len(),
            contacts: addresses.into_iter().map(str::to_owned).collect(),
        }
    }
}

/// A parsed rule: the predicate of a stored segment or of the `rules` parameter.
#[derive(Clone, Debug)]
pub(super) struct Rule {
    /// Whether every condition must hold (`all`) or one is enough (`any`).
    all: bool,
    conditions: Vec<Condition>,
}

#[derive(Deserialize)]
#[serde(expecting = "a JSON object")]
struct RuleMembers {
    #[serde(rename = "match_", deserialize_with = "all_or_any")]
    all: bool,
    conditions: Vec<ConditionMembers>,
    #[serde(flatten)]
    unknown: Unknown,
}

impl Rule {
    /// Parses the JSON text of a rule.
    ///
    /// # Errors
    ///
    /// Fails if a member is missing, invalid or unknown. The error is the message for a refusal and names the member.
    pub(super) fn parse(rule: &[u8], dialect: Dialect) -> Result<Self, String> {
        let members: RuleMembers = parse(rule, "a rule")?;
        refuse_unknown(&members.unknown, dialect)?;
        let conditions = members.conditions.into_iter().enumerate();
        let conditions = conditions
            .map(|(index, condition)| condition.into_condition(index, dialect))
            .collect::<Result<_, _>>()?;
        let all = members.all;
        Ok(Self { all, conditions })
    }

    /// Returns whether a contact matches the rule at `now`, in Unix seconds.
    ///
    /// The document does not say what a rule without conditions means. In the mock, `all` then matches every
    /// contact and `any` matches none.
    pub(super) fn matches(&self, contact: &Contact, engagements: &Engagements, now: i64) -> bool {
        let mut conditions = self.conditions.iter();
        let holds = |condition: &Condition| condition.holds(contact, engagements, now);
        if self.all {
            conditions.all(holds)
        } else {
            conditions.any(holds)
        }
    }
}

fn all_or_any<'de, D: Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    match &*String::deserialize(deserializer)? {
        "all" => Ok(true),
        "any" => Ok(false),
        _ => Err(D::Error::custom("must be `all` or `any`")),
    }
}

/// A parsed condition: four kinds, each a row of the table in section 2.8.
#[derive(Clone, Debug)]
enum Condition {
    /// A test of the value of one property.
    Property { key: String, test: PropertyTest },
    /// A test of when the latest engagement of one kind was.
    Engagement {
        what: EngagementKind,
        test: EngagementTest,
    },
    /// The contact was created at most this many days ago.
    JoinedWithin(Days),
    /// The contact was created at least this many days ago.
    JoinedBefore(Days),
}

impl Condition {
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

/// The members of all kinds of conditions. Which of them a condition has depends on its kind and its operator.
#[derive(Deserialize)]
#[serde(expecting = "a JSON object")]
struct ConditionMembers {
    field: String,
    #[serde(default, deserialize_with = "present")]
    key: Option<String>,
    #[serde(default, deserialize_with = "present")]
    what: Option<String>,
    #[serde(default, deserialize_with = "present")]
    op: Option<String>,
    #[serde(default, deserialize_with = "present")]
    value: Option<Value>,
    #[serde(default, deserialize_with = "present")]
    days: Option<Value>,
    #[serde(default, deserialize_with = "present")]
    count: Option<Value>,
    #[serde(flatten)]
    unknown: Unknown,
}

const FIELDS: &[&str] = &[
    "property",
    "engagement",
    "joined_within_days",
    "joined_before_days",
];

const PROPERTY_OPERATORS: &[&str] = &[
    "is",
    "is_not",
    "contains",
    "is_set",
    "is_not_set",
    "greater_than",
    "less_than",
];

const ENGAGEMENT_OPERATORS: &[&str] = &["ever", "never", "within_days", "not_within_days"];

impl ConditionMembers {
    /// Returns the condition at an index of the array `conditions`.
    ///
    /// The dialect decides which member holds the day count of `joined_within_days` and `joined_before_days`. A member
    /// that the operator does not use is unknown.
    ///
    /// # Errors
    ///
    /// Fails if a member is missing, invalid or unknown. The error is the message for a refusal and names the member.
    fn into_condition(mut self, index: usize, dialect: Dialect) -> Result<Condition, String> {
        let prefix = format!("conditions[{index}].");
        let condition = match &*self.field {
            "property" => Condition::Property {
                key: required(self.key.take(), &prefix, "key")?,
                test: self.property_test(&prefix)?,
            },
            "engagement" => {
                let what = required(self.what.take(), &prefix, "what")?;
                let Some(what) = EngagementKind::from_name(&what) else {
                    return Err(unknown_name(&prefix, "what", what, &EngagementKind::NAMES));
                };
                let test = self.engagement_test(&prefix)?;
                Condition::Engagement { what, test }
            }
            "joined_within_days" => {
                Condition::JoinedWithin(self.joined_days(&prefix, dialect.joined_member)?)
            }
            "joined_before_days" => {
                Condition::JoinedBefore(self.joined_days(&prefix, dialect.joined_member)?)
            }
            _ => return Err(unknown_name(&prefix, "field", self.field, FIELDS)),
        };
        match self.unused() {
            Some(name) if dialect.unknown_members == UnknownMembers::Refused => Err(format!(
                "`{prefix}{name}` is not a known member of this condition"
            )),
            _ => Ok(condition),
        }
    }

    fn property_test(&mut self, prefix: &str) -> Result<PropertyTest, String> {
        let op = required(self.op.take(), prefix, "op")?;
        if matches!(&*op, "is_set" | "is_not_set") {
            // The document lists it for every operator, and these need none.
            self.value = None;
        }
        Ok(match &*op {
            "is" => PropertyTest::Is(self.text_or_number(prefix)?),
            "is_not" => PropertyTest::IsNot(self.text_or_number(prefix)?),
            "contains" => match self.value(prefix)? {
                Value::String(text) => PropertyTest::Contains(text),
                other => return Err(must_be(&format!("{prefix}value"), "a string", &other)),
            },
            "is_set" => PropertyTest::IsSet,
            "is_not_set" => PropertyTest::IsNotSet,
            "greater_than" => PropertyTest::GreaterThan(self.number(prefix)?),
            "less_than" => PropertyTest::LessThan(self.number(prefix)?),
            _ => return Err(unknown_name(prefix, "op", op, PROPERTY_OPERATORS)),
        })
    }

    fn engagement_test(&mut self, prefix: &str) -> Result<EngagementTest, String> {
        let op = required(self.op.take(), prefix, "op")?;
        let mut days = || days(self.days.take(), prefix, "days");
        Ok(match &*op {
            "ever" => EngagementTest::Ever,
            "never" => EngagementTest::Never,
            "within_days" => EngagementTest::WithinDays(days()?),
            "not_within_days" => EngagementTest::NotWithinDays(days()?),
            _ => return Err(unknown_name(prefix, "op", op, ENGAGEMENT_OPERATORS)),
        })
    }

    fn joined_days(&mut self, prefix: &str, member: JoinedMember) -> Result<Days, String> {
        match member {
            JoinedMember::Days => days(self.days.take(), prefix, "days"),
            JoinedMember::Value => days(self.value.take(), prefix, "value"),
            JoinedMember::Count => days(self.count.take(), prefix, "count"),
        }
    }

    fn value(&mut self, prefix: &str) -> Result<Value, String> {
        required(self.value.take(), prefix, "value")
    }

    fn text_or_number(&mut self, prefix: &str) -> Result<Value, String> {
        match self.value(prefix)? {
            value @ (Value::String(_) | Value::Number(_)) => Ok(value),
            other => Err(must_be(
                &format!("{prefix}value"),
                "a string or a number",
                &other,
            )),
        }
    }

    fn number(&mut self, prefix: &str) -> Result<Number, String> {
        match self.value(prefix)? {
            Value::Number(number) => Ok(number),
            other => Err(must_be(&format!("{prefix}value"), "a number", &other)),
        }
    }

    /// Returns the name of a member that was not used.
    fn unused(&self) -> Option<&str> {
        let unused = [
            ("key", self.key.is_some()),
            ("what", self.what.is_some()),
            ("op", self.op.is_some()),
            ("value", self.value.is_some()),
            ("days", self.days.is_some()),
            ("count", self.count.is_some()),
        ];
        let known = unused.into_iter().find(|(_, is_unused)| *is_unused);
        known
            .map(|(name, _)| name)
            .or_else(|| self.unknown.keys().next().map(String::as_str))
    }
}

fn required<T>(member: Option<T>, prefix: &str, name: &str) -> Result<T, String> {
    member.ok_or_else(|| format!("`{prefix}{name}` is missing"))
}

fn unknown_name(prefix: &str, name: &str, found: String, known: &[&str]) -> String {
    let known = format!("one of {}", quoted_list(known));
    must_be(&format!("{prefix}{name}"), &known, &found.into())
}

/// Returns a day count. The document gives no range; the mock refuses 0, negative numbers and fractions. It accepts
/// `30.0`: some programs write a whole number like this, and it is an integer of JSON Schema.
fn days(member: Option<Value>, prefix: &str, name: &str) -> Result<Days, String> {
    let found = required(member, prefix, name)?;
    let days = found.as_f64().and_then(Days::new);
    days.ok_or_else(|| {
        let path = format!("{prefix}{name}");
        must_be(&path, "a whole number of at least 1", &found)
    })
}

/// The operator of a property condition, with its value.
#[derive(Clone, Debug)]
enum PropertyTest {
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
enum EngagementTest {
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
    fn holds(&self, property: Option<&Value>) -> bool {
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
    fn holds(self, latest: Option<i64>, now: i64) -> bool {
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
struct Days(i64);

impl Days {
    /// Creates a number of days, or returns `None` for less than 1 and for a fraction.
    fn new(days: f64) -> Option<Self> {
        #[expect(
            clippy::cast_possible_truncation,
            reason = "fractions are refused next, and a number beyond the range of `i64` is the largest one"
        )]
        let whole = days as i64;
        (days >= 1.0 && days.fract() == 0.0).then_some(Self(whole))
    }

    /// Returns whether `at` is at most this many days before `now`. A time after `now` counts too.
    fn contain(self, at: i64, now: i64) -> bool {
        at >= self.before(now)
    }

    /// Returns whether `at` is at least this many days before `now`.
    fn have_passed_since(self, at: i64, now: i64) -> bool {
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
    use serde_json::{Map, json};

    use super::super::contact::ContactStore;
    use super::*;

    #[test]
    fn a_listed_address_matches_in_any_case_and_with_surrounding_spaces() {
        let mut store = ContactStore::default();
        let kind = SegmentKind::Contacts(vec![" Ada@Example.com ".to_owned()]);

        let segment = Segment::parse(kind, Dialect::default()).unwrap();

        for (address, expected) in [("ada@example.com", true), ("bob@example.com", false)] {
            let email = address.to_owned();
            let contact = store.add(email, None, None, Map::new(), 0).unwrap();
            let engagements = Engagements::default();
            assert_eq!(segment.contains(contact, &engagements, 0), expected);
        }
    }

    #[test]
    fn an_invalid_rule_is_an_error() {
        let error = Segment::parse(
            SegmentKind::Rule(json!({"match_": "all"})),
            Dialect::default(),
        )
        .unwrap_err();

        assert_eq!(error, "`conditions` is missing");
    }

    const NOW: i64 = 1_700_000_000;
    const DAY: i64 = 86_400;

    fn parse(rule: &Value) -> Result<Rule, String> {
        Rule::parse(rule.to_string().as_bytes(), Dialect::default())
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
        assert!(Rule::parse(rule.to_string().as_bytes(), dialect).is_ok());
        // The rule of a segment comes from the test, so a member too many is a misspelled one.
        let segment = Segment::parse(SegmentKind::Rule(rule), dialect);
        assert_eq!(segment.unwrap_err(), "`name` is not a known member");
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
                "`match` is not a known member",
            ),
        ];
        for (rule, message) in cases {
            assert_eq!(parse(&rule).unwrap_err(), message);
        }
    }

    fn parse_condition(condition: &Value) -> Result<Rule, String> {
        parse(&json!({"match_": "all", "conditions": [condition]}))
    }

    /// Whether a condition holds for a contact on the `pro` plan who opened mail and joined ten days ago.
    fn condition_holds(condition: &Value) -> bool {
        let mut store = ContactStore::default();
        let properties = Map::from_iter([("plan".to_owned(), json!("pro"))]);
        let joined = NOW - 10 * 86_400;
        let email = "ada@x.io".to_owned();
        let contact = store.add(email, None, None, properties, joined).unwrap();
        let mut engagements = Engagements::default();
        engagements.record(contact.email.clone(), EngagementKind::Opened, joined);
        let rule = parse_condition(condition).unwrap();
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
            assert_eq!(condition_holds(&condition), expected, "{condition}");
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
                json!({"field": "property", "key": "p", "op": "is_set", "days": 2}),
                "`conditions[0].days` is not a known member of this condition",
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
                "`conditions[0].days` is not a known member of this condition",
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
            assert_eq!(parse_condition(&condition).unwrap_err(), message);
        }
    }

    #[test]
    fn the_error_for_an_unknown_operator_lists_the_known_ones() {
        let property = json!({"field": "property", "key": "p", "op": "sounds_like"});
        let engagement = json!({"field": "engagement", "what": "opened", "op": "sounds_like"});

        for (condition, known) in [
            (property, quoted_list(PROPERTY_OPERATORS)),
            (engagement, quoted_list(ENGAGEMENT_OPERATORS)),
        ] {
            assert_eq!(
                parse_condition(&condition).unwrap_err(),
                format!("`conditions[0].op` must be one of {known}, not \"sounds_like\"")
            );
        }
    }

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
        let days = Days::new(30.0).unwrap();
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
        let days = Days::new(1e300).unwrap();

        assert!(days.contain(0, NOW));
        assert!(days.contain(0, i64::MIN));
        assert!(!days.have_passed_since(0, NOW));
        assert!(Days::new(0.0).is_none());
    }
}
