//! From the replication connection's bytes to the relay log's: packets, checksums, transaction ends,
//! segments, index.
//!
//! The framer takes the bytes of the socket and returns `Piece`s: bytes to append, and the places where a new
//! segment begins. It decides nothing about files and clocks. Offsets are counted here only. A segment begins
//! between two transactions with a head of its own (magic, FORMAT_DESCRIPTION, PREVIOUS_GTIDS), so each is a
//! valid binlog file. The framer needs memory for one event (packets of one event are joined) and for
//! `OUTPUT_MAX` bytes of output.
//!
//! Some events are not stored and only move the source's position: heartbeats, rotates, the
//! FORMAT_DESCRIPTION, PREVIOUS_GTIDS and STOP of each source file, and MariaDB's GTID_LIST and
//! BINLOG_CHECKPOINT.

mod branch;
mod pending;
mod transaction;

use std::collections::HashMap;

use pending::{Fate, Replay, Spool, UndecidedTransaction};

use crate::cursor::Cursor;
use crate::digest::Digest;
use crate::error::{DecodeError, Result};
use crate::framing::{self, Prepared};
use crate::mysql::checksum::{Checksum, CHECKSUM_SIZE};
use crate::mysql::event::{EventHeader, EventKind, HEADER_SIZE, MAGIC};
use crate::mysql::group::Group;
use crate::mysql::gtid::{Gtid, GtidSet};
use crate::mysql::mariadb;
use crate::mysql::payload::Payload;
use crate::mysql::place::Place;
use crate::mysql::segment_head::{has_gtids, previous_gtids, same_format, Format};
use crate::mysql::server_error::ServerError;
use crate::mysql::span::Tracker;
use crate::segment_framer::{Piece, Progress, SegmentFramer};

const PACKET_MAX: usize = 0xff_ffff;
/// `feed` returns when it has so many bytes of output. The rest of its input waits inside.
const OUTPUT_MAX: usize = 8 << 20;
const HIGH_BITS: u64 = !0xffff_ffff;

pub type Options = framing::Options<GtidSet, Place>;

pub struct Framer {
    options: Options,
    packet: Vec<u8>,
    joined: Vec<u8>,
    joining: bool,
    backlog: Vec<u8>,
    payload: Option<Payload>,
    format: Option<Format>,
    /// The head's FORMAT_DESCRIPTION of the open segment; None: no segment is open.
    segment: Option<Vec<u8>>,
    segment_base: u64,
    roll: bool,
    has_executed: bool,
    skipping: bool,
    /// State and bytes of the transaction that is not stored.
    unstored: Group,
    fate: Fate,
    undecided: UndecidedTransaction,
    /// Prepared transactions by xid. `tracker` knows what the log says of them.
    prepared: HashMap<String, Prepared>,
    spool: Option<Spool>,
    spool_number: u64,
    /// Bytes for the spool that `feed` has not given out yet.
    spooled: usize,
    replay: Option<Replay>,
    unstored_gtid: Option<Gtid>,
    unstored_digest: Digest,
    output: Vec<u8>,
    pieces: Vec<Piece>,
    entries: Vec<String>,
    pub tracker: Tracker,
    pub server_error: Option<ServerError>,
    pub ended: bool,
    pub verified: bool,
    pub diverged: bool,
    pub dropped: u64,
}

impl Framer {
    pub fn new(options: Options) -> Framer {
        let executed = options.executed.clone();
        Framer {
            packet: Vec::new(),
            joined: Vec::new(),
            joining: false,
            backlog: Vec::new(),
            payload: None,
            format: None,
            segment: None,
            segment_base: options.offset,
            roll: false,
            has_executed: executed.is_some(),
            skipping: options.skip.until.is_some() || options.skip.until_us.is_some(),
            unstored: Group::default(),
            fate: Fate::Store,
            undecided: UndecidedTransaction::default(),
            prepared: options.spool.prepared.iter().map(|known| (known.xid.clone(), known.clone())).collect(),
            spool: None,
            spool_number: options.spool.number,
            spooled: 0,
            replay: None,
            unstored_gtid: None,
            unstored_digest: Digest::default(),
            output: Vec::new(),
            pieces: Vec::new(),
            entries: Vec::new(),
            tracker: Tracker::new(options.offset, executed.unwrap_or_default(), options.source.clone()),
            server_error: None,
            ended: false,
            verified: false,
            diverged: false,
            dropped: 0,
            options,
        }
    }

    pub fn segment_base(&self) -> u64 {
        self.segment_base
    }

