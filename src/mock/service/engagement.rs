//! Engagements: what happened to the mail of an address, and when it last happened (section 2.8).

use std::collections::HashMap;

use super::address::AddressKey;
use super::json::quoted_list;
use super::printable::printable;

/// An engagement that a rule can ask for (section 2.8).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Engagement {
    Delivered,
    Bounced,
    Complained,
    Opened,
    Clicked,
}

impl Engagement {
    /// The names of the engagements, in the order of the variants.
    pub(crate) const NAMES: [&'static str; 5] =
        ["delivered", "bounced", "complained", "opened", "clicked"];

    /// Returns the engagement with a name from section 2.8, or `None` if the name is unknown.
    pub(crate) fn from_name(name: &str) -> Option<Self> {
        Some(match name {
            "delivered" => Self::Delivered,
            "bounced" => Self::Bounced,
            "complained" => Self::Complained,
            "opened" => Self::Opened,
            "clicked" => Self::Clicked,
            _ => return None,
        })
    }

    /// Returns the engagement that a test names.
    ///
    /// # Errors
    ///
    /// Fails if the name is unknown. The message lists the known ones.
    pub(crate) fn parse(name: &str) -> Result<Self, String> {
        Self::from_name(name).ok_or_else(|| {
            format!(
                "`{}` is not a known engagement; known engagements: {}",
                printable(name),
                quoted_list(&Self::NAMES)
            )
        })
    }
}

/// When the latest engagement of each kind was, in Unix seconds. Indexed by [`Engagement`].
pub(crate) type EngagementTimes = [Option<i64>; Engagement::NAMES.len()];

/// The time of the latest engagement of each kind, for each address.
///
/// No operator of a rule asks for an earlier one. The addresses need not be contacts.
#[derive(Clone, Debug, Default)]
pub(crate) struct Engagements {
    latest: HashMap<AddressKey, EngagementTimes>,
}

impl Engagements {
    /// Records an engagement at `at`, in Unix seconds. A later one that is already recorded stays.
    pub(crate) fn record(&mut self, address: AddressKey, what: Engagement, at: i64) {
        let latest = self.latest.entry(address).or_default();
        let slot = &mut latest[what as usize];
        *slot = (*slot).max(Some(at));
    }

    /// Returns when an address last had an engagement, or `None` if it never had.
    pub(crate) fn latest(&self, address: &AddressKey, what: Engagement) -> Option<i64> {
        self.latest.get(address)?[what as usize]
    }

    /// Replaces all engagements of an address.
    pub(crate) fn replace(&mut self, address: AddressKey, times: EngagementTimes) {
        if times.iter().all(Option::is_none) {
            self.latest.remove(&address);
        } else {
            self.latest.insert(address, times);
        }
    }

    /// Returns the names of the engagements that an address had, with their times.
    pub(crate) fn all(&self, address: &AddressKey) -> impl Iterator<Item = (&'static str, i64)> {
        let times = self.latest.get(address).copied().unwrap_or_default();
        Engagement::NAMES
            .into_iter()
            .zip(times)
            .filter_map(|(name, at)| Some((name, at?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_engagement_counts_in_any_order_of_recording() {
        let (ada, bob) = (AddressKey::new("ada@x"), AddressKey::new("bob@x"));
        let mut engagements = Engagements::default();
        engagements.record(ada.clone(), Engagement::Opened, 20);
        engagements.record(ada.clone(), Engagement::Opened, 10);

        assert_eq!(engagements.latest(&ada, Engagement::Opened), Some(20));
        assert_eq!(engagements.latest(&ada, Engagement::Clicked), None);
        assert_eq!(engagements.latest(&bob, Engagement::Opened), None);
    }

    #[test]
    fn each_name_has_its_own_engagement() {
        for (index, name) in Engagement::NAMES.into_iter().enumerate() {
            assert_eq!(Engagement::from_name(name).unwrap() as usize, index);
        }
        assert_eq!(Engagement::from_name("sent"), None);
    }
}
