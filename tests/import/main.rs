//! Imports and exports.
#![cfg(test)]

mod export;
mod import;
