//! The cases.

mod claims;
mod leases;
mod races;

use super::case::Case;

pub(super) fn all() -> impl Iterator<Item = &'static Case> {
    [claims::CASES, leases::CASES, races::CASES]
        .into_iter()
        .flatten()
}
