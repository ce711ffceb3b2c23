//! Any bytes as the body of a compressed transaction. `make fuzz TARGETS=payload`
#![no_main]

use libfuzzer_sys::fuzz_target;
use penstock_core::mysql::payload::Payload;

/// What is unpacked of one: the readers hold one inner event at a time, however many there are.
const UNPACKED_MAX: usize = 8 << 20;

fn unpack(body: &[u8]) {
    let Ok(mut payload) = Payload::open(body, 1, 4) else { return };
    let (mut event, mut unpacked) = (Vec::new(), 0);
    while let Ok(true) = payload.next_into(&mut event) {
        unpacked += event.len();
        if unpacked > UNPACKED_MAX {
            return;
        }
    }
}

fuzz_target!(|bytes: &[u8]| {
    unpack(bytes);
    // Compression type 0 (zstd), then the frame.
    let mut body = vec![2, 1, 0, 0];
    body.extend(bytes);
    unpack(&body);
});
