//! Runs of a key index against a model: a plain list of entries.

use std::collections::HashSet;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::ThreadId;
use std::time::Duration;

use arrow_array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use hashbrown::HashMap;
use penstock_core::key_run::{merge, Input, KeyRun, KeyRunWriter, ReadAt};
use proptest::prelude::*;
use roaring::RoaringTreemap;

const SEED: u64 = 0x5eed;
/// Keys of a history. Others are searched for too, and not found.
const KEYS: i64 = 300;

/// Key, data file, row.
type Entry = (i64, u32, u32);

/// A folder that goes away. In memory if possible: the histories wait for the disk some 100,000 times.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let memory = PathBuf::from("/dev/shm");
        let parent = if memory.is_dir() { memory } else { std::env::temp_dir() };
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let folder = parent.join(format!("penstock-key-run-{}-{number}", std::process::id()));
        std::fs::create_dir(&folder).unwrap();
        Self(folder)
    }

    fn file(&self, name: impl ToString) -> String {
        self.0.join(name.to_string()).to_str().unwrap().to_owned()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The keys are numbers and texts, some of which are long.
fn batch(keys: impl Iterator<Item = i64>) -> RecordBatch {
    let numbers: Vec<i64> = keys.collect();
    let texts = numbers.iter().map(|key| "x".repeat((key % 20) as usize));
    let texts: ArrayRef = Arc::new(StringArray::from_iter_values(texts));
    RecordBatch::try_from_iter([("id", Arc::new(Int64Array::from(numbers)) as ArrayRef), ("text", texts)])
        .unwrap()
}

fn write(path: &str, entries: &[Entry], memory_max: u64) {
    let mut writer = KeyRunWriter::new(path, SEED, memory_max);
    for part in entries.chunk_by(|left, right| left.1 == right.1) {
        let rows = Int64Array::from_iter_values(part.iter().map(|entry| i64::from(entry.2)));
        writer.add_rows(&batch(part.iter().map(|entry| entry.0)), part[0].1, &rows).unwrap();
    }
    assert_eq!(writer.finish().unwrap(), entries.len() as u64);
}

fn found(run: &KeyRun, keys: &[i64]) -> Vec<Entry> {
    let found = run.find(&batch(keys.iter().copied())).unwrap();
    assert!(found.keys.is_sorted());
    let mut entries: Vec<Entry> = (0..found.keys.len())
        .map(|at| (keys[found.keys[at] as usize], found.files[at] as u32, found.rows[at] as u32))
        .collect();
    entries.sort_unstable();
    entries
}

fn expected(entries: &[Entry], keys: &[i64]) -> Vec<Entry> {
    let wanted = |entry: &&Entry| keys.contains(&entry.0);
    let mut entries: Vec<Entry> = entries.iter().filter(wanted).copied().collect();
    entries.sort_unstable();
    entries
}

#[derive(Debug, Clone)]
enum Step {
    /// Entries, and the memory for them.
    Write(Vec<Entry>, u64),
    /// Which runs are merged (bits); for each of them, which files are kept (bits), and what is added to
    /// their numbers. Rows are deleted if their number modulo 7 is lower than the fourth number, in the files
    /// of the fifth (bits).
    Merge(u8, [u8; 8], u32, u32, u8),
    Find(Vec<i64>),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let entry = (0..KEYS, 0..8_u32, prop_oneof![0..100_u32, Just(u32::MAX)]);
    let few = prop::collection::vec(entry.clone(), 0..40);
    let many = prop::collection::vec(entry, 100..700);
    let added = prop_oneof![3 => 0..3_u32, 1 => Just(300), 1 => Just(70_000)];
    let step = prop_oneof![
        3 => (prop_oneof![3 => few, 1 => many], 0..4000_u64)
            .prop_map(|(entries, memory)| Step::Write(entries, memory)),
        2 => (any::<u8>(), any::<[u8; 8]>(), added, 0..7_u32, any::<u8>())
            .prop_map(|(runs, files, added, rows, deleted)| Step::Merge(runs, files, added, rows, deleted)),
        3 => prop::collection::vec(0..KEYS * 2, 0..30).prop_map(Step::Find),
    ];
    prop::collection::vec(step, 1..10)
}

/// Merges some of the runs, and the same in the model.
fn merge_some(
    folder: &Folder,
    runs: &mut Vec<(String, Vec<Entry>)>,
    number: usize,
    (chosen, kept, added, rows, deleted): (u8, [u8; 8], u32, u32, u8),
) {
    let mut old = Vec::new();
    let mut at = 0;
    runs.retain(|run| {
        at += 1;
        let taken = at <= 8 && chosen >> (at - 1) & 1 == 1;
        if taken {
            old.push(run.clone());
        }
        !taken
    });
    if old.is_empty() {
        return;
    }
    let is_deleted = |file: u32, row: u32| file < 8 && deleted >> file & 1 == 1 && row % 7 < rows;
    let mut drops = HashMap::new();
    for file in (0..8).filter(|file| deleted >> file & 1 == 1) {
        let all = (0..100).chain([u32::MAX]).filter(|row| is_deleted(file, *row));
        drops.insert(file, all.map(u64::from).collect::<RoaringTreemap>());
    }
    let (mut inputs, mut model) = (Vec::new(), Vec::new());
    for (which, (path, entries)) in old.iter().enumerate() {
        // The last run keeps all its files, with their numbers.
        let files = (which + 1 < old.len()).then(|| {
            let kept = (0..32_u32).filter(|file| *file >= 8 || kept[which] >> file & 1 == 1);
            kept.map(|file| (file, file + added)).collect::<HashMap<u32, u32>>()
        });
        for (key, file, row) in entries {
            let file = files.as_ref().map_or(Some(*file), |files| files.get(file).copied());
            model.extend(file.filter(|file| !is_deleted(*file, *row)).map(|file| (*key, file, *row)));
        }
        inputs.push(Input { run: KeyRun::open(path).unwrap(), files });
    }
    let path = folder.file(number);
    assert_eq!(merge(&inputs, &path, &drops).unwrap(), model.len() as u64);
    old.iter().for_each(|(path, _)| std::fs::remove_file(path).unwrap());
    runs.push((path, model));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(10_000))]

    #[test]
    fn runs_have_the_entries_of_a_plain_list_whatever_is_written_and_merged(steps in steps()) {
        let folder = Folder::new();
        let mut runs: Vec<(String, Vec<Entry>)> = Vec::new();
        for (number, step) in steps.into_iter().enumerate() {
            match step {
                Step::Write(entries, memory) => {
                    let path = folder.file(number);
                    write(&path, &entries, memory);
                    runs.push((path, entries));
                }
                Step::Merge(chosen, kept, added, rows, deleted) => {
                    merge_some(&folder, &mut runs, number, (chosen, kept, added, rows, deleted));
                }
                Step::Find(mut keys) => {
                    keys.sort_unstable();
                    keys.dedup();
                    for (path, entries) in &runs {
                        prop_assert_eq!(found(&KeyRun::open(path).unwrap(), &keys), expected(entries, &keys));
                    }
                }
            }
        }
        let all: Vec<i64> = (0..KEYS).collect();
        for (path, entries) in &runs {
            let run = KeyRun::open(path).unwrap();
            run.verify().unwrap();
            prop_assert_eq!(run.len(), entries.len() as u64);
            prop_assert_eq!(found(&run, &all), expected(entries, &all));
        }
        // Nothing but the runs is left.
        prop_assert_eq!(std::fs::read_dir(&folder.0).unwrap().count(), runs.len());
    }
}

