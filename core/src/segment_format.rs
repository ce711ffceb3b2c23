//! What a source brings to the core: how the segments of its relay log are written, indexed and decoded.
//!
//! A relay log keeps the segments of any source; `segment_format` in its `relay.json` names what they
//! hold. Each format is a type that implements [`SegmentFormat`]. MySQL's binary log is the first
//! (`mysql_binlog.rs`). Whatever is called for each event or row lies inside an implementation, so the
//! seam costs nothing.

use std::sync::Arc;

use crate::batches::Batches;
use crate::error::Result;
use crate::outline::Outline;
use crate::output::Options;
use crate::reduce::KeySet;
use crate::schema::TableSchema;
use crate::seen::SharedKeys;
use crate::segment_framer::SegmentFramer;
use crate::split::Split;

/// Parts of a segment are given as the path and base of its file, and the offsets `(start, end]` of
/// events that end there.
pub trait SegmentFormat {
    /// As `relay.json` names it.
    const NAME: &'static str;

    /// What a framer has to know before the first byte.
    type FramerOptions;
    type Framer: SegmentFramer;
    /// A place in the source's own log.
    type Place;
    /// A set of the source's transactions.
    type Transactions;

    // The receiver.

    fn framer(options: Self::FramerOptions) -> Self::Framer;

    // The relay log's writer and reader.

    /// The index entry (JSON) of a part of a segment, from its events. `open` are the offsets of the
    /// events to read first when `start` lies inside a transaction; the source stood at `place` at
    /// `start`.
    fn index_entry(
        path: &str,
        base: u64,
        start: u64,
        end: u64,
        open: &[u64],
        place: Self::Place,
    ) -> Result<String>;

    /// Length and digest of a part, to compare with what the source sends again. Fails where it is
    /// damaged.
    fn digest(path: &str, base: u64, start: u64, end: u64) -> Result<(u64, u64)>;

    /// Takes the rows of a part out of the segment, before anybody has read them (`Piece::TakenBack`).
    fn take_back(path: &str, base: u64, start: u64, end: u64) -> Result<()>;

    /// The statement of the event at `offset` in full, as JSON. None: it is longer than `length_max`
    /// bytes, or the event holds no statement.
    fn whole_statement(path: &str, base: u64, offset: u64, length_max: u64) -> Result<Option<String>>;

    // Decoders.

    /// The rows of a table in a split, without those of the transactions in `exclude`. Layout `latest`
    /// gives only keys that are not in `seen`, and adds what it meets to it.
    fn decoder(
        table: Arc<TableSchema>,
        split: &Split,
        exclude: Option<Self::Transactions>,
        options: &Options,
        seen: SharedKeys,
    ) -> Result<Box<dyn Batches + Send>>;

    /// Adds the keys that occur in a split.
    fn add_keys(keys: &mut KeySet, split: &Split, exclude: Option<Self::Transactions>) -> Result<()>;

    /// Where the events of each table (database and name) lie in a split. None: there are too many of
    /// them.
    fn outline(tables: &[(String, String)], split: &Split) -> Result<Option<Outline>>;

    /// The definition (JSON) that the log itself gives of `known`'s table in a part. None: it gives none.
    fn described_table(
        path: &str,
        base: u64,
        start: u64,
        end: u64,
        known: &TableSchema,
    ) -> Result<Option<String>>;
}
