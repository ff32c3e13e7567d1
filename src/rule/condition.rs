use serde_json::Value;

use super::engagement::{Engagement, EngagementTest};
use super::property_test::{NumberOperand, PropertyTest};
use crate::properties::PropertyValue;

/// One condition of a [`Rule`](super::Rule).
///
/// The functions below create it. The variants are public so that a program can match on a rule read
/// from JSON.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Condition {
    /// A condition on a property (merge field).
    #[non_exhaustive]
    Property {
        /// The name of the property.
        key: String,
        /// The test of its value.
        test: PropertyTest,
    },
    /// A condition on what happened to the contact's mail.
    #[non_exhaustive]
    Engagement {
        /// The kind of engagement.
        what: Engagement,
        /// When it must, or must not, have happened.
        test: EngagementTest,
    },
    /// The contact was created within this number of days.
    JoinedWithinDays(u32),
    /// The contact was created more than this number of days ago.
    JoinedBeforeDays(u32),
    /// A condition that the interface document does not show, as JSON.
    Raw(Value),
}

impl Condition {
    /// Starts a condition on the property with this name. A method of the result, such as
    /// [`is`](PropertyCondition::is), completes it.
    ///
    /// # Example: text, numbers and presence
    ///
    /// ```
    /// use audience::rule::{Condition, Rule};
    ///
    /// let rule = Rule::all([
    ///     Condition::property("plan").is("pro"),
    ///     Condition::property("seats").greater_than(2),
    ///     Condition::property("vat_id").is_set(),
    /// ]);
    /// ```
    pub fn property(key: impl Into<String>) -> PropertyCondition {
        PropertyCondition { key: key.into() }
    }

    /// Starts a condition on an engagement. A method of the result, such as
    /// [`within_days`](EngagementCondition::within_days), completes it.
    ///
    /// # Example: delivered, but not opened lately
    ///
    /// ```
    /// use audience::rule::{Condition, Engagement, Rule};
    ///
    /// let rule = Rule::all([
    ///     Condition::engagement(Engagement::Delivered).ever(),
    ///     Condition::engagement(Engagement::Opened).not_within_days(90),
    /// ]);
    /// ```
    pub fn engagement(what: Engagement) -> EngagementCondition {
        EngagementCondition { what }
    }

    /// Creates a condition for contacts created within the last `days` days, 1 or more. A list with 0 days
    /// is [`ErrorKind::Input`](crate::ErrorKind::Input).
    ///
    /// The interface document does not show how the day count is sent (section 4.4). This crate sends
    /// it as `days`; use [`raw`](Condition::raw) for any other form.
    ///
    /// # Example: contacts of the last week
    ///
    /// ```
    /// use audience::rule::{Condition, Rule};
    ///
    /// let rule = Rule::all([Condition::joined_within_days(7)]);
    /// ```
    #[must_use]
    pub fn joined_within_days(days: u32) -> Self {
        Self::JoinedWithinDays(days)
    }

    /// Creates a condition for contacts created more than `days` days ago, 1 or more.
    ///
    /// The day count is sent as for [`joined_within_days`](Condition::joined_within_days).
    #[must_use]
    pub fn joined_before_days(days: u32) -> Self {
        Self::JoinedBeforeDays(days)
    }

    /// Creates a condition from JSON, which is sent unchanged. Use it for conditions that the interface
    /// document does not show.
    ///
    /// # Example: a condition that this crate does not know
    ///
    /// ```
    /// use audience::rule::{Condition, Rule};
    /// use serde_json::json;
    ///
    /// let by_language = json!({"field": "language", "op": "is", "value": "de"});
    /// let rule = Rule::all([Condition::raw(by_language)]);
    /// ```
    pub fn raw(condition: impl Into<Value>) -> Self {
        Self::Raw(condition.into())
    }

    /// Returns whether the condition is on 0 days.
    pub(super) fn has_zero_days(&self) -> bool {
        matches!(
            self,
            Self::JoinedWithinDays(0)
                | Self::JoinedBeforeDays(0)
                | Self::Engagement {
                    test: EngagementTest::WithinDays(0) | EngagementTest::NotWithinDays(0),
                    ..
                }
        )
    }

    /// Returns whether JSON can represent the condition's operand.
    pub(super) fn is_valid_json(&self) -> bool {
        match self {
            Self::Property { test, .. } => test.is_valid_json(),
            _ => true,
        }
    }
}

/// A condition on a property that has no test yet.
///
/// # Example: a condition without a test does not compile
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
    /// Requires that the value equals this one.
    #[must_use]
    pub fn is(self, value: impl Into<PropertyValue>) -> Condition {
        self.test(PropertyTest::Is(value.into()))
    }

    /// Requires that the value does not equal this one.
    #[must_use]
    pub fn is_not(self, value: impl Into<PropertyValue>) -> Condition {
        self.test(PropertyTest::IsNot(value.into()))
    }

    /// Requires that the value contains this text.
    #[must_use]
    pub fn contains(self, text: impl Into<String>) -> Condition {
        self.test(PropertyTest::Contains(text.into()))
    }

    /// Requires that the property has a value.
    #[must_use]
    pub fn is_set(self) -> Condition {
        self.test(PropertyTest::IsSet)
    }

    /// Requires that the property has no value.
    #[must_use]
    pub fn is_not_set(self) -> Condition {
        self.test(PropertyTest::IsNotSet)
    }

    /// Requires that the value is a number above this one. It takes every type of number that
    /// [`is`](Self::is) takes.
    #[must_use]
    pub fn greater_than(self, number: impl Into<NumberOperand>) -> Condition {
        self.test(PropertyTest::GreaterThan(number.into()))
    }

    /// Requires that the value is a number below this one. It takes every type of number that
    /// [`is`](Self::is) takes.
    #[must_use]
    pub fn less_than(self, number: impl Into<NumberOperand>) -> Condition {
        self.test(PropertyTest::LessThan(number.into()))
    }

    fn test(self, test: PropertyTest) -> Condition {
        Condition::Property {
            key: self.key,
            test,
        }
    }
}

/// A condition on an engagement that has no time yet.
///
/// # Example: a time in days without the number does not compile
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
    /// Requires that it happened at any time.
    #[must_use]
    pub fn ever(self) -> Condition {
        self.test(EngagementTest::Ever)
    }

    /// Requires that it never happened.
    #[must_use]
    pub fn never(self) -> Condition {
        self.test(EngagementTest::Never)
    }

    /// Requires that it happened within the last `days` days, 1 or more. A list with 0 days is
    /// [`ErrorKind::Input`](crate::ErrorKind::Input).
    #[must_use]
    pub fn within_days(self, days: u32) -> Condition {
        self.test(EngagementTest::WithinDays(days))
    }

    /// Requires that it did not happen within the last `days` days, 1 or more. Use [`never`](Self::never)
    /// for any time.
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
