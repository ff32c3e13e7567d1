//! The cases.

mod accepting;
mod backlog;
mod bodies;
mod claims;
mod clock_jumps;
mod conflicts;
mod full;
mod leases;
mod limits;
mod names;
mod outage;
mod parking;
mod purging;
mod races;
mod retention;
mod taking;

use super::case::Case;

pub(super) fn all() -> impl Iterator<Item = &'static Case> {
    [
        // First, while no other case has left entries that may be forgotten.
        purging::CASES,
        claims::CASES,
        leases::CASES,
        races::CASES,
        retention::CASES,
        conflicts::CASES,
        accepting::CASES,
        taking::CASES,
        parking::CASES,
        backlog::CASES,
        names::CASES,
        bodies::CASES,
        limits::CASES,
        full::CASES,
        clock_jumps::CASES,
        outage::CASES,
    ]
    .into_iter()
    .flatten()
}
