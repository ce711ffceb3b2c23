//! Transactions that arrive from the source: whether each is stored, and what the framer remembers of one
//! that may be an XA transaction, whose place in the log is not known yet (`branch.rs` says why).

use crate::framing::Prepared;
use crate::mysql::event::EventHeader;
use crate::mysql::log_file::LogFile;
use crate::mysql::place::Place;

/// What happens to the transaction whose events arrive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Fate {
    #[default]
    Store,
    /// It is before the start of the log.
    Drop,
    /// The log has it already: its events must be the same as before.
    Compare,
    /// Not known yet, because it may be an XA transaction.
    Undecided,
}

/// A transaction that may be an XA transaction. The end of it, or an earlier event, decides.
#[derive(Default)]
pub struct UndecidedTransaction {
    /// What happens to it if it is no XA transaction.
    pub intended: Fate,
    pub gtid_event: Vec<u8>,
    /// Its events as the source sent them, without those that are in the spool.
    pub bytes: Vec<u8>,
    /// Its start in the spool file, and the number of its bytes there.
    pub spooled: Option<(u64, u64)>,
    pub is_xa: bool,
    pub xid: Option<String>,
    /// The source's position before it.
    pub source: Place,
}

/// The spool file that is written now.
pub struct Spool {
    pub name: String,
    /// The file's length.
    pub position: u64,
    /// The FORMAT_DESCRIPTION that it begins with.
    pub format: Vec<u8>,
}

/// Events on their way from the spool into the log.
pub struct Replay {
    pub prepared: Prepared,
    /// None: the spool file is not open yet.
    pub file: Option<LogFile>,
    /// The position of the next event in the file.
    pub position: u64,
    /// The XA COMMIT whose transaction the events become. None: they are stored as they were sent.
    pub commit: Option<(EventHeader, Vec<u8>)>,
}
