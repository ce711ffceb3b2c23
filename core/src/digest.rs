//! The digest by which a transaction is recognised when it is requested again.
//!
//! It is not a CRC32. The CRC32 of events that end with their own CRC32 depends only on their lengths.

use md5::{Digest as _, Md5};

/// Length and the first 64 bits of the MD5 of bytes.
#[derive(Clone, Default)]
pub struct Digest {
    state: Md5,
    length: u64,
}

impl Digest {
    pub fn update(&mut self, bytes: &[u8]) {
        self.state.update(bytes);
        self.length += bytes.len() as u64;
    }

    pub fn finish(self) -> (u64, u64) {
        let digest = self.state.finalize();
        let mut first = [0; 8];
        first.copy_from_slice(&digest[..8]);
        (self.length, u64::from_le_bytes(first))
    }
}
