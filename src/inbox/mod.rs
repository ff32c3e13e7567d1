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
#[cfg(feature = "inbox-postgres")]
mod postgres;
mod purge;
mod receipt;
mod running;
mod settings;
mod shared;
mod store;
mod token;
mod trace;

pub use attempt::Attempt;
pub use builder::InboxBuilder;
pub use claim::{Claim, ClaimedEvent, Lease};
pub use error::{InboxError, StoreError, StoreErrorKind};
pub use fingerprint::Fingerprint;
pub use inbox::Inbox;
pub use memory::MemoryStore;
pub use metrics::InboxMetrics;
#[cfg(feature = "inbox-postgres")]
#[cfg_attr(docsrs, doc(cfg(feature = "inbox-postgres")))]
pub use postgres::{PostgresStore, deadpool_postgres};
pub use receipt::Receipt;
pub use settings::InboxSettingsError;
pub use store::{
    AcceptState, Backlog, ClaimState, EventKey, HeldClaim, NewClaim, NewDelivery, ParkedEvent,
    Release, Store, Take, TakenEvent,
};
pub use token::Token;
