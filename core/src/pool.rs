//! Reuses the memory of old batches for new ones.
//!
//! A batch takes some megabytes. An allocator returns them to the system when they are freed, and getting
//! them again costs a page fault every 4 KiB: a third of all time. So the buffers of a batch come back to
//! this pool when its last reader drops it, in any thread. The next batch of any decoder in the process uses
//! them.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Mutex;

use arrow_buffer::{ArrowNativeType, Buffer, ScalarBuffer, ToByteSlice};

/// Limit of the bytes of all buffers that are kept.
const KEPT_BYTES_MAX: usize = 48 << 20;
/// Limit of one buffer. A buffer for one huge value is not kept.
const BUFFER_BYTES_MAX: usize = 8 << 20;
/// Smaller buffers come from the allocator, which keeps such pieces itself.
const BUFFER_BYTES_MIN: usize = 16 << 10;

static KEPT_BYTES: AtomicUsize = AtomicUsize::new(0);

/// The element types of buffers.
pub trait Pooled: ArrowNativeType {
    fn kept() -> &'static Mutex<Vec<Vec<Self>>>;
}

/// The functions of each kind of buffer: how many bytes are kept, and drop the oldest buffer.
type Kind = (fn() -> usize, fn());

macro_rules! pooled {
    ($($type:ty)*) => {
        $(impl Pooled for $type {
            fn kept() -> &'static Mutex<Vec<Vec<Self>>> {
                static KEPT: Mutex<Vec<Vec<$type>>> = Mutex::new(Vec::new());
                &KEPT
            }
        })*

        static KINDS: &[Kind] = &[$((kept_bytes::<$type>, drop_oldest::<$type>)),*];
    };
}

#[cfg(not(test))]
pooled! { u8 i32 i64 f32 f64 i128 }
// The last kinds are for the tests of this file: nobody else in the process uses them.
#[cfg(test)]
pooled! { u8 i32 i64 f32 f64 i128 u16 u32 u64 }

/// An empty vector with room for `room` values. 0: the number is unknown.
pub fn take<T: Pooled>(room: usize) -> Vec<T> {
    // Never waits for the lock: a process that was forked while another thread held it would wait forever.
    let Ok(mut kept) = T::kept().try_lock() else { return Vec::with_capacity(room) };
    let sizes = kept.iter().enumerate().map(|(place, values)| (values.capacity(), place));
    let best = match room {
        0 => sizes.max(),
        room => sizes.filter(|(capacity, _)| *capacity >= room).min(),
    };
    match best {
        Some((capacity, place)) => {
            KEPT_BYTES.fetch_sub(capacity * size_of::<T>(), Ordering::Relaxed);
            kept.remove(place)
        }
        None => Vec::with_capacity(room),
    }
}

/// Keeps the vector's memory. If that is too much, the kind of buffers of which most bytes are kept is
/// dropped first: they may be from tables that are not decoded any more.
pub fn give<T: Pooled>(mut values: Vec<T>) {
    let bytes = values.capacity() * size_of::<T>();
    if !(BUFFER_BYTES_MIN..=BUFFER_BYTES_MAX).contains(&bytes) {
        return;
    }
    values.clear();
    let Ok(mut kept) = T::kept().try_lock() else { return };
    let mut total = KEPT_BYTES.fetch_add(bytes, Ordering::Relaxed) + bytes;
    kept.push(values);
    drop(kept); // its lock is needed below
    while total > KEPT_BYTES_MAX {
        let most = KINDS.iter().max_by_key(|(kept_bytes, _)| kept_bytes());
        most.inspect(|(_, drop_oldest)| drop_oldest());
        let left = KEPT_BYTES.load(Ordering::Relaxed);
        if left >= total {
            return; // another thread does it
        }
        total = left;
    }
}

fn kept_bytes<T: Pooled>() -> usize {
    T::kept().try_lock().map_or(0, |kept| kept.iter().map(|values| values.capacity() * size_of::<T>()).sum())
}

fn drop_oldest<T: Pooled>() {
    let Ok(mut kept) = T::kept().try_lock() else { return };
    if !kept.is_empty() {
        KEPT_BYTES.fetch_sub(kept.remove(0).capacity() * size_of::<T>(), Ordering::Relaxed);
    }
}

/// Shares the values with readers. Their memory comes back when the last reader is done.
pub fn share<T: Pooled>(values: Vec<T>) -> ScalarBuffer<T> {
    let length = values.len();
    if values.capacity() * size_of::<T>() < BUFFER_BYTES_MIN {
        return ScalarBuffer::from(values);
    }
    // A few values must not occupy the memory of many.
    if length < values.capacity() / 4 {
        let few = values.as_slice().to_vec();
        give(values);
        return ScalarBuffer::from(few);
    }
    let buffer = Buffer::from(bytes::Bytes::from_owner(Shared(values)));
    ScalarBuffer::new(buffer, 0, length)
}

struct Shared<T: Pooled>(Vec<T>);

impl<T: Pooled> AsRef<[u8]> for Shared<T> {
    fn as_ref(&self) -> &[u8] {
        self.0.to_byte_slice()
    }
}

impl<T: Pooled> Drop for Shared<T> {
    fn drop(&mut self) {
        give(std::mem::take(&mut self.0));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The limit is for all threads together, so tests of it must not run at the same time.
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

    #[test]
    fn memory_comes_back_when_the_last_reader_is_done() {
        let _alone = ONE_AT_A_TIME.lock().unwrap();
        let mut values: Vec<u32> = take(123_456);
        values.extend(0..100_000);
        let address = values.as_ptr();
        let shared = share(values);
        let reader = shared.clone();
        drop(shared);
        assert_eq!((reader.len(), reader[99_999]), (100_000, 99_999));
        let other: Vec<u32> = take(123_456);
        assert_ne!(other.as_ptr(), address);
        drop(reader);
        let again: Vec<u32> = take(123_456);
        assert_eq!((again.as_ptr(), again.len()), (address, 0));
    }

    #[test]
    fn few_values_do_not_hold_the_memory_of_many() {
        let mut values: Vec<u16> = take(1_000_000);
        values.push(7);
        let shared = share(values);
        assert_eq!(&shared[..], [7]);
        assert!(shared.inner().capacity() < 1000);
    }

    #[test]
    fn what_is_kept_has_a_limit() {
        let _alone = ONE_AT_A_TIME.lock().unwrap();
        for _ in 0..40 {
            give(Vec::<u64>::with_capacity(500_000));
        }
        let bytes = kept_bytes::<u64>();
        assert!((1..=KEPT_BYTES_MAX).contains(&bytes));
        give(Vec::<u64>::with_capacity(BUFFER_BYTES_MAX));
        assert_eq!(kept_bytes::<u64>(), bytes);

        let other: Vec<u32> = Vec::with_capacity(500_000);
        let address = other.as_ptr();
        give(other);
        let again: Vec<u32> = take(500_000);
        assert_eq!(again.as_ptr(), address, "what is kept of one kind turns no other away");
        while kept_bytes::<u64>() > 0 {
            drop_oldest::<u64>();
        }
    }
}
