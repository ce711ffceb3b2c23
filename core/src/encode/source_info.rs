//! What messages say of where a change comes from, by the kind of its log: Debezium's `source` block, and
//! what other formats have of it.
//!
//! A log of a new kind brings a [`SourceInfo`], which [`of_format`] finds by the name of the segment format.

use super::json_text::quoted;
use crate::place::lsn_text;
use crate::transaction::Transaction;

/// What a field of a message says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fact {
    Database,
    Table,
    Transaction,
    /// A transaction's id that is a number.
    TransactionNumber,
    File,
    Position,
    /// The row's number among those that the log has together.
    Row,
    ServerId,
    Thread,
    Query,
    /// A field of the other tool that logs here have nothing for.
    Never,
}

/// Connect's type of a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Text,
    OptionalText,
    Integer,
    OptionalInteger,
    /// Of 32 bits.
    Short,
}

pub struct Field {
    pub name: &'static str,
    pub kind: Kind,
    pub fact: Fact,
}

const fn field(name: &'static str, kind: Kind, fact: Fact) -> Field {
    Field { name, kind, fact }
}

pub struct SourceInfo {
    /// The name of the segment format.
    pub format: &'static str,
    /// The databases of the server itself, which have no messages unless they are asked for.
    pub of_the_server: &'static [&'static str],
    /// The name of Debezium's connector.
    pub connector: &'static str,
    /// The name of the block's schema in Connect.
    pub schema: &'static str,
    /// The fields of the block behind those that all connectors have (`debezium_schema`).
    pub fields: &'static [Field],
    /// `sequence` of the block.
    pub sequence: fn(&Source<'_>) -> Option<String>,
    /// What the format `json` has.
    pub plain: &'static [(&'static str, Fact)],
    /// What makes the id of a CloudEvent, behind its name.
    pub event_id: &'static [(&'static str, Fact)],
    /// The id of a transaction in Debezium's messages about transactions.
    pub transaction_id: fn(&Transaction) -> String,
    /// `sourceType` of Canal's entries. None: Canal has no number for it.
    pub canal_type: Option<u64>,
    /// A place in the source's log as a text, from its file and the position in it, and back.
    pub write_place: fn(&str, u64) -> String,
    pub read_place: fn(&str) -> (&str, u64),
}

/// Where a change comes from.
#[derive(Clone, Copy)]
pub struct Source<'a> {
    pub transaction: &'a Transaction,
    pub position: u64,
    pub server_id: u32,
    pub query: Option<&'a str>,
    /// See `TableSchema::catalog`.
    pub catalog: &'a str,
    pub database: &'a str,
    pub table: &'a str,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Value<'a> {
    Null,
    Text(&'a str),
    Integer(i64),
}

impl<'a> Source<'a> {
    /// What Debezium calls the database.
    pub fn db(&self) -> &'a str {
        if self.catalog.is_empty() {
            self.database
        } else {
            self.catalog
        }
    }

    /// `Fact::Row` is null here: the writers of rows put it in.
    pub fn value(&self, fact: Fact) -> Value<'a> {
        let text = |text: Option<&'a str>| text.map_or(Value::Null, Value::Text);
        let number = |number: Option<i64>| number.map_or(Value::Null, Value::Integer);
        let id = self.transaction.gtid.as_deref();
        match fact {
            Fact::Database => Value::Text(self.database),
            Fact::Table => Value::Text(self.table),
            Fact::Transaction => text(id),
            Fact::TransactionNumber => number(id.and_then(|id| id.parse().ok())),
            Fact::File => Value::Text(&self.transaction.file),
            Fact::Position => Value::Integer(self.position as i64),
            Fact::ServerId => Value::Integer(self.server_id.into()),
            Fact::Thread => number(self.transaction.thread_id.map(i64::from)),
            Fact::Query => text(self.query),
            Fact::Row | Fact::Never => Value::Null,
        }
    }
}

