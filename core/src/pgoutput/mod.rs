//! What PostgreSQL's output plugin `pgoutput` sends: messages, and rows in the form of rows in memory.

mod array;
pub mod arrivals;
mod binary;
pub mod copy;
mod family;
mod float_text;
mod geometric;
pub mod message;
mod nested;
mod numeric;
mod search_text;
pub mod sent;
mod shown;
pub mod streamed;
pub mod translator;
pub mod tuple;
pub mod types;
pub mod value;
pub mod xids;

pub use family::{Messages, Pgoutput, NAME};
