//! XA transactions take their place in the relay log at their XA COMMIT.
//!
//! The source writes the rows of an XA transaction when it is prepared, but they count only from its XA
//! COMMIT on. So the framer holds back the bytes of a transaction that may be an XA transaction: the GTID
//! event until the next event shows whether it is `XA START` (MariaDB's GTID event says so itself), then
//! everything up to XA_PREPARE. It holds up to `UNDECIDED_BYTES_MAX` bytes in memory, and the rest in a spool
//! file.
//! The end of the transaction decides where the events go:
//!
//! - `XA COMMIT … ONE PHASE` (XA_PREPARE with its one-phase byte set): into the log, as they were sent.
//! - Prepared: into the spool. The log gets an empty transaction under the same GTID, and its index entry
//!   says where the events are. So a prepare moves the executed set and the source's position like any
//!   transaction, and none of its rows is in the log.
//! - `XA COMMIT` of a known xid: the log gets its GTID event, BEGIN, the row events and statements of the
//!   spooled transaction with this place's position and new checksums, then COMMIT. The rows belong to the
//!   GTID of the XA COMMIT and have their offsets there, so ranges, splits, spans and offsets mean what
//!   they mean for every other transaction.
//! - `XA ROLLBACK`: stored as sent. The spooled events are forgotten.
//! - `XA COMMIT` of an xid that was prepared before the log began: stored as sent. The index records it as a
//!   statement that changed unknown rows.
//!
//! The spool decides nothing. Which transactions are prepared at an offset is what the index has committed
//! up to there. Events in the spool are durable before the entry that names them. After a crash the source
//! is asked for what follows the last committed transaction end: a prepare that was not committed is
//! spooled again, and an XA COMMIT that was not committed is replayed again from the spool, which is
//! removed only after the entry that says so. Bytes of the spool that no entry names have no meaning.
//!
//! A chunk that is read between prepare and commit has the GTID of the prepare in its low watermark, and
//! does not see the rows. They come under the GTID of the XA COMMIT, which is not in that watermark, so
//! they count as newer than the chunk. A chunk that sees them was read after the XA COMMIT was in the
//! source's log, so its high watermark lies behind it.

use super::pending::{Fate, Replay, Spool};
use super::{Framer, OUTPUT_MAX};
use crate::error::Result;
use crate::framing::Prepared;
use crate::mysql::event::{EventHeader, EventKind, HEADER_SIZE, MAGIC};
use crate::mysql::group::{Group, Step};
use crate::mysql::gtid_event::prepares_xa;
use crate::mysql::log_file::LogFile;
use crate::mysql::query::query;
use crate::mysql::rewritten::rewritten;
use crate::mysql::segment_head::same_format;
use crate::mysql::span::Ending;
use crate::mysql::xa::{query_event, statement, xid_of_event, Change, XaStatement};
use crate::segment_file::SegmentFile;
use crate::segment_framer::Piece;
use crate::window::Direction;

/// Bytes of an undecided transaction that stay in memory.
const UNDECIDED_BYTES_MAX: usize = 1 << 20;
/// A spool file that is larger than this is followed by a new one.
const SPOOL_FILE_MAX: u64 = 16 << 20;

impl Framer {
    /// Takes an event of a transaction whose place is not known yet.
    pub(super) fn take_undecided(&mut self, header: &EventHeader, event: &[u8], body: &[u8]) -> Result<()> {
        if self.unstored.is_idle() {
            let xa = header.kind == EventKind::MARIADB_GTID && prepares_xa(body);
            self.unstored.step(header, body, self.tracker.log.end, 0, &mut Step::default())?;
            let undecided = &mut self.undecided;
            undecided.is_xa = xa;
            undecided.source.position = self.tracker.log.source.position;
            undecided.source.file.clone_from(&self.tracker.log.source.file);
            undecided.gtid_event.clear();
            undecided.gtid_event.extend_from_slice(event);
            if xa {
                self.unstored_digest.update(event);
                self.undecided.bytes.extend_from_slice(event);
            }
            return Ok(());
        }
        if !self.undecided.is_xa {
            match self.xa_statement(header, body)? {
                Some((XaStatement::Start, xid)) => {
                    (self.undecided.is_xa, self.undecided.xid) = (true, Some(xid));
                    self.undecided.bytes.clone_from(&self.undecided.gtid_event);
                    self.unstored_digest.update(&self.undecided.gtid_event);
                }
                Some((XaStatement::Commit, xid)) => return self.committed(&xid, header, event, body),
                Some((XaStatement::Rollback, xid)) => {
                    if self.prepared.remove(&xid).is_some() && self.undecided.intended == Fate::Store {
                        self.tracker.ending = Some(Ending { sent: None, change: Change::Ended(xid) });
                    }
                    return self.route_as_plain(header, event, body);
                }
                _ => return self.route_as_plain(header, event, body),
            }
        }
        self.unstored_digest.update(event);
        if header.end_position != 0 {
            self.tracker.log.source.advance(header.end_position);
        }
        let mut step = Step::default();
        self.unstored.step(header, body, self.tracker.log.end, 0, &mut step)?;
        self.undecided.bytes.extend_from_slice(event);
        if header.kind == EventKind::XA_PREPARE && self.undecided.xid.is_none() {
            self.undecided.xid = Some(xid_of_event(body, self.tracker.log.end)?);
        }
        if step.ends {
            return self.branch_ends(header, event, step.prepared);
        }
        if self.undecided.bytes.len() >= UNDECIDED_BYTES_MAX {
            self.spill();
        }
        Ok(())
    }

