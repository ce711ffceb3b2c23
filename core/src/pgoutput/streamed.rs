//! Transactions that the server sends while they run: `streaming` of protocol version 2
//! (https://www.postgresql.org/docs/current/protocol-logicalrep-message-formats.html).
//!
//! The pieces of each are kept in a file. When the transaction commits, its messages are given as if all
//! of them came then, which is what version 1 sends: begin, changes, commit. The file has them in the frames
//! of the connection. Three fields of a frame, of which nobody needs the server's values, say other things
//! there:
//!
//! | bytes | |
//! |---|---|
//! | 8 | where the run before begins. A run are messages of one subtransaction, one after the other |
//! | 4 | the id of the subtransaction |
//! | 4 | how many descriptions of tables had come before |
//!
//! **A subtransaction that is rolled back** takes everything from its first message on with it. It ends
//! where the file ends: what came after it began is its own, or of subtransactions inside it, whose ids are
//! greater; and the one around it, whose id is less, does nothing meanwhile. So runs are cut off at the end
//! of the file as long as their ids are not less. No list of subtransactions is kept, of which there may be
//! millions. Messages of programs (`M`) would break this, because they have the id of the whole transaction:
//! they are not kept, and no table has them.
//!
//! **A description of a table** in a piece holds inside its transaction, and behind it if the transaction is
//! not rolled back: then the server does not send it again. But if the server has sent another one after it,
//! outside, that one holds behind the transaction. So it is given once more.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use super::arrivals::{Arrivals, Batch, MESSAGE_HEAD};
use crate::cursor::Cursor;
use crate::error::{DecodeError, Result};

/// Transactions that may be open. A server has less processes that could have one (`MAX_BACKENDS`).
const OPEN_MAX: usize = 1 << 18;
/// Bytes that are read of a file at once.
const READ_BYTES: usize = 4 << 20;
/// A frame up to its message.
const FRAME_HEAD: usize = 5 + MESSAGE_HEAD;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Control {
    Start { xid: u32, is_first: bool },
    Stop,
    Commit { xid: u32, flags: u8, commit_lsn: u64, end_lsn: u64, time: u64 },
    Abort { xid: u32, subxid: u32 },
}

impl Control {
    /// None: a message of another kind.
    fn parse(bytes: &[u8], lsn: u64) -> Result<Option<Self>> {
        let mut cursor = Cursor::new(bytes, lsn);
        let kind = cursor.u8("kind of message")?;
        let found = match kind {
            b'S' => Self::Start { xid: id(&mut cursor)?, is_first: cursor.u8("flag of a stream")? != 0 },
            b'E' => Self::Stop,
            b'c' => Self::Commit {
                xid: id(&mut cursor)?,
                flags: cursor.u8("flags")?,
                commit_lsn: cursor.uint_be(8, "log position")?,
                end_lsn: cursor.uint_be(8, "log position")?,
                time: cursor.uint_be(8, "time")?,
            },
            b'A' => Self::Abort { xid: id(&mut cursor)?, subxid: id(&mut cursor)? },
            _ => return Ok(None),
        };
        match cursor.remaining() {
            0 => Ok(Some(found)),
            more => Err(cursor.fail(format!("{more} bytes behind a message"))),
        }
    }
}

fn id(cursor: &mut Cursor<'_>) -> Result<u32> {
    Ok(cursor.uint_be(4, "transaction id")? as u32)
}

/// Whether a transaction's id was given before another one's. Ids begin again after the last one.
fn is_before(xid: u32, other: u32) -> bool {
    (xid.wrapping_sub(other) as i32) < 0
}

/// What stands in a frame beside its message.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Beside {
    /// Where the run before begins.
    back: u64,
    subxid: u32,
    described: u32,
}

impl Beside {
    /// `bytes`: what is before a message, at least its last 16 bytes.
    fn parse(bytes: &[u8]) -> Option<Self> {
        let (rest, described) = bytes.split_last_chunk()?;
        let (rest, subxid) = rest.split_last_chunk()?;
        let (_, back) = rest.split_last_chunk()?;
        Some(Self {
            back: u64::from_be_bytes(*back),
            subxid: u32::from_be_bytes(*subxid),
            described: u32::from_be_bytes(*described),
        })
    }
}

