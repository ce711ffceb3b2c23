//! The format, as the relay log and the decoders ask for it.

use std::sync::Arc;

use super::{statement_of, Definition, RowsFramer, RowsScan, BEGIN, DEFINITION, NAME, ROWS, STATEMENT};
use crate::error::{DecodeError, Result};
use crate::framing;
use crate::json_text::quoted;
use crate::mysql::gtid::GtidSet;
use crate::mysql::span::{Place, Tracker};
use crate::outline::Outline;
use crate::records::RecordFile;
use crate::schema::TableSchema;
use crate::segment_file::SegmentFile;
use crate::segment_format::SegmentFormat;
use crate::split::Split;
use crate::window::Direction;

pub struct TypedRows;

fn opened(file: &SegmentFile, base: u64) -> Result<RecordFile> {
    RecordFile::open(file, base, NAME)
}

impl SegmentFormat for TypedRows {
    const NAME: &'static str = "rows";

    type FramerOptions = framing::Options;
    type Framer = RowsFramer;
    type Place = Place;
    type Transactions = GtidSet;
    type Scan = RowsScan;

    fn framer(options: framing::Options) -> RowsFramer {
        RowsFramer::new(options)
    }

    fn index_entry(
        file: &SegmentFile,
        base: u64,
        start: u64,
        end: u64,
        _open: &[u64],
        place: Place,
    ) -> Result<String> {
        let mut tracker = Tracker::new(start, GtidSet::default(), place);
        let taken = opened(file, base)?.each((start, end), &mut |record| tracker.record(record));
        taken.map_err(|error| error.in_file(file.name()))?;
        Ok(tracker.entry(""))
    }

    fn digest(file: &SegmentFile, base: u64, start: u64, end: u64) -> Result<(u64, u64)> {
        opened(file, base)?.digest(start, end).map_err(|error| error.in_file(file.name()))
    }

    fn take_back(path: &str, _base: u64, start: u64, _end: u64) -> Result<()> {
        // Its receivers give whole transactions.
        Err(DecodeError::new("rows of this format are never taken back", start).in_file(path))
    }

    fn whole_statement(
        file: &SegmentFile,
        base: u64,
        offset: u64,
        length_max: u64,
    ) -> Result<Option<String>> {
        let mut log = opened(file, base)?;
        let mut read = || {
            let header = log.header(offset - base, u64::MAX)?;
            if header.kind != STATEMENT || header.size > length_max {
                return Ok(None);
            }
            let record = log.record(offset - base, header, Direction::Forward)?;
            let (database, json) = statement_of(&record)?;
            Ok(Some(format!("{{\"database\":{},\"sql\":{}}}", quoted(database), quoted(json))))
        };
        read().map_err(|error: DecodeError| error.in_file(file.name()))
    }

    fn scan(table: Arc<TableSchema>, split: &Split, exclude: Option<GtidSet>) -> Result<RowsScan> {
        RowsScan::new(table, split, exclude)
    }

    fn outline(tables: &[(String, String)], split: &Split) -> Result<Option<Outline>> {
        let mut found = vec![Vec::new(); tables.len()];
        let (mut begin, mut known): (u64, Vec<(u64, usize)>) = (0, Vec::new());
        let base = split.base;
        let walked = opened(&split.file, base)?.each((split.start, split.end), &mut |record| {
            let position = record.offset - base;
            match record.kind {
                BEGIN => {
                    begin = position;
                    known.clear();
                }
                DEFINITION => {
                    let definition = Definition::parse(record)?;
                    known.retain(|(id, _)| *id != definition.id);
                    let is_it = |name: &(String, String)| {
                        (name.0.as_str(), name.1.as_str()) == (definition.database, definition.table)
                    };
                    if let Some(table) = tables.iter().position(is_it) {
                        known.push((definition.id, table));
                        let positions: &mut Vec<u64> = &mut found[table];
                        if positions.last().is_none_or(|last| *last < begin) {
                            positions.push(begin);
                        }
                        positions.push(position);
                    }
                }
                ROWS => {
                    let id = super::id_of(record.body, record.offset)?;
                    if let Some((_, table)) = known.iter().find(|(known, _)| *known == id) {
                        found[*table].push(position);
                    }
                }
                _ => {}
            }
            Ok(())
        });
        walked.map_err(|error| error.in_file(split.file.name()))?;
        Ok(Outline::new(base, found, Vec::new()))
    }

    fn described_table(
        file: &SegmentFile,
        base: u64,
        start: u64,
        end: u64,
        known: &TableSchema,
    ) -> Result<Option<String>> {
        let mut found = None;
        let walked = opened(file, base)?.each((start, end), &mut |record| {
            if record.kind == DEFINITION && found.is_none() {
                let definition = Definition::parse(record)?;
                if definition.is_of(known) {
                    found = Some(definition.described(known)?);
                }
            }
            Ok(())
        });
        walked.map_err(|error| error.in_file(file.name()))?;
        Ok(found)
    }
}
