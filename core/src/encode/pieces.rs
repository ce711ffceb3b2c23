//! Encodes a log piece by piece, if there are rules for some of its tables (`ruled.rs`).
//!
//! A piece is walked over twice. The first walk collects the rows that the rules need. The caller applies the
//! rules to them, and gives back what they made. The second walk writes the messages of all tables in the
//! order of the log. So the memory is bounded by the bytes of a piece, whatever the transactions are like.
//!
//! **The last row of a transaction.** Some formats mark it. Which one it is depends on the rules, if they
//! leave out rows. Where a transaction is larger than a piece, its pieces are collected twice then: before
//! its first message, to find that row (`scouting`).

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, VecDeque};

use arrow_array::RecordBatch;

use super::columns::Table;
use super::format::{check_images, Change, EventFacts, Format};
use super::image::Row;
use super::made::{left, Images, Made};
use super::messages::Messages;
use super::routing::{self, Hashing};
use super::ruled::{Collector, RuledTable};
use super::tables::{next_row, LastRow, Tables};
use crate::error::{DecodeError, Result};
use crate::output::Change as Collected;
use crate::row_log::{Item, LoggedRows, Transactions};
use crate::rows::RowsEvent;
use crate::rows::RowsKind;
use crate::transaction::{Survey, Transaction, Walked};

#[derive(Default)]
pub struct Pieces {
    stretches: VecDeque<Stretch>,
    large: Option<Large>,
    /// The collected rows, by the table's number.
    rows: BTreeMap<u32, TableRows>,
    images: Images,
    /// The state of the transaction whose rows are being written: whether the format knows of it, the
    /// statement, and the last row.
    pub begun: bool,
    pub query: Option<String>,
    pub last: LastRow,
}

/// The rows of a transaction, or of a part of it.
pub struct Stretch {
    pub survey: Survey,
    pub from: Walked,
    /// Number of the last event that was collected. None: up to the transaction's end.
    pub until: Option<u64>,
    phase: Phase,
    /// The last event of a table without rules, and the events of tables with rules behind it.
    unruled: Option<u64>,
    tail: Vec<RuledEvent>,
}

struct RuledEvent {
    number: u64,
    table: u32,
    kind: RowsKind,
    /// The number of its first image among those of its table, and how many rows it has.
    first: usize,
    rows: u32,
}

/// A transaction of which only a part was collected.
struct Large {
    survey: Survey,
    place: Walked,
    phase: Phase,
}

/// Whether a large transaction is collected to find its last row, and that row so far (None: all rows are
/// left out).
#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    Unscouted,
    Scouting(Option<LastRow>),
    Scouted(Option<LastRow>),
}

/// The rows of one table in a piece.
struct TableRows {
    name: (String, String),
    collector: Collector,
    made: Option<Made>,
    images: usize,
}

/// Database and name of a table, its rows for the rules, and whether needed columns are missing in some.
pub type CollectedRows = ((String, String), RecordBatch, bool);

impl Pieces {
    /// Goes on to the next piece, which has about `bytes` bytes of row events, and returns the rows of tables
    /// with rules. None: the log ends.
    pub fn collect(
        &mut self,
        order: &mut dyn Transactions,
        tables: &mut Tables,
        row: &mut Row,
        format: &dyn Format,
        bytes: usize,
    ) -> Result<Option<Vec<CollectedRows>>> {
        self.stretches.clear();
        self.rows.clear();
        let drops = tables.rules.values().any(|rules| rules.drops);
        let mut room = bytes;
        while room > 0 {
            let (survey, from, mut phase) = match self.large.take() {
                Some(large) => (large.survey, large.place, large.phase),
                None => match order.next_group()? {
                    None => break,
                    Some(survey) if survey.last_rows.is_none() => continue,
                    Some(survey) => (survey, Walked::default(), Phase::Unscouted),
                },
            };
            let mut stretch = Stretch { survey, from, until: None, phase, unruled: None, tail: Vec::new() };
            let left = self.collect_stretch(order, tables, row, &mut stretch, (format, &mut room))?;
            let begins = from == Walked::default() && phase == Phase::Unscouted;
            if begins && left.is_some() && drops && format.needs_last() {
                phase = Phase::Scouting(None);
            }
            (stretch.until, stretch.phase) = (left.map(|place| place.number), phase);
            // Behind the last row of a transaction that was scouted, its messages begin.
            let again = matches!(phase, Phase::Scouting(_)).then(Walked::default);
            if let Some(place) = left.or(again) {
                self.large = Some(Large { survey: stretch.survey.clone(), place, phase });
            }
            // Behind a part of a transaction nothing follows: it needs the table maps of its earlier parts.
            let is_part = self.large.is_some() || from != Walked::default();
            self.stretches.push_back(stretch);
            if is_part {
                break;
            }
        }
        if self.stretches.is_empty() {
            return Ok(None);
        }
        let each = self.rows.values_mut().map(|rows| {
            let incomplete = rows.collector.incomplete;
            rows.images = rows.collector.len();
            Ok((rows.name.clone(), rows.collector.finish()?, incomplete))
        });
        each.collect::<Result<_>>().map(Some)
    }

