//! Imports and exports.
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

mod export;
mod import;