    fn xa_statement(&self, header: &EventHeader, body: &[u8]) -> Result<Option<(XaStatement, String)>> {
        if header.kind != EventKind::QUERY {
            return Ok(None);
        }
        let (_, sql) = query(body, self.tracker.log.end)?;
        Ok(statement(sql))
    }

    /// The transaction is no XA transaction: it gets the fate that it would have had without this doubt, and
    /// so does the event that showed it.
    fn route_as_plain(&mut self, header: &EventHeader, event: &[u8], body: &[u8]) -> Result<()> {
        let gtid = self.forget_undecided();
        self.route_whole(&gtid)?;
        self.undecided.gtid_event = gtid;
        self.route(header, event, body)
    }

    /// Forgets the undecided transaction and returns its GTID event. Its buffers stay for the next one,
    /// because most transactions are undecided for one event.
    fn forget_undecided(&mut self) -> Vec<u8> {
        self.unstored = Group::default();
        let undecided = &mut self.undecided;
        self.fate = std::mem::take(&mut undecided.intended);
        (undecided.is_xa, undecided.xid, undecided.spooled) = (false, None, None);
        undecided.bytes.clear();
        std::mem::take(&mut undecided.gtid_event)
    }

    fn route_whole(&mut self, event: &[u8]) -> Result<()> {
        let header = EventHeader::parse(event, self.tracker.log.end)?;
        self.route(&header, event, &event[HEADER_SIZE..event.len() - self.checksum().size()])
    }

    /// Called at the end of an XA transaction, which was prepared or committed in one phase.
    fn branch_ends(&mut self, header: &EventHeader, event: &[u8], prepared: bool) -> Result<()> {
        let xid = self.undecided.xid.take().unwrap_or_default();
        if !prepared && self.undecided.spooled.is_none() {
            let bytes = std::mem::take(&mut self.undecided.bytes);
            self.step_back();
            let mut rest = bytes.as_slice();
            while !rest.is_empty() {
                let length = EventHeader::parse(rest, self.tracker.log.end)?.size as usize;
                self.route_whole(&rest[..length])?;
                rest = &rest[length..];
            }
            return Ok(());
        }
        self.spill();
        let Some((start, length)) = self.undecided.spooled else { return Ok(()) };
        let file = self.spool.as_ref().map(|spool| spool.name.clone()).unwrap_or_default();
        let place = Prepared { xid: xid.clone(), file, start, length };
        if self.undecided.intended != Fate::Store {
            if prepared {
                self.prepared.insert(xid, place);
            }
            self.forget_undecided();
            return self.unstored_ended();
        }
        if !prepared {
            self.step_back();
            self.replay = Some(Replay { prepared: place, file: None, position: start, commit: None });
            return self.pump_replay().map(drop);
        }
        let end = self.tracker.log.source.clone();
        let gtid = self.step_back();
        self.route_whole(&gtid)?;
        self.tracker.log.source = end;
        self.store_query(event, header, "BEGIN")?;
        self.prepared.insert(xid.clone(), place.clone());
        self.ending(Change::Prepared(place));
        self.store_query(event, header, &rewritten("PREPARE", &xid))
    }

    /// Moves the source's position back to the one before the undecided transaction. Forgets that transaction
    /// and returns its GTID event.
    fn step_back(&mut self) -> Vec<u8> {
        self.tracker.log.source = std::mem::take(&mut self.undecided.source);
        self.forget_undecided()
    }

    /// Records the digest of what the source sent for the transaction that is about to end, because other
    /// bytes are stored.
    fn ending(&mut self, change: Change) {
        let sent = std::mem::take(&mut self.unstored_digest).finish();
        self.tracker.ending = Some(Ending { sent: Some(sent), change });
    }

    fn store_query(&mut self, event: &[u8], header: &EventHeader, sql: &str) -> Result<()> {
        let made = query_event(event, header, sql, self.checksum());
        self.route_whole(&made)
    }

    /// Called at an XA COMMIT: replaces it by the rows of the prepared transaction.
    fn committed(&mut self, xid: &str, header: &EventHeader, event: &[u8], body: &[u8]) -> Result<()> {
        if self.undecided.intended != Fate::Store {
            self.prepared.remove(xid);
            return self.route_as_plain(header, event, body);
        }
        let Some(prepared) = self.prepared.get(xid).cloned() else {
            return self.route_as_plain(header, event, body);
        };
        let gtid = self.forget_undecided();
        self.unstored_digest.update(&gtid);
        self.unstored_digest.update(event);
        self.route_whole(&gtid)?;
        self.store_query(event, header, "BEGIN")?;
        let position = prepared.start;
        let commit = Some((*header, event.to_vec()));
        self.replay = Some(Replay { prepared, file: None, position, commit });
        self.pump_replay().map(drop)
    }

