//! MariaDB GTIDs: `domain-server-number`.
//!
//! Within a domain the numbers only grow, whichever server gives them, and they have gaps. So the last GTID
//! of each domain (`@@gtid_binlog_pos`) says what a server has executed. Such a position contains a GTID if
//! its last number in that domain is not smaller.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct DomainGtid {
    pub domain: u32,
    pub server: u32,
    pub number: u64,
}

/// The last GTID of each domain.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Domains {
    last: BTreeMap<u32, DomainGtid>,
}

impl Domains {
    pub fn is_empty(&self) -> bool {
        self.last.is_empty()
    }

    pub fn len(&self) -> usize {
        self.last.len()
    }

    pub fn iter(&self) -> impl Iterator<Item = &DomainGtid> {
        self.last.values()
    }

    pub fn contains(&self, gtid: &DomainGtid) -> bool {
        self.last.get(&gtid.domain).is_some_and(|last| gtid.number <= last.number)
    }

    pub fn add(&mut self, gtid: DomainGtid) {
        if !self.contains(&gtid) {
            self.last.insert(gtid.domain, gtid);
        }
    }

    /// The domains in which we are ahead of the other, with our last GTIDs.
    pub fn ahead_of(&self, other: &Domains) -> Domains {
        let ahead = self.last.iter().filter(|(_, gtid)| !other.contains(gtid));
        Domains { last: ahead.map(|(domain, gtid)| (*domain, *gtid)).collect() }
    }

    /// The last GTIDs up to which both have executed, of the domains that both have.
    pub fn in_both(&self, other: &Domains) -> Domains {
        let both = self.last.iter().filter_map(|(domain, gtid)| {
            let theirs = other.last.get(domain)?;
            Some((*domain, if theirs.number < gtid.number { *theirs } else { *gtid }))
        });
        Domains { last: both.collect() }
    }
}

/// The error for text that is not three numbers with dashes, or whose numbers are too large.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NoDomainGtid;

impl FromStr for DomainGtid {
    type Err = NoDomainGtid;

    fn from_str(text: &str) -> Result<DomainGtid, NoDomainGtid> {
        let mut fields = text.split('-');
        let mut next = || fields.next().filter(|field| field.bytes().all(|byte| byte.is_ascii_digit()));
        let domain = next().and_then(|field| field.parse().ok()).ok_or(NoDomainGtid)?;
        let server = next().and_then(|field| field.parse().ok()).ok_or(NoDomainGtid)?;
        let number = next().and_then(|field| field.parse().ok()).filter(|n| *n > 0).ok_or(NoDomainGtid)?;
        match fields.next() {
            None => Ok(DomainGtid { domain, server, number }),
            Some(_) => Err(NoDomainGtid),
        }
    }
}

impl fmt::Display for DomainGtid {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}-{}-{}", self.domain, self.server, self.number)
    }
}
