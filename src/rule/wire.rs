//! Converts conditions to and from the flat JSON objects of section 2.8.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value, json};

use super::condition::Condition;
use super::engagement::{Engagement, EngagementTest};
use super::property_test::{NumberOperand, PropertyTest};
use crate::json::Json;
use crate::properties::PropertyValue;

impl Serialize for Condition {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Property { key, test } => {
                FlatCondition::property(key, test).serialize(serializer)
            }
            Self::Engagement { what, test } => {
                FlatCondition::engagement(*what, *test).serialize(serializer)
            }
            Self::JoinedWithinDays(days) => {
                FlatCondition::joined("joined_within_days", *days).serialize(serializer)
            }
            Self::JoinedBeforeDays(days) => {
                FlatCondition::joined("joined_before_days", *days).serialize(serializer)
            }
            Self::Raw(value) => value.serialize(serializer),
        }
    }
}

#[derive(Serialize)]
struct FlatCondition<'a> {
    field: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    what: Option<Engagement>,
    #[serde(skip_serializing_if = "Option::is_none")]
    op: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<Operand<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    days: Option<u32>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Operand<'a> {
    Value(&'a PropertyValue),
    Text(&'a str),
}

impl<'a> FlatCondition<'a> {
    fn new(field: &'static str) -> Self {
        Self {
            field,
            key: None,
            what: None,
            op: None,
            value: None,
            days: None,
        }
    }

    fn property(key: &'a str, test: &'a PropertyTest) -> Self {
        let (op, value) = match test {
            PropertyTest::Is(value) => ("is", Some(Operand::Value(value))),
            PropertyTest::IsNot(value) => ("is_not", Some(Operand::Value(value))),
            PropertyTest::Contains(text) => ("contains", Some(Operand::Text(text))),
            PropertyTest::IsSet => ("is_set", None),
            PropertyTest::IsNotSet => ("is_not_set", None),
            PropertyTest::GreaterThan(number) => ("greater_than", Some(Operand::Value(&number.0))),
            PropertyTest::LessThan(number) => ("less_than", Some(Operand::Value(&number.0))),
        };
        Self {
            key: Some(key),
            op: Some(op),
            value,
            ..Self::new("property")
        }
    }

    fn engagement(what: Engagement, test: EngagementTest) -> Self {
        let (op, days) = match test {
            EngagementTest::Ever => ("ever", None),
            EngagementTest::Never => ("never", None),
            EngagementTest::WithinDays(days) => ("within_days", Some(days)),
            EngagementTest::NotWithinDays(days) => ("not_within_days", Some(days)),
        };
        Self {
            what: Some(what),
            op: Some(op),
            days,
            ..Self::new("engagement")
        }
    }

    fn joined(field: &'static str, days: u32) -> Self {
        Self {
            days: Some(days),
            ..Self::new(field)
        }
    }
}

/// Reads a typed condition only if it serializes to the same JSON again. Any other JSON becomes `Raw`, so no
/// member is lost.
impl<'de> Deserialize<'de> for Condition {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Json(value) = Json::deserialize(deserializer)?;
        let documented = value
            .as_object()
            .and_then(documented_condition)
            .filter(|condition| json!(condition) == value);
        Ok(documented.unwrap_or(Self::Raw(value)))
    }
}

fn documented_condition(members: &Map<String, Value>) -> Option<Condition> {
    let days = || u32::try_from(members.get("days")?.as_u64()?).ok();
    match members.get("field")?.as_str()? {
        "property" => Some(Condition::Property {
            key: members.get("key")?.as_str()?.to_owned(),
            test: property_test(members.get("op")?.as_str()?, members.get("value"))?,
        }),
        "engagement" => Some(Condition::Engagement {
            what: Engagement::deserialize(members.get("what")?).ok()?,
            test: match members.get("op")?.as_str()? {
                "ever" => EngagementTest::Ever,
                "never" => EngagementTest::Never,
                "within_days" => EngagementTest::WithinDays(days()?),
                "not_within_days" => EngagementTest::NotWithinDays(days()?),
                _ => return None,
            },
        }),
        "joined_within_days" => days().map(Condition::JoinedWithinDays),
        "joined_before_days" => days().map(Condition::JoinedBeforeDays),
        _ => None,
    }
}

fn property_test(op: &str, value: Option<&Value>) -> Option<PropertyTest> {
    let any = || value.cloned().map(PropertyValue::from);
    let number = || {
        any()
            .filter(|value| value.as_f64().is_some())
            .map(NumberOperand)
    };
    Some(match op {
        "is" => PropertyTest::Is(any()?),
        "is_not" => PropertyTest::IsNot(any()?),
        "contains" => PropertyTest::Contains(value?.as_str()?.to_owned()),
        "is_set" => PropertyTest::IsSet,
        "is_not_set" => PropertyTest::IsNotSet,
        "greater_than" => PropertyTest::GreaterThan(number()?),
        "less_than" => PropertyTest::LessThan(number()?),
        _ => return None,
    })
}
