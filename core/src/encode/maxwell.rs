//! Maxwell's JSON. Its reference names the options; each has the same name here.
//!
//! Values are Maxwell's, too, but for those that it gets wrong (docs/formats.md).

use serde::Deserialize;

use super::columns::{Column, Table};
use super::format::{Change, EventFacts, Format};
use super::geometry;
use super::image::Place;
use super::json_form::{each_label, write_fields, write_old, write_value, Form, Tools};
use super::json_numbers::write_numeric;
use super::json_text::{quoted, write_utf8};
use super::messages::{About, Messages};
use super::source_info::SourceInfo;
use crate::decimal::DecimalImage;
use crate::digits::write_u64;
use crate::error::Result;
use crate::rows::RowsKind;
use crate::rows::Taken;
use crate::temporal::{Date, DateTime, Instant};
use crate::transaction::Transaction;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum KeyFormat {
    #[default]
    Hash,
    Array,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[expect(clippy::struct_excessive_bools, reason = "Maxwell's options are switches")]
pub struct Options {
    output_binlog_position: bool,
    output_gtid_position: bool,
    output_commit_info: bool,
    output_xoffset: bool,
    output_nulls: bool,
    output_server_id: bool,
    output_thread_id: bool,
    output_row_query: bool,
    output_primary_keys: bool,
    output_primary_key_columns: bool,
    output_null_zerodates: bool,
    /// Messages of statements. The caller writes them, who knows the definitions.
    output_ddl: bool,
    kafka_key_format: KeyFormat,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            output_binlog_position: false,
            output_gtid_position: false,
            output_commit_info: true,
            output_xoffset: true,
            output_nulls: true,
            output_server_id: false,
            output_thread_id: false,
            output_row_query: false,
            output_primary_keys: false,
            output_primary_key_columns: false,
            output_null_zerodates: false,
            output_ddl: false,
            kafka_key_format: KeyFormat::Hash,
        }
    }
}

struct MaxwellForm {
    null_zero_dates: bool,
}

impl Form for MaxwellForm {
    fn decimal(&self, _: &Column, image: DecimalImage<'_>, out: &mut Vec<u8>) -> Taken {
        image.write_text(out)
    }

    fn numeric(&self, _: &Column, text: &[u8], out: &mut Vec<u8>) -> Taken {
        write_numeric(text, out)
    }

    fn geometry(&self, _: &Column, value: &[u8], out: &mut Vec<u8>) -> Taken {
        let (_, wkb) = geometry::split(value)?;
        out.push(b'"');
        geometry::write_wkt(wkb, out)?;
        out.push(b'"');
        Ok(())
    }

    fn date(&self, _: &Column, value: Date, out: &mut Vec<u8>) -> Taken {
        if self.null_zero_dates && value == Date::default() {
            out.extend_from_slice(b"null");
            return Ok(());
        }
        out.push(b'"');
        value.write_text(out);
        out.push(b'"');
        Ok(())
    }

    fn datetime(&self, column: &Column, value: DateTime, out: &mut Vec<u8>) -> Taken {
        if self.null_zero_dates && value.date == Date::default() {
            out.extend_from_slice(b"null");
            return Ok(());
        }
        out.push(b'"');
        value.write_text(column.fsp, out);
        out.push(b'"');
        Ok(())
    }

    fn timestamp(&self, column: &Column, value: Instant, out: &mut Vec<u8>) -> Taken {
        self.datetime(column, value.datetime(), out)
    }

    fn set(&self, column: &Column, bits: u64, out: &mut Vec<u8>) -> Taken {
        out.push(b'[');
        each_label(column, bits, |index, label| {
            if index > 0 {
                out.push(b',');
            }
            out.extend_from_slice(label);
        })?;
        out.push(b']');
        Ok(())
    }

    /// The document itself, not a string of its text.
    fn json(&self, _: &Column, text: &[u8], out: &mut Vec<u8>) {
        out.extend_from_slice(text);
    }

