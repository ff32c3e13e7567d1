//! One binary for all integration tests: one link, one place to look.
#![allow(
    clippy::unwrap_used,
    reason = "clippy spares functions marked as tests, not what they call"
)]

mod corpus;
mod deliveries;
mod handlers;
mod mock_server;
mod receivers;
mod webhooks;
