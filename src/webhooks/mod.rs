//! Webhooks: verify, parse, sign.
