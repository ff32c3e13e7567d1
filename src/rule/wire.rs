//! Converts conditions to and from the flat JSON objects of section 2.8.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value, json};

use super::condition::Condition;
use super::engagement::{Engagement, EngagementTest};
use super::property_test::{NumberOperand, PropertyTest};
use crate::properties::PropertyValue;

impl Serialize for Condition {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Property { key, test } => {
                FlatCondition::property(key, test).serialize(serializer)
            }
            Self::Engagement { what, test } => {
                FlatCondition::engagement(*what, test).serialize(serializer)
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
    days: Option<Operand<'a>>,
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
        let (op, value) = test.name_and_operand();
        Self {
            key: Some(key),
            op: Some(op),
            value,
            ..Self::new("property")
        }
    }

    fn engagement(what: Engagement, test: &'a EngagementTest) -> Self {
        let (op, days) = test.name_and_operand();
        Self {
            what: Some(what),
            op: Some(op),
            days,
            ..Self::new("engagement")
        }
    }

    fn joined(field: &'static str, days: u32) -> Self {
        Self {
            days: Some(Operand::Days(days)),
            ..Self::new(field)
        }
    }
}

/// Reads a typed condition only if it serializes to the same JSON again. Any other JSON becomes `Raw`, so no
/// member is lost.
impl<'de> Deserialize<'de> for Condition {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = Value::deserialize(deserializer)?;
        let documented = value
            .as_object()
            .and_then(documented_condition)
            .filter(|condition| json!(condition) == value);
        Ok(documented.unwrap_or(Self::Raw(value)))
    }
}

fn documented_condition(members: &Map<String, Value>) -> Option<Condition> {
    let text = |name| members.get(name)?.as_str();
    let days = || u32::read(members.get("days")?);
    match text("field")? {
        "property" => Some(Condition::Property {
            key: text("key")?.to_owned(),
            test: PropertyTest::from_name_and_operand(text("op")?, members.get("value"))?,
        }),
        "engagement" => Some(Condition::Engagement {
            what: Engagement::deserialize(members.get("what")?).ok()?,
            test: EngagementTest::from_name_and_operand(text("op")?, members.get("days"))?,
        }),
        "joined_within_days" => days().map(Condition::JoinedWithinDays),
        "joined_before_days" => days().map(Condition::JoinedBeforeDays),
        _ => None,
    }
}

/// Names the operators of a test, for writing and for reading.
macro_rules! operators {
    ($test:ident { $($variant:ident $(($operand:ident))? = $name:literal,)* }) => {
        impl $test {
            /// Returns the name of the operator, and its operand.
            fn name_and_operand(&self) -> (&'static str, Option<Operand<'_>>) {
                match self {
                    $(Self::$variant $(($operand))? => {
                        ($name, None $(.or(Some($operand.write())))?)
                    })*
                }
            }

            fn from_name_and_operand(name: &str, operand: Option<&Value>) -> Option<Self> {
                match name {
                    $($name => Some(Self::$variant $(({
                        let $operand = operand?;
                        JsonOperand::read($operand)?
                    }))?),)*
                    _ => None,
                }
            }
        }
    };
}

operators!(PropertyTest {
    Is(value) = "is",
    IsNot(value) = "is_not",
    Contains(text) = "contains",
    IsSet = "is_set",
    IsNotSet = "is_not_set",
    GreaterThan(number) = "greater_than",
    LessThan(number) = "less_than",
});

operators!(EngagementTest {
    Ever = "ever",
    Never = "never",
    WithinDays(days) = "within_days",
    NotWithinDays(days) = "not_within_days",
});

/// An operand on its way to JSON.
#[derive(Serialize)]
#[serde(untagged)]
enum Operand<'a> {
    Value(&'a PropertyValue),
    Text(&'a str),
    Days(u32),
}

/// A type of operand. `read` returns `None` if the JSON has another type.
trait JsonOperand: Sized {
    fn read(value: &Value) -> Option<Self>;
    fn write(&self) -> Operand<'_>;
}

impl JsonOperand for PropertyValue {
    fn read(value: &Value) -> Option<Self> {
        Some(value.clone().into())
    }

    fn write(&self) -> Operand<'_> {
        Operand::Value(self)
    }
}

impl JsonOperand for NumberOperand {
    fn read(value: &Value) -> Option<Self> {
        let value = PropertyValue::read(value)?;
        value.as_f64().is_some().then_some(Self(value))
    }

    fn write(&self) -> Operand<'_> {
        Operand::Value(&self.0)
    }
}

impl JsonOperand for String {
    fn read(value: &Value) -> Option<Self> {
        value.as_str().map(str::to_owned)
    }

    fn write(&self) -> Operand<'_> {
        Operand::Text(self)
    }
}

impl JsonOperand for u32 {
    fn read(value: &Value) -> Option<Self> {
        Self::try_from(value.as_u64()?).ok()
    }

    fn write(&self) -> Operand<'_> {
        Operand::Days(*self)
    }
}
