use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::properties::PropertyValue;

/// One condition of a [`Rule`](super::Rule).
///
/// The constructors build it; the variants are there to be matched on, on a rule read from JSON.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Condition {
    /// On a merge field.
    #[non_exhaustive]
    Property {
        /// The property's name.
        key: String,
        /// What must hold for its value.
        test: PropertyTest,
    },
    /// On what the contact did with mail.
    #[non_exhaustive]
    Engagement {
        /// What kind of engagement.
        what: Engagement,
        /// When it must, or must not, have been.
        test: EngagementTest,
    },
    /// The contact was created within so many days.
    JoinedWithinDays(u32),
    /// The contact was created before so many days.
    JoinedBeforeDays(u32),
    /// A condition that the interface document does not show.
    Raw(Value),
}

impl Condition {
    /// A condition on the property of this name, which the methods of what is returned complete.
    pub fn property(key: impl Into<String>) -> PropertyCondition {
        PropertyCondition { key: key.into() }
    }

    /// A condition on engagement, which the methods of what is returned complete.
    pub fn engagement(what: Engagement) -> EngagementCondition {
        EngagementCondition { what }
    }

    /// Holds for contacts created within the last `days` × 86,400 seconds.
    #[must_use]
    pub fn joined_within_days(days: u32) -> Self {
        Self::JoinedWithinDays(days)
    }

    /// Holds for contacts created before the last `days` × 86,400 seconds.
    #[must_use]
    pub fn joined_before_days(days: u32) -> Self {
        Self::JoinedBeforeDays(days)
    }

    /// A condition as JSON, sent as it is: for what the interface document leaves open.
    pub fn raw(condition: impl Into<Value>) -> Self {
        Self::Raw(condition.into())
    }

    pub(super) fn is_writable(&self) -> bool {
        match self {
            Self::Property {
                test: PropertyTest::Is(value) | PropertyTest::IsNot(value),
                ..
            } => value.is_valid_json(),
            Self::Property {
                test: PropertyTest::GreaterThan(number) | PropertyTest::LessThan(number),
                ..
            } => number.0.is_valid_json(),
            _ => true,
        }
    }
}

/// A condition on a property, still without its test.
///
/// # Example: without its test it is none
///
/// ```compile_fail,E0271
/// use audience::rule::{Condition, Rule};
///
/// let rule = Rule::all([Condition::property("plan")]);
/// ```
#[derive(Clone, Debug)]
#[must_use = "a condition needs a test, such as `is`"]
pub struct PropertyCondition {
    key: String,
}

impl PropertyCondition {
    /// The value is this one.
    #[must_use]
    pub fn is(self, value: impl Into<PropertyValue>) -> Condition {
        self.test(PropertyTest::Is(value.into()))
    }

    /// The value is not this one.
    #[must_use]
    pub fn is_not(self, value: impl Into<PropertyValue>) -> Condition {
        self.test(PropertyTest::IsNot(value.into()))
    }

    /// The value contains this text.
    #[must_use]
    pub fn contains(self, text: impl Into<String>) -> Condition {
        self.test(PropertyTest::Contains(text.into()))
    }

    /// There is a value.
    #[must_use]
    pub fn is_set(self) -> Condition {
        self.test(PropertyTest::IsSet)
    }

    /// There is no value.
    #[must_use]
    pub fn is_not_set(self) -> Condition {
        self.test(PropertyTest::IsNotSet)
    }

    /// The value is a number above this one.
    #[must_use]
    pub fn greater_than(self, number: impl Into<Number>) -> Condition {
        self.test(PropertyTest::GreaterThan(number.into()))
    }

    /// The value is a number below this one.
    #[must_use]
    pub fn less_than(self, number: impl Into<Number>) -> Condition {
        self.test(PropertyTest::LessThan(number.into()))
    }

    fn test(self, test: PropertyTest) -> Condition {
        Condition::Property {
            key: self.key,
            test,
        }
    }
}

/// What must hold for the value of a property.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum PropertyTest {
    /// `is`
    Is(PropertyValue),
    /// `is_not`
    IsNot(PropertyValue),
    /// `contains`
    Contains(String),
    /// `is_set`
    IsSet,
    /// `is_not_set`
    IsNotSet,
    /// `greater_than`
    GreaterThan(Number),
    /// `less_than`
    LessThan(Number),
}

/// What a property is compared with by order: a whole number or one with a fraction, never text.
#[derive(Clone, Debug, PartialEq)]
pub struct Number(pub(super) PropertyValue);

impl Number {
    /// As near as an `f64` comes to it.
    #[must_use]
    pub fn as_f64(&self) -> f64 {
        self.0.as_f64().unwrap_or(f64::NAN)
    }
}

macro_rules! numbers {
    ($($number:ty),*) => {$(
        impl From<$number> for Number {
            fn from(number: $number) -> Self {
                Self(number.into())
            }
        }
    )*};
}

numbers!(i8, i16, i32, i64, u8, u16, u32, u64, usize, f64);

/// A condition on engagement, still without its time.
///
/// # Example: a time in days takes the days
///
/// ```compile_fail,E0061
/// use audience::rule::{Condition, Engagement};
///
/// let condition = Condition::engagement(Engagement::Opened).within_days();
/// ```
#[derive(Clone, Copy, Debug)]
#[must_use = "a condition needs a time, such as `ever`"]
pub struct EngagementCondition {
    what: Engagement,
}

impl EngagementCondition {
    /// It has happened.
    #[must_use]
    pub fn ever(self) -> Condition {
        self.test(EngagementTest::Ever)
    }

    /// It has not happened.
    #[must_use]
    pub fn never(self) -> Condition {
        self.test(EngagementTest::Never)
    }

    /// It has happened within the last `days` days.
    #[must_use]
    pub fn within_days(self, days: u32) -> Condition {
        self.test(EngagementTest::WithinDays(days))
    }

    /// It has not happened within the last `days` days.
    #[must_use]
    pub fn not_within_days(self, days: u32) -> Condition {
        self.test(EngagementTest::NotWithinDays(days))
    }

    fn test(self, test: EngagementTest) -> Condition {
        Condition::Engagement {
            what: self.what,
            test,
        }
    }
}

/// What a contact's mail came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Engagement {
    /// It was delivered.
    Delivered,
    /// It bounced.
    Bounced,
    /// It was reported as spam.
    Complained,
    /// It was opened.
    Opened,
    /// A link in it was followed.
    Clicked,
}

/// When an engagement must, or must not, have been.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum EngagementTest {
    /// `ever`
    Ever,
    /// `never`
    Never,
    /// `within_days`, with the number of days
    WithinDays(u32),
    /// `not_within_days`, with the number of days
    NotWithinDays(u32),
}
