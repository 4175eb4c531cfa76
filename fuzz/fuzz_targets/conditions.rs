#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    leadline_fuzz::conditions(data);
});
