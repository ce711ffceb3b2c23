//! Frames a binlog file some times over, as if a server sent it, and says what it cost.
//!
//!     cargo run --release --example frame BINLOG [PASSES]
//!
//! The last line is a JSON object. What is framed is dropped: no disk is in it.

use std::time::Instant;

use penstock_core::framing::{Options, Skip, Spooling};
use penstock_core::mysql::binlog::MySqlBinlog;
use penstock_core::mysql::event::HEADER_SIZE;
use penstock_core::mysql::gtid::GtidSet;
use penstock_core::mysql::place::Place;
use penstock_core::segment_format::SegmentFormat;
use penstock_core::segment_framer::SegmentFramer;

/// As much as a receiver reads from its socket at a time.
const READ_BYTES: usize = 1 << 20;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [path, rest @ ..] = arguments.as_slice() else {
        eprintln!("arguments: BINLOG [PASSES]");
        std::process::exit(2);
    };
    let passes = rest.first().map_or(1, |text| text.parse::<u64>().expect("a number"));
    let stream = packets(&std::fs::read(path).expect("the binlog"));
    let began = Instant::now();
    let (mut rows, mut bytes) = (0, 0);
    for _ in 0..passes {
        let (events, length) = frame(&stream);
        (rows, bytes) = (rows + events, bytes + length);
    }
    let wall_s = began.elapsed().as_secs_f64();
    println!("{{\"rows\": {rows}, \"bytes\": {bytes}, \"wall_s\": {wall_s:.3}}}");
}

/// The events of a file as packets, behind the rotation that a server sends first.
fn packets(file: &[u8]) -> Vec<u8> {
    let mut rotation = [0; HEADER_SIZE].to_vec();
    rotation[4] = 4;
    rotation[17] = 0x20;
    rotation.extend(4_u64.to_le_bytes());
    rotation.extend(b"binlog.000001");
    let length = rotation.len() as u32;
    rotation[9..13].copy_from_slice(&length.to_le_bytes());
    let mut stream = Vec::with_capacity(file.len() * 9 / 8);
    packet(&rotation, &mut stream);
    let mut rest = &file[4..];
    while !rest.is_empty() {
        let length = u32::from_le_bytes(rest[9..13].try_into().expect("four bytes")) as usize;
        packet(&rest[..length], &mut stream);
        rest = &rest[length..];
    }
    stream
}

fn packet(event: &[u8], stream: &mut Vec<u8>) {
    let length = (event.len() + 1) as u32;
    assert!(length < 0xff_ffff, "events in several packets are not made here");
    stream.extend(&length.to_le_bytes()[..3]);
    stream.extend([0, 0]);
    stream.extend(event);
}

/// Events and bytes that it gave.
#[inline(never)]
fn frame(stream: &[u8]) -> (u64, u64) {
    let mut framer = MySqlBinlog::framer(Options {
        offset: 0,
        segment_size: 256 << 20,
        span_size: 1 << 20,
        server_uuid: String::new(),
        executed: Some(GtidSet::default()),
        source: Place { file: "binlog.000001".to_owned(), position: 4 },
        skip: Skip { until_us: None, until: None },
        expected: None,
        spool: Spooling { prepared: Vec::new(), folder: String::new(), number: 0, generation: 0 },
    });
    for read in stream.chunks(READ_BYTES) {
        framer.feed(read).expect("framed");
        while framer.more() {
            framer.feed(&[]).expect("framed");
        }
        framer.cut();
    }
    (framer.tracker.events, framer.offset())
}
