//! The service that `interface.md` describes, as a pure state machine.
//!
//! [`Audience::handle`](audience::Audience::handle) takes a request and a time and returns a reply. Nothing in this
//! folder reads a clock, waits, or sends anything. Except for [`Timestamp`](crate::Timestamp), it shares no code with the
//! client: a second, independent reading of the document makes a test fail if the client has a field name wrong.
//!
//! From the top down:
//!
//! - `audience` is the service: it finds out with `router` what a request asks for, and calls one of the operations;
//! - `contacts`, `listing`, `consent` and `emails` are the operations of section 4, `inbound_mail` is mail received;
//! - `bodies` and `rule` parse what a request contains;
//! - `seed` and `seed_contact` are what a test puts in, and `seeding` checks and stores it;
//! - `state` is everything that is stored: contacts in `contact`, segments, engagement and mail;
//! - `refusal`, `dialect` and `address` are what all of these share.

mod address;
pub(super) mod audience;
mod bodies;
mod consent;
pub(super) mod contact;
mod contacts;
pub(super) mod dialect;
mod emails;
pub(super) mod engagement;
pub(super) mod inbound_mail;
mod listing;
pub(super) mod mail_outcome;
pub(super) mod refusal;
pub(super) mod router;
mod rule;
pub(super) mod seed;
pub(super) mod seed_contact;
mod seeding;
pub(super) mod segment;
pub(super) mod sent_mail;
mod state;
#[cfg(test)]
mod testing;
