//! Makes the index entries of a log: counts what each span has, and writes it as JSON. ARCHITECTURE.md
//! explains the fields.
//!
//! A format's tracker finds the transactions, tables and statements. Where it does, is counted here.

use std::fmt::Write as _;

use crate::error::{DecodeError, Result};
use crate::json_text::quoted;
use crate::place::SourcePlace;
use crate::table_names::TableNames;
use crate::transaction_set::TransactionSet;

/// Most bytes of a statement in an entry. The whole statement can be read at its offset.
pub const STATEMENT_MAX: usize = 256 * 1024;

/// What the source sent for a transaction, compared with what is stored.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Sent {
    #[default]
    AsStored,
    /// Other bytes are stored. Length and digest of those that were sent.
    Otherwise(u64, u64),
    Unknown,
}

/// A transaction that has ended, with its place in the log and at the source.
#[derive(Default)]
pub struct Ended<I, P> {
    pub start: u64,
    pub end: u64,
    pub id: Option<I>,
    pub source: P,
    pub sent: Sent,
}

#[derive(Default)]
pub struct Span<S> {
    pub start: u64,
    /// If it begins inside a transaction: offsets of the events that its readers need from before it.
    pub open: Option<Vec<u64>>,
    pub transactions: u64,
    pub executed: S,
    pub first_commit_us: Option<u64>,
    pub last_commit_us: Option<u64>,
    /// Its tables, by their slots.
    pub touched: Vec<usize>,
    pub statements: Vec<String>,
}

pub struct Entries<S: TransactionSet, P> {
    pub executed: S,
    /// The source's position after the last event.
    pub source: P,
    /// The source's position at the last transaction end.
    pub committed_source: P,
    pub committed: u64,
    pub end: u64,
    pub transactions: u64,
    pub last_commit_us: Option<u64>,
    pub names: TableNames,
    /// Row events and bytes in the span, by the table's slot in `names`.
    pub counts: Vec<(u64, u64)>,
    pub span: Span<S>,
    pub ended: Ended<S::Id, P>,
    reported: P,
}

impl<S: TransactionSet, P: SourcePlace> Entries<S, P> {
    pub fn new(offset: u64, executed: S, source: P) -> Self {
        Self {
            executed,
            committed_source: source.clone(),
            reported: source.clone(),
            source,
            committed: offset,
            end: offset,
            transactions: 0,
            last_commit_us: None,
            names: TableNames::default(),
            counts: Vec::new(),
            span: Span { start: offset, ..Span::default() },
            ended: Ended { start: 0, end: 0, id: None, source: P::default(), sent: Sent::AsStored },
        }
    }

    /// Begins with no names, if there are too many and the span needs none. To be called between
    /// transactions.
    pub fn forget_many_names(&mut self) {
        if self.names.is_full() && self.span.touched.is_empty() {
            self.names = TableNames::default();
            self.counts.clear();
        }
    }

    /// The slot of the table that is announced under an id.
    pub fn announce(&mut self, id: u64, database: &[u8], table: &[u8]) -> usize {
        let slot = self.names.slot(id, database, table);
        if slot == self.counts.len() {
            self.counts.push((0, 0));
        }
        slot
    }

    /// Counts rows of the table that was announced under an id.
    #[inline]
    pub fn count(&mut self, id: u64, length: usize, offset: u64) -> Result<()> {
        let Some(slot) = self.names.slot_of(id) else {
            return Err(DecodeError::new(
                format!("a row event names table {id}, which no table map announced"),
                offset,
            ));
        };
        let count = &mut self.counts[slot];
        if count.0 == 0 {
            self.span.touched.push(slot);
        }
        count.0 += 1;
        count.1 += length as u64;
        Ok(())
    }

    pub fn note_committed(&mut self) {
        self.committed = self.end;
        self.committed_source.clone_from(&self.source);
    }

    /// Counts a transaction that ends here. `ended` has its place at the source.
    pub fn commit(&mut self, start: u64, id: Option<S::Id>, commit_us: u64, sent: Sent) {
        self.span.first_commit_us.get_or_insert(commit_us);
        self.span.last_commit_us = Some(commit_us);
        self.last_commit_us = Some(commit_us);
        self.span.transactions += 1;
        self.transactions += 1;
        let ended = &mut self.ended;
        (ended.start, ended.end, ended.id, ended.sent) = (start, self.end, id, sent);
        if let Some(id) = &ended.id {
            self.executed.add(id);
            self.span.executed.add(id);
        }
    }

