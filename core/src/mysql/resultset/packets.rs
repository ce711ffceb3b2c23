//! Packets of the protocol: length (3 bytes), number (1), payload.

use super::error::Result;
use crate::error::DecodeError;

const HEADER: usize = 4;
/// A packet of this length is followed by another one that continues it.
pub(super) const PACKET_MAX: usize = 0xff_ffff;
/// The server's own limit of a row (max_allowed_packet) is 1 GiB.
const ROW_BYTES_MAX: usize = (1 << 30) + PACKET_MAX;
/// Memory that is kept for the next row after a large one.
const KEPT_BYTES: usize = 1 << 20;

/// Cuts bytes into packets. A payload is copied only if its packet is incomplete or it continues in another
/// packet.
#[derive(Default)]
pub(super) struct Packets {
    /// Bytes of an incomplete packet, with its header.
    pub(super) partial: Vec<u8>,
    /// Payload of the packets that it continues.
    whole: Vec<u8>,
    continued: bool,
    number: u8,
    /// Number of bytes taken so far.
    pub(super) offset: u64,
}

impl Packets {
    /// Takes bytes from `data` up to the end of a packet, or all of them. Calls `hand` for a complete
    /// payload.
    pub(super) fn next(
        &mut self,
        data: &mut &[u8],
        hand: impl FnOnce(&[u8], u64) -> Result<()>,
    ) -> Result<()> {
        if self.partial.is_empty() {
            if let Some(length) = packet_length(data) {
                if let Some(packet) = data.get(..HEADER + length) {
                    *data = &data[HEADER + length..];
                    return self.complete(packet, hand);
                }
            }
        }
        if self.partial.len() < HEADER {
            self.copy(data, HEADER - self.partial.len());
        }
        let Some(length) = packet_length(&self.partial) else { return Ok(()) };
        self.copy(data, HEADER + length - self.partial.len());
        if self.partial.len() < HEADER + length {
            return Ok(());
        }
        let mut packet = std::mem::take(&mut self.partial);
        let result = self.complete(&packet, hand);
        packet.clear();
        packet.shrink_to(KEPT_BYTES);
        self.partial = packet;
        result
    }

    fn copy(&mut self, data: &mut &[u8], wanted: usize) {
        let (taken, rest) = data.split_at(wanted.min(data.len()));
        self.partial.extend_from_slice(taken);
        *data = rest;
    }

    fn complete(&mut self, packet: &[u8], hand: impl FnOnce(&[u8], u64) -> Result<()>) -> Result<()> {
        let offset = self.offset + HEADER as u64;
        self.number = self.number.wrapping_add(1);
        if packet[3] != self.number {
            let reason = format!("packet number {}, where {} should come", packet[3], self.number);
            return Err(DecodeError::new(reason, self.offset).into());
        }
        self.offset += packet.len() as u64;
        let payload = &packet[HEADER..];
        let goes_on = payload.len() == PACKET_MAX;
        if !self.continued && !goes_on {
            return hand(payload, offset);
        }
        if self.whole.len() + payload.len() > ROW_BYTES_MAX {
            return Err(DecodeError::new("a row of more than 1 GiB", offset).into());
        }
        self.whole.extend_from_slice(payload);
        self.continued = goes_on;
        if goes_on {
            return Ok(());
        }
        let result = hand(&self.whole, offset + payload.len() as u64 - self.whole.len() as u64);
        self.whole.clear();
        self.whole.shrink_to(KEPT_BYTES);
        result
    }
}

fn packet_length(bytes: &[u8]) -> Option<usize> {
    match bytes {
        [low, middle, high, _, ..] => Some(u32::from_le_bytes([*low, *middle, *high, 0]) as usize),
        _ => None,
    }
}
