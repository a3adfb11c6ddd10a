//! What libFuzzer makes up, to the target `protocol`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| outpage_fuzz_targets::protocol(data));
