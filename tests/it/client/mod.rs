//! The client over real sockets: the requests it sends, and how it handles each response.

mod addresses;
mod batch;
mod blocking;
mod bodies;
mod consent;
mod contacts;
mod dialects;
mod errors;
mod faults;
mod fixtures;
mod full_responses;
mod list_splits;
mod listing;
mod malformed;
mod paged_service;
mod redirects;
mod retry;
mod rules;
mod secrecy;
mod sending;
mod tracing;
mod transport;
