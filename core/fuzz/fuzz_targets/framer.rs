//! Any bytes as what a replication connection sends, in pieces of any size. `make fuzz TARGETS=framer`
#![no_main]

mod log;

use libfuzzer_sys::fuzz_target;
use penstock_core::framing::{Options, Skip, Spooling};
use penstock_core::mysql::frame::Framer;
use penstock_core::mysql::place::Place;
use penstock_core::segment_framer::{Piece, SegmentFramer};

/// What was fed, in pieces of `size` bytes: everything given out before the end or an error.
fn run(bytes: &[u8], size: usize) -> (Vec<u8>, Vec<Vec<u8>>, bool) {
    let mut framer = Framer::new(Options {
        offset: 0,
        segment_size: 2000,
        span_size: 300,
        executed: None,
        source: Place::default(),
        server_uuid: String::from("u"),
        skip: Skip::default(),
        expected: None,
        spool: Spooling::default(),
    });
    let (mut stored, mut heads) = (Vec::new(), Vec::new());
    for part in bytes.chunks(size.max(1)) {
        let mut part = part;
        loop {
            let Ok(pieces) = framer.feed(part) else { return (stored, heads, false) };
            for piece in pieces {
                match piece {
                    Piece::Bytes(bytes) => stored.extend(bytes),
                    Piece::Spool { .. } | Piece::TakenBack { .. } => {}
                    Piece::Segment { head, .. } => heads.push(head),
                }
            }
            for entry in framer.cut() {
                assert!(serde_json::from_str::<serde::de::IgnoredAny>(&entry).is_ok(), "no JSON: {entry}");
            }
            if !framer.more() || stored.len() > 8 << 20 {
                break;
            }
            part = &[];
        }
    }
    assert!(framer.tracker.log.committed <= framer.tracker.log.end);
    (stored, heads, true)
}

fuzz_target!(|input: (bool, u8, &[u8])| {
    let (whole, size, bytes) = input;
    let packets;
    let bytes = if whole {
        let mut events = vec![log::head()[4..].to_vec()];
        events.extend(log::events(bytes));
        packets = log::packets(&events);
        &packets
    } else {
        bytes
    };
    let once = run(bytes, usize::MAX);
    let pieces = run(bytes, usize::from(size));
    assert!(once.2 == pieces.2, "an error depends on how the bytes come");
    if once.2 {
        assert!(once == pieces, "what is stored depends on how the bytes come");
    }
});
