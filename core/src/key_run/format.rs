//! The bytes of a run. Numbers of the header and the directory are little-endian.
//!
//! | part | bytes | content |
//! |---|---|---|
//! | header | 64 | magic, version, layout, seed, entries, the directory's CRC32, its own CRC32 |
//! | buckets | `entries * width + 4 * buckets` | each: entries, then a CRC32 of its number and its entries |
//! | directory | `4 * buckets` | where each bucket ends, as the difference from where it ends on average |
//!
//! Entries of a bucket are sorted by fingerprint. An entry is three big-endian numbers: the last bytes of the
//! fingerprint, without those that the bucket's number implies, the data file, and the row.

use super::{Entry, Result, RunError, FILE_MAX, FINGERPRINT_BITS};

const MAGIC: [u8; 8] = *b"PenstKey";
/// Raise it if the layout or the fingerprints change.
const VERSION: u32 = 3;
pub const HEADER_SIZE: u64 = 64;
pub const CHECKSUM_SIZE: usize = 4;
/// Bytes before those of a bucket in a buffer, so that entries can be read as numbers of 16 bytes.
pub const MARGIN: usize = 16;
/// A run has buckets of 32 to 64 entries on average.
const BUCKET_ENTRIES: u64 = 32;
const BITS_MAX: u32 = 40;

/// How a run stores its entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    /// Bits of the numbers of buckets. There are `2 ** bits` buckets.
    pub bits: u32,
    /// Bytes of the numbers of data files.
    pub file_bytes: usize,
    /// Bytes of the numbers of rows.
    pub row_bytes: usize,
}

/// What the header of a run says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    pub layout: Layout,
    pub seed: u64,
    pub entries: u64,
    /// The checksum of the directory.
    pub checksum: u32,
}

/// The bits of bucket numbers in a run with so many entries.
pub fn bits_for(entries: u64) -> u32 {
    (entries / BUCKET_ENTRIES).checked_ilog2().unwrap_or(0).min(BITS_MAX)
}

/// The bytes that a number needs.
fn bytes_for(number: u32) -> usize {
    (u32::BITS - number.leading_zeros()).div_ceil(8).max(1) as usize
}

impl Layout {
    /// For about so many entries, with files and rows up to these.
    pub fn of(entries: u64, file_max: u32, row_max: u32) -> Self {
        Self { bits: bits_for(entries), file_bytes: bytes_for(file_max), row_bytes: bytes_for(row_max) }
    }

    pub fn buckets(self) -> u64 {
        1 << self.bits
    }

    /// The greatest file and the greatest row that fit.
    pub fn maxima(self) -> (u32, u32) {
        let greatest = |bytes: usize| u32::MAX >> (32 - 8 * bytes);
        (greatest(self.file_bytes).min(FILE_MAX), greatest(self.row_bytes))
    }

    /// The bytes of a fingerprint.
    fn print_bytes(self) -> usize {
        (FINGERPRINT_BITS - self.bits).div_ceil(8) as usize
    }

    /// The bytes of an entry.
    pub fn width(self) -> usize {
        self.print_bytes() + self.file_bytes + self.row_bytes
    }

    /// The bucket of an entry.
    #[inline]
    pub fn bucket_of(self, entry: &Entry) -> u64 {
        (entry.fingerprint() >> (FINGERPRINT_BITS - self.bits)) as u64
    }

    /// Appends an entry to the bytes of its bucket.
    #[inline]
    pub fn write(self, entry: Entry, out: &mut Vec<u8>) {
        out.extend_from_slice(&entry.fingerprint().to_be_bytes()[16 - self.print_bytes()..]);
        out.extend_from_slice(&entry.file.to_be_bytes()[4 - self.file_bytes..]);
        out.extend_from_slice(&entry.row.to_be_bytes()[4 - self.row_bytes..]);
    }

    /// Reads the entry of a bucket that begins at `start`. `MARGIN` bytes must be there before it. Bits of
    /// the fingerprint that the bucket's number implies are taken from there.
    #[inline]
    pub fn read(self, bytes: &[u8], start: usize, bucket: u64) -> Entry {
        let end = start + self.width();
        let place = number_before(bytes, end);
        let row = place as u32 & u32::MAX >> (32 - 8 * self.row_bytes);
        let file = (place >> (8 * self.row_bytes)) as u32 & u32::MAX >> (32 - 8 * self.file_bytes);
        Entry::with_fingerprint(self.read_fingerprint(bytes, start, bucket), file, row)
    }

