//! What contacts did with their mail, and when they did it last (section 2.8).

use std::collections::HashMap;

/// What a contact's mail can come to, as far as rules ask for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Engagement {
    Delivered,
    Bounced,
    Complained,
    Opened,
    Clicked,
}

impl Engagement {
    pub(crate) const NAMES: [&'static str; 5] =
        ["delivered", "bounced", "complained", "opened", "clicked"];

    pub(crate) fn named(name: &str) -> Option<Self> {
        Some(match name {
            "delivered" => Self::Delivered,
            "bounced" => Self::Bounced,
            "complained" => Self::Complained,
            "opened" => Self::Opened,
            "clicked" => Self::Clicked,
            _ => return None,
        })
    }
}

/// The latest moment of each engagement of each address. No rule asks for an earlier one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Engagements {
    latest: HashMap<String, [Option<i64>; Engagement::NAMES.len()]>,
}

impl Engagements {
    pub(crate) fn note(&mut self, address: &str, what: Engagement, at: i64) {
        let latest = self.latest.entry(address.to_owned()).or_default();
        let slot = &mut latest[what as usize];
        *slot = (*slot).max(Some(at));
    }

    pub(crate) fn latest(&self, address: &str, what: Engagement) -> Option<i64> {
        self.latest.get(address)?[what as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_moment_counts_in_whatever_order_it_is_noted() {
        let mut engagements = Engagements::default();
        engagements.note("ada@x", Engagement::Opened, 20);
        engagements.note("ada@x", Engagement::Opened, 10);

        assert_eq!(engagements.latest("ada@x", Engagement::Opened), Some(20));
        assert_eq!(engagements.latest("ada@x", Engagement::Clicked), None);
        assert_eq!(engagements.latest("bob@x", Engagement::Opened), None);
    }

    #[test]
    fn each_name_is_one_of_its_own() {
        for (place, name) in Engagement::NAMES.into_iter().enumerate() {
            assert_eq!(Engagement::named(name).unwrap() as usize, place);
        }
        assert_eq!(Engagement::named("sent"), None);
    }
}
