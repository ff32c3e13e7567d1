//! Engagements: what happened to the mail of an address, and when it last happened (section 2.8).

use std::collections::HashMap;

use serde::Serialize;

use super::address::{printable, quoted_list};

/// What happened to mail at an address (interface section 2.8).
///
/// # Example: a contact who opened mail
///
/// ```
/// # use audience::mock::{EngagementKind, MockServer};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let server = MockServer::start().await;
///
/// server.record_engagement("ada@example.com", EngagementKind::Opened, 1_700_000_000);
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum EngagementKind {
    /// The receiving server accepted the mail.
    Delivered,
    /// The receiving server refused the mail.
    Bounced,
    /// The recipient reported the mail as spam.
    Complained,
    /// The recipient opened the mail.
    Opened,
    /// The recipient clicked a link in the mail.
    Clicked,
}

impl EngagementKind {
    /// The kinds, in the order of the variants.
    const ALL: [Self; 5] = [
        Self::Delivered,
        Self::Bounced,
        Self::Complained,
        Self::Opened,
        Self::Clicked,
    ];

    /// The names of the kinds, in the order of the variants.
    pub(crate) const NAMES: [&'static str; 5] =
        ["delivered", "bounced", "complained", "opened", "clicked"];

    /// Returns the engagement with a name from section 2.8, or `None` if the name is unknown.
    pub(crate) fn from_name(name: &str) -> Option<Self> {
        let index = Self::NAMES.into_iter().position(|known| known == name)?;
        Some(Self::ALL[index])
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

/// When the latest engagement of each kind was, in Unix seconds. Indexed by [`EngagementKind`].
pub(crate) type EngagementTimes = [Option<i64>; EngagementKind::NAMES.len()];

/// The time of the latest engagement of each kind, for each address.
///
/// No operator of a rule asks for an earlier one. The addresses need not be contacts.
#[derive(Clone, Debug, Default)]
pub(crate) struct Engagements {
    latest: HashMap<String, EngagementTimes>,
}

impl Engagements {
    /// Records an engagement at `at`, in Unix seconds. A later one that is already recorded stays.
    pub(crate) fn record(&mut self, address: String, what: EngagementKind, at: i64) {
        let latest = self.latest.entry(address).or_default();
        let slot = &mut latest[what as usize];
        *slot = (*slot).max(Some(at));
    }

    /// Returns when an address last had an engagement, or `None` if it never had.
    pub(crate) fn latest(&self, address: &str, what: EngagementKind) -> Option<i64> {
        self.latest.get(address)?[what as usize]
    }

    /// Replaces all engagements of an address.
    pub(crate) fn replace(&mut self, address: String, times: EngagementTimes) {
        if times.iter().all(Option::is_none) {
            self.latest.remove(&address);
        } else {
            self.latest.insert(address, times);
        }
    }

    /// Returns the names of the engagements that an address had, with their times.
    pub(crate) fn all(&self, address: &str) -> impl Iterator<Item = (EngagementKind, i64)> {
        let times = self.latest.get(address).copied().unwrap_or_default();
        EngagementKind::ALL
            .into_iter()
            .zip(times)
            .filter_map(|(kind, at)| Some((kind, at?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_engagement_counts_in_any_order_of_recording() {
        let (ada, bob) = ("ada@x".to_owned(), "bob@x".to_owned());
        let mut engagements = Engagements::default();
        engagements.record(ada.clone(), EngagementKind::Opened, 20);
        engagements.record(ada.clone(), EngagementKind::Opened, 10);

        assert_eq!(engagements.latest(&ada, EngagementKind::Opened), Some(20));
        assert_eq!(engagements.latest(&ada, EngagementKind::Clicked), None);
        assert_eq!(engagements.latest(&bob, EngagementKind::Opened), None);
    }

    #[test]
    fn each_name_has_its_own_engagement() {
        for (index, name) in EngagementKind::NAMES.into_iter().enumerate() {
            assert_eq!(EngagementKind::from_name(name).unwrap() as usize, index);
        }
        assert_eq!(EngagementKind::from_name("sent"), None);
    }

    #[test]
    fn the_error_for_an_unknown_engagement_lists_the_known_ones() {
        assert_eq!(
            EngagementKind::parse("read").unwrap_err(),
            "`read` is not a known engagement; known engagements: `delivered`, `bounced`, `complained`, `opened`, `clicked`"
        );
    }
}
