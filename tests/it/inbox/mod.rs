//! The inbox and its stores.

mod handle;
mod mail_status;
mod memory_conformance;
mod postgres_conformance;
mod redis;
mod responses;
mod support;
mod sweep;
mod worker;
