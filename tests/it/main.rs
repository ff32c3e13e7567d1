//! All integration tests, in one binary so that they are linked once.
#![expect(
    clippy::unwrap_used,
    reason = "clippy allows `unwrap` in test functions, but not in the functions they call"
)]

mod client;
mod examine;
mod examples;
mod export;
mod guides;
mod import;
mod inbox;
mod mock_contract;
mod mock_page;
mod mock_program;
mod mock_server;
mod openapi;
mod promises;
mod support;
mod timestamps;
mod webhooks;
