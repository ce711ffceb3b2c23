//! GTIDs and sets of them, with MySQL's two wire encodings (with and without tags). `gtid/text.rs` has their
//! text.
//!
//! A set holds GTIDs of MySQL (intervals of numbers per server and tag) or of MariaDB (a position: the last
//! GTID of each domain, see `gtid_domain.rs`).

mod text;

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};

use crate::cursor::Cursor;
use crate::error::Result;
use crate::mysql::gtid_domain::{DomainGtid, Domains};
use crate::mysql::varint::take_varint;
use crate::transaction_set::TransactionSet;

/// The part of a MySQL GTID before the number: a server's UUID and, from MySQL 8.3 on, a tag.
#[derive(Debug, Clone)]
pub struct Origin {
    pub uuid: [u8; 16],
    pub tag: Box<str>,
}

impl Ord for Origin {
    /// Two empty tags are not compared, because hardly any server has tags. The comparison would call glibc's
    /// `memcmp` for no bytes at the address of an empty box, where no memory is. With AVX-512, that takes as
    /// long as for kilobytes.
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

/// A set of GTIDs. An origin has ascending, disjoint, non-adjacent intervals `[first, after)`. A domain has
/// all GTIDs up to a last one.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct GtidSet {
    origins: BTreeMap<Origin, Vec<(u64, u64)>>,
    domains: Domains,
}

/// Numbers stay below this on every server (2^63 - 1), so `last + 1` cannot overflow.
pub(crate) const NUMBER_MAX: u64 = i64::MAX as u64;
const TAG_LENGTH_MAX: usize = 32;

impl TransactionSet for GtidSet {
    type Id = Gtid;

    fn is_empty(&self) -> bool {
        self.origins.is_empty() && self.domains.is_empty()
    }

    fn contains(&self, gtid: &Gtid) -> bool {
        match gtid {
            Gtid::MariaDb(gtid) => self.domains.contains(gtid),
            Gtid::MySql { origin, number } => self.origins.get(origin).is_some_and(|intervals| {
                let at = intervals.partition_point(|(first, _)| first <= number);
                at > 0 && *number < intervals[at - 1].1
            }),
        }
    }

    /// Adds one GTID. Numbers usually come in order, so the last interval grows without a search.
    fn add(&mut self, gtid: &Gtid) {
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

    fn is_subset(&self, other: &GtidSet) -> bool {
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

    fn union(&self, other: &GtidSet) -> GtidSet {
        let mut result = self.clone();
        result.extend(other);
        result
    }

    fn intersection(&self, other: &GtidSet) -> GtidSet {
        let both = self.domains.in_both(&other.domains);
        self.combined(other, both, |ours, theirs, result| {
            let (mut left, mut right) = (0, 0);
            while left < ours.len() && right < theirs.len() {
                let first = ours[left].0.max(theirs[right].0);
                let after = ours[left].1.min(theirs[right].1);
                if first < after {
                    result.push((first, after));
                }
                if ours[left].1 < theirs[right].1 {
                    left += 1;
                } else {
                    right += 1;
                }
            }
        })
    }
}

impl GtidSet {
    /// The number of GTIDs. MariaDB's numbers have gaps, so each of its domains counts as one.
    pub fn count(&self) -> u64 {
        let domains = self.domains.len() as u64;
        self.origins.values().flatten().map(|(first, after)| after - first).fold(domains, u64::saturating_add)
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

    /// What the other set lacks. Of MariaDB's GTIDs: the domains in which this set is ahead of the other.
    pub fn difference(&self, other: &GtidSet) -> GtidSet {
        let ahead = self.domains.ahead_of(&other.domains);
        self.combined(other, ahead, |ours, theirs, result| {
            let mut at = 0;
            for &(mut first, after) in ours {
                while at < theirs.len() && theirs[at].1 <= first {
                    at += 1;
                }
                let mut next = at;
                while next < theirs.len() && theirs[next].0 < after {
                    if theirs[next].0 > first {
                        result.push((first, theirs[next].0));
                    }
                    first = theirs[next].1;
                    next += 1;
                }
                if first < after {
                    result.push((first, after));
                }
            }
        })
    }

    fn combined(
        &self,
        other: &GtidSet,
        domains: Domains,
        combine: impl Fn(&[(u64, u64)], &[(u64, u64)], &mut Vec<(u64, u64)>),
    ) -> GtidSet {
        let mut result = GtidSet { domains, ..GtidSet::default() };
        for (origin, intervals) in &self.origins {
            let mut intervals_left = Vec::new();
            combine(intervals, other.origins.get(origin).map_or(&[][..], Vec::as_slice), &mut intervals_left);
            if !intervals_left.is_empty() {
                result.origins.insert(origin.clone(), intervals_left);
            }
        }
        result
    }

    fn is_tagged(&self) -> bool {
        self.origins.keys().any(|origin| !origin.tag.is_empty())
    }

    /// The encoding of PREVIOUS_GTIDS events and of COM_BINLOG_DUMP_GTID. The one with tags is used only when
    /// there are tags, because older servers know only the plain one. The count's top byte (and, with tags,
    /// its lowest byte, too) names the encoding.
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

/// Adds `[first, after)` to the intervals, and joins it with those that it touches.
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

#[cfg(test)]
mod tests {
    use super::*;

    const A: &str = "3e11fa47-71ca-11e1-9e33-c80aa9429562";
    const B: &str = "4e11fa47-71ca-11e1-9e33-c80aa9429562";

    fn set(text: &str) -> GtidSet {
        text.replace('A', A).replace('B', B).parse().unwrap()
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
