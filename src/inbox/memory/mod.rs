//! A store in memory.

mod clock;
mod shelf;
mod store;

pub use self::store::MemoryStore;