    /// Collects rows while there is room. Returns the place to go on from.
    fn collect_stretch(
        &mut self,
        order: &mut dyn Transactions,
        tables: &mut Tables,
        row: &mut Row,
        stretch: &mut Stretch,
        (format, room): (&dyn Format, &mut usize),
    ) -> Result<Option<Walked>> {
        let Stretch { survey, from, unruled, tail, .. } = stretch;
        order.walk(survey, *from, &mut |number, item| {
            match item {
                Item::Definition(definition) => tables.note_map(*definition)?,
                Item::Query(_) => {}
                Item::Rows(logged) => {
                    *room = room.saturating_sub(logged.size as usize);
                    match self.collect_rows(logged, tables, row, format)? {
                        Rows::Unwanted => {}
                        Rows::Unruled => {
                            *unruled = Some(number);
                            tail.clear();
                        }
                        Rows::Ruled(event) => tail.push(event),
                    }
                }
            }
            Ok(*room > 0)
        })
    }

    /// What the rules made of the rows of a table that the last `collect` returned. Its column `ROW` has the
    /// number of the collected row that each row comes from, in order. The others are left out.
    pub fn apply(&mut self, name: &(String, String), batch: RecordBatch) -> Result<()> {
        match self.rows.values_mut().find(|rows| rows.name == *name) {
            Some(rows) => {
                rows.made = Some(Made::new(batch, rows.images)?);
                Ok(())
            }
            None => Err(DecodeError::new("rows were transformed that were not collected", 0)),
        }
    }

    /// The next part of the piece whose messages are to be written.
    pub fn next_stretch(&mut self) -> Option<Stretch> {
        while let Some(stretch) = self.stretches.pop_front() {
            let Phase::Scouting(_) = stretch.phase else {
                if stretch.from == Walked::default() {
                    (self.begun, self.query) = (false, None);
                    self.last = self.last_of(&stretch);
                }
                return Some(stretch);
            };
            let found = stretch.last(&self.rows);
            if let Some(Large { phase, .. }) = &mut self.large {
                let last = match *phase {
                    Phase::Scouting(before) => found.or(before),
                    _ => found,
                };
                *phase = match stretch.until {
                    Some(_) => Phase::Scouting(last),
                    None => Phase::Scouted(last),
                };
            }
        }
        None
    }

    /// The last row of a transaction that begins with this stretch.
    fn last_of(&self, stretch: &Stretch) -> LastRow {
        let found = match (stretch.phase, stretch.until) {
            (Phase::Scouted(last), _) => last,
            (_, None) => stretch.last(&self.rows),
            (_, Some(_)) => None,
        };
        found.or(stretch.survey.last_rows.map(|number| (number, None))).unwrap_or_default()
    }

    /// Takes back a stretch whose messages are written up to a place.
    pub fn go_on(&mut self, mut stretch: Stretch, from: Walked) {
        if stretch.until.is_none_or(|until| from.number < until) {
            stretch.from = from;
            self.stretches.push_front(stretch);
        }
    }
}

impl Stretch {
    /// The last row that is left. None: none of those that were collected.
    fn last(&self, rows: &BTreeMap<u32, TableRows>) -> Option<LastRow> {
        for event in self.tail.iter().rev() {
            let Some(made) = rows.get(&event.table).and_then(|rows| rows.made.as_ref()) else { continue };
            let images = images_of(event.kind);
            for row in (0..event.rows).rev() {
                let first = event.first + row as usize * images;
                if (first..first + images).any(|number| made.has(number)) {
                    return Some((event.number, Some(row)));
                }
            }
        }
        self.unruled.map(|number| (number, None))
    }
}

/// How many images a row has.
fn images_of(kind: RowsKind) -> usize {
    match kind {
        RowsKind::Update => 2,
        RowsKind::Insert | RowsKind::Delete => 1,
    }
}

/// What a row event is about.
enum Rows {
    Unwanted,
    Unruled,
    Ruled(RuledEvent),
}

