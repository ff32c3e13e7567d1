//! Segments: a hand-picked list, or a rule (section 2.7).

use std::collections::HashSet;

use serde_json::Value;

use super::address;
use super::contact::Contact;
use super::dialect::UnknownMembers;
use super::engagement::Engagements;
use super::rule::Rule;

/// What a segment consists of (section 2.7).
#[derive(Clone, Debug, PartialEq)]
pub enum SegmentKind {
    /// A stored list: the contacts with these addresses, also those that are created later.
    Contacts(Vec<String>),
    /// A stored rule: the JSON object of section 2.8, judged anew for every list.
    Rule(Value),
}

/// A segment that can be judged.
#[derive(Clone, Debug)]
pub(crate) enum Segment {
    Contacts(HashSet<String>),
    Rule(Rule),
}

impl Segment {
    pub(crate) fn read(kind: SegmentKind) -> Result<Self, String> {
        Ok(match kind {
            SegmentKind::Contacts(addresses) => {
                let normalised = addresses.iter().map(|email| address::normalised(email));
                Self::Contacts(normalised.collect())
            }
            SegmentKind::Rule(rule) => Self::Rule(Rule::read(&rule, UnknownMembers::Refused)?),
        })
    }

    pub(crate) fn has(&self, contact: &Contact, engagements: &Engagements, now: i64) -> bool {
        match self {
            Self::Contacts(addresses) => addresses.contains(&contact.email),
            Self::Rule(rule) => rule.matches(contact, engagements, now),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Map, json};

    use super::super::roster::Roster;
    use super::*;

    #[test]
    fn a_list_is_matched_by_address_however_it_was_written() {
        let mut roster = Roster::default();
        let kind = SegmentKind::Contacts(vec![" Ada@Example.com ".to_owned()]);

        let segment = Segment::read(kind).unwrap();

        for (address, expected) in [("ada@example.com", true), ("bob@example.com", false)] {
            let contact = roster.add(address.to_owned(), None, None, Map::new(), 0);
            assert_eq!(segment.has(contact, &Engagements::default(), 0), expected);
        }
    }

    #[test]
    fn a_bad_rule_is_no_segment() {
        let error = Segment::read(SegmentKind::Rule(json!({"match_": "all"}))).unwrap_err();

        assert_eq!(error, "`conditions` is missing");
    }
}
