//! The current time, on targets with and without a clock in the standard library.

use std::time::SystemTime;

#[cfg(not(all(target_family = "wasm", target_os = "unknown")))]
pub(crate) fn now() -> SystemTime {
    SystemTime::now()
}

// `SystemTime::now` panics on this target.
#[cfg(all(target_family = "wasm", target_os = "unknown"))]
pub(crate) fn now() -> SystemTime {
    use web_time::web::SystemTimeExt;

    web_time::SystemTime::now().to_std()
}
