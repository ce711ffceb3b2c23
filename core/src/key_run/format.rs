//! The bytes of a run. Numbers of the header and the directory are little-endian.
//!
//! | part | bytes | content |
//! |---|---|---|
//! | header | 64 | magic, version, bits, width, seed, entries, the directory's CRC32, its own CRC32 |
//! | buckets | `entries * width + 4 * buckets` | each: entries, then a CRC32 of its number and its entries |
//! | directory | `4 * buckets` | where each bucket ends, as the difference from where it ends on average |
//!
//! An entry is the last `width` bytes of an `Entry`, big-endian. Entries of a bucket are sorted by
//! fingerprint.

use super::{Entry, Result, RunError};

const MAGIC: [u8; 8] = *b"PenstKey";
/// Raise it if the layout or the fingerprints change.
const VERSION: u32 = 1;
pub const HEADER_SIZE: u64 = 64;
pub const CHECKSUM_SIZE: usize = 4;
/// A run has buckets of 64 to 128 entries.
const BUCKET_ENTRIES: u64 = 64;
const BITS_MAX: u32 = 40;

/// What the header of a run says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    pub seed: u64,
    pub entries: u64,
    /// Of the numbers of buckets. There are `2 ** bits` buckets.
    pub bits: u32,
    /// Of the directory.
    pub checksum: u32,
}

/// The bits of bucket numbers in a run with so many entries.
pub fn bits_for(entries: u64) -> u32 {
    (entries / BUCKET_ENTRIES).checked_ilog2().unwrap_or(0).min(BITS_MAX)
}

/// The bytes of an entry in buckets of numbers with so many bits.
pub fn width_for(bits: u32) -> usize {
    (128 - bits).div_ceil(8) as usize
}

/// The bucket of an entry.
pub fn bucket_of(entry: Entry, bits: u32) -> u64 {
    // A shift by 128 is not defined.
    (entry.0 >> (128 - bits.max(1))) as u64 >> u32::from(bits == 0)
}

/// Appends an entry to the bytes of its bucket.
pub fn write_entry(entry: Entry, width: usize, out: &mut Vec<u8>) {
    out.extend_from_slice(&entry.0.to_be_bytes()[16 - width..]);
}

/// Reads the entry that ends at `end`. 16 bytes must be there before it. Their bits above those of the entry
/// are replaced by the number of the bucket.
pub fn read_entry(bytes: &[u8], end: usize, bucket: u64, bits: u32) -> Entry {
    let mut wide = [0; 16];
    wide.copy_from_slice(&bytes[end - 16..end]);
    let below = u128::MAX >> bits;
    let number = if bits == 0 { 0 } else { u128::from(bucket) << (128 - bits) };
    Entry(u128::from_be_bytes(wide) & below | number)
}

/// The checksum of a bucket, which it ends with.
pub fn begin_checksum(bucket: u64) -> crc32fast::Hasher {
    let mut checksum = crc32fast::Hasher::new();
    checksum.update(&bucket.to_le_bytes());
    checksum
}

impl Header {
    pub fn buckets(&self) -> u64 {
        1 << self.bits
    }

    pub fn width(&self) -> usize {
        width_for(self.bits)
    }

    /// Where the directory begins.
    pub fn directory_start(&self) -> u64 {
        HEADER_SIZE + self.entries * self.width() as u64 + CHECKSUM_SIZE as u64 * self.buckets()
    }

    /// Where the bucket of this number begins. `before`: the entries of the buckets before it.
    pub fn bucket_start(&self, bucket: u64, before: u64) -> u64 {
        HEADER_SIZE + before * self.width() as u64 + CHECKSUM_SIZE as u64 * bucket
    }

    /// The entries up to the end of a bucket if they were spread evenly.
    pub fn even_end(&self, bucket: u64) -> u64 {
        (((u128::from(bucket) + 1) * u128::from(self.entries)) >> self.bits) as u64
    }

    pub fn to_bytes(self) -> [u8; HEADER_SIZE as usize] {
        let mut bytes = [0; HEADER_SIZE as usize];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
        bytes[12] = self.bits as u8;
        bytes[13] = self.width() as u8;
        bytes[16..24].copy_from_slice(&self.seed.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.entries.to_le_bytes());
        bytes[32..36].copy_from_slice(&self.checksum.to_le_bytes());
        let checksum = crc32fast::hash(&bytes[..60]);
        bytes[60..].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    /// Reads the header of a file of `size` bytes. The directory and the buckets then fit into the file.
    pub fn from_bytes(bytes: &[u8; HEADER_SIZE as usize], size: u64, path: &str) -> Result<Self> {
        let refuse = |reason: &str| Err(RunError::damaged(path, reason));
        if bytes[..8] != MAGIC {
            return refuse("it does not begin like one");
        }
        if word(bytes, 60) != crc32fast::hash(&bytes[..60]) {
            return refuse("the checksum of its header is wrong");
        }
        if word(bytes, 8) != VERSION {
            return refuse(&format!("it has version {}, and only {VERSION} is known", word(bytes, 8)));
        }
        let long = |at| u64::from(word(bytes, at)) | u64::from(word(bytes, at + 4)) << 32;
        let header =
            Self { seed: long(16), entries: long(24), bits: u32::from(bytes[12]), checksum: word(bytes, 32) };
        if header.bits > BITS_MAX || usize::from(bytes[13]) != header.width() || header.entries > 1 << 56 {
            return refuse("its header makes no sense");
        }
        if size != header.directory_start() + 4 * header.buckets() {
            return refuse(&format!("it has {size} bytes, and its header says otherwise"));
        }
        Ok(header)
    }
}

pub fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(std::array::from_fn(|byte| bytes[at + byte]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_read_as_it_was_written_whatever_the_number_of_buckets() {
        for bits in 0..=BITS_MAX {
            let mut bytes = vec![0xff; 16];
            let entries = [0, 1, u128::MAX, 0x0123_4567_89ab_cdef_0123_4567_89ab_cdef].map(Entry);
            for entry in entries {
                write_entry(entry, width_for(bits), &mut bytes);
                assert_eq!(read_entry(&bytes, bytes.len(), bucket_of(entry, bits), bits), entry);
            }
        }
    }

    #[test]
    fn a_large_run_takes_less_than_16_bytes_for_an_entry() {
        for entries in [100_000, 1_000_000, 100_000_000, 10_000_000_000_u64] {
            let header = Header { seed: 0, entries, bits: bits_for(entries), checksum: 0 };
            let size = header.directory_start() + 4 * header.buckets();
            assert!((size as f64) < 15.2 * entries as f64, "{entries}: {size}");
        }
    }
}
