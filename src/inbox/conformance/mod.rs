//! Cases that every [`Store`](super::Store) must pass, for tests of a store of your own.
//!
//! A [`Suite`] runs over a hundred cases: races, leases that end, holders that come late, retention, two bodies
//! with one id, workers, parked events, ids that databases confuse, bodies of any bytes. The name of a case is
//! a sentence, and a failed case says what was expected and what happened. The stores of this crate pass all
//! of them.
//!
//! A case waits for what must end, and what must not end lasts an hour. So a slow machine makes a run longer,
//! but does not change its result. With the default way of waiting, a run takes a few seconds beside the time
//! of the store.
//!
//! Run it in a runtime with several threads, and through several handles
//! ([`also_through`](Suite::also_through)), so that calls really race. Add what you can do to your store:
//!
//! - [`filling`](Suite::filling) if it can be full,
//! - [`outage`](Suite::outage) if a test can stop its server,
//! - [`clock_jump`](Suite::clock_jump) and [`waiting_with`](Suite::waiting_with) if a test can move its clock,
//! - [`expires_by_itself`](Suite::expires_by_itself) if the database deletes entries by itself.
//!
//! # Example: test a store of your own
//!
//! ```
//! use std::time::Duration;
//!
//! use audience::inbox::conformance::Suite;
//! use audience::inbox::*;
//! use audience::webhooks::EventId;
//!
//! /// Yours talks to a database instead.
//! #[derive(Clone)]
//! struct MyStore(MemoryStore);
//!
//! impl Store for MyStore {
//!     async fn claim(&self, claim: NewClaim<'_>) -> Result<ClaimState, StoreError> {
//!         self.0.claim(claim).await
//!     }
//!     // ... and so on, each method in one step
//! #     async fn extend(&self, held: HeldClaim<'_>, lease: Duration) -> Result<bool, StoreError> {
//! #         self.0.extend(held, lease).await
//! #     }
//! #     async fn complete(&self, held: HeldClaim<'_>, retention: Duration) -> Result<bool, StoreError> {
//! #         self.0.complete(held, retention).await
//! #     }
//! #     async fn release(&self, held: HeldClaim<'_>, release: Release<'_>) -> Result<bool, StoreError> {
//! #         self.0.release(held, release).await
//! #     }
//! #     async fn park(&self, held: HeldClaim<'_>, reason: &str) -> Result<bool, StoreError> {
//! #         self.0.park(held, reason).await
//! #     }
//! #     async fn accept(&self, delivery: NewDelivery<'_>) -> Result<AcceptState, StoreError> {
//! #         self.0.accept(delivery).await
//! #     }
//! #     async fn take(&self, take: Take<'_>) -> Result<Vec<TakenEvent>, StoreError> {
//! #         self.0.take(take).await
//! #     }
//! #     async fn parked(
//! #         &self, endpoint: &str, after: Option<&EventId>, limit: usize,
//! #     ) -> Result<Vec<ParkedEvent>, StoreError> {
//! #         self.0.parked(endpoint, after, limit).await
//! #     }
//! #     async fn replay(&self, key: EventKey<'_>) -> Result<bool, StoreError> {
//! #         self.0.replay(key).await
//! #     }
//! #     async fn discard(&self, key: EventKey<'_>, retention: Duration) -> Result<bool, StoreError> {
//! #         self.0.discard(key, retention).await
//! #     }
//! #     async fn purge(&self, limit: usize) -> Result<usize, StoreError> {
//! #         self.0.purge(limit).await
//! #     }
//! #     async fn backlog(&self, endpoint: &str) -> Result<Backlog, StoreError> {
//! #         self.0.backlog(endpoint).await
//! #     }
//! }
//!
//! # tokio::runtime::Runtime::new()?.block_on(async {
//! let store = MyStore(MemoryStore::new());
//! let small = MyStore(MemoryStore::new().capacity(5));
//!
//! let suite = Suite::new(store.clone()).also_through(store).filling(small, 5);
//!
//! suite.run().await.assert_passed();
//! # });
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! # Example: run one case
//!
//! ```
//! # use audience::inbox::MemoryStore;
//! # use audience::inbox::conformance::{CaseResult, Suite};
//! # tokio::runtime::Runtime::new()?.block_on(async {
//! let suite = Suite::new(MemoryStore::new()).only("completing twice");
//!
//! let report = suite.run().await;
//!
//! let [case] = report.cases() else { panic!("one case has this name") };
//! assert_eq!(case.name, "completing twice with the same token is no error");
//! assert_eq!(case.result, CaseResult::Passed);
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
