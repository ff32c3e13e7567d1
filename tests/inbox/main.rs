//! The inbox and its stores.
#![cfg(test)]

mod authority;
mod cancellation;
mod claim;
mod deliveries;
mod entry_model;
mod faulty_store;
mod handle;
mod handle_broken;
mod handler_in;
mod linearizability;
mod lossy_proxy;
mod mail_status;
mod memory_conformance;
mod memory_faults;
mod memory_model;
mod postgres_conformance;
mod postgres_groups;
mod postgres_handle_in;
mod postgres_outages;
mod postgres_poolers;
mod postgres_schema;
mod postgres_sqlx;
// Its servers have files with the owner and the mode that Postgres wants.
#[cfg(unix)]
mod postgres_tls;
mod postgres_transactions;
mod prometheus;
mod ready;
mod redis;
mod responses;
mod serve;
mod servers;
mod sqlite;
mod steady_time;
mod sweep;
mod unsubscribe;
mod unsubscribe_change_address;
mod unsubscribe_crash;
mod unsubscribe_issue;
mod unsubscribe_mail;
mod unsubscribe_moved;
mod unsubscribe_outage;
mod worker;
mod worker_broken;
