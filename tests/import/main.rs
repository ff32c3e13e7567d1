//! Imports, syncs and exports.
#![cfg(test)]

mod export;
mod import;
mod sync;
