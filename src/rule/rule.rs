use serde::ser::{Error as _, SerializeStruct};
use serde::{Deserialize, Serialize, Serializer};

use super::condition::Condition;
use crate::Error;

/// A list of conditions, and whether a contact must match all or any of them.
///
/// Pass it to [`ListContacts::rule`](crate::contacts::ListContacts::rule). It converts to and from the
/// JSON of the interface document with serde.
///
/// # Rules without conditions
///
/// A program that collects conditions may find none. So that it does not choose every contact by accident,
/// the rule that matches every contact has a name, [`Rule::everyone`]. Any other rule without conditions is
/// [`ErrorKind::Input`](crate::ErrorKind::Input) when it is sent.
///
/// | rule | its JSON | when sent |
/// |---|---|---|
/// | `Rule::everyone()` | `all` without conditions | matches every contact |
/// | `Rule::all([])` | none: serializing it is an error, because its JSON would be that of `everyone` | refused |
/// | `Rule::any([])` | `any` without conditions | refused; it would match nobody |
///
/// A rule read from JSON equals the rule that was written. So `all` without conditions is read as
/// `Rule::everyone()`. The exception: a [raw](Condition::raw) condition that section 2.8 does show is read as the
/// typed one.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(from = "WireRule")]
pub struct Rule {
    match_mode: MatchMode,
    conditions: Vec<Condition>,
    /// Whether the rule has no conditions on purpose.
    is_everyone: bool,
}

/// A rule on the wire.
#[derive(Deserialize)]
#[serde(rename = "Rule", deny_unknown_fields)]
struct WireRule {
    // The underscore is in the interface document (section 2.8).
    match_: MatchMode,
    conditions: Vec<Condition>,
}

impl From<WireRule> for Rule {
    fn from(WireRule { match_, conditions }: WireRule) -> Self {
        Self {
            is_everyone: match_ == MatchMode::All && conditions.is_empty(),
            match_mode: match_,
            conditions,
        }
    }
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
        Self::new(MatchMode::All, conditions)
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
        Self::new(MatchMode::Any, conditions)
    }

    /// Creates a rule with this match mode.
    ///
    /// # Example: the match mode is chosen at run time
    ///
    /// ```
    /// use audience::rule::{Condition, MatchMode, Rule};
    ///
    /// let mode = if std::env::args().any(|arg| arg == "--any") { MatchMode::Any } else { MatchMode::All };
    ///
    /// let rule = Rule::new(mode, [Condition::property("plan").is("pro")]);
    /// ```
    pub fn new(match_mode: MatchMode, conditions: impl IntoIterator<Item = Condition>) -> Self {
        Self {
            match_mode,
            conditions: conditions.into_iter().collect(),
            is_everyone: false,
        }
    }

    /// Creates the rule that matches every contact: `all` without conditions.
    ///
    /// With [`push`](Self::push) it matches the contacts for which every condition is true.
    ///
    /// # Example: filters that may all be absent
    ///
    /// ```
    /// use audience::rule::{Condition, Rule};
    ///
    /// # let (plan, joined_within) = (None::<&str>, None::<u32>);
    /// let mut rule = Rule::everyone();
    /// if let Some(plan) = plan {
    ///     rule.push(Condition::property("plan").is(plan));
    /// }
    /// rule.extend(joined_within.map(Condition::joined_within_days));
    ///
    /// assert_eq!(rule, Rule::everyone());
    /// ```
    #[must_use]
    pub fn everyone() -> Self {
        Self {
            match_mode: MatchMode::All,
            conditions: Vec::new(),
            is_everyone: true,
        }
    }

    /// Adds a condition after the others. [`extend`](Extend::extend) adds several.
    ///
    /// # Example: a condition more
    ///
    /// ```
    /// use audience::rule::{Condition, Rule};
    ///
    /// let mut rule = Rule::all([Condition::property("plan").is("pro")]);
    /// rule.push(Condition::property("seats").greater_than(2));
    ///
    /// assert_eq!(rule.conditions().len(), 2);
    /// ```
    pub fn push(&mut self, condition: Condition) {
        self.conditions.push(condition);
        self.is_everyone = false;
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
    /// [`ErrorKind::Input`](crate::ErrorKind::Input) if the rule has no conditions and is not
    /// [`everyone`](Self::everyone), or if a condition is on 0 days or compares with an infinite number or
    /// NaN.
    pub(crate) fn to_json(&self) -> Result<String, Error> {
        if self.conditions.is_empty() && !self.is_everyone {
            return Err(Error::input(NO_CONDITIONS));
        }
        if self.conditions.iter().any(Condition::has_zero_days) {
            return Err(Error::input(
                "a condition is on 0 days; use 1 or more, or `ever` or `never` for an engagement at any time",
            ));
        }
        if !self.conditions.iter().all(Condition::is_valid_json) {
            return Err(Error::input(
                "a condition compares with an infinite number or NaN, which JSON cannot represent; use a finite number",
            ));
        }
        serde_json::to_string(self)
            .map_err(|error| Error::input("the rule cannot be written as JSON").caused_by(error))
    }

    /// Returns whether its JSON would be that of `everyone`, though nobody asked for that.
    fn is_everyone_by_accident(&self) -> bool {
        self.match_mode == MatchMode::All && self.conditions.is_empty() && !self.is_everyone
    }
}

const NO_CONDITIONS: &str =
    "the rule has no conditions; add one, or use `Rule::everyone()` to match every contact";

/// Adds conditions after the others.
impl Extend<Condition> for Rule {
    fn extend<I: IntoIterator<Item = Condition>>(&mut self, conditions: I) {
        for condition in conditions {
            self.push(condition);
        }
    }
}

/// Serializes to the form of section 2.8. Fails for `Rule::all([])`: use [`Rule::everyone`].
impl Serialize for Rule {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.is_everyone_by_accident() {
            return Err(S::Error::custom(NO_CONDITIONS));
        }
        let mut rule = serializer.serialize_struct("Rule", 2)?;
        rule.serialize_field("match_", &self.match_mode)?;
        rule.serialize_field("conditions", &self.conditions)?;
        rule.end()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::rule::Engagement;

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
