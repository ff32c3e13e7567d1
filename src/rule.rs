//! Selects contacts by conditions ([interface section 2.8](crate::interface#2.8)). An incomplete condition does not
//! compile.
//!
//! The same conditions filter a list, define a segment and choose the audience of a broadcast.
//!
//! # Example: list the contacts that match a rule
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), audience::Error> {
//! # let server = audience::mock::MockServer::start().await;
//! # let contacts = server.client().contacts();
//! # contacts.create(audience::contacts::NewContact::new("ada@example.com").property("plan", "pro")).await?;
//! use audience::rule::{Condition, Rule};
//!
//! let on_pro = Rule::all([Condition::property("plan").is("pro")]);
//! let page = contacts.list().rule(on_pro).await?;
//!
//! assert_eq!(page.data[0].email, "ada@example.com");
//! # Ok(()) }
//! ```
//!
//! # Example: every kind of condition, to JSON and back
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

use serde::ser::{Error as _, SerializeStruct};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Number, Value, json};

use crate::Error;
use crate::properties::PropertyValue;

/// A list of conditions, and whether a contact must match all or any of them.
///
/// Pass it to [`ListContacts::rule`](crate::contacts::ListContacts::rule). It converts to and from the
/// JSON of the interface document with serde.
///
/// # Rules without conditions
///
/// A program that collects conditions may end up with an empty list. It must not select every contact by accident, so
/// the rule that matches every contact has a name, [`Rule::everyone`]. A call with any other rule without conditions
/// fails with [`ErrorKind::Input`](crate::ErrorKind::Input).
///
/// | rule | its JSON | when sent |
/// |---|---|---|
/// | `Rule::everyone()` | `all` without conditions | matches every contact |
/// | `Rule::all([])` | serializing it is an error, because `everyone` has the same JSON | the call fails |
/// | `Rule::any([])` | `any` without conditions | the call fails, because the rule would match no contact |
///
/// A rule that is written as JSON and read back stays equal. So `all` without conditions is read as `Rule::everyone()`.
/// There is one exception: a [raw](Condition::raw) condition is read as a typed condition if
/// [section 2.8](crate::interface#2.8) shows its form.
///
/// # Example: a rule from a file of settings
///
/// ```
/// use audience::rule::{Condition, Rule};
///
/// let json = r#"{"match_": "any", "conditions": [{"field": "joined_within_days", "days": 7}]}"#;
///
/// let rule: Rule = serde_json::from_str(json)?;
/// assert_eq!(rule, Rule::any([Condition::joined_within_days(7)]));
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(from = "WireRule")]
pub struct Rule {
    match_mode: MatchMode,
    conditions: Vec<Condition>,
    /// Whether the rule has no conditions on purpose.
    is_everyone: bool,
}

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

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum MatchMode {
    All,
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
    /// # Example: contacts who opened or clicked in the last 30 days
    ///
    /// ```
    /// use audience::rule::{Condition, Engagement, Rule};
    ///
    /// let rule = Rule::any([
    ///     Condition::engagement(Engagement::Opened).within_days(30),
    ///     Condition::engagement(Engagement::Clicked).within_days(30),
    /// ]);
    ///
    /// assert_eq!(serde_json::to_value(&rule)?["match_"], "any");
    /// # Ok::<(), serde_json::Error>(())
    /// ```
    pub fn any(conditions: impl IntoIterator<Item = Condition>) -> Self {
        Self::new(MatchMode::Any, conditions)
    }

    /// Creates the rule that matches every contact: `all` without conditions.
    ///
    /// If you [`push`](Self::push) conditions, it matches the contacts for which every condition is true.
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

    /// Returns the rule with the day counts of its joined conditions under this name, if it is given.
    pub(crate) fn with_joined_member(mut self, name: Option<&str>) -> Self {
        if let Some(name) = name {
            let conditions = self.conditions.into_iter();
            self.conditions = conditions
                .map(|condition| condition.with_joined_member(name))
                .collect();
        }
        self
    }

    /// Adds a condition after the others. [`extend`](Extend::extend) adds several.
    ///
    /// # Example: one more condition
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

    /// Returns the conditions, in the order given.
    ///
    /// # Example: an empty filter
    ///
    /// ```
    /// use audience::rule::Rule;
    ///
    /// assert!(Rule::everyone().conditions().is_empty());
    /// ```
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
        // The interface leaves 0 days open: they could mean today or never.
        if let Some(condition) = self.conditions.iter().find(|it| it.has_zero_days()) {
            return Err(Error::input(match condition.0 {
                Test::Engagement { .. } => {
                    "an engagement condition is on 0 days; use 1 or more, or `ever` or `never` for any time"
                }
                _ => "a joined condition is on 0 days; use 1 or more",
            }));
        }
        if !self.conditions.iter().all(Condition::is_valid_json) {
            return Err(Error::input(
                "a condition compares with an infinite number or NaN, which JSON cannot represent; use a finite number",
            ));
        }
        serde_json::to_string(self)
            .map_err(|error| Error::input("the rule cannot be written as JSON").caused_by(error))
    }

    fn new(match_mode: MatchMode, conditions: impl IntoIterator<Item = Condition>) -> Self {
        Self {
            match_mode,
            conditions: conditions.into_iter().collect(),
            is_everyone: false,
        }
    }

    /// Returns whether it would be serialized like `everyone` although it was not created as such.
    fn is_everyone_by_accident(&self) -> bool {
        self.match_mode == MatchMode::All && self.conditions.is_empty() && !self.is_everyone
    }
}

