//! Transactions on their way into the log: what becomes of one, and what the framer keeps of an XA
//! transaction whose place in the log is not known yet (`branch.rs` says why).

use crate::event::EventHeader;
use crate::log_file::LogFile;
use crate::span::Place;
use crate::xa::Prepared;

/// What becomes of the transaction whose events arrive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Fate {
    #[default]
    Store,
    /// It lies before the start of the log.
    Drop,
    /// The log has it already: it must come back as it was.
    Compare,
    /// Not known yet: it may be an XA transaction.
    Hold,
}

/// A transaction that may be an XA transaction, up to the event that shows it.
#[derive(Default)]
pub struct Held {
    /// What becomes of it if it is no XA transaction.
    pub intended: Fate,
    pub gtid_event: Vec<u8>,
    /// Its events as the source sent them, as far as they are not in the spool.
    pub bytes: Vec<u8>,
    /// Where it begins in the spool file, and how many of its bytes are there.
    pub spooled: Option<(u64, u64)>,
    pub is_xa: bool,
    pub xid: Option<String>,
    /// Where the source stood before it.
    pub source: Place,
}

/// The spool file that is written now.
pub struct Spool {
    pub name: String,
    /// Its length.
    pub position: u64,
    /// The FORMAT_DESCRIPTION that it begins with.
    pub format: Vec<u8>,
}

/// Events on their way from the spool into the log.
pub struct Replay {
    pub prepared: Prepared,
    /// None: not opened yet.
    pub file: Option<LogFile>,
    /// Of the next event.
    pub position: u64,
    /// The XA COMMIT whose transaction they become; None: they are stored as they were sent.
    pub commit: Option<(EventHeader, Vec<u8>)>,
}
