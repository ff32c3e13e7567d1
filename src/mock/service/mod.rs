//! The service itself, as the interface document describes it: a pure state machine, and a second reading of the
//! document that shares nothing with the client's.
//!
//! [`Audience::handle`](audience::Audience::handle) takes a request and a time and gives an answer. There is no HTTP
//! library, no clock and no thread in here.

mod address;
pub(super) mod audience;
mod batch;
mod consent;
pub(super) mod contact;
mod creation;
pub(super) mod dialect;
mod emails;
mod engagement;
mod json;
pub(super) mod key;
mod listing;
pub(super) mod message;
#[cfg(test)]
mod model;
mod parameters;
mod predicate;
mod reading;
pub(super) mod refusal;
mod roster;
mod router;
mod rule;
pub(super) mod segment;
#[cfg(test)]
mod testing;
