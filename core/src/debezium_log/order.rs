//! Which events of a topic partition were there before.
//!
//! Debezium delivers at least once: after a crash it sends events again. Each event carries its position at
//! the database. An event counts as sent again only if its position, its commit time and (MySQL) the number
//! of its GTID are all at or before the last ones that were seen from the same database. A position alone
//! would not do: after a failover, positions of the new server may be smaller. If in doubt, an event is
//! taken: a change that is applied twice is harmless where rows are merged by key, and a lost one is not.
//!
//! Several events can share a position: the rows of one event of the log, and all rows of a transaction that
//! the server has compressed. One of them counts as sent again only if it is equal to one that was seen, and
//! the same row did not change after that one. So whatever is dropped, rows are as they would be with it.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Events at one position that are remembered: rows of one statement can share a position.
const EQUALS_MAX: usize = 4096;
/// Databases whose positions are remembered for a partition.
const ORIGINS_MAX: usize = 64;

/// The connector of messages of logs in our own format.
const PENSTOCK: &str = "penstock";

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
    /// Hashes of the events at exactly that place, in their order.
    pub equals: Vec<u64>,
    /// Hashes of the keys of the same events.
    #[serde(default)]
    pub keys: Vec<u32>,
}

impl Seen {
    fn first(last: Position, hash: u64, key: Option<u32>) -> Self {
        Self { last, equals: vec![hash], keys: vec![key.unwrap_or_default()] }
    }

    /// Whether an equal event was seen at this place, and no other one of its row behind it.
    fn has(&self, hash: u64, key: u32) -> bool {
        let Some(at) = self.equals.iter().rposition(|known| *known == hash) else { return false };
        !self.keys.iter().skip(at + 1).any(|known| *known == key)
    }

    fn add(&mut self, hash: u64, key: u32) {
        self.keys.resize(self.equals.len(), 0);
        if self.equals.len() < EQUALS_MAX {
            self.equals.push(hash);
            self.keys.push(key);
            return;
        }
        // What is not remembered must not be missed: earlier events of this row are never dropped.
        for (known, hash) in self.keys.iter().zip(&mut self.equals) {
            if *known == key {
                *hash = 0;
            }
        }
    }
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
            // Not the row's number: in a compressed transaction, each of its events begins with row 0 again.
            places([file, number("pos")])
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
        // Topics that Penstock has filled from topics: each partition that it read is a log of its own, and
        // the position of a change is the offset of a message there.
        PENSTOCK => {
            scope = text("transaction").rsplit_once('-').map_or("", |(series, _)| series).to_owned();
            places([number("pos").filter(|_| !scope.is_empty())])
        }
        // Changes of one transaction have no order that is known to be kept.
        "oracle" => places([number("commit_scn")]),
        "mongodb" => {
            scope = text("rs"); // each shard has a log of its own
            places([number("ts_ms").map(|ms| ms / 1000), number("ord")])
        }
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
    /// The log whose positions this one can be compared with. `origin`: of its event.
    pub fn log<'a>(&self, origin: &'a str, connector: &str) -> Cow<'a, str> {
        match connector {
            PENSTOCK => format!("{origin}/{}", self.scope).into(),
            _ => origin.into(),
        }
    }

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
/// events at the same place. `key`: hash of the row's key; None: events at the same place are never dropped.
pub fn was_seen(
    seen: &mut SeenByOrigin,
    origin: &str,
    position: &Position,
    hash: u64,
    key: Option<u32>,
) -> bool {
    if position.place.is_none() {
        return false;
    }
    let Some(known) = seen.get_mut(origin) else {
        if seen.len() < ORIGINS_MAX {
            seen.insert(origin.to_owned(), Seen::first(position.clone(), hash, key));
        }
        return false;
    };
    if position.is_before(&known.last) {
        return true;
    }
    if position.scope == known.last.scope && position.place == known.last.place {
        if key.is_some_and(|key| known.has(hash, key)) {
            return true;
        }
        known.add(hash, key.unwrap_or_default());
        known.last.commit_ms = known.last.commit_ms.max(position.commit_ms);
        known.last.number = known.last.number.max(position.number);
        return false;
    }
    if position.scope == known.last.scope {
        // A smaller place was taken because of a later time: places go on from there.
        let last = &known.last;
        let number = position.number.max(last.number);
        let commit_ms = position.commit_ms.max(last.commit_ms);
        *known = Seen::first(Position { number, commit_ms, ..position.clone() }, hash, key);
    } else {
        *known = Seen::first(position.clone(), hash, key);
    }
    false
}

/// Takes what is known of one database, unless there are too many.
pub fn note(seen: &mut SeenByOrigin, origin: String, one: Seen) {
    if seen.len() < ORIGINS_MAX || seen.contains_key(&origin) {
        seen.insert(origin, one);
    }
}
