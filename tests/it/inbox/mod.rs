//! The inbox and its stores.

mod memory_conformance;
mod postgres_conformance;
mod postgres_transactions;
