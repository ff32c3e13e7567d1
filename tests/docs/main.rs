//! The guides, the retold interface, the examples, the promises of the public types and the workflows.
#![cfg(test)]

mod blocks;
mod examples;
mod guides;
mod interface;
mod links;
mod newsletter;
mod promises;
mod public_api;
mod readme;
mod workflows;
