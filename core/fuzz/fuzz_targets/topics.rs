//! Any bytes as keys and values of messages, and any text as a schema in Avro. Messages that begin with
//! `00 00 00 00 01` have that schema, and those with `00 00 00 00 02` one as Debezium's are.
//! `make fuzz TARGETS=topics`
#![no_main]

use libfuzzer_sys::fuzz_target;
use penstock_core::debezium_log::message::{Options, Zoned};
use penstock_core::debezium_log::placeholder::Placeholder;
use penstock_core::debezium_log::state::State;
use penstock_core::debezium_log::{Message, Translator};
use penstock_core::framing::{Options as Framing, Skip, Spooling};
use penstock_core::place::Number;
use penstock_core::segment_framer::SegmentFramer;
use penstock_core::typed_rows::{Own, RowsFramer, SeriesSet};

const SCHEMA: &str = r#"{"type": "record", "name": "Envelope", "namespace": "a", "fields": [
    {"name": "before", "type": ["null", {"type": "record", "name": "Value", "fields": [
        {"name": "id", "type": "long"},
        {"name": "price", "type": ["null", {"type": "bytes", "connect.parameters": {"scale": "2"},
            "connect.name": "org.apache.kafka.connect.data.Decimal"}], "default": null},
        {"name": "tags", "type": {"type": "array", "items": ["null", "string"]}},
        {"name": "ratio", "type": "double"}]}], "default": null},
    {"name": "after", "type": ["null", "Value"], "default": null},
    {"name": "source", "type": {"type": "record", "name": "Source", "fields": [
        {"name": "connector", "type": "string"}, {"name": "db", "type": "string"},
        {"name": "table", "type": "string"}, {"name": "ts_ms", "type": "long"}]}},
    {"name": "op", "type": "string"}]}"#;

type Pair<'a> = (u8, Option<&'a [u8]>, Option<&'a [u8]>);

fuzz_target!(|input: (&str, Vec<Pair<'_>>)| {
    let (schema, messages) = input;
    let options = Options {
        zoned: Zoned::Instant,
        cuts_nanoseconds: false,
        unavailable: Placeholder::new(String::from("__debezium_unavailable_value"), String::from("-")),
        table: None,
        skips: true,
    };
    let mut translator = Translator::new(options, State::default());
    let _ = translator.add_schema(1, schema);
    translator.add_schema(2, SCHEMA).expect("the schema is one");
    let count = messages.len() as u64;
    let read = messages.iter().enumerate().map(|(at, (partition, key, value))| Message {
        topic: "t",
        partition: i32::from(partition % 2),
        offset: at as u64,
        timestamp_ms: 0,
        key: *key,
        value: *value,
    });
    let records = translator.translate(read).0;
    assert!(translator.state().partitions.iter().all(|one| one.next <= count));
    // Whatever the messages are, the log is one that the framer takes, with nothing open at its end.
    let mut framer = RowsFramer::<Own>::new(Framing {
        offset: 0,
        segment_size: 1 << 20,
        span_size: 1 << 16,
        executed: Some(SeriesSet::default()),
        source: Number::default(),
        server_uuid: String::from("u"),
        skip: Skip::default(),
        expected: None,
        spool: Spooling::default(),
    });
    framer.feed(&records).expect("the log can be read");
    assert_eq!(framer.committed(), framer.offset());
});
