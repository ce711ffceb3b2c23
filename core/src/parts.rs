//! The parts of a log, read one after the other.

use std::sync::Arc;

use crate::error::{DecodeError, Result};
use crate::row_log::{Take, Transactions};
use crate::transaction::{Part, Selection, Survey, Walked};

/// A part whose file is open.
pub trait OpenPart: Send + Sync + Sized {
    fn open(part: Arc<Part>) -> Result<Self>;

    fn part(&self) -> &Part;

    /// The next transaction of the part; None: at its end.
    fn survey(&mut self, selection: &Selection) -> Result<Option<Survey>>;

    /// See `Transactions::walk`. The transaction is of this part.
    fn walk(&mut self, survey: &Survey, from: Walked, take: &mut Take<'_>) -> Result<Option<Walked>>;
}

/// The transactions of some parts.
pub struct Parts<O> {
    parts: std::vec::IntoIter<Part>,
    selection: Selection,
    open: Option<O>,
}

impl<O: OpenPart> Parts<O> {
    pub fn new(parts: Vec<Part>, selection: Selection) -> Self {
        Self { parts: parts.into_iter(), selection, open: None }
    }
}

impl<O: OpenPart> Transactions for Parts<O> {
    fn next_group(&mut self) -> Result<Option<Survey>> {
        loop {
            if self.open.is_none() {
                let Some(part) = self.parts.next() else { return Ok(None) };
                self.open = Some(O::open(Arc::new(part))?);
            }
            let Some(open) = &mut self.open else { return Ok(None) };
            match open.survey(&self.selection).map_err(|error| error.in_file(open.part().file.name()))? {
                Some(survey) => return Ok(Some(survey)),
                None => self.open = None,
            }
        }
    }

    fn walk(&mut self, survey: &Survey, from: Walked, take: &mut Take<'_>) -> Result<Option<Walked>> {
        let (name, base) = (survey.part.file.name(), survey.part.base);
        let is_here = |open: &&mut O| open.part().base == base && open.part().file.name() == name;
        let walked = match self.open.as_mut().filter(is_here) {
            Some(open) => open.walk(survey, from, take),
            // Its rows are in another file than its end (XA).
            None => O::open(survey.part.clone())?.walk(survey, from, take),
        };
        walked.map_err(|error| error.in_file(name))
    }
}

impl Part {
    /// The position in the file at which the part ends.
    pub fn end(&self) -> Result<u64> {
        let size = self.file.size().map_err(|error| DecodeError::of_io("cannot be read", error, self.base));
        Ok(self.end.unwrap_or(u64::MAX).min(size.map_err(|error| error.in_file(self.file.name()))?))
    }
}
