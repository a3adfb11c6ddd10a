//! What libFuzzer makes up, to the target `log`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| outpage_fuzz_targets::log(data));