impl Value<'_> {
    pub fn json(self) -> String {
        match self {
            Value::Null => "null".to_owned(),
            Value::Text(text) => quoted(text),
            Value::Integer(number) => number.to_string(),
        }
    }
}

/// The parts of a text around the row's number, if it has one.
pub struct AroundRow {
    pub before: String,
    pub behind: Option<String>,
}

impl SourceInfo {
    /// The fields of the block as JSON, each with a comma before it.
    pub fn block(&self, source: &Source<'_>) -> AroundRow {
        let mut found = AroundRow { before: String::new(), behind: None };
        for field in self.fields {
            let text = found.behind.as_mut().unwrap_or(&mut found.before);
            text.push_str(&format!(",\"{}\":", field.name));
            match field.fact {
                Fact::Row => found.behind = Some(String::new()),
                fact => text.push_str(&source.value(fact).json()),
            }
        }
        found
    }

    /// The fields of the format `json`, each with a comma before it.
    pub fn plain_fields(&self, source: &Source<'_>) -> String {
        let fields = self.plain.iter();
        fields.map(|(name, fact)| format!(",\"{name}\":{}", source.value(*fact).json())).collect()
    }

    /// The beginning of the id of a CloudEvent, up to the row's number if it has one.
    pub fn event_id(&self, prefix: &str, source: &Source<'_>) -> String {
        let mut id = format!("name:{prefix}");
        for (name, fact) in self.event_id {
            let value = match source.value(*fact) {
                Value::Null => String::new(),
                Value::Text(text) => text.to_owned(),
                Value::Integer(number) => number.to_string(),
            };
            id += &format!(";{name}:{value}");
        }
        id
    }

    pub fn event_id_has_row(&self) -> bool {
        self.event_id.iter().any(|(_, fact)| *fact == Fact::Row)
    }
}

/// MySQL and MariaDB.
pub static MYSQL: SourceInfo = SourceInfo {
    format: "mysql-binlog",
    of_the_server: &["mysql", "sys", "performance_schema", "information_schema"],
    connector: "mysql",
    schema: "io.debezium.connector.mysql.Source",
    fields: &[
        field("table", Kind::OptionalText, Fact::Table),
        field("server_id", Kind::Integer, Fact::ServerId),
        field("gtid", Kind::OptionalText, Fact::Transaction),
        field("file", Kind::Text, Fact::File),
        field("pos", Kind::Integer, Fact::Position),
        field("row", Kind::Short, Fact::Row),
        field("thread", Kind::OptionalInteger, Fact::Thread),
        field("query", Kind::OptionalText, Fact::Query),
    ],
    sequence: |_| None,
    plain: &[("gtid", Fact::Transaction), ("file", Fact::File), ("pos", Fact::Position)],
    event_id: &[("file", Fact::File), ("pos", Fact::Position), ("row", Fact::Row)],
    transaction_id: |transaction| match &transaction.gtid {
        Some(gtid) => gtid.clone(),
        None => format!("file={},pos={}", transaction.file, transaction.position),
    },
    canal_type: Some(2),
    write_place: write_file_place,
    read_place: read_file_place,
};

/// Logs of Penstock's own format: no tool has a connector for them. Their transactions have ids, and one
/// number is their place.
pub static ROWS: SourceInfo = SourceInfo {
    format: "rows",
    of_the_server: &[],
    connector: "penstock",
    schema: "penstock.Source",
    fields: &[
        field("table", Kind::OptionalText, Fact::Table),
        field("transaction", Kind::OptionalText, Fact::Transaction),
        field("pos", Kind::Integer, Fact::Position),
        field("row", Kind::Short, Fact::Row),
    ],
    sequence: |_| None,
    plain: &[("transaction", Fact::Transaction), ("pos", Fact::Position)],
    event_id: &[("transaction", Fact::Transaction), ("pos", Fact::Position), ("row", Fact::Row)],
    transaction_id: |transaction| transaction.gtid.clone().unwrap_or_default(),
    canal_type: None,
    write_place: |_, position| position.to_string(),
    read_place: |text| ("", text.parse().unwrap_or(0)),
};

