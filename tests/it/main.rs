//! One binary for all integration tests: one link, one place to look.
#![expect(
    clippy::unwrap_used,
    reason = "clippy spares functions marked as tests, not what they call"
)]

mod addresses;
mod batch;
mod blocking;
mod bodies;
mod consent;
mod contacts;
mod corpus;
mod deliveries;
mod dialects;
mod errors;
mod faults;
mod fixtures;
mod handlers;
mod listing;
mod mock_contract;
mod mock_server;
mod promises;
mod receivers;
mod redirects;
mod retry;
mod rules;
mod secrecy;
mod sending;
mod support;
mod tracing;
mod transport;
mod webhooks;
