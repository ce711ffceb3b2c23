//! What stands for a value that is not in a message because it did not change
//! (`unavailable.value.placeholder`). Connectors write it in the form of the column.

use serde_json::value::RawValue;

use super::json::{base64, Members};

/// Longer values are none, so that each value costs little.
const LENGTH_MAX: usize = 1024;
/// Coordinates of the points that stand for geometries of PostgreSQL.
const POINTS: [[f64; 2]; 2] = [[-99_999_999.0, -99_999_999.0], [179.999_999, 89.999_999]];

#[derive(Debug, Clone)]
pub struct Placeholder {
    text: String,
    /// The UUID that is made of it, for lists of UUIDs.
    uuid: String,
    hex: String,
    /// Its bytes, as a list of integers in JSON.
    bytes: String,
}

impl Placeholder {
    pub fn new(text: String, uuid: String) -> Self {
        let hex = text.bytes().map(|byte| format!("{byte:02x}")).collect();
        let bytes: Vec<String> = text.bytes().map(|byte| (byte as i8).to_string()).collect();
        Self { text, uuid, hex, bytes: format!("[{}]", bytes.join(",")) }
    }

    /// Whether a value in JSON is the placeholder: as text, as bytes in base64 or hexadecimal digits, in a
    /// list of one, as a list of its bytes, as the key of a map, or as a geometry.
    pub fn is(&self, json: &str) -> bool {
        if json.len() > LENGTH_MAX || self.text.is_empty() {
            return false;
        }
        match json.as_bytes().first() {
            Some(b'"') => self.is_text(json),
            Some(b'[') => {
                let same = json.bytes().filter(|byte| !byte.is_ascii_whitespace()).eq(self.bytes.bytes());
                let only =
                    || serde_json::from_str::<Vec<&RawValue>>(json).ok().filter(|items| items.len() == 1);
                same || only().is_some_and(|items| self.is_text(items[0].get()))
            }
            Some(b'{') => serde_json::from_str::<Members<'_>>(json)
                .is_ok_and(|members| self.is_map(&members) || is_point(&members)),
            _ => false,
        }
    }

    fn is_text(&self, json: &str) -> bool {
        let Ok(text) = serde_json::from_str::<String>(json) else { return false };
        text == self.text
            || (text == self.uuid && !text.is_empty())
            || text.eq_ignore_ascii_case(&self.hex)
            || base64(&text).is_ok_and(|bytes| bytes == self.text.as_bytes())
    }

    fn is_map(&self, members: &Members<'_>) -> bool {
        members.0.len() == 1 && members.0[0].0 == self.text
    }
}

/// A geometry that is one of the points.
fn is_point(members: &Members<'_>) -> bool {
    let wkb = members.text("wkb").and_then(|text| base64(&text).ok()).unwrap_or_default();
    let Some((_, coordinates)) = wkb.split_last_chunk::<16>() else { return false };
    // The order of the bytes, the type, and perhaps the reference system.
    matches!(wkb.len(), 21 | 25)
        && POINTS
            .iter()
            .any(|[x, y]| coordinates[..8] == x.to_le_bytes() && coordinates[8..] == y.to_le_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_placeholder_is_known_in_each_form() {
        let known = Placeholder::new("a_b".into(), "0000-1".into());
        for json in [
            r#""a_b""#,
            r#""YV9i""#,
            r#""615F62""#,
            r#"["a_b"]"#,
            r#"["YV9i"]"#,
            r#"["0000-1"]"#,
            "[97, 95,98]",
            r#"{"a_b":"a_b"}"#,
            r#"{"wkb":"AQEAACDmEAAAAAAA/IPXl8EAAAD8g9eXwQ==","srid":4326}"#,
            r#"{"wkb":"AQEAACDmEAAADCHn/f9/ZkAYQs77/39WQA==","srid":4326}"#,
        ] {
            assert!(known.is(json), "{json}");
        }
        for json in [
            r#""a_c""#,
            r#"["a_b", "a_b"]"#,
            "[97,95]",
            "[]",
            "{}",
            "1",
            "null",
            r#"{"a_b":1,"c":2}"#,
            r#"{"wkb":"AQEAAAAAAAAAAADwPwAAAAAAAABA","srid":4326}"#,
        ] {
            assert!(!known.is(json), "{json}");
        }
    }
}
