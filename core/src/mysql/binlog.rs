//! The segment format of MySQL and MariaDB: each segment is a valid binlog file.

use std::sync::Arc;

use crate::error::Result;
use crate::mysql::described;
use crate::mysql::frame::{Framer, Options};
use crate::mysql::gtid::GtidSet;
use crate::mysql::log_order::LogOrder;
use crate::mysql::outline::outline;
use crate::mysql::place::Place;
use crate::mysql::rescan;
use crate::mysql::scan::RangeScan;
use crate::outline::Outline;
use crate::row_log::Transactions;
use crate::schema::TableSchema;
use crate::segment_file::SegmentFile;
use crate::segment_format::SegmentFormat;
use crate::split::Split;
use crate::transaction::{Part, Selection};

pub struct MySqlBinlog;

impl SegmentFormat for MySqlBinlog {
    const NAME: &'static str = "mysql-binlog";

    type Framer = Framer;
    type Place = Place;
    type TransactionSet = GtidSet;
    type Scan = RangeScan;

    fn framer(options: Options) -> Framer {
        Framer::new(options)
    }

    fn index_entry(
        file: &SegmentFile,
        base: u64,
        start: u64,
        end: u64,
        open: &[u64],
        place: Place,
    ) -> Result<String> {
        rescan::index_entry(file, base, start, end, open, place)
    }

    fn digest(file: &SegmentFile, base: u64, start: u64, end: u64) -> Result<(u64, u64)> {
        rescan::digest(file, base, start, end)
    }

    fn take_back(path: &str, base: u64, start: u64, end: u64) -> Result<()> {
        rescan::take_back(path, base, start, end)
    }

    fn whole_statement(
        file: &SegmentFile,
        base: u64,
        offset: u64,
        length_max: u64,
    ) -> Result<Option<String>> {
        rescan::whole_statement(file, base, offset, length_max)
    }

    fn scan(table: Arc<TableSchema>, split: &Split, exclude: Option<GtidSet>) -> Result<RangeScan> {
        RangeScan::new(table, split, exclude)
    }

    fn in_order(parts: Vec<Part>, selection: Selection) -> Box<dyn Transactions> {
        Box::new(LogOrder::new(parts, selection))
    }

    fn outline(tables: &[(String, String)], split: &Split) -> Result<Option<Outline>> {
        outline(tables, split)
    }

    fn described_table(
        file: &SegmentFile,
        base: u64,
        start: u64,
        end: u64,
        known: &TableSchema,
    ) -> Result<Option<String>> {
        described::first_described(file, base, start, end, known)
    }
}
