#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| audience_fuzz::csv(input));
