use arrow_array::cast::AsArray;
use arrow_array::types::Int32Type;
use proptest::prelude::*;

use super::packets::PACKET_MAX;
use super::*;

const SCHEMA: &str = r#"{"database":"d","table":"t","key":["a"],"columns":[
    {"name":"a","type":"int","nullable":false},
    {"name":"b","type":"varchar","length":20,"charset":"utf8mb4"},
    {"name":"c","type":"datetime","fsp":6},
    {"name":"e","type":"time","fsp":0},
    {"name":"f","type":"decimal","precision":10,"scale":2},
    {"name":"g","type":"bit","length":9},
    {"name":"h","type":"json"}]}"#;

fn decoder(batch_rows: usize) -> ResultSetDecoder {
    let table = Arc::new(TableSchema::from_json(SCHEMA).unwrap());
    ResultSetDecoder::new(table, TypeOptions::default(), batch_rows, 1 << 20).unwrap()
}

/// Payloads as packets, numbered from 1.
fn packets(payloads: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut number = 0_u8;
    for payload in payloads {
        let mut rest = payload.as_slice();
        loop {
            let (part, left) = rest.split_at(rest.len().min(PACKET_MAX));
            number = number.wrapping_add(1);
            bytes.extend_from_slice(&(part.len() as u32).to_le_bytes()[..3]);
            bytes.push(number);
            bytes.extend_from_slice(part);
            rest = left;
            if part.len() < PACKET_MAX {
                break;
            }
        }
    }
    bytes
}

fn definition(name: u8, code: u8, collation: u16, decimals: u8) -> Vec<u8> {
    let mut payload = vec![3, b'd', b'e', b'f', 0, 0, 0, 1, name, 0, 12];
    payload.extend_from_slice(&collation.to_le_bytes());
    payload.extend_from_slice(&[0, 0, 0, 0, code, 0, 0, decimals, 0, 0]);
    payload
}

fn head() -> Vec<Vec<u8>> {
    let mut payloads = vec![vec![7]];
    let types =
        [(3, 63, 0), (253, 255, 0), (12, 63, 6), (11, 63, 0), (246, 63, 2), (16, 63, 0), (245, 63, 0)];
    for (name, (code, collation, decimals)) in b"abcefgh".iter().zip(types) {
        payloads.push(definition(*name, code, collation, decimals));
    }
    payloads.push(vec![EOF, 0, 0, 2, 0]);
    payloads
}

fn row(number: i32, text: &[u8]) -> Vec<u8> {
    let mut payload = vec![0, 0, 0];
    payload.extend_from_slice(&number.to_le_bytes());
    match text.len() {
        length @ 0..=250 => payload.push(length as u8),
        length => {
            payload.push(0xfe);
            payload.extend_from_slice(&(length as u64).to_le_bytes());
        }
    }
    payload.extend_from_slice(text);
    payload.extend_from_slice(&[7, 0xe8, 7, 2, 29, 1, 2, 3]);
    payload.extend_from_slice(&[8, 1, 2, 0, 0, 0, 3, 4, 5]);
    payload.extend_from_slice(b"\x05-1.50\x02\x01\xff\x02{}");
    payload
}

fn answer(rows: usize) -> Vec<u8> {
    let mut payloads = head();
    payloads.extend((0..rows).map(|number| row(number as i32, b"text")));
    payloads.push(vec![EOF, 0, 0, 2, 0]);
    packets(&payloads)
}

fn run(decoder: &mut ResultSetDecoder, pieces: &[&[u8]]) -> Result<Vec<RecordBatch>> {
    let mut batches = Vec::new();
    for piece in pieces {
        batches.extend(decoder.feed(piece)?);
    }
    batches.extend(decoder.finish()?);
    Ok(batches)
}

#[test]
fn bytes_cut_anywhere_give_the_same_rows() {
    let bytes = answer(300);
    let whole = run(&mut decoder(128), &[&bytes]).unwrap();
    assert_eq!(whole.iter().map(RecordBatch::num_rows).collect::<Vec<_>>(), [128, 128, 44]);
    for size in [1, 2, 3, 5, 64, 1000] {
        let pieces: Vec<&[u8]> = bytes.chunks(size).collect();
        assert_eq!(run(&mut decoder(128), &pieces).unwrap(), whole, "pieces of {size}");
    }
}

