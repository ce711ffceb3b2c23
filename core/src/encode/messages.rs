//! Messages in one piece of memory: value and key of each, one behind the other.

use crate::column::encode::write_base64;

/// What a message is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum About {
    /// Rows of the table with this number (`LogEncoder::table`).
    Table(u32),
    /// The begin or the end of a transaction.
    Transaction,
}

#[derive(Debug, Clone, Copy)]
pub struct Entry {
    pub about: About,
    start: usize,
    /// End of the value and begin of the key.
    middle: usize,
    end: usize,
    has_key: bool,
    has_value: bool,
    /// Offset of the change in the log.
    pub sequence: u64,
    /// Decides the partition (`routing`). None: the key does.
    hash: Option<u32>,
}

#[derive(Debug, Default)]
pub struct Messages {
    pub bytes: Vec<u8>,
    pub entries: Vec<Entry>,
}

/// A message. Without a value it is a tombstone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Message<'a> {
    pub about: About,
    pub key: Option<&'a [u8]>,
    pub value: Option<&'a [u8]>,
    pub sequence: u64,
    pub hash: Option<u32>,
}

impl Messages {
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Begins a message. Its value is what is now appended to `bytes`.
    #[inline]
    pub fn start(&self) -> usize {
        self.bytes.len()
    }

    /// Ends the message that began at `start`: what is behind `middle` is the key.
    #[inline]
    pub fn finish(&mut self, about: About, start: usize, middle: usize, sequence: u64) {
        let end = self.bytes.len();
        self.entries.push(Entry {
            about,
            start,
            middle,
            end,
            has_key: middle < end,
            has_value: start < middle,
            sequence,
            hash: None,
        });
    }

    /// Gives the messages of rows from the number `first` on their hash.
    #[inline]
    pub fn mark(&mut self, first: usize, hash: Option<u32>) {
        if hash.is_some() {
            for entry in self.entries.get_mut(first..).unwrap_or_default() {
                entry.hash = hash;
            }
        }
    }

    pub fn get(&self, index: usize) -> Option<Message<'_>> {
        let entry = self.entries.get(index)?;
        Some(Message {
            about: entry.about,
            key: entry.has_key.then(|| &self.bytes[entry.middle..entry.end]),
            value: entry.has_value.then(|| &self.bytes[entry.start..entry.middle]),
            sequence: entry.sequence,
            hash: entry.hash,
        })
    }

    /// The messages as lines, `keys`: each with its key and a tab before the value. A tombstone has no value.
    /// `base64`: keys and values are written so.
    pub fn lines(&self, keys: bool, base64: bool) -> Vec<u8> {
        let write = |bytes: Option<&[u8]>, lines: &mut Vec<u8>| match base64 {
            true => write_base64(bytes.unwrap_or_default(), 0, lines),
            false => lines.extend_from_slice(bytes.unwrap_or_default()),
        };
        let mut lines = Vec::with_capacity(self.bytes.len() + 2 * self.entries.len());
        for index in 0..self.entries.len() {
            let Some(message) = self.get(index) else { continue };
            if keys {
                write(message.key, &mut lines);
                lines.push(b'\t');
            } else if message.value.is_none() {
                continue;
            }
            write(message.value, &mut lines);
            lines.push(b'\n');
        }
        lines
    }

    /// Gives back memory that is not used.
    pub fn shrink(&mut self) {
        self.bytes.shrink_to_fit();
        self.entries.shrink_to_fit();
    }

    pub fn clear(&mut self) {
        self.bytes.clear();
        self.entries.clear();
    }
}
