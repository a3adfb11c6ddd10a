//! What libFuzzer makes up, to the target `environment`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| outpage_fuzz_targets::environment(data));
