//! Ids of transactions, and sets of them.
//!
//! A receiver gives each of its transactions a name: a series, and a number in it (`series-number`). Within a
//! series numbers only grow, and may have gaps. So the last number of each series says what a log has. Such a
//! set contains a transaction if its last number in that series is not smaller.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use crate::error::{DecodeError, Result};
use crate::transaction_set::TransactionSet;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Id {
    series: String,
    number: u64,
}

/// The last number of each series. Shorter names of series come first, so that those that are numbers are in
/// their order.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct SeriesSet {
    last: BTreeMap<(usize, String), u64>,
}

impl SeriesSet {
    fn raise(&mut self, series: &str, number: u64) {
        let last = self.last.entry((series.len(), series.to_owned())).or_default();
        *last = number.max(*last);
    }
}

impl TransactionSet for SeriesSet {
    type Id = Id;

    fn is_empty(&self) -> bool {
        self.last.is_empty()
    }

    fn contains(&self, id: &Id) -> bool {
        self.last.get(&(id.series.len(), id.series.clone())).is_some_and(|last| id.number <= *last)
    }

    fn add(&mut self, id: &Id) {
        self.raise(&id.series, id.number);
    }

    fn is_subset(&self, other: &Self) -> bool {
        self.last.iter().all(|(series, number)| other.last.get(series).is_some_and(|last| number <= last))
    }

    fn union(&self, other: &Self) -> Self {
        let mut both = self.clone();
        for ((_, series), number) in &other.last {
            both.raise(series, *number);
        }
        both
    }

    fn intersection(&self, other: &Self) -> Self {
        let shared = self.last.iter().filter_map(|(series, number)| {
            let last = other.last.get(series)?;
            Some((series.clone(), *number.min(last)))
        });
        Self { last: shared.collect() }
    }
}

impl FromStr for Id {
    type Err = DecodeError;

    fn from_str(text: &str) -> Result<Self> {
        let parsed = text.rsplit_once('-').and_then(|(series, digits)| {
            let named = !series.is_empty() && !series.contains([',', ' ', '\n']);
            let number = digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok());
            number.flatten().filter(|number| named && *number > 0).map(|number| (series, number))
        });
        match parsed {
            Some((series, number)) => Ok(Self { series: series.to_owned(), number }),
            None => Err(DecodeError::new(
                format!("{text:?} is no id of a transaction: the name of a series, a dash, a number"),
                0,
            )),
        }
    }
}

impl FromStr for SeriesSet {
    type Err = DecodeError;

    /// Ids with commas between them.
    fn from_str(text: &str) -> Result<Self> {
        let mut set = Self::default();
        for id in text.split(',').map(str::trim).filter(|id| !id.is_empty()) {
            set.add(&id.parse()?);
        }
        Ok(set)
    }
}

impl fmt::Display for Id {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}-{}", self.series, self.number)
    }
}

impl fmt::Display for SeriesSet {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, ((_, series), number)) in self.last.iter().enumerate() {
            let comma = if index > 0 { "," } else { "" };
            write!(out, "{comma}{series}-{number}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mysql::gtid::{Gtid, GtidSet};

    fn set(text: &str) -> SeriesSet {
        text.parse().unwrap()
    }

    #[test]
    fn a_set_has_the_last_number_of_each_series() {
        let mut one = set("2-1-7,0-1-100");
        assert_eq!(one.to_string(), "0-1-100,2-1-7");
        assert!(one.contains(&"0-1-100".parse().unwrap()) && one.contains(&"0-1-1".parse().unwrap()));
        assert!(!one.contains(&"0-1-101".parse().unwrap()) && !one.contains(&"1-1-1".parse().unwrap()));
        one.add(&"10-1-3".parse().unwrap());
        one.add(&"0-1-9".parse().unwrap());
        assert_eq!(one.to_string(), "0-1-100,2-1-7,10-1-3");
        let other = set("0-1-200,2-1-5");
        assert_eq!(one.union(&other).to_string(), "0-1-200,2-1-7,10-1-3");
        assert_eq!(one.intersection(&other).to_string(), "0-1-100,2-1-5");
        assert!(one.intersection(&other).is_subset(&one) && !one.is_subset(&other));
        assert!(set("").is_empty() && set("").is_subset(&one) && !one.is_empty());
    }

    #[test]
    fn what_is_no_id_is_an_error() {
        for text in ["", "7", "-7", "0-1-", "0-1-0", "0-1-x", "0-1-99999999999999999999", "0 1-7"] {
            assert!(text.parse::<Id>().is_err(), "{text:?}");
        }
        assert!("0-1-7,x".parse::<SeriesSet>().is_err());
    }

    /// Receivers of Debezium's topics name transactions `domain-server-number`, and logs that were written
    /// when sets of this format were sets of GTIDs mean the same.
    #[test]
    fn sets_that_were_written_as_gtids_mean_the_same() {
        let texts = ["", "0-1-5", "0-1-5,4294967295-1-2", "0-1-9,1-1-3", "1-1-8"];
        for one in texts {
            assert_eq!(set(one).to_string(), one.parse::<GtidSet>().unwrap().to_string());
            for id in ["0-1-5", "0-1-6", "1-1-1"] {
                let (known, gtid): (GtidSet, Gtid) = (one.parse().unwrap(), id.parse().unwrap());
                assert_eq!(set(one).contains(&id.parse().unwrap()), known.contains(&gtid));
            }
            for other in texts {
                let (left, right): (GtidSet, GtidSet) = (one.parse().unwrap(), other.parse().unwrap());
                assert_eq!(set(one).is_subset(&set(other)), left.is_subset(&right), "{one} {other}");
                assert_eq!(set(one).union(&set(other)).to_string(), left.union(&right).to_string());
                assert_eq!(set(one).intersection(&set(other)), set(&left.intersection(&right).to_string()));
            }
        }
    }
}
