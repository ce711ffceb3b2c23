//! TRANSACTION_PAYLOAD (40): a compressed transaction, unpacked event by event.
//!
//! Memory: the compressed event, the decoder's window and one inner event; never the whole transaction.

use std::io::{Cursor as IoCursor, Read};

use ruzstd::decoding::StreamingDecoder;

use crate::cursor::Cursor;
use crate::error::{DecodeError, Result};
use crate::mysql::event::HEADER_SIZE;

const FIELD_END: u64 = 0;
const FIELD_COMPRESSION: u64 = 2;
const COMPRESSION_ZSTD: u64 = 0;
const COMPRESSION_NONE: u64 = 255;
/// The server's own limit of an event (max_allowed_packet is at most 1 GiB, and headers).
const EVENT_LENGTH_MAX: usize = (1 << 30) + (1 << 20);

enum Input {
    Plain(IoCursor<Vec<u8>>),
    Zstd(Box<StreamingDecoder<IoCursor<Vec<u8>>, ruzstd::decoding::FrameDecoder>>),
    Spent,
}

/// The events inside one payload, in order, as the server wrote them (no checksum, `end_log_pos` 0).
pub struct Payload {
    input: Input,
    offset: u64,
    /// The end position of the payload event, which its inner events get, too.
    pub log_pos: u32,
}

impl Payload {
    /// `body`: what is between header and checksum of the payload event. `offset` is for messages.
    pub fn open(body: &[u8], log_pos: u32, offset: u64) -> Result<Payload> {
        let mut cursor = Cursor::new(body, offset);
        let mut compression = COMPRESSION_ZSTD;
        loop {
            let field = cursor.lenenc("payload field")?;
            if field == FIELD_END {
                break;
            }
            let value = cursor.take_lenenc("payload field value")?;
            if field == FIELD_COMPRESSION {
                compression = Cursor::new(value, cursor.offset()).lenenc("compression type")?;
            }
        }
        let packed = IoCursor::new(cursor.rest().to_vec());
        let input = match compression {
            COMPRESSION_ZSTD => Input::Zstd(Box::new(zstd(packed, offset)?)),
            COMPRESSION_NONE => Input::Plain(packed),
            other => {
                return Err(DecodeError::new(
                    format!("transaction payload has unknown compression {other}"),
                    offset,
                ))
            }
        };
        Ok(Payload { input, offset, log_pos })
    }

    /// Replaces `event` by the next inner event. Returns false at the end.
    pub fn next_into(&mut self, event: &mut Vec<u8>) -> Result<bool> {
        event.clear();
        if self.fill(event, HEADER_SIZE)? == 0 {
            return Ok(false);
        }
        let length = Cursor::new(&event[9..13], self.offset).u32("inner event length")? as usize;
        if !(HEADER_SIZE..=EVENT_LENGTH_MAX).contains(&length) {
            return Err(
                self.fail(format!("an event inside a transaction payload cannot be {length} bytes long"))
            );
        }
        self.fill(event, length - HEADER_SIZE)?;
        if event.len() != length {
            return Err(self.fail("an event inside a transaction payload is cut off"));
        }
        Ok(true)
    }

    /// Appends `count` bytes. Returns 0 if there are none at all. Otherwise, fewer bytes are an error.
    fn fill(&mut self, event: &mut Vec<u8>, count: usize) -> Result<usize> {
        let before = event.len();
        // In steps, so that a wrong length does not make us allocate memory for bytes that never come.
        while event.len() - before < count {
            let start = event.len();
            event.resize(start + (count - (start - before)).min(1 << 20), 0);
            let got = self.read(&mut event[start..])?;
            event.truncate(start + got);
            if got == 0 {
                break;
            }
        }
        let got = event.len() - before;
        if got != 0 && got != count {
            return Err(self.fail("a transaction payload is cut off"));
        }
        Ok(got)
    }

    fn read(&mut self, target: &mut [u8]) -> Result<usize> {
        loop {
            let (got, next) = match &mut self.input {
                Input::Spent => return Ok(0),
                Input::Plain(plain) => (plain.read(target), Input::Spent),
                Input::Zstd(decoder) => {
                    let got = decoder.read(target);
                    if !matches!(got, Ok(0)) {
                        (got, Input::Spent)
                    } else {
                        // The end of a frame. Another one may follow.
                        let inner = decoder.get_mut();
                        let at = usize::try_from(inner.position()).unwrap_or(usize::MAX);
                        let rest = inner.get_ref().get(at..).unwrap_or_default().to_vec();
                        if rest.is_empty() {
                            (Ok(0), Input::Spent)
                        } else {
                            self.input = Input::Zstd(Box::new(zstd(IoCursor::new(rest), self.offset)?));
                            continue;
                        }
                    }
                }
            };
            return match got {
                Ok(0) => {
                    self.input = next;
                    Ok(0)
                }
                Ok(count) => Ok(count),
                Err(error) => Err(self.fail(format!("a transaction payload cannot be unpacked: {error}"))),
            };
        }
    }

    #[cold]
    fn fail(&self, reason: impl Into<String>) -> DecodeError {
        DecodeError::new(reason, self.offset)
    }
}

fn zstd(
    packed: IoCursor<Vec<u8>>,
    offset: u64,
) -> Result<StreamingDecoder<IoCursor<Vec<u8>>, ruzstd::decoding::FrameDecoder>> {
    StreamingDecoder::new(packed).map_err(|error| {
        DecodeError::new(format!("a transaction payload cannot be unpacked: {error}"), offset)
    })
}