    fn consume<'a>(&mut self, mut data: &'a [u8]) -> Result<&'a [u8]> {
        loop {
            if !self.drained()? || self.is_full() {
                return Ok(data);
            }
            if self.packet.is_empty() && data.len() >= 4 {
                let length = 4 + packet_length(data);
                if let Some(packet) = data.get(4..length) {
                    data = &data[length..];
                    self.packet(packet)?;
                    continue;
                }
            }
            if data.is_empty() {
                return Ok(data);
            }
            // The packet comes in pieces: take exactly what is missing.
            let wanted = if self.packet.len() < 4 { 4 } else { 4 + packet_length(&self.packet) };
            let count = (wanted - self.packet.len()).min(data.len());
            self.packet.extend_from_slice(&data[..count]);
            data = &data[count..];
            if self.packet.len() >= 4 && self.packet.len() == 4 + packet_length(&self.packet) {
                let mut packet = std::mem::take(&mut self.packet);
                self.packet(&packet[4..])?;
                packet.clear();
                if packet.capacity() <= 1 << 20 {
                    self.packet = packet;
                }
            }
        }
    }

    /// Stores what waits in a compressed transaction or in the spool. Returns false if more is waiting.
    fn drained(&mut self) -> Result<bool> {
        while self.replay.is_some() || self.payload.is_some() {
            let more = if self.replay.is_some() { !self.pump_replay()? } else { !self.pump()? };
            if more && (self.is_full() || self.replay.is_some()) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn is_full(&self) -> bool {
        self.output.len() + self.spooled >= OUTPUT_MAX
    }

    fn packet(&mut self, packet: &[u8]) -> Result<()> {
        if !self.joining && packet.len() < PACKET_MAX {
            return self.answer(packet);
        }
        self.joined.extend_from_slice(packet);
        self.joining = packet.len() == PACKET_MAX;
        if self.joining {
            return Ok(());
        }
        let joined = std::mem::take(&mut self.joined);
        self.answer(&joined)
    }

    fn answer(&mut self, packet: &[u8]) -> Result<()> {
        match packet.first() {
            Some(0) => self.event(&packet[1..]),
            Some(0xff) => {
                self.server_error = Some(ServerError::parse(packet, self.tracker.log.end)?);
                Ok(())
            }
            Some(0xfe) if packet.len() < 9 => {
                self.ended = true;
                Ok(())
            }
            _ => Err(self.fail("the server sent a packet that is neither an event nor an error")),
        }
    }

    fn event(&mut self, event: &[u8]) -> Result<()> {
        let header = EventHeader::parse(event, self.tracker.log.end)?;
        if header.size as usize != event.len() {
            let reason = format!("an event of {} bytes came in {} bytes", header.size, event.len());
            return Err(self.fail(reason));
        }
        let body = self.checked(&header, event)?;
        match header.kind {
            EventKind::ROTATE => self.rotate(&header, body),
            EventKind::FORMAT_DESCRIPTION => self.format(&header, event),
            EventKind::PREVIOUS_GTIDS => {
                if !self.has_executed {
                    self.tracker.log.executed =
                        GtidSet::decode(&mut Cursor::new(body, self.tracker.log.end))?;
                    self.has_executed = true;
                }
                self.source_moved_to(header.end_position);
                self.open_when_ready();
                Ok(())
            }
            EventKind::HEARTBEAT => {
                let file = String::from_utf8_lossy(body).into_owned();
                // The event has the low 32 bits only. A position before ours is of a part that is being
                // skipped.
                let high = if self.tracker.log.source.file == file {
                    self.tracker.log.source.position & HIGH_BITS
                } else {
                    0
                };
                if self.idle() {
                    self.tracker.moved(&Place { file, position: high | u64::from(header.end_position) });
                }
                // The source is idle: no transaction after the wanted time has come yet.
                self.options.skip.until_us = None;
                self.end_skipping_at_bounds();
                self.open_when_ready();
                Ok(())
            }
            EventKind::HEARTBEAT_V2 => Ok(()),
            EventKind::STOP => {
                self.source_moved_to(header.end_position);
                Ok(())
            }
            EventKind::TRANSACTION_PAYLOAD => {
                self.payload = Some(Payload::open(body, header.end_position, self.tracker.log.end)?);
                self.pump().map(drop)
            }
            EventKind::MARIADB_GTID_LIST => {
                if !self.has_executed && header.flags & EventHeader::FLAG_ARTIFICIAL == 0 {
                    self.tracker.log.executed = mariadb::gtid_list(body, self.tracker.log.end)?;
                    self.has_executed = true;
                }
                self.source_moved_to(header.end_position);
                self.open_when_ready();
                Ok(())
            }
            EventKind::MARIADB_BINLOG_CHECKPOINT | EventKind::MARIADB_START_ENCRYPTION => {
                // The server sends an encrypted file decrypted.
                let mut place = self.tracker.log.source.clone();
                place.advance(header.end_position);
                self.tracker.moved(&place);
                Ok(())
            }
            kind if mariadb::is_compressed(kind.0) => {
                let checksum = self.checksum();
                let plain = mariadb::unpack_event(event, body, checksum, self.tracker.log.end)?;
                let header = EventHeader::parse(&plain, self.tracker.log.end)?;
                let end = plain.len() - checksum.size();
                self.transactional(&header, &plain, &plain[HEADER_SIZE..end])
            }
            _ => self.transactional(&header, event, body),
        }
    }

    /// Checks the event's checksum and returns its body.
    fn checked<'a>(&self, header: &EventHeader, event: &'a [u8]) -> Result<&'a [u8]> {
        let checksum = match (&self.format, header.kind) {
            (_, EventKind::FORMAT_DESCRIPTION) => {
                let base = self.tracker.log.end + HEADER_SIZE as u64;
                Checksum::announced_by(&event[HEADER_SIZE..], base)?.unwrap_or_default()
            }
            (Some(format), _) => format.checksum,
            // A rotate before the first FORMAT_DESCRIPTION: only trying shows whether it has a checksum.
            (None, _) if event.len() >= HEADER_SIZE + CHECKSUM_SIZE && Checksum::Crc32.verify(event) => {
                Checksum::Crc32
            }
            (None, _) => Checksum::None,
        };
        let end = event.len() - checksum.size();
        if end < HEADER_SIZE {
            return Err(self.fail("an event is too short for its checksum"));
        }
        if !checksum.verify(event) {
            return Err(self.fail(format!("an event of type {} fails its checksum", header.kind.0)));
        }
        Ok(&event[HEADER_SIZE..end])
    }

    /// How the source's events end.
    fn checksum(&self) -> Checksum {
        self.format.as_ref().map_or(Checksum::None, |format| format.checksum)
    }

    fn rotate(&mut self, header: &EventHeader, body: &[u8]) -> Result<()> {
        if !self.idle() {
            return Err(self.fail("the source's log file ends inside a transaction"));
        }
        let mut cursor = Cursor::new(body, self.tracker.log.end);
        let position = cursor.u64("rotate position")?;
        let file = String::from_utf8_lossy(cursor.rest()).into_owned();
        if header.flags & EventHeader::FLAG_ARTIFICIAL == 0 && header.timestamp != 0 {
            self.source_moved_to(header.end_position);
        }
        // All transactions of a span are in one file of the source, so their events say their positions in
        // it.
        if self.segment.is_some() && file != self.tracker.log.source.file && self.tracker.log.span_bytes() > 0
        {
            self.entries.extend(self.tracker.cut(""));
        }
        self.tracker.moved(&Place { file, position });
        Ok(())
    }

    fn format(&mut self, header: &EventHeader, event: &[u8]) -> Result<()> {
        if !self.idle() {
            return Err(self.fail("the source's log file ends inside a transaction"));
        }
        let format = Format::parse(event, self.tracker.log.end)?;
        if self.segment.as_ref().is_some_and(|open| !same_format(open, &format.event)) {
            self.roll = true;
        }
        self.format = Some(format);
        self.source_moved_to(header.end_position);
        self.open_when_ready();
        Ok(())
    }

    /// Advances over an event at the beginning or end of a file. Its position needs more than 32 bits only
    /// after a huge transaction.
    fn source_moved_to(&mut self, log_pos: u32) {
        let place = Place { file: self.tracker.log.source.file.clone(), position: log_pos.into() };
        self.tracker.moved(&place);
    }

    fn idle(&self) -> bool {
        self.tracker.group.is_idle() && self.unstored.is_idle()
    }

    /// Readers can open a log as soon as its start is known.
    fn open_when_ready(&mut self) {
        if self.segment.is_none()
            && self.has_executed
            && !self.skipping
            && self.format.is_some()
            && self.idle()
        {
            self.open_segment();
        }
    }

    /// Stores events of a compressed transaction. Returns false when the output is full and there are more.
    fn pump(&mut self) -> Result<bool> {
        let Some(mut payload) = self.payload.take() else { return Ok(true) };
        let (mut event, checksum) = (Vec::new(), self.checksum());
        while !self.is_full() && self.replay.is_none() {
            if !payload.next_into(&mut event)? {
                return Ok(true);
            }
            let body_end = event.len();
            let length = body_end + checksum.size();
            event[9..13].copy_from_slice(&(length as u32).to_le_bytes());
            event[13..17].copy_from_slice(&payload.log_pos.to_le_bytes());
            checksum.append(&mut event);
            let header = EventHeader::parse(&event, self.tracker.log.end)?;
            if self.idle() {
                return Err(self.fail("a transaction payload holds more than one transaction"));
            }
            self.transactional(&header, &event, &event[HEADER_SIZE..body_end])?;
        }
        self.payload = Some(payload);
        Ok(false)
    }

    fn open_segment(&mut self) {
        let Some(format) = &self.format else { return };
        let closing = self.tracker.cut("");
        if self.segment.is_some() {
            self.entries.extend(closing);
        }
        let base = self.tracker.log.end;
        let mut head = MAGIC.to_vec();
        head.extend_from_slice(&format.event);
        if has_gtids(&format.event) {
            let gtids = previous_gtids(&self.tracker.log.executed, format, head.len());
            head.extend_from_slice(&gtids);
        }
        self.segment = Some(format.event.clone());
        self.flush_output();
        let (length, entries) = (head.len() as u64, std::mem::take(&mut self.entries));
        self.pieces.push(Piece::Segment { base, head, entries });
        self.tracker.log.padding(length);
        let extra = self.tracker.log.head(&self.options.server_uuid, &self.prepared_json());
        self.entries.extend(self.tracker.cut(&extra));
        self.segment_base = base;
        self.roll = false;
    }

    fn flush_output(&mut self) {
        if !self.output.is_empty() {
            self.pieces.push(Piece::Bytes(std::mem::take(&mut self.output)));
        }
    }

    #[cold]
    fn fail(&self, reason: impl Into<String>) -> DecodeError {
        DecodeError::new(reason, self.tracker.log.end)
    }
}

