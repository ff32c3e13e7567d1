//! The client over real sockets: the requests it sends, and how it handles each response.

mod addresses;
mod batch;
mod blocking;
mod bodies;
mod consent;
mod contacts;
mod deadlines;
mod dialects;
mod errors;
mod faults;
mod fixtures;
mod keys;
mod list_failures;
mod list_splits;
mod listing;
mod long_urls;
mod paged_service;
mod predicates;
mod rate_limits;
mod redirects;
mod retry;
mod rules;
mod secrecy;
mod sending;
mod tracing;
mod transport;