const NO_CONDITIONS: &str =
    "the rule has no conditions; add one, or use `Rule::everyone()` to match every contact";

/// Creates the rule that matches a contact if this condition is true.
///
/// # Example: a list of one condition
///
/// ```
/// use audience::rule::{Condition, Rule};
///
/// let on_pro = Condition::property("plan").is("pro");
///
/// assert_eq!(Rule::from(on_pro.clone()), Rule::all([on_pro]));
/// ```
impl From<Condition> for Rule {
    fn from(condition: Condition) -> Self {
        Self::all([condition])
    }
}

/// Adds conditions after the others.
impl Extend<Condition> for Rule {
    fn extend<I: IntoIterator<Item = Condition>>(&mut self, conditions: I) {
        // `push` also records that the rule has conditions on purpose.
        for condition in conditions {
            self.push(condition);
        }
    }
}

/// Serializes to the form of [section 2.8](crate::interface#2.8). Fails for `Rule::all([])`; use [`Rule::everyone`] to
/// match every contact.
impl Serialize for Rule {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        // Read back, this rule would match every contact.
        if self.is_everyone_by_accident() {
            return Err(S::Error::custom(NO_CONDITIONS));
        }
        let mut rule = serializer.serialize_struct("Rule", 2)?;
        rule.serialize_field("match_", &self.match_mode)?;
        rule.serialize_field("conditions", &self.conditions)?;
        rule.end()
    }
}

/// One condition of a [`Rule`].
///
/// The functions below create it. It converts to and from the JSON of [section 2.8](crate::interface#2.8) with serde.
/// Any other JSON, such as one with a misspelled `op`, is read as a [raw](Self::raw) condition: check what users write.
///
/// # Example: the JSON of a condition
///
/// ```
/// use audience::rule::Condition;
///
/// let condition = Condition::property("plan").is("pro");
///
/// assert_eq!(
///     serde_json::to_string(&condition)?,
///     r#"{"field":"property","key":"plan","op":"is","value":"pro"}"#,
/// );
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Condition(Test);

