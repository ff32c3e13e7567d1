//! The inbox and its stores.

mod handle;
mod mail_status;
mod responses;
mod support;
mod worker;
