//! The changes that an inspector finds, as lines and counts, whatever the format of the file.

use std::collections::{HashMap, VecDeque};

use super::known_table::KnownTable;
use super::lines::{end_of_line, line};
use super::summary::Summary;
use super::timestamp::iso;
use super::value::{write_json_string, JsonRow};
use crate::cursor::Cursor;
use crate::error::Result;
use crate::json::Style;
use crate::rows::{skip_image, walk_image, Present, RowsEvent, RowsKind};
use crate::schema::TableSchema;
use crate::table_map::TableMap;

/// Table maps that are remembered. Servers never have so many tables open, so more of them are a sign of
/// damage.
const MAPS_MAX: usize = 100_000;

pub struct Options {
    /// Offset of the file's first byte: 0, or the base of a relay-log segment.
    pub base: u64,
    /// Position in the file where reading ends. None: at the file's end.
    pub end: Option<u64>,
    /// Column names (and signedness, labels) for tables whose maps do not have them.
    pub schemas: Vec<TableSchema>,
    /// Only these tables (`database.table`). Empty: all.
    pub tables: Vec<String>,
    /// Only count rows, and make no lines.
    pub count_only: bool,
}

/// Reads the files of one format.
pub trait Reader: Send + Sync {
    /// Reads what comes next, and gives it to `changes`. Returns false at the end.
    fn step(&mut self, changes: &mut Changes) -> Result<bool>;

    /// The transactions that have ended, as text.
    fn executed(&self, summary: &Summary) -> String;
}

/// What a format calls a transaction's id in lines, and the set of them in summaries.
#[derive(Clone, Copy)]
pub struct Words {
    pub transaction: &'static str,
    pub transactions: &'static str,
}

pub struct Changes {
    pub file_name: String,
    pub options: Options,
    pub words: Words,
    pub tables: HashMap<u64, KnownTable>,
    pub lines: VecDeque<String>,
    pub summary: Summary,
    pub json_style: Style,
    /// The id of the transaction that is being read.
    pub transaction: Option<String>,
    /// What is read is from something compressed, whose place counts.
    pub packed: bool,
}

impl Changes {
    pub fn new(path: &str, options: Options, words: Words) -> Self {
        Self {
            file_name: path.rsplit('/').next().unwrap_or(path).to_owned(),
            options,
            words,
            tables: HashMap::new(),
            lines: VecDeque::new(),
            summary: Summary::default(),
            json_style: Style::default(),
            transaction: None,
            packed: false,
        }
    }

    /// How the images of the rows behind it are written that name the map's id.
    pub fn define(&mut self, map: TableMap) {
        if self.tables.len() >= MAPS_MAX {
            self.tables.clear();
        }
        let table = KnownTable::new(map, &self.options.tables);
        self.tables.insert(table.map.table_id, table);
    }

    /// Takes rows of a table. `place`: the offset of what has them, and the commit time of their transaction.
    pub fn take_rows(
        &mut self,
        place: (u64, u64),
        rows: &mut RowsEvent<'_>,
        table: KnownTable,
    ) -> Result<()> {
        let result = rows.check(&table.map).and_then(|()| self.take_images(place, rows, &table));
        self.tables.insert(rows.table_id, table);
        result
    }

    /// `offset`, `commit_us`: of what has the rows, and of their transaction.
    fn take_images(
        &mut self,
        (offset, commit_us): (u64, u64),
        rows: &mut RowsEvent<'_>,
        table: &KnownTable,
    ) -> Result<()> {
        let (map, lines) = (&table.map, table.wanted && !self.options.count_only);
        if map.undefined_column().is_some() {
            self.summary.note(crate::old_temporal::NOT_SHOWN);
            return Ok(());
        }
        let tail = lines.then(|| self.tail(offset, commit_us));
        while !rows.images.is_empty() {
            let start = rows.images;
            let alone = self.packed || rows.record.is_some();
            let sequence = self.options.base + if alone { offset } else { start.offset() };
            let (mut before, mut after, mut unknown) = (None, None, Vec::new());
            if rows.kind != RowsKind::Insert {
                before = self.image(&mut rows.images, table, rows.present, lines)?;
            }
            if rows.kind == RowsKind::Update {
                let mut image = rows.images;
                (after, unknown) = self.image_after(rows, start, &mut image, table, lines)?;
                rows.images = image;
            } else if rows.kind == RowsKind::Insert {
                after = self.image(&mut rows.images, table, rows.present, lines)?;
            }
            if rows.images.position() == start.position() {
                return Err(start.fail(format!("a row event of {} with rows of no length", map.name())));
            }
            if table.wanted {
                self.summary.count_row(rows.kind, &table.name);
            }
            if let Some(tail) = &tail {
                if !unknown.is_empty() {
                    self.summary.note(ONLY_CHANGES);
                }
                let end = end_of_line(sequence, table, &unknown);
                self.lines.push_back(line(&table.name, rows.kind, before, after, tail, &end));
            }
        }
        Ok(())
    }

    fn image(
        &self,
        images: &mut Cursor<'_>,
        table: &KnownTable,
        present: Present<'_>,
        wanted: bool,
    ) -> Result<Option<Vec<u8>>> {
        if !wanted {
            skip_image(images, &table.map, present)?;
            return Ok(None);
        }
        let mut row = JsonRow::new(&table.map, &table.names, self.json_style);
        walk_image(images, &table.map, present, &mut row)?;
        Ok(Some(row.finish()))
    }

    /// The image after an update, which may have changes of the JSON documents before it.
    fn image_after<'a>(
        &self,
        rows: &RowsEvent<'a>,
        before: Cursor<'a>,
        image: &mut Cursor<'a>,
        table: &KnownTable,
        wanted: bool,
    ) -> Result<(Option<Vec<u8>>, Vec<usize>)> {
        if !wanted {
            rows.skip_after(image, &table.map)?;
            return Ok((None, Vec::new()));
        }
        let mut row = JsonRow::new(&table.map, &table.names, self.json_style);
        rows.walk_after_image(before, image, &table.map, &mut row)?;
        let unknown = std::mem::take(&mut row.unknown);
        Ok((Some(row.finish()), unknown))
    }

    /// The part of a line that is the same for all rows of an event.
    fn tail(&self, offset: u64, commit_us: u64) -> Vec<u8> {
        let mut tail = b",\"ts\":".to_vec();
        write_json_string(&iso(commit_us), &mut tail);
        tail.extend_from_slice(format!(",\"{}\":", self.words.transaction).as_bytes());
        match &self.transaction {
            Some(gtid) => write_json_string(gtid, &mut tail),
            None => tail.extend_from_slice(b"null"),
        }
        tail.extend_from_slice(b",\"file\":");
        write_json_string(&self.file_name, &mut tail);
        tail.extend_from_slice(format!(",\"pos\":{offset},\"sequence\":").as_bytes());
        tail
    }
}

const ONLY_CHANGES: &str = "JSON columns of which the log has only changes (partial JSON without the image \
                            before) are left out of `after`";