#[derive(Clone, Debug, PartialEq)]
enum Test {
    Property {
        key: String,
        test: PropertyTest,
    },
    Engagement {
        what: Engagement,
        test: EngagementTest,
    },
    JoinedWithinDays(u32),
    JoinedBeforeDays(u32),
    /// A condition that the interface document does not show.
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
    /// # Example: mail arrived, but was not opened for 90 days
    ///
    /// Without the last condition, the rule would also match everybody whose first mail has just arrived.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), audience::Error> {
    /// # let server = audience::mock::MockServer::start().await;
    /// # let contacts = server.client().contacts();
    /// use std::time::SystemTime;
    /// use audience::mock::{EngagementKind, SeedContact};
    /// use audience::rule::{Condition, Engagement, Rule};
    ///
    /// server.seed_contact(SeedContact::new("ada@example.com").created_at(1_600_000_000));
    /// server.seed_contact("new@example.com");
    /// for address in ["ada@example.com", "new@example.com"] {
    ///     server.record_engagement(address, EngagementKind::Delivered, SystemTime::now());
    /// }
    ///
    /// let silent = Rule::all([
    ///     Condition::engagement(Engagement::Delivered).ever(),
    ///     Condition::engagement(Engagement::Opened).not_within_days(90),
    ///     Condition::joined_before_days(90),
    /// ]);
    ///
    /// let page = contacts.list().rule(silent).await?;
    /// assert_eq!((page.data.len(), page.data[0].email.as_str()), (1, "ada@example.com"));
    /// # Ok(()) }
    /// ```
    pub fn engagement(what: Engagement) -> EngagementCondition {
        EngagementCondition { what }
    }

