//! Writes single values in the forms that [`form`](crate::wire::form) says.

use std::net::{Ipv4Addr, Ipv6Addr};

use crate::network::Network;
use crate::temporal::{Date, DateTime, Time};
use crate::wire::OPEN_TEXT;

/// Stands for the zero date among microseconds: see `WireType::Instant`.
pub const ZERO_DATE: i64 = i64::MIN;

pub fn append_bytes(bytes: &[u8], out: &mut Vec<u8>) -> Option<()> {
    out.extend_from_slice(&u32::try_from(bytes.len()).ok()?.to_le_bytes());
    out.extend_from_slice(bytes);
    Some(())
}

/// Writes what `write` appends with its length before it.
pub fn append_prefixed(out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>) -> Option<()>) -> Option<()> {
    let start = out.len();
    out.extend_from_slice(&[0; 4]);
    write(out)?;
    let length = u32::try_from(out.len() - start - 4).ok()?;
    out[start..start + 4].copy_from_slice(&length.to_le_bytes());
    Some(())
}

fn append_fraction(micros: u32, fsp: u8, out: &mut Vec<u8>) {
    match fsp {
        0 => {}
        1 | 2 => out.push((micros / 10_000) as u8),
        3 | 4 => out.extend_from_slice(&((micros / 100) as u16).to_be_bytes()),
        _ => out.extend_from_slice(&micros.to_be_bytes()[1..]),
    }
}

/// Appends a value in an open form (`WireType::Open`). `text`: appends the text instead, if the usual form
/// cannot have the value; returns whether it is such a value.
pub fn append_open<E>(
    out: &mut Vec<u8>,
    usual: impl FnOnce(&mut Vec<u8>) -> Result<(), E>,
    text: impl FnOnce(&mut Vec<u8>) -> Result<bool, E>,
) -> Result<(), E> {
    let start = out.len() + 1;
    out.push(0);
    if let Err(error) = usual(out) {
        out.truncate(start);
        if !text(out)? {
            return Err(error);
        }
        out.resize(out.len().max(start + OPEN_TEXT), b' ');
    }
    out[start - 1] = (out.len() - start) as u8;
    Ok(())
}

pub fn append_date(value: Date, out: &mut Vec<u8>) {
    let Date { year, month, day } = value;
    let bits = u32::from(year) << 9 | u32::from(month) << 5 | u32::from(day);
    out.extend_from_slice(&bits.to_le_bytes()[..3]);
}

pub fn append_datetime(value: DateTime, fsp: u8, out: &mut Vec<u8>) {
    let DateTime { date, hour, minute, second, micros } = value;
    let months = u64::from(date.year) * 13 + u64::from(date.month);
    let day = months << 5 | u64::from(date.day);
    let clock = u64::from(hour) << 12 | u64::from(minute) << 6 | u64::from(second);
    let bits = 1 << 39 | day << 17 | clock;
    out.extend_from_slice(&bits.to_be_bytes()[3..]);
    append_fraction(micros, fsp, out);
}

pub fn append_time(value: Time, fsp: u8, out: &mut Vec<u8>) {
    let fraction_bytes = usize::from(fsp.div_ceil(2));
    let whole = i64::from(value.hours) << 12 | i64::from(value.minutes) << 6 | i64::from(value.seconds);
    let fraction = i64::from(value.micros / [1_000_000, 10_000, 100, 1][fraction_bytes]);
    let magnitude = whole << (8 * fraction_bytes) | fraction;
    let bits = if value.negative { -magnitude } else { magnitude } + (1 << (23 + 8 * fraction_bytes));
    out.extend_from_slice(&bits.to_be_bytes()[5 - fraction_bytes..]);
}

/// From the text of SELECT to the bytes of the log: see `Network`.
pub fn append_network(network: Network, text: &str, out: &mut Vec<u8>) -> Option<()> {
    match network {
        Network::Inet4 => out.extend_from_slice(&text.parse::<Ipv4Addr>().ok()?.octets()),
        Network::Inet6 => out.extend_from_slice(&text.parse::<Ipv6Addr>().ok()?.octets()),
        Network::Uuid => {
            let digits = text.bytes().filter(|byte| *byte != b'-').collect::<Vec<_>>();
            let plain = u128::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()?.to_be_bytes();
            Network::append_uuid(plain, out);
        }
    }
    Some(())
}

/// Bits of which the first is the lowest one of the first byte.
pub fn put_bits(bits: impl Iterator<Item = bool>, out: &mut Vec<u8>) {
    let start = out.len();
    for (index, bit) in bits.enumerate() {
        if index % 8 == 0 {
            out.push(0);
        }
        out[start + index / 8] |= u8::from(bit) << (index % 8);
    }
}
