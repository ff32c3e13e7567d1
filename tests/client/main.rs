//! The client over real sockets: the requests it sends, and how it handles each response.
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

mod addresses;
mod batch;
mod blocking;
mod blocking_in_async;
mod bodies;
mod builders;
mod consent;
mod contacts;
mod deadlines;
mod dialects;
mod environment;
mod errors;
mod faults;
mod fixtures;
mod full_contacts;
mod full_responses;
mod keys;
mod list_failures;
mod list_splits;
mod listing;
mod long_urls;
mod malformed;
mod paged_service;
mod predicates;
mod prefetch;
mod rate_limits;
mod redirects;
mod retry;
mod rules;
mod secrecy;
mod sending;
mod settings;
mod timestamps;
mod topics;
mod tracing;
mod transport;