    /// Creates a condition that selects contacts created within the last `days` days. With 0 days, the list call fails
    /// with [`ErrorKind::Input`](crate::ErrorKind::Input).
    ///
    /// The interface document does not show how the day count is sent ([section 4.4](crate::interface#4.4)). This crate
    /// sends it as `days`. [`joined_member`](crate::ClientBuilder::joined_member) sets another name for a client, and
    /// says how to find out which is right; [`raw`](Condition::raw) sends any other form.
    ///
    /// # Example: contacts of the last week
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), audience::Error> {
    /// # let server = audience::mock::MockServer::start().await;
    /// # let contacts = server.client().contacts();
    /// # contacts.create("ada@example.com").await?;
    /// use audience::rule::{Condition, Rule};
    ///
    /// let this_week = Rule::all([Condition::joined_within_days(7)]);
    ///
    /// assert_eq!(contacts.list().rule(this_week).count().await?, 1);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn joined_within_days(days: u32) -> Self {
        Self(Test::JoinedWithinDays(days))
    }

    /// Creates a condition that selects contacts created more than `days` days ago. With 0 days, the list call fails
    /// with [`ErrorKind::Input`](crate::ErrorKind::Input).
    ///
    /// The day count is sent as for [`joined_within_days`](Condition::joined_within_days).
    ///
    /// # Example: a contact who joined a year ago
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), audience::Error> {
    /// # let server = audience::mock::MockServer::start().await;
    /// # let contacts = server.client().contacts();
    /// use std::time::Duration;
    /// use audience::Timestamp;
    /// use audience::mock::SeedContact;
    /// use audience::rule::{Condition, Rule};
    ///
    /// let a_year_ago = Timestamp::now() - Duration::from_secs(365 * 86_400);
    /// server.seed_contact(SeedContact::new("ada@example.com").created_at(a_year_ago));
    /// contacts.create("bob@example.com").await?;
    ///
    /// let page = contacts.list().rule(Rule::all([Condition::joined_before_days(30)])).await?;
    /// assert_eq!((page.data.len(), page.data[0].email.as_str()), (1, "ada@example.com"));
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn joined_before_days(days: u32) -> Self {
        Self(Test::JoinedBeforeDays(days))
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
        Self(Test::Raw(condition.into()))
    }

    /// Returns the condition with its day count under this name, if it is a joined condition on a day or more.
    fn with_joined_member(self, name: &str) -> Self {
        let (field, days) = match self.0 {
            Test::JoinedWithinDays(days @ 1..) => ("joined_within_days", days),
            Test::JoinedBeforeDays(days @ 1..) => ("joined_before_days", days),
            _ => return self,
        };
        Self::raw(json!({"field": field, name: days}))
    }

    fn has_zero_days(&self) -> bool {
        matches!(
            self.0,
            Test::JoinedWithinDays(0)
                | Test::JoinedBeforeDays(0)
                | Test::Engagement {
                    test: EngagementTest::WithinDays(0) | EngagementTest::NotWithinDays(0),
                    ..
                }
        )
    }

    fn is_valid_json(&self) -> bool {
        match &self.0 {
            Test::Property { test, .. } => test.is_valid_json(),
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
    ///
    /// # Example: text and numbers
    ///
    /// ```
    /// use audience::rule::{Condition, Rule};
    ///
    /// let rule = Rule::all([Condition::property("plan").is("pro"), Condition::property("seats").is(3)]);
    /// # assert_eq!(rule.conditions().len(), 2);
    /// ```
    #[must_use]
    pub fn is(self, value: impl Into<PropertyValue>) -> Condition {
        self.test(PropertyTest::Is(value.into()))
    }

    /// Requires that the value does not equal this one.
    ///
    /// # Example: everyone who is not on a plan
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), audience::Error> {
    /// # let server = audience::mock::MockServer::start().await;
    /// # let contacts = server.client().contacts();
    /// # let ada = audience::contacts::NewContact::new("ada@example.com").property("plan", "pro");
    /// # let bob = audience::contacts::NewContact::new("bob@example.com").property("plan", "free");
    /// # contacts.create_batch([ada, bob]).await?;
    /// use audience::rule::{Condition, Rule};
    ///
    /// let not_pro = Rule::all([Condition::property("plan").is_not("pro")]);
    /// let page = contacts.list().rule(not_pro).await?;
    ///
    /// assert_eq!((page.data.len(), page.data[0].email.as_str()), (1, "bob@example.com"));
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn is_not(self, value: impl Into<PropertyValue>) -> Condition {
        self.test(PropertyTest::IsNot(value.into()))
    }

    /// Requires that the value contains this text.
    ///
    /// # Example: contacts in one city
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), audience::Error> {
    /// # let server = audience::mock::MockServer::start().await;
    /// # let contacts = server.client().contacts();
    /// # contacts.create(audience::contacts::NewContact::new("ada@example.com").property("city", "London N1")).await?;
    /// use audience::rule::{Condition, Rule};
    ///
    /// let in_london = Rule::all([Condition::property("city").contains("London")]);
    ///
    /// assert_eq!(contacts.list().rule(in_london).count().await?, 1);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn contains(self, text: impl Into<String>) -> Condition {
        self.test(PropertyTest::Contains(text.into()))
    }

    /// Requires that the property has a value.
    ///
    /// # Example: companies with a tax number
    ///
    /// ```
    /// use audience::rule::{Condition, Rule};
    ///
    /// let companies = Rule::all([Condition::property("vat_id").is_set()]);
    /// # assert_eq!(serde_json::to_value(&companies).unwrap()["conditions"][0]["op"], "is_set");
    /// ```
    #[must_use]
    pub fn is_set(self) -> Condition {
        self.test(PropertyTest::IsSet)
    }

    /// Requires that the property has no value.
    ///
    /// # Example: contacts without a plan
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), audience::Error> {
    /// # let server = audience::mock::MockServer::builder().seed_contact("ada@example.com").start().await;
    /// # let contacts = server.client().contacts();
    /// use audience::rule::{Condition, Rule};
    ///
    /// let without_plan = Rule::all([Condition::property("plan").is_not_set()]);
    ///
    /// assert_eq!(contacts.list().rule(without_plan).count().await?, 1);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn is_not_set(self) -> Condition {
        self.test(PropertyTest::IsNotSet)
    }

    /// Requires that the value is a number above this one. It takes every type of number that
    /// [`is`](Self::is) takes.
    ///
    /// # Example: a number from a variable
    ///
    /// ```
    /// use audience::rule::Condition;
    ///
    /// let most_seats: u32 = 10;
    ///
    /// let condition = Condition::property("seats").greater_than(most_seats);
    /// assert_eq!(serde_json::to_value(&condition)?["value"], 10);
    /// # Ok::<(), serde_json::Error>(())
    /// ```
    #[must_use]
    pub fn greater_than(self, number: impl Into<NumberOperand>) -> Condition {
        self.test(PropertyTest::GreaterThan(number.into()))
    }

    /// Requires that the value is a number below this one. It takes every type of number that
    /// [`is`](Self::is) takes.
    ///
    /// # Example: a range of numbers
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), audience::Error> {
    /// # let server = audience::mock::MockServer::start().await;
    /// # let contacts = server.client().contacts();
    /// # contacts.create(audience::contacts::NewContact::new("ada@example.com").property("seats", 3)).await?;
    /// use audience::rule::{Condition, Rule};
    ///
    /// let small_teams = Rule::all([
    ///     Condition::property("seats").greater_than(1),
    ///     Condition::property("seats").less_than(10),
    /// ]);
    ///
    /// assert_eq!(contacts.list().rule(small_teams).count().await?, 1);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn less_than(self, number: impl Into<NumberOperand>) -> Condition {
        self.test(PropertyTest::LessThan(number.into()))
    }

    fn test(self, test: PropertyTest) -> Condition {
        Condition(Test::Property {
            key: self.key,
            test,
        })
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
    ///
    /// # Example: everyone who ever clicked a link
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), audience::Error> {
    /// # let server = audience::mock::MockServer::builder().seed_contact("ada@example.com").start().await;
    /// # let contacts = server.client().contacts();
    /// use audience::mock::EngagementKind;
    /// use audience::rule::{Condition, Engagement, Rule};
    ///
    /// server.record_engagement("ada@example.com", EngagementKind::Clicked, 1_700_000_000);
    ///
    /// let clicked = Rule::all([Condition::engagement(Engagement::Clicked).ever()]);
    /// assert_eq!(contacts.list().rule(clicked).count().await?, 1);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn ever(self) -> Condition {
        self.test(EngagementTest::Ever)
    }

    /// Requires that it never happened.
    ///
    /// # Example: contacts whose mail never bounced
    ///
    /// ```
    /// use audience::rule::{Condition, Engagement, Rule};
    ///
    /// let reachable = Rule::all([Condition::engagement(Engagement::Bounced).never()]);
    /// # assert_eq!(serde_json::to_value(&reachable).unwrap()["conditions"][0]["op"], "never");
    /// ```
    #[must_use]
    pub fn never(self) -> Condition {
        self.test(EngagementTest::Never)
    }

    /// Requires that it happened within the last `days` days. With 0 days, the list call fails with
    /// [`ErrorKind::Input`](crate::ErrorKind::Input).
    ///
    /// # Example: readers of the last month
    ///
    /// ```
    /// use audience::rule::{Condition, Engagement};
    ///
    /// let readers = Condition::engagement(Engagement::Opened).within_days(30);
    ///
    /// assert_eq!(
    ///     serde_json::to_string(&readers)?,
    ///     r#"{"field":"engagement","what":"opened","op":"within_days","days":30}"#,
    /// );
    /// # Ok::<(), serde_json::Error>(())
    /// ```
    #[must_use]
    pub fn within_days(self, days: u32) -> Condition {
        self.test(EngagementTest::WithinDays(days))
    }

    /// Requires that it did not happen within the last `days` days. With 0 days, the list call fails with
    /// [`ErrorKind::Input`](crate::ErrorKind::Input); use [`never`](Self::never) for any time.
    ///
    /// In our reading ([section 2.8](crate::interface#2.8)), it also matches the contacts to whom it never happened, and
    /// so all newcomers. Before you remove anybody from a list, add [`joined_before_days`](Condition::joined_before_days),
    /// as in the example of [`engagement`](Condition::engagement).
    ///
    /// # Example: win back contacts who stopped reading
    ///
    /// ```
    /// use audience::rule::{Condition, Engagement, Rule};
    ///
    /// let win_back = Rule::all([
    ///     Condition::engagement(Engagement::Opened).ever(),
    ///     Condition::engagement(Engagement::Opened).not_within_days(180),
    /// ]);
    /// # assert_eq!(win_back.conditions().len(), 2);
    /// ```
    #[must_use]
    pub fn not_within_days(self, days: u32) -> Condition {
        self.test(EngagementTest::NotWithinDays(days))
    }

    fn test(self, test: EngagementTest) -> Condition {
        Condition(Test::Engagement {
            what: self.what,
            test,
        })
    }
}

