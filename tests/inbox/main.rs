//! The inbox and its stores.
#![expect(
    clippy::unwrap_used,
    reason = "clippy allows `unwrap` in test functions, but not in the functions they call"
)]

#[allow(
    dead_code,
    unused_macros,
    unused_imports,
    reason = "each test binary uses a part of it"
)]
#[path = "../support/mod.rs"]
mod support;

mod claim;
mod deliveries;
mod faulty_store;
mod handle;
mod handle_broken;
mod mail_status;
mod memory_conformance;
mod memory_faults;
mod memory_model;
mod postgres_conformance;
mod postgres_outages;
mod postgres_poolers;
mod postgres_schema;
mod postgres_transactions;
mod redis;
mod responses;
mod servers;
mod sqlite;
mod sweep;
mod worker;
mod worker_broken;
