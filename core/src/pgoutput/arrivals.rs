//! What comes over a replication connection
//! (https://www.postgresql.org/docs/current/protocol-replication.html).
//!
//! Bytes are fed as they were read, in any pieces. Messages stay where they were put, and are not copied one
//! by one: a log of small rows has 100,000 of them in a second.

use crate::cursor::Cursor;
use crate::error::{DecodeError, Result};

const FRAME_HEAD: usize = 5;
/// The server's own limit of an allocation is 1 GiB.
const FRAME_MAX: usize = 1 << 30;
/// Kind, first and last position, time: what is before a message of the log.
pub const MESSAGE_HEAD: usize = 25;

/// What came together.
#[derive(Debug, Default)]
pub struct Batch {
    bytes: Vec<u8>,
    /// Of each message its position in the log, and where its bytes are.
    messages: Vec<(u64, usize, usize)>,
    /// The server has sent everything up to there.
    pub end: u64,
    /// The server wants an answer at once.
    pub asked: bool,
    /// Messages of the protocol that are not of the log: their kinds and contents.
    pub others: Vec<(u8, Vec<u8>)>,
    /// Whether any message has come.
    pub has_come: bool,
}

impl Batch {
    pub fn messages(&self) -> impl Iterator<Item = (u64, &[u8])> {
        self.messages.iter().map(|(lsn, from, to)| (*lsn, &self.bytes[*from..*to]))
    }

    pub fn count(&self) -> usize {
        self.messages.len()
    }

    /// Only these messages, by their numbers. Numbers that there are not are left out.
    pub fn chosen(&self, numbers: &[usize]) -> Self {
        let mut found = Self { end: self.end, asked: self.asked, has_come: self.has_come, ..Self::default() };
        for (lsn, from, to) in numbers.iter().filter_map(|number| self.messages.get(*number)) {
            let start = found.bytes.len();
            found.bytes.extend_from_slice(&self.bytes[*from..*to]);
            found.messages.push((*lsn, start, found.bytes.len()));
        }
        found
    }

    pub fn size(&self) -> usize {
        self.bytes.len()
    }

    /// What came before each message, as far as it is there.
    pub fn heads(&self) -> impl Iterator<Item = &[u8]> {
        self.messages.iter().map(|(_, from, _)| &self.bytes[from.saturating_sub(MESSAGE_HEAD)..*from])
    }

    /// The same messages, without what the server has said of how far they go.
    pub fn without_end(self) -> Self {
        Self { end: 0, asked: false, ..self }
    }
}

#[derive(Default)]
pub struct Arrivals {
    batch: Batch,
    /// Where the first message begins that has not come as a whole.
    rest: usize,
}

impl Arrivals {
    pub fn feed(&mut self, data: &[u8]) -> Result<()> {
        self.batch.bytes.extend_from_slice(data);
        while let Some((kind, end)) = frame(&self.batch.bytes[self.rest..])? {
            let (from, to) = (self.rest + FRAME_HEAD, self.rest + end);
            self.rest = to;
            self.batch.has_come = true;
            match kind {
                b'd' => self.take_data(from, to)?,
                _ => self.batch.others.push((kind, self.batch.bytes[from..to].to_owned())),
            }
        }
        Ok(())
    }

    /// Whether nothing has come as a whole.
    pub fn is_empty(&self) -> bool {
        !self.batch.has_come
    }

    pub fn size(&self) -> usize {
        self.batch.size()
    }

    /// What has come as a whole since the last time.
    pub fn take(&mut self) -> Batch {
        let mut batch = std::mem::take(&mut self.batch);
        self.batch.bytes = batch.bytes.split_off(self.rest);
        self.rest = 0;
        batch
    }

