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

mod condition;
mod engagement;
mod property_test;
#[expect(
    clippy::module_inception,
    reason = "the type that the module is named after"
)]
mod rule;
mod wire;

pub use condition::{Condition, EngagementCondition, PropertyCondition};
pub use engagement::{Engagement, EngagementTest};
pub use property_test::{NumberOperand, PropertyTest};
pub use rule::{MatchMode, Rule};
