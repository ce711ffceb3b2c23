"""The definitions of tables, from the catalog.

No table is locked: only rows of `pg_catalog` are read, and not the view `pg_publication_tables`, which opens
tables. So an ALTER TABLE that takes long does not make anybody wait who asks here.

A table's definition has the columns that the publication has: those of its column list; without one, all but
generated ones, or also the stored ones of these (version 18). Its key is the replica identity: the primary
key, or the index that REPLICA IDENTITY USING INDEX names.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, NamedTuple

import psycopg

from penstock._core import pg_column, pg_reads_binary
from penstock.model.schema import Column, TableId, TableSchema

TEXT = 25
"""The type text, which the values of enums are sent as (`pg_type.oid`)."""
_SENT: dict[str, Any] = {
    "citextsend": TEXT, "citext_send": TEXT, "hstore_send": ["hstore"], "ltree_send": ["versioned"],
    "lquery_send": ["versioned"], "ltxtq_send": ["versioned"], "vector_send": ["vector"],
}  # fmt: skip
"""What types of extensions are, by the functions that send them. A type's number differs between servers."""
_PUBLISHES_COLUMNS = 150_000
"""The version from which on publications have schemas, column lists and row filters."""
_PUBLISHES_GENERATED = 180_000
"""The version from which on publications may have stored generated columns."""
_STORED = "s"
"""Of generated columns (`attgenerated`) and of publications that have them (`pubgencols`)."""

