//! One binary for all integration tests: one link, one place to look.
#![expect(
    clippy::unwrap_used,
    reason = "clippy spares functions marked as tests, not what they call"
)]

mod client;
mod mock_contract;
mod mock_server;
mod promises;
mod support;
mod webhooks;
