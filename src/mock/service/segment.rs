//! Segments: a hand-picked list of contacts, or a rule (section 2.7).

use std::collections::HashSet;

use serde::Serialize;
use serde_json::Value;

use super::address::normalized;
use super::contact::Contact;
use super::dialect::{Dialect, UnknownMembers};
use super::engagement::Engagements;
use super::rule::Rule;

/// The contacts that belong to a segment (section 2.7).
///
/// The document does not show how a segment is created. Pass one of these to
/// [`MockServer::segment`](crate::mock::MockServer::segment) or
/// [`MockServerBuilder::segment`](crate::mock::MockServerBuilder::segment).
///
/// # Example: a list and a rule
///
/// ```
/// use audience::mock::{MockServer, SegmentKind};
/// use serde_json::json;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let server = MockServer::start().await;
/// server.segment("seg_team", SegmentKind::Contacts(vec!["ada@example.com".to_owned()]));
/// server.segment(
///     "seg_pro",
///     SegmentKind::Rule(json!({
///         "match_": "all",
///         "conditions": [{"field": "property", "key": "plan", "op": "is", "value": "pro"}],
///     })),
/// );
/// # }
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum SegmentKind {
    /// A stored list: the contacts with these addresses.
    ///
    /// Case and surrounding white space do not matter. An address may become a contact later.
    Contacts(Vec<String>),
    /// A stored rule: a JSON object as in section 2.8.
    ///
    /// Its joined conditions have the day count in the member that the dialect names
    /// ([`JoinedMember`](crate::mock::JoinedMember)).
    ///
    /// The mock evaluates it for every list request, so a contact can enter or leave the segment.
    Rule(Value),
}

/// A segment as it is stored: the keys of the addresses, or the parsed rule.
#[derive(Clone, Debug)]
pub(super) enum Segment {
    Contacts(HashSet<String>),
    Rule {
        rule: Rule,
        /// The rule as it was given.
        json: Value,
    },
}

impl Segment {
    /// Parses a segment. Unknown members of a rule are an error in every dialect.
    ///
    /// # Errors
    ///
    /// Fails if the rule is invalid. The message names the member that is wrong.
    pub(crate) fn parse(kind: SegmentKind, dialect: Dialect) -> Result<Self, String> {
        let strict = Dialect {
            unknown_members: UnknownMembers::Refused,
            ..dialect
        };
        Ok(match kind {
            SegmentKind::Contacts(addresses) => {
                Self::Contacts(addresses.iter().map(|email| normalized(email)).collect())
            }
            SegmentKind::Rule(json) => Self::Rule {
                rule: Rule::parse(json.to_string().as_bytes(), strict)?,
                json,
            },
        })
    }

    /// Returns whether a contact belongs to the segment at `now`.
    pub(crate) fn contains(&self, contact: &Contact, engagements: &Engagements, now: i64) -> bool {
        match self {
            Self::Contacts(addresses) => addresses.contains(&contact.email),
            Self::Rule { rule, .. } => rule.matches(contact, engagements, now),
        }
    }
}

/// A segment as the control plane shows it.
#[derive(Debug, Serialize)]
pub(in crate::mock) struct SegmentView {
    pub(super) id: String,
    #[serde(flatten)]
    pub(super) members: SegmentMembers,
}

#[derive(Debug, Serialize)]
#[serde(untagged)]
pub(super) enum SegmentMembers {
    Contacts {
        /// How many addresses the segment has.
        count: usize,
        /// The first of them by the alphabet, at most [`MAX_SHOWN`].
        contacts: Vec<String>,
    },
    Rule {
        rule: Value,
    },
}

/// Addresses shown of a segment.
const MAX_SHOWN: usize = 100;

impl SegmentMembers {
    pub(super) fn new(segment: &Segment) -> Self {
        let keys = match segment {
            Segment::Rule { json, .. } => return Self::Rule { rule: json.clone() },
            Segment::Contacts(keys) => keys,
        };
        let mut addresses: Vec<&str> = keys.iter().map(String::as_str).collect();
        if addresses.len() > MAX_SHOWN {
            addresses.select_nth_unstable(MAX_SHOWN);
            addresses.truncate(MAX_SHOWN);
        }
        addresses.sort_unstable();
        Self::Contacts {
            count: keys.len(),
            contacts: addresses.into_iter().map(str::to_owned).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Map, json};

    use super::super::contact::ContactStore;
    use super::*;

    #[test]
    fn a_listed_address_matches_in_any_case_and_with_surrounding_spaces() {
        let mut store = ContactStore::default();
        let kind = SegmentKind::Contacts(vec![" Ada@Example.com ".to_owned()]);

        let segment = Segment::parse(kind, Dialect::default()).unwrap();

        for (address, expected) in [("ada@example.com", true), ("bob@example.com", false)] {
            let email = address.to_owned();
            let contact = store.add(email, None, None, Map::new(), 0).unwrap();
            let engagements = Engagements::default();
            assert_eq!(segment.contains(contact, &engagements, 0), expected);
        }
    }

    #[test]
    fn an_invalid_rule_is_an_error() {
        let error = Segment::parse(
            SegmentKind::Rule(json!({"match_": "all"})),
            Dialect::default(),
        )
        .unwrap_err();

        assert_eq!(error, "`conditions` is missing");
    }
}