#[test]
fn a_row_goes_on_over_packets_of_the_greatest_length() {
    for length in [PACKET_MAX - 52, PACKET_MAX, 2 * PACKET_MAX + 7] {
        let mut payloads = head();
        payloads.push(row(1, &vec![b'x'; length]));
        // One row whose payload is exactly one full packet is followed by an empty one.
        let exact = PACKET_MAX - row(2, &vec![b'x'; 300]).len() + 300;
        payloads.push(row(2, &vec![b'x'; exact]));
        payloads.push(vec![EOF, 0, 0, 2, 0]);
        let bytes = packets(&payloads);
        let batches = run(&mut decoder(10), &bytes.chunks(1 << 20).collect::<Vec<_>>()).unwrap();
        let rows: usize = batches.iter().map(RecordBatch::num_rows).sum();
        assert_eq!(rows, 2);
        assert_eq!(batches[0].column(1).as_string::<i32>().value(0).len(), length);
    }
}

#[test]
fn an_announced_length_is_waited_for_not_allocated() {
    let mut decoder = decoder(10);
    decoder.feed(&packets(&head())).unwrap();
    assert!(decoder.feed(&[0xfe, 0xff, 0xff, 10, 0, 0, 0]).unwrap().is_empty());
    assert!(decoder.packets.partial.capacity() < 1024);
    assert!(!decoder.done());
    assert!(decoder.finish().is_err());
}

#[test]
fn an_error_packet_is_the_servers_error_wherever_it_stands() {
    let error = b"\xff\x6a\x04#42S02no such table".to_vec();
    let mut with_head = head();
    with_head.push(row(1, b""));
    with_head.push(error.clone());
    for payloads in [vec![error], with_head] {
        let found = run(&mut decoder(10), &[&packets(&payloads)]).unwrap_err();
        let expected =
            ResultSetError::Server { code: 1130, sqlstate: "42S02".into(), message: "no such table".into() };
        assert_eq!(found, expected);
    }
}

#[test]
fn columns_that_do_not_fit_are_a_mismatch_of_the_table() {
    for (index, other) in [
        (1, definition(b'a', 8, 63, 0)),
        (2, definition(b'b', 253, 8, 0)),
        (3, definition(b'c', 12, 63, 3)),
        (5, definition(b'f', 246, 63, 4)),
        (6, definition(b'g', 253, 63, 0)),
        (2, definition(b'x', 253, 255, 0)),
    ] {
        let mut payloads = head();
        payloads[index] = other;
        let mut decoder = decoder(10);
        let Err(ResultSetError::Decode(error)) = decoder.feed(&packets(&payloads)) else { panic!("{index}") };
        assert_eq!(error.table(), Some("d.t"));
        assert!(!decoder.columns_fit());
    }
}

#[test]
fn packets_out_of_step_are_an_error() {
    let mut bytes = answer(3);
    bytes[3] = 9;
    assert!(decoder(10).feed(&bytes).is_err());
    let mut decoder = decoder(10);
    decoder.feed(&answer(3)).unwrap();
    assert!(decoder.done());
    assert!(decoder.feed(&packets(&[vec![0]])).is_err());
}

proptest! {
    #[test]
    fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        let _ = decoder(10).feed(&bytes);
    }

    #[test]
    fn arbitrary_rows_never_panic(
        rows in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..80), 1..5),
    ) {
        let mut payloads = head();
        payloads.extend(rows.into_iter().map(|mut row| { row.insert(0, 0); row }));
        let _ = run(&mut decoder(10), &[&packets(&payloads)]);
    }

    #[test]
    fn an_answer_with_damage_never_panics_nor_invents_rows(
        at in 0_usize..1000, byte in any::<u8>(), cut in 0_usize..2000,
    ) {
        let mut bytes = answer(20);
        let at = at % bytes.len();
        bytes[at] = byte;
        bytes.truncate(cut.max(1).min(bytes.len()));
        if let Ok(batches) = run(&mut decoder(1000), &[&bytes]) {
            let rows: usize = batches.iter().map(RecordBatch::num_rows).sum();
            prop_assert!(rows <= 20);
            if let Some(batch) = batches.first() {
                prop_assert!(batch.column(0).as_primitive::<Int32Type>().len() == rows);
            }
        }
    }
}