/// A small run with several buckets: its keys and its bytes.
fn sample() -> (Vec<i64>, Vec<u8>) {
    let folder = Folder::new();
    let path = folder.file("run");
    let entries: Vec<Entry> = (0..300).map(|key| (key, key as u32 % 5, key as u32)).collect();
    write(&path, &entries, 1 << 20);
    (entries.iter().map(|entry| entry.0).collect(), std::fs::read(&path).unwrap())
}

fn opened(bytes: Vec<u8>) -> penstock_core::key_run::Result<KeyRun> {
    KeyRun::of("the run", Box::new(bytes))
}

#[test]
fn a_run_that_is_cut_off_or_longer_is_refused_when_it_is_opened() {
    let (_, bytes) = sample();
    assert!(opened(bytes.clone()).is_ok());
    for length in 0..bytes.len() {
        let error = opened(bytes[..length].to_vec()).err().unwrap().to_string();
        assert!(error.starts_with("the run is not an intact key run"), "{error}");
    }
    assert!(opened([bytes, vec![0]].concat()).is_err());
}

#[test]
fn a_run_without_its_header_is_refused() {
    let (_, mut bytes) = sample();
    bytes[..64].fill(0);
    assert!(opened(bytes).is_err());
}

#[test]
fn no_flipped_bit_is_overlooked() {
    let (keys, bytes) = sample();
    let right = found(&opened(bytes.clone()).unwrap(), &keys);
    for at in 0..bytes.len() * 8 {
        let mut damaged = bytes.clone();
        damaged[at / 8] ^= 1 << (at % 8);
        let Ok(run) = opened(damaged) else { continue };
        assert!(run.verify().is_err(), "bit {at}");
        assert!(run.find(&batch(keys.iter().copied())).is_err(), "bit {at}");
        // Keys in other buckets are still found.
        for key in [0, 100, 200] {
            if let Ok(one) = run.find(&batch([key].into_iter())) {
                assert_eq!((one.keys.len(), one.rows[0]), (1, key));
            }
        }
    }
    assert_eq!(right.len(), 300);
}

