//! Decides the fate of a transaction: it is stored, or dropped because it is before the log's start, or only
//! compared with the last one that the log has.

use super::pending::Fate;
use super::Framer;
use crate::digest::Digest;
use crate::error::Result;
use crate::mysql::event::EventHeader;
use crate::mysql::group::Step;
use crate::mysql::gtid_event::GtidEvent;
use crate::place::SourcePlace as _;
use crate::segment_framer::Piece;
use crate::transaction_set::TransactionSet as _;

impl Framer {
    pub(super) fn transactional(&mut self, header: &EventHeader, event: &[u8], body: &[u8]) -> Result<()> {
        if self.format.is_none() {
            return Err(self.fail("an event came before the format description"));
        }
        if self.idle() {
            self.begin(header, body)?;
        }
        if self.fate == Fate::Undecided {
            return self.take_undecided(header, event, body);
        }
        self.route(header, event, body)
    }

    pub(super) fn route(&mut self, header: &EventHeader, event: &[u8], body: &[u8]) -> Result<()> {
        if self.fate != Fate::Store {
            return self.skip_or_compare(header, event, body);
        }
        let offset = self.tracker.log.end;
        self.output.extend_from_slice(event);
        self.tracker.event(header, body, event.len(), offset)?;
        if let Some((start, end)) = self.tracker.taken_back.take() {
            self.flush_output();
            self.pieces.push(Piece::TakenBack { start, end });
        }
        if self.tracker.log.span_bytes() >= self.options.span_size {
            self.entries.extend(self.tracker.cut(""));
        }
        Ok(())
    }

    /// Called before the first event of a transaction. Decides its fate, and opens a segment if needed.
    fn begin(&mut self, header: &EventHeader, body: &[u8]) -> Result<()> {
        self.fate = Fate::Store;
        if self.skipping || self.options.expected.is_some() {
            self.decide_fate(header, body)?;
        }
        if self.fate == Fate::Store {
            self.skipping = false;
            let full = self.tracker.log.end - self.segment_base >= self.options.segment_size;
            if self.segment.is_none() || self.roll || full {
                self.open_segment();
            }
        }
        self.unstored_digest = Digest::default();
        if self.fate != Fate::Compare && header.kind.is_gtid() {
            self.undecided.intended = std::mem::replace(&mut self.fate, Fate::Undecided);
        }
        Ok(())
    }

    /// Decides the fate of a transaction that may have to be dropped or compared. `header` and `body` are
    /// those of its first event.
    fn decide_fate(&mut self, header: &EventHeader, body: &[u8]) -> Result<()> {
        let event = GtidEvent::parse(header, body, self.tracker.log.end)?;
        if self.skipping && self.is_early(header, &event) {
            self.fate = Fate::Drop;
        } else if let Some(expected) = &self.options.expected {
            if expected.id.is_none() || expected.id == event.gtid {
                self.fate = Fate::Compare;
            }
        }
        self.unstored_gtid = event.gtid;
        Ok(())
    }

    /// Whether the transaction begins before one of the bounds of the start.
    fn is_early(&self, header: &EventHeader, event: &GtidEvent) -> bool {
        let commit_us = event.immediate_commit_us.unwrap_or(u64::from(header.timestamp) * 1_000_000);
        let too_soon = self.options.skip.until_us.is_some_and(|bound| commit_us < bound);
        let mut start = self.tracker.log.source.clone();
        start.advance(header.end_position.saturating_sub(header.size));
        too_soon || self.options.skip.until.as_ref().is_some_and(|bound| start.is_before(bound))
    }

    /// Takes an event of a transaction that is not stored.
    fn skip_or_compare(&mut self, header: &EventHeader, event: &[u8], body: &[u8]) -> Result<()> {
        if self.fate == Fate::Compare {
            self.unstored_digest.update(event);
        }
        let mut step = Step::default();
        self.unstored.step(header, body, self.tracker.log.end, 0, &mut step)?;
        if header.end_position != 0 {
            self.tracker.log.source.advance(header.end_position);
        }
        if step.ends {
            self.unstored_ended()
        } else {
            Ok(())
        }
    }

    /// Called at the end of a transaction that is not stored.
    pub(super) fn unstored_ended(&mut self) -> Result<()> {
        let place = self.tracker.log.source.clone();
        self.tracker.moved(&place);
        if let Some(gtid) = self.unstored_gtid.take() {
            self.tracker.log.executed.add(&gtid);
        }
        if self.fate == Fate::Drop {
            self.dropped += 1;
            self.end_skipping_at_bounds();
        } else if let Some(expected) = self.options.expected.take() {
            let found = std::mem::take(&mut self.unstored_digest).finish();
            self.verified = (expected.length, expected.digest) == found;
            self.diverged = !self.verified;
        }
        self.fate = Fate::Store;
        self.open_when_ready();
        Ok(())
    }

    /// Ends skipping if the source has reached both bounds of the start.
    pub(super) fn end_skipping_at_bounds(&mut self) {
        let skip = &self.options.skip;
        let ahead = skip.until.as_ref().is_some_and(|bound| self.tracker.log.source.is_before(bound));
        self.skipping &= ahead || skip.until_us.is_some();
    }
}
