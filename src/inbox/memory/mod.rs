//! A store in memory.

#[cfg(test)]
mod arbitrary_calls;
mod clock;
mod contents;
#[cfg(test)]
mod limits;
#[cfg(test)]
mod reference_model;
mod shelf;
mod store;

pub use self::store::MemoryStore;
