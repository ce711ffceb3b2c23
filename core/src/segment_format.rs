//! What a source adds to the core: how the segments of its relay log are written, indexed and decoded.
//!
//! A relay log can have the segments of any source. `segment_format` in its `relay.json` names their format.
//! Each format is a type that implements [`SegmentFormat`]. MySQL's binary log is the first one
//! (`mysql/binlog.rs`). Functions that are called for each event or row are inside an implementation.

use std::sync::Arc;

use crate::batches::Batches;
use crate::changelog::Changelog;
use crate::column::Layout;
use crate::error::{DecodeError, Result};
use crate::framing::Options;
use crate::latest::Latest;
use crate::outline::Outline;
use crate::output;
use crate::place::SourcePlace;
use crate::reduce::KeySet;
use crate::row_log::{RowScan, Transactions};
use crate::schema::TableSchema;
use crate::seen_keys::SharedKeys;
use crate::segment_file::SegmentFile;
use crate::segment_framer::SegmentFramer;
use crate::split::Split;
use crate::transaction::{Part, Selection};
use crate::transaction_set::TransactionSet;

/// A part of a segment is given by its file, the file's base, and the offsets `(start, end]`: it has the
/// events that end there.
pub trait SegmentFormat {
    /// The format's name in `relay.json`.
    const NAME: &'static str;

    type Framer: SegmentFramer;
    /// A place in the source's own log.
    type Place: SourcePlace;
    /// A set of the source's transactions.
    type TransactionSet: TransactionSet;
    /// The rows of one table.
    type Scan: RowScan + 'static;

    // The receiver.

    fn framer(options: Options<Self::TransactionSet, Self::Place>) -> Self::Framer;

    // The relay log's writer and reader.

    /// The index entry (JSON) of a part of a segment, computed from its events. If `start` is inside a
    /// transaction, `open` has the offsets of the events to read first. `place` is the source's position at
    /// `start`.
    fn index_entry(
        file: &SegmentFile,
        base: u64,
        start: u64,
        end: u64,
        open: &[u64],
        place: Self::Place,
    ) -> Result<String>;

    /// Length and digest of a part, to compare with what the source sends again. Fails if the part is
    /// damaged.
    fn digest(file: &SegmentFile, base: u64, start: u64, end: u64) -> Result<(u64, u64)>;

    /// Removes the rows of a part from the segment, before anybody has read them (`Piece::TakenBack`).
    fn take_back(path: &str, base: u64, start: u64, end: u64) -> Result<()>;

    /// The whole statement of the event at `offset`, as JSON. None: it is longer than `length_max` bytes, or
    /// the event has no statement.
    fn whole_statement(file: &SegmentFile, base: u64, offset: u64, length_max: u64)
        -> Result<Option<String>>;

    // Decoders.

    /// The rows of a table in a split, without those of the transactions in `exclude`.
    fn scan(
        table: Arc<TableSchema>,
        split: &Split,
        exclude: Option<Self::TransactionSet>,
    ) -> Result<Self::Scan>;

    /// Decodes the rows of a scan, without those of `exclude` (a text of [`Self::TransactionSet`]). Layout
    /// `latest` returns only rows whose keys are not in `seen`, and adds all keys to it.
    fn decoder(
        table: Arc<TableSchema>,
        split: &Split,
        exclude: Option<&str>,
        options: &output::Options,
        seen: SharedKeys,
    ) -> Result<Box<dyn Batches + Send>> {
        let exclude = exclude.map(str::parse).transpose()?;
        let scan = Self::scan(table, split, exclude)?;
        Ok(match options.layout {
            Layout::Changelog => Box::new(Changelog::new(scan, options)?),
            Layout::Latest => Box::new(Latest::new(scan, options, seen)?),
            Layout::Rows => return Err(DecodeError::new("layout \"rows\" is for result sets", split.start)),
        })
    }

    /// Adds the keys that occur in a split.
    fn add_keys(keys: &mut KeySet, split: &Split, exclude: Option<&str>) -> Result<()> {
        let exclude = exclude.map(str::parse).transpose()?;
        keys.add(Self::scan(keys.table().clone(), split, exclude)?)
    }

    // Encoders.

    /// The transactions of some parts of logs.
    fn in_order(parts: Vec<Part>, selection: Selection) -> Box<dyn Transactions>;

    // Planners.

    /// The positions of each table's events in a split. Tables are given as database and name. None: there
    /// are too many positions.
    fn outline(tables: &[(String, String)], split: &Split) -> Result<Option<Outline>>;

    /// The definition (JSON) of `known`'s table that the log itself contains in a part. None: it has none.
    fn described_table(
        file: &SegmentFile,
        base: u64,
        start: u64,
        end: u64,
        known: &TableSchema,
    ) -> Result<Option<String>>;
}
