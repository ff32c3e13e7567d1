//! The signature scheme of interface section 5: HMAC-SHA256 over timestamp, period and body, in lowercase hex.

mod hint;
mod key;
#[cfg(test)]
mod vectors;

pub use hint::SignatureHint;
pub(super) use key::{SigningKey, Tag};
