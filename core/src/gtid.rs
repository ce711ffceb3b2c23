//! GTIDs and sets of them: their text, and MySQL's two wire encodings (with and without tags).
//!
//! A set holds GTIDs of MySQL (intervals of numbers per server and tag) or of MariaDB (a position: the last
//! GTID of each domain, see `gtid_domain.rs`).

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::str::FromStr;

use crate::cursor::Cursor;
use crate::error::{DecodeError, Result};
use crate::gtid_domain::{DomainGtid, Domains};
use crate::varint::take_varint;

/// What numbers a transaction: a server's UUID and, from MySQL 8.3 on, a tag.
#[derive(Debug, Clone)]
pub struct Origin {
    pub uuid: [u8; 16],
    pub tag: Box<str>,
}

impl Ord for Origin {
    /// Hardly any server has tags, and two empty ones are not looked at: glibc's `memcmp` for AVX-512 takes
    /// as long as for kilobytes if it is asked for no bytes where no memory is, as at an empty box.
    fn cmp(&self, other: &Self) -> Ordering {
        u128::from_be_bytes(self.uuid).cmp(&u128::from_be_bytes(other.uuid)).then_with(|| {
            if self.tag.is_empty() && other.tag.is_empty() {
                Ordering::Equal
            } else {
                self.tag.cmp(&other.tag)
            }
        })
    }
}

impl PartialOrd for Origin {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Origin {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Origin {}

impl Hash for Origin {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (&self.uuid, &self.tag).hash(state);
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Gtid {
    MySql { origin: Origin, number: u64 },
    MariaDb(DomainGtid),
}

/// A set of GTIDs: per origin, ascending, disjoint, non-adjacent intervals `[first, after)`; per domain, all
/// up to a last one.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct GtidSet {
    origins: BTreeMap<Origin, Vec<(u64, u64)>>,
    domains: Domains,
}

/// Numbers stay below this on every server (2^63 - 1), so `last + 1` cannot overflow.
pub(crate) const NUMBER_MAX: u64 = i64::MAX as u64;
const TAG_LENGTH_MAX: usize = 32;

impl GtidSet {
    pub fn is_empty(&self) -> bool {
        self.origins.is_empty() && self.domains.is_empty()
    }

    /// Of MariaDB's, whose numbers have gaps, as many as there are domains.
    pub fn count(&self) -> u64 {
        let domains = self.domains.len() as u64;
        self.origins.values().flatten().map(|(first, after)| after - first).fold(domains, u64::saturating_add)
    }

    pub fn contains(&self, gtid: &Gtid) -> bool {
        match gtid {
            Gtid::MariaDb(gtid) => self.domains.contains(gtid),
            Gtid::MySql { origin, number } => self.origins.get(origin).is_some_and(|intervals| {
                let at = intervals.partition_point(|(first, _)| first <= number);
                at > 0 && *number < intervals[at - 1].1
            }),
        }
    }

    /// Adds one GTID. Numbers usually come in order, so the last interval grows without a search.
    pub fn add(&mut self, gtid: &Gtid) {
        let (origin, number) = match gtid {
            Gtid::MariaDb(gtid) => return self.domains.add(*gtid),
            Gtid::MySql { origin, number } => (origin, *number),
        };
        match self.origins.get_mut(origin) {
            Some(intervals) => match intervals.last_mut() {
                Some(last) if last.1 == number => last.1 += 1,
                _ => insert(intervals, number, number + 1),
            },
            None => {
                self.origins.insert(origin.clone(), vec![(number, number + 1)]);
            }
        }
    }

    pub fn is_subset(&self, other: &GtidSet) -> bool {
        let mut domains = self.domains.iter();
        domains.all(|gtid| other.domains.contains(gtid))
            && self.origins.iter().all(|(origin, intervals)| {
                let theirs = other.origins.get(origin).map_or(&[][..], Vec::as_slice);
                intervals.iter().all(|&(first, after)| {
                    let at = theirs.partition_point(|&(begin, _)| begin <= first);
                    at > 0 && after <= theirs[at - 1].1
                })
            })
    }

    pub fn union(&self, other: &GtidSet) -> GtidSet {
        let mut result = self.clone();
        result.extend(other);
        result
    }

    pub fn extend(&mut self, other: &GtidSet) {
        for gtid in other.domains.iter() {
            self.domains.add(*gtid);
        }
        for (origin, intervals) in &other.origins {
            let ours = self.origins.entry(origin.clone()).or_default();
            if ours.is_empty() {
                ours.clone_from(intervals);
                continue;
            }
            for &(first, after) in intervals {
                insert(ours, first, after);
            }
        }
    }

