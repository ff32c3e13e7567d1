//! The mock: the service, the server in front of it, its program, its page, its description and its examiner.
#![expect(
    clippy::unwrap_used,
    reason = "clippy allows `unwrap` in test functions, but not in the functions they call"
)]

#[allow(
    dead_code,
    unused_macros,
    unused_imports,
    reason = "each test binary uses a part of it"
)]
#[path = "../support/mod.rs"]
mod support;

mod contract;
mod examine;
mod openapi;
mod page;
mod program;
mod receiver;
mod server;
