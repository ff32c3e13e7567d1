//! The client, over real sockets: what it sends, and what it makes of each response.

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
mod listing;
mod redirects;
mod retry;
mod rules;
mod secrecy;
mod sending;
mod tracing;
mod transport;
