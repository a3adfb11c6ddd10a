//! What libFuzzer makes up, to the target `session`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| outpage_fuzz_targets::session(data));
