//! The trait of stores, with what they are asked and what they respond.

mod calls;
mod states;
#[expect(clippy::module_inception, reason = "the file is named after its trait")]
mod store;

pub use self::calls::{EventKey, HeldClaim, NewClaim, NewDelivery, Release, Take};
pub use self::states::{AcceptState, Backlog, ClaimState, ParkedEvent, TakenEvent};
pub use self::store::Store;
