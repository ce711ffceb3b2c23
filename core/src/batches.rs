//! What every decoder gives: batches of one schema, one after the other.

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;

use crate::error::Result;

pub trait Batches {
    /// Of all batches, also if there are none.
    fn schema(&self) -> SchemaRef;

    /// The next batch; None at the end. Not to be called again after an error.
    fn next_batch(&mut self) -> Result<Option<RecordBatch>>;
}
