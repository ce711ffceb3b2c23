//! Which events of a topic partition were there before.
//!
//! Debezium delivers at least once: after a crash it sends events again. Each event carries its position at
//! the database. An event counts as sent again only if its position, its commit time and (MySQL) the number
//! of its GTID are all at or before the last ones that were seen from the same database. A position alone
//! would not do: after a failover, positions of the new server may be smaller. If in doubt, an event is
//! taken: a change that is applied twice is harmless where rows are merged by key, and a lost one is not.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Events at one position that are remembered: rows of one statement can share a position.
const EQUALS_MAX: usize = 4096;
/// Databases whose positions are remembered for a partition.
const ORIGINS_MAX: usize = 64;

/// The position of an event in the log of its database.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Position {
    /// Positions with another scope cannot be compared.
    pub scope: String,
    /// Numbers of a fixed width, so that texts compare as positions do. None: the connector has none.
    pub place: Option<String>,
    /// The number of the GTID; 0: none.
    pub number: u64,
    /// Commit time in milliseconds since 1970.
    pub commit_ms: i64,
}

/// The last position that was seen of one database.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Seen {
    pub last: Position,
    /// Hashes of the events at exactly that place.
    pub equals: Vec<u64>,
}

pub type SeenByOrigin = BTreeMap<String, Seen>;

/// The fields of an event's `source` block that say where it is from, as text.
pub trait SourceBlock {
    fn get(&self, name: &str) -> Option<String>;
}

/// The position that the block of an event gives.
pub fn position(connector: &str, block: &dyn SourceBlock) -> Position {
    let text = |name: &str| block.get(name).unwrap_or_default();
    let number = |name: &str| block.get(name).and_then(|text| text.parse::<u128>().ok());
    let (mut scope, mut gtid_number) = (String::new(), 0);
    let place = match connector {
        "mysql" | "mariadb" => {
            let gtid = text("gtid");
            match gtid.rsplit_once([':', '-']) {
                Some((origin, last)) => (scope, gtid_number) = (origin.to_owned(), last.parse().unwrap_or(0)),
                None => scope = text("server_id"),
            }
            let file = text("file").rsplit_once('.').and_then(|(_, digits)| digits.parse::<u128>().ok());
            places([file, number("pos"), Some(number("row").unwrap_or(0))])
        }
        // Changes come in the order of commits, so a change may have a smaller LSN than the one before. The
        // LSN of the last commit only grows.
        "postgresql" => {
            let sequence: Vec<Option<String>> = serde_json::from_str(&text("sequence")).unwrap_or_default();
            let part =
                |at: usize| sequence.get(at).cloned().flatten().and_then(|text| text.parse::<u128>().ok());
            match sequence.len() {
                2 => places([Some(part(0).unwrap_or(0)), part(1)]),
                _ => None,
            }
        }
        "sqlserver" => places([
            lsn(&text("commit_lsn")),
            lsn(&text("change_lsn")),
            Some(number("event_serial_no").unwrap_or(0)),
        ]),
        "db2" | "informix" => places([lsn(&text("commit_lsn")), lsn(&text("change_lsn"))]),
        // Changes of one transaction have no order that is known to be kept.
        "oracle" => places([number("commit_scn")]),
        "mongodb" => places([number("ts_ms").map(|ms| ms / 1000), number("ord")]),
        _ => None,
    };
    Position { scope, place, number: gtid_number, commit_ms: text("ts_ms").parse().unwrap_or(0) }
}

fn places<const N: usize>(parts: [Option<u128>; N]) -> Option<String> {
    let parts: Option<Vec<String>> =
        parts.iter().map(|part| part.map(|number| format!("{number:032x}"))).collect();
    parts.map(|parts| parts.join("."))
}

/// `00000027:00000758:0005`, or a decimal number (Informix).
fn lsn(text: &str) -> Option<u128> {
    let digits: String = text.chars().filter(|letter| *letter != ':').collect();
    u128::from_str_radix(&digits, if text.contains(':') { 16 } else { 10 }).ok()
}

impl Position {
    /// Whether it is certainly before `other`, or at the same place.
    pub fn is_not_after(&self, other: &Position) -> bool {
        let (Some(place), Some(other_place)) = (&self.place, &other.place) else { return false };
        self.scope == other.scope
            && place.len() == other_place.len()
            && place <= other_place
            && self.number <= other.number
            && self.commit_ms <= other.commit_ms
    }

    pub fn is_before(&self, other: &Position) -> bool {
        self.place != other.place && self.is_not_after(other)
    }
}

/// Whether an event was seen before; otherwise it is noted. `hash`: of everything that tells it from other
/// events at the same place. `ties`: such events are dropped only if they are equal. If not, they are never
/// dropped.
pub fn was_seen(seen: &mut SeenByOrigin, origin: &str, position: &Position, hash: u64, ties: bool) -> bool {
    if position.place.is_none() {
        return false;
    }
    let Some(known) = seen.get_mut(origin) else {
        if seen.len() < ORIGINS_MAX {
            seen.insert(origin.to_owned(), Seen { last: position.clone(), equals: vec![hash] });
        }
        return false;
    };
    if position.is_before(&known.last) {
        return true;
    }
    if position.scope == known.last.scope && position.place == known.last.place {
        if ties && known.equals.contains(&hash) {
            return true;
        }
        if known.equals.len() < EQUALS_MAX {
            known.equals.push(hash);
        }
        known.last.commit_ms = known.last.commit_ms.max(position.commit_ms);
        known.last.number = known.last.number.max(position.number);
        return false;
    }
    if position.scope == known.last.scope {
        // A smaller place was taken because of a later time: places go on from there.
        let last = &known.last;
        let number = position.number.max(last.number);
        let commit_ms = position.commit_ms.max(last.commit_ms);
        known.last = Position { number, commit_ms, ..position.clone() };
    } else {
        known.last = position.clone();
    }
    known.equals = vec![hash];
    false
}

/// Takes what is known of one database, unless there are too many.
pub fn note(seen: &mut SeenByOrigin, origin: String, one: Seen) {
    if seen.len() < ORIGINS_MAX || seen.contains_key(&origin) {
        seen.insert(origin, one);
    }
}
