//! The inbox and its stores.

mod redis;