    fn json_text(&self, _: &Column, text: &[u8], out: &mut Vec<u8>) {
        match serde_json::from_slice::<serde::de::IgnoredAny>(text) {
            // A message is one line. Line breaks are only between the parts of a document.
            Ok(_) => {
                out.extend(text.iter().map(|byte| if matches!(byte, b'\n' | b'\r') { b' ' } else { *byte }))
            }
            Err(_) => write_utf8(text, out),
        }
    }
}

pub struct Maxwell {
    options: Options,
    info: &'static SourceInfo,
    form: MaxwellForm,
    tools: Tools,
    /// Up to the xid, and from it to the end of what all rows share.
    head: Vec<u8>,
    middle: Vec<u8>,
    xoffset: u64,
    /// Rows of a snapshot have no transaction.
    of_snapshot: bool,
    /// `{"database":…,"table":…` of keys.
    key_head: Vec<u8>,
    key_names: Vec<Vec<u8>>,
    primary_key_columns: Vec<u8>,
}

impl Maxwell {
    pub fn new(options: Options, info: &'static SourceInfo) -> Self {
        Self {
            form: MaxwellForm { null_zero_dates: options.output_null_zerodates },
            options,
            info,
            tools: Tools::default(),
            head: Vec::new(),
            middle: Vec::new(),
            xoffset: 0,
            of_snapshot: false,
            key_head: Vec::new(),
            key_names: Vec::new(),
            primary_key_columns: Vec::new(),
        }
    }

    fn prepare_key(&mut self, table: &Table) {
        let (database, name) = (quoted(&table.database), quoted(&table.name));
        self.key_head = match self.options.kafka_key_format {
            KeyFormat::Hash => format!("{{\"database\":{database},\"table\":{name}"),
            KeyFormat::Array => format!("[{database},{name},["),
        }
        .into_bytes();
        let prefix = if self.options.kafka_key_format == KeyFormat::Hash { "pk." } else { "" };
        let name = |index: &usize| table.columns[*index].schema.name.to_lowercase();
        self.key_names = table
            .key
            .iter()
            .map(|index| format!("{}:", quoted(&format!("{prefix}{}", name(index)))).into_bytes())
            .collect();
        let columns: Vec<String> =
            table.key.iter().map(|index| quoted(&table.columns[*index].schema.name)).collect();
        self.primary_key_columns = format!(",\"primary_key_columns\":[{}]", columns.join(",")).into_bytes();
    }

    fn write_key(&mut self, table: &Table, change: &Change<'_>, out: &mut Vec<u8>) -> Result<()> {
        let hash = self.options.kafka_key_format == KeyFormat::Hash;
        out.extend_from_slice(&self.key_head);
        if hash && table.key.is_empty() {
            // A table without a key has a name for each row: its place in the log, so that it is always the
            // same.
            out.extend_from_slice(b",\"_uuid\":\"");
            write_u64(change.sequence, out);
            if self.of_snapshot {
                // Rows that are placed together have one sequence.
                out.push(b'-');
                write_u64(change.number.into(), out);
            }
            out.extend_from_slice(b"\"");
        }
        let image = change.newest();
        for (count, (index, name)) in table.key.iter().zip(&self.key_names).enumerate() {
            out.extend_from_slice(if hash {
                b","
            } else if count > 0 {
                b",{"
            } else {
                b"{"
            });
            out.extend_from_slice(name);
            write_value(&self.form, table, *index, &image, &mut self.tools, out)?;
            if !hash {
                out.push(b'}');
            }
        }
        out.extend_from_slice(if hash { b"}" } else { b"]]" });
        Ok(())
    }

    fn write_primary_key(&mut self, table: &Table, change: &Change<'_>, out: &mut Vec<u8>) -> Result<()> {
        out.extend_from_slice(b",\"primary_key\":[");
        let image = change.newest();
        for (count, index) in table.key.iter().enumerate() {
            if count > 0 {
                out.push(b',');
            }
            write_value(&self.form, table, *index, &image, &mut self.tools, out)?;
        }
        out.push(b']');
        Ok(())
    }

