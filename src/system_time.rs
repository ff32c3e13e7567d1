//! The current time, on targets with and without a clock in the standard library.

use std::time::SystemTime;

#[cfg(not(all(target_family = "wasm", target_os = "unknown")))]
pub(crate) fn now() -> SystemTime {
    SystemTime::now()
}

// `SystemTime::now` panics on this target.
#[cfg(all(target_family = "wasm", target_os = "unknown"))]
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "this target cannot represent a time before 1970: the cast makes it 1970"
)]
pub(crate) fn now() -> SystemTime {
    let milliseconds = js_sys::Date::now() as u64;
    SystemTime::UNIX_EPOCH + std::time::Duration::from_millis(milliseconds)
}
