#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| outpage_fuzz::environment(data));