/// Something that happened to mail that was sent to a contact.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Engagement {
    /// A message was delivered.
    Delivered,
    /// A message bounced.
    Bounced,
    /// A message was reported as spam.
    Complained,
    /// A message was opened.
    Opened,
    /// A link in a message was followed.
    Clicked,
}

/// The number that `greater_than` and `less_than` compare a property with: an integer or a float,
/// never text.
///
/// It converts from Rust's number types, so `greater_than(2)` needs no conversion. A [`PropertyValue`] may
/// be text, so convert it with `try_from`.
///
/// # Example: a number read at run time
///
/// ```
/// use audience::contacts::PropertyValue;
/// use audience::rule::{Condition, NumberOperand};
///
/// let given = PropertyValue::from(2.5);
/// let condition = Condition::property("rate").greater_than(NumberOperand::try_from(given)?);
///
/// assert!(NumberOperand::try_from(PropertyValue::from("many")).is_err());
/// # Ok::<(), audience::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct NumberOperand(PropertyValue);

macro_rules! from_numbers {
    ($($number:ty),*) => {$(
        impl From<$number> for NumberOperand {
            fn from(number: $number) -> Self {
                Self(number.into())
            }
        }
    )*};
}

from_numbers!(
    i8, i16, i32, i64, isize, u8, u16, u32, u64, usize, f32, f64, Number
);

