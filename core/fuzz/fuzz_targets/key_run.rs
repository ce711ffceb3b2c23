//! Any bytes as a run of a key index, with right checksums or not. `make fuzz TARGETS=key_run`
#![no_main]

use std::sync::Arc;

use arrow_array::{ArrayRef, Int64Array, RecordBatch};
use libfuzzer_sys::fuzz_target;
use penstock_core::key_run::KeyRun;

/// The same bytes with right checksums, as far as the header says where they are.
fn summed(bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    if bytes.len() < 64 {
        return bytes;
    }
    bytes[..8].copy_from_slice(b"PenstKey");
    bytes[8..12].copy_from_slice(&3_u32.to_le_bytes());
    let bits = u32::from(bytes[12] % 6);
    (bytes[12], bytes[13], bytes[14]) = (bits as u8, bytes[13] % 3 + 1, bytes[14] % 4 + 1);
    let width = (88 - bits).div_ceil(8) as usize + usize::from(bytes[13] + bytes[14]);
    let tables = 8 << bits;
    let entries = (bytes.len() - 64).saturating_sub(tables) / width;
    bytes.truncate(64 + entries * width + tables);
    bytes[24..32].copy_from_slice(&(entries as u64).to_le_bytes());
    let directory = 64 + entries * width + (4 << bits);
    if bytes.len() == directory + (4 << bits) {
        sum_buckets(&mut bytes, entries, width, bits);
        let checksum = crc32fast::hash(&bytes[directory..]);
        bytes[32..36].copy_from_slice(&checksum.to_le_bytes());
    }
    let checksum = crc32fast::hash(&bytes[..60]);
    bytes[60..64].copy_from_slice(&checksum.to_le_bytes());
    bytes
}

fn sum_buckets(bytes: &mut [u8], entries: usize, width: usize, bits: u32) {
    let directory = 64 + entries * width + (4 << bits);
    let (mut before, mut start) = (0, 64);
    for bucket in 0..1_usize << bits {
        let at = directory + 4 * bucket;
        let difference = i32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
        let even = ((bucket + 1) * entries) >> bits;
        let end = match bucket + 1 == 1 << bits {
            true => entries,
            false => even.saturating_add_signed(difference as isize).clamp(before, entries),
        };
        let difference = (end as i64 - even as i64) as i32;
        bytes[at..at + 4].copy_from_slice(&difference.to_le_bytes());
        let stop = start + (end - before) * width;
        let mut checksum = crc32fast::Hasher::new();
        checksum.update(&(bucket as u64).to_le_bytes());
        checksum.update(&bytes[start..stop]);
        bytes[stop..stop + 4].copy_from_slice(&checksum.finalize().to_le_bytes());
        (before, start) = (end, stop + 4);
    }
}

fuzz_target!(|input: (bool, &[u8])| {
    let (with_checksums, bytes) = input;
    let bytes = if with_checksums { summed(bytes) } else { bytes.to_vec() };
    let Ok(run) = KeyRun::of("run", Box::new(bytes)) else { return };
    let ids: ArrayRef = Arc::new(Int64Array::from_iter_values(0..200));
    let keys = RecordBatch::try_from_iter([("id", ids)]).expect("a batch");
    let _ = run.verify();
    let _ = run.find(&keys);
});
