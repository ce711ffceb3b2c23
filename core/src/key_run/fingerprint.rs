//! Fingerprints of keys: SipHash-1-3 with 128 bits, of the bytes of the key, with the index's seed.
//!
//! The seed is secret, so nobody can choose keys that have one fingerprint, or that fall into one bucket. A
//! fingerprint is the same in every process and version. If it ever cannot be, `format::VERSION` changes.

use arrow_array::{Array, RecordBatch};

use crate::column::write_widened_key;
use crate::error::ValueError;

/// Makes the fingerprints of an index.
#[derive(Debug, Clone, Copy)]
pub struct Fingerprints {
    seed: u64,
}

impl Fingerprints {
    pub fn new(seed: u64) -> Self {
        Self { seed }
    }

    /// Calls `visit` with the row and the hash of each key of a batch. A key with NULL equals no other,
    /// and is left out.
    pub fn for_each<E: From<ValueError>>(
        &self,
        keys: &RecordBatch,
        mut visit: impl FnMut(usize, u128) -> Result<(), E>,
    ) -> Result<(), E> {
        let columns = keys.columns();
        let nullable = columns.iter().any(|column| column.null_count() > 0);
        let mut bytes = Vec::new();
        for row in 0..keys.num_rows() {
            if nullable && columns.iter().any(|column| column.is_null(row)) {
                continue;
            }
            bytes.clear();
            for column in columns {
                write_widened_key(column, row, &mut bytes)?;
            }
            visit(row, self.hash(&bytes))?;
        }
        Ok(())
    }

    #[inline]
    fn hash(&self, key: &[u8]) -> u128 {
        sip_1_3([self.seed, self.seed ^ 0x9e37_79b9_7f4a_7c15], key)
    }
}

/// SipHash-1-3 with 128 bits. Source: Aumasson and Bernstein, "SipHash: a fast short-input PRF", and its
/// reference implementation. The first half of the result is in the high bits.
#[inline]
fn sip_1_3(key: [u64; 2], message: &[u8]) -> u128 {
    let mut state = [
        key[0] ^ 0x736f_6d65_7073_6575,
        key[1] ^ 0x646f_7261_6e64_6f6d ^ 0xee,
        key[0] ^ 0x6c79_6765_6e65_7261,
        key[1] ^ 0x7465_6462_7974_6573,
    ];
    let mut take = |word: u64| {
        state[3] ^= word;
        round(&mut state);
        state[0] ^= word;
    };
    let mut words = message.chunks_exact(8);
    for word in words.by_ref() {
        take(u64::from_le_bytes(std::array::from_fn(|at| word[at])));
    }
    // The last word has the rest, and the message's length in its highest byte.
    let mut last = [0; 8];
    last[..words.remainder().len()].copy_from_slice(words.remainder());
    last[7] = message.len() as u8;
    take(u64::from_le_bytes(last));
    state[2] ^= 0xee;
    (0..3).for_each(|_| round(&mut state));
    let first = state[0] ^ state[1] ^ state[2] ^ state[3];
    state[1] ^= 0xdd;
    (0..3).for_each(|_| round(&mut state));
    let second = state[0] ^ state[1] ^ state[2] ^ state[3];
    u128::from(first) << 64 | u128::from(second)
}

