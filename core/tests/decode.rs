//! Decoding damaged logs: rows or a `DecodeError`, never a panic, never endless. `data/changes.binlog` is
//! from a real server (`data/generate.py`).

use std::sync::Arc;

use penstock_core::batches::Batches;
use penstock_core::changelog::Changelog;
use penstock_core::column::{Layout, TypeOptions, ZeroDates};
use penstock_core::error::Result;
use penstock_core::key::KeyReader;
use penstock_core::latest::{for_each_key, Latest};
use penstock_core::mysql::event::{Event, Events, FormatDescription};
use penstock_core::mysql::log_file::LogFile;
use penstock_core::mysql::outline::outline_over;
use penstock_core::mysql::scan::RangeScan;
use penstock_core::output::{Moved, Options};
use penstock_core::row_log::RowScan as _;
use penstock_core::schema::TableSchema;
use penstock_core::split::Split;
use penstock_core::table_map::TableMap;
use proptest::prelude::*;

const LOG: &[u8] = include_bytes!("data/changes.binlog");
const SCHEMA: &str = include_str!("data/changes.json");

fn options(layout: Layout) -> Options {
    Options {
        layout,
        columns: None,
        before_images: true,
        foreign_key_checks: false,
        identity_images: false,
        bucket: None,
        partial_images: false,
        moved: Moved::Refused,
        defaults: None,
        base: None,
        types: TypeOptions { zero_dates: ZeroDates::Text, ..TypeOptions::default() },
        batch_rows: 3,
        batch_bytes: 1 << 20,
    }
}

fn scan(log: &[u8]) -> Result<RangeScan> {
    let table = Arc::new(TableSchema::from_json(SCHEMA)?);
    RangeScan::over(LogFile::of_bytes(log.to_vec(), 0)?, table, &whole(log), None)
}

fn whole(log: &[u8]) -> Split {
    Split { file: "".into(), base: 0, start: 0, end: log.len() as u64, preamble: Vec::new(), positions: None }
}

/// Rows of layout `changelog` where the table's events are found beforehand.
fn decode_outlined(log: &[u8]) -> Result<usize> {
    let table = Arc::new(TableSchema::from_json(SCHEMA)?);
    let names = [(table.database.clone(), table.table.clone())];
    let file = || LogFile::of_bytes(log.to_vec(), 0);
    let Some(outline) = outline_over(file()?, &names, &whole(log))? else { return Ok(0) };
    let split = Split { positions: Some(outline.positions(0, 0, log.len() as u64)), ..whole(log) };
    let mut decoder =
        Changelog::new(RangeScan::over(file()?, table, &split, None)?, &options(Layout::Changelog))?;
    let mut rows = 0;
    while let Some(batch) = decoder.next_batch()? {
        rows += batch.num_rows();
    }
    Ok(rows)
}

/// Rows of layout `changelog`, rows of layout `latest`, keys.
fn decode(log: &[u8]) -> (Result<usize>, Result<usize>, Result<usize>) {
    let changelog = scan(log).and_then(|scan| {
        let mut decoder = Changelog::new(scan, &options(Layout::Changelog))?;
        let mut rows = 0;
        while let Some(batch) = decoder.next_batch()? {
            rows += batch.num_rows();
        }
        Ok(rows)
    });
    let latest = scan(log).and_then(|scan| {
        let mut decoder = Latest::new(scan, &options(Layout::Latest), Default::default())?;
        let mut rows = 0;
        while let Some(batch) = decoder.next_batch()? {
            rows += batch.num_rows();
        }
        Ok(rows)
    });
    let keys = scan(log).and_then(|mut scan| {
        let mut reader = KeyReader::new(
            scan.table(),
            TypeOptions { zero_dates: ZeroDates::Text, ..TypeOptions::default() },
        )?;
        let mut count = 0;
        for_each_key(&mut scan, &mut reader, |_| count += 1)?;
        Ok(count)
    });
    (changelog, latest, keys)
}

#[test]
fn the_whole_log_has_its_rows() {
    let (changelog, latest, keys) = decode(LOG);
    assert_eq!((changelog.unwrap(), latest.unwrap(), keys.unwrap()), (11, 5, 11));
    assert_eq!(decode_outlined(LOG).unwrap(), 11);
}

#[test]
fn a_truncated_log_never_decodes_unless_it_ends_with_an_event() {
    let format = FormatDescription::parse(&Event::parse(&LOG[4..], 4, Default::default()).unwrap()).unwrap();
    let ends: Vec<u64> = Events::new(&LOG[4..], 4, format.checksum)
        .map(|event| event.map(|event| event.offset + event.raw.len() as u64).unwrap())
        .collect();
    for length in (0..LOG.len()).filter(|length| !ends.contains(&(*length as u64))) {
        assert!(decode(&LOG[..length]).0.is_err() || length == 4, "{length}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn damaged_logs_are_rows_or_errors(
        damage in proptest::collection::vec((100..LOG.len(), any::<u8>()), 1..6),
        cut in 100..=LOG.len(),
    ) {
        let mut log = LOG.to_vec();
        for (position, byte) in damage {
            log[position] = byte;
        }
        log.truncate(cut);
        let _ = decode(&log);
        let _ = decode_outlined(&log);
    }

    #[test]
    fn any_bytes_behind_a_format_description_are_rows_or_errors(
        bytes in proptest::collection::vec(any::<u8>(), 0..200),
        kind in 15..45_u8,
    ) {
        let head = 4 + u32::from_le_bytes(LOG[13..17].try_into().unwrap()) as usize;
        let mut log = LOG[..head].to_vec();
        log.extend([1, 0, 0, 0, kind, 1, 0, 0, 0]);
        log.extend((19 + bytes.len() as u32).to_le_bytes());
        log.extend([0; 6]);
        log.extend(&bytes);
        let _ = decode(&log);
        let _ = decode_outlined(&log);
    }

    #[test]
    fn any_bytes_are_a_table_map_or_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let description = Event::parse(&LOG[4..], 4, Default::default()).unwrap();
        let format = FormatDescription::parse(&description).unwrap();
        let mut raw = vec![1, 0, 0, 0, 19, 1, 0, 0, 0];
        raw.extend((19 + bytes.len() as u32).to_le_bytes());
        raw.extend([0; 6]);
        raw.extend(&bytes);
        let event = Event::parse(&raw, 0, Default::default()).unwrap();
        let _ = TableMap::parse(&event, &format);
    }
}
