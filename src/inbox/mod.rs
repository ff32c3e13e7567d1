//! Every webhook event handled once: an inbox with a store in memory, SQLite, Postgres or Redis (feature
//! `inbox`).

mod accept;
mod attempt;
mod builder;
mod claim;
pub mod conformance;
mod dyn_store;
mod error;
mod failure;
mod fingerprint;
mod handle;
mod held;
#[expect(clippy::module_inception, reason = "the file is named after its type")]
mod inbox;
mod memory;
mod metrics;
mod parked;
mod purge;
mod receipt;
#[cfg(feature = "inbox-redis")]
mod redis;
mod running;
mod settings;
mod shared;
mod store;
mod token;
mod trace;

#[cfg(feature = "inbox-redis")]
#[cfg_attr(docsrs, doc(cfg(feature = "inbox-redis")))]
pub use self::redis::RedisStore;
pub use attempt::Attempt;
pub use builder::InboxBuilder;
pub use claim::{Claim, ClaimedEvent, Lease};
pub use error::{InboxError, StoreError, StoreErrorKind};
pub use fingerprint::Fingerprint;
pub use inbox::Inbox;
pub use memory::MemoryStore;
pub use metrics::InboxMetrics;
pub use receipt::Receipt;
pub use settings::InboxSettingsError;
pub use store::{
    AcceptState, Backlog, ClaimState, EventKey, HeldClaim, NewClaim, NewDelivery, ParkedEvent,
    Release, Store, Take, TakenEvent,
};
pub use token::Token;
