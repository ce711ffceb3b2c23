//! The CRC32 of an event or a record.

use std::sync::LazyLock;

use crc32fast::Hasher;

/// The CRC32 of some bytes. What the CPU can do is looked up once, which for small events would take as long
/// as the sum itself.
#[inline]
pub fn crc32(bytes: &[u8]) -> u32 {
    static BEGUN: LazyLock<Hasher> = LazyLock::new(Hasher::new);
    let mut hasher = BEGUN.clone();
    hasher.update(bytes);
    hasher.finalize()
}
