//! Decodes a part of a log some times over and says what it cost.
//!
//!     cargo run --release --example decode SCHEMA.json SEGMENT START END LAYOUT [PASSES [THREADS]]
//!
//! The segment is one of MySQL, or of PostgreSQL (`*.pgoutput`). START and END are positions in the file
//! (END 0: its end). LAYOUT is `changelog`, `after` (the same without images before) or `latest`. Each thread
//! makes all the passes. The last line is a JSON object.

use std::sync::Arc;
use std::time::Instant;

use penstock_core::column::Layout;
use penstock_core::error::Result;
use penstock_core::mysql::binlog::MySqlBinlog;
use penstock_core::output::Options;
use penstock_core::pgoutput::Pgoutput;
use penstock_core::schema::TableSchema;
use penstock_core::segment_format::SegmentFormat;
use penstock_core::split::Split;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [schema, path, start, end, layout, rest @ ..] = arguments.as_slice() else {
        eprintln!("arguments: SCHEMA.json SEGMENT START END LAYOUT [PASSES [THREADS]]");
        std::process::exit(2);
    };
    let number = |text: &str| text.parse::<u64>().expect("a number");
    let rest: Vec<u64> = rest.iter().map(|text| number(text)).collect();
    let (passes, threads) = (rest.first().copied().unwrap_or(1), rest.get(1).copied().unwrap_or(1));
    let table = std::fs::read_to_string(schema).expect("the schema");
    let table = Arc::new(TableSchema::from_json(&table).expect("a schema"));
    let end = match number(end) {
        0 => std::fs::metadata(path).expect("the segment").len(),
        end => end,
    };
    let split = Split {
        file: path.as_str().into(),
        base: 0,
        start: number(start),
        end,
        preamble: Vec::new(),
        positions: None,
    };

    let began = Instant::now();
    let before = Usage::now();
    let rows: u64 = std::thread::scope(|scope| {
        let work = || (0..passes).map(|_| decode(&table, &split, layout).expect("rows")).sum::<u64>();
        let others: Vec<_> = (1..threads).map(|_| scope.spawn(work)).collect();
        work() + others.into_iter().map(|other| other.join().expect("rows")).sum::<u64>()
    });
    let (wall_s, used) = (began.elapsed().as_secs_f64(), Usage::now());
    println!(
        "{{\"rows\": {rows}, \"wall_s\": {wall_s:.3}, \"user_s\": {:.2}, \"system_s\": {:.2}, \
         \"minor_faults\": {}}}",
        used.user_s - before.user_s,
        used.system_s - before.system_s,
        used.minor_faults - before.minor_faults
    );
}

/// One pass; the rows it gave. A batch is dropped when the next one is there, as a reader in Python does.
#[inline(never)]
fn decode(table: &Arc<TableSchema>, split: &Split, layout: &str) -> Result<u64> {
    let batch_rows = std::env::var("BATCH_ROWS")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(penstock_core::output::BATCH_ROWS);
    let options = match layout {
        "latest" => Options { batch_rows, ..Options::of(Layout::Latest) },
        _ => Options {
            before_images: layout != "after",
            identity_images: true,
            batch_rows,
            ..Options::of(Layout::Changelog)
        },
    };
    let is_pgoutput = split.file.name().ends_with(".pgoutput");
    let mut decoder = match is_pgoutput {
        true => Pgoutput::decoder(table.clone(), split, None, &options, Default::default())?,
        false => MySqlBinlog::decoder(table.clone(), split, None, &options, Default::default())?,
    };
    let mut rows = 0;
    let mut held = None;
    while let Some(batch) = decoder.next_batch()? {
        rows += batch.num_rows() as u64;
        held = Some(batch);
    }
    drop(held);
    Ok(rows)
}

/// What the process has used so far, as Linux counts it.
struct Usage {
    user_s: f64,
    system_s: f64,
    minor_faults: u64,
}

impl Usage {
    fn now() -> Self {
        let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
        // Behind the name, which may hold anything: state, then numbers.
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
        let field = |index: usize| fields.get(index).and_then(|text| text.parse::<u64>().ok()).unwrap_or(0);
        Self { user_s: field(11) as f64 / 100.0, system_s: field(12) as f64 / 100.0, minor_faults: field(7) }
    }
}
