//! Messages as the C library of Kafka's clients takes them: an array of its `rd_kafka_message_t`, a topic.
//!
//! The arrays have the addresses of keys and values, which are valid as long as the messages are not changed.

use super::messages::{About, Messages};
use super::routing::murmur2;

/// Bytes of one `rd_kafka_message_t` where addresses have 64 bits.
pub const RECORD_BYTES: usize = 72;

/// Where the messages of a table go.
#[derive(Debug, Clone, Copy)]
pub struct Target {
    /// A number of the caller's.
    pub topic: usize,
    pub partitions: u32,
    /// The partition of messages that have a key. None: it depends on the key.
    pub keyed: Option<u32>,
    pub keyless: u32,
    pub bytes_max: usize,
    /// Messages of earlier changes are left out.
    pub from: u64,
}

#[derive(Debug)]
pub struct Records {
    pub topic: usize,
    pub bytes: Vec<u8>,
}

/// A message that its topic does not take.
#[derive(Debug)]
pub struct TooLarge {
    pub table: u32,
    pub bytes: usize,
}

impl Target {
    fn partition(&self, hash: Option<u32>, key: Option<&[u8]>) -> u32 {
        match (hash, key, self.keyed) {
            (Some(hash), ..) => hash % self.partitions.max(1),
            (None, None, _) => self.keyless,
            (None, Some(_), Some(keyed)) => keyed,
            (None, Some(key), None) => murmur2(key) % self.partitions.max(1),
        }
    }
}

/// The messages in their order, by topic. `targets`: by the number of the table; messages of other tables
/// are left out.
pub fn records(
    messages: &Messages,
    targets: &[Option<Target>],
    of_transactions: Option<Target>,
) -> Result<Vec<Records>, TooLarge> {
    let mut found: Vec<Records> = Vec::new();
    let mut last = usize::MAX;
    for index in 0..messages.len() {
        let Some(message) = messages.get(index) else { break };
        let target = match message.about {
            About::Table(number) => targets.get(number as usize).copied().flatten(),
            About::Transaction => of_transactions,
        };
        let Some(target) = target else { continue };
        if message.sequence < target.from && message.about != About::Transaction {
            continue;
        }
        let (key, value) = (message.key, message.value);
        let bytes = key.map_or(0, <[u8]>::len) + value.map_or(0, <[u8]>::len);
        if let (About::Table(table), true) = (message.about, bytes > target.bytes_max) {
            return Err(TooLarge { table, bytes });
        }
        if found.get(last).is_none_or(|one| one.topic != target.topic) {
            last = found.iter().position(|one| one.topic == target.topic).unwrap_or_else(|| {
                let bytes = Vec::with_capacity((messages.len() - index) * RECORD_BYTES);
                found.push(Records { topic: target.topic, bytes });
                found.len() - 1
            });
        }
        let partition = target.partition(message.hash, key);
        let address = |part: Option<&[u8]>| part.map_or(0, |part| part.as_ptr() as u64);
        let length = |part: Option<&[u8]>| part.map_or(0, |part| part.len() as u64);
        // err, rkt, partition, payload, len, key, key_len, offset, _private
        let fields =
            [0, 0, u64::from(partition), address(value), length(value), address(key), length(key), 0, 0];
        let out = &mut found[last].bytes;
        for field in fields {
            out.extend_from_slice(&field.to_ne_bytes());
        }
    }
    Ok(found)
}