    fn take_data(&mut self, from: usize, to: usize) -> Result<()> {
        let batch = &mut self.batch;
        let mut data = Cursor::new(&batch.bytes[from..to], 0);
        match data.u8("kind of message")? {
            b'w' => {
                let start = data.uint_be(8, "log position")?;
                data.skip(MESSAGE_HEAD - 9, "head of a message")?;
                batch.messages.push((start, from + MESSAGE_HEAD, to));
            }
            b'k' => {
                batch.end = batch.end.max(data.uint_be(8, "log position")?);
                data.skip(8, "time")?;
                batch.asked |= data.u8("flag")? != 0;
            }
            other => return Err(data.fail(format!("a server does not send {other:#04x} with its log"))),
        }
        Ok(())
    }
}

/// The kind and length of the first message. None: it has not come as a whole.
fn frame(bytes: &[u8]) -> Result<Option<(u8, usize)>> {
    let Some((kind, rest)) = bytes.split_first() else { return Ok(None) };
    let Some(length) = rest.first_chunk().map(|chunk| u32::from_be_bytes(*chunk) as usize) else {
        return Ok(None);
    };
    if !(FRAME_HEAD - 1..=FRAME_MAX).contains(&length) {
        return Err(DecodeError::new(format!("a message of {length} bytes"), 0));
    }
    Ok((rest.len() >= length).then_some((*kind, length + 1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn framed(kind: u8, body: &[u8]) -> Vec<u8> {
        let length = (body.len() as u32 + 4).to_be_bytes();
        [&[kind], &length[..], body].concat()
    }

    fn message(lsn: u64, body: &[u8]) -> Vec<u8> {
        framed(b'd', &[b"w", &lsn.to_be_bytes()[..], &[0; 16], body].concat())
    }

    fn keepalive(end: u64, asked: u8) -> Vec<u8> {
        framed(b'd', &[b"k", &end.to_be_bytes()[..], &[0; 8], &[asked]].concat())
    }

    /// What a batch has: messages, end, whether it was asked, others.
    type Content = (Vec<(u64, Vec<u8>)>, u64, bool, Vec<(u8, Vec<u8>)>);

    fn content(batch: &Batch) -> Content {
        let messages = batch.messages().map(|(lsn, bytes)| (lsn, bytes.to_owned())).collect();
        (messages, batch.end, batch.asked, batch.others.clone())
    }

    #[test]
    fn messages_are_the_same_however_the_bytes_were_cut() {
        let sent = [
            message(7, b"first"),
            keepalive(9, 1),
            framed(b'N', b"a notice"),
            message(11, b""),
            keepalive(8, 0),
        ]
        .concat();
        let wanted =
            (vec![(7, b"first".to_vec()), (11, Vec::new())], 9, true, vec![(b'N', b"a notice".to_vec())]);
        for cut in 1..=sent.len() {
            let mut arrivals = Arrivals::default();
            let mut found = (Vec::new(), 0, false, Vec::new());
            for piece in sent.chunks(cut) {
                arrivals.feed(piece).unwrap();
                let (messages, end, asked, others) = content(&arrivals.take());
                found.0.extend(messages);
                found.1 = found.1.max(end);
                found.2 |= asked;
                found.3.extend(others);
            }
            assert_eq!(found, wanted, "cut into {cut} bytes");
            assert!(arrivals.is_empty());
        }
    }

    #[test]
    fn chosen_messages_are_those_of_the_batch() {
        let mut arrivals = Arrivals::default();
        arrivals
            .feed(&[message(1, b"a"), message(2, b"bc"), message(3, b"d"), keepalive(4, 1)].concat())
            .unwrap();
        let chosen = arrivals.take().chosen(&[1, 2, 9]);
        let wanted = (vec![(2, b"bc".to_vec()), (3, b"d".to_vec())], 4, true, Vec::new());
        assert_eq!(content(&chosen), wanted);
    }

    #[test]
    fn what_cannot_be_read_is_an_error() {
        for bytes in [&framed(b'd', b"x")[..], &framed(b'd', b"w1")[..], b"d\0\0\0\x03", b"d\xff\xff\xff\xff"]
        {
            assert!(Arrivals::default().feed(bytes).is_err(), "{bytes:?}");
        }
    }
}
