//! The whole service as a server in your tests.

mod address;
mod audience;
mod clock;
mod consent;
mod contact;
mod control;
mod creation;
mod delivery;
mod dialect;
mod emails;
mod engagement;
mod faults;
mod journal;
mod json;
mod key;
mod listing;
mod message;
mod reading;
mod refusal;
#[cfg(feature = "wiremock")]
mod respond;
mod roster;
mod router;
mod rule;
mod segment;
mod server;

pub use contact::StoredContact;
pub use dialect::{
    BatchMessage, BatchRefusal, ConsentForm, Dialect, EndOfList, ErrorShape, LeftOut, MissingName,
    PropertyValues, ReasonAfterSubscribe, SegmentWithRules, SuccessStatus, UnknownMembers,
};
pub use segment::SegmentKind;
