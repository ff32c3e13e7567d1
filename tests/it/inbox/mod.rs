//! The inbox and its stores.

mod faulty_store;
mod memory_conformance;
mod memory_faults;
mod sqlite;
