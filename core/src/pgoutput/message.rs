//! The messages of PostgreSQL's output plugin `pgoutput`, protocol version 1
//! (https://www.postgresql.org/docs/current/protocol-logicalrep-message-formats.html).
//!
//! A message is parsed up to its tuples. Numbers are big-endian, and names end with a zero byte.

use crate::cursor::Cursor;
use crate::error::Result;

/// Microseconds from 1970 to 2000, from where PostgreSQL counts.
pub const EPOCH_US: i64 = 946_684_800_000_000;

/// A column can have at most so many neighbours (`MaxHeapAttributeNumber` of the server is 1600).
const COLUMNS_MAX: usize = 1600;

#[derive(Debug, Clone, PartialEq)]
pub enum Message<'a> {
    Begin(Begin),
    Commit(Commit),
    /// The transaction comes from another server, by replication.
    Origin,
    Relation(Relation<'a>),
    Type(Type<'a>),
    Insert {
        relation: u32,
        new: Tuple<'a>,
    },
    /// `old`: the key's columns, or the whole row, if the server sends one.
    Update {
        relation: u32,
        old: Option<Old<'a>>,
        new: Tuple<'a>,
    },
    Delete {
        relation: u32,
        old: Old<'a>,
    },
    Truncate {
        relations: Vec<u32>,
        cascade: bool,
    },
    /// What a program has put into the log (`pg_logical_emit_message`).
    Logical {
        transactional: bool,
        lsn: u64,
        prefix: &'a [u8],
        content: &'a [u8],
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Begin {
    /// Where the commit record begins.
    pub commit_lsn: u64,
    /// Since 1970.
    pub commit_us: i64,
    /// The low 32 bits of the transaction's id.
    pub xid: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Commit {
    pub commit_lsn: u64,
    /// Where the commit record ends.
    pub end_lsn: u64,
    /// Since 1970.
    pub commit_us: i64,
}

/// A table's columns, as the rows behind it have them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Relation<'a> {
    pub id: u32,
    /// Empty: `pg_catalog`.
    pub schema: &'a [u8],
    pub table: &'a [u8],
    /// `d`: the primary key, `n`: nothing, `f`: whole rows, `i`: an index.
    pub identity: u8,
    pub columns: Vec<RelationColumn<'a>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RelationColumn<'a> {
    /// Whether it is a part of the replica identity.
    pub is_key: bool,
    pub name: &'a [u8],
    pub type_id: u32,
    /// `atttypmod`; -1: none.
    pub modifier: i32,
}

/// The name of a type that the server does not have from the beginning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Type<'a> {
    pub id: u32,
    pub schema: &'a [u8],
    pub name: &'a [u8],
}

/// What an update or deletion says of the row before it.
#[derive(Debug, Clone, PartialEq)]
pub struct Old<'a> {
    /// Only the columns of the replica identity; the others are sent as NULL.
    pub is_key: bool,
    pub tuple: Tuple<'a>,
}

/// The values of one row. The cursor is at the first one.
#[derive(Debug, Clone)]
pub struct Tuple<'a> {
    pub count: usize,
    pub values: Cursor<'a>,
}

impl PartialEq for Tuple<'_> {
    fn eq(&self, other: &Self) -> bool {
        let rest = |tuple: &Self| {
            let mut values = tuple.values;
            values.rest().to_vec()
        };
        self.count == other.count && rest(self) == rest(other)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Value<'a> {
    Null,
    /// A large value that did not change. The server does not send it.
    Unchanged,
    Text(&'a [u8]),
    Binary(&'a [u8]),
}

impl<'a> Message<'a> {
    /// `offset`: of the first byte, for errors. Bytes behind a message are an error: the next one would be
    /// lost.
    pub fn parse(bytes: &'a [u8], offset: u64) -> Result<Self> {
        let mut cursor = Cursor::new(bytes, offset);
        let kind = cursor.u8("kind of message")?;
        let message = match kind {
            b'B' => Self::Begin(Begin {
                commit_lsn: lsn(&mut cursor)?,
                commit_us: time(&mut cursor)?,
                xid: id(&mut cursor, "transaction id")?,
            }),
            b'C' => {
                cursor.u8("flags")?;
                Self::Commit(Commit {
                    commit_lsn: lsn(&mut cursor)?,
                    end_lsn: lsn(&mut cursor)?,
                    commit_us: time(&mut cursor)?,
                })
            }
            b'O' => {
                lsn(&mut cursor)?;
                cursor.take_until_nul("name of an origin")?;
                Self::Origin
            }
            b'R' => Self::Relation(relation(&mut cursor)?),
            b'Y' => Self::Type(Type {
                id: id(&mut cursor, "type id")?,
                schema: cursor.take_until_nul("schema of a type")?,
                name: cursor.take_until_nul("name of a type")?,
            }),
            b'I' => {
                let relation = id(&mut cursor, "relation id")?;
                expect(&mut cursor, b'N')?;
                Self::Insert { relation, new: tuple(&mut cursor)? }
            }
            b'U' => {
                let relation = id(&mut cursor, "relation id")?;
                let (old, new) = match cursor.u8("kind of tuple")? {
                    b'N' => (None, tuple(&mut cursor)?),
                    kind => {
                        let old = old(&mut cursor, kind)?;
                        expect(&mut cursor, b'N')?;
                        (Some(old), tuple(&mut cursor)?)
                    }
                };
                Self::Update { relation, old, new }
            }
            b'D' => {
                let relation = id(&mut cursor, "relation id")?;
                let kind = cursor.u8("kind of tuple")?;
                Self::Delete { relation, old: old(&mut cursor, kind)? }
            }
            b'T' => {
                let count = cursor.uint_be(4, "number of tables")? as usize;
                let options = cursor.u8("options of TRUNCATE")?;
                if count > cursor.remaining() / 4 {
                    return Err(cursor.fail(format!("TRUNCATE of {count} tables is cut off")));
                }
                let relations = (0..count).map(|_| id(&mut cursor, "relation id")).collect::<Result<_>>()?;
                Self::Truncate { relations, cascade: options & 1 != 0 }
            }
            b'M' => {
                let transactional = cursor.u8("flags")? & 1 != 0;
                let lsn = lsn(&mut cursor)?;
                let prefix = cursor.take_until_nul("prefix of a message")?;
                let length = cursor.uint_be(4, "length of a message")? as usize;
                Self::Logical { transactional, lsn, prefix, content: cursor.take(length, "message")? }
            }
            other => {
                return Err(cursor.fail(format!("a message of the unknown kind {other:#04x}")));
            }
        };
        if !cursor.is_empty() {
            return Err(cursor.fail(format!("{} bytes behind a message", cursor.remaining())));
        }
        Ok(message)
    }
}

impl<'a> Tuple<'a> {
    /// The next value. Must be called at most `count` times.
    #[inline(always)]
    pub fn next(cursor: &mut Cursor<'a>) -> Result<Value<'a>> {
        let kind = cursor.u8("kind of value")?;
        Ok(match kind {
            b'n' => Value::Null,
            b'u' => Value::Unchanged,
            b't' | b'b' => {
                let length = cursor.uint_be(4, "length of a value")? as usize;
                let bytes = cursor.take(length, "value")?;
                if kind == b't' {
                    Value::Text(bytes)
                } else {
                    Value::Binary(bytes)
                }
            }
            other => return Err(cursor.fail(format!("a value of the unknown kind {other:#04x}"))),
        })
    }
}

fn relation<'a>(cursor: &mut Cursor<'a>) -> Result<Relation<'a>> {
    let relation_id = id(cursor, "relation id")?;
    let schema = cursor.take_until_nul("schema of a table")?;
    let table = cursor.take_until_nul("name of a table")?;
    let identity = cursor.u8("replica identity")?;
    let count = count(cursor)?;
    let mut columns = Vec::with_capacity(count);
    for _ in 0..count {
        columns.push(RelationColumn {
            is_key: cursor.u8("flags of a column")? & 1 != 0,
            name: cursor.take_until_nul("name of a column")?,
            type_id: id(cursor, "type of a column")?,
            modifier: cursor.uint_be(4, "modifier of a type")? as u32 as i32,
        });
    }
    Ok(Relation { id: relation_id, schema, table, identity, columns })
}

fn old<'a>(cursor: &mut Cursor<'a>, kind: u8) -> Result<Old<'a>> {
    match kind {
        b'K' | b'O' => Ok(Old { is_key: kind == b'K', tuple: tuple(cursor)? }),
        other => Err(cursor.fail(format!("a tuple of the unknown kind {other:#04x}"))),
    }
}