    /// Moves the bytes of the undecided transaction from memory to the spool.
    fn spill(&mut self) {
        let Some(format) = &self.format else { return };
        let begins = self.undecided.spooled.is_none();
        let open = self.spool.take().filter(|spool| {
            !begins || spool.position < SPOOL_FILE_MAX && same_format(&spool.format, &format.event)
        });
        let mut spool = open.unwrap_or_else(|| {
            let name = format!("{:010}-{:06}.xa", self.spool_number, self.options.spool.generation);
            self.spool_number += 1;
            let mut head = MAGIC.to_vec();
            head.extend_from_slice(&format.event);
            let position = head.len() as u64;
            self.pieces.push(Piece::Spool { name: name.clone(), bytes: head });
            Spool { name, position, format: format.event.clone() }
        });
        let bytes = std::mem::take(&mut self.undecided.bytes);
        let (start, length) = self.undecided.spooled.unwrap_or((spool.position, 0));
        self.undecided.spooled = Some((start, length + bytes.len() as u64));
        spool.position += bytes.len() as u64;
        self.spooled += bytes.len();
        self.pieces.push(Piece::Spool { name: spool.name.clone(), bytes });
        self.spool = Some(spool);
    }

    /// Copies events from the spool into the log. Returns false when the output is full and there are more.
    pub(super) fn pump_replay(&mut self) -> Result<bool> {
        // The spool's newest bytes cannot be read before `feed` returns: the caller writes them then.
        if self.spooled > 0 {
            return Ok(false);
        }
        let Some(mut replay) = self.replay.take() else { return Ok(true) };
        let end = replay.prepared.start + replay.prepared.length;
        let path = format!("{}/{}", self.options.spool.folder, replay.prepared.file);
        let mut file = match replay.file.take() {
            Some(file) => file,
            None => LogFile::open(&SegmentFile::from(path.as_str()), 0)?,
        };
        let mut event = Vec::new();
        while replay.position < end && self.output.len() < OUTPUT_MAX {
            let wanted =
                self.spooled_event(&mut file, &mut replay, end, &mut event).map_err(|e| e.in_file(&path))?;
            if wanted {
                self.route_whole(&event)?;
            }
        }
        if replay.position < end {
            replay.file = Some(file);
            self.replay = Some(replay);
            return Ok(false);
        }
        if let Some((header, event)) = &replay.commit {
            let xid = &replay.prepared.xid;
            self.prepared.remove(xid);
            self.ending(Change::Ended(xid.clone()));
            self.store_query(event, header, &rewritten("COMMIT", xid))?;
        }
        Ok(true)
    }

    /// Writes the next event of the spool into `event`, in the form that the log gets. Returns false if the
    /// log does not get it.
    fn spooled_event(
        &self,
        file: &mut LogFile,
        replay: &mut Replay,
        end: u64,
        event: &mut Vec<u8>,
    ) -> Result<bool> {
        let position = replay.position;
        let header = file.header(position, end)?;
        let found = file.event(position, header, Direction::Forward)?;
        replay.position += u64::from(header.size);
        event.clear();
        let Some((commit, _)) = &replay.commit else {
            event.extend_from_slice(found.raw);
            return Ok(true);
        };
        let frame = match header.kind {
            EventKind::QUERY => {
                let (_, sql) = query(found.body, position)?;
                matches!(statement(sql), Some((XaStatement::Start | XaStatement::End, _)))
            }
            kind => kind.is_gtid() || kind == EventKind::XA_PREPARE,
        };
        event.extend_from_slice(&found.raw[..HEADER_SIZE + found.body.len()]);
        event[13..17].copy_from_slice(&commit.end_position.to_le_bytes());
        let length = event.len() + self.checksum().size();
        event[9..13].copy_from_slice(&(length as u32).to_le_bytes());
        self.checksum().append(event);
        Ok(!frame)
    }

    /// Bytes of the open transaction that are not in the log.
    pub(super) fn undecided_bytes(&self) -> u64 {
        self.undecided.bytes.len() as u64 + self.undecided.spooled.map_or(0, |(_, length)| length)
    }

    /// Spool files that are still needed.
    pub(super) fn needed_spool_files(&self) -> Vec<String> {
        let open = self.spool.iter().map(|spool| &spool.name);
        let mut names: Vec<String> =
            self.prepared.values().map(|prepared| &prepared.file).chain(open).cloned().collect();
        names.sort();
        names.dedup();
        names
    }

    /// The prepared transactions, for a segment's head.
    pub(super) fn prepared_json(&self) -> String {
        let mut known: Vec<&Prepared> = self.prepared.values().collect();
        known.sort_by_key(|prepared| (&prepared.file, prepared.start));
        let texts: Vec<String> = known.iter().map(|prepared| prepared.json()).collect();
        format!("[{}]", texts.join(","))
    }
}
