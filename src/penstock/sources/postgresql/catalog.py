"""The definitions of tables, from the catalog."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, NamedTuple

import psycopg

from penstock._core import pg_column, pg_reads_binary
from penstock.model.schema import Column, TableId, TableSchema

_ENUM_VALUES = 25
"""The type of an enum's values: text."""

_COLUMNS = """
SELECT a.attrelid::int8, a.attname, a.atttypid::int8, a.atttypmod, a.attnotnull,
       format_type(a.atttypid, a.atttypmod), t.typtype, t.typbasetype::int8, t.typtypmod
FROM pg_catalog.pg_attribute a JOIN pg_catalog.pg_type t ON t.oid = a.atttypid
WHERE a.attrelid = ANY(%s) AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attrelid, a.attnum
"""
_KEYS = """
SELECT i.indrelid::int8, a.attname
FROM pg_catalog.pg_index i, unnest(i.indkey) WITH ORDINALITY k(number, place), pg_catalog.pg_attribute a
WHERE i.indrelid = ANY(%s) AND i.indisprimary AND a.attrelid = i.indrelid AND a.attnum = k.number
ORDER BY i.indrelid, k.place
"""
_TABLES = """
SELECT c.oid::int8, n.nspname, c.relname
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind = 'r' AND c.relpersistence = 'p'
  AND n.nspname NOT IN ('pg_catalog', 'information_schema') AND n.nspname NOT LIKE 'pg\\_toast%%'
ORDER BY n.nspname, c.relname
"""
_BASES = "SELECT oid::int8, typtype, typbasetype::int8, typtypmod FROM pg_catalog.pg_type WHERE oid = ANY(%s)"


class Described(NamedTuple):
    """What the catalog says of a table beside what the log does. `types`: of types that are no part of every
    server, the one whose values they have. `shown`: for each column, how the server writes its type, and
    whether it may be NULL."""

    key: list[str]
    types: dict[int, int]
    shown: dict[str, tuple[str, bool]]
    schema: list[dict[str, Any]]
    """The columns (`model.schema.Column`, as JSON)."""
    text_only: list[str]
    """Columns whose binary form is not known."""


def tables(connection: psycopg.Connection[Any]) -> dict[TableId, int]:
    """All tables that the log can have, with their numbers (`pg_class.oid`)."""
    return {TableId(schema, name): number for number, schema, name in connection.execute(_TABLES)}


def described(connection: psycopg.Connection[Any], numbers: Iterable[int]) -> dict[int, Described]:
    """The definitions of tables that exist."""
    wanted = list(numbers)
    columns = connection.execute(_COLUMNS, (wanted,)).fetchall()
    keys: dict[int, list[str]] = {}
    for number, name in connection.execute(_KEYS, (wanted,)):
        keys.setdefault(number, []).append(name)
    bases = _bases(connection, {(row[2], row[6], row[7], row[8]) for row in columns})
    found: dict[int, Described] = {}
    for number, name, kind, modifier, not_null, shown, *_ in columns:
        base, of_domain = bases.get(kind, (kind, -1))
        one = found.setdefault(number, Described(keys.get(number, []), {}, {}, [], []))
        if base != kind:
            one.types[kind] = base
        one.shown[name] = shown, not not_null
        text = pg_column(name, base, modifier if modifier != -1 else of_domain, not not_null, shown)
        one.schema.append(json.loads(text))
        if not pg_reads_binary(base):
            one.text_only.append(name)
    return found


def schema_of(table: TableId, one: Described) -> TableSchema:
    return TableSchema(table, tuple(Column.from_json(column) for column in one.schema), tuple(one.key))


def _bases(
    connection: psycopg.Connection[Any], kinds: set[tuple[int, str, int, int]]
) -> dict[int, tuple[int, int]]:
    """For domains and enums, the type of their values and its modifier. A domain may be one of a domain."""
    found: dict[int, tuple[int, int]] = {}
    known = {kind: (what, base, modifier) for kind, what, base, modifier in kinds}
    for kind in list(known):
        at, modifier = kind, -1
        while True:
            if at not in known:
                rows = connection.execute(_BASES, ([at],)).fetchall()
                known |= {number: (what, base, of) for number, what, base, of in rows}
            what, base, of = known[at]
            if what != "d":
                break
            at, modifier = base, of if modifier == -1 else modifier
        if known[at][0] == "e":
            at = _ENUM_VALUES
        if at != kind:
            found[kind] = at, modifier
    return found
