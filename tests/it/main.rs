//! One binary for all integration tests: one link, one place to look.
