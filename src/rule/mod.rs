//! Conditions on contacts (interface section 2.8), typed so that a wrong one does not compile.
//!
//! The same conditions filter a list, define a segment and choose the audience of a broadcast.
//!
//! # Example: all kinds of condition
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
mod wire;

pub use condition::{
    Condition, Engagement, EngagementCondition, EngagementTest, Number, PropertyCondition,
    PropertyTest,
};

/// Conditions, of which all or any must hold.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// Whether all or any must hold. On the wire it is `match_`, with the underscore.
    #[serde(rename = "match_")]
    matching: Match,
    conditions: Vec<Condition>,
}

/// How the conditions of a [`Rule`] go together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Match {
    /// Every one must hold.
    All,
    /// One is enough.
    Any,
}

impl Rule {
    /// Fits a contact for whom every condition holds.
    pub fn all(conditions: impl IntoIterator<Item = Condition>) -> Self {
        Self {
            matching: Match::All,
            conditions: conditions.into_iter().collect(),
        }
    }

    /// Fits a contact for whom one condition holds.
    pub fn any(conditions: impl IntoIterator<Item = Condition>) -> Self {
        Self {
            matching: Match::Any,
            conditions: conditions.into_iter().collect(),
        }
    }

    /// Whether all or any must hold.
    #[must_use]
    pub fn matching(&self) -> Match {
        self.matching
    }

    /// The conditions, in order.
    #[must_use]
    pub fn conditions(&self) -> &[Condition] {
        &self.conditions
    }

    /// What the list endpoint's `rules` takes, before it is URL-encoded.
    pub(crate) fn to_json(&self) -> Result<String, Error> {
        if !self.conditions.iter().all(Condition::is_writable) {
            return Err(Error::input(
                "a condition compares with an infinity or NaN, which JSON cannot hold",
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
    fn a_rule_is_written_as_section_2_8_shows_it() {
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
    fn a_number_that_json_cannot_hold_is_refused() {
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
    fn a_condition_that_is_not_in_the_document_reads_as_raw_and_is_kept() {
        for odd in [
            json!({"field": "property", "key": "plan", "op": "starts_with", "value": "p"}),
            json!({"field": "property", "key": "plan", "op": "is_set", "value": null}),
            json!({"field": "engagement", "what": "printed", "op": "ever"}),
            json!({"field": "engagement", "what": "opened", "op": "within_days"}),
            json!({"field": "joined_within_days", "weeks": 2}),
            json!({"field": "joined_within_days", "days": 1.5}),
            json!("anything"),
        ] {
            let condition: Condition = serde_json::from_value(odd.clone()).unwrap();

            assert_eq!(condition, Condition::raw(odd.clone()));
            assert_eq!(serde_json::to_value(&condition).unwrap(), odd);
        }
    }
}
