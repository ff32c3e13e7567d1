//! A store in memory.

mod clock;
mod entry;
mod shelf;
mod store;

pub use self::store::MemoryStore;