/// Appends a frame. The message is `kind` and `rest`.
fn append(out: &mut Vec<u8>, lsn: u64, beside: Beside, kind: u8, rest: &[&[u8]]) {
    let length = 4 + MESSAGE_HEAD + 1 + rest.iter().map(|part| part.len()).sum::<usize>();
    out.push(b'd');
    out.extend_from_slice(&(length as u32).to_be_bytes());
    out.push(b'w');
    out.extend_from_slice(&lsn.to_be_bytes());
    out.extend_from_slice(&beside.back.to_be_bytes());
    out.extend_from_slice(&beside.subxid.to_be_bytes());
    out.extend_from_slice(&beside.described.to_be_bytes());
    out.push(kind);
    rest.iter().for_each(|part| out.extend_from_slice(part));
}

/// A transaction whose end has not come. Its size is all that is counted of it in memory.
#[derive(Default)]
struct Open {
    /// The bytes of the file that count.
    size: u64,
    /// Where the last run begins, and its first frame.
    run: u64,
    of_run: Beside,
    /// Whether a program has put a message into it. Then it is in the log, even without rows.
    has_message: bool,
}

impl Open {
    fn add(&mut self, out: &mut Vec<u8>, lsn: u64, subxid: u32, described: u32, message: (u8, &[u8])) {
        let at = self.size + out.len() as u64;
        if at == 0 || subxid != self.of_run.subxid {
            self.of_run = Beside { back: if at == 0 { 0 } else { self.run }, subxid, described };
            self.run = at;
        }
        append(out, lsn, Beside { described, ..self.of_run }, message.0, &[message.1]);
    }

    /// Cuts off what a subtransaction did that is rolled back.
    fn cut(&mut self, subxid: u32, file: &File) -> io::Result<()> {
        while self.size > 0 && !is_before(self.of_run.subxid, subxid) {
            self.size = self.run;
            if self.size > 0 {
                let mut head = [0; FRAME_HEAD];
                self.run = self.of_run.back;
                file.read_exact_at(&mut head, self.run)?;
                self.of_run = Beside::parse(&head).unwrap_or_default();
            }
        }
        Ok(())
    }
}

/// Gives the messages of a transaction that has committed.
struct Committed {
    xid: u32,
    file: File,
    at: u64,
    size: u64,
    arrivals: Arrivals,
    /// The frame of the commit. Empty: it was given.
    commit: Vec<u8>,
    /// The descriptions that were given, by relations, and how many had come before each.
    descriptions: HashMap<u32, (u32, Vec<u8>)>,
}

impl Committed {
    fn next(&mut self) -> Failing<Option<Batch>> {
        while self.arrivals.is_empty() {
            if self.at < self.size {
                let mut block = vec![0; READ_BYTES.min((self.size - self.at) as usize)];
                self.file.read_exact_at(&mut block, self.at)?;
                self.at += block.len() as u64;
                self.arrivals.feed(&block)?;
            } else if !self.commit.is_empty() {
                let commit = std::mem::take(&mut self.commit);
                self.arrivals.feed(&commit)?;
            } else {
                return Ok(None);
            }
        }
        let batch = self.arrivals.take();
        for (message, head) in batch.messages().map(|(_, bytes)| bytes).zip(batch.heads()) {
            if let (Some(relation), Some(beside)) = (described(message), Beside::parse(head)) {
                self.descriptions.insert(relation, (beside.described, message.to_owned()));
            }
        }
        Ok(Some(batch))
    }
}

/// The relation that a message describes.
fn described(message: &[u8]) -> Option<u32> {
    match message.split_first()? {
        (b'R', rest) => rest.first_chunk().map(|id| u32::from_be_bytes(*id)),
        _ => None,
    }
}

/// Why a transaction cannot be kept, or be read.
#[derive(Debug)]
pub enum Failed {
    Decode(DecodeError),
    Io(io::Error),
}

type Failing<T> = std::result::Result<T, Failed>;

impl From<DecodeError> for Failed {
    fn from(error: DecodeError) -> Self {
        Self::Decode(error)
    }
}

