//! The framer on a stream made by hand, and on anything else.

use penstock_core::digest::Digest;
use penstock_core::framing::{Expected, Skip, Spooling};
use penstock_core::mysql::frame::{Framer, Options};
use penstock_core::mysql::gtid::GtidSet;
use penstock_core::mysql::place::Place;
use penstock_core::segment_framer::{Piece, SegmentFramer};
use proptest::prelude::*;

struct Source {
    bytes: Vec<u8>,
    position: u32,
}

impl Source {
    fn new() -> Source {
        let mut source = Source { bytes: Vec::new(), position: 4 };
        let mut rotate = 4_u64.to_le_bytes().to_vec();
        rotate.extend_from_slice(b"binlog.000001");
        source.event(4, &rotate, 0x20);
        source.position = 4;
        let mut format = vec![4, 0];
        let mut version = b"8.0.15".to_vec();
        version.resize(50, 0);
        format.extend_from_slice(&version);
        format.extend_from_slice(&[0, 0, 0, 0, 19]);
        format.extend_from_slice(&[0; 42]);
        format.push(1);
        source.event(15, &format, 0);
        source.event(35, &GtidSet::default().encode(), 0x80);
        source
    }

    fn event(&mut self, kind: u8, body: &[u8], flags: u16) -> Vec<u8> {
        let length = 19 + body.len() as u32 + 4;
        self.position += length;
        let mut event = 1_700_000_000_u32.to_le_bytes().to_vec();
        event.push(kind);
        event.extend_from_slice(&1_u32.to_le_bytes());
        event.extend_from_slice(&length.to_le_bytes());
        event.extend_from_slice(&self.position.to_le_bytes());
        event.extend_from_slice(&flags.to_le_bytes());
        event.extend_from_slice(body);
        event.extend_from_slice(&crc32fast::hash(&event).to_le_bytes());
        let mut payload = vec![0];
        payload.extend_from_slice(&event);
        let mut left = payload.as_slice();
        loop {
            let size = left.len().min(0xff_ffff);
            self.bytes.extend_from_slice(&(size as u32).to_le_bytes()[..3]);
            self.bytes.push(0);
            self.bytes.extend_from_slice(&left[..size]);
            left = &left[size..];
            if size < 0xff_ffff {
                return event;
            }
        }
    }

    /// GTID, BEGIN, table map, row events of these sizes, XID; the bytes of all.
    fn transaction(&mut self, number: u64, rows: &[usize]) -> Vec<u8> {
        let mut gtid = vec![1];
        gtid.extend_from_slice(&[7; 16]);
        gtid.extend_from_slice(&number.to_le_bytes());
        let mut all = self.event(33, &gtid, 0);
        all.extend(self.event(2, b"\x01\0\0\0\0\0\0\0\x01\0\0\0\0d\0BEGIN", 8));
        all.extend(self.event(19, b"\x05\0\0\0\0\0\x01\0\x01d\0\x01t\0\x01\x03\0\0", 0));
        for (index, size) in rows.iter().enumerate() {
            let mut body = b"\x05\0\0\0\0\0".to_vec();
            body.extend_from_slice(&[u8::from(index + 1 == rows.len()), 0, 2, 0, 1, 0xff]);
            body.resize(body.len() + size, b'z');
            all.extend(self.event(30, &body, 0));
        }
        all.extend(self.event(16, &[0; 8], 0));
        all
    }
}

fn options(segment_size: u64) -> Options {
    Options {
        offset: 0,
        segment_size,
        span_size: 1 << 20,
        executed: None,
        source: Place::default(),
        server_uuid: String::from("u"),
        skip: Skip::default(),
        expected: None,
        spool: Spooling::default(),
    }
}

/// Bytes behind the heads, entries, bases.
type Yield = (Vec<u8>, Vec<String>, Vec<u64>);

/// Everything the framer yields for the stream in pieces of `size`.
fn run(framer: &mut Framer, bytes: &[u8], size: usize) -> Result<Yield, String> {
    let (mut output, mut entries, mut bases) = (Vec::new(), Vec::new(), Vec::new());
    for piece in bytes.chunks(size.max(1)).chain([&[][..]]) {
        let mut more = true;
        let mut piece = piece;
        while more {
            for part in framer.feed(piece).map_err(|error| error.to_string())? {
                match part {
                    Piece::Bytes(bytes) => output.extend(bytes),
                    Piece::Spool { .. } | Piece::TakenBack { .. } => {}
                    Piece::Segment { base, entries: closing, .. } => {
                        entries.extend(closing);
                        bases.push(base);
                    }
                }
            }
            piece = &[];
            more = framer.more();
        }
    }
    entries.extend(framer.cut());
    Ok((output, entries, bases))
}

