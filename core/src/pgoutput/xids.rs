//! Sets of transaction ids, of 64 bits.

use std::fmt;
use std::str::FromStr;

use crate::error::DecodeError;
use crate::transaction_set::TransactionSet;

/// The whole id whose low 32 bits these are, and which is nearest to `near`.
pub fn full_id(xid: u32, near: u64) -> u64 {
    let candidate = near & !0xffff_ffff | u64::from(xid);
    let (half, whole) = (1 << 31, 1 << 32);
    if candidate > near && candidate - near > half && candidate >= whole {
        candidate - whole
    } else if candidate < near && near - candidate > half {
        candidate + whole
    } else {
        candidate
    }
}

/// The id of one transaction, with its high bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Xid(pub u64);

impl fmt::Display for Xid {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(out)
    }
}

impl FromStr for Xid {
    type Err = DecodeError;

    fn from_str(text: &str) -> Result<Self, DecodeError> {
        let wrong = |_| DecodeError::new(format!("{text:?} is no id of a transaction"), 0);
        text.parse().map(Self).map_err(wrong)
    }
}

/// Ascending, disjoint, non-adjacent ranges `[first, after)`. As text: `3-731,733,735-740`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct XidSet(Vec<(u64, u64)>);

impl XidSet {
    /// What a snapshot shows: all ids before `after`, without those that are running.
    pub fn of_snapshot(after: u64, running: &[u64]) -> Self {
        let mut found = Vec::new();
        let mut first = 0;
        let mut running = running.to_vec();
        running.sort_unstable();
        for id in running.into_iter().filter(|id| *id < after) {
            if first < id {
                found.push((first, id));
            }
            first = id + 1;
        }
        if first < after {
            found.push((first, after));
        }
        Self(found)
    }
}

impl TransactionSet for XidSet {
    type Id = Xid;

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn contains(&self, id: &Xid) -> bool {
        let at = self.0.partition_point(|(first, _)| *first <= id.0);
        at > 0 && id.0 < self.0[at - 1].1
    }

    fn add(&mut self, id: &Xid) {
        let Xid(id) = *id;
        let at = self.0.partition_point(|(first, _)| *first <= id);
        if at > 0 && id < self.0[at - 1].1 {
            return;
        }
        let joins_before = at > 0 && self.0[at - 1].1 == id;
        let joins_after = at < self.0.len() && self.0[at].0 == id + 1;
        match (joins_before, joins_after) {
            (true, true) => {
                self.0[at - 1].1 = self.0[at].1;
                self.0.remove(at);
            }
            (true, false) => self.0[at - 1].1 = id + 1,
            (false, true) => self.0[at].0 = id,
            (false, false) => self.0.insert(at, (id, id + 1)),
        }
    }

    fn union(&self, other: &Self) -> Self {
        let mut all: Vec<_> = self.0.iter().chain(&other.0).copied().collect();
        all.sort_unstable();
        let mut found: Vec<(u64, u64)> = Vec::with_capacity(all.len());
        for (first, after) in all {
            match found.last_mut() {
                Some(last) if first <= last.1 => last.1 = last.1.max(after),
                _ => found.push((first, after)),
            }
        }
        Self(found)
    }

    fn intersection(&self, other: &Self) -> Self {
        let (mut found, mut left, mut right) = (Vec::new(), 0, 0);
        while let (Some(one), Some(two)) = (self.0.get(left), other.0.get(right)) {
            let (first, after) = (one.0.max(two.0), one.1.min(two.1));
            if first < after {
                found.push((first, after));
            }
            match one.1 < two.1 {
                true => left += 1,
                false => right += 1,
            }
        }
        Self(found)
    }

    fn is_subset(&self, other: &Self) -> bool {
        self.0.iter().all(|(first, after)| {
            let at = other.0.partition_point(|(begin, _)| begin <= first);
            at > 0 && *after <= other.0[at - 1].1
        })
    }
}

impl fmt::Display for XidSet {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (first, after)) in self.0.iter().enumerate() {
            let comma = if index > 0 { "," } else { "" };
            match after - first {
                1 => write!(out, "{comma}{first}")?,
                _ => write!(out, "{comma}{first}-{}", after - 1)?,
            }
        }
        Ok(())
    }
}

impl FromStr for XidSet {
    type Err = DecodeError;

    fn from_str(text: &str) -> Result<Self, DecodeError> {
        let wrong = || DecodeError::new("a set of transactions that is not written as `3-731,733`", 0);
        let mut found = Self::default();
        for part in text.split(',').filter(|part| !part.is_empty()) {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let first: u64 = first.parse().map_err(|_| wrong())?;
            let last: u64 = last.parse().map_err(|_| wrong())?;
            if first > last || last == u64::MAX {
                return Err(wrong());
            }
            found.0.push((first, last + 1));
        }
        // Of text from outside: in order, and joined.
        Ok(found.union(&Self::default()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_has_the_high_bits_of_ids_near_to_it() {
        let wrap = 1 << 32;
        assert_eq!(full_id(5, 3), 5);
        assert_eq!(full_id(5, wrap - 2), wrap + 5);
        assert_eq!(full_id(u32::MAX, wrap + 3), wrap - 1);
        assert_eq!(full_id(7, 3 * wrap + 9), 3 * wrap + 7);
        assert_eq!(full_id(u32::MAX, 3), u64::from(u32::MAX));
    }

    #[test]
    fn sets_do_what_sets_of_numbers_do() {
        let numbers = |set: &XidSet| (0..40).filter(|id| set.contains(&Xid(*id))).collect::<Vec<_>>();
        let sets: Vec<XidSet> = ["", "3", "0-5,9", "4-12,20-30", "2,4,6", "1-39"]
            .iter()
            .map(|text| text.parse().unwrap())
            .collect();
        for one in &sets {
            assert_eq!(one.to_string().parse::<XidSet>().unwrap(), *one);
            for other in &sets {
                let (left, right) = (numbers(one), numbers(other));
                let both: Vec<_> = left.iter().copied().filter(|id| right.contains(id)).collect();
                let mut any = [left.clone(), right.clone()].concat();
                any.sort_unstable();
                any.dedup();
                assert_eq!(numbers(&one.intersection(other)), both);
                assert_eq!(numbers(&one.union(other)), any);
                assert_eq!(one.is_subset(other), left.iter().all(|id| right.contains(id)));
            }
            for id in 0..40 {
                let mut added = one.clone();
                added.add(&Xid(id));
                assert_eq!(added, one.union(&id.to_string().parse().unwrap()));
            }
        }
        assert_eq!(XidSet::of_snapshot(10, &[7, 3]).to_string(), "0-2,4-6,8-9");
        for text in ["x", "3-1", "-", "18446744073709551615"] {
            assert!(text.parse::<XidSet>().is_err(), "{text}");
        }
    }
}
