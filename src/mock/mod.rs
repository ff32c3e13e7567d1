//! The whole service as a server in your tests.

mod audience;
mod clock;
mod control;
mod delivery;
mod dialect;
mod faults;
mod journal;
mod message;
#[cfg(feature = "wiremock")]
mod respond;
mod router;
mod segment;
mod server;
