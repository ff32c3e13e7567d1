//! The description of the service, `openapi/audience.json`: it is valid, it is complete, and it is true.
//!
//! `conformance` and `deliveries` compare one exchange and one delivery with it. The tests of the mock send everything
//! through them: `contract::exchange`, `server` and `receiver`. `refusals` provokes each refusal that the description lists, `document` looks at the file
//! itself, `interface` compares it with the tables of `docs/interface.md`, `generators` generates clients from it and uses them, and `page` looks
//! at what the mock serves.

pub(crate) mod conformance;
pub(crate) mod deliveries;
mod document;
// On Windows, Python's virtual environments have other folders, and npm is no program but a script.
#[cfg(unix)]
mod generators;
mod interface;
mod page;
mod refusals;
