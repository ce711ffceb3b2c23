//! Texts as strings of JSON documents that the core writes itself, such as index entries.

/// The text in quotation marks, escaped.
pub fn quoted(text: &str) -> String {
    serde_json::to_string(text).unwrap_or_else(|_| String::from("\"\""))
}