/// PostgreSQL: a place is an LSN, and a transaction's id an xid.
pub static POSTGRESQL: SourceInfo = SourceInfo {
    format: "pgoutput",
    of_the_server: &["pg_catalog", "information_schema"],
    connector: "postgresql",
    schema: "io.debezium.connector.postgresql.Source",
    fields: &[
        field("schema", Kind::Text, Fact::Database),
        field("table", Kind::Text, Fact::Table),
        field("txId", Kind::OptionalInteger, Fact::TransactionNumber),
        field("lsn", Kind::OptionalInteger, Fact::Position),
        field("xmin", Kind::OptionalInteger, Fact::Never),
        field("origin", Kind::OptionalText, Fact::Never),
        field("origin_lsn", Kind::OptionalInteger, Fact::Never),
    ],
    // The LSN of the transaction's commit, by which transactions are ordered, and that of the change.
    sequence: |source| {
        let commit = source.transaction.end_event.position.max(source.transaction.position);
        Some(format!("[\"{commit}\",\"{}\"]", source.position))
    },
    plain: &[("xid", Fact::TransactionNumber), ("lsn", Fact::Position)],
    event_id: &[("lsn", Fact::Position), ("txId", Fact::TransactionNumber)],
    transaction_id: |transaction| {
        format!("{}:{}", transaction.gtid.as_deref().unwrap_or_default(), transaction.position)
    },
    canal_type: Some(3),
    write_place: |_, lsn| lsn_text(lsn),
    read_place: |text| {
        let half = |text: &str| u64::from_str_radix(text, 16).unwrap_or(0);
        let (high, low) = text.split_once('/').unwrap_or_default();
        ("", half(high) << 32 | half(low))
    },
};

/// By the name of the segment format. None: there is no such format.
pub fn of_format(name: &str) -> Option<&'static SourceInfo> {
    [&MYSQL, &ROWS, &POSTGRESQL].into_iter().find(|info| info.format == name)
}

fn write_file_place(file: &str, position: u64) -> String {
    match file {
        "" => String::new(),
        file => format!("{file}:{position}"),
    }
}

fn read_file_place(text: &str) -> (&str, u64) {
    let (file, position) = text.rsplit_once(':').unwrap_or_default();
    (file, position.parse().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_read_as_they_are_written() {
        for (info, file, position, text) in [
            (&MYSQL, "binlog.000007", 4, "binlog.000007:4"),
            (&ROWS, "", 1 << 40, "1099511627776"),
            (&POSTGRESQL, "", 0x16_0000_00ab, "16/AB"),
            (&MYSQL, "", 0, ""),
        ] {
            assert_eq!((info.write_place)(file, position), text);
            assert_eq!((info.read_place)(text), (file, position));
        }
        assert_eq!((POSTGRESQL.read_place)("no place"), ("", 0));
    }

    #[test]
    fn the_block_of_postgresql_has_its_fields() {
        let transaction =
            Transaction { gtid: Some("571".to_owned()), position: 32, ..Transaction::default() };
        let source = Source {
            transaction: &transaction,
            position: 24,
            server_id: 0,
            query: None,
            catalog: "shop",
            database: "public",
            table: "t",
        };
        let block = POSTGRESQL.block(&source);
        assert_eq!(
            block.before,
            ",\"schema\":\"public\",\"table\":\"t\",\"txId\":571,\"lsn\":24,\"xmin\":null,\
             \"origin\":null,\"origin_lsn\":null"
        );
        assert_eq!(block.behind, None);
        assert_eq!((POSTGRESQL.sequence)(&source).as_deref(), Some("[\"32\",\"24\"]"));
        assert_eq!(source.db(), "shop");
        assert_eq!((POSTGRESQL.transaction_id)(&transaction), "571:32");
    }
}