    /// The source has executed these transactions, too.
    pub fn note_executed(&mut self, set: &S) {
        self.executed = self.executed.union(set);
        self.span.executed = self.span.executed.union(set);
    }

    /// Called when the source has advanced without events that are stored. It counts only between
    /// transactions (`idle`).
    pub fn moved(&mut self, place: &P, idle: bool) {
        if self.source.is_before(place) {
            self.source = place.clone();
        }
        if idle && self.committed_source.is_before(&self.source) {
            self.committed_source = self.source.clone();
        }
    }

    /// Counts bytes of the log that are not an event of the source (a segment's head).
    pub fn padding(&mut self, length: u64) {
        self.end += length;
        self.committed = self.end;
    }

    pub fn span_bytes(&self) -> u64 {
        self.end - self.span.start
    }

    /// Whether the span has something that no entry says yet.
    pub fn has_news(&self) -> bool {
        self.end != self.span.start || self.reported != self.committed_source
    }

    /// Begins a span. `open`: see [`Span`].
    pub fn begin_span(&mut self, open: Option<Vec<u64>>) {
        self.reported.clone_from(&self.committed_source);
        for slot in &self.span.touched {
            self.counts[*slot] = (0, 0);
        }
        self.span = Span { start: self.end, open, ..Span::default() };
    }

    /// The entry of the span up to here. `extra`: fields of the format, each with a comma before it.
    pub fn entry(&self, extra: &str) -> String {
        let (span, name) = (&self.span, |slot: &usize| self.names.key(*slot));
        let mut text = format!(
            "{{\"start\":{},\"end\":{},\"committed\":{},{}",
            span.start,
            self.end,
            self.committed,
            self.committed_source.fields()
        );
        if span.transactions > 0 {
            let _ = write!(text, ",\"transactions\":{}", span.transactions);
        }
        if !span.executed.is_empty() {
            let _ = write!(text, ",\"executed\":{}", quoted(&span.executed.to_string()));
        }
        if let (Some(first), Some(last)) = (span.first_commit_us, span.last_commit_us) {
            let _ = write!(text, ",\"first_commit_us\":{first},\"last_commit_us\":{last}");
        }
        if !span.touched.is_empty() {
            let tables: Vec<String> = span
                .touched
                .iter()
                .map(|slot| format!("{}:[{},{}]", name(slot), self.counts[*slot].0, self.counts[*slot].1))
                .collect();
            let _ = write!(text, ",\"tables\":{{{}}}", tables.join(","));
        }
        if !span.statements.is_empty() {
            let _ = write!(text, ",\"statements\":[{}]", span.statements.join(","));
        }
        if let Some(open) = &span.open {
            let _ = write!(text, ",\"open\":{open:?}");
        }
        if let Some(last) = self.last() {
            let _ = write!(text, ",\"last\":{last}");
        }
        text.push_str(extra);
        text.push('}');
        text
    }

    /// What a segment's first entry says of the log before it: a field of its own. `prepared`: a JSON array.
    pub fn head(&self, server_uuid: &str, prepared: &str) -> String {
        format!(
            ",\"head\":{{\"server_uuid\":{},\"executed\":{},\"prepared\":{prepared}}}",
            quoted(server_uuid),
            quoted(&self.executed.to_string()),
        )
    }

    /// The last transaction that ended in this span. After a reconnect it is requested again and compared.
    fn last(&self) -> Option<String> {
        if self.span.transactions == 0 {
            return None;
        }
        let ended = &self.ended;
        let id = ended.id.as_ref().map_or(String::from("null"), |id| quoted(&id.to_string()));
        let sent = match ended.sent {
            Sent::AsStored => String::new(),
            Sent::Otherwise(length, digest) => format!(",\"sent\":[{length},{digest}]"),
            Sent::Unknown => String::from(",\"sent\":[]"),
        };
        let (start, end, place) = (ended.start, ended.end, ended.source.fields());
        Some(format!("{{\"start\":{start},\"end\":{end},\"id\":{id},{place}{sent}}}"))
    }
}