    /// Of a MariaDB position: the domains in which it is ahead of the other.
    pub fn difference(&self, other: &GtidSet) -> GtidSet {
        let ahead = self.domains.ahead_of(&other.domains);
        self.filtered(other, ahead, |ours, theirs, kept| {
            let mut at = 0;
            for &(mut first, after) in ours {
                while at < theirs.len() && theirs[at].1 <= first {
                    at += 1;
                }
                let mut here = at;
                while here < theirs.len() && theirs[here].0 < after {
                    if theirs[here].0 > first {
                        kept.push((first, theirs[here].0));
                    }
                    first = theirs[here].1;
                    here += 1;
                }
                if first < after {
                    kept.push((first, after));
                }
            }
        })
    }

    pub fn intersection(&self, other: &GtidSet) -> GtidSet {
        let both = self.domains.in_both(&other.domains);
        self.filtered(other, both, |ours, theirs, kept| {
            let (mut left, mut right) = (0, 0);
            while left < ours.len() && right < theirs.len() {
                let first = ours[left].0.max(theirs[right].0);
                let after = ours[left].1.min(theirs[right].1);
                if first < after {
                    kept.push((first, after));
                }
                if ours[left].1 < theirs[right].1 {
                    left += 1;
                } else {
                    right += 1;
                }
            }
        })
    }

    fn filtered(
        &self,
        other: &GtidSet,
        domains: Domains,
        keep: impl Fn(&[(u64, u64)], &[(u64, u64)], &mut Vec<(u64, u64)>),
    ) -> GtidSet {
        let mut result = GtidSet { domains, ..GtidSet::default() };
        for (origin, intervals) in &self.origins {
            let mut kept = Vec::new();
            keep(intervals, other.origins.get(origin).map_or(&[][..], Vec::as_slice), &mut kept);
            if !kept.is_empty() {
                result.origins.insert(origin.clone(), kept);
            }
        }
        result
    }

    fn is_tagged(&self) -> bool {
        self.origins.keys().any(|origin| !origin.tag.is_empty())
    }

    /// As PREVIOUS_GTIDS holds it and COM_BINLOG_DUMP_GTID wants it. The encoding with tags is used only
    /// when there are tags: older servers know the plain one alone. The count's top byte (and, with tags,
    /// its lowest too) names the encoding.
    pub fn encode(&self) -> Vec<u8> {
        let tagged = self.is_tagged();
        let count = self.origins.len() as u64;
        let head = if tagged { 1 << 56 | count << 8 | 1 } else { count };
        let mut bytes = head.to_le_bytes().to_vec();
        for (origin, intervals) in &self.origins {
            bytes.extend_from_slice(&origin.uuid);
            if tagged {
                // A variable-length integer: below 64 it is one byte, shifted left by one.
                bytes.push((origin.tag.len() as u8) << 1);
                bytes.extend_from_slice(origin.tag.as_bytes());
            }
            bytes.extend_from_slice(&(intervals.len() as u64).to_le_bytes());
            for (first, after) in intervals {
                bytes.extend_from_slice(&first.to_le_bytes());
                bytes.extend_from_slice(&after.to_le_bytes());
            }
        }
        bytes
    }

    pub fn decode(cursor: &mut Cursor<'_>) -> Result<GtidSet> {
        let head = cursor.u64("GTID set size")?;
        let (tagged, count) = match head >> 56 {
            0 => (false, head),
            1 => (true, (head & 0x00ff_ffff_ffff_ffff) >> 8),
            format => return Err(cursor.fail(format!("GTID set encoding {format} is unknown"))),
        };
        let mut set = GtidSet::default();
        for _ in 0..count {
            let mut uuid = [0; 16];
            uuid.copy_from_slice(cursor.take(16, "GTID uuid")?);
            let tag = if tagged { take_tag(cursor)? } else { "".into() };
            let count = cursor.u64("GTID interval count")?;
            let intervals = set.origins.entry(Origin { uuid, tag }).or_default();
            for _ in 0..count {
                let (first, after) = (cursor.u64("GTID interval start")?, cursor.u64("GTID interval end")?);
                if first == 0 || first >= after || after > NUMBER_MAX {
                    return Err(cursor.fail("GTID interval is empty or out of range"));
                }
                insert(intervals, first, after);
            }
        }
        set.origins.retain(|_, intervals| !intervals.is_empty());
        Ok(set)
    }
}

/// Puts `[first, after)` into the intervals, joining what it touches.
fn insert(intervals: &mut Vec<(u64, u64)>, first: u64, after: u64) {
    let begin = intervals.partition_point(|&(_, end)| end < first);
    let end = intervals.partition_point(|&(start, _)| start <= after);
    if begin == end {
        intervals.insert(begin, (first, after));
    } else {
        let joined = (intervals[begin].0.min(first), intervals[end - 1].1.max(after));
        intervals.splice(begin..end, [joined]);
    }
}

pub(crate) fn take_tag(cursor: &mut Cursor<'_>) -> Result<Box<str>> {
    let length = take_varint(cursor, "GTID tag length")?;
    if length > TAG_LENGTH_MAX as u64 {
        return Err(cursor.fail("GTID tag is longer than 32 characters"));
    }
    let tag = cursor.take(length as usize, "GTID tag")?;
    match std::str::from_utf8(tag) {
        Ok(tag) if is_tag(tag) || tag.is_empty() => Ok(tag.into()),
        _ => Err(cursor.fail("GTID tag has a character that is not allowed")),
    }
}

fn is_tag(tag: &str) -> bool {
    let bytes = tag.as_bytes();
    !bytes.is_empty()
        && bytes.len() <= TAG_LENGTH_MAX
        && !bytes[0].is_ascii_digit()
        && bytes.iter().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || *byte == b'_')
}

/// Text that is not a GTID or a set of them.
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
    /// The server's form: one uuid after the other, its plain intervals first, then those of its tags.
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