    /// `"data"`, without nulls.
    fn write_without_nulls(&mut self, table: &Table, change: &Change<'_>, out: &mut Vec<u8>) -> Result<()> {
        let image = change.newest();
        let mut separator = false;
        for (index, column) in table.columns.iter().enumerate() {
            if matches!(image.place(index), Place::Null | Place::Absent) {
                continue;
            }
            if separator {
                out.push(b',');
            }
            separator = true;
            out.extend_from_slice(&column.head);
            write_value(&self.form, table, index, &image, &mut self.tools, out)?;
        }
        Ok(())
    }
}

impl Format for Maxwell {
    fn begin(&mut self, _: &Transaction, _: &mut Messages) -> Result<()> {
        self.xoffset = 0;
        Ok(())
    }

    fn event(&mut self, transaction: &Transaction, facts: &EventFacts<'_>, table: &Table) -> Result<()> {
        self.tools.style = facts.style;
        self.of_snapshot = facts.snapshot.is_some();
        let kind = match facts.kind {
            _ if self.of_snapshot => "bootstrap-insert",
            RowsKind::Insert => "insert",
            RowsKind::Update => "update",
            RowsKind::Delete => "delete",
        };
        let (database, name) = (quoted(&table.database), quoted(&table.name));
        let mut head = format!("{{\"database\":{database},\"table\":{name}");
        if let (true, Some(query)) = (self.options.output_row_query, facts.query) {
            head += &format!(",\"query\":{}", quoted(query));
        }
        head += &format!(",\"type\":\"{kind}\",\"ts\":{}", facts.timestamp);
        if let (true, Some(xid)) = (self.options.output_commit_info, transaction.xid) {
            head += &format!(",\"xid\":{xid}");
        }
        self.head = head.into_bytes();
        let mut middle = String::new();
        if self.options.output_binlog_position && !self.of_snapshot {
            let place = (self.info.write_place)(&transaction.file, facts.position);
            middle += &format!(",\"position\":{}", quoted(&place));
        }
        if self.options.output_gtid_position && !self.of_snapshot {
            let gtid = transaction.gtid.as_deref().map_or_else(|| "null".to_owned(), quoted);
            middle += &format!(",\"gtid\":{gtid}");
        }
        if self.options.output_server_id && !self.of_snapshot {
            middle += &format!(",\"server_id\":{}", facts.server_id);
        }
        if let (true, Some(thread)) = (self.options.output_thread_id, transaction.thread_id) {
            middle += &format!(",\"thread_id\":{thread}");
        }
        self.middle = middle.into_bytes();
        self.prepare_key(table);
        Ok(())
    }

    fn change(&mut self, table: &Table, change: &Change<'_>, out: &mut Messages) -> Result<()> {
        let start = out.start();
        let bytes = &mut out.bytes;
        bytes.extend_from_slice(&self.head);
        if self.options.output_commit_info && !self.of_snapshot {
            if change.last {
                bytes.extend_from_slice(b",\"commit\":true");
            } else if self.options.output_xoffset {
                bytes.extend_from_slice(b",\"xoffset\":");
                write_u64(self.xoffset, bytes);
            }
        }
        self.xoffset += 1;
        bytes.extend_from_slice(&self.middle);
        if self.options.output_primary_keys {
            self.write_primary_key(table, change, bytes)?;
        }
        if self.options.output_primary_key_columns {
            bytes.extend_from_slice(&self.primary_key_columns);
        }
        bytes.extend_from_slice(b",\"data\":{");
        if self.options.output_nulls {
            write_fields(&self.form, table, &change.newest(), &mut self.tools, bytes)?;
        } else {
            self.write_without_nulls(table, change, bytes)?;
        }
        bytes.push(b'}');
        if let (Some(before), Some(after)) = (change.before(), change.after()) {
            let undo = bytes.len();
            bytes.extend_from_slice(b",\"old\":{");
            match write_old(&self.form, table, (&before, &after), &mut self.tools, bytes)? {
                true => bytes.push(b'}'),
                false => bytes.truncate(undo),
            }
        }
        bytes.push(b'}');
        let middle = bytes.len();
        self.write_key(table, change, bytes)?;
        out.finish(About::Table(table.number), start, middle, change.sequence);
        Ok(())
    }

    fn needs_last(&self) -> bool {
        self.options.output_commit_info
    }

    fn needs_whole_images(&self) -> bool {
        false
    }
}
