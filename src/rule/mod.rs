//! Conditions on contacts (interface section 2.8). An incomplete condition does not compile.
//!
//! The same conditions filter a list, define a segment and choose the audience of a broadcast.
//!
//! # Example: every kind of condition, and back from JSON
//!
//! ```
//! use audience::rule::{Condition, Engagement, Rule};
//!
//! let rule = Rule::all([
//!     Condition::property("plan").is("pro"),
//!     Condition::property("seats").greater_than(2),
//!     Condition::engagement(Engagement::Opened).within_days(30),
//!     Condition::joined_before_days(7),
//! ]);
//!
//! let json = serde_json::to_string(&rule)?;
//! assert_eq!(serde_json::from_str::<Rule>(&json)?, rule);
//! # Ok::<(), serde_json::Error>(())
//! ```

use serde::{Deserialize, Serialize};

use crate::Error;

mod condition;
mod engagement;
mod property_test;
mod wire;

pub use condition::{Condition, EngagementCondition, PropertyCondition};
pub use engagement::{Engagement, EngagementTest};
pub use property_test::{NumberOperand, PropertyTest};

/// A list of conditions, and whether a contact must match all or any of them.
///
/// Pass it to [`ListContacts::rule`](crate::contacts::ListContacts::rule). It converts to and from the
/// JSON of the interface document with serde.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    // The underscore is in the interface document (section 2.8).
    #[serde(rename = "match_")]
    match_mode: MatchMode,
    conditions: Vec<Condition>,
}

/// Whether a contact must match all conditions of a [`Rule`] or any of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum MatchMode {
    /// Every condition must be true.
    All,
    /// At least one condition must be true.
    Any,
}

impl Rule {
    /// Creates a rule that matches a contact if every condition is true.
    ///
    /// # Example: contacts on one plan who joined this week
    ///
    /// ```
    /// use audience::rule::{Condition, Rule};
    ///
    /// let rule = Rule::all([
    ///     Condition::property("plan").is("pro"),
    ///     Condition::joined_within_days(7),
    /// ]);
    ///
    /// assert_eq!(
    ///     serde_json::to_string(&rule)?,
    ///     concat!(
    ///         r#"{"match_":"all","conditions":["#,
    ///         r#"{"field":"property","key":"plan","op":"is","value":"pro"},"#,
    ///         r#"{"field":"joined_within_days","days":7}]}"#,
    ///     ),
    /// );
    /// # Ok::<(), serde_json::Error>(())
    /// ```
    pub fn all(conditions: impl IntoIterator<Item = Condition>) -> Self {
        Self {
            match_mode: MatchMode::All,
            conditions: conditions.into_iter().collect(),
        }
    }

    /// Creates a rule that matches a contact if at least one condition is true.
    ///
    /// # Example: contacts who opened or clicked lately
    ///
    /// ```
    /// use audience::rule::{Condition, Engagement, MatchMode, Rule};
    ///
    /// let rule = Rule::any([
    ///     Condition::engagement(Engagement::Opened).within_days(30),
    ///     Condition::engagement(Engagement::Clicked).within_days(30),
    /// ]);
    ///
    /// assert_eq!(rule.match_mode(), MatchMode::Any);
    /// ```
    pub fn any(conditions: impl IntoIterator<Item = Condition>) -> Self {
        Self {
            match_mode: MatchMode::Any,
            conditions: conditions.into_iter().collect(),
        }
    }

    /// Returns whether a contact must match all conditions or any of them.
    #[must_use]
    pub fn match_mode(&self) -> MatchMode {
        self.match_mode
    }

    /// Returns the conditions, in the order given.
    #[must_use]
    pub fn conditions(&self) -> &[Condition] {
        &self.conditions
    }

    /// Returns the JSON for the list endpoint's `rules` parameter, not yet URL-encoded.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Input`](crate::ErrorKind::Input) if a condition compares with an infinite number or
    /// NaN.
    pub(crate) fn to_json(&self) -> Result<String, Error> {
        if !self.conditions.iter().all(Condition::is_valid_json) {
            return Err(Error::input(
                "a condition compares with an infinite number or NaN, which JSON cannot represent; use a finite number",
            ));
        }
        serde_json::to_string(self)
            .map_err(|error| Error::input("the rule cannot be written as JSON").caused_by(error))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_rule_serializes_as_section_2_8_shows() {
        let rule = Rule::any([
            Condition::property("plan").is("pro"),
            Condition::property("plan").is_not("free"),
            Condition::property("city").contains("ham"),
            Condition::property("vat").is_set(),
            Condition::property("vat").is_not_set(),
            Condition::property("seats").greater_than(2),
            Condition::property("rate").less_than(0.5),
            Condition::engagement(Engagement::Delivered).ever(),
            Condition::engagement(Engagement::Bounced).never(),
            Condition::engagement(Engagement::Opened).within_days(30),
            Condition::engagement(Engagement::Clicked).not_within_days(90),
            Condition::joined_within_days(7),
            Condition::joined_before_days(365),
            Condition::raw(json!({"field": "language", "op": "is", "value": "de"})),
        ]);

        let written = serde_json::to_value(&rule).unwrap();

        let expected = json!({"match_": "any", "conditions": [
            {"field": "property", "key": "plan", "op": "is", "value": "pro"},
            {"field": "property", "key": "plan", "op": "is_not", "value": "free"},
            {"field": "property", "key": "city", "op": "contains", "value": "ham"},
            {"field": "property", "key": "vat", "op": "is_set"},
            {"field": "property", "key": "vat", "op": "is_not_set"},
            {"field": "property", "key": "seats", "op": "greater_than", "value": 2},
            {"field": "property", "key": "rate", "op": "less_than", "value": 0.5},
            {"field": "engagement", "what": "delivered", "op": "ever"},
            {"field": "engagement", "what": "bounced", "op": "never"},
            {"field": "engagement", "what": "opened", "op": "within_days", "days": 30},
            {"field": "engagement", "what": "clicked", "op": "not_within_days", "days": 90},
            {"field": "joined_within_days", "days": 7},
            {"field": "joined_before_days", "days": 365},
            {"field": "language", "op": "is", "value": "de"},
        ]});
        assert_eq!(written, expected);
        assert_eq!(serde_json::from_value::<Rule>(written).unwrap(), rule);
    }

    #[test]
    fn an_infinite_number_or_nan_is_refused() {
        for condition in [
            Condition::property("x").greater_than(f64::NAN),
            Condition::property("x").is(f64::INFINITY),
        ] {
            assert_eq!(
                Rule::all([condition]).to_json().unwrap_err().kind(),
                crate::ErrorKind::Input
            );
        }
    }

    #[test]
    fn an_undocumented_condition_is_read_as_raw_and_kept_unchanged() {
        for undocumented in [
            json!({"field": "property", "key": "plan", "op": "sounds_like", "value": "p"}),
            json!({"field": "property", "key": "plan", "op": "is_set", "value": null}),
            json!({"field": "engagement", "what": "printed", "op": "ever"}),
            json!({"field": "engagement", "what": "opened", "op": "within_days"}),
            json!({"field": "joined_within_days", "weeks": 2}),
            json!({"field": "joined_within_days", "days": 1.5}),
            json!("anything"),
        ] {
            let condition: Condition = serde_json::from_value(undocumented.clone()).unwrap();

            assert_eq!(condition, Condition::raw(undocumented.clone()));
            assert_eq!(serde_json::to_value(&condition).unwrap(), undocumented);
        }
    }
}