    #[test]
    fn set_algebra() {
        let (left, right) = (set("A:1-10:20-30,B:5"), set("A:5-25,B:1-4"));
        assert_eq!(left.union(&right), set("A:1-30,B:1-5"));
        assert_eq!(left.intersection(&right), set("A:5-10:20-25"));
        assert_eq!(left.difference(&right), set("A:1-4:26-30,B:5"));
        assert_eq!(left.count(), 22);
        assert!(set("A:2-3:21").is_subset(&left) && !set("A:10-11").is_subset(&left));
        assert!(left.contains(&format!("{A}:20").parse().unwrap()));
        assert!(!left.contains(&format!("{A}:11").parse().unwrap()));
    }

    #[test]
    fn a_position_of_mariadb_holds_all_of_its_domains_up_to_their_last() {
        let (left, right) = (set("0-1-100,2-7-5"), set("2-8-9, 0-2-60"));
        assert_eq!(left.to_string(), "0-1-100,2-7-5");
        assert_eq!(left.union(&right), set("0-1-100,2-8-9"));
        assert_eq!(left.intersection(&right), set("0-2-60,2-7-5"));
        assert_eq!(left.difference(&right), set("0-1-100"));
        assert!(set("0-9-100").is_subset(&left) && !set("0-1-101").is_subset(&left));
        assert!(!set("1-1-1").is_subset(&left) && set("").is_subset(&left));
        assert!(left.contains(&"0-3-7".parse().unwrap()) && !left.contains(&"2-7-6".parse().unwrap()));
        assert_eq!("0-1-7".parse::<Gtid>().unwrap().to_string(), "0-1-7");
        for wrong in ["0-1", "0-1-x", "0-1-0", "0-1-2-3", "4294967296-1-1"] {
            assert!(wrong.parse::<GtidSet>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn encodings_come_back() {
        for text in ["", "A:1-5:7,B:9", "A:1-5:tag:3-4,B:x:9"] {
            let before = set(text);
            let bytes = before.encode();
            let mut cursor = Cursor::new(&bytes, 0);
            assert_eq!(GtidSet::decode(&mut cursor).unwrap(), before);
            assert!(cursor.is_empty());
            for end in 0..bytes.len() {
                assert!(GtidSet::decode(&mut Cursor::new(&bytes[..end], 0)).is_err());
            }
        }
    }

    proptest::proptest! {
        #[test]
        fn operations_agree_with_plain_sets(
            left in proptest::collection::btree_set(1_u64..60, 0..30),
            right in proptest::collection::btree_set(1_u64..60, 0..30),
        ) {
            let make = |numbers: &std::collections::BTreeSet<u64>| {
                let mut result = GtidSet::default();
                for number in numbers.iter().rev() {
                    let origin = Origin { uuid: [7; 16], tag: "".into() };
                    result.add(&Gtid::MySql { origin, number: *number });
                }
                result
            };
            let (a, b) = (make(&left), make(&right));
            assert_eq!(a.union(&b), make(&left.union(&right).copied().collect()));
            assert_eq!(a.intersection(&b), make(&left.intersection(&right).copied().collect()));
            assert_eq!(a.difference(&b), make(&left.difference(&right).copied().collect()));
            assert_eq!(a.is_subset(&b), left.is_subset(&right));
            assert_eq!(a.count(), left.len() as u64);
        }

        #[test]
        fn any_bytes_give_a_set_or_an_error(bytes: Vec<u8>) {
            let _ = GtidSet::decode(&mut Cursor::new(&bytes, 0));
        }
    }
}
