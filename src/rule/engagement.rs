use serde::{Deserialize, Serialize};

/// An event of mail that was sent to a contact.
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

/// When an engagement must, or must not, have happened.
///
/// The methods of [`EngagementCondition`](super::EngagementCondition) create it. The variants are
/// public so that a program can match on a rule read from JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum EngagementTest {
    /// `ever`: it happened at any time.
    Ever,
    /// `never`: it never happened.
    Never,
    /// `within_days`: it happened within this number of days.
    WithinDays(u32),
    /// `not_within_days`: it did not happen within this number of days.
    NotWithinDays(u32),
}