impl Pieces {
    /// Collects rows that the log has together.
    fn collect_rows(
        &mut self,
        logged: &LoggedRows<'_>,
        tables: &Tables,
        row: &mut Row,
        format: &dyn Format,
    ) -> Result<Rows> {
        let mut rows = logged.rows;
        let Some(wanted) = tables.of(rows.table_id, logged.offset)? else { return Ok(Rows::Unwanted) };
        let (table, Some(ruled)) = (&wanted.table, &wanted.ruled) else { return Ok(Rows::Unruled) };
        rows.check(&table.map)?;
        check_images(&rows, table, format, logged.offset)?;
        let of_table = self.of_table(table, ruled)?;
        let collector = &mut of_table.collector;
        collector.set_style(logged.json);
        let mut found = RuledEvent {
            number: logged.number,
            table: table.number,
            kind: rows.kind,
            first: collector.len(),
            rows: 0,
        };
        while !rows.images.is_empty() {
            let sequence = next_row(logged, &mut rows, table, row)?;
            let before = row.image(&row.before, logged.bytes);
            let after = row.image(&row.after, logged.bytes);
            let mut push = |image, change| {
                collector.push(table, image, change, sequence).map_err(|error| error.moved(sequence))
            };
            match rows.kind {
                RowsKind::Insert => push(&after, Collected::Insert)?,
                RowsKind::Delete => push(&before, Collected::Delete)?,
                RowsKind::Update => {
                    push(&before, Collected::UpdatePreimage)?;
                    push(&after, Collected::UpdatePostimage)?;
                }
            }
            found.rows += 1;
        }
        Ok(Rows::Ruled(found))
    }

    fn of_table(&mut self, table: &Table, ruled: &RuledTable) -> Result<&mut TableRows> {
        match self.rows.entry(table.number) {
            Entry::Occupied(known) => Ok(known.into_mut()),
            Entry::Vacant(place) => {
                let rules = &ruled.rules;
                let collector = Collector::new(&table.schema, &rules.needed, rules.types)?;
                let name = (table.database.clone(), table.name.clone());
                Ok(place.insert(TableRows { name, collector, made: None, images: 0 }))
            }
        }
    }

    /// Writes the rows of an event as the rules have made them. An update whose row before it or after it is
    /// left out is an insertion or a deletion.
    #[expect(clippy::too_many_arguments, reason = "what is written, and where to")]
    pub fn write(
        &mut self,
        logged: &LoggedRows<'_>,
        rows: &mut RowsEvent<'_>,
        (table, ruled): (&Table, &RuledTable),
        (transaction, facts, last): (&Transaction, EventFacts<'_>, LastRow),
        (row, hashing): (&mut Row, &mut Hashing),
        format: &mut dyn Format,
        (begun, out): (&mut bool, &mut Messages),
    ) -> Result<()> {
        let Self { rows: of_tables, images, .. } = self;
        let Some(made) = of_tables.get_mut(&table.number).and_then(|rows| rows.made.as_mut()) else {
            let name = table.schema.name();
            let reason = format!("rows of {name} were collected, but not transformed");
            return Err(DecodeError::of_table(name, reason, logged.offset));
        };
        let batch = made.batch();
        let (target, columns) = (&ruled.target, Made::columns(&batch, ruled)?);
        let mut open: Option<RowsKind> = None;
        let mut number = 0;
        while !rows.images.is_empty() {
            let sequence = next_row(logged, rows, table, row)?;
            let places = made.take(rows.kind);
            let this = number;
            number += 1;
            let Some(kind) = left(places) else { continue };
            images.make(ruled, &columns, (row, logged.bytes), places, sequence)?;
            let is_last =
                logged.number == last.0 && last.1.map_or_else(|| rows.images.is_empty(), |row| row == this);
            let (bytes, row) = (images.bytes.as_slice(), &mut images.row);
            format.fill(rows, (kind, target), row, bytes);
            let change = Change { kind, row, bytes, number: this, sequence, last: is_last };
            let facts = EventFacts { kind, ..facts };
            if !*begun {
                format.begin(transaction, out)?;
                *begun = true;
            }
            if open.is_some_and(|open| open != kind) {
                format.end_event(target, out);
                open = None;
            }
            match &target.route {
                None => {
                    if open.is_none() {
                        format.event(transaction, &facts, target)?;
                    }
                    open = Some(kind);
                    format.change(target, &change, out)
                }
                Some(route) => {
                    let mut is_open = open.is_some();
                    let of = (target, transaction, &facts);
                    let written = routing::change(route, of, &change, format, (&mut is_open, hashing), out);
                    open = is_open.then_some(kind);
                    written
                }
            }
            .map_err(|error| error.moved(sequence))?;
        }
        if open.is_some() {
            format.end_event(target, out);
        }
        Ok(())
    }
}
