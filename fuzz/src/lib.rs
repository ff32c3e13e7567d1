//! What the fuzz targets do, as functions that take any bytes and panic if a promise of the crate is broken.
//!
//! Most of them read the input a second time, in the plainest way, and compare the results. `fuzz_targets` passes the
//! inputs of libFuzzer to them. The crate has this file as a module of its unit tests, which pass `corpus` to them.

mod files;
mod mock;
mod responses;
mod webhooks;

pub use self::files::{csv, journal};
pub use self::mock::{control, http, seed};
pub use self::responses::{batch, error_body, page};
pub use self::webhooks::{authentication_results, delivery, envelope};

/// A target: the name of its folder in `corpus`, and its function.
pub type Target = (&'static str, fn(&[u8]));

/// All targets.
pub const TARGETS: [Target; 11] = [
    ("authentication_results", authentication_results),
    ("batch", batch),
    ("control", control),
    ("csv", csv),
    ("delivery", delivery),
    ("envelope", envelope),
    ("error_body", error_body),
    ("http", http),
    ("journal", journal),
    ("page", page),
    ("seed", seed),
];

#[cfg(test)]
mod tests {
    use std::fs;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::path::Path;

    use super::TARGETS;

    #[test]
    fn every_input_of_the_corpus_passes_its_fuzz_target() {
        let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus");
        for (name, target) in TARGETS {
            let inputs = fs::read_dir(corpus.join(name)).expect("each target has a folder");
            let mut count = 0;
            for input in inputs {
                let path = input.unwrap().path();
                let bytes = fs::read(&path).unwrap();
                let result = catch_unwind(AssertUnwindSafe(|| target(&bytes)));
                assert!(result.is_ok(), "{} fails", path.display());
                count += 1;
            }
            assert!(count > 0, "{name} has no inputs");
        }
    }
}
