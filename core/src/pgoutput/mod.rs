//! What PostgreSQL's output plugin `pgoutput` sends: messages, and rows in the form of rows in memory.

mod array;
pub mod copy;
mod family;
pub mod message;
mod numeric;
mod shown;
pub mod translator;
pub mod tuple;
pub mod types;
pub mod value;
pub mod xids;

pub use family::{Messages, Pgoutput, NAME};
