//! The inbox and its stores.

mod memory_conformance;
mod sqlite;
