//! Transactions of a log, as encoders are given them, and the parts of logs that they are in.

use std::collections::HashSet;
use std::sync::Arc;

use crate::segment_file::SegmentFile;

/// An event of the log, as headers of Canal name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct EventPlace {
    /// Its first byte in the source's file.
    pub position: u64,
    pub bytes: u32,
    pub timestamp: u32,
    pub server_id: u32,
}

/// What is known of a transaction before its first row.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Transaction {
    pub gtid: Option<String>,
    /// When the server that ran it first committed it, in microseconds since 1970.
    pub commit_us: u64,
    /// Whether `commit_us` is from the GTID event, and not the second in which the statement began.
    pub commit_is_exact: bool,
    pub xid: Option<u64>,
    pub thread_id: Option<u32>,
    /// The source's file, and where in it the transaction begins.
    pub file: String,
    pub position: u64,
    /// The event that begins its rows, and its last one.
    pub begin_event: EventPlace,
    pub end_event: EventPlace,
    /// The part of the log, as offsets: (start, end].
    pub start: u64,
    pub end: u64,
}

impl Transaction {
    /// The time of a change at the source: of the commit where the log has it, else of the statement.
    pub fn source_us(&self, timestamp: u32) -> u64 {
        if self.commit_is_exact {
            self.commit_us
        } else {
            u64::from(timestamp) * 1_000_000
        }
    }
}

/// The source's place at an offset of the relay log, as an index entry has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownPlace {
    pub offset: u64,
    pub file: String,
    pub position: u64,
}

impl KnownPlace {
    /// What is known of a file of the source itself, with whole positions.
    pub fn of_file(path: &str) -> Self {
        let file = path.rsplit('/').next().unwrap_or(path).to_owned();
        Self { offset: 0, file, position: 0 }
    }
}

impl From<(u64, String, u64)> for KnownPlace {
    fn from((offset, file, position): (u64, String, u64)) -> Self {
        Self { offset, file, position }
    }
}

/// A part of the log: of one file, between two transactions.
#[derive(Debug, Clone)]
pub struct Part {
    pub file: SegmentFile,
    /// The offset of the file's first byte.
    pub base: u64,
    /// Positions in the file. `end` None: the file's end.
    pub start: u64,
    pub end: Option<u64>,
    /// Of a relay log: in order of offsets. The first is at or before the part's start, the last at or behind
    /// its end.
    pub known: Vec<KnownPlace>,
}

/// The tables that are asked for.
#[derive(Debug, Clone, Default)]
pub struct Selection {
    /// Empty: all but those of the server itself.
    pub tables: HashSet<(String, String)>,
    /// The databases of the server itself.
    pub of_the_server: &'static [&'static str],
}

impl Selection {
    pub fn has(&self, database: &[u8], table: &[u8]) -> bool {
        if self.tables.is_empty() {
            return !self.of_the_server.iter().any(|one| one.as_bytes() == database);
        }
        let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
        self.tables.contains(&(text(database), text(table)))
    }
}

/// A statement that may define tables, or change rows without row events.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoggedStatement {
    pub database: String,
    pub sql: String,
    /// The type of the event if it is no statement at all.
    pub event: Option<u8>,
    pub timestamp: u32,
    pub server_id: u32,
    pub sql_mode: Option<u64>,
    /// See [`Status::server_charset`].
    pub server_charset: Option<&'static str>,
    /// The event's first byte in the source's file.
    pub position: u64,
    pub end_position: u64,
}

#[derive(Debug, Clone)]
pub struct Survey {
    pub transaction: Transaction,
    pub statements: Vec<LoggedStatement>,
    /// Number of the last row event with rows of a wanted table; None: there are none.
    pub last_rows: Option<u64>,
    /// Numbers of row events that were taken back: (first, last].
    pub taken_back: Vec<(u64, u64)>,
    pub part: Arc<Part>,
    /// Positions in the file.
    pub start: u64,
    pub end: u64,
    pub prepares: Option<String>,
    pub commits: Option<String>,
    pub rolls_back: Option<String>,
}

impl Survey {
    /// Of a log whose transactions are whole, and of which nothing was taken back. `ends`: positions in the
    /// file.
    pub fn plain(
        transaction: Transaction,
        statements: Vec<LoggedStatement>,
        last_rows: Option<u64>,
        part: Arc<Part>,
        ends: (u64, u64),
    ) -> Self {
        Self {
            transaction,
            statements,
            last_rows,
            taken_back: Vec::new(),
            part,
            start: ends.0,
            end: ends.1,
            prepares: None,
            commits: None,
            rolls_back: None,
        }
    }
}

/// A place in the walk over a transaction. The default is its begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Walked {
    pub position: u64,
    /// Of the last event before it.
    pub number: u64,
}
