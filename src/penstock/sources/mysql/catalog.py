"""Table definitions from `information_schema`.

One query returns the names. Then, for every `_TABLES_PER_QUERY` tables, there is one query for columns, one
for unique indexes and one for collations. Statistics columns (TABLE_ROWS, CARDINALITY) are never selected,
because reading them makes old servers open every table.

Differences between servers are removed in this module, so a `Column` means the same for each server:

- MariaDB prints COLUMN_DEFAULT as SQL (`'abc'`, `NULL`, `current_timestamp()`), MySQL prints the bare value.
- MySQL 8.0.13+ marks expressions by DEFAULT_GENERATED in EXTRA; before, only CURRENT_TIMESTAMP could be one.
- Integer widths in COLUMN_TYPE (`int(11)`) and the spelling of spatial types depend on the version. Neither
  is used.
- Every server's catalog prints characters beyond the Basic Multilingual Plane in labels and defaults as `?`.
  Labels are correct in the row metadata of the log (`binlog_row_metadata=FULL`), but not in the catalog.
- MySQL 5.7 opens a table for DATETIME_PRECISION only, and leaves out those that it cannot open. COLUMN_TYPE
  has the same number.
- A generated invisible primary key (8.0.30+) is in the log, but the catalog may hide it. The session asks for
  it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from penstock.config import TablesConfig
from penstock.model.schema import Column, KeyPart, TableId, TableSchema, UniqueKey
from penstock.sources.mysql.broken_tables import unless_broken
from penstock.sources.mysql.ddl import charsets
from penstock.sources.mysql.ddl.server import Server
from penstock.sources.mysql.ddl.tokens import unescape
from penstock.sources.mysql.identifiers import quoted
from penstock.sources.table_filter import TableFilter

if TYPE_CHECKING:
    from pymysql.connections import Connection

SYSTEM_DATABASES = frozenset({"mysql", "information_schema", "performance_schema", "sys", "ndbinfo"})

_TABLES_PER_QUERY = 500
"""Tables per query of information_schema: many, because each query costs a round trip, and not all, because
the rows of one answer are held in memory."""
_SPATIAL = frozenset(
    {
        "geometry", "point", "linestring", "polygon", "multipoint", "multilinestring", "multipolygon",
        "geometrycollection", "geomcollection",
    }
)  # fmt: skip
_FRACTIONAL = frozenset({"time", "datetime", "timestamp"})
_VIEWS = "'VIEW', 'SYSTEM VIEW'"
_NO_TABLES = f"{_VIEWS}, 'SEQUENCE'"
"""Types of what information_schema lists beside base tables."""
_SIZED = frozenset({"char", "varchar", "binary", "varbinary"})
_LITERAL = re.compile(r"[-+]?[0-9.]+(e[-+]?\d+)?|b'[01]*'|x'[0-9a-f]*'|0x[0-9a-f]*", re.IGNORECASE)
_NOW = re.compile(r"(current_timestamp|now|localtime|localtimestamp)\b", re.IGNORECASE)


def read_tables(
    connection: Connection[Any], patterns: TablesConfig | TableFilter
) -> dict[TableId, TableSchema]:
    """All base tables that the patterns capture, ordered by name. System databases, views and, unless the
    filter asks for them, sequences are left out."""
    server = describe_server(connection)
    tables = (
        patterns if isinstance(patterns, TableFilter) else TableFilter(patterns, fold_case=server.fold_case)
    )
    names = list_tables(connection, sequences=tables.sequences)
    return _read(connection, server, [table for table in names if table in tables])


def read_table(connection: Connection[Any], table: TableId) -> TableSchema | None:
    """The definition of one table. None if there is no such base table, or if the account may not see it."""
    server = describe_server(connection)
    if table.database.lower() in SYSTEM_DATABASES:
        return None
    rows = _rows(
        connection,
        "SELECT TABLE_SCHEMA, TABLE_NAME FROM information_schema.TABLES"
        f" WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s AND TABLE_TYPE NOT IN ({_NO_TABLES})",
        (table.database, table.table),
    )
    # The comparison inside information_schema may ignore case although the names do not.
    names = [TableId(*row) for row in rows if server.same_name(TableId(*row), table)]
    return next(iter(_read(connection, server, names[:1]).values()), None)


def is_view(connection: Connection[Any], table: TableId) -> bool:
    """Whether there is a view of this name, of those that the account may see."""
    named = f"FROM information_schema.TABLES WHERE TABLE_TYPE IN ({_VIEWS})"
    sql = f"SELECT 1 {named} AND TABLE_SCHEMA = %s AND TABLE_NAME = %s"
    return bool(_rows(connection, sql, (table.database, table.table)))


def list_tables(connection: Connection[Any], *, sequences: bool = False) -> list[TableId]:
    """The names of all base tables that the account may see, ordered, without those of the system.
    `sequences`: and those of sequences."""
    hidden = ", ".join(f"'{name}'" for name in sorted(SYSTEM_DATABASES))
    select = (
        f"SELECT TABLE_SCHEMA, TABLE_NAME FROM information_schema.TABLES WHERE TABLE_SCHEMA NOT IN ({hidden})"
    )
    # MySQL 5.7 does not list a table with a damaged definition if its type is asked for.
    listed = _rows(connection, select)
    others = _rows(connection, f"{select} AND TABLE_TYPE IN ({_VIEWS if sequences else _NO_TABLES})")
    names = (TableId(str(database), str(table)) for database, table in {*listed} - {*others})
    return sorted(name for name in names if name.database.lower() not in SYSTEM_DATABASES)


@dataclass(frozen=True)
class ServerTraits:
    """Properties of the server that decide what its catalog means."""

    version: tuple[int, int, int]
    mariadb: bool
    fold_case: bool
    explicit_timestamps: bool | None = None
    charset: str | None = None
    collation: str | None = None

    @property
    def statements(self) -> Server:
        """Properties of the server that decide what a statement in its log means. Each statement has its own
        sql_mode."""
        return Server(
            version=self.version,
            mariadb=self.mariadb,
            lower_case=self.fold_case,
            sql_mode=None,
            explicit_timestamps=self.explicit_timestamps,
            charset=self.charset,
            collation=self.collation,
        )

    @property
    def logs_cascades(self) -> bool:
        """Whether rows that a foreign key changes have row events (MySQL 9.6 and newer)."""
        return self.version >= (9, 6, 0) and not self.mariadb

    def same_name(self, one: TableId, other: TableId) -> bool:
        if not self.fold_case:
            return one == other
        return (one.database.lower(), one.table.lower()) == (other.database.lower(), other.table.lower())


def describe_server(connection: Connection[Any]) -> ServerTraits:
    """Reads the server's version and its rules for names. Makes the session show generated invisible primary
    keys."""
    [(version, case)] = _rows(connection, "SELECT VERSION(), @@lower_case_table_names")
    hides = "show_gipk_in_create_table_and_information_schema"
    if _rows(connection, f"SHOW SESSION VARIABLES LIKE '{hides}'"):
        _rows(connection, f"SET SESSION {hides} = ON")
    settings = "'explicit_defaults_for_timestamp', 'character_set_server', 'collation_server'"
    set_to = dict(_rows(connection, f"SHOW GLOBAL VARIABLES WHERE Variable_name IN ({settings})"))
    explicit = set_to.get("explicit_defaults_for_timestamp")
    return ServerTraits(
        version=parse_version(str(version)),
        mariadb="mariadb" in str(version).lower(),
        fold_case=int(case) != 0,
        explicit_timestamps=None if explicit is None else str(explicit).upper() == "ON",
        charset=set_to.get("character_set_server"),
        collation=set_to.get("collation_server"),
    )


def read_database(connection: Connection[Any], name: str) -> tuple[str, str] | None:
    """The default character set and collation of a database. None if there is no such database."""
    rows = _rows(
        connection,
        "SELECT DEFAULT_CHARACTER_SET_NAME, DEFAULT_COLLATION_NAME FROM information_schema.SCHEMATA"
        " WHERE SCHEMA_NAME = %s",
        (name,),
    )
    return (str(rows[0][0]), str(rows[0][1])) if rows else None


def parse_version(text: str) -> tuple[int, int, int]:
    """`8.0.36-28-log` → (8, 0, 36). MariaDB's `5.5.5-` prefix for old clients is skipped."""
    numbers = re.findall(r"\d+", text.removeprefix("5.5.5-"))[:3]
    major, minor, patch = (int(number) for number in [*numbers, "0", "0", "0"][:3])
    return major, minor, patch


