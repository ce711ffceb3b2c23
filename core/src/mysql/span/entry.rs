//! The entry of a span as JSON text. ARCHITECTURE.md explains the fields.

use std::fmt::Write as _;

use super::{Sent, Tracker};
use crate::json_text::quoted;
use crate::mysql::xa::Change;

impl Tracker {
    pub(super) fn open(&self) -> Option<String> {
        if self.group.is_idle() {
            return None;
        }
        let mut text = String::from("{\"gtid_event\":");
        match self.transaction.gtid_event {
            Some(offset) => drop(write!(text, "{offset}")),
            None => text.push_str("null"),
        }
        text.push_str(",\"table_maps\":{");
        if !self.transaction.maps_stale {
            for (index, (slot, offset)) in self.transaction.maps.iter().enumerate() {
                let comma = if index > 0 { "," } else { "" };
                let _ = write!(text, "{comma}{}:{offset}", self.names.key(*slot));
            }
        }
        text.push_str("}}");
        Some(text)
    }

    pub fn entry(&self, extra: &str) -> String {
        let (span, name) = (&self.span, |slot: &usize| self.names.key(*slot));
        let mut text = format!(
            "{{\"start\":{},\"end\":{},\"committed\":{},\"file\":{},\"position\":{}",
            span.start,
            self.end,
            self.committed,
            quoted(&self.committed_source.file),
            self.committed_source.position
        );
        if span.transactions > 0 {
            let _ = write!(text, ",\"transactions\":{}", span.transactions);
        }
        if !span.gtids.is_empty() {
            let _ = write!(text, ",\"gtids\":\"{}\"", span.gtids);
        }
        if let (Some(first), Some(last)) = (span.first_commit_us, span.last_commit_us) {
            let _ = write!(text, ",\"first_commit_us\":{first},\"last_commit_us\":{last}");
        }
        if !span.touched.is_empty() {
            let tables: Vec<String> = span
                .touched
                .iter()
                .map(|slot| format!("{}:[{},{}]", name(slot), self.counts[*slot].0, self.counts[*slot].1))
                .collect();
            let _ = write!(text, ",\"tables\":{{{}}}", tables.join(","));
        }
        if !span.statements.is_empty() {
            let _ = write!(text, ",\"statements\":[{}]", span.statements.join(","));
        }
        if !span.changes.is_empty() {
            let changes: Vec<String> = span.changes.iter().map(Change::json).collect();
            let _ = write!(text, ",\"prepared\":[{}]", changes.join(","));
        }
        if let Some(open) = &span.open {
            let _ = write!(text, ",\"open\":{open}");
        }
        if let Some(last) = self.last() {
            let _ = write!(text, ",\"last\":{last}");
        }
        text.push_str(extra);
        text.push('}');
        text
    }

    /// The last transaction that ended in this span. After a reconnect it is requested again and compared.
    fn last(&self) -> Option<String> {
        if self.span.transactions == 0 {
            return None;
        }
        let ended = &self.ended;
        let gtid = ended.gtid.as_ref().map_or(String::from("null"), |gtid| format!("\"{gtid}\""));
        let sent = match ended.sent {
            Sent::AsStored => String::new(),
            Sent::Otherwise(length, digest) => format!(",\"sent\":[{length},{digest}]"),
            Sent::Unknown => String::from(",\"sent\":[]"),
        };
        Some(format!(
            "{{\"start\":{},\"end\":{},\"gtid\":{gtid},\"file\":{},\"position\":{}{sent}}}",
            ended.start,
            ended.end,
            quoted(&ended.source.file),
            ended.source.position
        ))
    }
}