impl From<io::Error> for Failed {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// A part of what has come.
pub enum Part {
    /// All of it: nothing is of a transaction that runs.
    Whole,
    /// Messages that hold now. They have no `end`.
    Messages(Batch),
}

/// The transactions of one connection that are sent while they run.
pub struct Streams {
    folder: PathBuf,
    open: HashMap<u32, Open>,
    /// The transaction of which a piece is coming, and its file.
    piece: Option<(u32, File)>,
    /// What the files do not have yet of the piece.
    held: Vec<u8>,
    committed: Option<Committed>,
    /// How many descriptions of tables have come.
    described: u32,
    /// The last description of each relation that has come outside of open transactions since the first of
    /// these, and how many had come before it.
    outside: HashMap<u32, (u32, Vec<u8>)>,
}

impl Streams {
    /// `folder`: of the files.
    pub fn new(folder: PathBuf) -> Self {
        Self {
            folder,
            open: HashMap::new(),
            piece: None,
            held: Vec::new(),
            committed: None,
            described: 0,
            outside: HashMap::new(),
        }
    }

    /// Deletes what is kept. Nothing of it is needed by another connection: the server sends transactions
    /// that are open again, from their beginning.
    pub fn clear(&mut self) -> io::Result<()> {
        *self = Self::new(std::mem::take(&mut self.folder));
        match fs::remove_dir_all(&self.folder) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// How many transactions are open, and the bytes that are kept of them.
    pub fn kept(&self) -> (usize, u64) {
        (self.open.len(), self.open.values().map(|one| one.size).sum())
    }

    /// The next part of a batch. `at`: the number of the first message that is not in a part. None: that was
    /// all of it.
    pub fn next(&mut self, batch: &Batch, at: &mut usize) -> Failing<Option<Part>> {
        loop {
            if let Some(part) = self.next_committed()? {
                return Ok(Some(Part::Messages(part)));
            }
            let (first, mut now) = (*at, Vec::new());
            for (lsn, message) in batch.messages().skip(first) {
                if !now.is_empty() && message.first() == Some(&b'c') {
                    break; // what has come before it holds before it
                }
                if self.take(lsn, message)? {
                    now.push(*at);
                }
                *at += 1;
                if self.committed.is_some() {
                    break;
                }
            }
            self.flush()?;
            match now.len() {
                0 if self.committed.is_none() => return Ok(None),
                0 => {}
                count if count == batch.count() => return Ok(Some(Part::Whole)),
                _ => return Ok(Some(Part::Messages(batch.chosen(&now).without_end()))),
            }
        }
    }

    /// Whether a message holds now. Else it is kept, or does something to what is kept.
    fn take(&mut self, lsn: u64, message: &[u8]) -> Failing<bool> {
        let control = Control::parse(message, lsn)?;
        let fail = |reason: &str| Err(Failed::Decode(DecodeError::new(reason, lsn)));
        match (control, self.piece.is_some()) {
            (None, false) => {
                if let Some(relation) = described(message) {
                    self.described = self.described.wrapping_add(1);
                    if !self.open.is_empty() {
                        self.outside.insert(relation, (self.described, message.to_owned()));
                    }
                }
                return Ok(true);
            }
            (None, true) => self.keep(lsn, message)?,
            (Some(Control::Start { xid, is_first }), false) => self.start(lsn, xid, is_first)?,
            (Some(Control::Stop), true) => {
                self.flush()?;
                self.piece = None;
            }
            (Some(Control::Abort { xid, subxid }), false) => self.abort(xid, subxid)?,
            (Some(Control::Commit { xid, flags, commit_lsn, end_lsn, time }), false) => {
                let Some(open) = self.open.remove(&xid) else {
                    return fail("the end of a transaction that has not begun");
                };
                let (mut begin, mut commit, none) = (Vec::new(), Vec::new(), Beside::default());
                let place = [commit_lsn.to_be_bytes(), end_lsn.to_be_bytes(), time.to_be_bytes()];
                append(&mut begin, lsn, none, b'B', &[&place[0], &place[2], &xid.to_be_bytes()]);
                append(&mut commit, lsn, none, b'C', &[&[flags], &place[0], &place[1], &place[2]]);
                self.commit(xid, &open, &begin, commit)?;
            }
            (Some(Control::Stop), false) => return fail("the end of a piece that has not begun"),
            (Some(_), true) => return fail("a piece of a transaction that does not end"),
        }
        Ok(false)
    }

    fn start(&mut self, lsn: u64, xid: u32, is_first: bool) -> Failing<()> {
        if self.open.is_empty() {
            self.outside.clear();
        }
        if is_first {
            self.open.insert(xid, Open::default());
        } else if !self.open.contains_key(&xid) {
            return Err(DecodeError::new("a piece of a transaction that has not begun", lsn).into());
        }
        if self.open.len() > OPEN_MAX {
            return Err(DecodeError::new(format!("more than {OPEN_MAX} open transactions"), lsn).into());
        }
        fs::create_dir_all(&self.folder)?;
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create(true).truncate(is_first).open(self.path(xid))?;
        self.piece = Some((xid, file));
        Ok(())
    }

    /// Keeps a message of the piece, without the id that is in it.
    fn keep(&mut self, lsn: u64, message: &[u8]) -> Failing<()> {
        let Some((xid, _)) = &self.piece else { return Ok(()) };
        let Some(open) = self.open.get_mut(xid) else { return Ok(()) };
        let mut cursor = Cursor::new(message, lsn);
        match cursor.u8("kind of message")? {
            kind @ (b'I' | b'U' | b'D' | b'T' | b'R' | b'Y') => {
                let subxid = id(&mut cursor)?;
                if kind == b'R' {
                    self.described = self.described.wrapping_add(1);
                }
                open.add(&mut self.held, lsn, subxid, self.described, (kind, cursor.rest()));
                if self.held.len() >= READ_BYTES {
                    self.flush()?;
                }
            }
            b'M' => open.has_message = true,
            b'O' => {}
            _ => return Err(cursor.fail("a message that cannot be in a piece of a transaction").into()),
        }
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        if let Some((xid, file)) = self.piece.as_ref().filter(|_| !self.held.is_empty()) {
            if let Some(open) = self.open.get_mut(xid) {
                file.write_all_at(&self.held, open.size)?;
                open.size += self.held.len() as u64;
            }
            self.held.clear();
        }
        Ok(())
    }

    fn abort(&mut self, xid: u32, subxid: u32) -> io::Result<()> {
        match self.open.get_mut(&xid) {
            Some(open) if xid != subxid => open.cut(subxid, &File::open(self.folder.join(name(xid)))?),
            Some(_) => {
                self.open.remove(&xid);
                fs::remove_file(self.path(xid))
            }
            None => Ok(()), // nothing is kept of it
        }
    }

    fn commit(&mut self, xid: u32, open: &Open, begin: &[u8], commit: Vec<u8>) -> Failing<()> {
        if open.size == 0 && !open.has_message {
            return Ok(fs::remove_file(self.path(xid))?); // all of it was rolled back
        }
        let (file, size) = (File::open(self.path(xid))?, open.size);
        let mut arrivals = Arrivals::default();
        arrivals.feed(begin)?;
        let descriptions = HashMap::new();
        self.committed = Some(Committed { xid, file, at: 0, size, arrivals, commit, descriptions });
        Ok(())
    }

    /// What comes next of a transaction that has committed, and behind it the descriptions that it has
    /// hidden.
    fn next_committed(&mut self) -> Failing<Option<Batch>> {
        let Some(committed) = &mut self.committed else { return Ok(None) };
        if let Some(batch) = committed.next()? {
            return Ok(Some(batch));
        }
        let (xid, given) = (committed.xid, std::mem::take(&mut committed.descriptions));
        self.committed = None;
        fs::remove_file(self.path(xid))?;
        let (mut hidden, mut frames) = (Arrivals::default(), Vec::new());
        for (relation, (number, message)) in given {
            match self.outside.get(&relation) {
                Some((later, other)) if is_before(number, *later) => {
                    if let Some((kind, rest)) = other.split_first().filter(|_| *other != message) {
                        append(&mut frames, 0, Beside::default(), *kind, &[rest]);
                    }
                }
                _ if self.open.is_empty() => {}
                _ => _ = self.outside.insert(relation, (number, message)),
            }
        }
        hidden.feed(&frames)?;
        Ok((!frames.is_empty()).then(|| hidden.take()))
    }

    fn path(&self, xid: u32) -> PathBuf {
        self.folder.join(name(xid))
    }
}

fn name(xid: u32) -> String {
    format!("{xid}.messages")
}

#[cfg(test)]
mod tests;
