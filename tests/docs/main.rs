//! The guides, the retold interface, the examples and the promises of the public types.
#![cfg(test)]

mod blocks;
mod examples;
mod guides;
mod interface;
mod links;
mod promises;
mod public_api;
mod readme;