_TABLES = """
SELECT c.oid::int8, n.nspname, c.relname, c.relkind::text, c.relpersistence::text, c.relreplident::text,
       nullif(c.relfilenode, 0)::int8, p.puballtables, {published},
       coalesce(p.pubviaroot, false), c.relnatts,
       concat_ws(':', p.oid, p.xmin, r.oid, r.xmin{membership}), {generated}
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
LEFT JOIN pg_catalog.pg_publication p ON p.pubname = %(publication)s
{joins}
WHERE c.relkind IN ('r', 'p') AND NOT c.relispartition AND {wanted}
  AND n.nspname NOT IN ('pg_catalog', 'information_schema') AND n.nspname NOT LIKE 'pg\\_toast%%'
  AND c.relpersistence <> 't'
ORDER BY n.nspname, c.relname
"""
_LISTED = "LEFT JOIN pg_catalog.pg_publication_rel r ON r.prpubid = p.oid AND r.prrelid = c.oid"
_OF_SCHEMA = "LEFT JOIN pg_catalog.pg_publication_namespace s ON s.pnpubid = p.oid AND s.pnnspid = n.oid"
_PUBLISHED = ("r.prrelid IS NOT NULL, NULL, NULL", _LISTED, "")
_PUBLISHED_15 = (
    (
        "r.prrelid IS NOT NULL OR s.pnnspid IS NOT NULL, r.prattrs::int2[], "
        "pg_catalog.pg_get_expr(r.prqual, r.prrelid)"
    ),
    f"{_LISTED} {_OF_SCHEMA}",
    ", s.oid, s.xmin",
)
_COLUMNS = """
SELECT a.attrelid::int8, a.attnum, a.attname, a.atttypid::int8, a.atttypmod, a.attnotnull,
       pg_catalog.format_type(a.atttypid, a.atttypmod), a.xmin::text, a.attgenerated::text,
       CASE WHEN a.atthasmissing THEN (a.attmissingval::text::text[])[1] END, a.atthasmissing
FROM pg_catalog.pg_attribute a
WHERE a.attrelid = ANY(%s) AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attrelid, a.attnum
"""
_KEYS = """
SELECT i.indrelid::int8, a.attname
FROM pg_catalog.pg_index i JOIN pg_catalog.pg_class c ON c.oid = i.indrelid,
     unnest(i.indkey) WITH ORDINALITY k(number, place), pg_catalog.pg_attribute a
WHERE i.indrelid = ANY(%s) AND a.attrelid = i.indrelid AND a.attnum = k.number
  AND CASE c.relreplident WHEN 'i' THEN i.indisreplident ELSE i.indisprimary END
ORDER BY i.indrelid, k.place
"""
_LEAVES = """
WITH RECURSIVE parts AS (
    SELECT c.oid AS root, c.oid AS part, true AS born, '' AS since
    FROM pg_catalog.pg_class c WHERE c.oid = ANY(%(roots)s) AND c.relkind = 'p'
    UNION ALL
    SELECT p.root, i.inhrelid, p.born AND EXISTS (
        SELECT 1 FROM pg_catalog.pg_attribute a JOIN pg_catalog.pg_attribute s ON s.attrelid = a.attrelid
        WHERE a.attrelid = i.inhrelid AND s.attnum = -6 AND a.attnum > 0 AND a.attinhcount = 1
          AND a.xmin = s.xmin AND a.cmin = s.cmin AND a.xmax = '0'), p.since || ' ' || i.xmin
    FROM parts p JOIN pg_catalog.pg_inherits i ON i.inhparent = p.part
)
SELECT p.root::int8, c.oid::int8, c.relfilenode::int8, p.born, c.relkind <> 'r' OR c.relpersistence <> 'p',
       {limited}, p.since
FROM parts p JOIN pg_catalog.pg_class c ON c.oid = p.part
LEFT JOIN pg_catalog.pg_publication o ON o.pubname = %(publication)s
LEFT JOIN pg_catalog.pg_publication_rel r ON r.prpubid = o.oid AND r.prrelid = c.oid
WHERE c.relkind <> 'p' ORDER BY 1, 2
"""
"""The partitions that have rows. `born`: it was created as a partition, and was one ever since. ATTACH and
DETACH write all columns again (`attinhcount`), and a row of the catalog that was not written again has the
transaction and command that created the table, as those of system columns (-6: `tableoid`) always have."""
_TYPES = """
SELECT t.oid::int8, t.typtype::text, t.typtypmod,
       (SELECT array_agg(e.enumlabel::text ORDER BY e.oid) FROM pg_catalog.pg_enum e
        WHERE e.enumtypid = t.oid),
       CASE t.typtype
       WHEN 'd' THEN ARRAY[t.typbasetype::int8]
       WHEN 'r' THEN ARRAY(SELECT r.rngsubtype::int8 FROM pg_catalog.pg_range r WHERE r.rngtypid = t.oid)
       WHEN 'm' THEN ARRAY(SELECT r.rngsubtype::int8 FROM pg_catalog.pg_range r
                           WHERE r.rngmultitypid = t.oid)
       WHEN 'c' THEN ARRAY(SELECT a.atttypid::int8 FROM pg_catalog.pg_attribute a
                           WHERE a.attrelid = t.typrelid AND a.attnum > 0 AND NOT a.attisdropped
                           ORDER BY a.attnum)
       ELSE CASE WHEN p.proname = 'array_send' THEN ARRAY[t.typelem::int8] END END,
       p.proname::text
FROM pg_catalog.pg_type t LEFT JOIN pg_catalog.pg_proc p ON p.oid = t.typsend WHERE t.oid = ANY(%s)
"""
_MADE_OF = {"b": "array", "r": "range", "m": "multirange", "c": "record"}
"""Names of kinds of types (`typtype`), as the core knows them."""


@dataclass(frozen=True)
class PgColumn:
    """A column. `number`: `attnum`, which a later column never has. `declared`, `modifier`: its type.
    `changed`: the transaction that wrote its row in the catalog. `kind`: the type of the values as JSON, of a
    domain that of its base, of an enum text: a number, or what it is made of (`["range", 23]`). `labels`: of
    the enums in it, in the order of their creation. `missing`: the value of rows that were written before
    the column was added, as the server prints it, if it `has_missing`.
    `said`: the fields of `model.schema.Column`. `generated`: `attgenerated`."""

    number: int
    name: str
    declared: int
    modifier: int
    changed: str
    kind: str
    labels: tuple[str, ...] | None
    has_missing: bool
    missing: str | None
    said: dict[str, Any]
    generated: str = ""

    @property
    def column(self) -> Column:
        return Column.from_json(self.said)

    @property
    def reads_binary(self) -> bool:
        """Whether the binary form of its values is known."""
        return bool(pg_reads_binary(self.kind))

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> PgColumn:
        labels = fields["labels"]
        return cls(**{**fields, "labels": None if labels is None else tuple(labels)})