#[test]
fn buckets_of_another_run_are_refused() {
    let (keys, bytes) = sample();
    let folder = Folder::new();
    let path = folder.file("other");
    write(&path, &keys.iter().map(|key| (*key + 1000, 0, *key as u32)).collect::<Vec<_>>(), 1 << 20);
    let other = std::fs::read(&path).unwrap();
    assert_eq!(other.len(), bytes.len());
    let end = bytes.len() - 4 * 8;
    let mixed = [&bytes[..64], &other[64..end], &bytes[end..]].concat();
    assert!(opened(mixed).unwrap().verify().is_err());
}

#[test]
fn a_merge_that_leaves_out_nearly_everything_gives_a_small_file() {
    let folder = Folder::new();
    let (path, merged) = (folder.file(1), folder.file(2));
    let entries: Vec<Entry> = (0..50_000).map(|key| (key, u32::from(key % 100 == 0), key as u32)).collect();
    write(&path, &entries, 1 << 20);
    let kept: Vec<Entry> = entries.into_iter().filter(|entry| entry.1 == 1).collect();
    let inputs = [Input { run: KeyRun::open(&path).unwrap(), files: Some([(1, 1)].into_iter().collect()) }];
    assert_eq!(merge(&inputs, &merged, &HashMap::new()).unwrap(), 500);
    assert!(std::fs::metadata(&merged).unwrap().len() < 500 * 17);
    let keys: Vec<i64> = (0..1000).collect();
    let run = KeyRun::open(&merged).unwrap();
    assert_eq!(found(&run, &keys), expected(&kept, &keys));
    // A file is not replaced by what is read from it.
    let inputs = [Input { run, files: None }];
    assert!(merge(&inputs, &merged, &HashMap::new()).unwrap_err().to_string().contains("into itself"));
}

#[test]
fn runs_of_several_indexes_are_not_merged() {
    let folder = Folder::new();
    let paths = [folder.file(1), folder.file(2)];
    for (path, seed) in paths.iter().zip([1, 2]) {
        KeyRunWriter::new(path, seed, 1 << 20).finish().unwrap();
    }
    let inputs = paths.iter().map(|path| Input { run: KeyRun::open(path).unwrap(), files: None });
    let error = merge(&inputs.collect::<Vec<_>>(), &folder.file(3), &HashMap::new()).unwrap_err();
    assert!(error.to_string().contains("another index"), "{error}");
}

#[test]
fn what_does_not_fit_into_an_entry_is_refused() {
    let folder = Folder::new();
    let mut writer = KeyRunWriter::new(&folder.file(1), SEED, 1 << 20);
    let keys = batch([1, 2].into_iter());
    writer.add(&keys, (1 << 24) - 1, (1 << 32) - 2).unwrap();
    assert!(writer.add(&keys, 1 << 24, 0).is_err());
    assert!(writer.add(&keys, 0, (1 << 32) - 1).is_err());
    assert!(writer.add_rows(&keys, 0, &Int64Array::from(vec![-1, 1])).is_err());
    assert!(writer.add_rows(&keys, 0, &Int64Array::from(vec![1])).is_err());
    assert!(writer.add_rows(&keys, 0, &Int64Array::from(vec![Some(1), None])).is_err());
    assert_eq!(writer.finish().unwrap(), 2);
}

/// A slow disk. It notes who reads from it.
struct Slow(Vec<u8>, Arc<Mutex<HashSet<ThreadId>>>);

impl ReadAt for Slow {
    fn size(&self) -> io::Result<u64> {
        self.0.size()
    }

    fn read_exact_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        std::thread::sleep(Duration::from_micros(500));
        self.1.lock().unwrap().insert(std::thread::current().id());
        self.0.read_exact_at(bytes, offset)
    }
}

#[test]
fn several_threads_read_from_a_slow_disk_and_find_the_same() {
    let folder = Folder::new();
    let path = folder.file(1);
    let entries: Vec<Entry> = (0..100_000).map(|key| (key, 1, key as u32)).collect();
    write(&path, &entries, 1 << 20);
    // So few that most of their buckets are too far from each other to be read together.
    let keys: Vec<i64> = (0..100_000).step_by(667).collect();
    let bytes = std::fs::read(&path).unwrap();
    let readers = Arc::new(Mutex::new(HashSet::new()));
    let slow = |bytes: Vec<u8>| KeyRun::of("slow", Box::new(Slow(bytes, readers.clone()))).unwrap();
    assert_eq!(found(&slow(bytes.clone()), &keys), expected(&entries, &keys));
    assert!(readers.lock().unwrap().len() > 2);
    // Damage is also noticed by the other threads.
    let mut damaged = bytes;
    let half = damaged.len() / 2;
    damaged[half..half + 40_000].fill(0);
    assert!(slow(damaged).find(&batch(keys.into_iter())).is_err());
}

#[test]
fn a_key_in_very_many_rows_is_found_in_all_of_them() {
    let folder = Folder::new();
    let path = folder.file(1);
    let entries: Vec<Entry> = (0..200_000).map(|row| (i64::from(row % 3 == 0), 1, row)).collect();
    write(&path, &entries, 1 << 16);
    assert_eq!(found(&KeyRun::open(&path).unwrap(), &[1]), expected(&entries, &[1]));
}