@dataclass
class _Index:
    parts: list[KeyPart] = field(default_factory=list)
    nullable: bool = False

    @property
    def columns(self) -> list[str]:
        return [part.column for part in self.parts if part.column is not None]

    @property
    def usable(self) -> bool:
        """Whether the index identifies rows by whole values."""
        return not self.nullable and all(part.column and part.length is None for part in self.parts)


def _read(
    connection: Connection[Any], server: ServerTraits, names: Sequence[TableId]
) -> dict[TableId, TableSchema]:
    schemas: dict[TableId, TableSchema] = {}
    for start in range(0, len(names), _TABLES_PER_QUERY):
        batch = names[start : start + _TABLES_PER_QUERY]
        columns = _read_columns(connection, server, batch)
        indexes = _read_unique_indexes(connection, batch)
        collations = _read_collations(connection, batch)
        for name in batch:
            if name in columns:
                found = _in_order(connection, name, indexes.get(name, {}))
                collation = collations.get(name)
                schemas[name] = TableSchema(
                    table=name,
                    columns=tuple(columns[name]),
                    key=_key(columns[name], found),
                    charset=collation and charsets.of_collation(server.statements, collation),
                    collation=collation,
                    unique=tuple(UniqueKey(key, tuple(index.parts)) for key, index in found.items()),
                )
    return schemas