impl SegmentFramer for Framer {
    /// `data`: bytes of the connection, which begin with the answer to the dump command.
    fn feed(&mut self, data: &[u8]) -> Result<Vec<Piece>> {
        self.spooled = 0;
        self.output.reserve(data.len().min(OUTPUT_MAX));
        if self.backlog.is_empty() {
            let rest = self.consume(data)?;
            self.backlog.extend_from_slice(rest);
        } else {
            let mut waiting = std::mem::take(&mut self.backlog);
            waiting.extend_from_slice(data);
            let rest = self.consume(&waiting)?.len();
            waiting.drain(..waiting.len() - rest);
            self.backlog = waiting;
        }
        self.flush_output();
        Ok(std::mem::take(&mut self.pieces))
    }

    fn more(&self) -> bool {
        !self.backlog.is_empty() || self.payload.is_some() || self.replay.is_some()
    }

    fn cut(&mut self) -> Vec<String> {
        if self.segment.is_some() {
            self.entries.extend(self.tracker.cut(""));
        }
        std::mem::take(&mut self.entries)
    }

    fn roll(&mut self) {
        self.roll = true;
    }

    fn has_segment(&self) -> bool {
        self.segment.is_some()
    }

    fn offset(&self) -> u64 {
        self.tracker.log.end
    }

    fn committed(&self) -> u64 {
        self.tracker.log.committed
    }

    fn source(&self) -> (String, u64) {
        self.tracker.log.source.clone().into()
    }

    fn executed(&self) -> String {
        self.tracker.log.executed.to_string()
    }

    fn progress(&self) -> Progress {
        let error = self.server_error.as_ref();
        Progress {
            transactions: self.tracker.log.transactions,
            events: self.tracker.events,
            dropped: self.dropped,
            incidents: self.tracker.incidents,
            last_commit_us: self.tracker.log.last_commit_us,
            undecided_bytes: self.undecided_bytes(),
            verified: self.verified,
            diverged: self.diverged,
            ended: self.ended,
            server_error: error.map(|error| (error.code, error.sqlstate.clone(), error.message.clone())),
        }
    }

    fn spool_files(&self) -> Vec<String> {
        self.needed_spool_files()
    }
}

#[inline]
fn packet_length(bytes: &[u8]) -> usize {
    usize::from(bytes[0]) | usize::from(bytes[1]) << 8 | usize::from(bytes[2]) << 16
}
