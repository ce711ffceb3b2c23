//! Any bytes as a binary JSON document, and as changes of one. `make fuzz TARGETS=json`
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let mut out = Vec::new();
    if penstock_core::json::write_text(bytes, &mut out).is_ok() {
        // Six characters for an escaped one, and what stands between values.
        assert!(out.len() <= 64 + 400 * bytes.len());
    }
    // The first byte says where the document ends and its changes begin.
    if let Some((length, rest)) = bytes.split_first() {
        let (document, changes) = rest.split_at(usize::from(*length).min(rest.len()));
        let _ = penstock_core::json::write_changed(document, changes, &mut Vec::new());
    }
});
