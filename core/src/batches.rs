//! What every decoder returns: batches with one schema.

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;

use crate::error::Result;

pub trait Batches {
    /// The schema of all batches, even if there are none.
    fn schema(&self) -> SchemaRef;

    /// The next batch; None at the end. Must not be called again after an error.
    fn next_batch(&mut self) -> Result<Option<RecordBatch>>;
}
