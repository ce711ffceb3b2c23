//! Sets of a source's transactions.

use std::fmt::Display;
use std::str::FromStr;

use crate::error::DecodeError;

/// A set of transactions. Index entries have it as text.
///
/// What it can say is the source's matter: a set may contain transactions that were never in the log. It must
/// be exact about those that are.
pub trait TransactionSet: Clone + Default + PartialEq + Display + FromStr<Err = DecodeError> + Send {
    /// The name of one transaction.
    type Id: Clone + PartialEq + Display + FromStr<Err = DecodeError> + Send;

    fn is_empty(&self) -> bool;

    fn contains(&self, id: &Self::Id) -> bool;

    fn add(&mut self, id: &Self::Id);

    fn is_subset(&self, other: &Self) -> bool;

    fn union(&self, other: &Self) -> Self;

    fn intersection(&self, other: &Self) -> Self;
}
