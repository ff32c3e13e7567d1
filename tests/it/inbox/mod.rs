//! The inbox and its stores.

mod faulty_store;
mod handle;
mod mail_status;
mod memory_conformance;
mod memory_faults;
mod postgres_conformance;
mod redis;
mod responses;
mod sqlite;
mod support;
mod sweep;
mod worker;