#[test]
fn an_event_of_several_packets_comes_out_whole_whatever_the_pieces() {
    for size in [1 << 20, 65_537, 0xff_ffff + 3] {
        let mut source = Source::new();
        let mut expected = source.transaction(1, &[100, 40_000_000, 5]);
        // A payload of exactly the greatest packet is followed by an empty one.
        expected.extend(source.transaction(2, &[0xff_ffff - 1 - 19 - 4 - 12]));
        let mut framer = Framer::new(options(1 << 40));
        let (output, entries, bases) = run(&mut framer, &source.bytes, size).unwrap();
        assert!(output == expected && bases == [0]);
        assert_eq!(framer.tracker.log.executed.to_string(), "07070707-0707-0707-0707-070707070707:1-2");
        let counts = entries.iter().map(|entry| {
            let fields: serde_json::Value = serde_json::from_str(entry).unwrap();
            fields["tables"]["d.t"][0].as_u64().unwrap_or(0)
        });
        assert_eq!(counts.sum::<u64>(), 4);
    }
}

#[test]
fn segments_begin_at_transaction_boundaries_and_entries_leave_no_gap() {
    let mut source = Source::new();
    let mut expected = Vec::new();
    for number in 1..40 {
        expected.extend(source.transaction(number, &[300, 200]));
    }
    let mut framer = Framer::new(options(2_000));
    let (output, entries, bases) = run(&mut framer, &source.bytes, 777).unwrap();
    assert!(output == expected && bases.len() > 5);
    let mut end = 0;
    for entry in &entries {
        let fields: serde_json::Value = serde_json::from_str(entry).unwrap();
        assert_eq!(fields["start"], end);
        end = fields["end"].as_u64().unwrap();
        assert!(!bases.contains(&end) || fields["committed"] == end);
    }
    assert_eq!(end, framer.tracker.log.end);
}

#[test]
fn the_transaction_asked_for_again_is_compared_and_not_stored() {
    for wrong in [0, 1] {
        let mut source = Source::new();
        let last = source.transaction(1, &[10]);
        let next = source.transaction(2, &[10]);
        // The other one has events of the same lengths, and right checksums too.
        let mut digest = Digest::default();
        digest.update(if wrong == 0 { &last } else { &next });
        let (length, digest) = digest.finish();
        let expected = Expected { id: None, length, digest };
        let mut framer = Framer::new(Options { expected: Some(expected), ..options(1 << 40) });
        let (output, _, _) = run(&mut framer, &source.bytes, 100).unwrap();
        assert_eq!((framer.verified, framer.diverged), (wrong == 0, wrong == 1));
        assert!(output == next);
    }
}

#[test]
fn every_changed_byte_of_an_event_is_noticed() {
    let mut source = Source::new();
    let mut at = source.bytes.len();
    source.transaction(1, &[10]);
    while at < source.bytes.len() {
        let length = usize::from(source.bytes[at]) | usize::from(source.bytes[at + 1]) << 8;
        for byte in at + 5..at + 4 + length {
            let mut bytes = source.bytes.clone();
            bytes[byte] ^= 0x10;
            assert!(run(&mut Framer::new(options(1 << 40)), &bytes, 1 << 20).is_err(), "byte {byte}");
        }
        at += 4 + length;
    }
}

proptest! {
    #[test]
    fn any_bytes_give_output_or_an_error(
        noise in proptest::collection::vec(any::<u8>(), 0..300),
        at in any::<prop::sample::Index>(),
        size in 1_usize..400,
    ) {
        let mut source = Source::new();
        source.transaction(1, &[30, 20]);
        let at = at.index(source.bytes.len());
        let tail = source.bytes.split_off(at);
        source.bytes.extend_from_slice(&noise);
        source.bytes.extend_from_slice(&tail);
        let _ = run(&mut Framer::new(options(1 << 20)), &source.bytes, size);
        let _ = run(&mut Framer::new(options(1 << 20)), &noise, size);
    }
}
