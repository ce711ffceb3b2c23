//! Any bytes as a binary JSON document. `make fuzz TARGETS=json`
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let mut out = Vec::new();
    if penstock_core::json::write_text(bytes, &mut out).is_ok() {
        // Six characters for an escaped one, and what stands between values.
        assert!(out.len() <= 64 + 400 * bytes.len());
    }
});