    #[inline]
    pub fn read_fingerprint(self, bytes: &[u8], start: usize, bucket: u64) -> u128 {
        let below = FINGERPRINT_BITS - self.bits;
        let stored = number_before(bytes, start + self.print_bytes());
        stored & ((1 << below) - 1) | u128::from(bucket) << below
    }
}

/// The 16 bytes before `end` as a number.
#[inline]
fn number_before(bytes: &[u8], end: usize) -> u128 {
    let mut wide = [0; MARGIN];
    wide.copy_from_slice(&bytes[end - MARGIN..end]);
    u128::from_be_bytes(wide)
}

/// The checksum of a bucket, which it ends with.
pub fn begin_checksum(bucket: u64) -> crc32fast::Hasher {
    let mut checksum = crc32fast::Hasher::new();
    checksum.update(&bucket.to_le_bytes());
    checksum
}

impl Header {
    /// Where the directory begins.
    pub fn directory_start(&self) -> u64 {
        HEADER_SIZE + self.entries * self.layout.width() as u64 + CHECKSUM_SIZE as u64 * self.layout.buckets()
    }

    /// Where the bucket of this number begins. `before`: the entries of the buckets before it.
    pub fn bucket_start(&self, bucket: u64, before: u64) -> u64 {
        HEADER_SIZE + before * self.layout.width() as u64 + CHECKSUM_SIZE as u64 * bucket
    }

    /// The entries up to the end of a bucket if they were spread evenly.
    pub fn even_end(&self, bucket: u64) -> u64 {
        (((u128::from(bucket) + 1) * u128::from(self.entries)) >> self.layout.bits) as u64
    }

    pub fn to_bytes(self) -> [u8; HEADER_SIZE as usize] {
        let mut bytes = [0; HEADER_SIZE as usize];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
        bytes[12] = self.layout.bits as u8;
        bytes[13] = self.layout.file_bytes as u8;
        bytes[14] = self.layout.row_bytes as u8;
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
        let [bits, file_bytes, row_bytes] = [12, 13, 14].map(|at| bytes[at]);
        if u32::from(bits) > BITS_MAX || !(1..=3).contains(&file_bytes) || !(1..=4).contains(&row_bytes) {
            return refuse("its layout makes no sense");
        }
        let (file_bytes, row_bytes) = (file_bytes.into(), row_bytes.into());
        let layout = Layout { bits: bits.into(), file_bytes, row_bytes };
        let header = Self { layout, seed: long(16), entries: long(24), checksum: word(bytes, 32) };
        if header.entries > 1 << 56 || size != header.directory_start() + 4 * layout.buckets() {
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
    fn an_entry_is_read_as_it_was_written_whatever_the_layout() {
        for (bits, file_bytes, row_bytes) in (0..=BITS_MAX)
            .flat_map(|bits| (1..=3).flat_map(move |file| (1..=4).map(move |row| (bits, file, row))))
        {
            let layout = Layout { bits, file_bytes, row_bytes };
            let mut bytes = vec![0xff; MARGIN];
            for hash in [0, 1, u128::MAX, 0x0123_4567_89ab_cdef_0123_4567_89ab_cdef] {
                let (file, row) = if hash == 0 { (0, 0) } else { layout.maxima() };
                let entry = Entry::new(hash, file, row);
                layout.write(entry, &mut bytes);
                let start = bytes.len() - layout.width();
                assert_eq!(layout.read(&bytes, start, layout.bucket_of(&entry)), entry);
            }
        }
    }

    #[test]
    fn numbers_have_the_bytes_that_they_need() {
        assert_eq!([0, 255, 256, 65_536, u32::MAX].map(bytes_for), [1, 1, 2, 3, 4]);
        assert_eq!(Layout::of(0, 300, 1 << 24).maxima(), (65_535, u32::MAX));
    }

    #[test]
    fn a_large_run_takes_less_than_16_bytes_for_an_entry() {
        for entries in [100_000, 1_000_000, 100_000_000, 10_000_000_000_u64] {
            let layout = Layout::of(entries, 20_000, 10_000_000);
            let header = Header { layout, seed: 0, entries, checksum: 0 };
            let size = header.directory_start() + 4 * layout.buckets();
            assert!((size as f64) < 15.3 * entries as f64, "{entries}: {size}");
        }
    }
}
