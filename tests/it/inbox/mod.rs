//! The inbox and its stores.

mod claim;
mod faulty_store;
mod handle;
mod handle_broken;
mod mail_status;
mod memory_conformance;
mod memory_faults;
mod postgres_conformance;
mod postgres_outages;
mod postgres_schema;
mod postgres_transactions;
mod redis;
mod responses;
mod servers;
mod sqlite;
mod support;
mod sweep;
mod worker;
mod worker_broken;