class PgLeaf(NamedTuple):
    """A partition that has rows. `file`: as of `PgTable`. `is_born`: it was created as a partition, so all
    rows that it ever had were written as those of its root. `is_unlogged`: also of a foreign table.
    `is_limited`: the publication has a row filter or a column list for it, which only counts if partitions
    are not sent as their roots. `since`: the transactions that made it and its parents partitions."""

    number: int
    file: int | None
    is_born: bool = False
    is_unlogged: bool = False
    is_limited: bool = False
    since: str = ""


@dataclass(frozen=True)
class PgTable:
    """A table as the catalog has it. `number`: `pg_class.oid`, which its partitions do not share.
    `kind`: `r`, or `p` for a partitioned one. `file`: where its rows are; another one if they were written
    again. `leaves`: its partitions. `as_root`: rows of partitions are sent as its rows.
    `membership`: another one if the publication was changed, or if the table has left it for a while.
    `last`: the greatest number that a column has had. `catalog`: the database."""

    number: int
    table: TableId
    kind: str
    persistence: str
    identity: str
    file: int | None
    published: bool
    membership: str
    row_filter: str | None
    last: int
    key: tuple[str, ...]
    columns: tuple[PgColumn, ...]
    leaves: tuple[PgLeaf, ...] = ()
    as_root: bool = False
    catalog: str = ""

    @property
    def schema(self) -> TableSchema:
        columns = tuple(one.column for one in self.columns)
        return TableSchema(self.table, columns, self.key, catalog=self.catalog)

    @property
    def is_logged(self) -> bool:
        return self.persistence == "p"

    def to_json(self) -> dict[str, Any]:
        table = [self.table.database, self.table.table]
        return {**vars(self), "table": table, "columns": [vars(one) for one in self.columns]}

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> PgTable:
        known = {
            "table": TableId(*fields["table"]), "key": tuple(fields["key"]),
            "columns": tuple(PgColumn.from_json(one) for one in fields["columns"]),
            "leaves": tuple(PgLeaf(*leaf) for leaf in fields["leaves"]),
        }  # fmt: skip
        return cls(**{**fields, **known})


def read_tables(
    connection: psycopg.Connection[Any],
    publication: str,
    *,
    numbers: Collection[int] | None = None,
    names: Collection[TableId] | None = None,
) -> list[PgTable]:
    """All tables that have rows of their own or in partitions, ordered by name; or those with these numbers
    or names. A partition is part of its root.

    Everything is read in one snapshot: else a change in between would be taken for two that are none."""
    if connection.info.transaction_status == psycopg.pq.TransactionStatus.IDLE:
        with connection.transaction():
            connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            return read_tables(connection, publication, numbers=numbers, names=names)
    of_version = _PUBLISHED_15 if connection.info.server_version >= _PUBLISHES_COLUMNS else _PUBLISHED
    wanted, parameters = "true", dict[str, Any](publication=publication)
    if numbers is not None:
        wanted, parameters["numbers"] = "c.oid = ANY(%(numbers)s)", list(numbers)
    if names is not None:
        wanted = "(n.nspname || '.' || c.relname) = ANY(%(names)s)"
        parameters["names"] = [f"{one.database}.{one.table}" for one in names]
    published, joins, membership = of_version
    has_generated = connection.info.server_version >= _PUBLISHES_GENERATED
    query = _TABLES.format(
        published=published, joins=joins, membership=membership, wanted=wanted,
        generated="p.pubgencols::text" if has_generated else "'n'",
    )  # fmt: skip
    rows = connection.execute(query, parameters).fetchall()
    found = [row[0] for row in rows]
    columns, keys = _columns(connection, found), _keys(connection, found)
    leaves = _leaves(connection, found, publication) if any(row[3] == "p" for row in rows) else {}
    tables = []
    for number, schema, name, kind, persistence, identity, file, all_, listed, *rest in rows:
        listed_columns, where, as_root, last, membership, stored = rest
        of_table = [
            one
            for one in columns.get(number, [])
            if _is_sent(one, listed_columns, has_stored=stored == _STORED)
        ]
        of_key, of_root = tuple(keys.get(number, ())), tuple(leaves.get(number, ()))
        is_published = bool(all_ or listed) and (as_root or not any(one.is_limited for one in of_root))
        if any(one.is_unlogged for one in of_root):
            persistence = "u"
        tables.append(
            PgTable(
                number, TableId(schema, name), kind, persistence, identity, file, is_published, membership,
                where, last, of_key, tuple(of_table), of_root, as_root, connection.info.dbname,
            )
        )  # fmt: skip
    return [one for one in tables if names is None or one.table in set(names)]


