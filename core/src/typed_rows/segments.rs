//! The format, as the relay log and the decoders ask for it.

use std::sync::Arc;

use std::marker::PhantomData;

use super::family::{Family, Own};
use super::framer::Options;
use super::tracker::Tracker;
use super::{
    definition, statement_of, Definition, Named, RowsFramer, RowsOrder, RowsScan, BEGIN, DEFINITION, MESSAGE,
    ROWS, STATEMENT, USE,
};
use crate::error::{DecodeError, Result};
use crate::json_text::quoted;
use crate::outline::Outline;
use crate::records::RecordFile;
use crate::row_log::Transactions;
use crate::schema::TableSchema;
use crate::segment_file::SegmentFile;
use crate::segment_format::SegmentFormat;
use crate::split::Split;
use crate::transaction::{Part, Selection};
use crate::window::Direction;

/// A format of the family.
pub struct Records<F>(PhantomData<F>);

pub type TypedRows = Records<Own>;

fn opened<F: Family>(file: &SegmentFile, base: u64) -> Result<RecordFile> {
    RecordFile::open(file, base, F::NAME)
}

impl<F: Family> SegmentFormat for Records<F> {
    const NAME: &'static str = F::NAME;

    type Framer = RowsFramer<F>;
    type Place = F::Place;
    type TransactionSet = F::Set;
    type Scan = RowsScan<F>;

    fn framer(options: Options<F>) -> RowsFramer<F> {
        RowsFramer::new(options)
    }

    fn index_entry(
        file: &SegmentFile,
        base: u64,
        start: u64,
        end: u64,
        _open: &[u64],
        place: F::Place,
    ) -> Result<String> {
        let mut tracker = Tracker::<F>::new(start, F::Set::default(), place);
        let taken = opened::<F>(file, base)?.each((start, end), &mut |record| tracker.record(record));
        taken.map_err(|error| error.in_file(file.name()))?;
        Ok(tracker.log.entry(""))
    }

    fn digest(file: &SegmentFile, base: u64, start: u64, end: u64) -> Result<(u64, u64)> {
        opened::<F>(file, base)?.digest(start, end).map_err(|error| error.in_file(file.name()))
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
        let mut log = opened::<F>(file, base)?;
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

    fn scan(table: Arc<TableSchema>, split: &Split, exclude: Option<F::Set>) -> Result<RowsScan<F>> {
        RowsScan::new(table, split, exclude)
    }

    fn in_order(parts: Vec<Part>, selection: Selection) -> Box<dyn Transactions> {
        Box::new(RowsOrder::<F>::new(parts, selection))
    }

    fn outline(tables: &[(String, String)], split: &Split) -> Result<Option<Outline>> {
        let mut found = vec![Vec::new(); tables.len()];
        let (mut begin, mut known): (u64, Vec<(u64, usize)>) = (0, Vec::new());
        let base = split.base;
        let walked = opened::<F>(&split.file, base)?.each((split.start, split.end), &mut |record| {
            let position = record.offset - base;
            match record.kind {
                BEGIN => {
                    begin = position;
                    known.clear();
                }
                DEFINITION | USE => {
                    let named = Named::parse(record)?;
                    known.retain(|(id, _)| *id != named.id);
                    let is_it = |name: &(String, String)| {
                        (name.0.as_str(), name.1.as_str()) == (named.database, named.table)
                    };
                    if let Some(table) = tables.iter().position(is_it) {
                        known.push((named.id, table));
                        let positions: &mut Vec<u64> = &mut found[table];
                        if positions.last().is_none_or(|last| *last < begin) {
                            positions.push(begin);
                        }
                        positions.push(position);
                    }
                }
                ROWS | MESSAGE => {
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
        let mut log = opened::<F>(file, base)?;
        let mut at = None;
        let mut find = || {
            log.each((start, end), &mut |record| {
                if matches!(record.kind, DEFINITION | USE) && at.is_none() {
                    let named = Named::parse(record)?;
                    at = named.is_of(known).then(|| named.at.unwrap_or(record.offset - base));
                }
                Ok(())
            })?;
            let Some(at) = at else { return Ok(None) };
            let (body, offset) = definition::read(&mut log, at)?;
            Definition::parse(&body, offset)?.described(known).map(Some)
        };
        find().map_err(|error: DecodeError| error.in_file(file.name()))
    }
}
