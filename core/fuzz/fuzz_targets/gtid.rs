//! Any bytes as GTID events, and as sets of GTIDs in both wire forms and as text. `make fuzz TARGETS=gtid`
#![no_main]

use libfuzzer_sys::fuzz_target;
use penstock_core::cursor::Cursor;
use penstock_core::mysql::gtid::GtidSet;
use penstock_core::mysql::gtid_event::GtidEvent;
use penstock_core::transaction_set::TransactionSet as _;

fn same_after(set: &GtidSet) {
    assert!(set.to_string().parse::<GtidSet>().as_ref() == Ok(set));
    assert!(GtidSet::decode(&mut Cursor::new(&set.encode(), 0)).as_ref() == Ok(set));
}

fuzz_target!(|bytes: &[u8]| {
    let _ = GtidEvent::parse_plain(bytes, 0, false);
    let _ = GtidEvent::parse_plain(bytes, 0, true);
    let _ = GtidEvent::parse_tagged(bytes, 0);
    let decoded = GtidSet::decode(&mut Cursor::new(bytes, 0));
    if let Ok(set) = &decoded {
        same_after(set);
    }
    let parsed = std::str::from_utf8(bytes).ok().and_then(|text| text.parse::<GtidSet>().ok());
    if let Some(set) = &parsed {
        same_after(set);
        assert!(set.difference(set).is_empty());
        assert!(set.union(set) == *set);
    }
});
