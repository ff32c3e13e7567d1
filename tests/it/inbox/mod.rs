//! The inbox and its stores.
