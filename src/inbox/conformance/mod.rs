//! Cases that every [`Store`](super::Store) must pass, for tests of a store of your own.
//!
//! # Example: test a store
//!
//! ```
//! use audience::inbox::MemoryStore;
//! use audience::inbox::conformance::Suite;
//!
//! # tokio::runtime::Runtime::new()?.block_on(async {
//! let store = MemoryStore::new();
//! # let _ = "a run takes about three seconds; only some cases here";
//! let report = Suite::new(store.clone()).also_through(store).only("claim").run().await;
//! report.assert_passed();
//! # });
//! # Ok::<(), std::io::Error>(())
//! ```

mod case;
mod cases;
mod clock_jump;
mod item;
mod pace;
mod report;
mod subject;
mod suite;
mod verdict;

pub use self::clock_jump::ClockJump;
pub use self::report::{CaseReport, CaseResult, Report};
pub use self::suite::Suite;