#[inline]
fn round(state: &mut [u64; 4]) {
    let [mut a, mut b, mut c, mut d] = *state;
    a = a.wrapping_add(b);
    b = b.rotate_left(13) ^ a;
    a = a.rotate_left(32);
    c = c.wrapping_add(d);
    d = d.rotate_left(16) ^ c;
    a = a.wrapping_add(d);
    d = d.rotate_left(21) ^ a;
    c = c.wrapping_add(b);
    b = b.rotate_left(17) ^ c;
    c = c.rotate_left(32);
    *state = [a, b, c, d];
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::{
        ArrayRef, Float32Array, Float64Array, Int16Array, Int32Array, Int64Array, StringArray,
    };

    use super::*;

    fn hashes(seed: u64, columns: Vec<ArrayRef>) -> Vec<(usize, u128)> {
        let named = columns.into_iter().enumerate().map(|(at, column)| (at.to_string(), column, true));
        let batch = RecordBatch::try_from_iter_with_nullable(named).unwrap();
        let mut found = Vec::new();
        let visit = |row, hash| {
            found.push((row, hash));
            Ok::<(), ValueError>(())
        };
        Fingerprints::new(seed).for_each(&batch, visit).unwrap();
        found
    }

    /// By OpenSSL: `printf '\x00...' | openssl mac -macopt hexkey:0001...0f -macopt size:16
    /// -macopt c-rounds:1 -macopt d-rounds:3 SIPHASH`.
    #[test]
    fn it_is_the_hash_that_openssl_makes() {
        let bytes: [u8; 20] = std::array::from_fn(|at| at as u8);
        let word = |first: u8| u64::from_le_bytes(std::array::from_fn(|at| first + at as u8));
        for (length, expected) in [
            (0, "E77EBCB22788A5BEFD62DB6ADD303001"),
            (7, "1084B923F2AAE0C3A62F2EC80848AB77"),
            (8, "AA12FEE1D5E3DAB4724F16AB35F9C799"),
            (16, "D0A8D95715518EEBB513B0F83D9E1793"),
            (20, "3C2C2F11BB90CF0BE335CA9B2E91E9B7"),
        ] {
            let hash = sip_1_3([word(0), word(8)], &bytes[..length]);
            let halves = [((hash >> 64) as u64).to_le_bytes(), (hash as u64).to_le_bytes()].concat();
            let hex: String = halves.iter().map(|byte| format!("{byte:02X}")).collect();
            assert_eq!(hex, expected);
        }
    }

    #[test]
    fn a_key_has_the_same_fingerprint_in_the_types_that_its_column_may_be_widened_to() {
        let narrow: [ArrayRef; 3] = [
            Arc::new(Int16Array::from(vec![-1, 7, i16::MAX])),
            Arc::new(Int32Array::from(vec![-1, 7, 32767])),
            Arc::new(Int64Array::from(vec![-1, 7, 32767])),
        ];
        let [first, second, third] = narrow.map(|column| hashes(1, vec![column]));
        assert!(first == second && second == third);
        let floats: ArrayRef = Arc::new(Float32Array::from(vec![0.5, -0.0, f32::INFINITY]));
        let doubles: ArrayRef = Arc::new(Float64Array::from(vec![0.5, -0.0, f64::INFINITY]));
        assert_eq!(hashes(1, vec![floats]), hashes(1, vec![doubles]));
    }

    #[test]
    fn a_key_with_null_is_left_out() {
        let numbers: ArrayRef = Arc::new(Int32Array::from(vec![Some(1), None, Some(1)]));
        let texts: ArrayRef = Arc::new(StringArray::from(vec![Some("a"), Some("a"), None]));
        assert_eq!(hashes(1, vec![numbers, texts]).iter().map(|found| found.0).collect::<Vec<_>>(), [0]);
    }

    /// If this fails, runs that exist would not be understood any more: raise `format::VERSION`.
    #[test]
    fn fingerprints_are_the_same_in_all_versions() {
        let numbers: ArrayRef = Arc::new(Int32Array::from(vec![1, 2]));
        let texts: ArrayRef = Arc::new(StringArray::from(vec!["ä", "a text of more than 15 bytes"]));
        let found = hashes(0x1234_5678_9abc_def0, vec![numbers, texts]);
        let fingerprints = [28_807_863_216_869_513_615_484_862, 27_444_391_817_059_446_435_549_226];
        assert_eq!(found.iter().map(|found| found.1 >> 40).collect::<Vec<_>>(), fingerprints);
    }
}