def _read_collations(connection: Connection[Any], names: Sequence[TableId]) -> dict[TableId, str]:
    query = "SELECT TABLE_SCHEMA, TABLE_NAME, TABLE_COLLATION FROM information_schema.TABLES WHERE {where}"
    rows = _rows_of(connection, query, names)
    return {table: str(collation) for table, (collation,) in rows if collation is not None}


def _read_columns(
    connection: Connection[Any], server: ServerTraits, names: Sequence[TableId]
) -> dict[TableId, list[Column]]:
    query = (
        "SELECT TABLE_SCHEMA, TABLE_NAME, COLUMN_NAME, DATA_TYPE, COLUMN_TYPE, IS_NULLABLE,"
        " CHARACTER_MAXIMUM_LENGTH, NUMERIC_PRECISION, NUMERIC_SCALE,"
        " CHARACTER_SET_NAME, COLLATION_NAME, COLUMN_DEFAULT, EXTRA"
        " FROM information_schema.COLUMNS WHERE {where}"
        " ORDER BY TABLE_SCHEMA, TABLE_NAME, ORDINAL_POSITION"
    )
    columns: dict[TableId, list[Column]] = {}
    for table, row in _rows_of(connection, query, names):
        columns.setdefault(table, []).append(_column(server, row))
    return columns


def _read_unique_indexes(
    connection: Connection[Any], names: Sequence[TableId]
) -> dict[TableId, dict[str, _Index]]:
    # `SUB_PART` marks a prefix; a functional part (8.0.13+) has no column name.
    query = (
        "SELECT TABLE_SCHEMA, TABLE_NAME, INDEX_NAME, COLUMN_NAME, SUB_PART, NULLABLE"
        " FROM information_schema.STATISTICS WHERE NON_UNIQUE = 0 AND {where}"
        " ORDER BY TABLE_SCHEMA, TABLE_NAME, INDEX_NAME, SEQ_IN_INDEX"
    )
    indexes: dict[TableId, dict[str, _Index]] = {}
    for table, (name, column, prefix, nullable) in _rows_of(connection, query, names):
        index = indexes.setdefault(table, {}).setdefault(str(name), _Index())
        index.nullable = index.nullable or nullable == "YES"
        index.parts.append(
            KeyPart(None if column is None else str(column), None if prefix is None else int(prefix))
        )
    return indexes


def _in_order(connection: Connection[Any], table: TableId, indexes: dict[str, _Index]) -> dict[str, _Index]:
    """The indexes, the primary key first. Without one, they have the order in which the server would
    choose."""
    if "PRIMARY" in indexes:
        return {name: indexes[name] for name in ["PRIMARY", *sorted(indexes.keys() - {"PRIMARY"})]}
    if len(indexes) < 2:
        return indexes
    # Only SHOW INDEX gives the order of the definition. This is rare, so one more query does no harm.
    shown = unless_broken(lambda: _rows(connection, f"SHOW INDEX FROM {quoted(table)}"))
    order = [str(row[2]) for row in shown] or sorted(indexes)
    return {name: indexes[name] for name in dict.fromkeys(order) if name in indexes}


