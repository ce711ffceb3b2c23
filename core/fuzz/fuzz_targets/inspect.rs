//! Any bytes as a binlog file, for `penstock inspect`. `make fuzz TARGETS=inspect`
#![no_main]

mod log;

use libfuzzer_sys::fuzz_target;
use penstock_core::inspect::{Inspector, Options};

fuzz_target!(|bytes: &[u8]| {
    for count_only in [true, false] {
        let options = Options { base: 0, end: None, schemas: Vec::new(), tables: Vec::new(), count_only };
        let mut inspector = Inspector::of_bytes(log::file(bytes), options);
        while let Ok(Some(lines)) = inspector.next_lines(1000) {
            for line in lines {
                assert!(serde_json::from_str::<serde::de::IgnoredAny>(&line).is_ok(), "no JSON: {line}");
            }
        }
        assert!(serde_json::from_str::<serde::de::IgnoredAny>(&inspector.summary()).is_ok());
    }
});