/// Converts a number.
///
/// # Errors
///
/// [`ErrorKind::Input`](crate::ErrorKind::Input) if the value is not a number, or is out of the range of
/// `f64`.
impl TryFrom<PropertyValue> for NumberOperand {
    type Error = Error;

    fn try_from(value: PropertyValue) -> Result<Self, Error> {
        match value.as_f64() {
            Some(_) => Ok(Self(value)),
            None => Err(Error::input(
                "a property is compared with a value that is not a number; use a number, or `is` to compare text",
            )),
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
enum PropertyTest {
    Is(PropertyValue),
    IsNot(PropertyValue),
    Contains(String),
    IsSet,
    IsNotSet,
    GreaterThan(NumberOperand),
    LessThan(NumberOperand),
}

impl PropertyTest {
    fn is_valid_json(&self) -> bool {
        match self {
            Self::Is(value) | Self::IsNot(value) => value.is_valid_json(),
            Self::GreaterThan(number) | Self::LessThan(number) => number.0.is_valid_json(),
            Self::Contains(_) | Self::IsSet | Self::IsNotSet => true,
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
enum EngagementTest {
    Ever,
    Never,
    WithinDays(u32),
    NotWithinDays(u32),
}

// The flat JSON objects of section 2.8.

impl Serialize for Condition {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match &self.0 {
            Test::Property { key, test } => {
                FlatCondition::property(key, test).serialize(serializer)
            }
            Test::Engagement { what, test } => {
                FlatCondition::engagement(*what, test).serialize(serializer)
            }
            Test::JoinedWithinDays(days) => {
                FlatCondition::joined("joined_within_days", *days).serialize(serializer)
            }
            Test::JoinedBeforeDays(days) => {
                FlatCondition::joined("joined_before_days", *days).serialize(serializer)
            }
            Test::Raw(value) => value.serialize(serializer),
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
            // An extra member, for example, would get lost in a typed condition.
            .filter(|condition| json!(condition) == value);
        Ok(documented.unwrap_or(Self(Test::Raw(value))))
    }
}

fn documented_condition(members: &Map<String, Value>) -> Option<Condition> {
    let text = |name| members.get(name)?.as_str();
    // A day count that is no `u32`, such as 1.5, makes the condition a raw one.
    let days = || u32::read(members.get("days")?);
    let test = match text("field")? {
        "property" => Test::Property {
            key: text("key")?.to_owned(),
            test: PropertyTest::from_name_and_operand(text("op")?, members.get("value"))?,
        },
        "engagement" => Test::Engagement {
            what: Engagement::deserialize(members.get("what")?).ok()?,
            test: EngagementTest::from_name_and_operand(text("op")?, members.get("days"))?,
        },
        "joined_within_days" => Test::JoinedWithinDays(days()?),
        "joined_before_days" => Test::JoinedBeforeDays(days()?),
        _ => return None,
    };
    Some(Condition(test))
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

#[cfg(test)]
mod tests {
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