def _key(columns: Sequence[Column], indexes: dict[str, _Index]) -> tuple[str, ...]:
    """The columns of the primary key, else of the first usable unique index, else none.

    A primary key over a prefix (`PRIMARY KEY (url(20))`) does not compare whole values, but its columns still
    identify a row: rows with equal columns would have equal prefixes, so there are no two such rows.
    """
    primary = indexes.get("PRIMARY")
    if primary is not None:
        return tuple(primary.columns)
    nullable = {column.name for column in columns if column.nullable}
    for index in indexes.values():
        if index.usable and nullable.isdisjoint(index.columns):
            return tuple(index.columns)
    return ()


def _column(server: ServerTraits, row: Sequence[Any]) -> Column:
    (
        name,
        data_type,
        column_type,
        nullable,
        length,
        precision,
        scale,
        charset,
        collation,
        default,
        extra,
    ) = row
    kind = str(data_type).lower()
    full = str(column_type)
    if kind in _FRACTIONAL:  # `/* mariadb-5.3 */`, `/* 5.5 binary format */`: table maps say that, too
        full = full.partition(" /*")[0]
    extra = str(extra).lower()
    generated = (
        "virtual" if "virtual generated" in extra else "stored" if "stored generated" in extra else None
    )
    if "persistent" in extra.split():
        generated = "stored"
    default, is_expression = _default(server, kind, default, extra)
    labels = parse_labels(full) if kind in ("enum", "set") else None
    if labels is not None and charset is None:
        charset = collation = "binary"
    return Column(
        name=str(name),
        type="geometry" if kind in _SPATIAL else kind,
        nullable=nullable == "YES",
        unsigned=labels is None and " unsigned" in full.lower(),
        length=int(precision) if kind == "bit" else int(length) if kind in _SIZED else None,
        precision=int(precision) if kind == "decimal" else None,
        scale=int(scale) if kind == "decimal" else None,
        fsp=int(full.partition("(")[2][:1] or 0) if kind in _FRACTIONAL else None,
        charset=None if charset is None else str(charset),
        collation=None if collation is None else str(collation),
        labels=labels,
        generated=generated,
        invisible="invisible" in re.split(r"[\s,]+", extra),
        auto_increment="auto_increment" in extra,
        default=default,
        default_is_expression=is_expression,
        column_type=full,
    )


def _default(server: ServerTraits, kind: str, default: Any, extra: str) -> tuple[str | None, bool]:
    """The text of the default, and whether it is an expression."""
    if isinstance(default, bytes):
        default = default.decode("utf-8", "replace")
    if default is None:
        return None, False
    if not server.mariadb:
        now = kind in ("datetime", "timestamp") and bool(_NOW.match(default))
        return str(default), now or "default_generated" in extra
    if default == "NULL":
        return None, False
    if len(default) >= 2 and default[0] == default[-1] == "'":
        return unescape(default[1:-1]), False
    literal = bool(
        re.fullmatch(r"[-+]?[0-9.]+(e[-+]?\d+)?|b'[01]*'|x'[0-9a-f]*'|0x[0-9a-f]*", default, re.IGNORECASE)
    )
    return str(default), not literal


def parse_labels(column_type: str) -> tuple[str, ...]:
    """The labels in `enum('a','it''s')`, without the escapes that the server prints."""
    inside = column_type[column_type.index("(") + 1 :]
    return tuple(unescape(quoted[1:-1]) for quoted in re.findall(r"'(?:[^'\\]|''|\\.)*'", inside, re.DOTALL))


def _rows_of(
    connection: Connection[Any], query: str, names: Sequence[TableId]
) -> Iterator[tuple[TableId, Sequence[Any]]]:
    """The rows of an information_schema query for exactly these tables. Its first two columns name the table.

    Two IN lists may select more than the wanted pairs, because several databases can have tables of the same
    name. Other rows are skipped.
    """
    wanted = set(names)
    databases = sorted({name.database for name in names})
    tables = sorted({name.table for name in names})
    where = (
        f"TABLE_SCHEMA IN ({', '.join(['%s'] * len(databases))})"
        f" AND TABLE_NAME IN ({', '.join(['%s'] * len(tables))})"
    )
    for row in _rows(connection, query.format(where=where), (*databases, *tables)):
        table = TableId(str(row[0]), str(row[1]))
        if table in wanted:
            yield table, row[2:]


def _rows(connection: Connection[Any], query: str, arguments: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(query, arguments or None)
        return list(cursor.fetchall())
