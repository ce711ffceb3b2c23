//! Any bytes as keys and values of messages. `make fuzz TARGETS=topics`
#![no_main]

use libfuzzer_sys::fuzz_target;
use penstock_core::debezium_log::message::{Options, Zoned};
use penstock_core::debezium_log::state::State;
use penstock_core::debezium_log::{Message, Translator};
use penstock_core::frame::Framer;
use penstock_core::framing::{Options as Framing, Skip, Spooling};
use penstock_core::gtid::GtidSet;
use penstock_core::segment_framer::SegmentFramer;
use penstock_core::span::Place;

fuzz_target!(|messages: Vec<(u8, Option<&[u8]>, Option<&[u8]>)>| {
    let options = Options {
        zoned: Zoned::Auto,
        cuts_nanoseconds: false,
        unavailable: String::from("__debezium_unavailable_value"),
        table: None,
        skips: true,
    };
    let mut translator = Translator::new(options, State::default());
    let mut packets = penstock_core::debezium_log::events::Packets::default();
    packets.rotate("topics.000001", 4);
    packets.format_description();
    let count = messages.len() as u64;
    let read = messages.iter().enumerate().map(|(at, (partition, key, value))| Message {
        topic: "t",
        partition: i32::from(partition % 2),
        offset: at as u64,
        timestamp_ms: 0,
        key: *key,
        value: *value,
    });
    packets.bytes.extend(translator.translate(read).0);
    assert!(translator.state().partitions.iter().all(|one| one.next <= count));
    // Whatever the messages are, the log is one that the framer takes, with nothing open at its end.
    let mut framer = Framer::new(Framing {
        offset: 0,
        segment_size: 1 << 20,
        span_size: 1 << 16,
        executed: Some(GtidSet::default()),
        source: Place::default(),
        server_uuid: String::from("u"),
        skip: Skip::default(),
        expected: None,
        spool: Spooling::default(),
    });
    let mut part: &[u8] = &packets.bytes;
    loop {
        framer.feed(part).expect("the log can be read");
        if !framer.more() {
            break;
        }
        part = &[];
    }
    assert_eq!(framer.committed(), framer.offset());
});
