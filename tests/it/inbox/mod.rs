//! The inbox and its stores.

mod memory_conformance;
mod postgres_conformance;
mod postgres_outages;
mod postgres_schema;
mod postgres_transactions;
