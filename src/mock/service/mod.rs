//! The service that `interface.md` describes, as a pure state machine.
//!
//! [`Audience::handle`](audience::Audience::handle) takes a request and a time and returns a reply. Nothing in this
//! folder reads a clock, waits, or uses an HTTP library. Except for [`Timestamp`](crate::Timestamp), it shares no code
//! with the client: a second, independent reading of the document makes a test fail if the client has a field name
//! wrong.
//!
//! From the top down:
//!
//! - `audience` authenticates a request, finds its endpoint in `router` and calls one of the operations;
//! - `contacts`, `batch`, `consent`, `listing` and `emails` are the operations of section 4;
//! - `mail_events` and `inbound_mail` publish what happens to mail;
//! - `request_body` and `parameters` parse what a request contains;
//! - `seed` and `seed_contact` are what a test puts in, and `seeding` checks and stores it;
//! - `audience_state` holds everything that is stored, behind its methods, and `audience_events` publishes events;
//! - the other files are what these are made of: contacts, segments, rules, refusals, JSON.

mod address;
pub(super) mod audience;
mod audience_events;
pub(super) mod audience_queries;
mod audience_state;
mod batch;
mod condition;
mod consent;
mod contact;
mod contact_ids;
mod contact_store;
mod contacts;
mod content_type;
mod delayed_mail;
pub(super) mod dialect;
mod dialect_settings;
mod emails;
mod engagement;
pub(super) mod inbound_mail;
mod json;
pub(super) mod key;
mod listing;
pub(super) mod mail;
mod mail_events;
pub(super) mod mail_outcome;
pub(super) mod message;
mod operator;
mod parameters;
pub(super) mod percent;
mod predicate;
mod printable;
mod raw_json;
pub(super) mod reason;
pub(super) mod refusal;
mod request_body;
pub(super) mod router;
mod rule;
pub(super) mod seed;
pub(super) mod seed_contact;
pub(super) mod seed_settings;
mod seeding;
pub(super) mod segment;
pub(super) mod sent_mail;
pub(super) mod settings;
mod simulated_address;
pub(super) mod stored_contact;
pub(super) mod unknown_choice;

#[cfg(test)]
mod testing;
