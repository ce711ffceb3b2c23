//! GTIDs and sets of them as text, in the server's form.

use std::fmt;
use std::str::FromStr;

use super::{insert, is_tag, Gtid, GtidSet, Origin, NUMBER_MAX};
use crate::error::{DecodeError, Result};

/// The error for text that is neither a GTID nor a set of them.
fn unreadable(text: &str) -> DecodeError {
    let shown: String = text.chars().take(100).collect();
    DecodeError::new(
        format!("{shown:?} is not a GTID set; it looks like UUID:1-5:7,UUID:tag:1 or 0-1-100"),
        0,
    )
}

impl FromStr for GtidSet {
    type Err = DecodeError;

    /// `uuid:1-5:7,uuid:tag:1-3`; white space, upper case and repetitions are allowed, as in the server.
    fn from_str(text: &str) -> Result<GtidSet> {
        let mut set = GtidSet::default();
        for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            if let Ok(gtid) = part.parse() {
                set.domains.add(gtid);
                continue;
            }
            let mut fields = part.split(':').map(str::trim);
            let uuid = fields.next().and_then(parse_uuid).ok_or_else(|| unreadable(text))?;
            let mut origin = Origin { uuid, tag: "".into() };
            for field in fields {
                let lower = field.to_ascii_lowercase();
                if is_tag(&lower) {
                    origin.tag = lower.into();
                    continue;
                }
                let (first, last) = field.split_once('-').unwrap_or((field, field));
                let bound =
                    |text: &str| text.trim().parse::<u64>().ok().filter(|n| *n > 0 && *n < NUMBER_MAX);
                match (bound(first), bound(last)) {
                    (Some(first), Some(last)) if first <= last => {
                        insert(set.origins.entry(origin.clone()).or_default(), first, last + 1);
                    }
                    _ => return Err(unreadable(text)),
                }
            }
        }
        Ok(set)
    }
}

impl FromStr for Gtid {
    type Err = DecodeError;

    fn from_str(text: &str) -> Result<Gtid> {
        if let Ok(gtid) = text.trim().parse() {
            return Ok(Gtid::MariaDb(gtid));
        }
        let set: GtidSet = text.parse()?;
        match set.origins.into_iter().next() {
            Some((origin, intervals)) if intervals.len() == 1 && intervals[0].0 + 1 == intervals[0].1 => {
                Ok(Gtid::MySql { origin, number: intervals[0].0 })
            }
            _ => Err(unreadable(text)),
        }
    }
}

fn parse_uuid(text: &str) -> Option<[u8; 16]> {
    let digits: Vec<u8> = text.bytes().filter(|byte| *byte != b'-').collect();
    if digits.len() != 32 || text.len() != 36 {
        return None;
    }
    let mut uuid = [0; 16];
    for (byte, pair) in uuid.iter_mut().zip(digits.chunks_exact(2)) {
        let high = (pair[0] as char).to_digit(16)?;
        let low = (pair[1] as char).to_digit(16)?;
        *byte = (high << 4 | low) as u8;
    }
    Some(uuid)
}

struct Uuid<'a>(&'a [u8; 16]);

impl fmt::Display for Uuid<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, byte) in self.0.iter().enumerate() {
            let dash = if matches!(index, 4 | 6 | 8 | 10) { "-" } else { "" };
            write!(out, "{dash}{byte:02x}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Gtid {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Gtid::MariaDb(gtid) => write!(out, "{gtid}"),
            Gtid::MySql { origin, number } if origin.tag.is_empty() => {
                write!(out, "{}:{number}", Uuid(&origin.uuid))
            }
            Gtid::MySql { origin, number } => {
                write!(out, "{}:{}:{number}", Uuid(&origin.uuid), origin.tag)
            }
        }
    }
}

impl fmt::Display for GtidSet {
    /// In the server's form: for each UUID its intervals without a tag, then those of its tags.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut before: Option<&Origin> = None;
        for (origin, intervals) in &self.origins {
            match before {
                Some(last) if last.uuid == origin.uuid => {}
                Some(_) => write!(out, ",{}", Uuid(&origin.uuid))?,
                None => write!(out, "{}", Uuid(&origin.uuid))?,
            }
            if !origin.tag.is_empty() {
                write!(out, ":{}", origin.tag)?;
            }
            for &(first, after) in intervals {
                if first + 1 == after {
                    write!(out, ":{first}")?;
                } else {
                    write!(out, ":{first}-{}", after - 1)?;
                }
            }
            before = Some(origin);
        }
        for (index, gtid) in self.domains.iter().enumerate() {
            let comma = if index > 0 || before.is_some() { "," } else { "" };
            write!(out, "{comma}{gtid}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: &str = "3e11fa47-71ca-11e1-9e33-c80aa9429562";
    const B: &str = "4e11fa47-71ca-11e1-9e33-c80aa9429562";

    fn set(text: &str) -> GtidSet {
        text.replace('A', A).replace('B', B).parse().unwrap()
    }

    #[test]
    fn text_comes_back_in_the_servers_form() {
        for (text, expected) in [
            ("", ""),
            ("A:1-5:7", "A:1-5:7"),
            (" B:7 , A:3-4:1-2:4-6 ,\nB:8", "A:1-6,B:7-8"),
            ("A:1-2:tag_1:1-3:5,B:other:9", "A:1-2:tag_1:1-3:5,B:other:9"),
        ] {
            assert_eq!(set(text).to_string(), expected.replace('A', A).replace('B', B));
        }
        for wrong in ["x", "A:0", "A:5-3", "A:1-9223372036854775807", "A:1-", "A:-1"] {
            assert!(wrong.replace('A', A).parse::<GtidSet>().is_err(), "{wrong}");
        }
    }
}
