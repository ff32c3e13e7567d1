//! The inbox and its stores.

mod handle;
mod mail_status;
mod memory_conformance;
mod responses;
mod support;
mod worker;
mod postgres_conformance;
mod redis;