def _leaves(
    connection: psycopg.Connection[Any], roots: list[int], publication: str
) -> dict[int, list[PgLeaf]]:
    has_limits = connection.info.server_version >= _PUBLISHES_COLUMNS
    limited = "r.prqual IS NOT NULL OR r.prattrs IS NOT NULL" if has_limits else "false"
    query = _LEAVES.format(limited=limited).encode()
    found: dict[int, list[PgLeaf]] = {}
    for root, *leaf in connection.execute(query, {"roots": roots, "publication": publication}):
        found.setdefault(root, []).append(PgLeaf(*leaf))
    return found


def _is_sent(column: PgColumn, listed: Collection[int] | None, *, has_stored: bool) -> bool:
    """Whether the log has a column. `listed`: a publication's column list. `has_stored`: without one, the
    publication has stored generated columns."""
    if listed is not None:
        return column.number in listed
    return not column.generated or (has_stored and column.generated == _STORED)


def _keys(connection: psycopg.Connection[Any], numbers: list[int]) -> dict[int, list[str]]:
    keys: dict[int, list[str]] = {}
    for number, name in connection.execute(_KEYS, (numbers,)):
        keys.setdefault(number, []).append(name)
    return keys


def _columns(connection: psycopg.Connection[Any], numbers: list[int]) -> dict[int, list[PgColumn]]:
    rows = connection.execute(_COLUMNS, (numbers,)).fetchall()
    types = _Types(connection, {row[3] for row in rows})
    found: dict[int, list[PgColumn]] = {}
    for number, place, name, kind, modifier, not_null, shown, changed, generated, missing, has in rows:
        base, of_domain, labels = types.of(kind)
        text = pg_column(name, base, modifier if modifier != -1 else of_domain, not not_null, shown)
        said = json.loads(text)
        column = PgColumn(place, name, kind, modifier, changed, base, labels, has, missing, said, generated)
        found.setdefault(number, []).append(column)
    return found


@dataclass(frozen=True)
class _Type:
    """`what`: `typtype`. `parts`: the types that it is made of. `send`: the function that sends it."""

    what: str
    modifier: int
    labels: list[str] | None
    parts: list[int] | None
    send: str | None


class _Types:
    """Types, with those that they are made of."""

    def __init__(self, connection: psycopg.Connection[Any], kinds: set[int]) -> None:
        self._known: dict[int, _Type] = {}
        while kinds:
            rows = connection.execute(_TYPES, (list(kinds),)).fetchall()
            self._known |= {kind: _Type(*said) for kind, *said in rows}
            parts = {part for one in self._known.values() for part in one.parts or ()}
            kinds = parts - self._known.keys()

    def of(self, kind: int) -> tuple[str, int, tuple[str, ...] | None]:
        """The type of a type's values (`PgColumn.kind`), the modifier of a domain's base, and the labels of
        the enums in it."""
        modifier = -1
        while (known := self._known.get(kind)) is not None and known.what == "d" and known.parts:
            kind, modifier = known.parts[0], known.modifier if modifier == -1 else modifier
        labels = list[str]()
        made_of = json.dumps(self._made_of(kind, labels))
        is_enum = known is not None and known.what == "e"
        return (
            made_of if pg_reads_binary(made_of) else str(kind),
            modifier,
            tuple(labels) if labels or is_enum else None,
        )

    def _made_of(self, kind: int, labels: list[str]) -> Any:
        """As the core knows it. Adds the labels of its enums."""
        if pg_reads_binary(str(kind)) or (known := self._known.get(kind)) is None:
            return kind
        if known.what == "e":
            labels += known.labels or ()
            return TEXT
        parts = [self._made_of(part, labels) for part in known.parts or ()]
        if known.what == "d":
            return parts[0]
        return [_MADE_OF[known.what], *parts] if known.parts else _SENT.get(known.send or "", kind)