/// Passes over the values, which checks their lengths.
fn tuple<'a>(cursor: &mut Cursor<'a>) -> Result<Tuple<'a>> {
    let count = count(cursor)?;
    let values = *cursor;
    for _ in 0..count {
        Tuple::next(cursor)?;
    }
    Ok(Tuple { count, values })
}

fn count(cursor: &mut Cursor<'_>) -> Result<usize> {
    let count = cursor.uint_be(2, "number of columns")? as usize;
    if count > COLUMNS_MAX {
        return Err(cursor.fail(format!("{count} columns; a table has at most {COLUMNS_MAX}")));
    }
    Ok(count)
}

fn expect(cursor: &mut Cursor<'_>, wanted: u8) -> Result<()> {
    match cursor.u8("kind of tuple")? {
        kind if kind == wanted => Ok(()),
        other => Err(cursor.fail(format!("a tuple of the unknown kind {other:#04x}"))),
    }
}

fn id(cursor: &mut Cursor<'_>, what: &'static str) -> Result<u32> {
    Ok(cursor.uint_be(4, what)? as u32)
}

fn lsn(cursor: &mut Cursor<'_>) -> Result<u64> {
    cursor.uint_be(8, "log position")
}

fn time(cursor: &mut Cursor<'_>) -> Result<i64> {
    Ok((cursor.uint_be(8, "time")? as i64).saturating_add(EPOCH_US))
}
